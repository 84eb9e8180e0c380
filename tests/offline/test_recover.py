"""Tests of cli/recover.py, log/recovery_loss.py, log/recovery_report.py and offline/recovering.py. `pylogseg recover`:
the same files as Kafka's recovery, a report of what went, copies, a dry run that is one.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from helpers import forked
from helpers.checks import some
from helpers.damaged_logs import log_dir_of
from helpers.depth import some_of
from helpers.shell import Done, expect, locked, process, pylogseg, rows
from helpers.trees import contents, tree
from replay import Replay

from pylogseg import encode, read
from pylogseg.errors import PylogsegError
from pylogseg.log.recovery_report import ActionKind
from pylogseg.offline import recover
from pylogseg.offline.options import Options
from pylogseg.offline.recovering import unflushed_bytes

INTERVAL = ("--config", "index.interval.bytes=512")


@pytest.fixture(autouse=True)
def state_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Copies do not go to the home of whoever runs the tests."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


#: But for those of `test_difference` and `test_what_a_broker_does_not_load`.
CASES = sorted(
    ["bad-magic", "bad-snapshot-clean", "bad-timeindex-clean", "bit-epoch", "bit-second",
     "bit-second-clean", "compacted", "gap", "garbage-tail", "huge-length", "intact", "intact-clean",
     "leftover-cleaned", "leftover-deleted", "leftover-swap", "leftover-swap-clean", "leftover-swap-indexes",
     "no-helpers", "no-helpers-clean", "repeated-batch", "starts-at-288", "torn-header",
     "torn-tail", "torn-tail-clean", "transactions", "transactions-torn", "zero-tail"]
)  # fmt: skip


def left_by_kafka(golden: Path, case: str) -> dict[str, bytes]:
    """What the broker left, without what it gave the partition anew (topic id, leader epoch) and will delete."""
    after = contents(golden / "broker-4.3" / "damage" / case / "after")
    return {name: data for name, data in after.items() if not name.endswith((".deleted", "checkpoint", ".metadata"))}


def without_small_files(folder: Path) -> dict[str, bytes]:
    return {name: data for name, data in contents(folder).items() if not name.endswith(("checkpoint", ".metadata"))}


def kinds(done: Done) -> dict[str, int]:
    """How often which action was reported."""
    found: dict[str, int] = {}
    for row in rows(done, "action"):
        found[row["kind"]] = found.get(row["kind"], 0) + 1
    return found


@pytest.mark.parametrize("case", [case for case in CASES if case != "torn-tail-clean"])
def test_damage_as_kafka(golden: Path, tmp_path: Path, case: str) -> None:
    """The same files; a second run finds nothing to do but what stays; what is left has no new damage."""
    folder = log_dir_of(golden, case, tmp_path)
    done = pylogseg("recover", folder, "--json", *INTERVAL)
    assert done.code == int(any(row["level"] == "damage" for row in rows(done, "action")))
    assert without_small_files(folder / "damaged-1") == left_by_kafka(golden, case)
    summary = done.rows[-1]
    assert (summary["type"], summary["failed"], summary["cleanShutdown"]) == ("summary", 0, True)

    before = tree(folder)
    for options in [[]] if case.endswith("-clean") else [[], ["--full"]]:
        again = pylogseg("recover", folder, "--json", *INTERVAL, *options)
        stays = [row for row in rows(done, "action") if row["kind"] in ("garbage", "hidden")]
        assert bool(stays) == (case == "repeated-batch")
        # A gap inside for which there is no reason is named, and a broker starts with it.
        assert (again.code, rows(again, "action")) == (len(stays) or int(case == "gap"), stays)
        assert {n: d for n, (d, _) in tree(folder).items()} == {n: d for n, (d, _) in before.items()}
    broker_keeps = ("bad-magic", "bad-timeindex-clean", "bit-second-clean", "repeated-batch")
    if case not in broker_keeps:
        verified = pylogseg("verify", folder, "--json")
        # Of which nothing tells why it is missing.
        assert verified.code == {"gap": 2, "leftover-deleted": 1}.get(case, 0)
        assert {row["kind"] for row in rows(verified, "finding")} <= {"perhaps-compacted", "missing", "meta-properties"}


def test_difference(golden: Path, tmp_path: Path) -> None:
    """`docs/fidelity.md`: odd bytes at the end of an index that nobody looks into stay; all else is as with Kafka."""
    folder = log_dir_of(golden, "bad-index-clean", tmp_path)
    assert pylogseg("recover", folder, *INTERVAL).code == 0
    found, expected = without_small_files(folder / "damaged-1"), left_by_kafka(golden, "bad-index-clean")
    different = {each for each in {*found, *expected} if found.get(each) != expected.get(each)}
    assert different
    assert all(each.endswith(".index") for each in different)


@pytest.mark.parametrize("case", [*CASES, "misnamed-segment", "bad-epochs-clean"])
def test_dry_run(golden: Path, tmp_path: Path, case: str) -> None:
    """The disk stays as it is, byte and time; and what was foretold comes true."""
    folder = log_dir_of(golden, case, tmp_path)
    before = tree(folder)
    planned = pylogseg("recover", folder, "--dry-run", "--json", *INTERVAL)
    assert tree(folder) == before
    assert not (tmp_path / "state").exists()
    done = pylogseg("recover", folder, "--json", *INTERVAL)
    strip = ("kept",)
    assert [{k: v for k, v in row.items() if k not in strip} for row in rows(planned, "action")] == [
        {k: v for k, v in row.items() if k not in strip} for row in rows(done, "action")
    ]
    assert planned.code == done.code

    foretold = [*rows(planned, "partition")[0].get("changes", []), *planned.rows[-1]["changes"]]
    after = tree(folder)
    real = {}
    for path in {*before, *after}:
        old, new = before.get(path, (None, 0))[0], after.get(path, (None, 0))[0]
        if old != new:
            real[path] = (None if old is None else len(old), None if new is None else len(new))
    assert {change["path"]: (change["before"], change["after"]) for change in foretold} == real


EXPECTED = {
    "torn-tail": ({"cut": 1, "index": 2, "snapshot": 1}, 0),
    "garbage-tail": ({"cut": 1}, 1),
    "zero-tail": ({"cut": 1}, 0),
    "huge-length": ({"cut": 1, "index": 2, "snapshot": 1}, 0),
    "bit-second": ({"cut": 1, "dropped": 3, "index": 2, "snapshot": 1}, 1),
    "bit-epoch": ({"epochs": 1}, 0),
    "intact": ({}, 0),
    "no-helpers": ({"index": 10, "epochs": 1}, 0),
    "no-helpers-clean": ({"index": 10, "epochs": 1}, 0),
    "leftover-cleaned": ({"leftover": 3}, 0),
    "leftover-deleted": ({"leftover": 3, "snapshot": 1}, 0),
    "leftover-swap": ({"replaced": 3, "swapped": 3}, 0),
    "leftover-swap-indexes": ({"swapped": 2}, 0),
    "bad-snapshot-clean": ({"snapshot": 5}, 0),
    "transactions-torn": ({"cut": 1, "dropped": 1, "index": 5, "snapshot": 1}, 1),
}


@pytest.mark.parametrize("case", EXPECTED)
def test_report(golden: Path, tmp_path: Path, case: str) -> None:
    done = pylogseg("recover", log_dir_of(golden, case, tmp_path), "--json", *INTERVAL)
    assert (kinds(done), done.code) == EXPECTED[case]


# ---- copies ----


def test_what_was_cut_is_kept(golden: Path, tmp_path: Path, state_home: Path) -> None:
    """The end of a segment and the segments behind it; the good batches in them can still be read."""
    folder = log_dir_of(golden, "bit-second", tmp_path)
    before = contents(folder / "damaged-1")
    done = pylogseg("recover", folder, "--json", *INTERVAL)
    (run,) = (state_home / "pylogseg" / "kept").iterdir()
    kept = contents(run / "damaged-1")
    tail = "00000000000000000045.log.411-3699"
    assert kept[tail] == before["00000000000000000045.log"][411:]
    for base in (90, 135, 180):
        assert kept[f"{base:020d}.log"] == before[f"{base:020d}.log"]
    listed = [json.loads(line) for line in kept["kept.jsonl"].splitlines()]
    assert {*kept} == {"kept.jsonl", *(row["copy"] for row in listed)}
    assert listed[0]["path"] == str(folder / "damaged-1" / "00000000000000000045.log")
    assert (listed[0]["firstOffset"], listed[0]["nextOffset"]) == (50, 90)
    assert [row["kept"] for row in rows(done, "action")][:4] == [str(run / "damaged-1" / row["copy"]) for row in listed]

    read = pylogseg("cat", run / "damaged-1" / tail, "--on-corrupt", "skip", "--fields", "offset")
    assert [row["offset"] for row in read.rows] == list(range(55, 90))
    behind = pylogseg("cat", run / "damaged-1", "--fields", "offset")
    assert [row["offset"] for row in behind.rows] == list(range(90, 195))


def test_keep_and_no_keep(golden: Path, tmp_path: Path, state_home: Path) -> None:
    for name, options in (("elsewhere", ["--keep", tmp_path / "elsewhere"]), ("none", ["--no-keep"])):
        folder = log_dir_of(golden, "garbage-tail", tmp_path / name)
        tail = (folder / "damaged-1" / "00000000000000000180.log").read_bytes()[-300:]
        done = pylogseg("recover", folder, "--json", *options)
        kept = rows(done, "action")[0]["kept"]
        if name == "none":
            assert kept is None
        else:
            assert Path(kept).read_bytes() == tail
            assert Path(kept).is_relative_to(tmp_path / "elsewhere")
    assert not state_home.exists()
    assert pylogseg("recover", folder, "--no-keep", "--keep", "x").code == 2


def test_zeros_are_not_kept(golden: Path, tmp_path: Path, state_home: Path) -> None:
    done = pylogseg("recover", log_dir_of(golden, "zero-tail", tmp_path), "--json")
    (cut,) = [row for row in rows(done, "action") if row["kind"] == "cut"]
    assert (cut["kept"], cut["level"], cut["firstOffset"]) == (None, "notice", None)
    assert not state_home.exists()


def test_copies_never_lie_where_a_broker_looks(golden: Path, tmp_path: Path) -> None:
    folder = log_dir_of(golden, "torn-tail", tmp_path)
    lone = pylogseg("recover", folder / "damaged-1", "--keep", folder)
    assert (lone.code, "copies cannot be kept in" in lone.err) == (2, True)
    (folder / "recovery-point-offset-checkpoint").write_bytes(b"")
    before = tree(folder)
    (tmp_path / "link").symlink_to(folder)
    for keep in (folder, folder / "kept", folder / "damaged-1" / "x", tmp_path / "link" / "kept"):
        for target in (folder, folder / "damaged-1"):
            done = pylogseg("recover", target, "--keep", keep)
            assert (done.code, tree(folder)) == (2, before), keep
            assert "copies cannot be kept in" in done.err


def test_nothing_is_cut_that_cannot_be_kept(golden: Path, tmp_path: Path) -> None:
    """Not where the copy fails: the partition stays as it was, and the way out is named."""
    folder = log_dir_of(golden, "torn-tail", tmp_path)
    torn = (folder / "damaged-1" / "00000000000000000180.log").read_bytes()
    (tmp_path / "file").write_bytes(b"")
    expect(pylogseg("recover", folder, "--keep", tmp_path / "file" / "kept"), 2, out=["FAILED", "--no-keep"])
    assert (folder / "damaged-1" / "00000000000000000180.log").read_bytes() == torn
    assert not (folder / ".kafka_cleanshutdown").exists()
    assert pylogseg("recover", folder).code == 0


# ---- whole directories ----


@pytest.mark.parametrize("number", [0, 1])
def test_after_a_kill(golden: Path, tmp_path: Path, number: int) -> None:
    """What a killed broker left: nothing acknowledged is lost, and a check finds nothing."""
    source = golden / "broker-4.3" / "unclean"
    folder = shutil.copytree(source / f"data{number}", tmp_path / "data")
    (folder / "lost+found").mkdir()
    expected = json.loads((source / "expected.json").read_text())
    done = pylogseg("recover", folder, "--json", "--jobs", "2")
    assert done.code == 1  # a broker does not start beside the folder that is none of its own
    assert [row["kind"] for row in rows(done, "finding")] == ["foreign-folder"]
    parts = {row["partition"]: row for row in rows(done, "partition")}
    assert parts.pop("lost+found")["state"] == "skipped"
    assert len(parts) == 4
    assert {row["state"] for row in parts.values()} <= {"done", "unchanged"}
    assert min(row["recoveredSegments"] for row in parts.values()) > 0
    for name, last in json.loads((source / "acked.json").read_text()).items():
        if name in parts:
            assert parts[name]["logEnd"] > last
    ends = {
        f"{topic}-{number}": part["latest"]["offset"]
        for topic, row in expected["topics"].items()
        for number, part in row["partitions"].items()
    }
    assert {name: row["logEnd"] for name, row in parts.items()} == {name: ends[name] for name in parts}
    assert {"broker": (folder / ".kafka_cleanshutdown").exists(), "lock": (folder / ".lock").exists()} == {
        "broker": True,
        "lock": False,
    }
    (folder / "lost+found").rmdir()
    verified = rows(pylogseg("verify", folder, "--json"), "finding")
    assert {row["kind"] for row in verified} <= {"not-here"}  # the metadata log, which is in the other directory
    before = contents(folder)
    again = pylogseg("recover", folder, "--json")
    assert (rows(again, "action"), contents(folder), again.rows[-1]["unchanged"]) == ([], before, 4)
    assert again.rows[-1]["recoveredSegments"] == 0


@pytest.mark.parametrize("case", ["codecs", "txn", "compact-3-cleaned", "retention"])
def test_after_an_orderly_stop(golden: Path, tmp_path: Path, case: str) -> None:
    """Files that wait for their removal go, indexes and logs stay as they are, and the marker comes back."""
    for number in (0, 1):
        folder = tmp_path / f"data{number}"
        shutil.copytree(golden / "broker-4.3" / case / folder.name, folder)
        before = contents(folder)
        done = pylogseg("recover", folder, "--json")
        after = contents(folder)
        assert done.code == 0
        # A leader epoch without records goes, as in a broker.
        assert set(kinds(done)) <= {"leftover", "epochs", "snapshot"}
        assert done.rows[-1]["recoveredSegments"] == done.rows[-1]["failed"] == 0
        for row in some(rows(done, "partition")):
            if row["state"] == "skipped":
                assert row["partition"].startswith("__cluster_metadata") or "." in row["partition"]
        same = {n: d for n, d in before.items() if not n.endswith(".deleted")}
        changed = {n.rpartition("/")[2] for n in {*same, *after} if same.get(n) != after.get(n)}
        assert all(n.endswith(("-checkpoint", ".snapshot")) for n in changed), changed
        # The controller trusts a broker that comes back with the epoch it knows.
        assert after[".kafka_cleanshutdown"] == before[".kafka_cleanshutdown"] != b'{"version":0,"brokerEpoch":-1}'


# ---- what stands in the way ----


def test_refuses_while_somebody_writes(golden: Path, tmp_path: Path) -> None:
    folder = log_dir_of(golden, "torn-tail", tmp_path)
    (folder / "recovery-point-offset-checkpoint").write_bytes(b"")
    with locked(folder) as pid:
        before = tree(folder)
        for target in (folder, folder / "damaged-1"):
            done = pylogseg("recover", target)
            assert (done.code, done.text) == (2, "")
            assert f"process {pid} has the lock" in done.err
            assert "stop it first" in done.err
            done = pylogseg("recover", target, "--dry-run")
            assert done.code == 0
            assert f"process {pid} has the lock, a broker or another writer: the files may" in done.text
        assert tree(folder) == before
    assert pylogseg("recover", folder).code == 0  # a lock file that is left of a killed process locks nobody out


def test_what_a_broker_does_not_load(golden: Path, tmp_path: Path) -> None:
    """One partition that cannot be loaded does not stop the others; there is no marker then."""
    folder = log_dir_of(golden, "bad-epochs-clean", tmp_path)
    damage = golden / "broker-4.3" / "damage"
    shutil.copytree(damage / "torn-tail" / "in", folder / "another-0")
    shutil.copytree(damage / "misnamed-segment" / "in", folder / "named-0")
    shutil.copytree(damage / "intact" / "in", folder / "zebra-0")
    shutil.copytree(damage / "intact" / "in", folder / "whose-0")
    (folder / "whose-0" / "partition.metadata").write_bytes(b"version: 0\n")
    (folder / ".kafka_cleanshutdown").unlink()
    points = b"0\n2\ndamaged 1 100\nzebra 0 90\n"
    (folder / "recovery-point-offset-checkpoint").write_bytes(points)
    done = expect(pylogseg("recover", folder, "--json", "--jobs", "2", *INTERVAL), 1)
    states = {row["partition"]: row["state"] for row in rows(done, "partition")}
    assert states.pop("whose-0") == "failed"
    assert states == {"another-0": "done", "damaged-1": "failed", "named-0": "failed", "zebra-0": "unchanged"}
    failed = {row["partition"]: row for row in rows(done, "partition") if row["state"] == "failed"}
    assert "leader-epoch-checkpoint: at position 0" in failed["damaged-1"]["reason"]
    assert "reindex DIR NAME --only epochs" in failed["damaged-1"]["remedy"]
    assert "00000000000000001180.log" in failed["named-0"]["reason"]
    assert "offset 184 is below 1180" in failed["named-0"]["reason"]
    assert "partition.metadata" in failed["whose-0"]["reason"]
    assert failed["whose-0"]["remedy"] == "write the file again, with the ids that the cluster knows"
    assert not (folder / ".kafka_cleanshutdown").exists()
    left = (folder / "recovery-point-offset-checkpoint").read_text().split("\n")
    assert {"damaged 1 100", "zebra 0 195", "another 0 190"} <= set(left)  # where the next recovery has to begin
    text = pylogseg("recover", folder).text
    assert "FAILED" in text
    assert "a broker will recover this log directory" in text

    (folder / "damaged-1" / "leader-epoch-checkpoint").unlink()
    shutil.rmtree(folder / "named-0")
    shutil.rmtree(folder / "whose-0")
    done = pylogseg("recover", folder)  # the runs before had no high watermark of it to write
    assert (done.code, "high watermark is noted for it, so it is the log's start, 0, as for a broker" in done.text) == (
        1,
        True,
    )
    assert (folder / ".kafka_cleanshutdown").exists()


def test_an_unreadable_checkpoint(golden: Path, tmp_path: Path) -> None:
    """It is taken for empty, and said, also by the exit code; the next one is whole."""
    folder = log_dir_of(golden, "intact", tmp_path)
    (folder / "recovery-point-offset-checkpoint").write_bytes(b"what is this\n")
    done = pylogseg("recover", folder, *INTERVAL)
    assert done.code == 1
    assert "recovery-point-offset-checkpoint: at position 0" in done.text
    assert "taken for empty" in done.text
    assert b"damaged 1 195" in (folder / "recovery-point-offset-checkpoint").read_bytes()


def test_high_watermarks_behind_the_end(golden: Path, tmp_path: Path) -> None:
    folder = log_dir_of(golden, "torn-tail", tmp_path)
    (folder / "replication-offset-checkpoint").write_bytes(b"0\n1\ndamaged 1 195\n")
    assert pylogseg("recover", folder, *INTERVAL).code == 1  # what the followers had is gone
    assert (folder / "replication-offset-checkpoint").read_bytes() == b"0\n1\ndamaged 1 190\n"
    assert {row["kind"] for row in rows(pylogseg("verify", folder, "--json"), "finding")} == {"meta-properties"}


def test_a_folder_alone(golden: Path, tmp_path: Path) -> None:
    """A partition that lies in no log directory: nothing is put beside it."""
    shutil.copytree(golden / "broker-4.3" / "damage" / "torn-tail" / "in", tmp_path / "alone" / "copy of a partition")
    done = pylogseg("recover", tmp_path / "alone" / "copy of a partition", "--json", *INTERVAL)
    assert (done.code, rows(done, "partition")[0]["logEnd"]) == (0, 190)
    assert os.listdir(tmp_path / "alone") == ["copy of a partition"]


def test_one_partition_of_a_directory(golden: Path, tmp_path: Path) -> None:
    """Its recovery point moves; the others are still to be recovered, so there is no marker."""
    folder = log_dir_of(golden, "torn-tail", tmp_path)
    shutil.copytree(folder / "damaged-1", folder / "other-0")
    (folder / "recovery-point-offset-checkpoint").write_bytes(b"0\n1\nother 0 45\n")
    (folder / "replication-offset-checkpoint").write_bytes(b"0\n2\nother 0 45\ndamaged 1 45\n")
    assert pylogseg("recover", folder / "damaged-1", *INTERVAL).code == 0
    assert not (folder / ".kafka_cleanshutdown").exists()
    text = (folder / "recovery-point-offset-checkpoint").read_text()
    assert {"other 0 45", "damaged 1 190"} <= set(text.split("\n"))


@pytest.mark.parametrize(
    ("target", "options", "said"),
    [
        ("empty", [], "neither a log directory nor the folder of a partition"),
        ("data", ["-c", "index.interval.byte=1"], "Did you mean 'index.interval.bytes'?"),
        ("data", ["-c", "index.interval.bytes"], "KEY=VALUE"),
        ("data", ["-c", "producer.id.expiration.ms=soon"], "expected an integer"),
        ("missing", [], "does not exist"),
    ],
)
def test_wrong_usage(golden: Path, tmp_path: Path, target: str, options: list[str], said: str) -> None:
    folder = log_dir_of(golden, "torn-tail", tmp_path)
    (folder / "meta.properties").write_bytes(b"version=1\n")
    (tmp_path / "empty").mkdir()
    before = tree(folder)
    done = pylogseg("recover", tmp_path / target, *options)
    assert (done.code, tree(folder)) == (2, before)
    assert said in done.err


def test_full(golden: Path, tmp_path: Path) -> None:
    """What an orderly stop left is trusted, unless it is asked for: then damage inside comes to light."""
    folder = log_dir_of(golden, "bit-second-clean", tmp_path)
    assert pylogseg("recover", folder, *INTERVAL).code == 0
    done = pylogseg("recover", folder, "--full", "--json", *INTERVAL)
    assert (done.code, kinds(done)["dropped"], done.rows[-1]["damaged"]) == (1, 3, 4)
    assert (folder / ".kafka_cleanshutdown").read_bytes() == b'{"version":0,"brokerEpoch":-1}'  # records were lost


def test_interrupted(golden: Path, tmp_path: Path) -> None:
    """Ctrl-C ends it with code 130; whatever was reached, a later run brings everything in order."""
    source = golden / "broker-4.3" / "damage" / "transactions" / "in"
    codes: list[int] = []
    for turn in range(20):
        folder = tmp_path / f"data-{turn}"
        for number in range(60):
            shutil.copytree(source, folder / f"many-{number}")
        for wait in (0.01, 0.1):
            done = process("recover", folder, "--no-keep", "--jobs", "2", "--json")
            assert done.stdout is not None
            done.stdout.readline()
            time.sleep(wait)
            done.send_signal(signal.SIGINT)
            done.communicate(timeout=60)
            codes.append(done.returncode)
            if done.returncode == 130:
                assert not (folder / ".kafka_cleanshutdown").exists()
                assert not (folder / ".lock").exists()
        if 130 in codes:
            break
    assert {130} <= {*codes} <= {0, 130}, "a busy machine lets us be too late, but not each time"
    assert pylogseg("recover", folder, "--no-keep").code == 0
    first = contents(folder / "many-0")
    assert all(contents(folder / f"many-{number}") == first for number in range(60))
    assert (folder / ".kafka_cleanshutdown").exists()


# ---- the golden lists of operations ----


def put(folder: Path, name: str, offset: int) -> None:
    """A checkpoint of the one partition."""
    (folder / name).write_text(f"0\n1\nt 0 {offset}\n")


@pytest.mark.parametrize("number", some_of(range(35), 12))
def test_as_the_engine_in_a_replay(golden: Path, tmp_path: Path, number: int) -> None:
    """Where a replay opens a log that was left in disorder, the command leaves the files that the replay leaves.

    `test_log_replay` compares that replay with a real Kafka's.
    """
    names = sorted(path.name for path in golden.glob("replay/recover-*"))
    assert len(names) == 35
    lines = (golden / "replay" / names[number] / "ops.jsonl").read_text().splitlines()
    operations = [json.loads(line) for line in lines]
    at = next(i for i, op in enumerate(operations) if op["op"] == "open")
    folder = tmp_path / "data"
    session = Replay(folder)
    for op in operations[:at]:
        session.run(op)
    opened, config, now = operations[at], session.config, session.clock.now_ms()
    assert os.listdir(folder) == ["t-0"]
    if opened.get("clean", False):
        (folder / ".kafka_cleanshutdown").write_bytes(b"")
    put(folder, "recovery-point-offset-checkpoint", opened.get("recovery_point", 0))
    put(folder, "log-start-offset-checkpoint", opened.get("log_start", 0))
    shutil.copytree(folder, tmp_path / "replayed")

    session.root, session.folder = tmp_path / "replayed", tmp_path / "replayed" / "t-0"
    try:
        for op in (opened, {"op": "flush"}, {"op": "close"}):
            session.run(op)
        session.scheduler.advance(config.file_delete_delay_ms)
        failed = None
    except PylogsegError as error:
        failed = error
    given: Any = {"config": config.to_properties(), "now_ms": now}
    total, done = unflushed_bytes(str(folder), Options(), False), list[int]()
    (result,) = recover(folder, keep=str(tmp_path / "kept"), on_bytes=done.append, **given)
    if failed is not None:
        assert (result.state, type(result.error)) == ("failed", type(failed))
        return
    assert contents(folder / "t-0") == contents(tmp_path / "replayed" / "t-0")
    split = any(action.kind is ActionKind.SPLIT for action in result.report.actions)
    assert sum(done) <= total or result.report.rebuilt_indexes or split  # such segments are read twice
    (again,) = recover(folder, **given)
    assert (again.state, again.report.actions, again.report.recovered_segments) == ("unchanged", [], 0)


def overflowed(folder: Path, base: int) -> int:
    """A log whose only segment, which begins at an offset, holds one that is too far from it; that offset."""
    far = base + 2**31 + 5
    folder.mkdir(parents=True)
    batches = [encode([(1, b"k", b"v%d" % offset)], base_offset=offset) for offset in (base, base + 1, far)]
    (folder / f"{base:020d}.log").write_bytes(b"".join(batches))
    return far


@pytest.mark.parametrize("base", [0, 1000])
def test_an_overflowed_segment(tmp_path: Path, base: int) -> None:
    """It is split; no record is lost, and so no copy is made."""
    folder = tmp_path / "data" / "t-0"
    far = overflowed(folder, base)
    (tmp_path / "data" / "recovery-point-offset-checkpoint").write_bytes(b"")
    before = tree(tmp_path / "data")
    planned = pylogseg("recover", tmp_path / "data", "--dry-run", "--json")
    assert tree(tmp_path / "data") == before
    done = pylogseg("recover", tmp_path / "data", "--json")
    assert (done.code, kinds(done)["split"], done.rows[-1]["kept"]) == (0, 1, 0)
    assert kinds(planned) == kinds(done)
    assert sorted(path.name for path in folder.glob("*.log*")) == [f"{base:020d}.log", f"{far:020d}.log"]
    assert [record.offset for record in read(str(folder))] == [base, base + 1, far]
    assert pylogseg("recover", tmp_path / "data", "--full", "--json").rows[-1]["actions"] == 0


def test_an_orphan_index(golden: Path, tmp_path: Path) -> None:
    folder = log_dir_of(golden, "intact", tmp_path)
    (folder / "damaged-1" / "00000000000000000100.timeindex").write_bytes(bytes(12))
    done = pylogseg("recover", folder, "--json", *INTERVAL)
    assert (done.code, kinds(done)) == (0, {"orphan": 1})
    assert not (folder / "damaged-1" / "00000000000000000100.timeindex").exists()


def test_a_reader_that_goes_away_does_not_end_the_work(examples: Path, tmp_path: Path) -> None:
    """``| head -1``: all partitions are recovered, and the exit code is that of the whole."""
    disk = Path(shutil.copytree(examples, tmp_path / "kafka"))
    logs = [max(folder.glob("*.log")) for folder in sorted(disk.glob("codec-*"))]
    for log in logs:
        log.write_bytes(log.read_bytes() + b"\0" * 500)
    running = forked.process("recover", disk, "--no-keep", "--full")
    running.stdout.close()
    running.stderr.read()
    assert running.wait() == 0
    assert not any(log.read_bytes().endswith(b"\0" * 500) for log in logs)
    (disk / "lost+found").mkdir()
    running = forked.process("recover", disk, "--no-keep", "--dry-run")
    running.stdout.close()
    running.stderr.read()
    assert running.wait() == 1


@pytest.fixture
def cut(examples: Path, tmp_path: Path) -> Path:
    """A log directory of which the last batch of one log is cut off; its checkpoints know the whole log."""
    folder = Path(shutil.copytree(examples, tmp_path / "kafka"))
    path = folder / "codec-none-1" / f"{382:020}.log"
    os.truncate(path, path.stat().st_size - 5)
    return folder


def test_what_a_broker_would_not_reach_stays_until_the_segment_is_read(cut: Path) -> None:
    """The index ends at the batch that is cut off: a broker that trusts the marker ends the log at 382."""
    before = contents(cut / "codec-none-1")
    done = pylogseg("recover", cut, "--json", *INTERVAL)
    (failed,) = [row for row in rows(done, "partition") if row["state"] == "failed"]
    assert done.code == 1
    assert (failed["partition"], "--full" in failed["remedy"]) == ("codec-none-1", True)
    assert contents(cut / "codec-none-1") == before
    assert pylogseg("verify", cut).code == 1  # the checkpoints still say what there was

    done = expect(pylogseg("recover", cut, "--json", "--full", *INTERVAL), 1)
    (lost,) = [row for row in rows(done, "action") if row["level"] == "damage"]
    assert (lost["kind"], lost["firstOffset"]) == ("cut", 500)
    assert pylogseg("verify", cut, "codec-none-1").code == 0


def test_a_cut_below_what_was_flushed_is_a_loss(cut: Path) -> None:
    (cut / ".kafka_cleanshutdown").unlink()
    done = pylogseg("recover", cut, "--json", *INTERVAL)
    (lost,) = [row for row in rows(done, "action") if row["kind"] == "cut"]
    assert (done.code, lost["level"]) == (1, "damage")
    assert "the recovery point says 505 and the high watermark says 505" in lost["reason"]
    assert "replica" in lost["remedy"]
