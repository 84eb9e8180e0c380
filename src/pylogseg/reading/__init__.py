"""Read a log from its files: seeking, damage, transactions, and the stream on top."""
