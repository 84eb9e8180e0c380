"""Tests of values/internal/image.py. A snapshot of the metadata log that is not whole: an older one and the log count,
and it is named; never nothing.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.shell import expect, pylogseg

from pylogseg.errors import CorruptionError
from pylogseg.values.internal.cluster import ClusterMetadata
from pylogseg.values.internal.image import Image

HARMS: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "zeros": lambda data: bytes(len(data)),
    "cut behind its header": lambda data: data[:166],
    "cut in its footer": lambda data: data[:-3],
    "without its footer": lambda data: data[:-87],
    "without its header": lambda data: data[166:],
    "other bytes": lambda data: data[:400] + b"\xde\xad" + data[402:],
    "garbage": lambda data: b"\xfe garbage" * 40,
}


@pytest.fixture
def folder(golden: Path, tmp_path: Path) -> Path:
    """Snapshots to offset 487 and to 596, and a log from 464 on."""
    shutil.copytree(golden / "broker-4.3" / "metadata-trimmed" / "data0", tmp_path / "disk" / "data0")
    return tmp_path / "disk" / "data0" / "__cluster_metadata-0"


def state(image: Image) -> dict[str, object]:
    names = ("topics", "configs", "brokers", "controllers", "features", "quotas", "users", "acls", "next_producer_id")
    return {name: getattr(image, name) for name in (*names, "offset", "time_ms", "partitions")}


def harm(folder: Path, how: str, which: slice) -> list[Path]:
    snapshots = sorted(folder.glob("*.checkpoint"))[which]
    for path in snapshots:
        path.write_bytes(HARMS[how](path.read_bytes()))
    return snapshots


def test_the_harms_cut_at_batches(folder: Path) -> None:
    """The harms that leave whole batches do so: else they would be found without a look at header and footer."""
    for how in ("cut behind its header", "without its footer", "without its header"):
        path = folder / "x.log"
        path.write_bytes(HARMS[how](sorted(folder.glob("*.checkpoint"))[-1].read_bytes()))
        assert pylogseg("dump", path).code == 0, how


@pytest.mark.parametrize("how", HARMS)
def test_an_older_snapshot_and_the_log(folder: Path, how: str) -> None:
    whole = Image.read(str(folder))
    (path,) = harm(folder, how, slice(-1, None))
    image = Image.read(str(folder))
    assert state(image) == state(whole)
    assert len(image.topics) == 13
    (note,) = image.notes
    assert note.startswith(f"{path}: at position ")
    assert "00000000000000000487-0000000004.checkpoint with the log give" in note
    assert ClusterMetadata.read(str(folder)).notes == [note]
    before = Image.read(str(folder), None, whole.time_ms - 1)  # the state before a time
    assert (before.topics, before.notes) == (whole.topics, [note])
    (folder / path.name).unlink()  # an absent one is none: the older one is the newest
    assert (state(Image.read(str(folder))), Image.read(str(folder)).notes) == (state(whole), [])


@pytest.mark.parametrize("how", HARMS)
def test_nothing_gives_it(folder: Path, how: str) -> None:
    """No snapshot is whole, and the log begins behind the first records."""
    harm(folder, how, slice(None))
    with pytest.raises(CorruptionError, match=r"596-0000000004\.checkpoint: at position .* does not have all that"):
        Image.read(str(folder))


@pytest.mark.parametrize("how", HARMS)
def test_a_log_that_ends_below_the_snapshot(folder: Path, how: str) -> None:
    """The older snapshot can be read, and the log ends before the offset in the name of the newer one."""
    harm(folder, how, slice(-1, None))
    for path in folder.glob("00000000000000000566.*"):
        path.unlink()
    with pytest.raises(CorruptionError, match="does not have all that it had"):
        Image.read(str(folder))


@pytest.mark.parametrize("how", HARMS)
@pytest.mark.parametrize("what", ["topics", "partitions", "configs"])
def test_commands_say_it(folder: Path, how: str, what: str) -> None:
    disk = folder.parents[1]
    whole = expect(pylogseg("cluster", disk, what), 0)
    harm(folder, how, slice(-1, None))
    done = pylogseg("cluster", disk, what)
    assert (done.out, done.code) == (whole.out, 1)
    assert "596-0000000004.checkpoint: at position " in done.err
    harm(folder, how, slice(None))
    done = expect(pylogseg("cluster", disk, what), 1, "596-0000000004.checkpoint: at position ")
    assert done.out == b""


@pytest.mark.parametrize("which", [slice(-1, None), slice(None)], ids=["the newest", "all"])
def test_stats_and_report_say_it(folder: Path, which: slice) -> None:
    """They ask the metadata which topics are compacted, and how: what counts instead is named."""
    disk = folder.parents[1]
    assert "596-0000000004.checkpoint" not in pylogseg("stats", disk).err
    harm(folder, "garbage", which)
    for more in ((), ("--by", "topic")):
        done = pylogseg("stats", disk, *more)
        assert (done.code, done.err.count("596-0000000004.checkpoint: at position ")) == (1, 1), done.err
    (facts,) = pylogseg("report", disk, "--json").rows
    notes = facts["scope"]["notes"]
    assert any("596-0000000004.checkpoint: at position " in note for note in notes)
    assert len(notes) == len(set(notes))
