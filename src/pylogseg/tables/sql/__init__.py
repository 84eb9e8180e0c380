"""SQL over the tables of a disk, by duckdb."""
