"""What a load found and did to a log's folder, as values: for people, for programs, for the copies that are kept."""

from __future__ import annotations

import enum
import logging
from dataclasses import dataclass, field
from typing import Any

from pylogseg.format.escape import printable
from pylogseg.walker.findings import offsets_text

_log = logging.getLogger(__name__)


class ActionKind(enum.Enum):
    """What was done; the value is how a report names it."""

    CUT = "cut"
    """Bytes of a segment went, at its end but for a repair: no good batch is there."""
    EMPTIED = "emptied"
    """All bytes of a segment went: its batches contradict one another."""
    DROPPED = "dropped"
    """A whole segment went: it lies behind a cut, or the log ends below its start."""
    REPLACED = "replaced"
    """A file of a segment went, since a `.swap` file takes its place."""
    SWAPPED = "swapped"
    """A `.swap` file got its name."""
    SPLIT = "split"
    """A segment whose offsets do not fit its indexes became several."""
    LEFTOVER = "leftover"
    """A file went that was being deleted or written when the log was left."""
    ORPHAN = "orphan"
    """An index without its segment went."""
    INDEX = "index"
    """An index was missing, or had other entries than its log gives, and was made anew."""
    SNAPSHOT = "snapshot"
    """A producer snapshot went: unreadable, or of no segment."""
    EPOCHS = "epochs"
    """The leader epochs were cut or completed."""
    CREATED = "created"
    """A segment was made, since none was left."""
    GARBAGE = "garbage"
    """Bytes behind the last batch stay: a broker overlooks them after an orderly stop."""
    HIDDEN = "hidden"
    """Batches stay whose offsets go back: a broker takes the log to end in front of them."""


#: What to do about it, if anything.
_LOSS = "take the partition from another replica if this broker had the only good one; or read the copy that was kept"
REMEDIES = {
    ActionKind.CUT: _LOSS,
    ActionKind.EMPTIED: _LOSS,
    ActionKind.DROPPED: _LOSS,
    ActionKind.REPLACED: "none: the file that was swapped in holds what is to stay",
    ActionKind.SWAPPED: "none",
    ActionKind.SPLIT: "none: the new segments hold the same batches",
    ActionKind.LEFTOVER: "none",
    ActionKind.ORPHAN: "none",
    ActionKind.INDEX: "none",
    ActionKind.SNAPSHOT: "none",
    ActionKind.EPOCHS: "none",
    ActionKind.CREATED: "none",
    ActionKind.GARBAGE: "before an append, which no reader would come to, remove .kafka_cleanshutdown from the log "
    "directory and open the log again: that cuts them off",
    ActionKind.HIDDEN: "before an append, which would use their offsets again, let "
    "`pylogseg repair --keep-behind` remove the batch that is out of order",
}
_REMOVALS = (ActionKind.REPLACED, ActionKind.LEFTOVER, ActionKind.ORPHAN, ActionKind.SNAPSHOT)


@dataclass(frozen=True, slots=True)
class Action:
    """One thing that a load did to a file.

    Attributes
    ----------
    kind : ActionKind
    path : str
    reason : str
        Why, with the value that was found.
    is_damage : bool
        Whether records may be lost that had been written whole. A torn or zero-filled end is none.
    position, end_position : int or None
        The bytes that went, half-open.
    first_offset, next_offset : int or None
        The offsets that went with them, half-open; the end where it is known.
    kept : str or None
        Where a copy of the bytes lies.
    """

    kind: ActionKind
    path: str
    reason: str
    is_damage: bool = False
    position: int | None = None
    end_position: int | None = None
    first_offset: int | None = None
    next_offset: int | None = None
    kept: str | None = None

    @property
    def bytes_gone(self) -> int:
        """How many bytes of batches went."""
        return 0 if self.position is None or self.end_position is None else self.end_position - self.position

    @property
    def remedy(self) -> str:
        """What to do about it."""
        if self.kind is ActionKind.CUT and not self.is_damage:
            return "none: a crash leaves this of an append that had not reached the disk"
        return REMEDIES[self.kind]

    @property
    def place(self) -> str:
        """The file with the bytes and offsets that went."""
        text = self.path
        if self.bytes_gone:
            text += f", bytes {self.position} to {self.end_position}"
        if self.first_offset is not None:
            text += f", {offsets_text(self.first_offset, self.next_offset)}"
        return text

    def __str__(self) -> str:
        kept = f" (copy: {self.kept})" if self.kept else ""
        return f"{self.kind.value} {self.place}: {self.reason}{kept}"

    def as_row(self) -> dict[str, Any]:
        """Fields for a JSON line."""
        return {
            "kind": self.kind.value,
            "level": "damage" if self.is_damage else "notice",
            "path": self.path,
            "position": self.position,
            "endPosition": self.end_position,
            "firstOffset": self.first_offset,
            "nextOffset": self.next_offset,
            "reason": self.reason,
            "remedy": self.remedy,
            "kept": self.kept,
        }


@dataclass
class LoadReport:
    """What a load found and did.

    Attributes
    ----------
    actions : list of Action
        In order. Empty if the folder was as an orderly close leaves it: segments that were read again and came out
        the same are counted only.
    recovered_segments, recovered_bytes : int
        Segments that were read again from beginning to end, and their bytes.
    """

    actions: list[Action] = field(default_factory=list)
    recovered_segments: int = 0
    recovered_bytes: int = 0

    def add(self, action: Action) -> None:
        """Note an action, and log it."""
        self.actions.append(action)
        _log.log(logging.WARNING if action.is_damage else logging.INFO, "%s", printable(str(action)))

    def _count(self, *kinds: ActionKind) -> int:
        return sum(action.kind in kinds for action in self.actions)

    @property
    def is_damage(self) -> bool:
        """Whether records may be lost that had been written whole."""
        return any(action.is_damage for action in self.actions)

    @property
    def cut_bytes(self) -> int:
        """Bytes cut off segments that stay."""
        gone = (ActionKind.CUT, ActionKind.EMPTIED)
        return sum(action.bytes_gone for action in self.actions if action.kind in gone)

    @property
    def dropped_segments(self) -> int:
        """Segments that went whole."""
        return self._count(ActionKind.DROPPED)

    @property
    def removed_files(self) -> int:
        """Other files that went."""
        return self._count(*_REMOVALS)

    @property
    def rebuilt_indexes(self) -> int:
        """Index files that were missing or came out with other entries."""
        return self._count(ActionKind.INDEX)

    @property
    def kept(self) -> list[str]:
        """Copies of what went."""
        return [action.kept for action in self.actions if action.kept]

    def as_row(self) -> dict[str, Any]:
        """The counts, as fields for a JSON line."""
        return {
            "actions": len(self.actions),
            "cutBytes": self.cut_bytes,
            "droppedSegments": self.dropped_segments,
            "removedFiles": self.removed_files,
            "rebuiltIndexes": self.rebuilt_indexes,
            "recoveredSegments": self.recovered_segments,
            "recoveredBytes": self.recovered_bytes,
        }
