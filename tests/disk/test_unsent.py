"""Tests of inspect/verify/unsent.py. Segments that a broker should have uploaded by now are found, and those that it
rightly keeps are not.
"""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from helpers import shell
from helpers.internal_logs import write_log as write_internal
from helpers.tiered_logs import follow, write_log
from helpers.tiers import TOPIC_ID, Uploader

import pylogseg
from pylogseg.format.messages.framing import encode_framed
from pylogseg.format.uuids import format_uuid

TIERED = {"remote.storage.enable": "true"}


class World:
    """A broker's disk with one topic, and a tier."""

    def __init__(self, folder: Path) -> None:
        self.disk, self.tier = folder / "data", folder / "tier"
        self.folder = write_log(self.disk / "orders-0")
        (self.folder / "partition.metadata").write_text(f"version: 0\ntopic_id: {TOPIC_ID}")
        self.bases = [segment.base_offset for segment in pylogseg.open_dir(self.folder).partitions[0].segments]
        self.uploader = Uploader(self.tier)
        self.metadata(TIERED)
        self.watermark(1200)

    def metadata(self, settings: dict[str, str]) -> None:
        topic = encode_framed("TopicRecord", 0, {"name": "orders", "topicId": TOPIC_ID})
        config = [encode_framed("ConfigRecord", 0, {"resourceType": 2, "resourceName": "orders", "name": n, "value": v})
                  for n, v in settings.items()]  # fmt: skip
        write_internal(self.disk / "__cluster_metadata-0", [(None, value) for value in [topic, *config]])

    def watermark(self, offset: int) -> None:
        (self.disk / "replication-offset-checkpoint").write_text(f"0\n1\norders 0 {offset}\n")

    def upload(self, *numbers: int) -> None:
        for number in numbers:
            self.uploader.segment(self.folder, self.bases[number], self.bases[number + 1])

    def upload_other(self) -> None:
        """Upload a segment of another topic."""
        other = write_log(self.tier.parent / "x" / "others-0", 1, 300)
        self.uploader.segment(other, 0, 250, format_uuid(b"x" * 16))

    def unsent(self) -> list[tuple[int, int]]:
        done = shell.pylogseg("verify", self.disk, "orders", "--tier", f"aiven+file://{self.tier}", "--json")
        assert done.rows, done.err
        self.rows = [row for row in done.rows if row.get("kind") == "tier-unsent"]
        assert all(row["level"] == "notice" for row in self.rows)
        kinds = {row["kind"] for row in done.rows if row.get("level") == "damage"}
        assert kinds <= {"tier-hole", "meta-properties", "high-watermark"}, kinds  # files that the disk lacks
        self.not_checked = done.rows[-1]["notChecked"]
        return [(row["offset"], row["lastOffset"] + 1) for row in self.rows]


def test_not_uploaded(world: World) -> None:
    """Those behind the newest upload, up to the active one, by one finding."""
    world.upload(0, 1)
    assert world.unsent() == [(world.bases[2], world.bases[-1])]
    world.upload(*range(2, len(world.bases) - 1))
    assert world.unsent() == []


def test_passed_over(world: World) -> None:
    """Behind a hole the broker has gone on, and never comes back to it."""
    world.upload(0, 2, 3)
    assert world.unsent()[0] == (world.bases[1], world.bases[2])
    assert "a broker never uploads lower ones later" in world.rows[0]["reason"]
    assert str(world.bases[4] - 1) in world.rows[0]["reason"]


def test_uploaded_and_deleted_here(world: World) -> None:
    world.upload(0, 1)
    for number in (0, 1):
        for path in world.folder.glob(f"{world.bases[number]:020d}.*"):
            path.unlink()
    assert world.unsent() == [(world.bases[2], world.bases[-1])]


def test_other_bounds(world: World, tmp_path: Path) -> None:
    """Another leader uploaded, with segments of other bounds: what counts are the offsets."""
    other = follow(world.folder, tmp_path / "b" / "orders-0", segment_bytes=23000)
    world.uploader.partition(other)
    end = pylogseg.open_dir(other).partitions[0].segments[-1].base_offset
    assert all(last > end for _, last in world.unsent())


def test_above_the_high_watermark(world: World) -> None:
    world.upload(0)
    world.watermark(world.bases[3] - 1)
    assert world.unsent() == [(world.bases[1], world.bases[2])]


def test_above_an_open_transaction(tmp_path: Path) -> None:
    """A broker uploads only what lies below the last stable offset."""
    world = World(tmp_path)
    shutil.rmtree(world.folder)
    with pylogseg.open_log(world.folder, segment_bytes=2000) as log:
        producer = log.producer(7)
        for n in range(100):
            if n == 60:
                producer.begin()
                producer.append([(1000 * n, b"k", b"open")])
            log.append([(1000 * n, b"k", b"x" * 50)])
        opened = next(record.offset for record in log.read() if record.value == b"open")
    (world.folder / "partition.metadata").write_text(f"version: 0\ntopic_id: {TOPIC_ID}")
    world.watermark(101)
    world.upload_other()
    ((first, end),) = world.unsent()
    assert first == 0
    bases = [segment.base_offset for segment in pylogseg.open_dir(world.folder).partitions[0].segments]
    assert end == max(base for base in bases if base <= opened) < bases[-1]


def test_by_name(world: World) -> None:
    """A folder that lost its topic id: as for readers, its uploads are those of its name."""
    world.upload(*range(len(world.bases) - 2))
    (world.folder / "partition.metadata").unlink()
    assert world.unsent() == [(world.bases[-2], world.bases[-1])]


