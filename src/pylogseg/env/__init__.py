"""The operating system: local and remote files, locks, clock and scheduler. Knows nothing of file formats."""
