"""Ctrl-C: held back where it would be lost. It is noted, so that a command with a lost interrupt does not succeed."""

from __future__ import annotations

import _thread
import signal
import sys
import threading
import time
from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TypeVar

T = TypeVar("T")

#: How long an interrupt waits for a job at most.
_LOOK_SECONDS = 0.05
#: Interrupts that nobody has answered yet.
_unanswered: list[int] = []


@contextmanager
def held_back() -> Iterator[None]:
    """Let an interrupt come at the end of the block.

    For imports: the first lines of a compiled module (by Cython) and the callbacks of the import system swallow all
    exceptions. For short calls of duckdb, which makes it an error of its own. For locks of Python's library: they would
    stay locked. Nothing is held back where the interrupt is ignored or ends the process, and in threads that get no
    signals.
    """
    handler = signal.getsignal(signal.SIGINT)
    if not callable(handler) or threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[tuple[int, FrameType | None]] = []
    signal.signal(signal.SIGINT, lambda number, frame: came.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if came:
            handler(*came[0])


def result_of(job: futures.Future[T]) -> T:
    """Wait for the result of a job by polling: an interrupt inside a wait would leave the job's lock taken."""
    while True:
        with held_back():
            with suppress(futures.TimeoutError):
                job.exception(_LOOK_SECONDS)
            if job.done():
                return job.result()


def note_all() -> None:
    """Note interrupts from now on, for the command of this process; raise one again that a destructor swallowed."""
    before = sys.unraisablehook

    def note(number: int, frame: FrameType | None) -> None:
        _unanswered.append(number)
        signal.default_int_handler(number, frame)

    def again() -> None:
        time.sleep(_LOOK_SECONDS)
        _thread.interrupt_main()

    def ignore(what: sys.UnraisableHookArgs, /) -> None:
        if issubclass(what.exc_type, KeyboardInterrupt):
            _thread.start_new_thread(again, ())
        else:
            before(what)

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, note)
        sys.unraisablehook = ignore


def mark_answered() -> None:
    """Note that a command has answered the interrupts so far, and goes on or ends well."""
    _unanswered.clear()


def is_unanswered() -> bool:
    """Check whether an interrupt was noted that no `mark_answered` followed."""
    return bool(_unanswered)
