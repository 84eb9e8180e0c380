"""Runs of a command again and again, until Ctrl-C."""

from __future__ import annotations

import time
from collections.abc import Callable

import click

from pylogseg.archive.looking import span_text
from pylogseg.cli import common
from pylogseg.env.interrupts import mark_answered
from pylogseg.errors import CorruptionError, PylogsegError, RequestError, is_missing


def parse_interval(text: str) -> float:
    """Return the seconds between two runs; RequestError below 1 s."""
    seconds = common.parse_duration(text)
    if seconds < 1:
        raise RequestError(f"invalid time {text!r}: expected 1s or more between two runs")
    return seconds


def repeat(run_once: Callable[[], int], seconds: float) -> None:
    """Run until interrupted, also after runs that failed; the exit code is the worst one of them, 130 without any.

    An error of usage ends the first run, and so does a disk that is not there; later runs may miss one that comes back.
    """
    worst, is_first = 0, True
    try:
        while True:
            began = time.monotonic()
            try:
                worst = max(worst, run_once())
            except PylogsegError as error:
                if is_first and (isinstance(error, RequestError) or is_missing(error)):
                    raise
                common.complain(f"{common.remedy(error)}; the next run is in {span_text(seconds)}")
                worst = max(worst, 1 if isinstance(error, CorruptionError) else 2)
            is_first = False
            time.sleep(max(0.0, seconds - (time.monotonic() - began)))
    except KeyboardInterrupt:
        if worst:
            mark_answered()
            click.get_current_context().exit(worst)
        raise
