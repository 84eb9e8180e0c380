"""The log of one partition, owned by a Python program: opening, appending, reading, producers, metrics."""
