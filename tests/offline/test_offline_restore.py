"""Tests of offline/comparing_table.py, offline/restoring/command.py, offline/restoring/from_logs.py,
offline/restoring/source.py, transfer/contents.py and transfer/staging.py. Partitions from a backup or an exported
table: the same records again, all that were chosen or none.
"""

from __future__ import annotations

import datetime
import shutil
from pathlib import Path
from typing import Any

import documents
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.damaged_logs import change_byte
from helpers.shell import Done, expect, pylogseg

from pylogseg import offline
from pylogseg.env.locks import FolderLock
from pylogseg.env.storage import LocalStorage
from pylogseg.errors import CorruptionError, RequestError, StorageError
from pylogseg.format.files.checkpoint import parse_offset_checkpoint
from pylogseg.format.files.status import parse_partition_metadata
from pylogseg.reading.column_names import DEFAULT_COLUMNS
from pylogseg.tables.short_forms import read_arrow
from pylogseg.transfer.staging import Staging

#: Without transactions; several segments, codecs, timestamp types, legacy formats, odd headers.
PLAIN = ["codec-*", "legacy", "levels", "mixed", "timestamps", "ret-bytes", "cmp-short"]


def records(path: Path, *names: str, isolation_level: Any = "read_uncommitted") -> list[dict[str, Any]]:
    found = read_arrow(
        str(path), list(names) or None, columns=list(DEFAULT_COLUMNS), isolation_level=isolation_level
    ).read_all()
    return found.sort_by([("topic", "ascending"), ("partition", "ascending"), ("offset", "ascending")]).to_pylist()


def exported(examples: Path, out: Path, *arguments: object) -> Path:
    expect(pylogseg("export", examples, *arguments, "--out", out), 0)
    return out


def tree(folder: Path) -> dict[str, bytes | None]:
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None for p in folder.rglob("*")}


def states(done: Done) -> dict[str, str]:
    return {row["partition"]: row["state"] for row in done.rows if row["type"] == "partition"}


@pytest.fixture
def target(tmp_path: Path) -> Path:
    folder = tmp_path / "target"
    folder.mkdir()
    return folder


# ---- from tables ----


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_there_and_back(form: str, examples: Path, tmp_path: Path, target: Path) -> None:
    lake = exported(examples, tmp_path / "lake", *PLAIN, "--to", form)
    done = pylogseg("restore", lake, target, "--committed", "--compression", "lz4", "--segment-bytes", "16Ki")
    assert done.code == 0, done.err
    expected = records(examples, *PLAIN)
    assert -1 in {row["timestampType"] for row in expected}
    for row in expected:  # magic 0 has none, and what is written is of magic 2
        row["timestampType"] = max(0, row["timestampType"])
    assert records(target) == expected
    assert pylogseg("diff", examples, target, *PLAIN).code == 0
    assert pylogseg("verify", target, "--quiet").code == 0
    assert len(list(target.glob("codec-none-1/*.log"))) > 1


def test_one_file_with_all_partitions(examples: Path, tmp_path: Path, target: Path) -> None:
    table = read_arrow(str(examples), PLAIN, columns=list(DEFAULT_COLUMNS)).read_all()
    pq.write_table(table, tmp_path / "all.parquet", row_group_size=100)
    done = pylogseg("restore", tmp_path / "all.parquet", target, "codec-gzip", "mixed", "--committed", "--json")
    assert states(done) == {"codec-gzip-0": "done", "mixed-0": "done"}
    assert records(target) == records(examples, "codec-gzip", "mixed")


