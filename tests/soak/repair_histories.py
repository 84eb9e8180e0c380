"""Random replicas, damaged, repaired from one another: nothing comes that does not belong, and all is said.

    python tests/soak repair-histories [--seed N] [--histories N] [--only INDEX] [--folder DIR]

Three brokers lead, lag, crash and are elected as in `merge_histories.py`, with segments of different sizes. Two of them
are damaged, at the same places and at others, some are compacted; then one is repaired from another one: which
may be behind, ahead, on another branch, of another topic or cluster, or without its `partition.metadata`. Each history
is made from the seed and its index alone. `test_repair_histories.py` runs a few.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from itertools import groupby
from pathlib import Path

from helpers.brokers import CONFIG, NAME, Batch, Broker, Cluster
from helpers.seeded_runs import main
from helpers.trees import tree

import pylogseg
from pylogseg import offline
from pylogseg.format.batches import scan
from pylogseg.inspect.verify.disk import VerifySummary, verify_disk
from pylogseg.inspect.verify.findings import Level
from soak.merge_histories import Left

_MISTAKES = ("topic id", "cluster", "other topic, no metadata", "other topic, no metadata, other names")


def play(folder: Path, chance: random.Random) -> list[Broker]:
    """Brokers with a history, stopped."""
    cluster = Cluster(folder, chance, unclean=chance.random() < 0.5)
    for broker in cluster.brokers:
        broker.stop()
        broker.config = CONFIG.with_changes(segment_bytes=chance.choice((700, 1500, 4000)))
        broker.start()
    for _ in range(50):
        cluster.step()
    for broker in cluster.brokers:
        if broker is not cluster.leader and chance.random() < 0.6:
            cluster.follow(broker, 100_000)
    return cluster.brokers


def compact(left: Left, chance: random.Random) -> int:
    """Remove batches below an offset, as the cleaner does; the offset."""
    cleaned = chance.choice([batch.first for batch in left.every])
    segments: dict[int, list[Batch]] = {}
    for batch in left.every:
        segments.setdefault(batch.segment, []).append(batch)
    kept = []
    for segment, inside in segments.items():
        ends = (inside[0], inside[-1])
        stay = [b for b in inside if b.end > cleaned or b in ends or chance.random() < 0.5]
        position = 0
        for batch in stay:
            kept.append(batch._replace(position=position))
            position += len(batch.data)
        (left.folder / f"{segment:020d}.log").write_bytes(b"".join(batch.data for batch in stay))
        for kind in ("index", "timeindex", "txnindex"):
            (left.folder / f"{segment:020d}.{kind}").unlink(missing_ok=True)
    left.every = kept
    left.batches = [batch for batch in kept if batch.end > left.start]
    (left.broker.folder / "cleaner-offset-checkpoint").write_text(f"0\n1\nt 0 {cleaned}\n")
    return cleaned


def mistake(kind: str, mine: Left, other: Left, root: Path) -> Path:
    """Make the other disk one that has nothing to do with this one."""
    if kind == "topic id":
        (other.folder / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ")
        return other.broker.folder
    if kind == "cluster":
        path = other.broker.folder / "meta.properties"
        path.write_text(path.read_text().replace("3Db5QLSqSZieL3rJBUUegA", "xxxxQLSqSZieL3rJBUUegA"))
        return other.broker.folder
    strange = Cluster(root / "strange", random.Random(99), unclean=False)
    while strange.leader.log.log_end_offset <= mine.end:
        strange.write()
    strange.leader.stop()
    folder = strange.leader.folder
    (folder / NAME / "partition.metadata").unlink()
    if kind.endswith("names"):
        (folder / "meta.properties").unlink()
    return folder


def check(index: int, seed: int, folder: Path) -> Counter[str]:
    """Run one history; AssertionError if something is not as it should be."""
    chance, counts = random.Random(f"{seed}-{index}"), Counter[str]()
    brokers = play(folder, chance)
    lefts = [Left(broker) for broker in brokers]
    for broker in brokers:
        broker.stop()
    chance.shuffle(lefts)
    mine, other, _ = lefts
    if not mine.every:
        return counts
    was_compacted = [
        chance.random() < 0.25 and bool(left.every) and compact(left, chance) > 0 for left in (mine, other)
    ]
    original = {batch.first: batch.data for batch in mine.every}
    for _ in range(chance.randint(1, 3)):
        counts[mine.damage(chance)] += 1
    if chance.random() < 0.6:
        counts[f"other: {other.damage(chance)}"] += 1
    is_mistake = chance.random() < 0.25
    wrong = chance.choice(_MISTAKES) if is_mistake else ""
    source = mistake(wrong, mine, other, folder) if is_mistake else other.broker.folder
    if not is_mistake and chance.random() < 0.3:
        (other.folder / "partition.metadata").unlink()
        counts["no partition.metadata"] += 1
    before, theirs = tree(source), {batch.first: batch.data for batch in other.every}
    keep_behind = chance.random() < 0.6
    dry = offline.repair(mine.broker.folder, other=source, keep_behind=keep_behind, dry_run=True).partitions[0]
    (result,) = done = offline.repair(mine.broker.folder, other=source, keep_behind=keep_behind)
    assert tree(source) == before, "the other disk was written to"
    assert (dry.numbers, dry.state) == (result.numbers, result.state), (dry.numbers, result.numbers)
    if result.state == "failed":
        assert is_mistake, result.reason
        assert done.exit_code, "a mistake, and the exit code does not show it"
        counts[f"refused: {wrong}"] += 1
        return counts
    found = batches_in(mine.folder)
    healed = result.numbers.get("offsetsFromOthers", 0)
    strangers = [first for first, data in found.items() if original.get(first, theirs.get(first)) != data]
    assert not strangers, f"batches that do not belong at {strangers}: {result.notes}"
    assert not (is_mistake and healed), result.notes
    beyond = [first for first in found if first not in original]
    lost_tail = mine.every[-1].first in mine.bad
    # A compacted one may have had there what the cleaner removed, and a damaged range brings it back.
    assert lost_tail or was_compacted[0] or not beyond, f"more than it had: {beyond} {result.notes}"
    # What was deleted and is in its files yet may go with them.
    good = [batch.first for batch in mine.every if batch.first not in mine.bad and batch.end > mine.start]
    if keep_behind:
        assert all(found.get(first) == original[first] for first in good), "good batches went"
    gone = [first for first in original if first not in found]
    if keep_behind and not is_mistake and not any(was_compacted):
        # A range that the other one has only in part stays missing, and is said.
        ranges = [list(run) for is_gone, run in groupby(original, lambda first: first not in found) if is_gone]
        has = {first for first in gone if first not in other.bad and theirs.get(first) == original[first]}
        there = [first for run in ranges if has.issuperset(run) for first in run]
        # Without a topic id, a batch that both have has to show that they are replicas.
        has_id = (other.folder / "partition.metadata").exists()
        assert not there or not has_id, f"not healed: {there}; {result.notes} {mine.bad}"
    what = dict(counts)
    # A whole segment of a compacted log that is missing cannot be told from what the cleaner removed.
    if [first for first in gone if first >= mine.start] and not (
        was_compacted[1] or (was_compacted[0] and counts["middle"])
    ):
        assert done.exit_code == 1, (gone, result.state, result.reason, result.notes, what, mine.bad, keep_behind)
        counts["something lost"] += 1
    counts["healed"] += bool(healed)
    counts["mistake"] += is_mistake
    again = offline.repair(mine.broker.folder, other=source, keep_behind=keep_behind).partitions[0]
    assert again.numbers["gaps"] == 0, again.rows
    found = verify_disk(pylogseg.open_dir(mine.broker.folder), VerifySummary(Level.INDEXES))
    bad = [each for each in found if each.is_damage]
    bad = [each for each in bad if each.kind != "log-start-lost"]  # a crash may lose it, before all this
    if not gone:
        assert not bad, bad
    else:
        assert all(each.kind in ("missing", "hole", "gap", "segment-missing") for each in bad) or not keep_behind, bad
    return counts


def batches_in(folder: Path) -> dict[int, bytes]:
    """The batches of a log by their first offsets, all of them whole."""
    found: dict[int, bytes] = {}
    for path in sorted(folder.glob("*.log")):
        data = path.read_bytes()
        rows = scan(data).batches
        assert int(rows.size.sum()) == len(data), path
        for first, at, size in zip(rows.base_offset.tolist(), rows.position.tolist(), rows.size.tolist(), strict=True):
            assert first not in found
            found[first] = data[at : at + size]
    assert list(found) == sorted(found)
    return found


if __name__ == "__main__":
    sys.exit(main(__doc__, check, "repaired"))
