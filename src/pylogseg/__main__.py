"""`pylogseg` and `python -m pylogseg`: the shell. It handles Ctrl-C from here on, before click is loaded."""

from __future__ import annotations

import os
import signal
import sys

if sys.path[0] == os.path.dirname(os.path.abspath(__file__)):
    del sys.path[0]  # run as a file, as spark-submit does: the folders beside it are no packages of others

from pylogseg.env.garbage import freeze_imports
from pylogseg.env.interrupts import held_back, is_unanswered, note_all

_INTERRUPTED = 130


def main() -> None:
    """Entry point of the `pylogseg` script; ends the process."""
    code: str | int | None = 0
    try:
        note_all()
        with held_back(), freeze_imports():
            from pylogseg.cli import run_command_line as run
        run()
    except KeyboardInterrupt:
        code = _INTERRUPTED
    except SystemExit as end:
        code = end.code
    except Exception:
        if not is_unanswered():  # else a library has made this of the interrupt
            raise
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # nothing is left that would have to be cleaned up
    except KeyboardInterrupt:  # it came before that
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    if is_unanswered():
        code = _INTERRUPTED
    if code == _INTERRUPTED and "pylogseg.cli.streams" in sys.modules:
        from pylogseg.cli.streams import forget_unread

        forget_unread()
    sys.exit(code)


if __name__ == "__main__":
    main()
