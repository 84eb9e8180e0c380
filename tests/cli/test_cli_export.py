"""Tests of cli/export.py, tables/export/file.py and tables/export/result.py. `pylogseg export`: files of each form,
read back by others; whole files or none.
"""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from helpers.checks import wait_for
from helpers.damaged_logs import change_byte
from helpers.shell import damaged, environment, expect, process, pylogseg

import pylogseg as package
from pylogseg.disk.listing import open_dir
from pylogseg.env.beside import make_temporary_name
from pylogseg.reading.log_reader import LogReader
from pylogseg.reading.logs import logs_of
from pylogseg.tables.export import file as export_module
from pylogseg.tables.export.file import Form, export_part


def files(out: Path) -> list[Path]:
    """The files of a table, without the notes of it."""
    return sorted(path for path in out.rglob("*") if path.is_file() and path.parent.name != "_pylogseg")


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_arrow_forms_hold_the_records(form: str, examples: Path, tmp_path: Path) -> None:
    done = expect(pylogseg("export", examples, "-O", tmp_path / "out", "--to", form), 0)
    read = ds.dataset(tmp_path / "out", format="ipc" if form == "arrow" else form, partitioning="hive").to_table()
    rows = sorted(read.to_pylist(), key=lambda row: (row["topic"], row["partition"], row["offset"]))
    records = list(package.read(examples))
    assert len(rows) == len(records)
    assert done.text.startswith(f"{tmp_path / 'out'}: {len(records):,} records in {len(files(tmp_path / 'out'))} files")
    for row, record in zip(rows, records, strict=True):
        assert (row["topic"], row["partition"], row["offset"]) == (record.topic, record.partition, record.offset)
        assert (row["key"], row["value"]) == (record.key, record.value)
        headers = tuple((h["key"], h["value"]) for h in row["headers"] or ())
        assert headers == record.headers


def test_names_of_files(examples: Path, tmp_path: Path) -> None:
    pylogseg("export", examples, "codec-none", "txn-a", "-O", tmp_path)
    wanted = [
        tmp_path / f"topic={s.topic}" / f"partition={s.partition}" / s.name.replace(".log", ".parquet")
        for s in open_dir(examples).select(["codec-none", "txn-a"]).segments
    ]
    assert files(tmp_path) == sorted(wanted)


def test_other_readers(examples: Path, tmp_path: Path) -> None:
    pylogseg("export", examples, "-O", tmp_path)
    count = len(list(package.read(examples)))
    pattern = str(tmp_path / "**" / "*.parquet")
    assert duckdb.sql(f"select count(*), count(distinct topic) from '{pattern}'").fetchall() == [(count, 18)]
    assert pl.scan_parquet(pattern, hive_partitioning=True).collect().shape == (count, 8)


def test_csv_and_json_lines(examples: Path, tmp_path: Path) -> None:
    for form in ("csv", "jsonl"):
        out = tmp_path / form
        assert pylogseg("export", examples, "txn-a-0", "-O", out, "--to", form, "--value-as", "hex").code == 0
    records = list(package.read(examples, "txn-a-0"))
    rows: list[dict[str, Any]] = []
    lines: list[dict[str, Any]] = []
    for path in files(tmp_path):
        with open(path, newline="", encoding="utf-8") as file:
            if path.suffix == ".csv":
                rows += csv.DictReader(file)
            else:
                lines += map(json.loads, file)
    for found in (rows, lines):
        assert [int(row["offset"]) for row in found] == [r.offset for r in records]
        assert [row["value"] for row in found] == [(r.value or b"").hex() for r in records]
    assert "topic" not in lines[0]


def test_columns_and_compression(examples: Path, tmp_path: Path) -> None:
    done = pylogseg(
        "export", examples, "txn-a-1", "-O", tmp_path, "--columns", "topic,offset,producerId", "--compression", "gzip"
    )
    assert done.code == 0, done.err
    (path,) = files(tmp_path)
    with open(path, "rb") as file:
        parquet = pq.ParquetFile(file)
        assert parquet.schema_arrow.names == ["topic", "offset", "producerId"]
        assert parquet.metadata.row_group(0).column(0).compression == "GZIP"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--columns", "offset,colour"), "colour"),
        (("--to", "jsonl", "--columns", "isControl"), "unknown field 'isControl'"),
        (("--compression", "rar"), "no compression 'rar'"),
        (("--to", "arrow", "--compression", "gzip"), "no compression 'gzip'"),
    ],
)
def test_wrong_requests_write_nothing(options: tuple[str, ...], words: str, examples: Path, tmp_path: Path) -> None:
    expect(pylogseg("export", examples, "-O", tmp_path / "out", *options), 2, words)
    assert not (tmp_path / "out").exists()


