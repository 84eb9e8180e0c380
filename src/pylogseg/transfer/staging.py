"""Move partitions from a staging folder into place: all of them or none, even after a crash.

The staging folder is beside the partitions. It has the name of a partition that is pending deletion: readers skip it,
and a broker removes a forgotten one. A commit first writes a plan; from then on, the next run finishes the commit if a
crash interrupts it.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from pylogseg.disk.outside import STAGING_TOPIC
from pylogseg.env.beside import make_temporary_name, scratch_folder, was_left
from pylogseg.env.shared import check_written, not_shared
from pylogseg.env.storage import LocalStorage, Lock, Storage
from pylogseg.errors import RequestError, StorageError
from pylogseg.format.names import FileKind, parse_file_name, partition_folder_name
from pylogseg.log.directory import partition_of
from pylogseg.log.state import Start
from pylogseg.transfer.checkpoints import AllEntries, all_entries, note_entries
from pylogseg.values.internal.producers import ProducerRow

_PLAN = "commit.json"
_MARKER = ".pylogseg-committed-"
#: A staging folder without changes for this long is removed; the marker of a commit is kept as long.
FORGOTTEN_MS = 24 * 3600 * 1000
_LOCK_SECONDS = 60.0
#: How bytes that are no text stand in the JSON of a plan.
_BYTES = "surrogateescape"


class WrittenPart(NamedTuple):
    """A partition, or a part of one: in the staging folder, or in place."""

    topic: str
    partition: int
    folder: str  #: The folder with the files.
    first_offset: int  #: Half-open.
    end_offset: int
    records: int  #: Of a table; else -1, or 0 where a log was rewritten.
    segments: int
    size_bytes: int  #: Of the segments, without indexes.
    max_timestamp: int  #: Milliseconds; -1 if there is none.
    start: Start = Start(True)  #: How the engine opens it.
    producers: tuple[ProducerRow, ...] = ()  #: Those that have or had a transaction.

    @property
    def name(self) -> str:
        """The name of the partition, topic and number."""
        return f"{self.topic}-{self.partition}"


def entries_of_table(parts: Sequence[WrittenPart]) -> dict[str, int]:
    """Return the entries of checkpoints for a log that was made of a table: all is committed, and forced to the disk.

    None for one that was copied or rewritten; and none where the table lacks offsets: beside a checkpoint, a gap counts
    as a loss.
    """
    first, end = parts[0].first_offset, parts[-1].end_offset
    is_whole = 0 < end - first == sum(part.records for part in parts)
    return {kind.value: end for kind in (FileKind.RECOVERY_POINTS, FileKind.HIGH_WATERMARKS)} if is_whole else {}


class Staging:
    """The staging folder of one write; all its processes have the same `write_id` and see the same files."""

    def __init__(self, root: str, write_id: str | None = None, storage: Storage | None = None) -> None:
        self.root, self.write_id = root, write_id or uuid.uuid4().hex
        self._storage: Storage = LocalStorage() if storage is None else storage
        self.folder = self._storage.join(root, partition_folder_name(STAGING_TOPIC, 0, "delete", self.write_id))
        self._marker = self._storage.join(root, _MARKER + self.write_id)

    @contextlib.contextmanager
    def mark_process(self) -> Iterator[None]:
        """Leave a name in the folder that tells of which process it is: when that died, the next run removes it."""
        with scratch_folder(Path(self.folder, make_temporary_name())):
            yield

    def begin(self) -> None:
        """Create the folder; finish or remove the leftovers of earlier writes."""
        self._storage.make_folder(self.root)
        finish_commits(self.root, self._storage)
        self._storage.make_folder(self.folder)

    def attempt_folder(self, task: str) -> str:
        """Create a new folder for one attempt of one task.

        Raises StorageError if the staging folder is missing: the write has ended, or this machine does not see
        the shared files.
        """
        if not self._storage.exists(self.folder):
            reason = f"it is not there: either the write has ended, or {not_shared()}"
            raise StorageError(self.folder, "write to", reason)
        folder = self._storage.join(self.folder, f"{task}-{uuid.uuid4().hex}")
        self._storage.make_folder(folder)
        return folder

    def check(self, written: Sequence[WrittenPart], *, overwrite: bool = False) -> list[list[WrittenPart]]:
        """Return the parts of each partition in the order of their offsets.

        Raises RequestError if two parts of a partition have the same offsets, or the partition already exists.
        """
        by_partition = by_offsets(written)
        for parts in by_partition:
            target = self._target(parts[0])
            if not overwrite and self._storage.exists(target):
                raise RequestError(f"{target}: it already exists; mode overwrite replaces it")
        return by_partition

    def commit(
        self,
        written: Sequence[WrittenPart],
        *,
        overwrite: bool = False,
        files: Mapping[str, bytes] | None = None,
        may_repeat: bool = True,
    ) -> list[WrittenPart]:
        """Put all partitions in place. Repeating it, also after a crash in the middle, has the same result.

        A mark in the folder says that it was done, unless nobody `may_repeat` it. `files` are small files for the
        folder, by name: after a crash either partitions and files are there, or neither. Raises RequestError as `check`
        does, and StorageError if a broker or another program has the lock of the folder, or the disk fails.
        """
        if not self._storage.exists(self._marker):
            with _Locked(self._storage, self.root):
                plan_path = self._storage.join(self.folder, _PLAN)
                if not self._storage.exists(plan_path):
                    by_partition = self.check(written, overwrite=overwrite)
                    for part in written:
                        self._check_size(part)
                    said = functools.cache(lambda folder: all_entries(self._storage, folder))
                    moves = [self._join_parts(parts, said) for parts in by_partition]
                    texts = {name: data.decode(errors=_BYTES) for name, data in (files or {}).items()}
                    plan = {"write": self.write_id, "partitions": moves, "files": texts, "isMarked": may_repeat}
                    self._storage.write_whole(plan_path, json.dumps(plan).encode())
                _finish(self._storage, self.root, self.folder)
        return placed_at(self.root, by_offsets(written))

    def abort(self) -> None:
        """Remove the staging folder, unless a commit has begun."""
        if not self._storage.exists(self._storage.join(self.folder, _PLAN)):
            self._storage.remove_folder(self.folder)

    def _check_size(self, part: WrittenPart) -> None:
        """Raise StorageError unless the segments of a part are there as a task has written them."""
        there = self._storage.list_folder(part.folder) if self._storage.exists(part.folder) else None
        names = {parse_file_name(each.name): each.size for each in there or ()}
        logs = [size for name, size in names.items() if name.kind is FileKind.LOG and name.is_live]  # as a task counts
        check_written(part.folder, part.size_bytes, None if there is None else sum(logs), "nothing is put in place")

    def _target(self, part: WrittenPart) -> str:
        return self._storage.join(self.root, part.name)

    def _join_parts(self, parts: list[WrittenPart], said: Callable[[str], AllEntries]) -> dict[str, Any]:
        """Move the files of all parts into the folder of the first, whose epochs apply to all; return the plan."""
        storage, first = self._storage, parts[0]
        for part in parts[1:]:
            for entry in storage.list_folder(part.folder):
                if parse_file_name(entry.name).kind.is_segment_file:
                    storage.rename(storage.join(part.folder, entry.name), storage.join(first.folder, entry.name))
        if len(parts) > 1:
            storage.sync_folder(first.folder)
        checkpoints = entries_of_table(parts) or said(storage.split(first.folder)[0]).get(partition_of(first.name), {})
        return {"from": os.path.relpath(first.folder, self.folder), "to": first.name, "checkpoints": checkpoints}


def by_offsets(written: Sequence[WrittenPart]) -> list[list[WrittenPart]]:
    """Return the parts of each partition in the order of their offsets; RequestError if two have the same ones."""
    ordered = sorted(written, key=attrgetter("topic", "partition", "first_offset"))
    by_partition = [list(parts) for _, parts in groupby(ordered, attrgetter("topic", "partition"))]
    for parts in by_partition:
        for before, after in pairwise(parts):
            if after.first_offset < before.end_offset:
                raise RequestError(
                    f"{after.name}: two tasks wrote offsets {after.first_offset} to "
                    f"{min(before.end_offset, after.end_offset) - 1}: bring each partition into one task, with "
                    'df.repartition("topic", "partition").sortWithinPartitions("topic", "partition", "offset")'
                )
    return by_partition


def placed_at(root: str, by_partition: Iterable[Sequence[WrittenPart]]) -> list[WrittenPart]:
    """Return the partitions that are in place in a log directory, each with all its parts."""
    return [
        parts[0]._replace(
            folder=f"{root}/{parts[0].name}" if "://" in root else os.path.join(root, parts[0].name),
            end_offset=parts[-1].end_offset,
            records=sum(part.records for part in parts),
            segments=sum(part.segments for part in parts),
            size_bytes=sum(part.size_bytes for part in parts),
            max_timestamp=max(part.max_timestamp for part in parts),
        )
        for parts in by_partition
    ]


def is_left_behind(name: str) -> bool:
    """Check whether a name in a log directory belongs to a staging folder or a commit's mark."""
    return name.startswith((f"{STAGING_TOPIC}-0.", _MARKER))


