"""Tests of reading/offset_order.py. A batch with more records than offsets, its checksum right: damage to all that
reads it, as to `verify`.
"""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import pytest
from helpers.shell import pylogseg

import pylogseg as package
from pylogseg import _codec


@pytest.fixture
def log_dir(examples: Path, tmp_path: Path) -> Path:
    """A log of which a batch of 50 records, at offset 200, says that it ends at 247."""
    folder = Path(shutil.copytree(examples / "levels-0", tmp_path / "levels-0"))
    path = folder / f"{0:020}.log"
    data = bytearray(path.read_bytes())
    found = package.scan(data).batches
    (row,) = (found.base_offset == 200).nonzero()[0].tolist()
    at, size = int(found.position[row]), int(found.size[row])
    assert struct.unpack_from(">i", data, at + 23) == (49,)
    struct.pack_into(">i", data, at + 23, 47)
    struct.pack_into(">I", data, at + 17, _codec.crc32c(bytes(data[at + 21 : at + size])))
    path.write_bytes(data)
    return tmp_path


def test_it_is_damage_whichever_way_one_reads(log_dir: Path) -> None:
    whole = package.read(log_dir, on_corrupt="skip")
    kept = [record.offset for record in whole]
    assert kept == [*range(200), *range(250, 350)]
    (gap,) = whole.gaps
    assert "50 records declared for 48 offsets" in gap.reason
    assert (gap.first_offset, gap.next_offset) == (200, 250)
    assert package.read_arrow(log_dir, on_corrupt="skip").read_all().column("offset").to_pylist() == kept
    assert package.dataset(log_dir, on_corrupt="skip").to_table().num_rows == len(kept)
    for read in (package.read, package.read_arrow):
        with pytest.raises(package.CorruptionError, match="50 records declared for 48 offsets"):
            sum(1 for _ in read(log_dir))
    with pytest.raises(package.CorruptionError, match="50 records declared for 48 offsets"):
        package.dataset(log_dir).count_rows()
    for command in ("verify", "cat", "latest", "stats"):
        assert pylogseg(command, log_dir).code == 1, command
    assert pylogseg("grep", ".", log_dir).code == 2  # 1 is: nothing was found
