"""Standard output and error: escaped, and given up where nobody reads on."""

from __future__ import annotations

import logging
import os
import select
import sys
from typing import Any

import click

from pylogseg.format.escape import printable, printable_line


class Shown:
    """A text stream that escapes control sequences, and characters that cannot be encoded.

    Output contains folder names, bytes of small files and arguments, which may come from anyone.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, written: str) -> int:
        if not isinstance(written, str):
            raise TypeError(f"expected str, got {type(written).__name__}")
        shown = printable(written)
        self._stream.write(shown.encode(self.encoding, "backslashreplace").decode(self.encoding))
        return len(written)

    @property
    def encoding(self) -> str:
        """The stream's encoding, or UTF-8. Never None as on rich's stream: click would bypass such a stream."""
        return getattr(self._stream, "encoding", None) or "utf-8"

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def say(*lines: object, err: bool = False) -> None:
    """Print lines; a line end in one of them, as in the name of a folder, is escaped: it begins no other line."""
    for line in lines:
        click.echo(printable_line(str(line)), err=err)


def bare(stream: Any) -> Any:
    """Return the stream without `Shown`: for rich, which writes control sequences itself and gets printable text."""
    return stream._stream if isinstance(stream, Shown) else stream


def forget_output() -> None:
    """Discard the buffered output: the interpreter flushes once more at exit."""
    try:
        descriptor = sys.stdout.fileno()
    except (OSError, ValueError):
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


def forget_unread() -> None:
    """Discard the buffer of a full pipe; otherwise the exit waits for its reader, and the reader may wait for us."""
    try:
        waiting = select.poll()
        waiting.register(sys.stdout.fileno(), select.POLLOUT)
    except (OSError, ValueError, AttributeError):  # it is closed, or a system without `poll`
        return
    if not waiting.poll(0):
        forget_output()


class PrintedWarnings(logging.Handler):
    """Prints warnings of a logger on stderr."""

    def emit(self, record: logging.LogRecord) -> None:
        say(f"pylogseg: {printable(record.getMessage())}", err=True)
