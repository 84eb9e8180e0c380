"""What a log must be like after a crash: images of disks, failing operations, readers beside a writer, real disks.

`python tests/crash --help` looks at more of them, and for longer, than the test suite does.
"""
