"""Tests of disk/tier/sealed_file.py and disk/tier/writing.py. Files of an archive that no segment has, such as
snapshots of the metadata with its users: encrypted as the rest.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers.tiers import Key

from pylogseg.archive import open_archive, write
from pylogseg.disk.tier.keys import KeyRing, PublicKey
from pylogseg.disk.tier.sealed_file import open_file, seal_file
from pylogseg.errors import CorruptionError, MissingKeyError, PylogsegError

METADATA = "__cluster_metadata-0"


@pytest.fixture
def keys(tmp_path: Path) -> tuple[Path, PublicKey]:
    """A folder with a private key, and the public one."""
    made = Key.make("ops", tmp_path / "keys")
    (tmp_path / "keys" / "ops.public").rename(tmp_path / "ops.pem")
    return tmp_path / "keys", made.public


def test_snapshots_of_the_metadata_are_encrypted(examples: Path, tmp_path: Path, keys: tuple[Path, PublicKey]) -> None:
    archive = tmp_path / "archive"
    first = write(examples, archive, encrypt_to=tmp_path / "ops.pem").point
    (stored,) = (path for path in (archive / "files").rglob("*") if path.is_file())
    original = (examples / METADATA / stored.name).read_bytes()
    assert original[100:140] not in stored.read_bytes()
    disk = open_archive(archive, keys=keys[0])
    (part,) = (each for each in disk.partitions if each.name == METADATA)
    (file,) = (each for each in part.others if each.path.endswith(stored.name))
    assert part.files.read_all(file.path) == original
    with part.files.open(file.path, sealed=True) as view:
        assert bytes(view.read(0, view.size)) == original
    with pytest.raises(MissingKeyError, match="'ops'"):
        open_archive(archive).partitions[0].files.read_all(file.path)
    second = write(examples, archive, encrypt_to=tmp_path / "ops.pem").point
    kept = [{each.name: each.files for each in point.partitions}[METADATA] for point in (first, second)]
    assert kept[0] == kept[1] != {}


@pytest.mark.parametrize("data", [b"", b"x", bytes(100_000)])
def test_a_sealed_file_comes_back(data: bytes, keys: tuple[Path, PublicKey]) -> None:
    sealed, ring = seal_file(data, keys[1]), KeyRing(keys[0])
    assert open_file(sealed, ring, "f") == data
    assert open_file(data, ring, "f") == data


def test_a_damaged_one_is_said(keys: tuple[Path, PublicKey]) -> None:
    sealed, ring = seal_file(bytes(range(256)), keys[1]), KeyRing(keys[0])
    begin = len(b"pylogseg sealed file 1\n")
    for at in range(begin, len(sealed)):
        harmed: Any = bytearray(sealed)
        harmed[at] ^= 1
        with pytest.raises(PylogsegError) as failed:
            open_file(bytes(harmed), ring, "f")
        assert str(failed.value).startswith("f")
    # A last character of base64 whose lowest bit belongs to no byte, which random keys have only now and then.
    spare: Any = bytearray(sealed)
    at = sealed.index(b'"', sealed.index(b'"aad": "') + 8) - 2
    assert sealed[at + 1 : at + 2] == b"="
    for last in b"048":
        spare[at] = last + 1
        with pytest.raises(CorruptionError, match="is not base64"):
            open_file(bytes(spare), ring, "f")
    for end in range(begin, len(sealed), 7):
        with pytest.raises(CorruptionError):
            open_file(sealed[:end], ring, "f")
    with pytest.raises(CorruptionError, match="no line in JSON"):
        open_file(sealed[:begin] + b"[" * 15_000 + b"\n", ring, "f")
