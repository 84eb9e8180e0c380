"""Random histories of three brokers: their disks, merged, have to be what the last leader serves.

    python tests/soak merge-histories [--seed N] [--histories N] [--only INDEX] [--folder DIR]

Brokers lead, lag, crash and are elected, cleanly or not; then all stop, some in order, and some disks are damaged. The
merge has to give every batch of the leader that is whole on any disk, byte for byte, to name those that are on none,
and to refuse exactly where committed records were lost by an election. Each history is made from the seed and its
index alone. `test_merge_histories.py` runs a few.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from pathlib import Path

from helpers.brokers import NAME, Batch, Broker, Cluster
from helpers.seeded_runs import main

import pylogseg
from pylogseg import offline
from pylogseg.errors import RequestError
from pylogseg.format.batches import scan
from pylogseg.format.records import decode
from pylogseg.inspect.verify.disk import VerifySummary, verify_disk
from pylogseg.inspect.verify.findings import Level
from pylogseg.log.recovery_report import ActionKind

_STEPS = 60


class Left:
    """What a broker has on its disk when all is over: its batches, and which of them are damaged."""

    def __init__(self, broker: Broker) -> None:
        self.broker, self.folder = broker, broker.folder / NAME
        self.batches, self.every = broker.batches(), broker.batches(deleted=True)
        self.start, self.end = broker.log.log_start_offset, broker.log.log_end_offset
        epochs = broker.log.epochs.entries
        #: From here on its history is known; what is below was deleted, and a crash may bring it back.
        self.known_from = max([self.start, *(entry.start_offset for entry in epochs[:1])])
        self.bad: set[int] = set()  # first offsets of batches
        self.high_watermark = 0

    def has(self, batch: Batch) -> bool:
        return any(each.data == batch.data and each.first not in self.bad for each in self.every)

    def damage(self, chance: random.Random) -> str:
        """Damage a range of batches; a leader's epochs stay to be seen."""
        segments = sorted({batch.segment for batch in self.every if self._path(batch.segment).exists()})
        if not segments:
            return "nothing"
        kinds = ["flip", "flip", "middle", "zeros", "cut", "tail", "index"]
        kind, segment = chance.choice(kinds), chance.choice(segments)
        path = self._path(segment)
        size = path.stat().st_size
        inside = [b for b in self.every if b.segment == segment and b.position + len(b.data) <= size]
        if not inside:
            return "nothing"
        if kind == "middle" and segment not in (segments[0], segments[-1]):
            path.unlink()
            self.bad |= {batch.first for batch in inside}
        elif kind in ("flip", "zeros"):
            first = chance.randrange(len(inside))
            hit = inside[first : first + chance.randint(1, 3)]
            data = bytearray(path.read_bytes())
            for batch in hit:
                if kind == "flip":
                    at = batch.position + chance.randrange(21, len(batch.data))
                    data[at] ^= 1 << chance.randrange(8)
                else:
                    data[batch.position : batch.position + len(batch.data)] = bytes(len(batch.data))
            path.write_bytes(data)
            self.bad |= {batch.first for batch in hit}
        elif kind == "cut" and segment == segments[-1] and self.is_told(inside):
            kept = chance.randrange(1, len(inside) + 1)
            at = inside[kept].position if kept < len(inside) else inside[-1].position + len(inside[-1].data)
            path.write_bytes(path.read_bytes()[: at + chance.choice((0, 20))])
            self.bad |= {batch.first for batch in inside[kept:]}
        elif kind == "tail" and segment == segments[-1]:  # also all of the segment, and what an election lost
            kept = chance.randrange(len(inside))
            path.write_bytes(path.read_bytes()[: inside[kept].position + chance.choice((0, 20))])
            self.bad |= {batch.first for batch in inside[kept:]}
        elif kind == "index":
            for each in self.folder.glob("*.index"):
                each.write_bytes(b"x" * 24)
        else:
            return "nothing"
        return kind

    def _path(self, segment: int) -> Path:
        return self.folder / f"{segment:020d}.log"

    def is_told(self, inside: list[Batch]) -> bool:
        return len(inside) > 1


