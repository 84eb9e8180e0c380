"""The state of a disk, and the operations that change it: the model of the storage in memory and its crashes."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

ROOT = 0

OperationKind = Literal["new_file", "new_folder", "write", "size", "sync", "names", "sync_folder", "mark"]


class NameChange(NamedTuple):
    """A name in a folder now means a file or folder, or is removed (None)."""

    folder: int
    name: str
    node: int | None


class Operation(NamedTuple):
    """One change or barrier; files and folders are numbers (nodes), which renaming does not change.

    ``new_file``, ``new_folder``
        `node` is created, empty, and `changes` name it.
    ``write``
        `data` at `position` of file `node`.
    ``size``
        File `node` is cut, or made longer by zeros, to `position`.
    ``names``
        `changes`, which take effect together.
    ``sync``, ``sync_folder``
        The barrier of the bytes of file `node`, of the names in folder `node`.
    ``mark``
        No change on the disk; the workload added the note `label` here.
    """

    kind: OperationKind
    node: int = ROOT
    position: int = 0
    data: bytes = b""
    changes: tuple[NameChange, ...] = ()
    label: object = None

    def __str__(self) -> str:
        if self.kind == "write":
            return f"write of {len(self.data)} bytes at {self.position} of file {self.node}"
        if self.changes:
            return "; ".join(f"{c.name!r} in folder {c.folder} becomes {c.node}" for c in self.changes)
        return {
            "size": f"file {self.node} gets {self.position} bytes",
            "mark": f"mark {self.label!r}",
        }.get(self.kind, f"{self.kind} of {self.node}")


@dataclass
class DiskState:
    """Files and folders: the bytes of each file, the names in each folder."""

    files: dict[int, bytearray] = field(default_factory=dict)
    folders: dict[int, dict[str, int]] = field(default_factory=lambda: {ROOT: {}})

    def copy(self) -> DiskState:
        files = {node: bytearray(data) for node, data in self.files.items()}
        return DiskState(files, {node: dict(names) for node, names in self.folders.items()})

    def new_node(self) -> int:
        """Return a number that is not in use."""
        return max([ROOT, *self.files, *self.folders]) + 1

    def apply(self, operation: Operation) -> None:
        """Apply one operation; barriers and marks change nothing."""
        if operation.kind == "new_file":
            self.files[operation.node] = bytearray()
        elif operation.kind == "new_folder":
            self.folders[operation.node] = {}
        elif operation.kind == "write":
            write_into(self.files[operation.node], operation.position, operation.data)
        elif operation.kind == "size":
            self.files[operation.node] = resize_content(self.files[operation.node], operation.position)
        for change in operation.changes:
            self.rename(change)

    def rename(self, change: NameChange) -> None:
        names = self.folders[change.folder]
        if change.node is None:
            names.pop(change.name, None)
        else:
            names[change.name] = change.node

    def walk(self, folder: int = ROOT, path: str = "") -> Iterator[tuple[str, int]]:
        """Yield relative paths and nodes of all reachable files and folders, by name; folders before their contents."""
        for name, node in sorted(self.folders[folder].items()):
            yield path + name, node
            if node in self.folders:
                yield from self.walk(node, f"{path}{name}/")

    def fingerprint(self) -> bytes:
        """Return bytes that are equal for states that a program cannot distinguish."""
        digest = hashlib.blake2b(digest_size=16)
        for path, node in self.walk():
            data = self.files.get(node)
            digest.update(f"{path}\0{-1 if data is None else len(data)}\0".encode())
            digest.update(data or b"")
        return digest.digest()

    def write_to(self, folder: str | os.PathLike[str]) -> None:
        """Write the same files and folders to a real folder, which is created."""
        os.makedirs(folder, exist_ok=True)
        for path, node in self.walk():
            target = os.path.join(folder, *path.split("/"))
            if node in self.folders:
                os.makedirs(target, exist_ok=True)
            else:
                with open(target, "wb") as file:
                    file.write(self.files[node])


@dataclass
class Trace:
    """Trace of a workload: its initial state, which is durable, and its operations in order."""

    initial: DiskState
    operations: list[Operation] = field(default_factory=list)


def write_into(content: bytearray, position: int, data: bytes) -> None:
    """Put bytes at a position, with zeros between the end and the position."""
    if len(content) < position:
        content.extend(bytes(position - len(content)))
    content[position : position + len(data)] = data


def resize_content(content: bytearray, size: int) -> bytearray:
    """Return new content, cut or extended by zeros; views of the old one stay as they are."""
    return content[:size] + bytes(max(0, size - len(content)))