def test_ranges(examples: Path, tmp_path: Path) -> None:
    done = pylogseg("export", examples, "codec-none", "-O", tmp_path, "--offset", "150:300", "--json")
    assert sum(row["records"] for row in done.rows) == 150
    table = ds.dataset(tmp_path, partitioning="hive").to_table()
    assert sorted(table["offset"].to_pylist()) == list(range(150, 300))
    assert [row["path"] for row in done.rows] == list(map(str, files(tmp_path)))
    assert [row["size"] for row in done.rows] == [path.stat().st_size for path in files(tmp_path)]


def test_read_committed(examples: Path, tmp_path: Path) -> None:
    assert pylogseg("export", examples, "txn-a-0", "-O", tmp_path, "--isolation-level", "read_committed").code == 0
    offsets = ds.dataset(tmp_path).to_table()["offset"].to_pylist()
    assert offsets == [r.offset for r in package.read(examples, "txn-a-0", isolation_level="read_committed")]
    assert len(files(tmp_path)) == 1


def test_overwrite(examples: Path, tmp_path: Path) -> None:
    assert pylogseg("export", examples, "txn-a", "-O", tmp_path).code == 0
    before = {path: path.read_bytes() for path in files(tmp_path)}
    again = pylogseg("export", examples, "txn-a", "txn-b", "-O", tmp_path)
    assert again.code == 2
    assert "exists already: replace it with --overwrite" in again.err
    assert {path: path.read_bytes() for path in files(tmp_path)} == before
    assert pylogseg("export", examples, "txn-a", "-O", tmp_path, "--overwrite", "--columns", "offset").code == 0
    assert files(tmp_path) == sorted(before)
    with open(files(tmp_path)[0], "rb") as file:
        assert pq.ParquetFile(file).schema_arrow.names == ["offset"]


def test_two_replicas_do_not_become_one_file(examples: Path, tmp_path: Path) -> None:
    shutil.copytree(examples / "txn-b-0", tmp_path / "txn-b-0")
    done = pylogseg("export", examples / "txn-b-0", tmp_path / "txn-b-0", "-O", tmp_path / "out")
    assert done.code == 2
    assert "lies in two folders" in done.err
    assert not (tmp_path / "out").exists()


def test_damage_leaves_whole_files_only(examples: Path, tmp_path: Path) -> None:
    names = sorted(path.name for path in (examples / "codec-none-1").glob("*.log"))
    folder = damaged(examples / "codec-none-1", tmp_path / "codec-none-1", names[1], 3000)
    expect(pylogseg("export", folder, "-O", tmp_path / "out", "--jobs", 1), 1, "CRC mismatch")
    assert [path.stem for path in files(tmp_path / "out")] == [names[0][:-4]]
    skipped = expect(pylogseg("export", folder, "-O", tmp_path / "skip", "--on-corrupt", "skip"), 1)
    assert skipped.err.startswith("pylogseg: damage: ")
    assert [path.stem for path in files(tmp_path / "skip")] == [name[:-4] for name in names]


def wanted(path: Path) -> LogReader:
    (log,) = logs_of(open_dir(path))
    return LogReader(log, 0, 2**63 - 1)


