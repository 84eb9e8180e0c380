"""Decode Kafka's internal topics."""
