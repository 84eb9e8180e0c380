"""The parts of a set that form one log: of overlapping uploaded segments, or of the remains of several replicas.

A part belongs to a lineage up to where the two part. A broker does so with a tier: it asks for the segment of an epoch
and an offset. So a segment serves the offsets of each epoch that it shares with the leader, and no other offsets.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from enum import Enum
from itertools import pairwise
from typing import NamedTuple

from pylogseg.disk.lineage.chains import UNKNOWN_EPOCH, Lineage, divergence
from pylogseg.format.files.checkpoint import EpochEntry


class LogRange(NamedTuple):
    """A half-open range of offsets that can be read somewhere, for example an uploaded segment.

    Epochs of its log up to the end of the part tell more than its own. The part with the lowest `rank` comes first.
    """

    first_offset: int
    end_offset: int
    epochs: tuple[EpochEntry, ...]
    rank: int = 0

    @property
    def lineage(self) -> Lineage:
        """The history that the part shows."""
        return Lineage.of(self.epochs, self.first_offset, self.end_offset)


class Piece(NamedTuple):
    """Offsets of the log that come from one part."""

    part: int  #: Its place in the list of parts.
    first_offset: int
    end_offset: int


class LeftKind(Enum):
    """Why offsets of a part are not in the log, or not taken from it."""

    BRANCH = "branch"  #: Another leader wrote the log there: records that were lost by an election.
    OUTSIDE = "outside"  #: Below the start of the log, or after its end.
    COPY = "copy"  #: They come from another part.
    CLAIM = "claim"  #: It was said to have them, or an epoch of theirs, and has not.


class LeftOut(NamedTuple):
    """Offsets of a part that are left out."""

    part: int
    first_offset: int
    end_offset: int
    kind: LeftKind
    reason: str


class Assembly(NamedTuple):
    """A log made of parts: its pieces by offset, without overlaps, and the half-open ranges that no part has."""

    pieces: list[Piece]
    left: list[LeftOut]
    holes: list[tuple[int, int]]


def lineage_of(parts: Sequence[LogRange]) -> Lineage:
    """Return the lineage of the log behind some parts, made of the parts alone.

    The part with the highest last epoch has it, the longest of several. Epochs below its first one come from the next
    best ones: the checkpoint of a log begins where its records did when the part was taken.
    """
    epochs: list[EpochEntry] = []
    best = sorted(parts, key=lambda part: (part.lineage.last_epoch, part.end_offset), reverse=True)
    for part in best:
        entries = part.lineage.epochs
        if not epochs:
            epochs = list(entries)
            continue
        first = epochs[0]
        if any(entry.epoch == first.epoch and entry.start_offset < first.start_offset for entry in entries):
            epochs[0] = first = next(entry for entry in entries if entry.epoch == first.epoch)
        below = (entry for entry in entries if entry.epoch < first.epoch and entry.start_offset < first.start_offset)
        epochs = [*below, *epochs]
    if not best:
        return Lineage((), 0, 0)
    end = max(part.end_offset for part in best if part.lineage.last_epoch == best[0].lineage.last_epoch)
    lineage = Lineage.of(epochs, min(part.first_offset for part in best), end)
    return lineage._replace(start=min(part.first_offset for part in best if _is_near(part, lineage)))


def _is_near(part: LogRange, lineage: Lineage) -> bool:
    """Check whether a part has offsets of a lineage at all."""
    within = divergence(part.lineage, lineage)
    return within.epoch is not None and part.first_offset < min(within.offset, lineage.end)


def assemble(parts: Sequence[LogRange], lineage: Lineage) -> Assembly:
    """Choose for each offset of a log the part it comes from; parts may overlap, and may be of other branches.

    The lowest rank goes first, then a part that knows its leader epoch there. A part goes on as far as it can; the one
    that reaches furthest follows.
    """
    ranges: list[_Range] = []
    left: list[LeftOut] = []
    for number, part in enumerate(parts):
        within = divergence(part.lineage, lineage)
        low, high = max(part.first_offset, lineage.start), min(part.end_offset, lineage.end)
        if part.first_offset < min(low, part.end_offset):
            reason = f"the log begins at offset {lineage.start}"
            left.append(LeftOut(number, part.first_offset, min(low, part.end_offset), LeftKind.OUTSIDE, reason))
        same = low if within.epoch is None else max(low, min(high, within.offset))
        agreed = _find_agreed_ranges(part.lineage, lineage, low, same)
        ranges += [_Range(start, end, number, 2 * part.rank + is_unknown) for start, end, is_unknown in agreed]
        ends, starts = [low, *(span[1] for span in agreed)], [*(span[0] for span in agreed), max(low, high)]
        for start, end in zip(ends, starts, strict=True):
            if start < end:
                left.append(LeftOut(number, start, end, LeftKind.BRANCH, _why(part.lineage, lineage, start)))
        if max(high, part.first_offset) < part.end_offset:
            reason = f"the log ends at offset {lineage.end}"
            left.append(LeftOut(number, max(high, part.first_offset), part.end_offset, LeftKind.OUTSIDE, reason))
    pieces, holes = _swept(sorted(ranges), lineage)
    left += _copies(ranges, pieces)
    return Assembly(pieces, sorted(left, key=lambda piece: (piece.part, piece.first_offset)), holes)


class _Range(NamedTuple):
    """Offsets that could come from a part."""

    start: int
    end: int
    part: int
    rank: int  #: The lowest one is taken.


def _find_agreed_ranges(part: Lineage, lineage: Lineage, low: int, high: int) -> list[tuple[int, int, bool]]:
    """Return the parts of a range in which a part's leader epochs do not contradict the log's ones.

    Each comes with a flag: True if the part has no epoch there, since its list begins later. Below a common epoch the
    two contradict each other if a crash brought deleted records back, which no replica has compared.
    """
    begins = {entry.start_offset for entry in (*part.epochs, *lineage.epochs) if low < entry.start_offset < high}
    agreed: list[tuple[int, int, bool]] = []
    for start, end in pairwise(sorted({low, *begins, high})):
        own, theirs = part.epoch_at(start), lineage.epoch_at(start)
        is_unknown = own == UNKNOWN_EPOCH != theirs
        if len({own, theirs} - {UNKNOWN_EPOCH}) < 2:
            first = agreed.pop()[0] if agreed and agreed[-1][1:] == (start, is_unknown) else start
            agreed.append((first, end, is_unknown))
    return agreed


def _swept(ranges: list[_Range], lineage: Lineage) -> tuple[list[Piece], list[tuple[int, int]]]:
    pieces: list[Piece] = []
    holes: list[tuple[int, int]] = []
    there: list[tuple[int, int, int]] = []  # rank, end (negative: the furthest first), part
    taken: tuple[int, int, int] | None = None
    position, following = lineage.start, 0
    while position < lineage.end:
        while following < len(ranges) and ranges[following][0] <= position:
            _, end, number, rank = ranges[following]
            heapq.heappush(there, (rank, -end, number))
            following += 1
        while there and -there[0][1] <= position:
            heapq.heappop(there)
        until = ranges[following].start if following < len(ranges) else lineage.end
        if not there:
            holes.append((position, until))
            position, taken = until, None
            continue
        if taken is None or -taken[1] <= position or there[0][0] < taken[0]:
            taken = there[0]
        stop = min(-taken[1], until)
        if pieces and (pieces[-1].part, pieces[-1].end_offset) == (taken[2], position):
            pieces[-1] = pieces[-1]._replace(end_offset=stop)
        else:
            pieces.append(Piece(taken[2], position, stop))
        position = stop
    return pieces, holes


def _copies(ranges: Iterable[_Range], pieces: Iterable[Piece]) -> list[LeftOut]:
    """Return the ranges of a part that were taken from another part."""
    taken: dict[int, list[Piece]] = {}
    for piece in pieces:
        taken.setdefault(piece.part, []).append(piece)
    left = []
    for low, high, number, _ in ranges:
        within = [piece for piece in taken.get(number, ()) if low <= piece.first_offset < high]
        for piece in [*within, Piece(number, high, high)]:
            if low < piece.first_offset:
                reason = "these offsets come from another part"
                left.append(LeftOut(number, low, piece.first_offset, LeftKind.COPY, reason))
            low = piece.end_offset
    return left


def _why(part: Lineage, lineage: Lineage, offset: int) -> str:
    own, theirs = part.epoch_at(offset), lineage.epoch_at(offset)
    begins = next((entry.start_offset for entry in lineage.epochs if entry.epoch == theirs), lineage.start)
    return f"at offset {offset} it has leader epoch {own}; the log has epoch {theirs}, from offset {begins} on"
