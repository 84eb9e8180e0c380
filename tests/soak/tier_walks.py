"""Random histories of uploads by three brokers of the engine: what is read of a tier is what the last leader has.

    python tests/soak tier-walks [--seed N] [--histories N] [--only INDEX] [--folder DIR]

Leaders upload their segments, each with bounds of its own, as a broker chooses them: above what its own history has in
the tier. Others are elected, cleanly or not; copies break off, or are made and never known. At the end a leader uploads
all that is sealed. The tier alone, and each disk without the segments that it may have deleted, together with the tier,
give the leader's records, with both isolations; so does what is restored. Nothing is damaged; then objects are, and
exactly these are named. Each history is made from the seed and its index alone. `test_tier_walks.py` runs a few.
"""

from __future__ import annotations

import argparse
import logging
import random
import shutil
import sys
import tempfile
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from helpers.brokers import NAME, TOPIC_ID, Broker, Cluster
from helpers.seeded_runs import seeded_indexes
from helpers.tiers import COPIED, Uploader, break_off, copy_segment

import pylogseg
from pylogseg import offline
from pylogseg.disk.lineage.chains import Lineage, divergence
from pylogseg.disk.lineage.parts import LeftKind, LogRange
from pylogseg.disk.tier.files import TierFiles
from pylogseg.format.files.checkpoint import EpochEntry
from pylogseg.inspect.verify.disk import VerifySummary, verify_disk
from pylogseg.inspect.verify.findings import Finding, Level

_STEPS = 70
ISOLATIONS: tuple[Any, ...] = ("read_uncommitted", "read_committed")
Row = tuple[int, int, bytes | None, bytes | None]


class Copied(NamedTuple):
    """What a broker uploaded, and knows that it did."""

    base: int
    end: int
    epochs: tuple[EpochEntry, ...]
    path: Path


class Tiered(Cluster):
    """Brokers that upload."""

    def __init__(self, folder: Path, chance: random.Random, layout: str) -> None:
        super().__init__(folder, chance)
        self.tier, self.layout, self.counts = folder / "tier", layout, Counter[str]()
        self.copied: list[Copied] = []
        self.tier.mkdir()

    def step(self) -> None:
        drawn = self.chance.random()
        if drawn < 0.3:
            self.upload(self.leader, self.chance.randint(1, 4))
        elif drawn < 0.33:  # a leader that is alone, and loses what it uploads
            self.in_sync = [self.leader]
            for _ in range(8):
                self.write()
            self.upload(self.leader, 4)
            self.elect_any()
        else:
            super().step()

    def elect(self, broker: Broker) -> None:
        self.counts["unclean elections"] += broker not in self.in_sync
        super().elect(broker)

    def highest(self, broker: Broker) -> int:
        """The offset behind what the history of a broker's log has in the tier."""
        lineage = Lineage.of(broker.log.epochs.entries, 0, broker.log.log_end_offset)
        ends = [0]
        for base, end, epochs, _ in self.copied:
            same = divergence(LogRange(base, end, epochs).lineage, lineage)
            if same.epoch is not None and same.offset > base:
                ends.append(min(same.offset, end))
        return max(ends)

    def upload(self, broker: Broker, most: int = 1 << 30) -> None:
        """Upload sealed segments with offsets that are not in the tier yet."""
        log, chance = broker.log, self.chance
        segments = list(log.segments)
        stable = min(log.last_stable_offset, log.high_watermark)
        for segment, following in pairwise(segments):
            base, end = segment.base_offset, following.base_offset
            if end > stable or most == 0:
                break
            if end <= max(self.highest(broker), log.log_start_offset) or base == end:
                continue
            folder = broker.folder / NAME
            entries = [entry for entry in log.epochs.entries if entry.start_offset < end]
            if not entries or not (folder / f"{end:020d}.snapshot").exists():
                break
            self.counts["uploads"] += 1
            if self.layout == "aiven":
                up = Uploader(self.tier, 700, chance.random() < 0.5)
                copied = up.segment(folder, base, end, TOPIC_ID, entries)
            else:
                copied = copy_segment(self.tier, folder, base, end, TOPIC_ID, entries)
                if most < 10 and chance.random() < 0.15:
                    break_off(copied, chance.randrange(len(COPIED)))
                    self.counts["copies that broke off"] += 1
                    break
            most -= 1
            if most < 10 and chance.random() < 0.1:
                self.counts["uploads that nobody knows of"] += 1
                break
            self.copied.append(Copied(base, end, tuple(entries), copied))

    def delete_below(self, start: int) -> None:
        """Delete what lies below the start of the log, of what is known, as a leader does."""
        for each in [each for each in self.copied if each.end <= start]:
            self.copied.remove(each)
            self.counts["uploads deleted"] += 1
            for path in each.path.parent.glob(f"{each.path.stem}.*"):
                path.unlink()

    def settle(self) -> None:
        """Write, sync all, and upload all that is sealed."""
        self.elect(self.chance.choice(self.in_sync))
        for _ in range(3):
            for _ in range(8):
                self.write()
            for broker in self.brokers:
                if broker is not self.leader:
                    self.follow(broker, 1 << 30)
        self.upload(self.leader)