def test_what_may_have_been_aborted_is_refused(examples: Path, tmp_path: Path, target: Path) -> None:
    silent = exported(examples, tmp_path / "silent", "txn-a", "codec-gzip")
    done = pylogseg("restore", silent, target, "codec-gzip")
    assert done.code == 2
    assert "codec-gzip-0: the table does not show which records were committed" in done.err
    assert "--isolation-level read_committed" in done.err
    columns = "key,value,offset,timestamp,timestampType,headers,isTransactional"
    telling = exported(examples, tmp_path / "telling", "txn-a", "codec-gzip", "--columns", columns)
    assert pylogseg("restore", telling, target, "codec-gzip").code == 0
    expect(pylogseg("restore", telling, target, "txn-a"), 2, "records were part of transactions")
    assert not (target / "txn-a-0").exists()
    done = pylogseg("restore", telling, target, "txn-a-0", "--without-transactions")
    whole = read_arrow(str(examples), "txn-a-0", columns=["offset", "isTransactional"]).read_all().to_pylist()
    kept = [row["offset"] for row in whole if not row["isTransactional"]]
    assert (done.code, len(kept) > 0) == (0, True)
    assert [row["offset"] for row in records(target, "txn-a-0")] == kept
    assert f"{len(whole) - len(kept)} records of transactions are left out" in done.text
    assert pylogseg("restore", silent, target, "txn-a-1", "--without-transactions").code == 2


def test_committed_records_without_those_of_transactions(examples: Path, tmp_path: Path, target: Path) -> None:
    columns = "key,value,offset,timestamp,timestampType,headers"
    committed = ("txn-a", "--isolation-level", "read_committed", "--columns")
    silent = exported(examples, tmp_path / "silent", *committed, columns)
    expect(pylogseg("restore", silent, target, "--without-transactions"), 2, "the table has no column isTransactional")
    telling = exported(examples, tmp_path / "telling", *committed, columns + ",isTransactional")
    done = pylogseg("restore", telling, target, "--without-transactions", "--json")
    asked = ["partition", "offset", "isTransactional"]
    shown = read_arrow(str(examples), "txn-a", columns=asked, isolation_level="read_committed").read_all().to_pylist()
    kept = [(row["partition"], row["offset"]) for row in shown if not row["isTransactional"]]
    assert [(row["partition"], row["offset"]) for row in records(target, "txn-a")] == kept
    assert 0 < len(kept) < len(shown)
    assert sum(row["records"] for row in done.rows if row["type"] == "partition") == len(kept)


def test_of_committed_records_only(examples: Path, tmp_path: Path) -> None:
    """The files tell it of themselves, those of both forms, and one for all."""
    for number, options in enumerate((["lake"], ["lake2", "--to", "arrow"], ["one.parquet"], ["one.arrow"])):
        out = exported(examples, tmp_path / options[0], "txn-a", "--isolation-level", "read_committed", *options[1:])
        target = tmp_path / f"target{number}"
        target.mkdir()
        expect(pylogseg("restore", out, target), 0)
        assert records(target) == records(examples, "txn-a", isolation_level="read_committed")
    assert records(target) == records(examples, "txn-a", isolation_level="read_committed")
    assert records(target) != records(examples, "txn-a")


def test_tables_that_do_not_tell_all(examples: Path, tmp_path: Path, target: Path) -> None:
    table = read_arrow(str(examples), "codec-gzip", columns=list(DEFAULT_COLUMNS)).read_all()
    for change, message in [
        (table.drop_columns(["offset"]), "no column offset; there are: key, value"),
        (table.drop_columns(["topic"]), "a topic, a partition or an offset is null: .* topic=NAME"),
        (table.set_column(1, "value", pa.array(["x"] * len(table))), "column value is of type string"),
        (table.set_column(3, "partition", pa.nulls(len(table), pa.int32())), "a partition or an offset is null"),
    ]:
        pq.write_table(change, tmp_path / "bad.parquet")
        with pytest.raises(RequestError, match=message):
            offline.restore(tmp_path / "bad.parquet", target, committed=True)
    (tmp_path / "bad.parquet").write_bytes(b"no table")
    with pytest.raises(StorageError, match=r"bad\.parquet"):
        offline.restore(tmp_path / "bad.parquet", target, committed=True)
    text = exported(examples, tmp_path / "text", "codec-gzip", "--to", "csv")
    assert "do not have the bytes of all records" in pylogseg("restore", text, target, "--committed").err
    assert list(target.iterdir()) == []


