"""Tests of offline/restoring/adopting.py. Logs that come into another cluster: the same records, the same aborted ones,
and no producer that is met again.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any, Literal, NamedTuple

import documents
import numpy as np
import pytest
from helpers.shell import expect, pylogseg

import pylogseg as package
from pylogseg import offline
from pylogseg._native import _append
from pylogseg.format.batches import scan
from pylogseg.format.files.txnindex import TxnIndex
from pylogseg.offline.restoring.adopting import HANDED_OUT, rename_ids
from pylogseg.offline.result import Result

IDS = (0, 1, 2, 1000, HANDED_OUT - 1, HANDED_OUT, (1 << 60) + 7)
_CODECS = ("none", "lz4", "zstd")
Isolation = Literal["read_uncommitted", "read_committed"]
ISOLATIONS: tuple[Isolation, ...] = ("read_uncommitted", "read_committed")


def a_log(folder: Path, seed: int, *, ends: bool = False) -> None:
    """Batches with and without producers, transactions that end by chance, segments of any number of them."""
    chance = random.Random(seed)
    with package.open_log(folder, leader_epoch=9, segment_bytes=chance.choice((300, 1000, 1 << 20))) as log:
        producers = {each: log.producer(each) for each in chance.sample(IDS, 4)}
        transactional, is_open = set(chance.sample(sorted(producers), 2)), set()
        for number in range(16):
            records = [(number, b"%d" % i, b"value %d" % number) for i in range(chance.randint(1, 3))]
            who = chance.choice((None, *producers))
            if who is None:
                log.append(records, compression=chance.choice(_CODECS))
                continue
            if who in transactional and who not in is_open:
                producers[who].begin()
                is_open.add(who)
            producers[who].append(records)
            if who in is_open and chance.random() < 0.4:
                chance.choice((producers[who].commit, producers[who].abort))()
                is_open.discard(who)
        for who in is_open if ends else ():
            producers[who].abort()


def rows(path: Path, isolation: Isolation) -> list[tuple[Any, ...]]:
    found = package.read(path, isolation_level=isolation)
    return [(r.topic, r.partition, r.offset, r.timestamp, r.key, r.value) for r in found]


def batches(folder: Path) -> np.ndarray[Any, Any]:
    """The headers of all batches; each has to be whole."""
    found = [scan(path.read_bytes()).batches.rows for path in sorted(folder.glob("*.log"))]
    assert all((each["verdict"] == 0).all() for each in found)
    return np.concatenate(found)


def aborted(folder: Path) -> list[tuple[int, int, int]]:
    data = b"".join(path.read_bytes() for path in sorted(folder.glob("*.txnindex")))
    return [(txn.producer_id, txn.first_offset, txn.last_offset) for txn in TxnIndex(data)]


def restored(source: Path, target: Path, **options: Any) -> Result:
    target.mkdir(exist_ok=True)
    return offline.restore(source, target, **options)


@pytest.mark.parametrize("aborts", [False, True], ids=["open", "aborted"])
@pytest.mark.parametrize("seed", range(4))
def test_the_same_log_with_other_producers(seed: int, aborts: bool, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    a_log(source / "orders-0", seed)
    result = restored(source, target, keep_producers=False, abort_open_transactions=aborts)
    assert not result.failed
    before, after = batches(source / "orders-0"), batches(target / "orders-0")
    same, markers = after[: len(before)], after[len(before) :]
    for name in sorted({*(before.dtype.names or ())} - {"producer_id", "leader_epoch", "crc", "pad"}):
        assert same[name].tolist() == before[name].tolist(), name
    assert same["producer_id"].tolist() == rename_ids(before["producer_id"].copy(), "").tolist()
    known = {*after["producer_id"].tolist()} - {-1}
    assert not [each for each in known if each < HANDED_OUT], known
    assert len(known) == len({*before["producer_id"].tolist()} - {-1})
    assert {*after["leader_epoch"].tolist()} == {0}
    for isolation in ISOLATIONS:
        found = rows(target, isolation)
        assert found[: len(rows(source, isolation))] == rows(source, isolation)
    there = [(int(rename_ids(np.array([who]), "")[0]), *offsets) for who, *offsets in aborted(source / "orders-0")]
    assert aborted(target / "orders-0")[: len(there)] == there
    with package.open_log(source / "orders-0") as log:
        still_open = len(log.open_transactions())
    assert len(markers) == (still_open if aborts else 0)
    assert pylogseg("verify", target, "--quiet").code == 0
    for path in (target / "orders-0").glob("*.snapshot"):  # what a recovery finds in the batches alone
        path.unlink()
    with package.open_log(target / "orders-0") as log:
        assert {*log.engine.producers.active} <= known
        assert len(log.open_transactions()) == (0 if aborts else still_open)
        end = log.log_end_offset
        for who in (0, 1, 2, 1000):  # new producers with the ids of old ones begin as these did
            first = [(0, b"0", b"value 0")]
            log.engine.append_as_leader(
                package.encode(first, producer_id=who, producer_epoch=0, base_sequence=0),
                0,
            )
        assert log.log_end_offset == end + 4


class Case(NamedTuple):
    """Ids of a backup and of where it goes, and whether it is at home there."""

    clusters: tuple[str | None, str | None]
    topics: tuple[str | None, str | None]
    is_home: bool


_A, _B = "AAAAAAAAAAAAAAAAAAAAAQ", "BBBBBBBBBBBBBBBBBBBBBQ"
_CASES = [
    Case(("one", "one"), (_A, _A), True),
    Case(("one", "one"), (_A, None), True),  # it comes with its id: a cluster that does not know that leaves it alone
    Case((None, None), (_A, None), True),
    Case((None, "one"), (_A, _A), True),
    Case(("one", "one"), (None, None), True),
    Case(("one", "one"), (_A, _B), False),  # an id of a cluster that was given to two of them
    Case(("one", "two"), (_A, _B), False),
    Case(("one", "two"), (_A, None), False),
    Case(("one", "two"), (None, None), False),
    Case((None, "one"), (_A, _B), False),
    Case((None, None), (None, None), False),
    Case(("one", None), (None, _B), False),
]


@pytest.fixture(scope="module")
def a_backup(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("backup")
    a_log(folder / "orders-0", 1, ends=True)
    return folder


@pytest.mark.parametrize("case", _CASES, ids=str)
def test_whose_producers_go_on(case: Case, a_backup: Path, tmp_path: Path) -> None:
    source, target = Path(shutil.copytree(a_backup, tmp_path / "source")), tmp_path / "target"
    (target / "orders-0" if case.topics[1] else target).mkdir(parents=True)
    for folder, cluster, topic in zip((source, target), case.clusters, case.topics, strict=True):
        if cluster is not None:
            documents.owned(folder, cluster=cluster)
        if topic is not None:
            (folder / "orders-0" / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic}\n")
    for keeps in (None, True, False):
        to = Path(shutil.copytree(target, tmp_path / f"broker-{keeps}" / "disk"))  # beside no other disk of it
        result = offline.restore(source, to, keep_producers=keeps)
        ids = [batches(folder / "orders-0")["producer_id"].tolist() for folder in (source, to)]
        assert (ids[0] == ids[1]) == (case.is_home if keeps is None else keeps), result.clients
        assert ("go on as they are" in result.clients[0]) == (ids[0] == ids[1])


def test_open_transactions_are_named_or_ended(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    with package.open_log(source / "orders-3") as log:
        for who in (5, 6):
            producer = log.producer(who)
            producer.begin()
            producer.append([(0, None, b"open")])
        log.append([(1, None, b"behind")])
    target.mkdir()
    done = expect(pylogseg("restore", source, target, "--forget-producers"), 0)
    for offset in (0, 1):
        command = f"abort --topic orders --partition 3 --start-offset {offset}"
        assert f"which no coordinator will end, and consumers with read_committed stop at offset {offset}:" in done.text
        assert command in done.text
    assert rows(target, "read_committed") == []
    arguments = ("restore", source, target, "--forget-producers", "--abort-open-transactions")
    done = pylogseg(*arguments)
    for offset in (0, 1):
        assert f"orders-3 from offset {offset} on: a transaction (producer " in done.text
    assert done.text.count("is aborted: as was asked for") == 2
    assert [row[2] for row in rows(target, "read_committed")] == [2]
    assert pylogseg("verify", target, "--quiet").code == 0
    again = pylogseg(*arguments, "--json")
    assert [row["state"] for row in again.rows if row["type"] == "partition"] == ["unchanged"]
    expect(pylogseg("restore", source, target, "--keep-producers"), 2, "other records")


def test_the_coordinators_of_another_cluster_stay_behind(golden: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    documents.owned(target, cluster="anotherClusterOfTests")
    source = golden / "broker-4.3" / "txn" / "data0"
    names = sorted(path.name for path in source.glob("__transaction_state-*"))
    assert names
    result = offline.restore(source, target, topic=[names[0]])
    assert [(each.state, each.not_done) for each in result] == [("skipped", True)]
    assert result.exit_code == 1
    result = offline.restore(source, target, topic=[names[0]], keep_producers=True)
    assert [each.state for each in result] == ["done"]


def test_committed_offsets_of_another_cluster(golden: Path, tmp_path: Path) -> None:
    """They go on without the leader epochs and topic ids of the old one, and nothing else of them changes."""
    target = tmp_path / "target"
    target.mkdir()
    source = golden / "inside" / "groups"
    assert offline.restore(source, target, topic=["__consumer_offsets"], keep_producers=False).exit_code == 0
    before, after = (package.cluster_state(path).rows("group_offsets") for path in (source, target))
    assert before
    assert any(row["leaderEpoch"] is not None for row in before)
    assert any(row["topicId"] is not None for row in before)
    other = ("stale", "pendingProducerId", "startOffset", "endOffset", "lag", "lagFromStart")
    unknown = {"leaderEpoch": None, "topicId": None, **dict.fromkeys(other)}
    assert [{**row, **unknown} for row in after] == [{**row, **unknown} for row in before]
    assert {(row["leaderEpoch"], row["topicId"]) for row in after} == {(None, None)}
    again = offline.restore(source, target, topic=["__consumer_offsets"], keep_producers=False)
    assert {each.state for each in again} == {"unchanged"}
    assert pylogseg("verify", target, "--quiet").code == 0


def test_share_groups_of_another_cluster_begin_anew(golden: Path, tmp_path: Path) -> None:
    """It is said, and only where they do."""
    (source, name), *_ = ((path.parent, path.name) for path in (golden / "broker-4.3" / "txn").glob("data?/__share_*"))
    for keeps in (False, True):
        target = tmp_path / f"{keeps}"
        result = restored(source, target, topic=[name], keep_producers=keeps)
        assert [each.state for each in result] == ["done"]
        assert any("share groups begin anew" in line for line in result.clients) is not keeps


def test_rows_that_are_not_those_of_the_bytes() -> None:
    data = bytearray(package.encode([(0, None, b"v")]))
    row = scan(data).batches.rows
    one, none = np.zeros(1, np.int64), np.zeros(1, np.int32)
    for position in (-1, 1, 10_000):
        with pytest.raises(ValueError, match="no whole batch"):
            _append.set_owners(data, row, position, one, none)
    with pytest.raises(ValueError, match="no whole batch"):
        _append.set_owners(data[:-1], row, 0, one, none)
    with pytest.raises(TypeError):
        _append.set_owners(data, row, 0, one[:0], none)
    assert _append.set_owners(data, row, 0, one, none) == 1
    assert _append.set_owners(data, row, 0, one, none) == 0
    assert scan(data).batches.rows["verdict"].tolist() == [0]
