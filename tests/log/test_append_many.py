"""Tests of _native/_append.pyx, _native/_run.pyx, log/append.py, log/append_result.py, log/producer_state.py and
log/rolling.py. Many batches at once are as many single appends: the same answers, the same state, the same files.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.depth import some_of

from pylogseg import encode
from pylogseg._native._run import Run
from pylogseg.config import LogConfig
from pylogseg.env.environment import Environment
from pylogseg.env.storage import LocalStorage
from pylogseg.errors import ClosedError, CorruptionError, InvalidRecordError, PylogsegError, StorageError
from pylogseg.format.control_batches import marker_batch
from pylogseg.log import append
from pylogseg.log.append_result import Appended, AppendedMany
from pylogseg.log.log import Log
from pylogseg.log.producer_state import Origin
from pylogseg.log.state import LogState
from pylogseg.testing.clock import ManualClock, ManualScheduler
from pylogseg.testing.faults import FaultyStorage
from pylogseg.testing.memory import MemoryStorage

NOW = 1_700_000_000_000


class StepByStep(Log):
    """A log whose appends are all written step by step."""

    def __init__(self, state: LogState) -> None:
        super().__init__(state)
        self._appender._run_at = self._nowhere  # type: ignore[method-assign]

    def _nowhere(self, end: int, leader_epoch: int) -> Run:
        run = Run(self._appender.rules)
        run.next_offset = end
        return run


def open_log(storage: Any, folder: str, kind: type[Log] = Log, **settings: Any) -> Log:
    clock = ManualClock(NOW)
    return kind.open(Environment(storage, clock, ManualScheduler(clock)), folder, LogConfig.of(**settings))


def batch(count: int = 3, *, timestamp: int = NOW, size: int = 10, key: bytes | None = b"k", **more: Any) -> bytes:
    records = [(timestamp + i if timestamp >= 0 else timestamp, key, b"v" * size) for i in range(count)]
    return bytes(encode(records, batch_bytes=1 << 30, **more))


class Producer:
    """Sends batches in order, mostly."""

    def __init__(self, number: int, chance: random.Random) -> None:
        self.number, self.chance = number, chance
        self.epoch = self.sequence = 0
        self.sent: list[bytes] = []
        self.in_transaction = False

    def next(self, **more: Any) -> bytes:
        chance = self.chance.random()
        if self.sent and chance < 0.08:
            return self.chance.choice(self.sent[-7:])  # a duplicate, or one that is forgotten already
        if chance < 0.12:
            self.epoch, self.sequence = self.epoch + 1, 0
        if chance > 0.97:
            self.sequence += 1  # a gap
        if chance > 0.94:
            self.in_transaction = True
        elif self.in_transaction and chance > 0.8:
            self.in_transaction = False
            return bytes(
                marker_batch(
                    self.chance.choice(["commit", "abort"]),
                    base_offset=0,
                    timestamp_ms=NOW,
                    producer_id=self.number,
                    producer_epoch=self.epoch,
                    coordinator_epoch=0,
                )
            )
        count = self.chance.randrange(1, 5)
        data = batch(
            count,
            producer_id=self.number,
            producer_epoch=self.epoch,
            base_sequence=self.sequence,
            transactional=self.in_transaction,
            **more,
        )
        self.sequence += count
        self.sent.append(data)
        return data


def anything(chance: random.Random, producers: list[Producer]) -> bytes:
    """A batch that is as it should be, or is not."""
    kind = chance.random()
    timestamp = NOW + chance.randrange(-2000, 2000)
    codec = chance.choice(["none", "none", "none", "lz4", "zstd", "gzip", "snappy"])
    if kind < 0.4:
        return batch(chance.randrange(1, 9), timestamp=timestamp, size=chance.randrange(60), compression=codec)
    if kind < 0.8:
        return chance.choice(producers).next(timestamp=timestamp, compression=codec)
    if kind < 0.84:
        broken = bytearray(batch(2))
        broken[chance.randrange(17, len(broken))] ^= 1 << chance.randrange(8)
        return bytes(broken)
    if kind < 0.88:
        return batch(size=chance.choice([300, 900, 2000]))
    if kind < 0.91:
        return batch(timestamp=NOW + 10**10)
    if kind < 0.94:
        return batch(key=None, timestamp=chance.choice([-1, timestamp]))
    if kind < 0.97:
        return batch(base_offset=5)
    return batch(1, magic=chance.choice([0, 1]), timestamp=timestamp)


def settings_of(chance: random.Random) -> dict[str, Any]:
    return {
        "segment_bytes": chance.choice([600, 3000, 1 << 20]),
        "max_message_bytes": chance.choice([1000, 1 << 20]),
        "index_interval_bytes": chance.choice([0, 100, 4096]),
        "segment_index_bytes": chance.choice([64, 10 << 20]),
        "segment_ms": chance.choice([500, 3000, 7 * 86_400_000]),
        "flush_messages": chance.choice([1, 7, 2**63 - 1]),
        "cleanup_policy": chance.choice(["delete", "delete", "compact"]),
        "message_timestamp_type": chance.choice(["CreateTime", "CreateTime", "LogAppendTime"]),
        "compression_type": chance.choice(["producer", "producer", "producer", "lz4"]),
    }


def one_by_one(log: Log, data: list[bytes], epoch: int, **more: Any) -> list[Appended | PylogsegError]:
    answers: list[Appended | PylogsegError] = []
    for some in data:
        try:
            answers.append(log.append_as_leader(some, epoch, **more))
        except PylogsegError as error:
            answers.append(error)
    return answers


def answers_of(many: AppendedMany) -> list[Any]:
    return [many.errors.get(row) or many[row] for row in range(len(many))]


def alike(answers: list[Any], folder: str) -> list[Any]:
    """Errors as text, without the names of folders."""
    return [
        (type(answer).__name__, str(answer).replace(folder, "")) if isinstance(answer, Exception) else answer
        for answer in answers
    ]


def state_of(log: Log) -> dict[str, Any]:
    return {
        "offsets": (log.log_start_offset, log.log_end_offset, log.high_watermark, log.last_stable_offset),
        "end": log.offsets.end,
        "recovery_point": log.recovery_point,
        "segments": [
            (s.base_offset, s.size, s.max_timestamp_so_far(), s.offset_index.count, s.time_index.count)
            for s in log.segments
        ],
        "epochs": log.epochs.entries,
        "unstable": log.offsets.first_unstable,
        "map_end": log.producers.map_end_offset,
        "producers": {
            number: (s.producer_epoch, s.coordinator_epoch, s.last_timestamp, s.first_txn_offset, s.batches)
            for number, s in log.producers.active.items()
        },
    }


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.mark.parametrize("seed", some_of(range(60), 15))
def test_as_single_appends(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    settings = settings_of(chance)
    names = {name: str(tmp_path / name / "t-0") for name in ("steps", "loop", "many")}
    kinds = {"steps": StepByStep, "loop": Log, "many": Log}
    logs = {name: open_log(LocalStorage(), path, kinds[name], **settings) for name, path in names.items()}
    producers = [Producer(number, chance) for number in range(4)]
    for epoch in range(chance.randrange(1, 4)):
        data = [anything(chance, producers) for _ in range(chance.randrange(40))]
        origin = chance.choice([Origin.CLIENT, Origin.CLIENT, Origin.COORDINATOR])
        expected = one_by_one(logs["steps"], data, epoch, origin=origin)
        assert alike(one_by_one(logs["loop"], data, epoch, origin=origin), names["loop"]) == alike(
            expected, names["steps"]
        )
        # The same batches, cut into buffers anywhere; a buffer ends with a whole batch.
        cuts = sorted(chance.sample(range(len(data) + 1), min(len(data), chance.randrange(3))))
        buffers = [b"".join(data[a:b]) for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
        in_place = chance.random() < 0.3
        given: Any = [bytearray(some) for some in buffers] if in_place else buffers
        many = logs["many"].append_many(given, epoch, origin=origin, in_place=in_place)
        assert alike(answers_of(many), names["many"]) == alike(expected, names["steps"])
        assert state_of(logs["many"]) == state_of(logs["loop"]) == state_of(logs["steps"])
    for ending in ("as after a crash", "closed"):
        if ending == "closed":
            for log in logs.values():
                log.close()
        files = {name: files_of(Path(path)) for name, path in names.items()}
        assert files["many"] == files["steps"], ending
        assert files["loop"] == files["steps"], ending


def test_runs_are_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Usual batches do not go alone, those of idempotent producers and of open transactions neither."""
    log = open_log(LocalStorage(), str(tmp_path / "t-0"))
    chance = random.Random(1)
    sequences = [0] * 5
    data = []
    for i in range(1000):
        number = chance.randrange(5)
        more = {"producer_id": number, "producer_epoch": 0, "base_sequence": sequences[number]} if number else {}
        sequences[number] += 3
        data.append(batch(size=100, transactional=number == 4, timestamp=NOW + i, **more))
    alone = []
    single = log._appender.append_as_leader
    monkeypatch.setattr(
        log._appender, "append_as_leader", lambda *args, **more: alone.append(1) or single(*args, **more)
    )
    writes = []
    file = type(log.active.log)
    append = file.append
    monkeypatch.setattr(file, "append", lambda self, data: writes.append(len(data)) or append(self, data))
    many = log.append_many(b"".join(data), 0)
    assert not many.errors
    assert many.last_offset.tolist() == list(range(2, 3000, 3))
    assert len(alone) <= 5, "the first batch of the log, and of each producer"
    assert len(writes) <= 12
    assert np.array_equal(many.valid_bytes, [len(some) for some in data])


