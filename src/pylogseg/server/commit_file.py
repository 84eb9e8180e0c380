"""Commits of groups in a file, from one run to the next: batches of records as in ``__consumer_offsets``.

So `pylogseg cat FILE` shows them, and what reads a segment reads them. Each commit is a batch at the end; when the file
is opened, and whenever it has grown much beyond what counts, it is replaced by one with the newest of each.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any

from pylogseg.env.append_file import storage_error
from pylogseg.env.handles import open_descriptor
from pylogseg.env.positions import read_at, write_at
from pylogseg.errors import CorruptionError, RequestError, StorageError
from pylogseg.format.builder import build, shared_row
from pylogseg.format.escape import printable
from pylogseg.format.messages.codec import MalformedError
from pylogseg.format.messages.framing import decode_coordinator, encode_coordinator
from pylogseg.format.record_input import columns_from_records
from pylogseg.reading.stream import read
from pylogseg.server.coordinator import Committed, Offsets, Place

try:
    import fcntl
except ImportError:  # Windows, where an open file cannot be replaced either
    fcntl = None  # type: ignore[assignment]

_log = logging.getLogger(__name__)

_NAME, _VERSION = "OffsetCommit", 3
_TOPIC = "__consumer_offsets"
#: The file may have so many bytes more than twice what counts.
_SLACK_BYTES = 4 << 20


class CommitFile:
    """The file of `pylogseg serve --commits`.

    Parameters
    ----------
    path : path
        It is made if it is not there.
    served : iterable of str
        Folders that are served: the file may not lie in one.

    Raises
    ------
    RequestError
        If it lies in a folder that is served.
    StorageError
        If it cannot be read or written, or another server has it.
    CorruptionError
        If it has damage before its end, or is no such file.
    """

    def __init__(self, path: str | os.PathLike[str], served: Iterable[str] = ()) -> None:
        self.path = os.path.abspath(path)
        real = os.path.realpath(self.path)
        for folder in served:
            if real.startswith(os.path.join(os.path.realpath(folder), "")):
                where = f"may not lie in {folder}, which is served: nothing is written there"
                raise RequestError(f"{self.path}: the file of commits {where}")
        self._mutex = threading.Lock()
        self._descriptor = self._opened(self.path, os.O_RDWR | os.O_CREAT)
        self._size = self._next = self._compact_size = 0
        try:
            self.offsets = self._load()
            if self._size > 2 * self._compact_size + _SLACK_BYTES:
                self._replace()
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        return f"CommitFile({self.path!r}, {len(self.offsets)} groups)"

    def add(self, group: str, commits: Mapping[Place, Committed]) -> None:
        """Keep commits of a group; raises StorageError if the disk fails: then none of them is in the file."""
        with self._mutex:
            self.offsets.setdefault(group, {}).update(commits)
            data = _encoded({group: dict(commits)}, self._next)
            try:
                write_at(self._descriptor, data, self._size)
            except OSError as error:
                with contextlib.suppress(OSError):
                    os.ftruncate(self._descriptor, self._size)
                raise storage_error(self.path, "write", error) from error
            self._size += len(data)
            self._next += len(commits)
            if self._size > 2 * self._compact_size + _SLACK_BYTES:
                self._replace()

    def close(self) -> None:
        """Put what was written on the disk, and let others have the file."""
        with self._mutex:
            if self._descriptor >= 0:
                with contextlib.suppress(OSError):
                    os.fsync(self._descriptor)
                os.close(self._descriptor)
                self._descriptor = -1

    def _opened(self, path: str, flags: int) -> int:
        try:
            descriptor = open_descriptor(path, flags)
        except OSError as error:
            raise storage_error(path, "open", error) from error
        if fcntl is not None:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                os.close(descriptor)
                raise StorageError(path, "lock", "another server keeps its commits there", error.errno) from None
        return descriptor

    def _load(self) -> Offsets:
        size = os.fstat(self._descriptor).st_size
        if not size:
            return {}
        if any(read_at(self._descriptor, 0, 8)):  # the offset of the first record is 0
            raise CorruptionError(self.path, 0, "it is no file of commits: choose another name")
        found: Offsets = {}
        try:
            reader = read(self.path, on_corrupt="stop")
        except RequestError as error:
            raise CorruptionError(self.path, 0, f"it is no file of commits ({error}): choose another name") from None
        for record in reader:
            self._next = record.offset + 1
            group, place, committed = self._decoded(record)
            found.setdefault(group, {})[place] = committed
        for gap in reader.gaps:
            if gap.next_offset is not None:  # else nothing good follows: it is the end that was being written
                remedy = "move the file away to begin without commits, or cut it there to go on with those before"
                raise CorruptionError(self.path, gap.position, f"{gap.reason}: {remedy}")
            what = "its last commit was not written whole: %d bytes are cut off"
            _log.warning(f"%s: {what}", printable(self.path), size - gap.position)
            os.ftruncate(self._descriptor, gap.position)
            size = gap.position
        self._size, self._compact_size = size, len(_encoded(found, 0))
        return found

    def _decoded(self, record: Any) -> tuple[str, Place, Committed]:
        try:
            if record.key is None or record.value is None:
                raise MalformedError("no commit")
            key, value = (each.fields or {} for each in decode_coordinator(_TOPIC, record.key, record.value))
            committed = Committed(value["offset"], value.get("leaderEpoch", -1), value["metadata"])
            return key["group"], (key["topic"], key["partition"]), committed
        except (CorruptionError, MalformedError, KeyError) as error:
            reason = f"it is no file of commits: the record at offset {record.offset} is none ({error})"
            raise CorruptionError(self.path, 0, reason) from None

    def _replace(self) -> None:
        """Put a file with the newest commits in the place of this one."""
        beside = f"{self.path}.tmp"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(beside)
        data = _encoded(self.offsets, 0)
        descriptor = self._opened(beside, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        try:
            write_at(descriptor, data, 0)
            os.fsync(descriptor)
            os.replace(beside, self.path)
        except OSError as error:
            os.close(descriptor)
            raise storage_error(self.path, "replace", error) from error
        os.close(self._descriptor)
        self._descriptor, self._size, self._compact_size = descriptor, len(data), len(data)
        self._next = sum(map(len, self.offsets.values()))


def _encoded(offsets: Offsets, base_offset: int) -> bytes | bytearray:
    """Return batches with commits."""
    now, records = time.time_ns() // 1_000_000, []
    for group, places in offsets.items():
        for (topic, partition), each in places.items():
            key = {"group": group, "topic": topic, "partition": partition}
            value = {"offset": each.offset, "leaderEpoch": each.epoch, "metadata": each.metadata}
            value["commitTimestamp"] = now
            records.append((now, *encode_coordinator(_NAME, key, _VERSION, value)))
    if not records:
        return b""
    return build(columns_from_records(records, base_offset=base_offset), shared_row())[0]
