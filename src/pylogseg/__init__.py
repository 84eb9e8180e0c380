"""Kafka's log storage engine and record format, without the broker."""

__version__ = "0.1.0"
