"""The copies of a cluster's metadata log on the disks of its nodes, compared."""
