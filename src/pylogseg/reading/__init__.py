"""Reading a log from its files: windows of batches, seeking, damage, transactions, and the stream on top."""
