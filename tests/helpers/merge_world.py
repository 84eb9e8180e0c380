"""Three brokers' disks in memory, two of them damaged, for tests of what cuts a merge or a repair short."""

from __future__ import annotations

import errno
import functools
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from helpers.brokers import NAME, Batch, replicas
from helpers.damaged_logs import change_byte
from pylogseg.errors import StorageError
from pylogseg.format.batches import scan
from pylogseg.testing.faults import FaultyStorage
from pylogseg.testing.memory import MemoryStorage

SOURCES = ("/b1", "/b2", "/b3")


class Disks:
    """The disks, all of it durable, and what the leader has had before the damage."""

    def __init__(self, batches: list[Batch], state: Any) -> None:
        self.batches, self._state = batches, state

    def storage(self) -> MemoryStorage:
        """A fresh copy of them."""
        return MemoryStorage(self._state.copy())


@functools.cache
def disks(damage: Callable[[Path, list[Batch]], None]) -> Disks:
    """Some segments of one partition on three disks; `damage` gets their folder and the batches."""
    with tempfile.TemporaryDirectory() as folder:
        _, batches = replicas(Path(folder), 5, segments=3)
        damage(Path(folder), batches)
        storage = MemoryStorage()
        for path in sorted(Path(folder).rglob("*")):
            inside = f"/{path.relative_to(folder)}"
            if path.is_dir():
                storage.make_folder(inside)
            else:
                storage.write_synced(inside, path.read_bytes())
        for path in [Path(folder), *Path(folder).rglob("*")]:
            if path.is_dir():
                storage.sync_folder(f"/{path.relative_to(folder)}".replace("/.", "/"))
        return Disks(batches, storage.state)


def flip(folder: Path, disk: str, batch: Batch) -> None:
    """Damage a batch on one disk."""
    change_byte(folder / disk / NAME / f"{batch.segment:020d}.log", batch.position + 30)


def batches_in(storage: MemoryStorage, folder: str) -> list[bytes]:
    """The batches of a log that are whole, one after the other."""
    found = []
    for entry in storage.list_folder(folder):
        if entry.name.endswith(".log"):
            data = storage.read_all(storage.join(folder, entry.name))
            rows = scan(data).batches
            rows = rows[rows.rows["verdict"] == 0]
            found += [data[at : at + size] for at, size in zip(rows.position.tolist(), rows.size.tolist(), strict=True)]
    return found


class Interrupted(FaultyStorage):
    """Somebody presses Ctrl-C at the k-th operation."""

    def failure(self, path: str, operation: str) -> Any:
        return KeyboardInterrupt()


class FailingReads(FaultyStorage):
    """The disk cannot read the bytes of the k-th read of a source's segment, and of that file from then on."""

    def open_log(self, path: str, **options: Any) -> Any:
        file = super().open_log(path, **options)
        if path.startswith(SOURCES):
            read, view = file.read, file.view
            file.read = lambda position, size: self._checked(path) or read(position, size)
            file.view = lambda position, size: self._checked(path) or view(position, size)
        return file

    def meets(self, operation: str, path: str, kind: Any = "other") -> bool:
        return operation == "read" and super().meets(operation, path, kind)

    def _checked(self, path: str) -> None:
        if self.failed == f"read {path}":
            raise self.failure(path, "read")
        self.meets("read", path)

    def failure(self, path: str, operation: str) -> StorageError:
        error = super().failure(path, operation)
        error.__cause__ = OSError(errno.EIO, "Input/output error")
        return error
