"""Tests of offline/copying/transactions.py, offline/ending_transactions.py and offline/restoring/ending.py. Logs of
different moments: after a restore nothing is shown that nobody committed, and the id goes on.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from helpers.depth import some_of
from helpers.shell import pylogseg
from helpers.transaction_moments import PLACES, STATE, TransactionMoments, coordinator_starts

import pylogseg as package
from pylogseg import offline
from pylogseg.env.storage import LocalStorage
from pylogseg.reading.arrow.encode import encode
from pylogseg.reading.seek import end_offset


def shown(root: Path) -> set[bytes]:
    found = package.read(root, "orders", isolation_level="read_committed")
    return {bytes(record.value or b"") for record in found}


def the_ends(chance: random.Random, moments: TransactionMoments) -> dict[str, int]:
    """Each log has what came up to a moment of its own; now and then all have one."""
    ends = {name: chance.randint(0 if name != STATE else 1, moments.count(name)) for name in (STATE, *PLACES)}
    if chance.random() < 0.5:  # moments that are not far from each other, as those of disks are
        middle = chance.randint(1, len(moments.steps))
        near = {name: min(len(moments.steps), max(1, middle + chance.randint(-5, 5))) for name in ends}
        ends = {name: sum(step.log == name for step in moments.steps[:stop]) for name, stop in near.items()}
    ends[STATE] = max(ends[STATE], 1)
    return ends


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("seed", some_of(range(12), 4))
def test_logs_of_any_moments(seed: int, version: int, tmp_path: Path) -> None:
    chance = random.Random(seed * 10 + version)
    moments = TransactionMoments(chance, version)
    for number in range(4):
        source, target = tmp_path / f"source-{number}", tmp_path / f"target-{number}"
        ends = the_ends(chance, moments)
        moments.write(source, ends, segment_bytes=chance.choice((200, 1 << 20)))
        target.mkdir()
        before = shown(source)
        result = offline.restore(source, target, keep_producers=True)
        assert not result.failed
        restored = shown(target)
        assert before <= restored <= moments.committed, (ends, result.clients)
        assert pylogseg("verify", target, "--quiet").code == 0
        again = offline.restore(source, target, keep_producers=True)
        assert {each.state for each in again} == {"unchanged"}
        refused = coordinator_starts(target, version)
        assert refused == [], (ends, result.clients)
        assert shown(target) - {b"next"} <= moments.committed, (ends, result.clients)
        assert b"next" in shown(target)


@pytest.mark.parametrize("version", [1, 2])
def test_a_coordinator_that_knows_all_loses_nothing(version: int, tmp_path: Path) -> None:
    """Partitions are of earlier moments than the coordinator: what it has committed of them is there."""
    chance = random.Random(version)
    for number in range(20):
        moments = TransactionMoments(chance, version)
        ends = {name: chance.randint(0, moments.count(name)) for name in PLACES}
        ends[STATE] = moments.count(STATE)
        source, target = tmp_path / f"source-{number}", tmp_path / f"target-{number}"
        moments.write(source, ends)
        target.mkdir()
        offline.restore(source, target, keep_producers=True)
        there = {bytes(record.value or b"") for record in package.read(source, "orders")}
        assert shown(target) == there & moments.committed


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("seed", some_of(range(6), 2))
def test_copies_of_a_running_broker(seed: int, version: int, tmp_path: Path) -> None:
    """The lock is held, as by a broker, so logs of different moments are reconciled; of a stopped one they are left."""
    chance = random.Random(seed * 10 + version)
    moments = TransactionMoments(chance, version)
    for number in range(3):
        source, target = tmp_path / f"source-{number}", tmp_path / f"target-{number}"
        moments.write(source, the_ends(chance, moments), segment_bytes=chance.choice((200, 1 << 20)))
        assert offline.copy(source, tmp_path / f"stopped-{number}").notes == []
        lock = LocalStorage().lock(str(source))
        try:
            done = offline.copy(source, target)
        finally:
            lock.release()
        assert [row.name for row in done] == sorted([STATE, *PLACES])
        ends = {row.name: row.log_end for row in done}
        assert ends == {part.name: end_offset(part.segments) for part in package.open_dir(target).partitions}
        assert shown(source) <= shown(target) <= moments.committed, done.notes
        assert pylogseg("verify", target, "--quiet").code == 0
        assert coordinator_starts(target, version) == [], done.notes
        assert shown(target) - {b"next"} <= moments.committed, done.notes


def test_a_copy_of_several_log_directories(tmp_path: Path) -> None:
    """The coordinators' log lies on one disk, and what it is about on the other."""
    chance = random.Random(7)
    moments = TransactionMoments(chance, 2, count=6)
    above, aside = tmp_path / "disks", tmp_path / "aside"
    moments.write(aside, {STATE: moments.count(STATE), PLACES[0]: 3, PLACES[1]: 3})
    for disk, name in (("d0", STATE), ("d0", PLACES[1]), ("d1", PLACES[0])):
        (above / disk).mkdir(parents=True, exist_ok=True)
        (aside / name).rename(above / disk / name)
        (above / disk / "meta.properties").write_text("version=1\ncluster.id=here\nnode.id=1\n")
    lock = LocalStorage().lock(str(above / "d1"))
    try:
        done = offline.copy(above, tmp_path / "copy")
    finally:
        lock.release()
    assert len(done.partitions) == 3
    there = {bytes(record.value or b"") for record in package.read(above, "orders")}
    assert shown(tmp_path / "copy") == there & moments.committed, done.notes


