"""Tests of disk/small_files.py. How each small file is known: absent, of 0 bytes, of zeros, unreadable, and read, also
without entries.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pylogseg.disk.offset_checkpoints import OffsetCheckpoints
from pylogseg.disk.small_files import (
    FileState,
    SmallFile,
    read_leader_epochs,
    read_meta_properties,
    read_offset_checkpoint,
    read_partition_metadata,
    read_quorum_state,
)
from pylogseg.env.filesystem import LocalFiles
from pylogseg.env.storage import LocalStorage
from pylogseg.errors import CorruptionError, StorageError
from pylogseg.format.files.properties import MetaProperties
from pylogseg.format.files.status import QuorumState, encode_quorum_state
from pylogseg.format.names import FileKind

Read = Callable[[Any, str], SmallFile[Any]]
TOPIC_ID = "0123456789abcdefghijkg"
STATE = QuorumState(1, 1, 3, 1, "A" * 22)


def offsets(kind: FileKind) -> Read:
    return lambda files, folder: read_offset_checkpoint(files, folder, kind)


CHECKPOINTS = [kind for kind in FileKind if kind.is_offset_checkpoint]
#: The name, the reader, whole bytes with their value, and bytes that are cut.
FILES: list[tuple[str, Read, bytes, Any, bytes]] = [
    *((kind.value, offsets(kind), b"0\n1\nt 0 5\n", {("t", 0): 5}, b"0\n1\nt 0") for kind in CHECKPOINTS),
    ("leader-epoch-checkpoint", read_leader_epochs, b"0\n1\n2 7\n", [(2, 7)], b"0\n2\n2 7\n"),
    (
        "partition.metadata",
        read_partition_metadata,
        f"version: 0\ntopic_id: {TOPIC_ID}".encode(),
        TOPIC_ID,
        b"version: 0\ntopic_id: 0123",
    ),
    (
        "meta.properties",
        read_meta_properties,
        b"version=1\ncluster.id=c\nnode.id=4\n",
        MetaProperties(1, "c", 4),
        b"version=1\nclus",
    ),
    ("quorum-state", read_quorum_state, encode_quorum_state(STATE), STATE, encode_quorum_state(STATE)[:-3]),
]


@pytest.mark.parametrize(("name", "read", "whole", "value", "cut"), FILES, ids=[row[0] for row in FILES])
@pytest.mark.parametrize("files", [LocalFiles(), LocalStorage()], ids=["files", "storage"])
def test_each_state(files: Any, name: str, read: Read, whole: bytes, value: Any, cut: bytes, tmp_path: Path) -> None:
    path, folder = tmp_path / name, str(tmp_path)
    assert read(files, folder) == SmallFile(str(path), FileState.ABSENT, None, f"{path}: the file is not there")
    path.write_bytes(whole)
    assert read(files, folder) == SmallFile(str(path), FileState.READ, value)
    path.write_bytes(b"")
    assert read(files, folder) == SmallFile(str(path), FileState.EMPTY, None, f"{path}: the file has 0 bytes")
    path.write_bytes(bytes(17))
    zeros = read(files, folder)
    assert (zeros.state, zeros.value, zeros.is_damaged) == (FileState.ZEROS, None, True)
    assert zeros.problem == f"{path}: at position 0: the file has 17 bytes, and each of them is 0"
    for data in (cut, b"\xff\xfe garbage"):
        path.write_bytes(data)
        harmed = read(files, folder)
        assert (harmed.state, harmed.value, harmed.is_damaged) == (FileState.UNREADABLE, None, True)
        assert isinstance(harmed.error, CorruptionError)
        assert harmed.problem.startswith(f"{path}: at position ")
    path.unlink()
    path.mkdir()
    other = read(files, folder)
    assert (other.state, type(other.error)) == (FileState.UNREADABLE, StorageError)
    assert other.problem.startswith(f"{path}: cannot ")


@pytest.mark.parametrize("kind", CHECKPOINTS)
def test_without_entries_is_read(kind: FileKind, tmp_path: Path) -> None:
    """No entries are known entries: the file was parsed, and it has none."""
    (tmp_path / kind.value).write_bytes(b"0\n0\n")
    assert read_offset_checkpoint(LocalFiles(), str(tmp_path), kind).value == {}
    (tmp_path / "leader-epoch-checkpoint").write_bytes(b"0\n0\n")
    assert read_leader_epochs(LocalFiles(), str(tmp_path)).value == []


@pytest.mark.parametrize(
    ("data", "state", "offset"),
    [
        (None, FileState.ABSENT, None),
        (b"", FileState.EMPTY, None),
        (bytes(12), FileState.ZEROS, None),
        (b"0\n", FileState.CUT, None),
        (b"0\n1\nt 0", FileState.UNREADABLE, None),
        (b"0\n0\n", FileState.READ, None),
        (b"0\n1\nt 0 0\n", FileState.READ, 0),
        (b"0\n1\nt 0 5\n", FileState.READ, 5),
    ],
)
def test_an_entry_is_known_as_its_checkpoint_is(
    data: bytes | None, state: FileState, offset: int | None, tmp_path: Path
) -> None:
    kind = FileKind.CLEANER_OFFSETS
    if data is not None:
        (tmp_path / kind.value).write_bytes(data)
    checkpoints = OffsetCheckpoints(LocalFiles(), str(tmp_path))
    entry = checkpoints.entry(kind, "t", 0)
    assert (entry.state, entry.value, entry.path) == (state, offset, str(tmp_path / kind.value))
    assert bool(entry.problem) == (state is not FileState.READ)
    assert pickle.loads(pickle.dumps(checkpoints)).entry(kind, "t", 0).value == offset