def test_a_file_that_is_missing_in_between(examples: Path, tmp_path: Path, target: Path) -> None:
    """Nothing but the offsets tells; markers and compaction leave such gaps too, so it is a note."""
    lake = exported(examples, tmp_path / "lake", "timestamps", "codec-none")
    assert "in none" not in pylogseg("restore", lake, target, "--committed", "--dry-run").text
    (lake / "topic=timestamps" / "partition=0" / f"{107:020}.parquet").unlink()
    shutil.rmtree(lake / "_pylogseg")  # whose notes would tell
    done = pylogseg("restore", lake, target, "--committed")
    assert (done.code, "timestamps-0: offsets 107 to 165 between two files of the table are in none" in done.text) == (
        0,
        True,
    )


def test_files_that_overlap(examples: Path, tmp_path: Path, target: Path) -> None:
    table = read_arrow(str(examples), "codec-gzip", columns=list(DEFAULT_COLUMNS)).read_all()
    (tmp_path / "lake").mkdir()
    pq.write_table(table.slice(0, 300), tmp_path / "lake" / "b.parquet")
    pq.write_table(table.slice(300), tmp_path / "lake" / "a.parquet")
    offline.restore(tmp_path / "lake", target, committed=True)
    assert records(target) == records(examples, "codec-gzip")
    pq.write_table(table.slice(299), tmp_path / "lake" / "a.parquet")
    with pytest.raises(RequestError, match=r"has offsets 0 to 299, and .* 299 to 504: .* must not overlap"):
        offline.restore(tmp_path / "lake", target, committed=True, overwrite=True)


# ---- from logs ----


@pytest.fixture
def backup(examples: Path, tmp_path: Path) -> Path:
    offline.copy(examples, tmp_path / "backup", topic=["txn-a", "del-records", "codec-gzip"])
    return tmp_path / "backup"


def test_byte_for_byte(backup: Path, target: Path) -> None:
    """Aborted records stay aborted, and deleted ones deleted."""
    done = pylogseg("restore", backup, target, "--json")
    assert states(done) == dict.fromkeys(["codec-gzip-0", "del-records-0", "txn-a-0", "txn-a-1"], "done")
    for name in states(done):
        assert tree(target / name) == tree(backup / name)
    for isolation_level in ("read_uncommitted", "read_committed"):
        assert records(target, isolation_level=isolation_level) == records(backup, isolation_level=isolation_level)
    for name in ("recovery-point", "log-start", "replication"):
        file = f"{name}-offset-checkpoint"
        assert parse_offset_checkpoint((target / file).read_bytes()) == parse_offset_checkpoint(
            (backup / file).read_bytes()
        )
    assert not list(target.glob("*-delete"))


def test_files_of_others_in_a_backup(backup: Path, target: Path) -> None:
    (backup / "notes.csv").write_text("taken on Monday")
    assert pylogseg("restore", backup, target, "txn-a").code == 0
    assert tree(target / "txn-a-0") == tree(backup / "txn-a-0")


def test_names_that_lead_elsewhere(tmp_path: Path, target: Path) -> None:
    for topic, number in (("../x", 0), ("x", -1)):
        columns = {"topic": [topic], "partition": pa.array([number], pa.int32()), "offset": [0], "value": [b"v"]}
        pq.write_table(pa.table(columns), tmp_path / "bad.parquet")
        with pytest.raises(RequestError):
            offline.restore(tmp_path / "bad.parquet", target, committed=True)
    assert list(target.iterdir()) == []