def is_of_dead_run(folder: str) -> bool:
    """Check whether a folder of a log directory is the staging folder of a process of this machine that died."""
    if not is_left_behind(os.path.basename(folder)) or not os.path.isdir(folder):
        return False
    return any(was_left(path) for path in Path(folder).iterdir())


def finish_commits(root: str, storage: Storage | None = None, now_ms: Callable[[], int] | None = None) -> list[str]:
    """Finish commits that a crash interrupted, and remove forgotten staging folders and markers.

    Returns the partitions that it has put in place.
    """
    storage = LocalStorage() if storage is None else storage
    now = time.time_ns() // 1_000_000 if now_ms is None else now_ms()
    done = list[str]()
    for entry in storage.list_folder(root):
        path = storage.join(root, entry.name)
        if entry.is_dir and entry.name.startswith(f"{STAGING_TOPIC}-0."):
            if storage.exists(storage.join(path, _PLAN)):
                with _Locked(storage, root):
                    done += _finish(storage, root, path)
            elif is_of_dead_run(path) or now - _last_change(storage, path, entry.modified_ms) > FORGOTTEN_MS:
                storage.remove_folder(path)
        elif entry.name.startswith(_MARKER) and now - entry.modified_ms > FORGOTTEN_MS:
            storage.remove(path)
    return done


