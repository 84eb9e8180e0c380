"""Files of one folder in memory, for what only reads and writes whole files."""

from __future__ import annotations

from pylogseg.env.filesystem import Entry


class MemoryFiles:
    """Whole files by path, and a list of what was done to them."""

    def __init__(self, files: dict[str, bytes] | None = None) -> None:
        self.files = dict(files or {})
        self.done: list[tuple[str, str]] = []

    def join(self, folder: str, name: str) -> str:
        return f"{folder}/{name}"

    def list_folder(self, path: str) -> list[Entry]:
        names = sorted(name for name in self.files if name.rpartition("/")[0] == path)
        return [Entry(name.rpartition("/")[2], False, len(self.files[name]), 0) for name in names]

    def exists(self, path: str) -> bool:
        return path in self.files

    def read_all(self, path: str) -> bytes:
        return self.files[path]

    def _write(self, how: str, path: str, data: bytes) -> None:
        self.files[path] = bytes(data)
        self.done.append((how, path))

    def write_plain(self, path: str, data: bytes) -> None:
        self._write("plain", path, data)

    def write_synced(self, path: str, data: bytes) -> None:
        self._write("synced", path, data)

    def write_whole(self, path: str, data: bytes) -> None:
        self._write("whole", path, data)

    def rename(self, path: str, new_path: str) -> None:
        self.files[new_path] = self.files.pop(path)
        self.done.append(("rename", path))

    def remove(self, path: str) -> bool:
        self.done.append(("remove", path))
        return self.files.pop(path, None) is not None