def play(folder: Path, chance: random.Random) -> tuple[list[Left], Left, Counter[str]]:
    """Play a history and stop the brokers; what they have left, and what the leader has."""
    counts: Counter[str] = Counter()
    cluster = Cluster(folder, chance, unclean=chance.random() < 0.6)
    for _ in range(_STEPS):
        cluster.step()
    if chance.random() < 0.5:
        for broker in cluster.brokers:
            if broker is not cluster.leader and chance.random() < 0.7:
                cluster.follow(broker, 100_000)
    lefts = [Left(broker) for broker in cluster.brokers]
    for left in lefts:
        if chance.random() < 0.5:
            left.broker.stop()
        else:
            left.broker.kill()
    for left in lefts:
        left.high_watermark = _noted(left)
    return lefts, next(left for left in lefts if left.broker is cluster.leader), counts


def _noted(left: Left) -> int:
    path = left.broker.folder / "replication-offset-checkpoint"
    lines = path.read_text().splitlines()[2:] if path.exists() else []
    return next((int(line.split()[2]) for line in lines if line.startswith("t 0 ")), 0)


def lost_by_election(lefts: list[Left], leader: Left) -> list[Left]:
    """Brokers that know records as committed that the leader has not, by their batches."""
    theirs = {batch.data for batch in leader.batches}
    found = []
    for left in lefts:
        known = [batch for batch in left.batches if batch.end <= left.high_watermark and batch.end > leader.start]
        if any(batch.data not in theirs for batch in known):
            found.append(left)
    return found


def lost_batches(lost: list[Left], leader: Left) -> list[Batch]:
    """What they know as committed and the leader has not."""
    theirs = {batch.data for batch in leader.batches}
    known = (b for left in lost for b in left.batches if b.end <= left.high_watermark and b.end > leader.start)
    return [batch for batch in known if batch.data not in theirs]


def may_be_lost(lefts: list[Left], leader: Left) -> bool:
    """Whether a high watermark is above the start of a batch that the leader has not.

    It may be in the middle of a batch, or be that of a broker that a leader without those records made cut them, and
    another one still has them.
    """
    theirs = {batch.data for batch in leader.batches}
    cut = max((left.high_watermark for left in lefts if left.high_watermark > left.end), default=0)
    return any(
        batch.first < max(left.high_watermark, cut) and batch.end > leader.start and batch.data not in theirs
        for left in lefts
        for batch in left.batches
    )


def check(index: int, seed: int, folder: Path) -> Counter[str]:
    """Run one history; AssertionError if the merge is not what the leader serves."""
    chance = random.Random(f"{seed}-{index}")
    lefts, leader, counts = play(folder, chance)
    lost = lost_by_election(lefts, leader)
    was_known = lost_batches(lost, leader)
    for left in lefts:
        if chance.random() < 0.5:
            counts[left.damage(chance)] += 1
    sources, into = [str(left.broker.folder) for left in lefts], folder / "merged"
    chance.shuffle(sources)
    (result,) = offline.merge(sources, into)
    proved = {
        offset
        for row in result.rows
        if row["type"] in ("missing", "lost", "alarm")
        for offset in range(row["firstOffset"], row.get("nextOffset") or row["highWatermark"])
    }
    on_none = {o for b in was_known if not any(left.has(b) for left in lefts) for o in range(b.first, b.end)}
    assert on_none <= proved, (on_none - proved, result.rows, result.notes)
    assert result.not_done or not on_none
    counts["lost by an election, and on no disk"] += bool(on_none)
    if result.state == "skipped":
        counts["alarms"] += 1
        assert lost or may_be_lost(lefts, leader), result.reason
        assert not into.exists()
        (result,) = offline.merge(sources, into, take={NAME: str(leader.broker.folder)})
    else:
        assert all(each.first in on_none for each in was_known), (result.rows, result.notes)
    assert result.state == "done", (result.state, result.reason)
    wanted = [batch for batch in leader.batches if any(left.has(batch) for left in lefts)]
    gone = {offset for batch in leader.batches if batch not in wanted for offset in range(batch.first, batch.end)}
    found = _written(into / NAME, leader.known_from)
    assert found == [batch.data for batch in wanted if batch.end > leader.known_from], _differences(found, wanted)
    named = {
        offset
        for row in result.rows
        if row["type"] == "missing"
        for offset in range(row["firstOffset"], row["nextOffset"])
    }
    assert {offset for offset in gone if offset >= leader.known_from} <= named | set(
        range(result.log_end or 0, leader.end)
    )
    # What was deleted may have come back by a crash, with damage in it.
    named = {offset for offset in named if offset >= leader.known_from}
    assert all(offset in gone or offset >= leader.end for offset in named), (named, gone)
    counts["fromOthers"] += result.numbers["offsetsFromOthers"] > 0
    counts["missing"] += bool(gone)
    _check_opens(into, leader, whole=not gone)
    return counts


