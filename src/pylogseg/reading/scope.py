"""What a reader is to read, for those who read it otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pylogseg.reading.log_reader import Source
from pylogseg.reading.partition import ReadOptions


class Scope(NamedTuple):
    """What a reader is to read.

    Attributes
    ----------
    logs : sequence of Source
    offsets, times : (int, int), (int or None, int or None)
        Half-open ranges.
    limit : int or None
        Most records.
    options : ReadOptions
    """

    logs: Sequence[Source]
    offsets: tuple[int, int]
    times: tuple[int | None, int | None]
    limit: int | None
    options: ReadOptions
