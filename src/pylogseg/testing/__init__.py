"""Tools for tests: a storage in memory, one that fails, crash images, a clock and a scheduler that move when told."""
