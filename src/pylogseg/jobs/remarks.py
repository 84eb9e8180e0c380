"""What a check has to say about a file: damage, or news; with a remedy."""

from __future__ import annotations

import enum
from typing import Any, NamedTuple

from pylogseg.errors import CorruptionError
from pylogseg.reading.findings import Finding, Gap


class Level(enum.IntEnum):
    """How much is checked; each level includes those before it."""

    HEADERS = 0
    """Batch headers: lengths, magic, offsets in order and inside the segment."""
    CRC = 1
    """The check sum of every batch."""
    RECORDS = 2
    """Every record, decompressed: structure, offsets, timestamps, the check sums inside of legacy wrappers."""
    INDEXES = 3
    """Every entry of every index against the log, and the small files of partitions and log directories."""


class Remark(NamedTuple):
    """One thing that a check found.

    Attributes
    ----------
    path : str
    kind : str
        One of `REMEDIES`.
    is_damage : bool
        Whether bytes are wrong; otherwise it is news: worth knowing, and what a broker takes in its stride.
    reason : str
        What is wrong, with the value found.
    position : int or None
        Byte position in the file.
    offset : int or None
        The first offset concerned.
    """

    path: str
    kind: str
    is_damage: bool
    reason: str
    position: int | None = None
    offset: int | None = None

    @property
    def remedy(self) -> str:
        """What to do about it."""
        return REMEDIES[self.kind]

    def as_row(self) -> dict[str, Any]:
        """Fields for a JSON line."""
        level = "damage" if self.is_damage else "notice"
        return {
            "type": "finding",
            "level": level,
            "kind": self.kind,
            "path": self.path,
            "position": self.position,
            "offset": self.offset,
            "reason": self.reason,
            "remedy": self.remedy,
        }


_COPY = "take the partition from another replica; or read around it with --on-corrupt skip"
_REBUILT = "delete the file while the broker is stopped: it is built anew from the log"

#: What to do about each kind of finding.
REMEDIES = {
    Finding.CRC_BAD.value: _COPY,
    Finding.RECORDS_BAD.value: _COPY,
    Finding.BAD_LENGTH.value: _COPY,
    Finding.UNKNOWN_MAGIC.value: _COPY,
    Finding.FOREIGN.value: "unpack an archive; else use the tools of the program that wrote it",
    Finding.REMOVED.value: "none: a broker deletes the oldest segments, and a new leader has the newest truncated",
    Finding.TORN.value: "none: a broker cuts it off when it recovers the log",
    Finding.ZEROS.value: "none after a crash; remove .kafka_cleanshutdown if it is there, so that the log is recovered",
    "header": _COPY,
    "order": "take the partition from another replica: a broker serves these offsets twice or not at all",
    "inner-crc": _COPY,
    "timestamp": "none: look-ups by time may miss records",
    "gap": "none if records were deleted; else take the partition from another replica",
    "overlap": "take the partition from another replica: two segments claim the same offsets",
    "leader-epoch": "delete leader-epoch-checkpoint while the broker is stopped, or take another replica",
    "offset-index": _REBUILT,
    "time-index": _REBUILT,
    "transaction-index": "delete .txnindex and .index of the segment while the broker is stopped: they are built anew",
    "missing-index": "none: a broker builds it anew when it starts",
    "orphan": "none: a broker deletes it when it starts",
    "leftover": "none: a broker deletes it, or finishes the swap, when it starts",
    "snapshot": "delete the file while the broker is stopped: it is built anew from the log",
    "kraft-snapshot": "take the file from another controller, or delete it if an older one is there",
    "checkpoint": "take the file from a backup, or delete it while the broker is stopped: the log is then recovered",
    "metadata": "write the file anew, with the ids that the cluster knows",
    Finding.UNREADABLE.value: "see to the disk or to the permissions",
}


def of_gap(gap: Gap) -> Remark:
    """The remark about a stretch without good batches."""
    span = f" (bytes {gap.position} to {gap.end_position})"
    return Remark(gap.path, gap.kind.value, gap.is_alarm, gap.reason + span, gap.position, gap.first_offset)


def of_error(kind: str, error: CorruptionError, is_damage: bool = True) -> Remark:
    """The remark about a file that cannot be parsed."""
    return Remark(error.path, kind, is_damage, error.reason, error.position, error.offset)
