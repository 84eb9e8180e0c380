"""Check a disk: segments, their indexes and other small files, and missing data."""
