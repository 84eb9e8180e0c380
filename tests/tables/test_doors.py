"""Tests of tables/question.py. A reader as the source of a function: its options count as the keywords of their names,
and others are refused.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from helpers import lake_tables
from helpers.typed_logs import write_orders

import pylogseg
from pylogseg import offline
from pylogseg.errors import RequestError
from pylogseg.format.columns import to_row
from pylogseg.lakehouse.audit import AuditQuestion
from pylogseg.lakehouse.lake import LakeQuestion
from pylogseg.offline.comparing import DiffQuestion
from pylogseg.tables.reader import Reader

pytest.importorskip("deltalake")

#: A reader for each option, by the name in which a refusal says it.
OPTIONS: dict[str, Callable[[Reader, Callable[..., Reader]], Reader]] = {
    "topic": lambda reader, read: reader.where(topic="txn-a"),
    "partition": lambda reader, read: reader.where(partition=0),
    "offset": lambda reader, read: reader.where(offset=(3, 9)),
    "timestamp": lambda reader, read: reader.where(timestamp=(0, None)),
    "filter": lambda reader, read: reader.where(pc.field("offset") > 3),
    "limit": lambda reader, read: reader.limit(5),
    "columns": lambda reader, read: reader.select("offset"),
    "decoding": lambda reader, read: reader.decode(schema='"string"'),
    "disk": lambda reader, read: reader.decode(disk=reader.disk),
    **{
        name: lambda reader, read, name=name, value=value: read(**{name: value})  # type: ignore[misc]
        for name, value in {
            "latest": True,
            "from_log_start": False,
            "jobs": 2,
            "isolation_level": "read_committed",
            "on_corrupt": "skip",
            "control": True,
            "check_crc": False,
            "max_decompressed_bytes": 1 << 20,
            "max_bytes_per_second": 1e9,
            "drop_behind": True,
        }.items()
    },
}
DOORS: dict[str, tuple[set[str], Callable[[Reader, Path], Any]]] = {
    "lake": (
        {"topic", "partition", *LakeQuestion.__annotations__},
        lambda reader, out: pylogseg.lake(reader, f"delta:{out}/{{topic}}"),
    ),
    "audit": (
        {"topic", "partition", *AuditQuestion.__annotations__},
        lambda reader, out: pylogseg.audit(reader, f"delta:{out}/{{topic}}"),
    ),
    "diff": (
        {"topic", "partition", *DiffQuestion.__annotations__},
        lambda reader, out: offline.diff(reader, reader),
    ),
    "archive": ({"max_bytes_per_second"}, lambda reader, out: pylogseg.archive.write(reader, out / "archive")),
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("option", OPTIONS)
def test_an_option_counts_or_is_refused(examples: Path, tmp_path: Path, door: str, option: str) -> None:
    """No option of a reader is passed over in silence."""
    honoured, ask = DOORS[door]

    def read(**how: Any) -> Reader:
        level = {"isolation_level": "read_committed"} if door == "lake" else {}
        return pylogseg.read(examples, **{**level, **how})

    reader = OPTIONS[option](read(), read)
    assert option in reader.asked
    if option not in honoured:
        with pytest.raises(RequestError, match=f"^{door} cannot honour {option}= of a reader"):
            ask(reader, tmp_path)
        assert not [*tmp_path.iterdir()]
        return
    if door == "audit":  # there is no table, which is the next thing to be missed
        with pytest.raises(pylogseg.PylogsegError, match=r"no table|not found|topic"):
            ask(reader, tmp_path)
    else:
        ask(reader, tmp_path)


@pytest.mark.parametrize("door", ["lake", "audit", "diff"])
def test_a_keyword_beside_a_reader_is_refused(examples: Path, tmp_path: Path, door: str) -> None:
    reader = pylogseg.read(examples)
    calls: dict[str, Callable[[], Any]] = {
        "lake": lambda: pylogseg.lake(reader, f"delta:{tmp_path}/t", isolation_level="read_committed"),
        "audit": lambda: pylogseg.audit(reader, f"delta:{tmp_path}/t", offset=(0, 5)),
        "diff": lambda: offline.diff(reader, reader, on_corrupt="skip"),
    }
    with pytest.raises(RequestError, match=rf"^{door} got a reader and \w+=: say \w+= to the reader alone"):
        calls[door]()


def test_a_table_of_a_reader_is_that_of_its_keywords(tmp_path: Path) -> None:
    write_orders(tmp_path / "disk", 300)
    write_orders(tmp_path / "disk", 100, partition=1)
    schemas = tmp_path / "disk" / "schemas"
    reader = pylogseg.read(tmp_path / "disk", isolation_level="read_committed").where(partition=0)
    asked, named = f"delta:{tmp_path}/asked", f"delta:{tmp_path}/named"
    (of_reader,) = pylogseg.lake(reader.decode(registry=schemas), asked)
    (of_path,) = pylogseg.lake(tmp_path / "disk", named, partition=0, decoding="value", registry=schemas)
    assert (of_reader.records, of_reader.dead_letters) == (of_path.records, of_path.dead_letters) == (297, 3)
    rows = [lake_tables.rows_of(table).sort_by("offset").drop_columns("timestamp") for table in (asked, named)]
    assert rows[0].equals(rows[1])

    whole = pylogseg.audit(reader.decode(registry=schemas), asked)
    assert (whole.exit_code, whole.rows) == (0, 300)
    part = pylogseg.audit(reader.decode(registry=schemas).where(offset=(100, 200)), asked)
    (present,) = [partition.present for partition in part.partitions]
    assert (part.exit_code, present) == (0, 99)


def test_lake_takes_a_reader_of_committed_records(examples: Path, tmp_path: Path) -> None:
    """A plain `read` shows aborted records; no table gets them unless somebody asks for it by name."""
    with pytest.raises(RequestError, match="a reader of uncommitted records"):
        pylogseg.lake(pylogseg.read(examples, "txn-a-0"), f"delta:{tmp_path}/table")
    assert list(tmp_path.iterdir()) == []
    reader = pylogseg.read(examples, "txn-a-0", isolation_level="read_committed")
    (done,) = pylogseg.lake(reader, f"delta:{tmp_path}/table")
    assert done.records == reader.count()


def test_readers_are_compared_by_what_they_ask_for(examples: Path, tmp_path: Path) -> None:
    for name in ("txn-a-0", "txn-b-0"):
        shutil.copytree(examples / name, tmp_path / name)
    disk = pylogseg.read(examples, "txn-a-0")
    log = pylogseg.read(tmp_path, "txn-b-0")
    (row,) = offline.diff(disk, tmp_path)
    everything = pylogseg.read(examples, "txn-a-0", control=True)
    assert (row.name, row.is_same, row.records_a) == ("txn-a-0", True, everything.count())
    early = pc.field("offset") < 7
    (row,) = offline.diff(disk.where(early), log.where(early))
    (named,) = offline.diff(examples / "txn-a-0", tmp_path / "txn-b-0", filter=early)
    assert to_row(row) == to_row(named)
    assert (row.records_a, row.records_b) == (7, log.where(early).count())
    (row,) = offline.diff(disk.where(offset=(0, 5)), tmp_path)
    assert (row.records_a, row.compared) == (5, (0, 5))
    with pytest.raises(RequestError, match="two readers of other records"):
        offline.diff(disk.where(offset=(0, 5)), log)
    with pytest.raises(RequestError, match="diff does not accept offsets from the end"):
        offline.diff(disk.where(offset=-3), tmp_path)


def test_an_archive_of_a_reader(examples: Path, tmp_path: Path) -> None:
    reader = pylogseg.read(examples)
    assert {part.name for part in pylogseg.archive.write(reader, tmp_path / "archive").point.partitions} == {
        log.name for log in reader.scope.logs
    }
    with pytest.raises(RequestError, match="an archive is made of log directories"):
        pylogseg.archive.write(pylogseg.read(examples / "txn-a-0"), tmp_path / "other")


def test_a_log_in_memory_is_no_disk(tmp_path: Path) -> None:
    with pylogseg.open_log(tmp_path / "orders-0") as log, pytest.raises(RequestError, match="lake reads files"):
        pylogseg.lake(log.read(), f"delta:{tmp_path}/t")


def test_narrowed_names_are_a_choice_of_partitions(examples: Path) -> None:
    """A function that lists the disk again chooses the same partitions."""
    reader = pylogseg.read(examples, "txn-*").where(topic=["txn-a", "codec-none"])
    narrow = reader.where(partition=1)
    for each in (reader, narrow):
        selection = each.scope.selection
        names = {log.name for log in selection.logs(pylogseg.open_dir(examples))}
        assert names == {log.name for log in each.scope.logs}
    assert {log.name for log in narrow.scope.logs} == {"txn-a-1"}
