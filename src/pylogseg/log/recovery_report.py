"""The report of a load: its actions and losses in a log's folder."""

from __future__ import annotations

import enum
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from pylogseg.format.columns import TableColumn, declare_columns
from pylogseg.format.escape import printable
from pylogseg.format.words import count_text
from pylogseg.walker.gaps import offsets_text

_log = logging.getLogger(__name__)


class ActionKind(enum.Enum):
    """Kind of an action; the value is its name in reports."""

    CUT = "cut"
    """Bytes of a segment were removed, at its end except in a repair: no good batch is there."""
    EMPTIED = "emptied"
    """All bytes of a segment were removed: its batches contradict one another."""
    DROPPED = "dropped"
    """A whole segment was removed: it lies after a cut, or the log ends below its start."""
    REPLACED = "replaced"
    """A file of a segment was replaced by a `.swap` file."""
    SWAPPED = "swapped"
    """A `.swap` file got its final name."""
    SPLIT = "split"
    """A segment whose offsets do not fit into its indexes was split."""
    LEFTOVER = "leftover"
    """A file was removed that was being deleted or written when the process stopped."""
    ORPHAN = "orphan"
    """An index without its segment was removed."""
    INDEX = "index"
    """An index was missing or differed from its log, and was rebuilt."""
    SNAPSHOT = "snapshot"
    """A producer snapshot was removed: unreadable, or of no segment."""
    EPOCHS = "epochs"
    """The leader epochs were cut or completed."""
    CREATED = "created"
    """A segment was created, since none was left."""
    GARBAGE = "garbage"
    """Bytes after the last batch are kept: a broker ignores them after a clean shutdown."""
    HIDDEN = "hidden"
    """Batches whose offsets go back are kept: to a broker the log ends before them."""
    UNREACHED = "unreached"
    """Batches are kept that a broker does not reach after a clean shutdown: its index ends where no batch begins."""
    SHORT = "short"
    """Nothing was done: the log ends below an offset that checkpoints say it had, and no cut explains it."""


#: What to do about it, if anything.
_LOSS = "restore the partition from another replica, or read the copy that was kept"
REMEDIES = {
    ActionKind.CUT: _LOSS,
    ActionKind.EMPTIED: _LOSS,
    ActionKind.DROPPED: _LOSS,
    ActionKind.REPLACED: "none: the file that was swapped in has all that is kept",
    ActionKind.SWAPPED: "none",
    ActionKind.SPLIT: "none: the new segments hold the same batches",
    ActionKind.LEFTOVER: "none",
    ActionKind.ORPHAN: "none",
    ActionKind.INDEX: "none",
    ActionKind.SNAPSHOT: "none",
    ActionKind.EPOCHS: "none",
    ActionKind.CREATED: "none",
    ActionKind.GARBAGE: "before an append, which readers would not reach, remove .kafka_cleanshutdown from the log "
    "directory and open the log again: that cuts them off",
    ActionKind.HIDDEN: "before an append, which would reuse their offsets, run "
    "`pylogseg repair --keep-behind` to remove the batch that is out of order",
    ActionKind.UNREACHED: "before a broker starts or an append reuses their offsets, run `pylogseg recover --full`, "
    "which reads the segment instead of its index",
    ActionKind.SHORT: "before an append reuses these offsets, take the partition from another replica",
}
#: What makes the end of a log a lower one.
_SHORTENING = (
    ActionKind.CUT, ActionKind.EMPTIED, ActionKind.DROPPED, ActionKind.REPLACED, ActionKind.HIDDEN,
    ActionKind.UNREACHED,
)  # fmt: skip
_LEVELS = ("notice", "damage")
_REMOVALS = (ActionKind.REPLACED, ActionKind.LEFTOVER, ActionKind.ORPHAN, ActionKind.SNAPSHOT)