def test_batches_for_the_careful_validation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that is good as it came, whatever has to be done for it first."""
    seen: list[int] = []
    careful = append.leader
    monkeypatch.setattr(append, "leader", lambda data, *args, **more: seen.append(1) or careful(data, *args, **more))
    log = open_log(LocalStorage(), str(tmp_path / "t-0"), segment_bytes=700)
    producer = {"producer_id": 7, "producer_epoch": 0}
    first, transactional = batch(**producer, base_sequence=0), batch(**producer, base_sequence=6, transactional=True)
    good = [batch(), batch(compression="lz4"), first, batch(**producer, base_sequence=3), first, batch(size=150)]
    for data in [*good, transactional]:  # of a new log, of a producer, sent again, in a new segment, in a transaction
        assert log.append_as_leader(data, 0).last_offset >= 0
    who = {"timestamp_ms": NOW, "producer_id": 7, "producer_epoch": 0, "coordinator_epoch": 0}
    log.append_as_leader(marker_batch("commit", base_offset=0, **who), 0, origin=Origin.COORDINATOR)
    for epoch in (1, 1, 2):
        many = log.append_many([batch(), batch(compression="lz4"), transactional, batch(size=150)], epoch)
        assert not many.errors
        assert many.is_duplicate.tolist() == [False, False, True, False]
    assert len(log.segments) > 3
    assert not seen
    for count, data in enumerate((batch(1, magic=1), batch() * 2, batch()[:-1], batch(base_offset=3), b""), 1):
        one_by_one(log, [data], 1)
        assert len(seen) == count
    log.update_config(log.config.with_changes(compression_type="zstd"))
    assert log.append_as_leader(batch(), 1).last_offset >= 0
    assert len(seen) == count + 1


def test_what_is_no_batch(tmp_path: Path) -> None:
    log = open_log(LocalStorage(), str(tmp_path / "t-0"))
    good = batch()
    cut = log.append_many(good + good[:-1], 0)
    assert cut.last_offset.tolist() == [2, -1]
    assert isinstance(cut.errors[1], CorruptionError)
    assert str(len(good) - 1) in str(cut.errors[1])
    with pytest.raises(CorruptionError):
        cut.raise_first()
    with pytest.raises(CorruptionError):
        cut[1]
    junk = log.append_many([good, b"\xff" * 100, b"", good], 0)
    assert junk.last_offset.tolist() == [5, -1, 8]
    assert list(junk.errors) == [1]
    assert len(log.append_many(b"", 0)) == len(log.append_many([], 0)) == 0
    assert log.append_many([], 0).raise_first() is None
    refused = log.append_many(good + batch(base_offset=3) + good, 0)
    assert [type(error) for error in refused.errors.values()] == [InvalidRecordError]
    assert refused[2].last_offset == 14


def test_what_the_caller_gave_is_not_changed(tmp_path: Path) -> None:
    log = open_log(LocalStorage(), str(tmp_path / "t-0"))
    given = bytearray(batch() * 10)
    before = bytes(given)
    log.append_many(given, 3)
    assert given == before
    log.append_many(given, 3, in_place=True)
    assert given != before
    assert (tmp_path / "t-0" / f"{0:020d}.log").read_bytes().endswith(given)


def test_the_disk_fails() -> None:
    """A run that cannot be written is refused as a whole, and so is all that follows."""
    storage = FaultyStorage(MemoryStorage())
    log = open_log(storage, "t-0")
    assert not log.append_many(batch() * 3, 0).errors
    before = state_of(log)
    storage.fail_at = storage.count + 1
    many = log.append_many(batch() * 3 + batch(base_offset=3) + batch(), 0)
    assert sorted(many.errors) == [0, 1, 2, 3, 4]
    assert all(isinstance(error, StorageError) for error in many.errors.values())
    assert many.last_offset.tolist() == [-1] * 5
    assert state_of(log) == before
    log.close_handles()
    with pytest.raises(ClosedError):
        log.append_many(batch(), 0)
