"""Tests of spark/arguments.py, spark/exported.py and spark/jobs.py. Jobs: their rows and files are the ones of the
command line and of plain Python for the same logs.
"""

from __future__ import annotations

import inspect
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from helpers.damaged_logs import hurt
from helpers.depth import IS_DEEP
from helpers.shell import pylogseg as run
from helpers.spark_logs import needs_sources

import pylogseg
from pylogseg.errors import IncompleteError, RequestError
from pylogseg.format.keywords import parameters_of
from pylogseg.spark import executor, jobs
from pylogseg.spark.executor import equal_groups
from pylogseg.tables.short_forms import read_arrow


def test_verify_says_what_the_command_says(spark: Any, examples: Path, tmp_path: Path) -> None:
    disk = hurt(examples, tmp_path / "data")
    lines = run("verify", disk, "--json").rows
    findings = [{k: v for k, v in line.items() if k != "type"} for line in lines if line["type"] == "finding"]
    got = [row.asDict() for row in jobs.verify(spark, disk).collect()]
    assert sorted(got, key=str) == sorted(findings, key=str)
    assert sum(row["level"] == "damage" for row in got) >= 3
    assert jobs.verify(spark, examples, ["codec-*"], level="crc").count() == 0
    with pytest.raises(RequestError, match="level: expected one of headers, crc"):
        jobs.verify(spark, examples, level="all")


def test_the_arguments_of_a_job_are_those_of_its_function() -> None:
    """`help` shows them; another one is refused before anything is read or started."""
    functions = {
        jobs.archive: pylogseg.archive.write, jobs.audit: pylogseg.audit, jobs.diff: pylogseg.offline.diff,
        jobs.lake: pylogseg.lake, jobs.report: pylogseg.report,
    }  # fmt: skip
    ours = {"jobs", "executor", "max_bytes_per_second", "on_bytes", "on_size"}
    for job, function in functions.items():
        keywords = {
            each.name: each.default
            for each in parameters_of(function)
            if each.kind is each.KEYWORD_ONLY and each.name not in ours
        }
        shown = {each.name: each.default for each in inspect.signature(job).parameters.values()}
        assert {*keywords.items()} <= {*shown.items()}
        assert {"spark", "progress"} <= shown.keys()
        assert not ours & shown.keys()
        with pytest.raises(TypeError, match=rf"^{job.__name__}\(\) got an unexpected keyword argument 'jobs'"):
            job(None, "a", "b", jobs=2)


def test_an_empty_list_of_names_is_refused(examples: Path, tmp_path: Path) -> None:
    """A computed list that came out empty is not "all"; it is refused before anything is read or started."""
    out = str(tmp_path / "out")
    calls = [
        lambda *choice: jobs.verify(None, examples, *choice),
        lambda *choice: jobs.report(None, examples, *choice),
        *(lambda *choice, by=by: jobs.stats(None, examples, *choice, by=by) for by in ("all", "hour", "key")),
        lambda *choice: jobs.export(None, examples, out, *choice),
        lambda *choice: jobs.diff(None, str(examples), str(examples), *choice),
        lambda *choice: jobs.compact(None, str(examples), out, *choice),
        lambda *choice: jobs.redact(None, str(examples), out, *choice, keys=[b"k91"]),
    ]
    wrong = (([], "topic is empty"), ("", "topic: a name is empty"), (None, (), "partition is empty"))
    for call in calls:
        for *choice, why in wrong:
            with pytest.raises(RequestError, match=why):
                call(*choice)
    assert not (tmp_path / "out").exists()


def test_stats_count_what_the_command_counts(spark: Any, examples: Path, tmp_path: Path) -> None:
    from pyspark.sql import functions as sql

    for by in ("partition", "topic", "all"):
        lines = run("stats", examples, "--json", *(() if by == "all" else ("--by", by))).rows
        found = jobs.stats(spark, examples, by=by)
        assert found.columns == [*lines[0]]
        for column in ("leastTimestamp", "largestTimestamp"):
            found = found.withColumn(column, sql.unix_millis(column))
        assert [row.asDict(recursive=True) for row in found.collect()] == lines


