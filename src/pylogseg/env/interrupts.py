"""Ctrl-C held back where it would be lost."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def held_back() -> Iterator[None]:
    """Let an interrupt come at the end of the block.

    For imports: the first lines of a compiled module, which Cython writes, swallow whatever is raised in them, and so
    do the callbacks of the import system. Nothing is held back where the interrupt is ignored or ends the process, and
    in threads that get no signals.
    """
    handler = signal.getsignal(signal.SIGINT)
    if not callable(handler) or threading.current_thread() is not threading.main_thread():
        yield
        return
    came = []
    signal.signal(signal.SIGINT, lambda number, frame: came.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if came:
            handler(*came[0])
