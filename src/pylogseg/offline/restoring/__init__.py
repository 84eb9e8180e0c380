"""Write records back into partitions that a broker opens: in a staging folder, then renamed into place."""