@pytest.mark.parametrize("form", export_module.FORMS)
def test_a_failure_leaves_nothing(form: str, examples: Path, tmp_path: Path) -> None:
    def stop(_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export_part(wanted(examples / "txn-b-0"), tmp_path, Form(form), stop)
    assert files(tmp_path) == []


def test_row_groups_hold_many_chunks(examples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    part = wanted(examples / "codec-none-1")
    row = export_part(part, tmp_path / "one", Form())
    assert row.path is not None
    with open(row.path, "rb") as file:
        assert pq.ParquetFile(file).num_row_groups == 1
    monkeypatch.setattr(export_module, "_ROW_GROUP_ROWS", 100)
    row = export_part(part, tmp_path / "many", Form())
    assert row.path is not None
    with open(row.path, "rb") as file:
        many = pq.ParquetFile(file)
        assert many.num_row_groups > 1
        assert many.read(["offset"])["offset"].to_pylist() == list(range(505))
    assert isinstance(many.schema_arrow, pa.Schema)


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_interrupt_leaves_whole_files(examples: Path, tmp_path: Path) -> None:
    folder, out = tmp_path / "big-0", tmp_path / "out"
    folder.mkdir()
    data = sorted((examples / "codec-none-1").glob("*.log"))[0].read_bytes()
    with open(folder / f"{0:020d}.log", "wb") as file:
        for _ in range((64 << 20) // len(data)):
            file.write(data)
    started = process("export", folder, "-O", out, "--max-bytes-per-second", "4M")
    wait_for(lambda: files(out))
    assert [path.suffix for path in files(out)] == [".tmp"]
    started.send_signal(signal.SIGINT)
    _, errors = started.communicate(timeout=60)
    assert started.returncode == 130
    assert errors == b""
    assert files(out) == []


@pytest.mark.skipif(sys.platform == "win32", reason="limits of POSIX")
@pytest.mark.parametrize("form", ["parquet", "arrow", "csv", "jsonl"])
def test_a_disk_that_is_full_is_named(examples: Path, tmp_path: Path, form: str) -> None:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        done = pylogseg("export", examples, "codec-none", "-O", tmp_path, "--to", form, "--compression", "none")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert done.code == 2
    assert re.search(rf"/topic=codec-none/partition=1/\d+\.{form}: cannot write: .*[Tt]oo large", done.err)
    assert files(tmp_path) == []


def test_values_are_not_copied_for_statistics(examples: Path, tmp_path: Path) -> None:
    pylogseg("export", examples, "codec-none", "-O", tmp_path)
    row_group = pq.ParquetFile(files(tmp_path)[0]).metadata.row_group(0)
    columns = {row_group.column(i).path_in_schema: row_group.column(i) for i in range(row_group.num_columns)}
    assert [name for name, column in columns.items() if not column.has_dictionary_page] == ["value"]
    assert [name for name, column in columns.items() if column.statistics is None] == ["value"]


def test_an_overwrite_that_fails_changes_nothing(examples, tmp_path):
    """New files beside old ones would be an export of no state that ever was."""
    folder, out = tmp_path / "in" / "codec-none-1", tmp_path / "out"
    shutil.copytree(examples / "codec-none-1", folder)
    assert pylogseg("export", folder, "--out", out, "--to", "jsonl", "--offset", "0:300").code == 0
    before = {path.relative_to(out): path.read_bytes() for path in out.rglob("*") if path.is_file()}
    change_byte(max(folder.glob("*.log")), 100)
    for jobs in (1, 2):
        done = pylogseg("export", folder, "--out", out, "--to", "jsonl", "--overwrite", "-j", jobs)
        assert done.code == 1
        assert {path.relative_to(out): path.read_bytes() for path in out.rglob("*") if path.is_file()} == before
    assert pylogseg("export", folder, "--out", out, "--to", "jsonl", "--overwrite", "--on-corrupt", "skip").code == 1
    assert len(list(out.rglob("*.jsonl"))) == 3
    assert not [path for path in out.iterdir() if path.name.startswith(".")]


# ---- what is being written ----

KILLED = """
import os, signal, sys
from pathlib import Path
from pylogseg.env.beside import create, make_temporary_name
out = Path(sys.argv[1])
(out / make_temporary_name()).mkdir(parents=True)
folder = out / "topic=txn-a" / "partition=0"
folder.mkdir(parents=True)
create(folder / make_temporary_name("0.parquet")).write(b"half")
create(out / make_temporary_name("one.parquet")).write(b"half")
os.kill(os.getpid(), signal.SIGKILL)
"""


def hidden(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob(".*.tmp"))


def test_what_a_killed_export_left_goes_with_the_next(examples: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    killed = subprocess.run([sys.executable, "-c", KILLED, out], env=environment(), check=False)
    assert killed.returncode < 0
    assert len(hidden(out)) == 3
    done = pylogseg("export", examples, "txn-a", "-O", out / "one.parquet")
    assert (done.code, done.err, len(hidden(out))) == (0, "", 2)
    (out / "one.parquet").unlink()
    done = pylogseg("export", examples, "txn-a", "-O", out, "--overwrite")
    assert (done.code, done.err, hidden(out)) == (0, "", [])
    # What may still be written is left, and named.
    theirs = out / ".7@elsewhere.tmp"
    theirs.mkdir()
    done = pylogseg("export", examples, "txn-a", "-O", out, "--overwrite")
    assert (done.code, hidden(out)) == (0, [theirs.name])
    assert f"{theirs}: of an export that still runs" in done.err


def test_a_link_in_place_of_what_is_written_is_not_followed(examples: Path, tmp_path: Path) -> None:
    """Who may write into a shared folder may guess the name of the next file."""
    for options in (["--overwrite"], []):
        out, outside = tmp_path / f"out{len(options)}", tmp_path / f"outside{len(options)}"
        outside.mkdir()
        (outside / "file").write_text("theirs")
        part = out / "topic=txn-b" / "partition=0"
        part.mkdir(parents=True)
        (out / make_temporary_name()).symlink_to(outside)
        (part / make_temporary_name(f"{0:020}.parquet")).symlink_to(outside / "file")
        assert pylogseg("export", examples, "txn-b", "-O", out, *options).code == 0
        assert [(path.name, path.read_text()) for path in outside.iterdir()] == [("file", "theirs")]
        assert pq.read_table(part / f"{0:020}.parquet").num_rows == 10
