"""`pylogseg` and `python -m pylogseg`: the shell. Interrupts count from here on, before click is there."""

from __future__ import annotations

import os
import sys

if sys.path[0] == os.path.dirname(os.path.abspath(__file__)):
    del sys.path[0]  # run as a file, as spark-submit does: the folders beside it are no packages of others

from pylogseg.env.interrupts import held_back


def main() -> None:
    """Entry point of the `pylogseg` script; ends the process."""
    try:
        with held_back():
            from pylogseg.cli import main as run
        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