def test_the_same_log_is_left_to_the_coordinator_that_is_there(tmp_path: Path) -> None:
    """Of the same cluster, and without the coordinators' log: what is there already stays as it is."""
    moments = TransactionMoments(random.Random(3), 2)
    source, target = tmp_path / "source", tmp_path / "target"
    moments.write(source, {STATE: 1, PLACES[0]: 1, PLACES[1]: 0})
    moments.write(target, {STATE: moments.count(STATE), PLACES[0]: 1, PLACES[1]: 0})
    before = (target / PLACES[0] / f"{0:020d}.log").read_bytes()
    result = offline.restore(source, target, topic="orders", keep_producers=True)
    assert {each.state for each in result if each.name == PLACES[0]} == {"unchanged"}
    assert (target / PLACES[0] / f"{0:020d}.log").read_bytes() == before
    aborted = offline.restore(source, target, topic="orders", keep_producers=True, abort_open_transactions=True)
    assert [row["type"] for each in aborted for row in each.rows] == ["abortedTransaction"]


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    """A disk with a log that no broker would load whole: a batch in the middle of a transaction is not part of it."""
    folder = tmp_path / "odd" / "orders-0"
    folder.mkdir(parents=True)
    parts = []
    for offset, (who, sequence, transactional) in enumerate([(7, 0, True), (8, 0, False), (7, 1, False)]):
        producer = {"producer_id": who, "producer_epoch": 0, "base_sequence": sequence}
        parts.append(encode([(5, b"k", b"v")], base_offset=offset, transactional=transactional, **producer))
    (folder / f"{0:020d}.log").write_bytes(b"".join(parts))
    return folder.parent


@pytest.mark.parametrize("command", ["restore", "restore again", "restore --to", "copy"])
def test_a_batch_that_no_broker_loads_is_said(odd: Path, tmp_path: Path, command: str) -> None:
    """It may end a transaction, or begin one: the verdict names it, and the exit code is 1."""
    target = tmp_path / "target"
    if command.startswith("restore"):
        target.mkdir()
    if command == "restore --to":
        with package.Broker() as broker:
            place = f"kafka://{broker.bootstrap_servers}"
            done = pylogseg("restore", odd, "orders", "--to", place, "--abort-open-transactions")
    elif command == "copy":  # of a broker that runs: what is open is ended by the log of the coordinators
        (odd / STATE).mkdir()
        (odd / STATE / f"{0:020d}.log").touch()
        lock = LocalStorage().lock(str(odd))
        try:
            done = pylogseg("copy", odd, target)
        finally:
            lock.release()
    else:
        done = pylogseg("restore", odd, target)
        if command == "restore again":
            done = pylogseg("restore", odd, target, "--abort-open-transactions")
    text = done.text + done.err
    assert "producer 7 has" in text or "producer 2305843009213693959 has" in text, "a restore gives it another id"
    assert "an open transaction from offset 0 on, but the batch is not transactional" in text
    if command == "restore again":  # a marker is appended to a log that is opened as a broker does
        assert done.code == 2
    else:
        assert done.code == 1
        assert "orders-0: which transactions are open in it, since no broker would load all of it" in text