def test_ids_are_those_of_the_target(backup: Path, target: Path) -> None:
    documents.directory(target, "txn-a-0", number=7, cluster="anotherClusterOfTests")
    for path in (target / "txn-a-0").glob("0*"):
        path.unlink()
    own = "AAAAAAAAAAAAAAAAAAAAAQ"
    (target / "txn-a-0" / "partition.metadata").write_text(f"version: 0\ntopic_id: {own}")
    result = offline.restore(backup, target, topic=["txn-a"])
    assert [part_result.state for part_result in result] == ["done", "done"]
    for name in ("txn-a-0", "txn-a-1"):  # of txn-a-1 nothing was there
        assert parse_partition_metadata((target / name / "partition.metadata").read_bytes()).topic_id == own
    assert not [note for note in result.notes if "has the id that it had" in note]
    assert records(target, "txn-a-0") == records(backup, "txn-a-0")


def test_what_is_there(backup: Path, examples: Path, target: Path) -> None:
    assert pylogseg("restore", backup, target, "codec-gzip").code == 0
    before = tree(target)
    expect(pylogseg("restore", backup, target, "codec-gzip"), 0, out="it already exists, with the same records")
    assert tree(target) == before
    assert pylogseg("truncate", target, "codec-gzip-0", "--to", 100).code == 0
    before = tree(target)
    expect(pylogseg("restore", backup, target, "codec-gzip", "del-records"), 2, "it already exists with other records")
    assert tree(target) == before
    assert pylogseg("restore", backup, target, "codec-gzip", "--overwrite").code == 0
    assert records(target) == records(examples, "codec-gzip")


def test_without_a_clean_shutdown(backup: Path, target: Path) -> None:
    documents.directory(target, "codec-lz4-1")
    assert (target / ".kafka_cleanshutdown").exists()
    offline.restore(backup, target, topic=["codec-gzip"])
    assert (target / ".kafka_cleanshutdown").exists()
    (backup / ".kafka_cleanshutdown").unlink()
    result = offline.restore(backup, target, topic=["txn-a"])
    assert not (target / ".kafka_cleanshutdown").exists()
    assert "the backup has no clean shutdown" in " ".join(result.notes)


def test_damage_in_the_backup(backup: Path, target: Path) -> None:
    """Nothing appears, not even what comes before it."""
    log = next((backup / "txn-a-0").glob("*.log"))
    change_byte(log, 90)
    expect(pylogseg("restore", backup, target), 1, str(log))
    assert list(target.iterdir()) == []
    with pytest.raises(CorruptionError):
        offline.restore(backup, target)


def test_a_running_broker(backup: Path, target: Path) -> None:
    for log_dir in (target, backup):
        lock = FolderLock(str(log_dir))
        try:
            expect(pylogseg("restore", backup, target, "txn-a"), 2, "has the lock")
        finally:
            lock.release()
    assert list(target.iterdir()) == []


@pytest.mark.parametrize("kind", ["logs", "table"])
def test_a_dry_run_changes_nothing(kind: str, backup: Path, examples: Path, tmp_path: Path, target: Path) -> None:
    source = backup if kind == "logs" else exported(examples, tmp_path / "lake", "txn-a")
    done = pylogseg("restore", source, target, "txn-a", "-n", *(["--committed"] if kind == "table" else []))
    assert done.code == 0
    assert "dry run: nothing was changed" in done.text
    assert "txn-a-0" in done.text
    assert list(target.iterdir()) == []


def test_refusals(backup: Path, tmp_path: Path, target: Path) -> None:
    with pytest.raises(RequestError, match="options of tables do not apply"):
        offline.restore(backup, target, committed=True)
    with pytest.raises(RequestError, match="no topic or partition 'nobody'"):
        offline.restore(backup, target, topic=["nobody"])
    with pytest.raises(RequestError, match="there is no such folder"):
        offline.restore(backup, tmp_path / "nowhere")
    (target / "notes.txt").touch()
    with pytest.raises(RequestError, match="neither a log directory nor an empty folder"):
        offline.restore(backup, target)


