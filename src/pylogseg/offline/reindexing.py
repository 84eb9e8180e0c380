"""`reindex`: rebuild the files beside the log from the log, like a recovery.

The log is recovered once more over a storage that keeps what is written in memory. Files that differ from the folder's
own ones afterwards take their place, each by a rename.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from pylogseg.env.beside import open_synced
from pylogseg.env.environment import Environment
from pylogseg.env.overlay import FileChange, OverlayStorage
from pylogseg.env.scheduler import CollectingScheduler
from pylogseg.env.storage import Storage
from pylogseg.errors import CorruptionError, RequestError
from pylogseg.format.columns import TableColumn, line_type, to_row
from pylogseg.format.files.checkpoint import parse_leader_epochs
from pylogseg.format.files.snapshot import parse_snapshot
from pylogseg.format.names import FileKind, parse_file_name, segment_file_name
from pylogseg.log.log import Log
from pylogseg.log.recovery import LoadHooks
from pylogseg.log.recovery_report import ActionKind, LoadReport
from pylogseg.log.segment_removal import DELETED
from pylogseg.log.state import Start
from pylogseg.offline.options import OptionKeywords, Options, takes_executor
from pylogseg.offline.partition import OfflinePartition
from pylogseg.offline.result import Result
from pylogseg.offline.running import run_command
from pylogseg.offline.topic_ids import write_missing_topic_id

if TYPE_CHECKING:  # typing has it from Python 3.11 on
    from typing_extensions import Unpack

What = Literal["offset", "time", "txn", "snapshots", "epochs"]

#: What can be rebuilt, by name.
KINDS: dict[str, FileKind] = {
    "offset": FileKind.OFFSET_INDEX,
    "time": FileKind.TIME_INDEX,
    "txn": FileKind.TXN_INDEX,
    "snapshots": FileKind.PRODUCER_SNAPSHOT,
    "epochs": FileKind.LEADER_EPOCHS,
}
#: What the log alone does not tell: producers whose batches are gone, and leaders that wrote nothing.
_TELL_MORE: dict[FileKind, Callable[[bytes, str], Any]] = {
    FileKind.PRODUCER_SNAPSHOT: parse_snapshot,
    FileKind.LEADER_EPOCHS: parse_leader_epochs,
}
#: What a load does about files beside the log; anything else is about the log itself.
_BESIDE = (ActionKind.INDEX, ActionKind.ORPHAN, ActionKind.SNAPSHOT, ActionKind.EPOCHS)
#: A load removes what was being written; the index that it would have replaced is there then.
_WRITING = ".cleaned"

#: A file beside the log, as a line of ``--json``.
REBUILT_FILE = (
    line_type("file"),
    TableColumn("path", "string", "of the file"),
    TableColumn(
        "action", "string", "written or removed", source=lambda file: "removed" if file.after is None else "written"
    ),
    TableColumn("before", "int64", "its size; null if there was none", "bytes"),
    TableColumn("after", "int64", "its size; null if it is removed", "bytes"),
)


@takes_executor
def reindex(path: str | os.PathLike[str], what: Sequence[What] = (), **options: Unpack[OptionKeywords]) -> Result:
    """Rebuild indexes, producer snapshots and leader epochs from the log, like a broker's recovery.

    Only what differs is written; the log is read and not changed. Snapshots and leader epochs may tell more than the
    log does, of batches that were deleted or cleaned away. So unless they are asked for, only those that are missing or
    cannot be read are made.

    Parameters
    ----------
    path : path
        A log directory, or the folder of one partition.
    what : sequence of {"offset", "time", "txn", "snapshots", "epochs"}
        The files to make again; if empty, the three indexes, and missing or unreadable files of the other two.
    **options
        See `pylogseg.offline.options.Options`.

    Returns
    -------
    Result
        ``numbers`` of a result: ``filesWritten``, ``filesRemoved``. ``rows`` tells of each file.
    """
    for name in what:
        if name not in KINDS:
            raise RequestError(f"{name!r} cannot be rebuilt; expected one of {', '.join(KINDS)}")
    asked = {KINDS[name] for name in what}
    return run_command(path, Options.of(options), lambda part: _Reindexing(part, asked).run())


class _Reindexing:
    def __init__(self, part: OfflinePartition, asked: set[FileKind]) -> None:
        self._part, self._storage, self._folder = part, part.storage, part.folder
        self._asked = asked or set(KINDS.values())
        self._is_named = bool(asked)
        self._scratch = OverlayStorage(part.storage)

    def run(self) -> None:
        """Make the files, compare them, and write the files that differ."""
        result = self._part.result
        self._part.makes_epochs = self._is_named and FileKind.LEADER_EPOCHS in self._asked
        self._remove_leftovers()
        before = self._files(self._storage)
        for name in before:
            if not self._is_kept(name):
                self._scratch.remove(self._path(name))
        if not self._check(self._recover()):
            return
        after = self._files(self._scratch)
        written = [name for name in sorted(after) if self._differs(name, before)]
        removed = [name for name in sorted(before - after) if self._is_useless(name)]
        result.rows = [to_row(self._change(name), REBUILT_FILE) for name in [*written, *removed]]
        for name in written:
            self._write(name)
        for name in removed:
            self._storage.remove(self._path(name))
        if written or removed:
            self._storage.sync_folder(self._folder)
        result.numbers = {"filesWritten": len(written), "filesRemoved": len(removed)}
        result.state = "done" if written or removed else "unchanged"
        if not self._is_named:
            write_missing_topic_id(self._part)

    def _path(self, name: str) -> str:
        return self._storage.join(self._folder, name)

    def _files(self, storage: Storage) -> set[str]:
        names = [entry.name for entry in storage.list_folder(self._folder) if not entry.is_dir]
        return {name for name in names if (of := parse_file_name(name)).kind in self._asked and of.is_live}

    def _is_kept(self, name: str) -> bool:
        """Check whether a file has facts that the log lacks, so that the new file starts from it."""
        parse = _TELL_MORE.get(parse_file_name(name).kind)
        if parse is None or self._is_named:
            return False
        try:
            parse(self._storage.read_all(self._path(name)), self._path(name))
        except CorruptionError:
            return False
        return True

    def _remove_leftovers(self) -> None:
        """Remove a killed run's unfinished files; one beside a `.log` of the same suffix belongs to the cleaner."""
        names = {entry.name for entry in self._storage.list_folder(self._folder)}
        for name in sorted(names):
            of = parse_file_name(name)
            log = segment_file_name(of.offset or 0, FileKind.LOG, _WRITING)
            if of.suffix == _WRITING and of.kind in KINDS.values() and log not in names:
                self._storage.remove(self._path(name))

    def _recover(self) -> LoadReport:
        """Read the whole log, and write the files beside it into the scratch storage."""
        part, report = self._part, LoadReport()
        log = Log.open(
            Environment(self._scratch, part.clock, CollectingScheduler()),
            self._folder,
            part.config,
            Start(log_start_offset=part.start.log_start_offset),
            producer_expiration_ms=part.broker.producer_id_expiration_ms,
            hooks=LoadHooks(on_bytes=part.advance, report=report),
        )
        log.close()
        part.result.log_start, part.result.log_end = log.log_start_offset, log.log_end_offset
        return report

    def _check(self, report: LoadReport) -> bool:
        """Check whether the recovery had nothing to do but to look after the files beside the log."""
        for action in report.actions:
            if action.is_damage:
                raise CorruptionError(action.path, action.position or 0, action.reason)
            if action.kind not in _BESIDE and not action.path.endswith(DELETED):
                reason = f"the log was not closed cleanly: {action}"
                self._part.result.skip(reason, "recover it first with `pylogseg recover`")
                return False
        return True

    def _differs(self, name: str, before: set[str]) -> bool:
        """Check whether a file that was made has to be written."""
        if name not in before:
            return parse_file_name(name).kind is not FileKind.TXN_INDEX or self._scratch.stat(self._path(name)).size > 0
        if self._is_kept(name):
            return False
        return self._storage.read_all(self._path(name)) != self._scratch.read_all(self._path(name))

    def _is_useless(self, name: str) -> bool:
        """Check whether a file that a recovery does not make has to go."""
        kind = parse_file_name(name).kind
        is_empty = kind is FileKind.TXN_INDEX and self._storage.stat(self._path(name)).size == 0
        return kind is not FileKind.LEADER_EPOCHS and not is_empty

    def _write(self, name: str) -> None:
        path, data = self._path(name), self._scratch.read_all(self._path(name))
        if parse_file_name(name).kind is FileKind.LEADER_EPOCHS:
            self._storage.write_whole(path, data)
            return
        with open_synced(self._storage, path + _WRITING, path) as file:
            file.append(data)

    def _change(self, name: str) -> FileChange:
        path = self._path(name)
        before, after = (
            storage.stat(path).size if storage.exists(path) else None for storage in (self._storage, self._scratch)
        )
        return FileChange(path, before, after, None)
