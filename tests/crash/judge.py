"""What a log must be like after a crash: the oracle of all the tests that pull the plug.

1. Every batch that a flush acknowledged is there, byte for byte, unless its removal had begun.
2. Nothing is invented: all batches that are there were in the log together at one time, in this order. What had not
   been flushed may be missing at the end of a segment, and later segments be there.
3. Offsets keep their order: start, last stable offset, high watermark, end.
4. Indexes, times, epochs and aborted transactions say what the batches say.
5. The last batch of each producer is known: appended again, it is a duplicate.
6. A second recovery changes no file.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from crash.promises import FOLDER, NOW_MS, Promise, Written, as_sent
from pylogseg.config import LogConfig
from pylogseg.env.environment import Environment
from pylogseg.env.storage import Storage
from pylogseg.errors import Verdict as Checked
from pylogseg.format.batches import scan
from pylogseg.format.files.snapshot import parse_snapshot
from pylogseg.format.names import FileKind, segment_file_name
from pylogseg.log.log import Log
from pylogseg.log.state import Start
from pylogseg.testing.clock import ManualClock, ManualScheduler


class Broken(AssertionError):
    """A promise that does not hold."""


def must(holds: object, message: str) -> None:
    """Raise `Broken` unless something holds."""
    if not holds:
        raise Broken(message)


class Recovered:
    """A log opened after a crash, for a ``with`` block.

    Parameters
    ----------
    storage : Storage
        What the crash left.
    promise : Promise
        What had been promised by then.
    recovery_point : int
        The checkpoint that is found; any up to the promise's.
    """

    def __init__(
        self,
        storage: Storage,
        promise: Promise,
        recovery_point: int,
        config: LogConfig,
        folder: str = FOLDER,
    ) -> None:
        self.clock = ManualClock(NOW_MS + 10_000_000)
        self.scheduler = ManualScheduler(self.clock)
        self.log = Log.open(
            Environment(storage, self.clock, self.scheduler),
            folder,
            config,
            Start(promise.clean, promise.log_start, recovery_point),
        )

    def __enter__(self) -> Recovered:
        return self

    def __exit__(self, *error: object) -> None:
        """Let what is delayed happen, and let go of the files as a crash does."""
        try:
            if not any(error):
                self.scheduler.advance(10_000_000)
        finally:
            self.log.close_handles()

    def batches(self) -> list[tuple[int, int, bytes]]:
        """Base offset, last offset and bytes of all batches, read from the log's start to its end."""
        log, found = self.log, []
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            fetched = log.fetch(offset, 1 << 20)
            rows = scan(fetched.data, crc=True).batches
            if not len(rows):
                break
            must((rows.verdict == Checked.GOOD).all(), f"a batch at offset {offset} does not match its CRC")
            for base, last, position, size in zip(
                rows.base_offset.tolist(),
                rows.last_offset.tolist(),
                rows.position.tolist(),
                rows.size.tolist(),
                strict=True,
            ):
                found.append((base, last, bytes(fetched.data[position : position + size])))
            offset = found[-1][1] + 1
        return found


def known(found: Iterable[tuple[int, int, bytes]], history: list[Written]) -> list[int]:
    """Which batches of the history these are."""
    numbers = {(batch.base, batch.data): number for number, batch in enumerate(history)}
    out = []
    for base, last, data in found:
        must((base, data) in numbers, f"invented: a batch with offsets {base} to {last} was never appended")
        out.append(numbers[base, data])
    return out


def judge_batches(log: Log, there: list[int], history: list[Written], promise: Promise) -> None:
    """Points 1 and 2."""
    lost = [n for n in promise.flushed if n not in set(there) and history[n].last >= log.log_start_offset]
    must(not lost, f"lost what was flushed: {[history[n][1:5] for n in lost]}")
    must(
        log.log_start_offset <= promise.last_start,
        f"the log starts at {log.log_start_offset}, the highest it was told is {promise.last_start}",
    )
    if not there:
        return
    born = max(history[n].born for n in there)
    died = min(there, key=lambda n: history[n].died)
    must(
        born < history[died].died,
        f"batches that were never in the log together: {history[died][1:7]} went before the time {born}",
    )
    at_that_time = [n for n, batch in enumerate(history) if batch.born <= born < batch.died]
    begins = {segment.base_offset for segment in log.segments}
    for before, after in pairwise(there):
        missing = at_that_time[at_that_time.index(before) + 1 : at_that_time.index(after)]
        must(
            not missing or history[after].base in begins,
            f"a hole inside a segment: {[history[n][1:5] for n in missing]}",
        )


def judge_offsets(log: Log, there: list[int], history: list[Written]) -> None:
    """Point 3."""
    log.update_high_watermark(log.log_end_offset)
    start, stable, high, end = (
        log.log_start_offset,
        log.last_stable_offset,
        log.high_watermark,
        log.log_end_offset,
    )
    # As in Kafka, an open transaction that begins below the start is unstable from the batch on that holds the start.
    holds_start = next((history[n].base for n in there if history[n].base < start <= history[n].last), start)
    must(holds_start <= stable <= high <= end, f"start {start}, stable {stable}, high watermark {high}, end {end}")
    must(log.recovery_point <= end, f"recovery point {log.recovery_point}, end {end}")
    if there and log.active.size:
        must(end == history[there[-1]].last + 1, f"the log ends at {end}, its last batch at {history[there[-1]].last}")
    must(log.active.size or end == log.active.base_offset, f"the log ends at {end}, its last segment is empty")
    open_txns: dict[int, int] = {}
    for n in there:
        batch = history[n]
        if batch.producer is not None and batch.producer.transactional:
            if batch.marker is None:
                open_txns.setdefault(batch.producer.producer_id, batch.base)
            else:
                open_txns.pop(batch.producer.producer_id, None)
    if open_txns:
        must(stable <= min(open_txns.values()), f"stable up to {stable}, but open from {min(open_txns.values())}")
    bases = [segment.base_offset for segment in log.segments]
    must(all(a < b for a, b in pairwise(bases)), f"segments {bases}")


