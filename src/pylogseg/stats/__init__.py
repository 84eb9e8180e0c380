"""What is in segments and partitions, counted: a function of one segment that returns one row."""