def rows(disk: pylogseg.Disk, isolation: Any, **more: Any) -> list[Row]:
    """The records of a disk."""
    return [(r.offset, r.timestamp, r.key, r.value) for r in pylogseg.read(disk, isolation_level=isolation, **more)]


def since(start: int, records: list[Row]) -> list[Row]:
    """The records from an offset on."""
    return [row for row in records if row[0] >= start]


def damaged(disk: pylogseg.Disk) -> list[Finding]:
    """The findings of damage in a disk."""
    found = [found for found in verify_disk(disk, VerifySummary(Level.INDEXES)) if found.is_damage]
    return [each for each in found if each.kind != "log-start-lost"]  # by a crash, which brought records back


def differs(what: str, found: list[Row], wanted: list[Row]) -> list[str]:
    """A line about the first difference; nothing if there is none."""
    if found == wanted:
        return []
    pair = next((pair for pair in zip(found, wanted, strict=False) if pair[0] != pair[1]), None)
    return [f"{what}: {len(found)} records, not {len(wanted)}; first difference {pair}"]


def run(index: int, seed: int, folder: Path) -> tuple[list[str], Counter[str]]:
    """One history: what is wrong, and what it had."""
    chance = random.Random(f"{seed}-{index}")
    cluster = Tiered(folder, chance, chance.choice(["aiven", "localtier"]))
    for _ in range(_STEPS):
        cluster.step()
    cluster.settle()
    starts = {broker.node_id: broker.log.log_start_offset for broker in cluster.brokers}
    for broker in cluster.brokers:
        broker.stop()
        # A broker with remote storage notes every start, also that of a first segment.
        lines = f"0\n1\nt 0 {starts[broker.node_id]}\n"
        (broker.folder / "log-start-offset-checkpoint").write_text(lines)
    cluster.delete_below(starts[cluster.leader.node_id])
    whole = pylogseg.open_dir(cluster.leader.folder)
    wanted = {isolation: rows(whole, isolation) for isolation in ISOLATIONS}
    # A crash may bring deleted records back, which the leader epochs no longer know: the tier does not show these.
    start = max(whole.partitions[0].log_start_offset, cluster.leader.log.epochs.entries[0].start_offset)
    # What a leader deleted, and another one still has, is uploaded by no one: each takes it for uploaded by the other.
    start = max(start, cluster.deleted)
    url = f"{cluster.layout}+file://{cluster.tier}"
    equal = [each for each in cluster.brokers if starts[each.node_id] == starts[cluster.leader.node_id]]
    wrong = _joined(cluster, equal, url, wanted, start, folder)
    if cluster.copied and max(copied.end for copied in cluster.copied) > start:
        wrong += _alone(cluster, url, wanted, start, folder)
        wrong += _harmed(cluster, url, start)
    return wrong, cluster.counts


def _joined(
    cluster: Tiered, brokers: list[Broker], url: str, wanted: dict[Any, list[Row]], start: int, folder: Path
) -> list[str]:
    """Disks without segments that were uploaded, and the tier."""
    wrong = []
    for broker in brokers:
        own = pylogseg.open_dir(broker.folder)
        unlike = [
            line for each in ISOLATIONS for line in differs(f"disk {broker.node_id}", rows(own, each), wanted[each])
        ]
        unlike += [f"disk {broker.node_id}: {found}" for found in damaged(own)]
        if unlike and cluster.came_back:
            cluster.counts["disks that differ where a crash brought deleted records back"] += 1
            continue
        wrong += unlike
        cluster.counts["disks joined with the tier"] += 1
        copy = Path(shutil.copytree(broker.folder, folder / f"copy{broker.node_id}"))
        highest = cluster.highest(broker)
        bases = sorted(int(path.stem) for path in (copy / NAME).glob("*.log"))
        gone = [base for base, end in pairwise(bases) if end <= highest]
        for base in gone[: cluster.chance.randint(0, len(gone))]:
            cluster.counts["segments deleted on disks"] += 1
            for path in (copy / NAME).glob(f"{base:020d}.*"):
                path.unlink()
        disk = pylogseg.open_dir(copy, tier=url) if cluster.copied else pylogseg.open_dir(copy)
        for isolation, records in wanted.items():
            found = since(start, rows(disk, isolation))
            wrong += differs(f"disk {broker.node_id} and tier, {isolation}", found, since(start, records))
        if cluster.copied:
            for each in damaged(disk):
                if each.kind not in ("tier-hole", "missing") or (each.last_offset or start) >= start:
                    wrong.append(f"disk {broker.node_id} and tier: {each}")
            (target := folder / f"joined{broker.node_id}").mkdir()
            offline.restore(copy, target, tier=url, on_corrupt="skip")  # of holes below the log
            for isolation, records in wanted.items():
                found = since(start, rows(pylogseg.open_dir(target), isolation))
                what = f"restored of disk {broker.node_id} and tier, {isolation}"
                wrong += differs(what, found, since(start, records))
    return wrong


