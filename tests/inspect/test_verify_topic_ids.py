"""Tests of inspect/verify/owners.py and inspect/verify/startup.py. `pylogseg verify` names the folders that a broker
sets aside when it starts, and those that it has set aside.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from helpers.shell import pylogseg

from pylogseg import open_log


@pytest.fixture
def disk(golden: Path, tmp_path: Path) -> Path:
    """The two log directories of a broker; the first has the cluster's metadata."""
    return Path(shutil.copytree(golden / "broker-4.3" / "txn", tmp_path / "disk"))


def found(*log_dirs: Path) -> tuple[int, list[dict[str, Any]]]:
    """Exit code and findings, but that a directory is not here."""
    done = pylogseg("verify", "--json", *log_dirs)
    return done.code, [row for row in done.rows if row.get("type") == "finding" and row["kind"] != "not-here"]


@pytest.mark.parametrize("name", ["data0", "data1"])
def test_a_folder_without_its_topic_id(disk: Path, name: str) -> None:
    """A broker renames it, and begins an empty log; the id is in the metadata, if that is at hand."""
    part = "txn-b-0" if name == "data0" else "txn-b-1"
    (disk / name / part / "partition.metadata").unlink()
    code, (row,) = found(disk / "data0", disk / "data1")
    assert (code, row["kind"], row["urgency"]) == (1, "topic-id", "start")
    assert "-stray" in row["reason"]
    assert "topic_id: ID" in row["remedy"]
    code, rows = found(disk / "data1")
    assert (code, [row["kind"] for row in rows]) == ((1, ["topic-id"]) if name == "data1" else (0, []))


def test_a_folder_without_records_needs_no_topic_id(disk: Path) -> None:
    """A broker writes the id before the first record: a crash may come between."""
    folder = disk / "data0" / "txn-b-0"
    for path in folder.iterdir():
        path.unlink()
    (folder / f"{0:020}.log").touch()
    for name in ("recovery-point", "replication"):
        path = disk / "data0" / f"{name}-offset-checkpoint"
        lines = path.read_text().splitlines()
        kept = [line for line in lines[2:] if not line.startswith("txn-b 0")]
        path.write_text("\n".join([lines[0], str(len(kept)), *kept, ""]))
    assert found(disk / "data0", disk / "data1") == (0, [])


def test_a_broker_with_zookeeper_needs_no_topic_id(disk: Path) -> None:
    shutil.rmtree(disk / "data0" / "__cluster_metadata-0")
    for log_dir in (disk / "data0", disk / "data1"):
        (log_dir / "meta.properties").write_text("version=0\nbroker.id=1\n")
    (disk / "data0" / "txn-b-0" / "partition.metadata").unlink()
    assert found(disk / "data0", disk / "data1") == (0, [])


def test_partitions_are_compared_and_not_topics(disk: Path) -> None:
    """The topic is known, and has no such partition: a broker sets the folder aside."""
    (disk / "data0" / "txn-b-0").rename(disk / "data0" / "txn-b-7")
    code, rows = found(disk / "data0", disk / "data1")
    strays = [row for row in rows if row["kind"] == "stray"]
    assert (code, len(strays)) == (1, 1)  # and txn-b-0 is missing
    assert "txn-b-7" in strays[0]["reason"]
    assert "not these partitions" in strays[0]["reason"]


def test_a_setting_with_which_a_newer_kafka_does_not_start(golden: Path, tmp_path: Path) -> None:
    """Kafka 3.9 takes a segment.bytes of 6000, and 4.0 does not start with it."""
    from pylogseg.disk.listing import open_dir
    from pylogseg.inspect.verify.owners import owner_of
    from pylogseg.inspect.verify.startup import check_start
    from pylogseg.values.internal.cluster import TOPIC_RESOURCE, clusters_of

    disk = open_dir(golden / "broker-4.3" / "txn")
    clusters, _ = clusters_of(disk)
    assert owner_of(disk.log_dirs[0]).has_metadata
    for size, kinds in (("6000", ["setting"]), ("1048576", [])):
        for cluster in clusters.values():
            cluster.configs[TOPIC_RESOURCE, "txn-b"] = {"segment.bytes": size}
        rows = list(check_start(disk.log_dirs, clusters))
        assert [row.kind for row in rows] == kinds
        assert all(not row.is_damage and "txn-b (6000)" in row.reason for row in rows)


def test_a_directory_that_no_broker_filled_needs_no_topic_id(tmp_path: Path) -> None:
    """It has the ids of a broker, and logs that a program wrote: none of them has the file."""
    for name in ("orders-0", "orders-1"):
        with open_log(tmp_path / name) as log:
            log.append([(0, b"key", b"value")])
    ids = "version=1\ncluster.id=AAAAAAAAAAAAAAAAAAAAAA\nnode.id=1\ndirectory.id=BBBBBBBBBBBBBBBBBBBBBA\n"
    (tmp_path / "meta.properties").write_text(ids)
    assert found(tmp_path) == (0, [])