def test_stats_by_hour_and_key(spark: Any, examples: Path) -> None:
    rows = read_arrow(str(examples), "codec-*").read_all().to_pylist()
    by_key = {
        (row.topic, None if row.key is None else bytes(row.key)): row.records
        for row in jobs.stats(spark, examples, ["codec-*"], by="key").collect()
    }
    expected: dict[Any, int] = {}
    hours: dict[Any, int] = {}
    for row in rows:
        expected[row["topic"], row["key"]] = expected.get((row["topic"], row["key"]), 0) + 1
        hour = row["timestamp"].replace(minute=0, second=0, microsecond=0, tzinfo=None)
        hours[row["topic"], hour] = hours.get((row["topic"], hour), 0) + 1
    assert by_key == expected
    found = jobs.stats(spark, examples, ["codec-*"], by="hour").collect()
    assert {(row.topic, row.hour): row.records for row in found} == hours
    top = jobs.stats(spark, examples, ["codec-*"], by="key", top=2).collect()
    assert [row.records for row in top] == sorted(expected.values(), reverse=True)[:2]


def test_dirty_ratio(spark: Any, tmp_path: Path) -> None:
    with pylogseg.open_log(tmp_path / "t-0", segment_bytes=1000) as log:
        for i in range(30):
            log.append([(i, b"k", b"v" * 200)])
        bases = [segment.base_offset for segment in log.engine.segments]
    (tmp_path / "cleaner-offset-checkpoint").write_text(f"0\n1\nt 0 {bases[3]}\n")
    sizes = [segment.size for segment in pylogseg.open_dir(tmp_path).partitions[0].segments]
    (row,) = jobs.stats(spark, tmp_path).collect()
    assert row.dirtyRatio == round(sum(sizes[3:-1]) / sum(sizes[:-1]), 3)


@pytest.mark.parametrize(
    ("pattern", "flags", "options"),
    [
        ("[a-z]+.*5$", ["-E"], {"regex": True}),
        ("VALUE", ["-i", "--in", "value"], {"ignore_case": True, "places": ["value"]}),
    ],
)
def test_grep_finds_what_the_command_finds(
    spark: Any, examples: Path, pattern: str, flags: list[str], options: dict[str, Any]
) -> None:
    rows = run("grep", pattern, examples, "codec-none", *flags).rows
    expected = sorted((row["partition"], row["offset"]) for row in rows)
    found = jobs.grep(spark, examples, pattern, subscribe="codec-none", columns=["partition", "offset"], **options)
    assert sorted(map(tuple, found.collect())) == expected
    assert expected
    everything = read_arrow(str(examples), "codec-none").read_all().num_rows
    others = jobs.grep(spark, examples, pattern, subscribe="codec-none", invert=True, **options)
    assert others.count() == everything - len(expected)


def test_export_and_restore(spark: Any, examples: Path, tmp_path: Path) -> None:
    """There and back: a table of the records, and partitions that hold what those held."""
    names = ["codec-*", "txn-a", "timestamps"]
    out, back = str(tmp_path / "table"), str(tmp_path / "back")
    assert {row.state for row in jobs.export(spark, examples, out, names, dry_run=True).collect()} == {"to do"}
    assert not os.path.exists(out)
    written = jobs.export(spark, examples, out, names).collect()
    rows = [row for name in names for row in read_arrow(str(examples), name).read_all().to_pylist()]
    assert sum(row.records for row in written) == len(rows)
    assert {row.state for row in jobs.export(spark, examples, out, names).collect()} == {"unchanged"}

    todo = jobs.restore(spark, out, back, committed=True, dry_run=True).collect()
    assert {row.state for row in todo} == {"to do"}
    assert not os.path.exists(back)
    placed = jobs.restore(
        spark, out, back, committed=True, compression="zstd", segmentBytes=4096, batchBytes=2000
    ).collect()
    assert {row.state for row in placed} == {"written"}
    got = [row for name in names for row in read_arrow(back, name).read_all().to_pylist()]
    assert got == rows
    assert {row.state for row in jobs.restore(spark, out, back, committed=True).collect()} == {"unchanged"}
    # The table lacks the offsets of markers, so nobody knows a high watermark of their partitions.
    findings = [(row.level, row.kind, row.reason) for row in jobs.verify(spark, back).collect()]
    assert [level for level, _, _ in findings if level == "damage"] == [], findings

    shutil.rmtree(Path(back) / "txn-a-1")
    again = {(row.topic, row.partition): row.state for row in jobs.restore(spark, out, back, committed=True).collect()}
    assert again.pop(("txn-a", 1)) == "written"
    assert set(again.values()) == {"unchanged"}