def judge_look_ups(log: Log, there: list[int], history: list[Written], promise: Promise) -> None:
    """Point 4."""
    aborted: set[tuple[int, int]] = set()
    first: dict[int, int] = {}
    for n in there:
        batch = history[n]
        fetched = log.fetch(batch.last, 1)
        must(bytes(fetched.data) == batch.data, f"offset {batch.last} leads elsewhere: {fetched.start}")
        if batch.marker is None and batch.died > promise.now and promise.times:
            found = log.offset_for_time(batch.timestamp)
            must(
                found is not None and found[:2] == (batch.timestamp, max(batch.last, log.log_start_offset)),
                f"time {batch.timestamp} of offset {batch.last} leads to {found}",
            )
        told = log.epochs.epoch_for_offset(batch.last)
        must(
            told == batch.epoch or (told == -1 and batch.last < promise.last_start),
            f"offset {batch.last} has epoch {batch.epoch}, the cache says {log.epochs.entries}",
        )
        if batch.producer is not None and batch.producer.transactional:
            if batch.marker is None:
                first.setdefault(batch.producer.producer_id, batch.base)
            elif (begin := first.pop(batch.producer.producer_id, None)) is not None and batch.marker == "abort":
                aborted.add((batch.producer.producer_id, begin))
    told_aborted = {(txn.producer_id, txn.first_offset) for segment in log.segments for txn in segment.aborted_txns}
    # Of one that began below the log's start only the end is there.
    early = {producer_id for producer_id, begin in told_aborted if begin < log.log_start_offset}
    missing = {txn for txn in aborted - told_aborted if txn[0] not in early}
    must(not missing, f"aborted: {aborted}, told: {told_aborted}")
    begun = {history[n].base for n in there}
    wrong = {txn for txn in told_aborted - aborted if txn[1] in begun and txn[1] >= log.log_start_offset}
    must(not wrong, f"not aborted, but said to be: {wrong}")


def judge_producers(log: Log, there: list[int], history: list[Written]) -> None:
    """Point 5; appends to the log, though nothing that is written."""
    last: dict[int, Written] = {}
    epochs: dict[int, int] = {}
    for n in there:
        batch = history[n]
        if batch.producer is not None:
            epochs[batch.producer.producer_id] = max(epochs.get(batch.producer.producer_id, 0), batch.producer.epoch)
            if batch.marker is None:
                last[batch.producer.producer_id] = batch
    for producer_id, batch in last.items():
        assert batch.producer is not None
        if batch.producer.epoch < epochs[producer_id]:
            continue
        done = log.append_as_leader(as_sent(batch.data), max(log.epochs.latest_epoch, 0))
        must(
            done.is_duplicate and (done.first_offset, done.last_offset) == (batch.base, batch.last),
            f"producer {producer_id} sent offsets {batch.base} to {batch.last} again: {done}",
        )


def files(storage: Storage, folder: str, config: LogConfig, start: int) -> dict[str, object]:
    """All files of a log; the zeros that a new segment is preallocated with count as none.

    Of the producers only those that have records above the log's start: as in Kafka, each recovery reads the others
    from the snapshots below, and removes those. It writes one without producers at the start if there was none, and
    removes that too.
    """
    found: dict[str, object] = {
        entry.name: storage.read_all(storage.join(folder, entry.name))
        for entry in storage.list_folder(folder)
        if not entry.is_dir
    }
    for name, data in list(found.items()):
        assert isinstance(data, bytes)
        if name.endswith(".snapshot"):
            found[name] = [entry for entry in parse_snapshot(data, name) if entry.last_offset >= start]
            if name == segment_file_name(start, FileKind.PRODUCER_SNAPSHOT) and not found[name]:
                del found[name]
        elif name.endswith(".log") and config.preallocate:
            found[name] = data.rstrip(b"\0")
    return found


def judge(
    storage: Storage,
    promise: Promise,
    history: list[Written],
    config: LogConfig,
    *,
    recovery_point: int,
    folder: str = FOLDER,
) -> list[int]:
    """All points; which batches of the history are there.

    Parameters
    ----------
    storage : Storage
        What the crash left; changed by the recovery.
    promise : Promise
        The last one before the crash.
    history : list of Written
        All batches that were ever handed to the log.
    config : LogConfig
        Of the log.
    recovery_point : int
        The checkpoint that is found.
    folder : str
        The partition's.

    Raises
    ------
    Broken
        Naming the promise that does not hold.
    """
    with Recovered(storage, promise, recovery_point, config, folder) as log:
        there = known(log.batches(), history)
        judge_batches(log.log, there, history, promise)
        judge_offsets(log.log, there, history)
        judge_look_ups(log.log, there, history, promise)
        start = log.log.log_start_offset
    before = files(storage, folder, config, start)
    promise = promise._replace(clean=False)  # the first one has not ended well
    with Recovered(storage, promise, recovery_point, config, folder) as log:
        must(known(log.batches(), history) == there, "a second recovery found other batches")
    after = files(storage, folder, config, start)
    changed = {name for name in {*before, *after} if before.get(name) != after.get(name)}
    # Kafka drops epochs that a checkpoint has begun too late, and finds them in the batches the next time.
    changed.discard("leader-epoch-checkpoint")
    must(not changed, f"a second recovery changed {sorted(changed)}")
    with Recovered(storage, promise, recovery_point, config, folder) as log:
        log.log.update_high_watermark(log.log.log_end_offset)
        judge_producers(log.log, there, history)
    return there
