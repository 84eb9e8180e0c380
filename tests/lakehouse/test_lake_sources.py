"""Tests of lakehouse/formats.py, lakehouse/ledger.py, lakehouse/source.py and transfer/log_here.py. The log of a table:
another topic of the same name, another cluster, a topic without records.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers.lake_tables import log_rows, name_of, plain, rows_of
from helpers.shell import expect
from helpers.shell import pylogseg as shell
from helpers.typed_logs import write_orders

import pylogseg
from pylogseg.errors import RequestError
from pylogseg.lakehouse.formats import TableName
from pylogseg.lakehouse.ledger import Ledger
from pylogseg.lakehouse.sinks import sink_of

pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")


def append(data: Path, count: int, *, topic_id: str = "", cluster: str = "", folder: str = "orders-0") -> Path:
    with pylogseg.open_log(data / folder) as log:
        log.append([{"key": b"k", "value": b"%d" % n} for n in range(count)])
    if topic_id:
        (data / folder / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}\n")
    if cluster:
        label_of(data).write_text(f"version=1\nnode.id=1\ncluster.id={cluster}\n")
    return data


def label_of(data: Path) -> Path:
    return data / "meta.properties"


def ledger_of(table: str) -> Any:
    sink = sink_of(TableName.parse(table))
    try:
        return sink.load([0])
    finally:
        sink.close()


@pytest.mark.parametrize("count", [0, 2, 8])
def test_a_topic_that_was_made_again(tmp_path: Path, kind: str, count: int) -> None:
    """Also if it begins with the same records: `lake` and `audit` say the same of it."""
    table = name_of(kind, tmp_path / "out", "orders")
    pylogseg.lake(append(tmp_path / "data", 5, topic_id="AAAAAAAAAAAAAAAAAAAAAQ"), table)
    other = append(tmp_path / "other", count, topic_id="AAAAAAAAAAAAAAAAAAAAAg")
    for command in ("lake", "audit"):
        done = shell(command, other, "orders", table)
        assert (done.code, done.out) == (2, b"")
        assert "the topic was deleted and made again" in done.err


def test_another_cluster(tmp_path: Path, kind: str) -> None:
    """The same topic id, as a copy of a topic has it in another cluster."""
    table = name_of(kind, tmp_path / "out", "orders")
    data = append(tmp_path / "data", 5, cluster="AAAAAAAAAAAAAAAAAAAAAA")
    pylogseg.lake(data, table)
    append(data, 5, cluster="BBBBBBBBBBBBBBBBBBBBBA")
    for command in ("lake", "audit"):
        done = shell(command, data, "orders", table)
        assert (done.code, done.out) == (2, b"")
        assert "of the cluster AAAAAAAAAAAAAAAAAAAAAA, and the log is of the cluster BBBBBBBBBBBBBBBBBBBBBA" in done.err
    label_of(data).unlink()  # not known, which is no other one
    assert pylogseg.lake(data, table)[0].records == 5


def test_a_ledger_of_an_older_version_gets_the_id_of_the_cluster(tmp_path: Path, kind: str) -> None:
    table, data = name_of(kind, tmp_path / "out", "orders"), append(tmp_path / "data", 5)
    pylogseg.lake(data, table)
    assert ledger_of(table).cluster_id is None
    append(data, 5, cluster="AAAAAAAAAAAAAAAAAAAAAA")
    pylogseg.lake(data, table)
    assert ledger_of(table).cluster_id == "AAAAAAAAAAAAAAAAAAAAAA"
    assert ledger_of(table).partitions[0][:2] == (0, 10)


def test_a_ledger_as_text() -> None:
    text = '{"format":1,"topic":"t","topicId":"i","isolation":"read_committed","commit":"","partitions":{"0":[0,9,4]}}'
    ledger = Ledger.parse(text, "t")
    assert (ledger.cluster_id, json.loads(ledger.text)) == (None, json.loads(text))
    assert Ledger.parse(replace(ledger, cluster_id="x").text, "t").cluster_id == "x"


def test_two_disks_of_different_clusters(tmp_path: Path) -> None:
    disks = [append(tmp_path / id, 5, cluster=id, folder=f"orders-{number}") for number, id in enumerate("ab")]
    with pytest.raises(RequestError, match="its partitions are of different clusters, a and b"):
        pylogseg.lake(disks, name_of("delta", tmp_path / "out", "orders"))


def test_a_topic_without_records_has_a_table(tmp_path: Path, kind: str) -> None:
    """With its columns, so that queries find it; an audit of it is right, and the rows come later."""
    table, data = name_of(kind, tmp_path / "out", "orders"), append(tmp_path / "data", 0)
    (done,) = pylogseg.lake(data, table)
    assert (done.records, done.files, done.error, done.offsets) == (0, 0, None, {0: (0, 0)})
    rows = rows_of(table)
    assert rows.num_rows == 0
    assert [name for name in rows.column_names if name != "date"] == [
        "topic", "partition", "offset", "timestamp", "timestampType", "key", "value", "headers",
    ]  # fmt: skip
    for options in ((), ("--quick",)):
        assert shell("audit", data, "orders", table, *options).code == 0
    assert pylogseg.lake(data, table)[0].commits == 0
    append(data, 7)
    assert pylogseg.lake(data, table)[0].records == 7
    assert plain(rows_of(table)) == log_rows(data, "orders")


def test_a_topic_of_which_nothing_is_committed_has_a_table(tmp_path: Path, kind: str) -> None:
    table, data = name_of(kind, tmp_path / "out", "orders"), append(tmp_path / "data", 5)
    (data / "replication-offset-checkpoint").write_text("0\n1\norders 0 0\n")
    (done,) = pylogseg.lake(data, table)
    assert (done.records, done.waiting) == (0, {0: 5})
    assert rows_of(table).num_rows == 0
    (data / "recovery-point-offset-checkpoint").write_text("0\n1\norders 0 5\n")  # a broker that lost its file
    done = shell("lake", data, table)
    assert done.code == 1
    assert "has 0, at which the log starts, and recovery-point-offset-checkpoint has 5; bring" in done.err
    assert pylogseg.lake(data, table, to_end=True)[0].records == 5


def test_a_topic_without_records_whose_columns_nobody_knows(tmp_path: Path) -> None:
    """With a schema there is a table; without one the columns are not known yet, and that is no fault."""
    data, table = write_orders(tmp_path / "data", 10), name_of("delta", tmp_path / "out", "orders")
    shutil.rmtree(data / "orders-0")
    append(data, 0)
    (done,) = pylogseg.lake(data, table, decoding="value", registry=data / "schemas")
    assert (done.error, done.records) == (None, 0)
    (done,) = pylogseg.lake(data, table, decoding="value", registry=data / "schemas", schema=7)
    assert (done.error, done.commits) == (None, 1)
    assert "who" in str(rows_of(table).schema.field("value").type)


def test_other_columns_are_refused_while_nothing_is_new(tmp_path: Path, kind: str) -> None:
    data, table = write_orders(tmp_path / "data", 10), name_of(kind, tmp_path / "out", "orders")
    typed = {"decoding": "value", "registry": data / "schemas"}
    pylogseg.lake(data, table)
    with pytest.raises(RequestError, match="column value is binary, and rows have struct"):
        pylogseg.lake(data, table, **typed)
    assert pylogseg.lake(data, table)[0].commits == 0
    other = name_of(kind, tmp_path / "other", "orders")
    pylogseg.lake(data, other, **typed)
    with pytest.raises(RequestError, match="and rows have binary"):
        pylogseg.lake(data, other)
    assert pylogseg.lake(data, other, **typed)[0].commits == 0


def test_a_refusal_prints_no_row(tmp_path: Path, kind: str) -> None:
    data, table = append(tmp_path / "data", 5), name_of(kind, tmp_path / "out", "orders")
    pylogseg.lake(data, table)
    for options in ((), ("--json",)):
        done = shell("lake", data, table, "--latest", *options)
        assert (done.code, done.out) == (2, b"")
        assert "all records" in done.err


LABELS = {"garbage": b"\xfe\xff garbage", "empty": b"", "zeros": bytes(40), "absent": None, "folder": None}


@pytest.mark.parametrize("label", LABELS)
def test_a_log_of_which_nobody_knows_the_cluster(tmp_path: Path, label: str) -> None:
    """The table has the id of a cluster: `lake` and `audit` go on, name the file, and end with 1."""
    table, data = name_of("delta", tmp_path / "out", "orders"), tmp_path / "data"
    pylogseg.lake(append(data, 5, cluster="AAAAAAAAAAAAAAAAAAAAAA"), table)
    label_of(data).unlink()
    if (content := LABELS[label]) is not None:
        label_of(data).write_bytes(content)
    elif label == "folder":
        label_of(data).mkdir()
    append(data, 2)
    for command in ("lake", "audit"):
        done = expect(shell(command, data, "orders", table), 1)
        assert str(label_of(data)) in done.err + done.text
    assert rows_of(table).num_rows == 7


def test_a_folder_that_no_broker_had_needs_no_cluster(tmp_path: Path) -> None:
    table, data = name_of("delta", tmp_path / "out", "orders"), append(tmp_path / "data", 5)
    for command in ("lake", "audit"):
        assert shell(command, data, "orders", table).code == 0


@pytest.mark.parametrize("label", ["garbage", "empty", "folder"])
def test_a_topic_id_that_the_folder_does_not_say(tmp_path: Path, label: str) -> None:
    table, data = name_of("delta", tmp_path / "out", "orders"), append(tmp_path / "data", 5)
    file = data / "orders-0" / "partition.metadata"
    file.unlink(missing_ok=True)
    for words in (("lake", data, "orders", table), ("export", data, "--out", tmp_path / "files")):
        assert shell(*words).code == 0
    if (content := LABELS[label]) is not None:
        file.write_bytes(content)
    else:
        file.mkdir()
    for words in (("lake", data, "orders", table), ("export", data, "--out", tmp_path / "other")):
        expect(shell(*words), 1, str(file))