def test_jobs_take_a_reader(spark: Any, examples: Path, tmp_path: Path) -> None:
    """Its topics and options are those of keywords; what a job cannot honour is refused."""
    reader = pylogseg.read(examples, "txn-a", isolation_level="read_committed")
    written = jobs.export(spark, reader, str(tmp_path / "table")).collect()
    assert sum(row.records for row in written) == reader.count()
    (row,) = jobs.lake(spark, reader, f"delta:{tmp_path}/lake").collect()
    assert row.records == reader.count()
    assert jobs.audit(spark, reader, f"delta:{tmp_path}/lake").where("type = 'summary'").first().right
    assert [row.same for row in jobs.diff(spark, reader, reader.where(partition=1)).collect()] == [False, True]
    with pytest.raises(RequestError, match="export cannot honour limit= of a reader"):
        jobs.export(spark, reader.limit(3), str(tmp_path / "other"))
    with pytest.raises(RequestError, match="export got a reader and timestamp="):
        jobs.export(spark, reader, str(tmp_path / "other"), since=0)


def test_export_to_a_store(spark: Any, examples: Path, tmp_path: Path) -> None:
    """A file system of fsspec that tasks share: the same files as in a folder, from tasks that upload them."""
    names, url, storage = ["codec-*", "txn-a"], f"local://{tmp_path}/far", {"auto_mkdir": True}
    how = {"isolation_level": "read_committed", "out_storage_options": storage}
    jobs.export(spark, examples, str(tmp_path / "near"), names, isolation_level="read_committed")
    written = jobs.export(spark, examples, url, names, **how).collect()
    assert {row.state for row in written} == {"written"}
    files = {row.path.removeprefix("local://"): row.size for row in written}
    assert {path: os.path.getsize(path) for path in files} == files
    near = {path.relative_to(tmp_path / "near"): path.read_bytes() for path in (tmp_path / "near").rglob("*.parquet")}
    assert {Path(path).relative_to(tmp_path / "far"): Path(path).read_bytes() for path in files} == near
    assert {row.state for row in jobs.export(spark, examples, url, names, **how).collect()} == {"unchanged"}
    # As large as before, and other bytes.
    hurt_file = Path(next(iter(files)))
    hurt_file.write_bytes(bytes(hurt_file.stat().st_size))
    again = jobs.export(spark, examples, url, names, **how).collect()
    assert sum(row.state == "written" for row in again) == 1
    assert hurt_file.read_bytes() == near[hurt_file.relative_to(tmp_path / "far")]


