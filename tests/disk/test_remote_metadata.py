"""Tests of inspect/verify/tiers.py and values/internal/remote.py. A tier against `__remote_log_metadata`: what a broker
uploaded by its own account has to be there.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from helpers import internal_logs, shell
from helpers.shell import expect
from helpers.tiered_logs import write_log
from helpers.tiers import Uploader

from pylogseg.format.messages.framing import encode_framed


def noted(manifests: list[Path], folder: Path) -> Path:
    """Write what the broker says of uploads, all finished; the log directory."""
    values = []
    for manifest in manifests:
        fields = json.loads(manifest.read_text())
        said, size = fields["remoteLogSegmentMetadata"], fields["chunkIndex"]["originalFileSize"]
        at = said["remoteLogSegmentId"]["topicIdPartition"]
        entry = {"name": at["topicPartition"]["topic"], "id": at["topicId"],
                 "partition": at["topicPartition"]["partition"]}  # fmt: skip
        segment = {"topicIdPartition": entry, "id": said["remoteLogSegmentId"]["id"]}
        epochs = [{"leaderEpoch": int(e), "offset": o} for e, o in said["segmentLeaderEpochs"].items()]
        both = {"brokerId": 1, "eventTimestampMs": 1000, "remoteLogSegmentId": segment}
        began = {**both, "startOffset": said["startOffset"], "endOffset": said["endOffset"],
                 "maxTimestampMs": said["maxTimestampMs"], "segmentLeaderEpochs": epochs, "segmentSizeInBytes": size,
                 "customMetadata": None, "remoteLogSegmentState": 0}  # fmt: skip
        values.append(encode_framed("RemoteLogSegmentMetadataRecord", 0, began))
        ended = {**both, "customMetadata": None, "remoteLogSegmentState": 1}
        values.append(encode_framed("RemoteLogSegmentMetadataUpdateRecord", 0, ended))
    internal_logs.write_log(folder / "__remote_log_metadata-0", [(None, value) for value in values])
    return folder


@pytest.fixture
def tier(tmp_path: Path) -> Path:
    """A tier of two partitions, and beside it what the broker says of it."""
    up = Uploader(tmp_path / "tier")
    manifests = [path for n in range(2) for path in up.partition(write_log(tmp_path / "disk" / f"orders-{n}"))]
    noted(manifests, tmp_path / "noted")
    return tmp_path / "tier"


def verify(tier: Path, *more: object) -> shell.Done:
    return shell.pylogseg("verify", f"aiven+file://{tier}", "--remote-metadata", tier.parent / "noted", "--json", *more)


def missing(done: shell.Done) -> list[str]:
    return [row["reason"].split(":")[0] for row in done.rows if row.get("kind") == "tier-missing"]


def test_all_is_there(tier: Path) -> None:
    done = expect(verify(tier), 0)
    assert [row["type"] for row in done.rows] == ["summary"]


def test_missing(tier: Path) -> None:
    """A segment that is gone is missing, and so are those of a partition of which nothing is left."""
    first = min((tier / next(tier.iterdir()).name / "0").glob("*.rsm-manifest"))
    for kind in ("log", "indexes", "rsm-manifest"):
        first.with_suffix(f".{kind}").unlink()
    assert missing(expect(verify(tier), 1)) == ["orders-0"]
    whole = len(list((first.parent.parent / "1").glob("*.rsm-manifest")))
    shutil.rmtree(first.parent.parent / "1")
    assert missing(verify(tier)) == ["orders-0"] + ["orders-1"] * whole
    assert missing(verify(tier, "orders-0")) == ["orders-0"]  # the other was not asked for
    assert missing(verify(tier, "--partition", 0)) == ["orders-0"]


def test_nothing_to_compare(tier: Path) -> None:
    """An option that has nothing to work on is refused, and not passed over."""
    disk = tier.parent / "disk"
    done = shell.pylogseg("verify", f"aiven+file://{tier}", "--remote-metadata", disk)
    assert done.code == 2
    assert "no partition of __remote_log_metadata here" in done.err
    expect(shell.pylogseg("verify", disk, "--remote-metadata", tier.parent / "noted"), 2, "--tier")
