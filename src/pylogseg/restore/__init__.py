"""Records back into partitions that a broker opens: written apart, put in place by renames."""