def test_what_an_export_knows_to_be_missing(spark: Any, command: Any, examples: Path, tmp_path: Path) -> None:
    """Its rows have their own state, and the command ends with 1."""
    shutil.copytree(examples / "codec-none-1", tmp_path / "data" / "codec-none-1")
    first, second, *_ = sorted((tmp_path / "data" / "codec-none-1").glob("*.log"))
    gone = (int(second.stem), int(sorted(second.parent.glob("*.log"))[2].stem))
    second.unlink()
    rows = jobs.export(spark, tmp_path / "data", str(tmp_path / "out")).collect()
    (missing,) = [row for row in rows if row.state == "missing"]
    assert (missing.topic, missing.partition, missing.baseOffset, missing.path, missing.records) == (
        "codec-none", 1, gone[0], None, 0,
    )  # fmt: skip
    assert re.search(rf"{gone[0]}.*{gone[1] - 1}", missing.problem), missing.problem
    assert {row.state for row in rows if row.baseOffset == int(first.stem)} == {"written"}
    done = command("export", tmp_path / "data", "--out", tmp_path / "plain")
    assert (done.exit_code, missing.problem in done.stderr) == (1, True)


def test_restore_of_a_table_that_lacks_a_file(spark: Any, command: Any, examples: Path, tmp_path: Path) -> None:
    """Refused, unless it is forced; then all the rest is there."""
    table, back = tmp_path / "table", tmp_path / "back"
    jobs.export(spark, examples, str(table), ["codec-none"], isolation_level="read_committed")
    path = sorted(table.rglob("*.parquet"))[0]
    lost = set(pq.read_table(path, partitioning=None)["offset"].to_pylist())
    path.unlink()
    with pytest.raises(IncompleteError, match=f"{path.name}.*is not there, with {len(lost):,} records"):
        jobs.restore(spark, str(table), str(back))
    assert not back.exists()
    back.mkdir()
    done = command("restore", table, back, "--force")
    assert (done.exit_code, "is not there" in done.stderr) == (1, True)
    everything = {record.offset for record in pylogseg.read(examples, "codec-none")}
    assert {record.offset for record in pylogseg.read(back)} == everything - lost


FIELDS = {
    "value": "cast('w' as binary)",
    "key": "cast(null as binary)",
    "headers": "array(named_struct('key', 'h', 'value', cast('y' as binary)))",
    "timestamp": "timestamp_millis(offset + 1)",
}


