"""Logs as tables for SQL engines and lazy frames."""
