"""Partitions into a store: made on this machine, uploaded, and whole when the sign beside them is gone.

A store has no renames, so the files of partitions come one after the other. First an object `RESTORING` names the
partitions; at the end it is removed. A reader that finds it refuses the partitions.
"""

from __future__ import annotations

import contextlib
import json
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pylogseg.disk.folders import RESTORING
from pylogseg.disk.stores import RemoteStore
from pylogseg.env.shared import check_written
from pylogseg.env.storage import LocalStorage
from pylogseg.errors import RequestError
from pylogseg.format.names import FileKind, parse_file_name
from pylogseg.tables.export.notes import NOTES, lock_place
from pylogseg.transfer.checkpoints import CHECKPOINTS, note_entries
from pylogseg.transfer.staging import WrittenPart, entries_of_table

_STAGED = f"{NOTES}/staged"
_ROOT_FILES = (*(kind.value for kind in CHECKPOINTS), FileKind.META_PROPERTIES.value, FileKind.CLEAN_SHUTDOWN.value)


class StoreUpload:
    """One restore into a log directory in a store; it travels to the tasks of Spark."""

    def __init__(self, url: str, storage_options: Mapping[str, Any] | None = None) -> None:
        self.store = RemoteStore(url, storage_options or {})
        self.url = self.store.url

    @contextlib.contextmanager
    def open_scratch(self, *, dry_run: bool = False) -> Iterator[Path]:
        """Lock the place against other restores; yield a local folder with the small files of the log directory."""
        with contextlib.ExitStack() as stack:
            if not dry_run:
                stack.enter_context(lock_place(self.store, "restore"))
                self._clear()  # of restores that died
                stack.callback(self._clear)
            root = stack.enter_context(self.store.scratch())
            for name, data in self._root_files().items():
                (root / name).write_bytes(data)
            yield root

    def check_free(self, names: Iterable[str], overwrite: bool) -> None:
        """Raise RequestError if a partition is there, unless a restore did not finish it."""
        unfinished = self._read_unfinished()
        for name in () if overwrite else sorted(names):
            if name not in unfinished and self.store.list(name):
                raise RequestError(f"{self.store.name(name)}: it already exists; overwrite (--overwrite) replaces it")

    def stage(self, written: WrittenPart) -> WrittenPart:
        """Upload the files of a task's attempt; return their place."""
        place = f"{_STAGED}/{uuid.uuid4().hex}"
        for path in sorted(Path(written.folder).iterdir()):
            self.store.put(f"{place}/{path.name}", path)
        return written._replace(folder=place)

    def commit(self, partitions: Mapping[str, Mapping[str, Path | str]], root: Path) -> None:
        """Put partitions in place, from files of this machine or from staged objects.

        `root` has the small files as they are to be.
        """
        before, names = self._read_unfinished(), set(partitions)
        self._say(before | names)
        for name, files in partitions.items():
            for file, source in files.items():
                if isinstance(source, Path):
                    self.store.put(f"{name}/{file}", source)
                else:
                    self.store.copy(source, f"{name}/{file}")
            for old in self.store.list(name):
                if old.removeprefix(f"{name}/") not in files:
                    self.store.delete(old)
        self._put_root_files(root)
        self._say(before - names)

    def commit_staged(self, partitions: Sequence[Sequence[WrittenPart]], root: Path) -> None:
        """Put staged objects in place: the parts of each partition in the order of their offsets."""
        files: dict[str, dict[str, Path | str]] = {}
        for parts in partitions:
            of_name = files.setdefault(parts[0].name, {})
            for number, part in enumerate(parts):
                there = self.store.list(part.folder)
                logs = [each.size for path, each in there.items() if path.endswith(FileKind.LOG.value)]
                place = self.store.name(part.folder)
                check_written(place, part.size_bytes, sum(logs) if there else None, "nothing is put in place")
                for path in there:
                    name = os.path.basename(path)
                    # The leader epochs of the first part apply to all.
                    if not number or parse_file_name(name).kind.is_segment_file:
                        of_name[name] = path
        note_entries(LocalStorage(), str(root), {parts[0].name: entries_of_table(parts) for parts in partitions})
        self.commit(files, root)

    def _read_unfinished(self) -> set[str]:
        return set(json.loads(self.store.read(RESTORING) or b'{"unfinished": []}')["unfinished"])

    def _say(self, unfinished: set[str]) -> None:
        if unfinished:
            self.store.put(RESTORING, json.dumps({"unfinished": sorted(unfinished)}).encode())
        else:
            self.store.delete(RESTORING)

    def _root_files(self) -> dict[str, bytes]:
        found = ((name, self.store.read(name)) for name in _ROOT_FILES)
        return {name: data for name, data in found if data is not None}

    def _put_root_files(self, root: Path) -> None:
        there = self._root_files()
        for name in _ROOT_FILES:
            path = root / name
            if path.exists() and path.read_bytes() != there.get(name):
                self.store.put(name, path.read_bytes())
            elif name in there and not path.exists():
                self.store.delete(name)

    def _clear(self) -> None:
        for name in self.store.list(_STAGED):
            self.store.delete(name)