def test_not_tiered(world: World) -> None:
    world.upload(0)
    world.metadata({})
    assert world.unsent() == []
    world.metadata({**TIERED, "remote.log.copy.disable": "true"})
    assert world.unsent() == []


def test_nothing_known(world: World) -> None:
    """Without the settings of the topic, that it was uploaded before shows that it is tiered."""
    shutil.rmtree(world.disk / "__cluster_metadata-0")
    world.upload_other()
    assert world.unsent() == []
    assert any("orders-0 should have been uploaded: its settings are not known" in text for text in world.not_checked)
    world.upload(0)
    assert world.unsent() == [(world.bases[1], world.bases[-1])]
    (world.disk / "replication-offset-checkpoint").unlink()
    assert world.unsent() == []
    assert any("there is no high watermark" in text for text in world.not_checked)


@pytest.mark.parametrize(
    ("settings", "is_due"),
    [
        ({"remote.copy.lag.ms": "3600000"}, "by age"),
        ({"remote.copy.lag.ms": "3600000", "remote.copy.lag.bytes": "30000"}, "by bytes"),
        ({"remote.copy.lag.ms": "-1", "local.retention.ms": "3600000"}, "by age"),
        ({"remote.copy.lag.ms": "-1", "retention.ms": "-1"}, "never"),
        ({"remote.copy.lag.ms": "3600000", "remote.copy.lag.bytes": "0"}, "all"),
    ],
)
def test_lag(world: World, settings: dict[str, str], is_due: str) -> None:
    """Kafka 4.4 uploads with a lag: by the newest record of a segment, or by the bytes behind it; one is enough."""
    world.upload(0)
    now = int(time.time() * 1000)
    offsets = {250: now - 7_200_000, 490: now - 7_200_000, 730: now, 970: now}  # by base offset, the largest timestamp
    shutil.rmtree(world.folder)
    with pylogseg.open_log(world.folder, segment_bytes=16384) as log:
        for start in range(0, 1200, 10):
            stamp = max((t for base, t in offsets.items() if start >= base), default=0)
            log.append([(stamp, b"k%d" % n, b"value %d " % n * 5) for n in range(start, start + 10)])
    (world.folder / "partition.metadata").write_text(f"version: 0\ntopic_id: {TOPIC_ID}")
    world.metadata({**TIERED, **settings})
    segments = pylogseg.open_dir(world.folder).partitions[0].segments
    sealed = [s for s in segments[:-1] if s.base_offset >= world.bases[1]]
    newer = {s.base_offset: sum(o.size for o in segments if o.base_offset > s.base_offset) for s in sealed}
    due = {
        "by age": [s for s in sealed if s.next_base <= 730],
        "by bytes": [s for s in sealed if s.next_base <= 730 or newer[s.base_offset] >= 30000],
        "never": [],
        "all": sealed,
    }[is_due]
    found = world.unsent()
    assert bool(found) == bool(due)
    if due:
        assert found[-1][1] == due[-1].next_base


def test_begun_and_never_finished(world: World) -> None:
    """As a plugin that stops without a word leaves it: the metadata has a beginning, the tier nothing."""
    world.upload(0, 1)
    known: list[dict[str, Any]] = [json.loads(path.read_text()) for path in sorted(world.tier.rglob("*.rsm-manifest"))]
    values = []
    for number, fields in enumerate(known):
        said = fields["remoteLogSegmentMetadata"]
        values += [started(number, said["startOffset"], said["endOffset"], said["remoteLogSegmentId"]["id"],
                           said["segmentLeaderEpochs"], fields["chunkIndex"]["originalFileSize"])]  # fmt: skip
        values += [update(said["remoteLogSegmentId"]["id"], 1)]
    first, last = world.bases[2], world.bases[3] - 1
    values += [started(7, first, last, format_uuid(b"s" * 16), {"0": first}, 1)]
    values += [started(8, 0, world.bases[1] - 1, format_uuid(b"t" * 16), {"0": 0}, 1)]
    write_internal(world.tier.parent / "meta" / "__remote_log_metadata-0", [(None, value) for value in values])
    done = shell.pylogseg(
        "verify", f"aiven+file://{world.tier}", "--remote-metadata", world.tier.parent / "meta", "--json"
    )
    found = {row["offset"]: row["reason"] for row in done.rows if row.get("kind") == "tier-unfinished"}
    assert set(found) == {0, first}
    assert f"no other has offsets {first} to {last}" in found[first]
    assert "but a later one did" in found[0]
    assert done.code == 0


def place() -> dict[str, Any]:
    return {"name": "orders", "id": TOPIC_ID, "partition": 0}


def started(number: int, first: int, last: int, segment: str, epochs: dict[str, int], size: int) -> bytes:
    fields = {
        "remoteLogSegmentId": {"topicIdPartition": place(), "id": segment}, "startOffset": first, "endOffset": last,
        "brokerId": 1, "maxTimestampMs": 5, "eventTimestampMs": number, "segmentSizeInBytes": size,
        "segmentLeaderEpochs": [{"leaderEpoch": int(e), "offset": o} for e, o in epochs.items()],
        "remoteLogSegmentState": 0,
    }  # fmt: skip
    return encode_framed("RemoteLogSegmentMetadataRecord", 0, fields)


def update(segment: str, state: int) -> bytes:
    fields = {
        "remoteLogSegmentId": {"topicIdPartition": place(), "id": segment}, "brokerId": 1, "eventTimestampMs": 9,
        "customMetadata": None, "remoteLogSegmentState": state,
    }  # fmt: skip
    return encode_framed("RemoteLogSegmentMetadataUpdateRecord", 0, fields)