def _alone(cluster: Tiered, url: str, wanted: dict[Any, list[Row]], start: int, folder: Path) -> list[str]:
    """The tier, and what is restored of it."""
    disk = pylogseg.open_tier(url)
    files = disk.partitions[0].files
    assert isinstance(files, TierFiles)
    (log,) = files.tier.logs
    for kind in LeftKind:
        cluster.counts[f"parts left out, {kind.value}"] += sum(left.kind is kind for _, left in log.left)
    end, begin = max(segment.end_offset for segment in log.segments), log.segments[0].first_offset
    if begin > start and any(copied.epochs[0].start_offset == begin for copied in cluster.copied):
        cluster.counts["tiers that begin where a former leader deleted records"] += 1
        start = begin
    wrong = []
    for found in damaged(disk):
        if found.kind in ("tier-hole", "missing") and (found.last_offset or start) < start:
            cluster.counts["holes below the log, beside uploads that nobody knows of"] += 1
        else:
            wrong.append(f"the tier alone: {found}")
    (folder / "restored").mkdir()
    offline.restore(url, folder / "restored", on_corrupt="skip")  # of holes below the log
    for isolation, records in wanted.items():
        found = [row for row in rows(disk, isolation) if row[0] >= start]
        there = [row for row in records if start <= row[0] < end]
        if isolation == ISOLATIONS[1] and len(found) < len(there):  # the end of a transaction is not uploaded yet
            cluster.counts["tiers that end in an open transaction"] += 1
            there = there[: len(found)]
        wrong += differs(f"the tier alone, {isolation}", found, there)
        again = [row for row in rows(pylogseg.open_dir(folder / "restored"), isolation) if row[0] >= start]
        wrong += differs(f"restored of the tier, {isolation}", again, found)
    return wrong


def _harmed(cluster: Tiered, url: str, start: int) -> list[str]:
    """Damage a segment: it is named, and no record of the others is lost."""
    chance, disk = cluster.chance, pylogseg.open_tier(url)
    before = since(start, rows(disk, ISOLATIONS[0]))
    files = disk.partitions[0].files
    assert isinstance(files, TierFiles)
    harmed = chance.choice(files.tier.logs[0].segments)
    path = Path(harmed.upload.name)
    data, how = bytearray(path.read_bytes()), chance.choice(["flip", "delete"])
    if how == "flip":
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        path.write_bytes(data)
    else:
        path.unlink()
    lost = [row for row in before if harmed.first_offset <= row[0] < harmed.end_offset]
    after = since(start, rows(pylogseg.open_tier(url), ISOLATIONS[0], on_corrupt="skip"))
    kept = [row for row in after if not harmed.first_offset <= row[0] < harmed.end_offset]
    what = f"{how} of {path.name}, offsets {harmed.first_offset} to {harmed.end_offset}"
    wrong = differs(f"others after {what}", kept, [row for row in before if row not in lost])
    if not {row[0] for row in after} <= {row[0] for row in before}:
        wrong.append(f"{what}: offsets that were not there before")
    return wrong


def main() -> int:
    """Run histories; exit code 1 if something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--histories", type=int, default=100)
    parser.add_argument("--minutes", type=float, help="so long, in place of a number")
    parser.add_argument("--only", type=int, metavar="INDEX")
    parser.add_argument("--folder", type=Path, metavar="DIR", help="keep the files there")
    options = parser.parse_args()
    logging.disable(logging.WARNING)  # what is left out is counted
    total, failed = Counter[str](), 0
    for index in seeded_indexes(options.histories, options.minutes, options.only):
        root = options.folder or Path(tempfile.mkdtemp(prefix="tier-walks-"))
        try:
            wrong, counts = run(index, options.seed, root / str(index))
        finally:
            if options.folder is None:
                shutil.rmtree(root)
        total += counts
        failed += bool(wrong)
        for line in wrong[:5]:
            print(f"history {index}: {line}", flush=True)
    print(", ".join(f"{count} {what}" for what, count in sorted(total.items())))
    print(f"seed {options.seed}: {failed} histories with differences")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
