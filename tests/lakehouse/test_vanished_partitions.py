"""Tests of lakehouse/source_losses.py. Partitions that a table or a disk's checkpoints know, and of which the disk has
no segment any more.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from helpers.internal_logs import write_log
from helpers.lake_tables import name_of, rows_of
from helpers.shell import expect
from helpers.shell import pylogseg as shell

import pylogseg
from pylogseg.format.messages.framing import encode_framed

pytest.importorskip("deltalake")
NOTED = ("recovery-point-offset-checkpoint", "replication-offset-checkpoint")
TOPIC_ID = "A" * 20 + "BQ"
HARMS = ("no file", "no folder")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A topic of two partitions with 5 and 7 records, and another topic."""
    home = tmp_path / "data"
    for name, count in (("orders-0", 5), ("orders-1", 7), ("other-0", 3)):
        with pylogseg.open_log(home / name) as log:
            log.append([(n, None, b"v") for n in range(count)])
    for name in NOTED:
        (home / name).write_text("0\n3\norders 0 5\norders 1 7\nother 0 3\n")
    return home


def lose(data: Path, harm: str, name: str = "orders-0") -> None:
    shutil.rmtree(data / name)
    if harm == "no file":
        (data / name).mkdir()


@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("knows", ["both", "checkpoints", "table"])
def test_lake_refuses_and_names_it(data: Path, tmp_path: Path, harm: str, knows: str) -> None:
    """With rows of it in the table, that ends above the log; without, the checkpoints say what is missing."""
    table = name_of("delta", tmp_path / "out", "orders")
    if knows != "checkpoints":
        pylogseg.lake(data, table, "orders")
    if knows == "table":
        for name in NOTED:
            (data / name).unlink()
    lose(data, harm)
    done = shell("lake", data, "orders", table)
    assert (done.code, done.out) == (1 if knows == "checkpoints" else 2, b"")
    assert str(data / "orders-0") in done.err
    assert ("it ends at offset 5 of orders-0" in done.err) == (knows != "checkpoints")
    expect(shell("lake", data, "orders", table, "--force"), 1, str(data / "orders-0"))
    assert rows_of(table).num_rows == (7 if knows == "checkpoints" else 12)
    assert shell("lake", data, "orders", "--partition", 1, table).code == 0


@pytest.mark.parametrize("harm", HARMS)
def test_audit_names_it(data: Path, tmp_path: Path, harm: str) -> None:
    table = name_of("delta", tmp_path / "out", "orders")
    pylogseg.lake(data, table, "orders")
    lose(data, harm)
    for options in ((), ("--quick",)):
        expect(shell("audit", data, "orders", table, *options), 1, out=["ledger", str(data / "orders-0")])


@pytest.mark.parametrize("harm", HARMS)
def test_a_topic_of_which_nothing_is_left(data: Path, tmp_path: Path, harm: str) -> None:
    """Among all topics it has an error of its own; the others are written."""
    table = f"delta:{tmp_path / 'out'}/{{topic}}"
    lose(data, harm, "other-0")
    for _ in range(2):
        expect(shell("lake", data, table), 1, str(data / "other-0"))
    assert rows_of(table.format(topic="orders")).num_rows == 12


@pytest.mark.parametrize("node", [1, 2])
def test_a_partition_of_another_broker_has_not_vanished(data: Path, tmp_path: Path, node: int) -> None:
    """The metadata says which broker has it: a table may be fed from one broker after the other."""
    table = name_of("delta", tmp_path / "out", "orders")
    (data / "meta.properties").write_text(f"version=1\nnode.id={node}\ncluster.id=3Db5QLSqSZieL3rJBUUegA\n")
    made = [
        ("TopicRecord", {"name": "orders", "topicId": TOPIC_ID}),
        ("PartitionRecord", {"partitionId": 0, "topicId": TOPIC_ID, "replicas": [1], "isr": [1], "leader": 1}),
        ("PartitionRecord", {"partitionId": 1, "topicId": TOPIC_ID, "replicas": [1, 2], "isr": [1], "leader": 1}),
    ]
    write_log(data / "__cluster_metadata-0", [(None, encode_framed(kind, 0, of)) for kind, of in made])
    for number in (0, 1):
        (data / f"orders-{number}" / "partition.metadata").write_text(f"version: 0\ntopic_id: {TOPIC_ID}\n")
    pylogseg.lake(data, table, "orders")
    lose(data, "no folder")
    assert shell("lake", data, "orders", table).code == (0 if node == 2 else 2)
