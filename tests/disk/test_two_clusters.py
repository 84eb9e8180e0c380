"""Tests of disk/tier/tier.py. Two clusters below one URL: what is of both is refused by name, with what to do, and all
else is read.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from helpers import shell
from helpers.shell import expect
from helpers.tiered_logs import write_log
from helpers.tiers import Uploader, copy_locally, copy_segment

import pylogseg
from pylogseg.format.uuids import format_uuid

OTHER_ID = format_uuid(b"another topic id")
THIRD_ID = format_uuid(b"a third topic id")


@pytest.fixture(scope="module")
def disks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Logs of two clusters."""
    top = tmp_path_factory.mktemp("disks")
    for name, per_epoch in (("a", 100), ("b", 150)):
        for topic in ("orders", name):
            write_log(top / name / f"{topic}-0", 2, per_epoch, segment_bytes=4000)
    return top


def counts(url: str, *names: str) -> dict[str, int]:
    found: dict[str, int] = {}
    disk = pylogseg.open_tier(url)
    for record in pylogseg.read(disk.select(names) if names else disk):
        found[record.topic] = found.get(record.topic, 0) + 1
    return found


def records_of(disk: Path) -> int:
    """How many records the sealed segments of a partition have."""
    return pylogseg.open_dir(disk).partitions[0].segments[-1].base_offset


def check_refused(url: str, remedies: list[str], target: Path, others: dict[str, int]) -> None:
    """Check that orders-0 is refused everywhere, with what to name instead, and that other topics are read."""
    (part,) = pylogseg.open_tier(url).topics["orders"]
    assert isinstance(part.error, pylogseg.StorageError)
    assert all(remedy in str(part.error) for remedy in remedies)
    with pytest.raises(pylogseg.StorageError, match="name one of"):
        counts(url)
    assert counts(url, *others) == others
    target.mkdir()
    for line in (("cat", url, "orders"), ("restore", url, target), ("dump", f"{url}!/orders-0/{0:020d}.log")):
        expect(shell.pylogseg(*line), 2, "name one of")
    assert list(target.iterdir()) == []
    (finding,) = [row for row in shell.pylogseg("verify", url, "--json").rows if row.get("level") == "damage"]
    assert finding["path"].endswith("orders-0")
    assert "name one of" in finding["reason"]


def test_two_prefixes(disks: Path, tmp_path: Path) -> None:
    """A bucket with the prefixes of two clusters: only what both have is refused."""
    tier = tmp_path / "tier"
    for cluster, topic_id, more in (("a", OTHER_ID, THIRD_ID), ("b", THIRD_ID, OTHER_ID)):
        Uploader(tier / cluster).partition(disks / cluster / "orders-0", topic_id)
        Uploader(tier / cluster).partition(disks / cluster / f"{cluster}-0", format_uuid(cluster.encode() * 16))
        assert more != topic_id
    others = {name: records_of(disks / name / f"{name}-0") for name in "ab"}
    remedies = [str(tier / "a" / f"orders-{OTHER_ID}"), str(tier / "b" / f"orders-{THIRD_ID}")]
    check_refused(f"aiven+file://{tier}", remedies, tmp_path / "new", others)
    for cluster in "ab":
        expected = records_of(disks / cluster / "orders-0")
        assert counts(f"aiven+file://{tier / cluster}", "orders") == {"orders": expected}
    assert counts(f"aiven+file://{tier / 'b' / f'orders-{THIRD_ID}'}") == {"orders": expected}


def test_one_prefix(disks: Path, tmp_path: Path) -> None:
    """Two clusters without a prefix: their topics of one name were uploaded at the same time."""
    tier = tmp_path / "tier"
    for cluster, topic_id in (("a", OTHER_ID), ("b", THIRD_ID)):
        Uploader(tier).partition(disks / cluster / "orders-0", topic_id)
    Uploader(tier).partition(disks / "a" / "a-0", format_uuid(b"a" * 16))
    remedies = [str(tier / f"orders-{OTHER_ID}"), str(tier / f"orders-{THIRD_ID}")]
    check_refused(f"aiven+file://{tier}", remedies, tmp_path / "new", {"a": records_of(disks / "a" / "a-0")})
    assert counts(f"aiven+file://{tier / f'orders-{OTHER_ID}'}") == {"orders": records_of(disks / "a" / "orders-0")}


@pytest.mark.parametrize("scheme", ["aiven", "localtier"])
def test_one_topic_id(disks: Path, tmp_path: Path, scheme: str) -> None:
    """A clone of a cluster, or a copy of the bucket, has the same ids."""
    tier = tmp_path / "tier"
    for cluster in "ab":
        if scheme == "aiven":
            Uploader(tier / cluster).partition(disks / cluster / "orders-0")
        else:
            copy_locally(tier / cluster, disks / cluster / "orders-0")
    (part,) = pylogseg.open_dir(disks / "a" / "a-0").partitions
    if scheme == "aiven":
        Uploader(tier / "a").partition(disks / "a" / "a-0", OTHER_ID)
    else:
        for each in part.segments[:-1]:
            copy_segment(tier / "a", disks / "a" / "a-0", each.base_offset, each.next_base or 0, OTHER_ID)
    url = f"{scheme}+file://{tier}"
    there = counts(url, "a")
    check_refused(url, [str(tier / "a"), str(tier / "b")], tmp_path / "new", there)
    disk = Path(shutil.copytree(disks / "a" / "orders-0", tmp_path / "disk" / "orders-0"))
    (part,) = pylogseg.open_dir(disk.parent, tier=url).partitions
    assert "name one of" in str(part.error)


def test_the_prefix_of_a_cluster_was_changed(disks: Path, tmp_path: Path) -> None:
    """One cluster may have uploaded below two prefixes: its log is that of both."""
    tier, disk = tmp_path / "tier", disks / "a" / "orders-0"
    manifests = Uploader(tier / "old").partition(disk)
    for path in manifests[1:]:
        for each in path.parent.glob(f"{path.stem}.*"):
            moved = tier / "new" / each.relative_to(tier / "old")
            moved.parent.mkdir(parents=True, exist_ok=True)
            each.rename(moved)
    assert counts(f"aiven+file://{tier}") == {"orders": records_of(disk)}