def _written(folder: Path, start: int) -> list[bytes]:
    """The batches of a log; below its start, whole segments are not deleted yet."""
    found = []
    for path in sorted(folder.glob("*.log")):
        data = path.read_bytes()
        rows = scan(data).batches
        assert int(rows.size.sum()) == len(data)
        rows = rows[rows.last_offset >= start]
        found += [data[at : at + n] for at, n in zip(rows.position.tolist(), rows.size.tolist(), strict=True)]
    return found


def _differences(found: list[bytes], wanted: list[Batch]) -> str:
    offsets = [int.from_bytes(data[:8], "big") for data in found]
    return f"merged has batches at {offsets}, and should have {[batch.first for batch in wanted]}"


def _check_opens(into: Path, leader: Left, *, whole: bool) -> None:
    """A reader, `verify` and a load find nothing wrong, and the log starts where the leader's does."""
    bad = [each for each in verify_disk(pylogseg.open_dir(into), VerifySummary(Level.INDEXES)) if each.is_damage]
    # A crash may lose where the log starts: the merge has it as a broker would that starts on the leader's disk.
    bad = [each for each in bad if each.kind != "log-start-lost"]
    # Below it, replicas may differ: records that were deleted came back by a crash.
    bad = [each for each in bad if each.last_offset is None or each.last_offset >= leader.known_from]
    assert not bad or not whole, bad
    recovered = offline.repair(into, dry_run=True)
    if whole:
        (result,) = recovered
        # The producers at the log's start may have come from the leader; a recovery makes its own.
        done = [action for action in result.report.actions if action.kind is not ActionKind.SNAPSHOT]
        assert not done, result.report.actions
        # A crash may lose where the log starts, and another replica may have as much and more of the beginning.
        assert (result.log_start or 0) <= leader.known_from
        wanted = [record for record in _records(leader.batches) if record[0] >= leader.known_from]
        found = [(r.offset, r.value) for r in pylogseg.read(into, isolation_level="read_uncommitted")]
        found = [record for record in found if record[0] >= leader.known_from]
        assert found == wanted
    try:
        list(pylogseg.read(into, isolation_level="read_committed", on_corrupt="stop"))
    except RequestError as error:
        raise AssertionError(error) from error


def _records(batches: list[Batch]) -> list[tuple[int, bytes | None]]:
    found = []
    for batch in batches:
        rows = scan(batch.data).batches
        if not rows.is_control[0]:
            columns, _ = decode(rows, batch.data)
            found += [(int(columns.offset[i]), columns.value(i)) for i in range(len(columns))]
    return found


if __name__ == "__main__":
    sys.exit(main(__doc__, check, "merged"))
