"""Log directories, partitions and segments, found by their names; which of them a name or a path means."""