def _last_change(storage: Storage, folder: str, modified_ms: int) -> int:
    """Return the last modification time in a staging folder, including the files in it."""
    newest = modified_ms
    for entry in storage.list_folder(folder):
        inner = _last_change(storage, storage.join(folder, entry.name), 0) if entry.is_dir else 0
        newest = max(newest, entry.modified_ms, inner)
    return newest


def _finish(storage: Storage, root: str, folder: str) -> list[str]:
    """Do the remaining steps of a plan, then remove the staging folder; return its partitions."""
    path = storage.join(folder, _PLAN)
    if not storage.exists(path):  # another process has finished it meanwhile
        return []
    plan = json.loads(storage.read_all(path))
    aside = storage.join(folder, "replaced")
    storage.make_folder(aside)
    for move in plan["partitions"]:
        source, target = storage.join(folder, move["from"]), storage.join(root, move["to"])
        if not storage.exists(source):
            continue
        if storage.exists(target):
            storage.rename(target, storage.join(aside, move["to"]))
        storage.rename(source, target)
    storage.sync_folder(root)
    note_entries(storage, root, {move["to"]: move["checkpoints"] for move in plan["partitions"]})
    for name, text in plan.get("files", {}).items():
        storage.write_whole(storage.join(root, name), text.encode(errors=_BYTES))
    if plan.get("isMarked", True):
        storage.write_whole(storage.join(root, _MARKER + plan["write"]), b"")
    # Readers skip a folder without a plan, and nobody else touches it, so the order does not matter.
    storage.remove(path)
    storage.remove_folder(folder)
    return [move["to"] for move in plan["partitions"]]


class _Locked:
    """The lock of a log directory. A running broker holds it; other writers only for moments."""

    def __init__(self, storage: Storage, root: str) -> None:
        self._storage, self._root = storage, root
        self._lock: Lock | None = None

    def __enter__(self) -> None:
        end = time.monotonic() + _LOCK_SECONDS
        while True:
            try:
                self._lock = self._storage.lock(self._root)
                return
            except StorageError as error:
                if error.operation != "lock" or time.monotonic() > end:
                    raise
                time.sleep(0.1)

    def __exit__(self, *error: object) -> None:
        assert self._lock is not None
        self._lock.release()
