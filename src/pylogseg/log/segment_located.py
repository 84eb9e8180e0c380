"""A batch that was looked for in the file of a segment, and the bytes that were looked at."""

from __future__ import annotations

from typing import NamedTuple

from pylogseg.env.storage import AppendFile

_HEADER_BYTES = 61


class Located(NamedTuple):
    """A batch, and bytes around it.

    Attributes
    ----------
    offset, position, size : int
        Its base offset, position in the file and size.
    view : memoryview
        Bytes of the file, those of the batch among them.
    start : int
        Their position.
    """

    offset: int
    position: int
    size: int
    view: memoryview
    start: int

    def data(self, file: AppendFile, size: int) -> memoryview:
        """Bytes from the batch on, at least those of the batch if so many are wanted."""
        here = self.view[self.position - self.start : self.position - self.start + size]
        if len(here) >= size:
            return here
        more = file.view(self.position, size)
        # A truncation may have come between: then what was looked at stays what is given.
        head = here[:_HEADER_BYTES]
        return more if more[: len(head)] == head else here
