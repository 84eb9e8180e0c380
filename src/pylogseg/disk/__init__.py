"""Find log directories, partitions and segments by their names; resolve names and paths to them."""
