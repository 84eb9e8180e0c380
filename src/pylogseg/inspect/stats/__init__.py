"""Statistics of segments and partitions: a function of one segment that returns one row."""