def test_the_same_is_compared(examples: Path, tmp_path: Path, target: Path) -> None:
    """As many records at the same offsets, and one of them another: neither a table nor a log is "unchanged"."""
    lake = exported(examples, tmp_path / "lake", "timestamps", "mixed", "levels")
    table = ["restore", lake, target, "--committed"]
    assert set(states(pylogseg(*table, "--json")).values()) == {"done"}
    assert set(states(pylogseg(*table, "--compression", "zstd", "--json")).values()) == {"unchanged"}
    (file,) = (lake / "topic=levels").rglob("*.parquet")
    before = pq.read_table(file, partitioning=None)
    changes: dict[str, Any] = {
        "key": b"other",
        "value": b"MASKED",
        "timestamp": datetime.datetime(2001, 2, 3, tzinfo=datetime.timezone.utc),
        "headers": [{"key": "h", "value": b"other"}],
        "timestampType": 1,
    }
    for name, other in changes.items():
        column = before.column(name).to_pylist()
        column[200] = other
        at, kind = before.schema.get_field_index(name), before.schema.field(name).type
        changed = pa.array(column, kind)
        pq.write_table(before.set_column(at, before.schema.field(at), changed), file)
        refused = pylogseg(*table)
        assert (refused.code, "levels-0: it already exists with other records" in refused.err) == (2, True), name
    assert set(states(pylogseg(*table, "--overwrite", "--json")).values()) == {"done"}
    assert set(states(pylogseg(*table, "--json")).values()) == {"unchanged"}


def test_logs_are_compared_batch_by_batch(backup: Path, tmp_path: Path, target: Path) -> None:
    assert pylogseg("restore", backup, target, "codec-gzip").code == 0
    other = Path(shutil.copytree(backup, tmp_path / "other"))
    # Other values at the same offsets and times.
    expect(pylogseg("redact", other, "codec-gzip", "--match", ".", "--blank", "value", "--with", "masked"), 0)
    refused = pylogseg("restore", other, target, "codec-gzip")
    assert (refused.code, "already exists with other records" in refused.err) == (2, True)
    for _ in range(2):
        done = pylogseg("restore", other, target, "codec-gzip", "--overwrite", "--json")
        assert states(done) == {"codec-gzip-0": "done"}
    assert records(target) == records(other, "codec-gzip")
    assert states(pylogseg("restore", other, target, "codec-gzip", "--json")) == {"codec-gzip-0": "unchanged"}


class Dies(BaseException):
    """The process ends here."""


def test_a_crash_at_any_rename(backup: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the next restore finds is all or nothing, and it completes it."""
    rename = LocalStorage.rename
    monkeypatch.setattr(Staging, "abort", lambda self: None)  # nobody cleans up behind the dead
    seen = set()
    for dies_at in range(100):
        target = tmp_path / f"{dies_at}" / "target"  # no other log directory is beside it
        shutil.copytree(backup, target, ignore=shutil.ignore_patterns("*.log"))
        left = [dies_at]

        def dying(self: LocalStorage, path: str, new_path: str, left: list[int] = left) -> None:
            if not left[0]:
                raise Dies
            left[0] -= 1
            rename(self, path, new_path)

        monkeypatch.setattr(LocalStorage, "rename", dying)
        try:
            offline.restore(backup, target, topic=["txn-a", "codec-gzip"], overwrite=True)
            break
        except Dies:
            monkeypatch.setattr(LocalStorage, "rename", rename)
            result = offline.restore(backup, target, topic=["txn-a", "codec-gzip"])
            seen.add(tuple(part_result.state for part_result in result))
            assert records(target) == records(backup, "txn-a", "codec-gzip")
            assert [path.name for path in target.iterdir() if ".pylogseg" in path.name or path.suffix == ".tmp"] == []
            is_finished = any("half-way" in note and "txn-a-0" in note for note in result.notes)
            assert is_finished == all(part_result.state == "unchanged" for part_result in result)
    assert seen == {("done",) * 3, ("unchanged",) * 3}
