"""Work on whole disks: one function per segment that returns one row of results, and the pool that maps it.

The functions know neither shell nor pool: Spark maps the same ones over tasks.
"""
