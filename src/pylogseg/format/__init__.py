"""On-disk structures as bytes and columns; nothing here opens a file."""
