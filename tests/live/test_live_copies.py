"""Tests of live/cluster.py, live/describing.py, live/fetching.py, offline/copying/fetched_log.py and
offline/copying/from_cluster.py. Tests of offline/copying/from_cluster.py: a copy of a cluster has the bytes of its
leaders.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.shell import expect
from helpers.shell import pylogseg as run

import pylogseg
from pylogseg import offline
from pylogseg.errors import RequestError, StorageError
from pylogseg.live import cluster as live_cluster
from pylogseg.live import fetching
from pylogseg.offline.copying.from_cluster import FetchedLog

DATA = Path(__file__).resolve().parents[2] / "examples" / "data"
#: Topics whose partitions all have a leader where `DATA` is served.
TOPICS = ["cmp-short", "cmp-txn", "codec-gzip", "del-records", "legacy", "mixed", "ret-bytes", "timestamps", "txn-a"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    with pylogseg.serve(DATA) as server:
        yield f"kafka://{server.bootstrap_servers}"


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_cluster, "ELECTION_S", 0.2)


def stored(folder: Path) -> bytes:
    """Return the bytes of the segments of a partition, one after the other."""
    return b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))


def files_of(folder: Path) -> dict[str, bytes]:
    """Return the segments of a partition by their names, but the first one: records in it may have been deleted."""
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*.log"))[1:]}


@pytest.mark.parametrize("size", [4 << 20, 1500])
@pytest.mark.parametrize("topic", TOPICS)
def test_bytes_are_those_of_the_leader(
    cluster: str, topic: str, size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are in the segments of the leader; nothing is wrong with what lies beside them."""
    monkeypatch.setattr(fetching, "PIECE_BYTES", size)
    copied = offline.copy(f"{cluster}/{topic}", tmp_path / "copy")
    assert copied.exit_code == 0
    for row in copied:
        copy, original = stored(tmp_path / "copy" / row.name), stored(DATA / row.name)
        assert original.endswith(copy)
        assert row.bytes == len(copy)
        assert row.segments == len([*(tmp_path / "copy" / row.name).glob("*.log")])
        if size == 4 << 20 and topic not in ("legacy", "cmp-short", "cmp-txn"):  # empty segments of a cleaner
            assert files_of(tmp_path / "copy" / row.name).items() <= files_of(DATA / row.name).items()
    done = expect(run("verify", tmp_path / "copy", "--json"), 0)
    kinds = {row["kind"] for row in done.rows if row["type"] == "finding"}
    assert kinds <= {"meta-properties"}, "a cluster has none"
    difference = offline.diff(tmp_path / "copy", DATA, topic=topic)
    assert [row.name for row in difference if not row.is_same] == []
    starts = {part.name: part.log_start_offset for part in pylogseg.open_dir(DATA)[topic]}
    assert {part.name: part.log_start_offset for part in pylogseg.open_dir(tmp_path / "copy")[topic]} == starts


def test_a_whole_cluster(cluster: str, tmp_path: Path) -> None:
    """A partition without a leader is not in the copy; open transactions end as the coordinators say, if asked for."""
    done = run("copy", cluster, tmp_path / "copy", "--end-transactions")
    assert done.code == 2
    assert "codec-lz4-0 is not in the copy" in done.err
    assert "__transaction_state-0: tx-fenced gets a record of state CompleteCommit" in done.text
    copied = {part.name for part in pylogseg.open_dir(tmp_path / "copy")}
    assert {"txn-a-0", "__transaction_state-0", "codec-lz4-1"} <= copied
    assert "codec-lz4-0" not in copied
    for level in ("read_committed", "read_uncommitted"):
        expected = pylogseg.read(DATA, "txn-*", isolation_level=level).to_arrow()
        assert pylogseg.read(tmp_path / "copy", "txn-*", isolation_level=level).to_arrow() == expected
    again = run("copy", cluster, tmp_path / "copy")
    assert again.code == 2
    assert "the transactions of this copy were ended in it, so it never goes on" in again.err


def test_what_was_planned_is_not_made(cluster: str, tmp_path: Path) -> None:
    done = run("copy", f"{cluster}/txn-a", tmp_path / "copy", "--dry-run")
    assert (done.code, list(tmp_path.iterdir())) == (0, [])
    assert "would copy 2 partitions" in done.text
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").touch()
    with pytest.raises(RequestError, match="taken"):
        offline.copy(f"{cluster}/txn-a", tmp_path / "taken")
    with pytest.raises(RequestError, match="no such topic or partition"):
        offline.copy(f"{cluster}/nope", tmp_path / "copy")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_an_interrupted_copy_goes_on(cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(FetchedLog, "append", interrupt)
        with pytest.raises(KeyboardInterrupt):
            offline.copy(f"{cluster}/txn-a", tmp_path / "copy")
    assert list(tmp_path.iterdir()) == [], "nothing had come"
    with monkeypatch.context() as patched:
        patched.setattr(FetchedLog, "reach", interrupt)
        with pytest.raises(KeyboardInterrupt):
            offline.copy(f"{cluster}/txn-a", tmp_path / "copy")
    copied = offline.copy(f"{cluster}/txn-a", tmp_path / "copy")
    assert copied.exit_code == 0
    for row in copied:
        assert stored(DATA / row.name).endswith(stored(tmp_path / "copy" / row.name))


@pytest.mark.parametrize(("place", "reason"), [(66, "CRC mismatch"), (0, "offset"), (16, "magic")])
def test_a_damaged_batch_fails_its_partition(
    place: int, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes that changed on the way are not written as good ones."""
    take = fetching.FetchedView._add

    def damage(view: fetching.FetchedView, data: memoryview, *rest: object) -> None:
        copy = bytearray(data)
        copy[place] ^= 0x7F
        take(view, memoryview(copy), *rest)  # type: ignore[arg-type]

    with pylogseg.Broker() as broker:
        broker.create_topic("orders", 1)
        broker.produce("orders", b"a", b"b")
        monkeypatch.setattr(fetching.FetchedView, "_add", damage)
        with pytest.raises(pylogseg.PylogsegError, match=reason):
            offline.copy(f"kafka://{broker.bootstrap_servers}/orders", tmp_path / "copy")
    assert list(tmp_path.iterdir()) == []


def test_nobody_answers(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot connect"):
        offline.copy("kafka://127.0.0.1:1/orders", tmp_path / "copy")
    assert list(tmp_path.iterdir()) == []


def test_a_log_without_records(tmp_path: Path) -> None:
    with pylogseg.Broker() as broker:
        broker.create_topic("orders", 2)
        copied = offline.copy(f"kafka://{broker.bootstrap_servers}/orders", tmp_path / "copy")
    assert [(row.state, row.log_end, row.segments) for row in copied] == [("copied", 0, 1)] * 2
    assert run("verify", tmp_path / "copy").code == 0
