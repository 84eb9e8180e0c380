"""A batch found in the file of a segment, with the bytes that were read to find it."""

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
        Bytes of the file, including the batch.
    start : int
        Their position.
    """

    offset: int
    position: int
    size: int
    view: memoryview
    start: int

    def data(self, file: AppendFile, size: int) -> memoryview:
        """Return up to `size` bytes from the batch on."""
        here = self.view[self.position - self.start : self.position - self.start + size]
        if len(here) >= size:
            return here
        more = file.view(self.position, size)
        # After a truncation in between, the bytes that were read are returned.
        head = here[:_HEADER_BYTES]
        return more if more[: len(head)] == head else here
