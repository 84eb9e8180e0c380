"""`python -m pylogseg`: the shell, where its script is not on the path."""

from pylogseg.cli import main

main()
