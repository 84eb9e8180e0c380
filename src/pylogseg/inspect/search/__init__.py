"""Search records for text, bytes and regular expressions."""