@pytest.fixture(scope="module")
def restored(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    """Rows, and the partitions that were made of them."""
    rows = spark.range(50).selectExpr(
        "id as offset", "'t' as topic", "cast(id % 2 as int) as partition", "cast(cast(id as string) as binary) as key",
        "cast('v' as binary) as value", "timestamp_millis(id) as timestamp",
        "array(named_struct('key', 'h', 'value', cast('x' as binary))) as headers",
    )  # fmt: skip
    root = tmp_path_factory.mktemp("restored") / "data"
    jobs.restore(spark, rows, str(root))
    return rows, root


def test_unchanged_rows_are_not_written_again(spark: Any, restored: tuple[Any, Path]) -> None:
    rows, root = restored
    assert {row.state for row in jobs.restore(spark, rows, str(root)).collect()} == {"unchanged"}


@pytest.mark.parametrize("changed", FIELDS)
def test_unchanged_is_compared_record_by_record(spark: Any, restored: tuple[Any, Path], changed: str) -> None:
    """Rows with the same offsets and their number, and one other field in one record, are not the same."""
    rows, root = restored
    with pytest.raises(RequestError, match="t-1: it already exists with other records"):
        jobs.restore(spark, masked_in(rows, changed), str(root))


@pytest.mark.parametrize("changed", FIELDS if IS_DEEP else ["headers"])
def test_other_rows_replace_those_that_were_there(
    spark: Any, restored: tuple[Any, Path], tmp_path: Path, changed: str
) -> None:
    root = str(shutil.copytree(restored[1], tmp_path / "data"))
    masked = masked_in(restored[0], changed)
    done = jobs.restore(spark, masked, root, overwrite=True).collect()
    assert {(row.partition, row.state) for row in done} == {(0, "written"), (1, "written")}
    assert {row.state for row in jobs.restore(spark, masked, root).collect()} == {"unchanged"}


def masked_in(rows: Any, field: str) -> Any:
    """Rows of which one has another value in a field."""
    from pyspark.sql import functions as sql

    return rows.withColumn(field, sql.expr(f"if(offset = 7, {FIELDS[field]}, {field})"))


def test_restore_to_a_store_and_from_one(spark: Any, command: Any, examples: Path, tmp_path: Path) -> None:
    """From a table in a store into a log directory in a store: what a folder gets, byte for byte."""
    names, storage = ["codec-*", "txn-a"], {"auto_mkdir": True}
    table, far, near = f"local://{tmp_path}/table", f"local://{tmp_path}/far", tmp_path / "near"
    jobs.export(spark, examples, table, names, isolation_level="read_committed", out_storage_options=storage)
    rows = spark.read.parquet(str(tmp_path / "table"))
    jobs.restore(spark, rows, str(near), segmentBytes=4096, batchBytes=2000)
    plan = jobs.restore(spark, rows, far, storage_options=storage, dry_run=True).collect()
    assert {row.state for row in plan} == {"to do"}
    assert not (tmp_path / "far").exists()
    placed = jobs.restore(spark, rows, far, storage_options=storage, segmentBytes=4096, batchBytes=2000).collect()
    assert {(row.state, row.path) for row in placed} == {
        ("written", f"{far}/{row.topic}-{row.partition}") for row in placed
    }
    files = {
        root: {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}
        for root in (near, tmp_path / "far")
    }
    assert {name: data for name, data in files[near].items() if name != ".lock"} == files[tmp_path / "far"]
    assert jobs.diff(spark, str(near), far).filter("not same").count() == 0
    with pytest.raises(RequestError, match="-0: it already exists; overwrite"):
        jobs.restore(spark, rows, far, storage_options=storage)
    # A task that fails leaves nothing behind.
    bad = rows.selectExpr("*").withColumn("offset", rows["offset"] % 2)
    with pytest.raises(Exception, match="offsets must ascend"):
        jobs.restore(spark, bad, far, storage_options=storage, overwrite=True)
    left = {path.relative_to(tmp_path / "far").as_posix() for path in (tmp_path / "far").rglob("*") if path.is_file()}
    assert left == set(files[tmp_path / "far"])


def test_restore_asks_what_was_committed(spark: Any, examples: Path, tmp_path: Path, command: Any) -> None:
    """A table has no markers: an aborted record would come back as an ordinary one."""

    def values(root: Path) -> int:
        return read_arrow(str(root), columns=["offset"]).read_all().num_rows

    columns = ["partition", "offset", "timestamp", "key", "value"]
    silent, told = tmp_path / "silent", tmp_path / "told"
    jobs.export(spark, examples, str(silent), ["txn-a"], columns=columns)
    jobs.export(spark, examples, str(told), ["txn-a", "codec-zstd"], columns=[*columns, "isTransactional"])
    with pytest.raises(RequestError, match=r"does not show which records were committed; .*read_committed"):
        jobs.restore(spark, str(silent), str(tmp_path / "back"))
    with pytest.raises(RequestError, match="no column isTransactional"):
        jobs.restore(spark, str(silent), str(tmp_path / "back"), without_transactions=True)
    for name in ("back", "all", "left"):
        (tmp_path / name).mkdir()
    done = command("restore", told, tmp_path / "back")
    assert (done.exit_code, "records were part of transactions" in done.stderr) == (2, True)
    assert not list((tmp_path / "back").iterdir())

    everything = len(list(pylogseg.read(str(examples), ["txn-a", "codec-zstd"])))
    assert command("restore", told, tmp_path / "all", "--committed").exit_code == 0
    assert values(tmp_path / "all") == everything
    # Of txn-a-1 nothing is left, which the command says too.
    codes = {
        command("restore", told, tmp_path / "left", "--without-transactions").exit_code,
        run("restore", told, tmp_path / "back", "--without-transactions").code,
    }
    assert codes == {1}
    others = read_arrow(str(examples), ["txn-a", "codec-zstd"], columns=["isTransactional"]).read_all()
    assert 0 < values(tmp_path / "left") == others["isTransactional"].to_pylist().count(False) < everything

    sure = tmp_path / "sure"
    jobs.export(spark, examples, str(sure), ["txn-a"], columns=columns, isolation_level="read_committed")
    jobs.restore(spark, str(sure), str(tmp_path / "committed"))
    assert values(tmp_path / "committed") == len(
        list(pylogseg.read(str(examples), "txn-a", isolation_level="read_committed"))
    )
    with pytest.raises(RequestError, match="filter them"):
        jobs.restore(spark, spark.range(3), str(tmp_path / "x"), committed=True)


def test_an_export_has_a_limit_for_what_a_batch_may_grow_to(spark: Any, examples: Path, tmp_path: Path) -> None:
    out = str(tmp_path / "t")
    found = jobs.export(spark, examples, out, ["codec-gzip"], on_corrupt="skip", max_decompressed_bytes=100).collect()
    assert all("raise max_decompressed_bytes" in row.problem for row in found)


def test_diff_sees_rows_that_are_there_twice(spark: Any, examples: Path, tmp_path: Path) -> None:
    table = tmp_path / "table"
    jobs.export(spark, examples, str(table), ["codec-none", "txn-a"])
    assert [row.same for row in jobs.diff(spark, examples, str(table), ["codec-none", "txn-a"]).collect()] == [True] * 3
    for path in (table / "topic=codec-none").rglob("*.parquet"):
        shutil.copy(path, path.with_name(f"again-{path.name}"))
    found = {
        (row.topic, row.partition): row for row in jobs.diff(spark, examples, str(table), ["codec-none"]).collect()
    }
    row = found["codec-none", 1]
    assert (row.same, row.recordsA, row.recordsB, row.missing, row.extra, row.changed, row.duplicates) == (
        False, 505, 1010, 0, 0, 0, 505,
    )  # fmt: skip


def test_an_export_that_is_not_whole(spark: Any, command: Any, examples: Path, tmp_path: Path) -> None:
    """What could not be read is said; a table whose export died is not restored."""
    disk, out, back = hurt(examples, tmp_path / "data"), tmp_path / "out", tmp_path / "back"
    back.mkdir()
    for _ in range(2):
        problems = {row.problem for row in jobs.export(spark, disk, str(out), on_corrupt="skip").collect()}
        assert any("CRC mismatch" in text for text in problems if text)
    with pytest.raises(pylogseg.CorruptionError, match="CRC mismatch"):
        jobs.export(spark, disk, str(out))
    refused = command("restore", out, back)
    assert (refused.exit_code, "did not finish, and parts may be missing" in refused.stderr) == (1, True)


def test_restore_refuses_and_overwrites(spark: Any, tmp_path: Path) -> None:
    rows = spark.createDataFrame([(0, b"a", b"1"), (1, b"b", b"2")], "offset bigint, key binary, value binary")
    root = str(tmp_path / "data")
    jobs.restore(spark, rows, root, topic="t", partitions=1)
    more = rows.union(spark.createDataFrame([(2, b"c", b"3")], rows.schema))
    with pytest.raises(RequestError, match="t-0: it already exists with other records"):
        jobs.restore(spark, more, root, topic="t", partitions=1)
    jobs.restore(spark, more, root, topic="t", partitions=1, overwrite=True)
    assert read_arrow(root, columns=["offset"]).read_all()["offset"].to_pylist() == [0, 1, 2]
    assigned = rows.select("value", "key")
    jobs.restore(spark, assigned, root, topic="u", partitions=3, offsets="assign", baseOffset=100)
    found = read_arrow(root, "u").read_all()
    assert sorted(found["value"].to_pylist()) == [b"1", b"2"]
    assert set(found["offset"].to_pylist()) <= {100, 101}


@needs_sources
def test_write_and_read(spark: Any, examples: Path, tmp_path: Path) -> None:
    """`df.write.format("pylogseg")`, with what it refuses."""
    pylogseg.spark.register(spark)
    rows = pylogseg.spark.read(spark, examples, subscribe="txn-a", includeHeaders=True)
    ordered = rows.repartition("topic", "partition").sortWithinPartitions("topic", "partition", "offset")
    root = str(tmp_path / "data")
    ordered.write.format("pylogseg").option("compression", "lz4").mode("append").save(root)
    before = sorted(map(str, rows.drop("timestampType").collect()))
    back = pylogseg.spark.read(spark, root, includeHeaders=True)
    assert sorted(map(str, back.drop("timestampType").collect())) == before
    with pytest.raises(Exception, match="it already exists; mode overwrite"):
        ordered.write.format("pylogseg").mode("append").save(root)
    ordered.write.format("pylogseg").mode("overwrite").save(root)
    assert back.count() == len(before)
    with pytest.raises(Exception, match="no column value to write"):
        rows.drop("value").write.format("pylogseg").mode("append").save(root)
    assert not [name for name in os.listdir(root) if re.search("staging|unfinished", name)]


@needs_sources
def test_a_task_that_fails_leaves_nothing(spark: Any, tmp_path: Path) -> None:
    pylogseg.spark.register(spark)
    rows = spark.range(10).selectExpr(
        "id as offset",
        "cast(if(id = 9, null, 't') as string) as topic",
        "0 as partition",
        "cast(id as string) as value",
    )
    with pytest.raises(Exception, match="a topic is null"):
        rows.coalesce(1).write.format("pylogseg").mode("append").save(str(tmp_path / "data"))
    assert os.listdir(tmp_path / "data") == []


def test_errors_of_the_shell(spark: Any, command: Any, examples: Path, tmp_path: Path) -> None:
    """Of the driver and of tasks alike: a line that names the remedy, and an exit code."""
    with pytest.raises(RequestError, match="Did you mean 'offsets'"):
        jobs.restore(spark, spark.range(3), str(tmp_path), ofsets="keep")
    disk = hurt(examples, tmp_path / "data")
    done = command("export", disk, "--out", tmp_path / "out")
    assert done.exit_code == 1
    assert re.search(r"^pylogseg: .*at position \d+.*", done.stderr, re.MULTILINE)
    assert command("nothing").exit_code == 2
    done = command("compact", disk)
    assert (done.exit_code, "give --into FOLDER" in done.stderr) == (2, True)
    for given in (["--jobs", "2"], ["--max-bytes-per-second", "1M"]):
        done = command("stats", disk, *given)
        assert (done.exit_code, f"{given[0]} is for threads" in done.stderr) == (2, True)


def test_shares() -> None:
    sizes = [1 << 30, 3, 500 << 20, 2, 1, 700 << 20]
    groups = equal_groups(sizes, 2)
    assert sorted(item for group in groups for item in group) == list(range(6))
    assert [0] in groups
    assert len(equal_groups([1] * 10_000, 2)) == 8
    assert equal_groups([], 4) == []


def test_what_stats_bring_to_the_driver_does_not_grow_with_segments(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sketches of keys are put together by the workers, in tasks and after them."""
    with pylogseg.open_log(tmp_path / "t-0", segment_bytes=40_000) as log:
        for start in range(0, 20_000, 500):
            log.append([(i, b"key%d" % i, b"v") for i in range(start, start + 500)])
    assert len(list((tmp_path / "t-0").glob("*.log"))) > 8
    sizes: list[int] = []

    def counting(data: bytes, *, _loads: Any = executor.unpack_items) -> Any:
        sizes.append(len(data))
        return _loads(data)

    monkeypatch.setattr(executor, "unpack_items", counting)
    (row,) = jobs.stats(spark, tmp_path).collect()
    assert row.records == 20_000
    assert abs(row.distinctKeys - 20_000) < 1000
    assert 0 < sum(sizes) < 10_000
