"""`--into`: a copy of the chosen partitions in a new log directory, which appears whole or not at all."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pylogseg.disk.target import Target
from pylogseg.env.beside import NewFolder
from pylogseg.env.locks import check_unlocked
from pylogseg.env.storage import LocalStorage, Storage
from pylogseg.format.files.checkpoint import encode_offset_checkpoint
from pylogseg.format.names import FileKind, parse_partition_folder
from pylogseg.transfer.checkpoints import read_checkpoints
from pylogseg.transfer.files import copy_folder

_AS_THEY_ARE = (FileKind.META_PROPERTIES, FileKind.CLEAN_SHUTDOWN)


class Destination(NewFolder):
    """A log directory that is being made beside its later place, which must be missing or an empty folder."""

    def copy(self, place: Target, names: Sequence[str], on_bytes: Callable[[int], None]) -> Target:
        """Copy partitions with their entries in the log directory's files; return their new places.

        Raises StorageError if a broker or another writer has the lock of the input, or changed it meanwhile.
        """
        storage = self._storage
        _check_unlocked(storage, place.parent)
        with self.lock():
            for name in names:
                copy_folder(storage, storage.join(place.parent, name), storage.join(self.beside, name), on_bytes)
            if place.log_dir is not None:
                self._copy_checkpoints(place.log_dir, names)
            storage.sync_folder(self.beside)
            _check_unlocked(storage, place.parent)
        is_log_dir = place.log_dir is not None or all(parse_partition_folder(name) for name in names)
        return Target(self.beside, tuple(names), self.beside if is_log_dir else None, place.is_whole)

    def _copy_checkpoints(self, log_dir: str, names: Sequence[str]) -> None:
        storage = self._storage
        chosen = {(folder.topic, folder.partition) for name in names if (folder := parse_partition_folder(name))}
        for kind, entries in read_checkpoints(storage, log_dir).items():
            offsets = {key: at for key, at in entries.items() if key in chosen}
            if offsets:
                path = storage.join(self.beside, kind.value)
                storage.write_synced(path, encode_offset_checkpoint(offsets))
        for kind in _AS_THEY_ARE:
            path = storage.join(log_dir, kind.value)
            if storage.exists(path):
                storage.write_synced(storage.join(self.beside, kind.value), storage.read_all(path))

    def name_final_path(self, text: str) -> str:
        """Replace the present path in a text by the final one."""
        return text.replace(self.beside, self.path)


def _check_unlocked(storage: Storage, folder: str) -> None:
    """Refuse while somebody writes; nothing is put into the folder, which may be read-only."""
    if isinstance(storage, LocalStorage):
        check_unlocked(folder)
    else:
        storage.lock(folder).release()
