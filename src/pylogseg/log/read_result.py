"""Questions and answers of reads of a log, for callers that do not need the engine itself and its imports."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pylogseg.env.storage import AppendFile

#: Timestamps that ask for an offset by its meaning.
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6


class FileSlice(NamedTuple):
    """A part of a file."""

    file: AppendFile
    position: int
    size: int


class FoundOffset(NamedTuple):
    """An offset found by time; an unknown timestamp or epoch is -1."""

    timestamp: int
    offset: int
    leader_epoch: int = -1
