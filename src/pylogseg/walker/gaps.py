"""The gaps between the good batches of a file, and their kinds."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import NamedTuple

from pylogseg.errors import CorruptionError, MissingKeyError, StorageError
from pylogseg.format.columns import TableColumn, declare_columns


def offsets_text(first: int, end: int | None) -> str:
    """Format a half-open range of offsets with both ends inclusive; `end` is None if unknown."""
    if end is None:
        return f"offsets {first} on"
    return f"offset {first}" if end == first + 1 else f"offsets {first} to {end - 1}"


class GapKind(enum.Enum):
    """Kinds of gaps; the value is the name in reports."""

    CRC_BAD = "crc"
    RECORDS_BAD = "records"
    BAD_LENGTH = "length"
    UNKNOWN_MAGIC = "magic"
    FOREIGN = "foreign"
    ORDER = "order"
    UNREADABLE = "unreadable"
    LOCKED = "locked"  #: Encrypted, and there is no key: not looked at. Readers stop at it as at damage.
    REMOVED = "removed"
    LOST = "lost"  #: No gap in the file: a checkpoint or an index says that there were records.
    TIME = "time"  #: No gap in the file: records whose timestamp a column cannot hold. It is null there.
    DIGITS = "digits"  #: No gap in the file: records with times whose last digits a column cannot hold. It lacks these.
    TORN = "torn"
    ZEROS = "zeros"

    @property
    def is_damage(self) -> bool:
        """True for corruption; a torn or zeroed tail, a removed segment, and a value that a column cannot hold are
        notices.
        """
        return self not in (
            GapKind.TORN, GapKind.ZEROS, GapKind.REMOVED, GapKind.LOST, GapKind.TIME, GapKind.DIGITS
        )  # fmt: skip


def kind_of(error: StorageError) -> GapKind:
    """Return the kind of the gap that an error of the disk leaves."""
    return GapKind.LOCKED if isinstance(error, MissingKeyError) else GapKind.UNREADABLE


@declare_columns(
    TableColumn("kind", "string", "a word of `GapKind`, such as crc, length or torn"),
    TableColumn("path", "string", "of the file"),
    TableColumn("position", "int64", "of its first byte", "bytes"),
    TableColumn("endPosition", "int64", "after its last byte", "bytes"),
    TableColumn("firstOffset", "int64", "the lowest offset that may be missing"),
    TableColumn("nextOffset", "int64", "of the next good batch; null for none"),
    TableColumn("reason", "string", "with the value found"),
)
class Gap(NamedTuple):
    """A range of a file without readable records.

    Attributes
    ----------
    path : str
    kind : GapKind
    position, end_position : int
        The bytes, half-open.
    first_offset : int
        The lowest offset that may be missing: one above the last good batch.
    next_offset : int or None
        The offset that the next good batch begins with; None if none follows in the file.
    reason : str
        What is wrong, with the value found.
    is_damage : bool
        True if this is corruption. A torn or zero-filled tail is not, unless a later segment follows.
    records : int
        How many records have a time that the column cannot hold; 0 for a gap in a file.
    """

    path: str
    kind: GapKind
    position: int
    end_position: int
    first_offset: int
    next_offset: int | None
    reason: str
    is_damage: bool
    records: int = 0

    @property
    def is_loss(self) -> bool:
        """True if the result lacks records (damaged, lost, or removed by a broker meanwhile), timestamps or digits."""
        return self.is_damage or self.kind in (GapKind.REMOVED, GapKind.LOST) or self.is_of_column

    @property
    def is_of_column(self) -> bool:
        """True if all records are read, and a column cannot hold a time of some of them."""
        return self.kind in (GapKind.TIME, GapKind.DIGITS)

    @property
    def is_of_file(self) -> bool:
        """True if a file was not there, or could not be opened: each reader of a part of it says so."""
        return self.kind in (GapKind.REMOVED, GapKind.UNREADABLE, GapKind.LOCKED) and self.position == 0

    def joined(self, other: Gap) -> Gap | None:
        """Return one gap for two that readers of parts of a removed file noted; None if they do not belong together."""
        if self.is_of_column and self.kind is other.kind:
            wide, narrow = sorted((self, other), key=lambda gap: -gap.records)
            return wide if wide.path == narrow.path and _covers(wide, narrow) else None
        ends = [gap.next_offset for gap in (self, other)]
        follows = ends[0] is None or other.first_offset <= ends[0]
        precedes = ends[1] is None or self.first_offset <= ends[1]
        same = self.is_of_file and other.is_of_file and (self[:3], self[6:]) == (other[:3], other[6:])
        if not (same and follows and precedes):
            return None
        return self._replace(
            end_position=max(self.end_position, other.end_position),
            first_offset=min(self.first_offset, other.first_offset),
            next_offset=None if None in ends else max(end for end in ends if end is not None),
        )

    def __str__(self) -> str:
        if self.is_of_column:
            others = f"; {self.records} records in all have such a time" if self.records > 1 else ""
            return f"{self.path}: offset {self.first_offset}: {self.reason}{others}"
        if self.kind is GapKind.LOST:
            return f"{self.path}: {offsets_text(self.first_offset, self.next_offset)} are lost: {self.reason}"
        if self.next_offset is None:
            missing = f"offsets from {self.first_offset} on"
        elif self.next_offset > self.first_offset:
            missing = f"offsets {self.first_offset} to {self.next_offset - 1}"
        else:
            missing = "no offset missing"
        return (
            f"{self.path}: bytes {self.position} to {self.end_position} ({self.kind.value}; {missing}): {self.reason}"
        )

    def as_error(self) -> CorruptionError | StorageError:
        """Return the gap as an exception with its remedy; a `StorageError` if the disk cannot read it."""
        if self.kind is GapKind.LOCKED:
            return MissingKeyError(self.path, "read", self.reason.removeprefix("cannot read: "))
        if self.kind is GapKind.UNREADABLE:
            reason = f'{self.reason} (offset {self.first_offset}; on_corrupt="skip" goes on after it)'
            return StorageError(self.path, f"read from position {self.position} on", reason)
        return CorruptionError(
            self.path,
            self.position,
            f'{self.reason} (on_corrupt="skip" goes on after the damage, "stop" ends before it)',
            self.first_offset,
        )


def joined_times(gaps: Iterable[Gap]) -> list[Gap]:
    """Join the gaps of times that a column cannot hold: one of each kind, at the place of the first."""
    joined, first = list[Gap](), dict[GapKind, int]()
    for gap in gaps:
        if gap.is_of_column and gap.kind in first:
            before = joined[first[gap.kind]]
            joined[first[gap.kind]] = before._replace(records=before.records + gap.records)
        else:
            first.setdefault(gap.kind, len(joined))
            joined.append(gap)
    return joined


def add_of_column(gaps: list[Gap], gap: Gap) -> None:
    """Add a gap for a value that a column cannot hold; it is joined with a directly preceding gap of the same file."""
    before = gaps[-1] if gaps else None
    if before is not None and before[:2] == gap[:2] and (before.next_offset or 0) <= gap.first_offset:
        gaps[-1] = before._replace(next_offset=gap.next_offset, records=before.records + gap.records)
    else:
        gaps.append(gap)


def _covers(wide: Gap, narrow: Gap) -> bool:
    ends = wide.next_offset, narrow.next_offset
    return None not in ends and wide.first_offset <= narrow.first_offset and (ends[0] or 0) >= (ends[1] or 0)


def add_gaps(noted: list[Gap], more: Iterable[Gap]) -> None:
    """Add gaps to a list, each once; parts of a removed file become one gap."""
    for gap in more:
        place = len(noted)
        for i in reversed(range(len(noted))):
            both = gap if noted[i] == gap else noted[i].joined(gap)
            if both is not None:
                gap, place = both, i
                del noted[i]
        noted.insert(place, gap)