@declare_columns(
    TableColumn("kind", "string", "cut, emptied, dropped, replaced, index and others, as in `ActionKind`"),
    TableColumn("level", "string", "damage or notice", source=lambda action: _LEVELS[action.is_damage]),
    TableColumn("path", "string", "of the file"),
    TableColumn("position", "int64", "of the first byte that was removed", "bytes"),
    TableColumn("endPosition", "int64", "after the last one", "bytes"),
    TableColumn("firstOffset", "int64", "that was removed with them"),
    TableColumn("nextOffset", "int64", "after the last one; null if unknown"),
    TableColumn("reason", "string", "with the value found"),
    TableColumn("remedy", "string", "the recommended action"),
    TableColumn("kept", "string", "path of a copy of the bytes"),
)
@dataclass(frozen=True, slots=True)
class Action:
    """One action of a load on a file."""

    kind: ActionKind
    path: str
    reason: str  #: Why, with the value that was found.
    is_damage: bool = False  #: True if completely written records may be lost. A torn or zero-filled end is no damage.
    position: int | None = None  #: The bytes that were removed, half-open.
    end_position: int | None = None
    first_offset: int | None = None  #: The offsets that were removed with them, half-open; the end if it is known.
    next_offset: int | None = None
    kept: str | None = None  #: Path of a copy of the bytes.

    @property
    def bytes_gone(self) -> int:
        """Number of bytes of batches that were removed."""
        return 0 if self.position is None or self.end_position is None else self.end_position - self.position

    @property
    def remedy(self) -> str:
        if self.kind is ActionKind.CUT and not self.is_damage:
            return "none: this is normal after a crash, of an append that had not reached the disk"
        return REMEDIES[self.kind]

    @property
    def place(self) -> str:
        """The file with the bytes and offsets that were removed."""
        text = self.path
        if self.bytes_gone:
            text += f", bytes {self.position} to {self.end_position}"
        if self.first_offset is not None:
            text += f", {offsets_text(self.first_offset, self.next_offset)}"
        return text

    def lines(self, more: int = 0, *, dry_run: bool = False) -> Iterator[str]:
        """Yield the lines for people; `more` is the number of other files with the same reason."""
        others = f" and {count_text(more, 'other file')}" if more else ""
        yield f"{'DAMAGE' if self.is_damage else 'notice'}  {self.kind.value}  {self.place}{others}"
        yield f"        {self.reason}"
        if self.kept:
            yield f"        copy{' would be' * dry_run}: {self.kept}"
        if self.remedy != "none":
            yield f"        remedy: {self.remedy}"

    def __str__(self) -> str:
        kept = f" (copy: {self.kept})" if self.kept else ""
        return f"{self.kind.value} {self.place}: {self.reason}{kept}"


@declare_columns(
    TableColumn("actions", "int64", "their number", source=lambda report: len(report.actions)),
    TableColumn("cutBytes", "int64", "cut off segments that were kept", "bytes"),
    TableColumn("droppedSegments", "int64", "segments that were removed"),
    TableColumn("removedFiles", "int64", "other files that were removed"),
    TableColumn("rebuiltIndexes", "int64", "index files that were missing or changed"),
    TableColumn("recoveredSegments", "int64", "segments that were read from beginning to end"),
    TableColumn("recoveredBytes", "int64", "of these", "bytes"),
)
@dataclass
class LoadReport:
    """Report of the actions and losses of a load.

    Attributes
    ----------
    actions : list of Action
        In order. Empty if the folder was as a clean shutdown leaves it: segments that were recovered without a change
        are only counted.
    recovered_segments, recovered_bytes : int
        Segments that were read from beginning to end, and their bytes.
    """

    actions: list[Action] = field(default_factory=list)
    recovered_segments: int = 0
    recovered_bytes: int = 0

    def add(self, action: Action) -> None:
        """Note an action, and log it."""
        self.actions.append(action)
        _tell(action)

    def compare_end(self, path: str, log_end: int, recovery_point: int, high_watermark: int) -> None:
        """Note a loss if the log had been flushed, or replicated, up to a higher offset than its end now.

        A cut becomes a loss; without any, the log at `path` was short before.
        """
        above = [
            f"{what} says {offset}"
            for what, offset in (("recovery point", recovery_point), ("high watermark", high_watermark))
            if offset > log_end
        ]
        if not above:
            return
        reason = f"the {' and the '.join(above)}: these records had been written"
        if not any(action.kind in _SHORTENING for action in self.actions):
            end = max(recovery_point, high_watermark)
            reason = f"the log ends at {log_end}, and {reason}"
            self.add(Action(ActionKind.SHORT, path, reason, True, first_offset=log_end, next_offset=end))
        for number, action in enumerate(self.actions):
            if action.kind is ActionKind.CUT and not action.is_damage:
                lost = replace(action, is_damage=True, reason=f"{action.reason}; but {reason}")
                self.actions[number] = lost
                _tell(lost)

    def _count(self, *kinds: ActionKind) -> int:
        return sum(action.kind in kinds for action in self.actions)

    @property
    def is_damage(self) -> bool:
        """True if completely written records may be lost."""
        return any(action.is_damage for action in self.actions)

    @property
    def cut_bytes(self) -> int:
        """Bytes cut off segments that were kept."""
        gone = (ActionKind.CUT, ActionKind.EMPTIED)
        return sum(action.bytes_gone for action in self.actions if action.kind in gone)

    @property
    def dropped_segments(self) -> int:
        """Number of segments that were removed."""
        return self._count(ActionKind.DROPPED)

    @property
    def removed_files(self) -> int:
        """Number of other files that were removed."""
        return self._count(*_REMOVALS)

    @property
    def rebuilt_indexes(self) -> int:
        """Number of index files that were missing or changed."""
        return self._count(ActionKind.INDEX)

    @property
    def kept(self) -> list[str]:
        """Paths of the copies of removed bytes and files."""
        return [action.kept for action in self.actions if action.kept]


def _tell(action: Action) -> None:
    _log.log(logging.WARNING if action.is_damage else logging.INFO, "%s", printable(str(action)))
