"""Tests of cli/compact.py, cli/delete_records.py, cli/offline.py, cli/retain.py, log/retention.py,
offline/compacting.py, offline/copying/into.py, offline/deleting_records.py, offline/options.py, offline/partition.py,
offline/retaining.py, offline/running.py, offline/settings.py and transfer/checkpoints.py. The frame of the offline
commands, and compact, retain and delete-records on the directories of a real broker.
"""

from __future__ import annotations

import datetime
import errno
import json
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.checks import some, wait_for
from helpers.damaged_logs import change_byte, log_dir_of
from helpers.depth import IS_DEEP, some_of
from helpers.shell import Done, expect, locked, process, pylogseg, rows
from helpers.trees import contents, tree

from pylogseg import offline, open_dir, open_log, read, scan
from pylogseg.disk.target import Target
from pylogseg.env.locks import FolderLock
from pylogseg.env.storage import LocalStorage
from pylogseg.errors import CorruptionError, RequestError, StorageError
from pylogseg.format.files.checkpoint import parse_offset_checkpoint
from pylogseg.format.files.status import parse_partition_metadata
from pylogseg.format.messages.framing import decode_framed
from pylogseg.log.log import Log
from pylogseg.offline.deleting_records import parse_offset_file
from pylogseg.offline.options import Options
from pylogseg.offline.settings import Settings
from pylogseg.values.internal.cluster import ClusterMetadata

#: A minute behind the cleanings of the golden directories.
NOW = "2026-11-21T06:40:00Z"
NOW_MS = 1_795_243_200_000


def copied(golden: Path, name: str, tmp_path: Path) -> Path:
    """Both log directories of a golden broker."""
    shutil.copytree(golden / "broker-4.3" / name, tmp_path / name)
    return tmp_path / name


# ---- settings ----

CLUSTERS = ["codecs", "txn", "compact-0-before", "compact-3-cleaned", "retention", "metadata", "metadata-trimmed"]


@pytest.mark.parametrize("name", CLUSTERS)
def test_metadata_as_the_broker_says(golden: Path, name: str) -> None:
    """Ids and settings of all topics are those that the broker itself gave, from a snapshot or without one."""
    folder = golden / "broker-4.3" / name
    expected = json.loads((folder / "expected.json").read_text())["topics"]
    metadata = ClusterMetadata.read(str(folder / "data0" / "__cluster_metadata-0"))
    assert metadata.topic_ids == {topic: row["topicId"] for topic, row in expected.items()}
    for topic, row in expected.items():
        assert metadata.of_topic(topic) == row["config"]
        for number in row["partitions"]:
            assert metadata.replicas[row["topicId"], int(number)] == (1,)
    for path in folder.glob("data?/*-[0-9]/partition.metadata"):
        topic = path.parent.name.rpartition("-")[0]
        if topic != "__cluster_metadata":
            assert parse_partition_metadata(path.read_bytes()).topic_id == metadata.topic_ids[topic]


def test_metadata_with_and_without_its_snapshots(golden: Path, tmp_path: Path) -> None:
    source = golden / "broker-4.3" / "metadata" / "data0" / "__cluster_metadata-0"
    shutil.copytree(source, tmp_path / source.name)
    for path in (tmp_path / source.name).glob("*.checkpoint"):
        path.unlink()
    assert ClusterMetadata.read(str(tmp_path / source.name)) == ClusterMetadata.read(str(source))


def test_settings_in_their_order(golden: Path, tmp_path: Path) -> None:
    """Flags, then the topic's own, then what the broker was told while it ran, its file, the defaults."""
    log_dir = copied(golden, "metadata", tmp_path) / "data1"
    file = tmp_path / "server.properties"
    file.write_text("log.retention.hours=2\nlog.cleaner.threads=4\nlog.cleaner.dedupe.buffer.size=2000000\n"
                    "log.segment.bytes=1048576\nlog.dirs=/nowhere\n")  # fmt: skip
    metadata = str(log_dir.parent / "data0" / "__cluster_metadata-0")
    options = Options(
        config={"segment.ms": "77", "log.cleaner.backoff.ms": "5"},
        server_properties=str(file),
        cluster_metadata=metadata,
    )
    place = Target.find(options.storage, str(log_dir))
    settings = Settings(place, options)
    config = settings.config_of("meta-1")
    assert (config.segment_ms, config.max_message_bytes, config.retention_ms) == (77, 100_001, -1)
    assert settings.config_of("unknown").retention_ms == 7_200_000
    assert (config.segment_bytes, settings.config_of("unknown").segment_bytes) == (2_097_152, 1_048_576)
    broker = settings.broker
    assert (broker.log_cleaner_threads, broker.log_cleaner_backoff_ms) == (1, 5)
    assert broker.log_cleaner_dedupe_buffer_size == 2_000_000
    assert settings.sources == [
        "segment.ms=77, log.cleaner.backoff.ms=5",
        metadata,
        str(file),
    ]
    assert settings.replicas_of("meta-1", 0) == (1,)
    assert settings.config_of("__consumer_offsets").cleanup_policy == ("compact",)


def test_metadata_beside_is_not_taken(golden: Path, tmp_path: Path) -> None:
    """Settings are the directory's own or named: what happens to lie beside it is a hint at most."""
    log_dir = copied(golden, "compact-0-before", tmp_path) / "data1"
    beside = f"{log_dir.parent}/data0/__cluster_metadata-0"
    settings = Settings(Target.find(LocalStorage(), str(log_dir)), Options())
    assert settings.sources == []
    assert settings.why_unknown("cmp-lz4").endswith(f"has no __cluster_metadata-0; {beside} is of the same cluster")
    assert settings.why_unknown("__consumer_offsets") == ""
    named = Options(cluster_metadata=str(log_dir.parent / "data0"))
    settings = Settings(Target.find(LocalStorage(), str(log_dir)), named)
    assert settings.sources == [beside]
    assert (settings.why_unknown("cmp-lz4"), settings.config_of("cmp-lz4").compact) == ("", True)
    file = tmp_path / "server.properties"
    file.write_text(f"log.dirs={log_dir.parent}/data0,{log_dir}\n")
    by_file = Options(server_properties=str(file))
    assert Settings(Target.find(LocalStorage(), str(log_dir)), by_file).sources == [beside, str(file)]
    meta = log_dir.parent / "data0" / "meta.properties"
    meta.write_text(meta.read_text().replace("cluster.id=", "cluster.id=another"))
    assert "of the same cluster" not in Settings(Target.find(LocalStorage(), str(log_dir)), Options()).why_unknown("a")
    for wrong in (str(tmp_path), "nowhere"):
        with pytest.raises(RequestError, match="there is no folder __cluster_metadata-0"):
            Settings(Target.find(LocalStorage(), str(log_dir)), Options(cluster_metadata=wrong))


def test_damaged_metadata(golden: Path, tmp_path: Path) -> None:
    """What the topics say is not known then, and nothing is done as if they said nothing."""
    log_dir = copied(golden, "compact-0-before", tmp_path) / "data0"
    log = max((log_dir / "__cluster_metadata-0").glob("*.log"), key=lambda path: path.stat().st_size)
    change_byte(log, 300)
    before = tree(log_dir)
    done = pylogseg("compact", log_dir)
    assert (done.code, tree(log_dir)) == (2, before)
    assert "--cluster-metadata none" in done.err
    done = pylogseg("compact", log_dir, "--cluster-metadata", "none", "--dry-run", "--json")
    states = {row["partition"]: (row["state"], row["notDone"]) for row in rows(done, "partition")}
    assert (done.code, states["cmp-lz4-0"]) == (1, ("skipped", True))


VALUES = [bytes.fromhex("0102000466"), b"\x01\x02\x00", b"\x02", b"", b"\x01\x03\x00" + bytes(20) + b"\xff" * 5]


@pytest.mark.parametrize("value", VALUES)
def test_malformed_metadata_records(value: bytes) -> None:
    with pytest.raises(CorruptionError, match="metadata record of"):
        decode_framed("__cluster_metadata", value)


def test_cut_metadata_records(golden: Path) -> None:
    """No record of a real log can be cut without that being seen."""
    folder = golden / "broker-4.3" / "metadata" / "data0" / "__cluster_metadata-0"
    for record in read(folder):
        assert record.value is not None
        assert decode_framed("__cluster_metadata", record.value).trailing == b""
        for size in range(len(record.value)):
            with pytest.raises(CorruptionError):
                decode_framed("__cluster_metadata", record.value[:size])


# ---- what is chosen ----


def test_names_and_numbers(golden: Path) -> None:
    log_dir = golden / "broker-4.3" / "metadata" / "data1"

    def chosen(*arguments: object) -> list[str]:
        done = expect(pylogseg("retain", log_dir, "--dry-run", "--json", "--ms", "1", "--force", *arguments), 0)
        return [row["partition"] for row in rows(done, "partition") if row["state"] != "skipped"]

    assert chosen("meta-2") == ["meta-2-1", "meta-2-2", "meta-2-3"]
    assert chosen("meta-2", "--partition", 2) == chosen("-t", "meta-2-2") == ["meta-2-2"]
    assert chosen("meta-1[45]") == ["meta-14-1", "meta-15-1"]
    assert len(chosen()) == len([p for p in open_dir(str(log_dir)).partitions if not p.state])
    for wrong in (["nothing"], ["meta-2", "-p", "0"]):
        done = pylogseg("retain", log_dir, "--dry-run", "--ms", "1", *wrong)
        assert (done.code, done.text) == (2, "")


def test_one_folder(golden: Path, tmp_path: Path) -> None:
    """A partition of a log directory changes its entries in the checkpoints; one that lies in none changes itself."""
    log_dir = copied(golden, "compact-0-before", tmp_path) / "data0"
    points = (log_dir / "recovery-point-offset-checkpoint").read_bytes()
    assert pylogseg("compact", log_dir / "cmp-zstd-0", "--now", NOW).code == 0
    assert (log_dir / "cleaner-offset-checkpoint").read_bytes() == b"0\n1\ncmp-zstd 0 1655\n"
    assert (log_dir / "recovery-point-offset-checkpoint").read_bytes() == points
    (tmp_path / "alone").mkdir()
    shutil.move(log_dir / "cmp-lz4-0", tmp_path / "alone" / "a copy")
    before = list(read(tmp_path / "alone" / "a copy"))
    done = pylogseg("compact", tmp_path / "alone" / "a copy", "-c", "cleanup.policy=compact", "--now", NOW)
    assert (done.code, os.listdir(tmp_path / "alone")) == (0, ["a copy"])
    after = list(read(tmp_path / "alone" / "a copy"))
    assert 0 < len(after) < len(before)
    assert {r.key: r.value for r in after} == {r.key: r.value for r in before}
    done = pylogseg("delete-records", tmp_path / "alone" / "a copy", "--offset", 1600)
    assert (done.code, "lies in no log directory" in done.text) == (1, True)


# ---- as the broker ----


def batches(path: Path) -> list[Any]:
    """Headers of a segment; of a batch with a delete horizon without the time, which is that of the cleaning."""
    found = scan(path.read_bytes()).batches
    base = found.base_timestamp.copy()
    base[(found.attributes & 0x40) != 0] = 0
    columns = (found.base_offset, found.last_offset, found.count, found.attributes, found.producer_id,
               found.producer_epoch, found.base_sequence, found.max_timestamp, base)  # fmt: skip
    return list(zip(*(column.tolist() for column in columns), strict=True))


@pytest.mark.parametrize(
    ("before", "after"), [("0-before", "1-cleaned"), ("2-before", "3-cleaned"), ("4-before", "5-cleaned")]
)
def test_compact_as_the_broker(golden: Path, tmp_path: Path, before: str, after: str) -> None:
    """The same batches in the same segments as after the broker's own cleaning, and the same checkpoint of it."""
    folder, expected = copied(golden, f"compact-{before}", tmp_path), golden / "broker-4.3" / f"compact-{after}"
    metadata = golden / "broker-4.3" / "compact-2-before" / "data0"  # data1 has none, nor have folders 4 and 5
    compared = 0
    for log_dir in sorted(folder.glob("data?")):
        expect(pylogseg("compact", log_dir, "--now", NOW, "--json", "--cluster-metadata", metadata), 0)
        for partition in sorted((expected / log_dir.name).glob("cmp-*")):
            want = {path.name: path for path in sorted(partition.glob("*.log"))}
            got = {path.name: path for path in sorted((log_dir / partition.name).glob("*.log"))}
            assert list(got) == list(want), partition.name
            for name, path in want.items():
                assert batches(got[name]) == batches(path), (partition.name, name)
                if not any(codec in partition.name for codec in ("gzip", "lz4", "snappy", "zstd")):
                    assert got[name].stat().st_size == path.stat().st_size
            assert list(read(log_dir / partition.name)) == list(read(partition))
            compared += 1
        if (expected / log_dir.name / "cleaner-offset-checkpoint").exists():
            checkpoints = [parse_offset_checkpoint((root / log_dir.name / "cleaner-offset-checkpoint").read_bytes())
                           for root in (folder, expected)]  # fmt: skip
            here = [partition.name[:-2] for partition in (expected / log_dir.name).glob("cmp-*")]
            ours, theirs = ({k: v for k, v in each.items() if k[0] in here} for each in checkpoints)
            assert ours == theirs
    assert compared >= 2


# ---- a dry run, and a copy ----

#: Not ten megabytes for each index that is made.
SMALL = "segment.index.bytes=4096"
COMMANDS = [
    ("compact-0-before", ["compact", "-c", SMALL]),
    ("compact-2-before", ["compact", "cmp-[gi]*", "-c", SMALL, "--include-active", "--map-memory", "4k"]),
    ("retention", ["retain", "--ms", "1000", "-c", SMALL]),
    ("codecs", ["retain", "--bytes", "40k", "-c", SMALL]),
    ("codecs", ["delete-records", "codec-*", "--offset", "-1", "-c", SMALL]),
]


def changes_of(done: Done) -> dict[str, tuple[int | None, int | None]]:
    """Sizes before and after, by path, as a dry run foretells them."""
    foretold = [change for row in rows(done, "partition") for change in row.get("changes", [])]
    foretold += done.rows[-1]["changes"]
    return {change["path"]: (change["before"], change["after"]) for change in foretold}


@pytest.mark.parametrize(("name", "command"), COMMANDS if IS_DEEP else COMMANDS[1:4])
def test_a_dry_run_foretells_what_is_done(golden: Path, tmp_path: Path, name: str, command: list[str]) -> None:
    """The disk stays as it is, byte and time; then what was foretold comes true: files, counts and checkpoints."""
    verb, *options = command
    known = ["--cluster-metadata", golden / "broker-4.3" / name / "data0"]
    for log_dir in some(sorted(copied(golden, name, tmp_path).glob("data?"))):
        before = tree(log_dir)
        arguments = [verb, log_dir, *options, *known, "--json", "--now", NOW]
        planned = pylogseg(*arguments, "--dry-run")
        assert tree(log_dir) == before
        done = pylogseg(*arguments)
        assert planned.code == done.code == 0
        after = tree(log_dir)
        real = {
            path: (None if old is None else len(old), None if new is None else len(new))
            for path in {*before, *after}
            for old, new in [(before.get(path, (None, 0))[0], after.get(path, (None, 0))[0])]
            if old != new
        }
        assert changes_of(planned) == real
        without = [[{k: v for k, v in row.items() if k not in ("changes", "dryRun")} for row in each.rows]
                   for each in (planned, done)]  # fmt: skip
        assert without[0] == without[1]
        assert rows(done, "partition")
        assert done.rows[-1]["cleanShutdown"] is True


@pytest.mark.parametrize(("name", "command"), some_of(COMMANDS, 3))
def test_into_leaves_the_input_alone(golden: Path, tmp_path: Path, name: str, command: list[str]) -> None:
    """Not a byte and no time of the input changes; the copy is what the input would have become."""
    verb, *options = [*command, "--cluster-metadata", str(golden / "broker-4.3" / name / "data0")]
    for log_dir in some(sorted(copied(golden, name, tmp_path).glob("data?"))):
        before, into = tree(log_dir), tmp_path / f"into-{log_dir.name}"
        done = expect(pylogseg(verb, log_dir, *options, "--json", "--now", NOW, "--into", into), 0)
        assert tree(log_dir) == before
        assert sorted(os.listdir(tmp_path)) == sorted(
            [name, *(f"into-data{i}" for i in range(2) if into.name >= f"into-data{i}")]
        )
        told = [row["path"] for row in rows(done, "partition")] + [row["path"] for row in rows(done, "action")]
        assert all(path.startswith(str(into)) for path in told)
        assert done.rows[-1]["logDirectory"] == str(into)
        copy = contents(into)
        assert pylogseg(verb, log_dir, *options, "--now", NOW).code == 0
        left = {path: data for path, data in contents(log_dir).items() if path in copy}
        for path in [p for p in copy if "checkpoint" in p and "/" not in p]:  # only of what was copied
            ours, whole = parse_offset_checkpoint(copy.pop(path)), parse_offset_checkpoint(left.pop(path))
            assert ours == {key: whole[key] for key in ours}
            partitions = {f"{topic}-{number}" for topic, number in ours}
            assert partitions <= set(os.listdir(into))
        assert copy == left
        assert (into / "meta.properties").read_bytes() == (log_dir / "meta.properties").read_bytes()


def test_into_with_names_and_where_it_may_go(golden: Path, tmp_path: Path) -> None:
    log_dir = golden / "broker-4.3" / "compact-0-before" / "data0"
    (tmp_path / "empty").mkdir()
    assert pylogseg("compact", log_dir, "cmp-lz4", "--into", tmp_path / "empty", "--now", NOW).code == 0
    assert [name for name in os.listdir(tmp_path / "empty") if name.endswith("-0")] == ["cmp-lz4-0"]
    assert (tmp_path / "empty" / "recovery-point-offset-checkpoint").read_bytes() == b"0\n1\ncmp-lz4 0 1705\n"
    for there in (tmp_path / "empty", tmp_path / "empty" / "meta.properties"):
        done = pylogseg("compact", log_dir, "--into", there)
        assert (done.code, "no broker starts with other things in it" in done.err) == (2, True)
    # What an earlier try left is begun anew.
    left = tmp_path / ".again.pylogseg-unfinished"
    (left / "cmp-lz4-0").mkdir(parents=True)
    (left / "cmp-lz4-0" / "00000000000000009999.log").write_bytes(b"x")
    assert pylogseg("compact", log_dir, "cmp-lz4", "--into", tmp_path / "again", "--now", NOW).code == 0
    assert contents(tmp_path / "again") == contents(tmp_path / "empty")
    assert sorted(os.listdir(tmp_path)) == ["again", "empty"]
    dry = pylogseg("compact", log_dir, "cmp-lz4", "--into", tmp_path / "third", "--dry-run", "--now", NOW)
    assert (dry.code, (tmp_path / "third").exists()) == (0, False)


def test_times_are_kept_in_a_copy(golden: Path, tmp_path: Path) -> None:
    """Where records have no timestamps, retention goes by the files' times."""
    log_dir = copied(golden, "retention", tmp_path) / "data0"
    for path in (log_dir / "ret-bytes-0").iterdir():
        os.utime(path, (1_600_000_000, 1_600_000_000.25))
    assert pylogseg("retain", log_dir, "ret-bytes", "--bytes", "1G", "--into", tmp_path / "copy").code == 0
    times = {path.stat().st_mtime_ns for path in (tmp_path / "copy" / "ret-bytes-0").glob("*.log")}
    assert times == {(log_dir / "ret-bytes-0" / "00000000000000000288.log").stat().st_mtime_ns}


# ---- what stands in the way ----


@pytest.fixture
def held(golden: Path, tmp_path: Path) -> Iterator[tuple[Path, int]]:
    """A log directory whose lock another process has, as a broker has it."""
    log_dir = copied(golden, "compact-0-before", tmp_path) / "data0"
    with locked(log_dir) as pid:
        yield log_dir, pid


@pytest.mark.parametrize("command", [["compact"], ["retain", "--ms", "1"], ["delete-records", "*", "--offset", "5"]])
def test_refuses_while_somebody_writes(held: tuple[Path, int], command: list[str]) -> None:
    log_dir, pid = held
    before = tree(log_dir)
    verb, *options = command
    targets = [log_dir] if "*" in options else [log_dir, log_dir / "cmp-lz4-0"]
    for target in targets:
        for more in ([], ["--into", log_dir.parent.parent / "copy"]):
            done = pylogseg(verb, target, *options, *more)
            assert (done.code, done.text) == (2, "")
            assert f"{log_dir / '.lock'}: cannot lock: process {pid} has the lock" in done.err
            assert "stop it first" in done.err
        done = pylogseg(verb, target, *options, "--dry-run")  # nothing is written, so nobody is in the way
        assert done.code < 2  # 1 where the one that was named is none for the command
        assert f"process {pid} has the lock, a broker or another writer: the files may change meanwhile" in done.text
    assert tree(log_dir) == before
    assert os.listdir(log_dir.parent.parent) == ["compact-0-before"]


def test_damage_is_not_cut_off(golden: Path, tmp_path: Path) -> None:
    """What a recovery would lose is no business of these commands; the other partitions are done."""
    folder = log_dir_of(golden, "bit-second", tmp_path)
    shutil.copytree(golden / "broker-4.3" / "damage" / "intact" / "in", folder / "fine-0")
    (folder / "log-start-offset-checkpoint").write_bytes(b"")
    before = {name: data for name, data in contents(folder / "damaged-1").items() if name.endswith(".log")}
    done = pylogseg("delete-records", folder, "*", "--offset", "100")
    expect(done, 1, out=["FAILED", "damaged and would be cut off", "pylogseg repair"])
    assert before.items() <= contents(folder / "damaged-1").items()  # indexes may be built anew
    assert (folder / "log-start-offset-checkpoint").read_bytes() == b"0\n1\nfine 0 100\n"
    assert not (folder / ".kafka_cleanshutdown").exists()
    assert "a broker will recover this log directory when it starts: there was no clean shutdown" in done.text

    done = pylogseg("delete-records", folder, "*", "--offset", "120", "--into", tmp_path / "copy", "--json")
    states = {row["partition"]: row["state"] for row in rows(done, "partition")}
    assert (done.code, states) == (1, {"damaged-1": "failed", "fine-0": "done"})
    assert not (tmp_path / "copy" / "damaged-1").exists()
    assert pylogseg("delete-records", folder / "damaged-1", "--offset", "1", "--into", tmp_path / "none").code == 1
    assert not (tmp_path / "none").exists()


def test_a_torn_end_is_put_in_order(golden: Path, tmp_path: Path) -> None:
    """What a crash leaves is cut off, as by a broker that starts, and said; the marker is there afterwards."""
    folder = log_dir_of(golden, "torn-tail", tmp_path)
    (folder / "recovery-point-offset-checkpoint").write_bytes(b"")
    done = pylogseg("delete-records", folder, "damaged", "--offset", "100", "-c", "index.interval.bytes=512")
    assert (done.code, "are missing" in done.err) == (1, True)  # the high watermark is above the whole batches
    assert "recovered, as a starting broker does: 1 segment cut" in done.text
    assert (folder / ".kafka_cleanshutdown").exists()
    assert pylogseg("verify", folder).code == 0
    assert [record.offset for record in read(folder)][:1] == [100]


def test_a_refusal_leaves_the_directory_clean(golden: Path, tmp_path: Path) -> None:
    log_dir = copied(golden, "codecs", tmp_path) / "data0"
    expect(pylogseg("delete-records", log_dir, "*", "--offset", "999999"), 1, out="above the high watermark")
    assert (log_dir / ".kafka_cleanshutdown").exists()
    with pytest.raises(RequestError, match="one offset would apply to every partition"):
        offline.delete_records(log_dir, 5)
    with pytest.raises(RequestError, match="unknown option 'dryrun'"):
        offline.compact(log_dir, dryrun=True)
    with pytest.raises(RequestError, match="unknown option 'topics'"):
        offline.compact(log_dir, topics=["orders"])
    with pytest.raises(RequestError, match=r"unknown log setting 'retention\.millis'"):
        offline.compact(log_dir, config={"retention.millis": "5"})
    with pytest.raises(StorageError):
        offline.compact(tmp_path / "nothing")


def test_the_marker_if_nothing_was_changed(golden: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log_dir = copied(golden, "codecs", tmp_path) / "data0"
    name = open_dir(log_dir).partitions[-1].name
    before, inner = contents(log_dir), LocalStorage.open_log

    def failing(self: LocalStorage, path: str, **options: Any) -> Any:
        if name in path:
            raise StorageError(path, "read", "Input/output error", errno.EIO)
        return inner(self, path, **options)

    monkeypatch.setattr(LocalStorage, "open_log", failing)
    done = pylogseg("truncate", log_dir, name, "--to", "3")
    assert (done.code, contents(log_dir)) == (2, before)
    assert "a broker will recover" not in done.text


def test_the_marker_if_a_partition_failed_half_way(
    golden: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_dir = copied(golden, "codecs", tmp_path) / "data0"
    name = open_dir(log_dir).partitions[-1].name
    inner = Log.truncate_to

    def failing(self: Log, offset: int) -> bool:
        inner(self, offset)
        raise StorageError(self.active.path, "sync", "Input/output error", errno.EIO)

    monkeypatch.setattr(Log, "truncate_to", failing)
    done = expect(pylogseg("truncate", log_dir, name, "--to", "3"), 2)
    assert not (log_dir / ".kafka_cleanshutdown").exists()
    assert "this command removed the clean shutdown marker, since a partition failed half way" in done.text


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no signal that a terminal sends")
@pytest.mark.parametrize("into", [False, True])
def test_interrupted(tmp_path: Path, into: bool) -> None:
    """Ctrl-C in the middle of a compaction: the log is whole, a copy is not there, the next run goes on."""
    log_dir = tmp_path / "data"
    big_log(log_dir / "users-0")
    before = {r.key: r.value for r in read(log_dir / "users-0", columns=["key", "value"])}
    arguments = ["compact", log_dir, "-c", "cleanup.policy=compact", "--map-memory", "15k", "--include-active"]
    running = process(*arguments, *(["--into", tmp_path / "copy"] if into else []))
    with running:
        watched = tmp_path / ".copy.pylogseg-unfinished" if into else log_dir
        wait_for(lambda: list(watched.glob("users-0/*.cleaned")))
        running.send_signal(signal.SIGINT)
        said = running.communicate(timeout=120)[1]
        assert running.returncode == 130
    assert (b"is unchanged" if into else b"each log is whole") in said
    assert sorted(os.listdir(tmp_path)) == ["data"]
    assert not list(log_dir.glob("users-0/*.cleaned"))
    assert {r.key: r.value for r in read(log_dir / "users-0", columns=["key", "value"])} == before
    assert (log_dir / ".lock").exists() is False
    assert pylogseg(*arguments).code == 0
    after = list(read(log_dir / "users-0", columns=["key", "value"]))
    assert ({r.key: r.value for r in after}, len(after)) == (before, len(before))


def test_a_map_without_room_for_a_key(tmp_path: Path) -> None:
    big_log(tmp_path / "users-0")
    done = pylogseg("compact", tmp_path, "-c", "cleanup.policy=compact", "--map-memory", "26", "--include-active")
    assert done.code == 1
    assert (
        "a map of 26 bytes has no room for a key, which takes 24: give it more by map_bytes (--map-memory)" in done.text
    )
    assert not (tmp_path / "cleaner-offset-checkpoint").exists()
    assert sum(1 for _ in read(tmp_path / "users-0", columns=["offset"])) == 100_000


def big_log(folder: Path) -> None:
    """A hundred thousand records of 5,000 keys, closed in order."""
    with open_log(folder, segment_bytes=1 << 20, cleanup_policy="compact") as log:
        for i in range(20):
            log.append([(None, b"key-%d" % ((i * 7919 + j) % 5_000), b"value-%d" % i) for j in range(5000)])


# ---- each command ----


def test_compact_options(golden: Path, tmp_path: Path) -> None:
    log_dir = copied(golden, "compact-0-before", tmp_path) / "data0"

    def done(*options: object) -> dict[str, dict[str, Any]]:
        run = pylogseg("compact", log_dir, "-c", SMALL, "--dry-run", "--json", "--now", NOW, *options)
        assert run.code in (0, 1)
        return {row["partition"]: row for row in rows(run, "partition") if row["state"] != "skipped"}

    plain = done()
    assert plain["cmp-lz4-0"]["rounds"] == 1
    assert plain["cmp-lz4-0"]["replicas"] == [1]
    more = done("cmp-lz4", "--map-memory", "4k")
    assert more["cmp-lz4-0"]["rounds"] > 1
    assert more["cmp-lz4-0"]["bytesAfter"] >= plain["cmp-lz4-0"]["bytesAfter"]
    whole = done("--include-active")
    assert whole["cmp-lz4-0"]["recordsRemoved"] > plain["cmp-lz4-0"]["recordsRemoved"]
    assert {row["state"] for row in done("--min-dirty-ratio", "1.0").values()} == {"done", "unchanged"}
    assert {row["state"] for row in done("-c", "min.compaction.lag.ms=1795000000000").values()} == {"unchanged"}
    assert pylogseg("compact", log_dir, "--now", NOW).code == 0
    assert {row["state"] for row in done("--min-dirty-ratio", "0.5").values()} == {"unchanged"}


def test_compact_by_force(golden: Path, tmp_path: Path) -> None:
    """Not records without a key, which a cleaning drops; nor anything where the policy does not say so."""
    log_dir = copied(golden, "codecs", tmp_path) / "data0"
    done = pylogseg("compact", log_dir, "mixed", "--json")
    assert [row["state"] for row in rows(done, "partition")] == ["skipped"]
    done = pylogseg("compact", log_dir, "codec-zstd", "--force", "--json")
    (row,) = rows(done, "partition")
    assert (done.code, row["state"]) == (1, "failed")
    assert "has no key, so a cleaning would remove it" in row["reason"]
    assert (log_dir / ".kafka_cleanshutdown").exists()


def iso(timestamp_ms: int) -> str:
    return f"{datetime.datetime.fromtimestamp(timestamp_ms / 1000, datetime.timezone.utc):%Y-%m-%dT%H:%M:%S.%f}Z"


def test_retain_options(golden: Path, tmp_path: Path) -> None:
    log_dir = copied(golden, "codecs", tmp_path) / "data0"
    partition = next(
        p for p in open_dir(str(log_dir)).partitions if len(p.segments) > 2 and p.topic.startswith("codec-")
    )

    def start(*options: object) -> int:
        done = pylogseg("retain", log_dir, partition.name, "--dry-run", "--json", "--now", NOW, *options)
        assert done.code == 0, done.err
        (row,) = rows(done, "partition")
        assert row["state"] == ("done" if row["segmentsDeleted"] else "unchanged")
        return int(row["logStart"])

    second, third = (segment.base_offset for segment in partition.segments[1:3])
    offsets = (0, second - 1, second, third - 1, third)
    assert [start("--before-offset", at) for at in offsets] == [0, 0, second, second, third]
    assert start("--bytes", partition.size) == start() == 0  # by the topic's own: without limit
    assert start("--bytes", partition.size - partition.segments[0].size) == second
    newest = max(record.timestamp for record in read(partition.path, offset=(None, second)))
    assert start("--ms", NOW_MS - newest) == start("--before-time", iso(newest)) == 0
    assert start("--ms", NOW_MS - newest - 1) == start("--before-time", iso(newest + 1)) == second
    assert start("--before-time", f"{NOW_MS - newest - 1}ms") == second
    for wrong in (["--before-time", "tomorrow"], ["--ms", "-1"], ["--bytes", "-5"]):
        assert pylogseg("retain", log_dir, *wrong).code == 2


def test_retain_does_not_guess(golden: Path, tmp_path: Path) -> None:
    """Without any settings Kafka's defaults would delete what is older than a week; internal topics are known."""
    log_dir = copied(golden, "txn", tmp_path) / "data1"
    before = tree(log_dir)
    done = pylogseg("retain", log_dir, "txn-a", "txn-b")
    assert (done.code, tree(log_dir)) == (2, before)
    assert "the settings of topic txn-" in done.err
    assert "data0/__cluster_metadata-0 is of the same cluster (1 more topic likewise): nothing is deleted" in done.err
    done = expect(pylogseg("retain", log_dir, "--ms", "0", "--dry-run", "--json"), 1)
    states = {row["partition"]: (row["state"], row["notDone"]) for row in rows(done, "partition")}
    compacted = ("__consumer_offsets", "__transaction_state")
    assert {n for n, state in states.items() if state == ("skipped", False)} == {
        n for n in os.listdir(log_dir) if n.startswith(compacted)
    }
    assert all(state == ("skipped", True) for n, state in states.items() if not n.startswith("__"))
    done = pylogseg("retain", log_dir, "txn-*", "--ms", "0", "--dry-run", "--json")
    assert (done.code, {row["state"] for row in rows(done, "partition")}) == (0, {"unchanged"})


@pytest.mark.parametrize("options", [[], ["-c", "segment.bytes=1000000"], ["--server-properties", "FILE"]])
def test_topics_that_are_not_in_the_metadata(golden: Path, tmp_path: Path, options: list[str]) -> None:
    """Each topic for itself: no setting that says nothing of retention makes Kafka's defaults delete it."""
    log_dir = copied(golden, "retention", tmp_path) / "data0"
    shutil.copytree(golden / "broker-4.3" / "compact-2-before" / "data1" / "cmp-gzip-0", log_dir / "strange-0")
    shutil.copytree(log_dir / "strange-0", log_dir / "strange-1")
    shutil.copytree(golden / "broker-4.3" / "codecs" / "data1" / "codec-none-0", log_dir / "ret-time-0")
    topic_id = ClusterMetadata.read(str(log_dir / "__cluster_metadata-0")).topic_ids["ret-time"]
    (log_dir / "ret-time-0" / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}")
    (tmp_path / "FILE").write_text("log.segment.bytes=1000000\nlog.retention.ms=1\n")
    options = [str(tmp_path / "FILE") if option == "FILE" else option for option in options]
    before = tree(log_dir / "strange-0")
    done = pylogseg("retain", log_dir, "--json", "--now", "2030-01-01T00:00:00Z", *options)
    states = {row["partition"]: row for row in rows(done, "partition")}
    assert (done.code, tree(log_dir / "strange-0")) == (1, before)
    assert (states["strange-0"]["state"], states["strange-0"]["notDone"]) == ("skipped", True)
    assert states["strange-0"]["reason"] == f"topic strange is not in the metadata, {log_dir}/__cluster_metadata-0"
    assert states["ret-time-0"]["state"] == "done"
    for command, code in (("retain", 2), ("compact", 1)):
        done = pylogseg(command, log_dir, "strange", *options)
        assert (done.code, "topic strange is not in the metadata" in done.text + done.err) == (code, True)
        assert tree(log_dir / "strange-0") == before
    results = offline.retain(log_dir, force=True)  # by its own rules, of which nothing is known
    assert {r.name: r.state for r in results}["strange-0"] == "unchanged"
    told = pylogseg("compact", log_dir, "strange", "-c", "cleanup.policy=compact", "--dry-run", "--json")
    assert (told.code, {row["state"] for row in rows(told, "partition")}) == (0, {"done"})


def test_a_topic_that_was_made_again(golden: Path, tmp_path: Path) -> None:
    """A partition of a topic of the same name with another id: what the metadata says is not of it."""
    log_dir = copied(golden, "retention", tmp_path) / "data0"
    ids = ClusterMetadata.read(str(log_dir / "__cluster_metadata-0")).topic_ids
    topics = ["del-all", "del-records", "ret-bytes"]
    old = "AAAAAAAAAAAAAAAAAAAAAQ"
    for name in topics:
        for folder in log_dir.glob(f"{name}-[01]"):
            (folder / "partition.metadata").write_text(f"version: 0\ntopic_id: {old}")
    before = contents(log_dir)
    for command, code in (("retain", 2), ("compact", 1)):
        done = pylogseg(command, log_dir, *topics, "--now", "2030-01-01T00:00:00Z")
        said = done.text + done.err
        assert done.code == code, said
        assert f"{topics[0]}-0 is of another topic {topics[0]} than the one in the metadata" in said
        assert f"its topic id is {old}, there it is {ids[topics[0]]}" in said
        assert contents(log_dir) == before
    # Among others it is left, and the others are done; settings that are given count.
    folder = log_dir / f"{topics[0]}-0"
    (folder / "partition.metadata").write_text(f"version: 0\ntopic_id: {ids[topics[0]]}")
    done = pylogseg("retain", log_dir, "--json", "--dry-run", "--now", "2030-01-01T00:00:00Z")
    found = {row["partition"]: row for row in rows(done, "partition")}
    assert (done.code, found[folder.name]["state"]) == (1, "unchanged")
    others = [found[name] for name in ("del-records-1", "ret-bytes-0")]
    assert {(row["state"], row["notDone"], tuple(row["replicas"])) for row in others} == {("skipped", True, ())}
    named = pylogseg("retain", log_dir, "ret-bytes", "--bytes", "0", "--dry-run", "--json")
    assert (named.code, {row["state"] for row in rows(named, "partition")}) == (0, {"done"})


def test_an_age_that_nobody_said(examples: Path, tmp_path: Path) -> None:
    """A size that was said does not make Kafka's week count."""
    said = ["-c", "cleanup.policy=delete", "-c", "retention.bytes=20000", "--now", "2030-01-01T00:00:00Z"]
    done = pylogseg("retain", examples, "codec-none", *said, "--dry-run", "--json")
    (row,) = rows(done, "partition")
    assert (row["notes"], row["segmentsDeleted"]) == (["retention.ms is not known, so nothing goes by its age"], 1)
    file = tmp_path / "server.properties"
    file.write_text("log.dirs=/nowhere\n")
    place = Target.find(LocalStorage(), str(examples))
    for options, expected in ((Options(), False), (Options(server_properties=str(file)), True)):
        settings = Settings(place, options)
        assert settings.knows("meta-17", "retention_ms")
        assert settings.knows("meta-17", "retention_bytes") is expected  # by the silence of the broker's file
        assert not settings.knows("codec-none", "retention_bytes")


def test_an_offset_is_no_time(examples: Path, tmp_path: Path) -> None:
    """One option for each, and none beyond what consumers may have read."""
    log_dir = shutil.copytree(examples, tmp_path / "data")
    before = contents(log_dir)
    done = pylogseg("retain", log_dir, "codec-none", "--before-offset", 1_700_000_020_000)
    assert (done.code, {**before, **contents(log_dir)}) == (1, before)
    assert "offset 1700000020000 is above the high watermark, 505 (the log ends at 505)" in done.text
    done = pylogseg("retain", log_dir, "codec-none", "--before", 1_700_000_020_000)
    assert (done.code, "--before-offset" in done.err, contents(log_dir)) == (2, True, before)
    done = pylogseg("retain", log_dir, "codec-none", "--before-time", 1_700_000_020_000, "--json")
    assert [row["segmentsDeleted"] for row in rows(done, "partition")] == [1]


def test_delete_records_by_file(golden: Path, tmp_path: Path) -> None:
    folder = copied(golden, "codecs", tmp_path)
    partitions = [{"topic": "codec-none", "partition": n, "offset": offset} for n, offset in ((0, 400), (1, -1))]
    (tmp_path / "offsets.json").write_text(json.dumps({"partitions": partitions, "version": 1}))
    starts: dict[str, int] = {}
    for log_dir in sorted(folder.glob("data?")):
        names = {f"codec-none-{n}" for n in (0, 1)} & set(os.listdir(log_dir))
        done = pylogseg("delete-records", log_dir, "--offset-json-file", tmp_path / "offsets.json")
        assert done.code == {2: 0, 1: 1, 0: 2}[len(names)]
        for name in names:
            starts[name] = next(p for p in open_dir(str(log_dir)).partitions if p.name == name).log_start_offset
            assert f"{starts[name]}" in (log_dir / "log-start-offset-checkpoint").read_text()
        if len(names) == 1:
            assert "is not here" in done.text
    ends = json.loads((folder / "expected.json").read_text())["topics"]["codec-none"]["partitions"]
    assert starts == {"codec-none-0": 400, "codec-none-1": ends["1"]["latest"]["offset"]}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not a list of offsets"),
        ("[]", "not a list of offsets"),
        ('{"partitions": 5}', "not a list of offsets"),
        ('{"partitions": [{"topic": "a", "partition": 0}]}', "KeyError: 'offset'"),
        ('{"partitions": [{"topic": "a", "partition": "0", "offset": 1}]}', "'0' is not of type int"),
        ('{"partitions": [{"topic": "a b", "partition": 0, "offset": 1}]}', "not a topic name"),
        ('{"partitions": [], "version": 2}', "version 2 is not 1"),
        ('{"partitions": [%s, %s]}' % (('{"topic": "a", "partition": 0, "offset": 1}',) * 2), "twice"),
    ],
)  # fmt: skip
def test_malformed_offsets(text: str, said: str) -> None:
    with pytest.raises(RequestError, match=said):
        parse_offset_file(text)


def test_wrong_usage(golden: Path) -> None:
    log_dir = golden / "broker-4.3" / "codecs" / "data0"
    for arguments in (
        [],
        ["--offset", "5"],
        ["codec-none", "--offset", "x"],
        ["codec-none", "--offset", "-2"],
        ["--offset", "codec-none-0=5", "--offset", "codec-none-0=6"],
        ["--offset", "codec-none-0=5", "--offset", "6"],
        ["--offset", "codec-none-0=5", "--offset-json-file", log_dir / "meta.properties"],
        ["--offset-json-file", log_dir / "meta.properties"],
    ):
        done = pylogseg("delete-records", log_dir, *arguments, "--dry-run")
        assert (done.code, done.text) == (2, ""), arguments
    assert pylogseg("compact", log_dir / "codec-none-0" / "partition.metadata").code == 2
    assert pylogseg("compact", log_dir, "-c", "x").code == 2


def test_what_a_person_reads(golden: Path, tmp_path: Path) -> None:
    log_dir = copied(golden, "compact-0-before", tmp_path) / "data0"
    text = pylogseg("compact", log_dir, "cmp-lz4", "cmp-zstd", "--now", NOW).text
    assert text.splitlines() == [
        "PARTITION   STATE  START   END  SEGMENTS  AFTER     SIZE  SIZE AFTER  ROUNDS  RECORDS  REMOVED",
        "cmp-lz4-0   done       0  1705         9      9  70.1 kB     19.3 kB       1    1,525    1,304",
        "cmp-zstd-0  done       0  1705         8      8  55.9 kB     14.2 kB       1    1,655    1,385",
        f"settings: {log_dir}/__cluster_metadata-0; then Kafka's defaults",
        "cleaner-offset-checkpoint rewritten, 2 of its entries: cmp-lz4-0 none to 1525, cmp-zstd-0 none to 1655",
        "these partitions have no other replicas",
        "TOTAL: 2 of 2 partitions changed, 2,689 records removed; segments 126 kB to 33.4 kB, 92.5 kB freed",
    ]
    (total,) = pylogseg("compact", log_dir, "cmp-lz4", "--quiet", "--now", NOW).text.splitlines()
    assert total.startswith("TOTAL: 0 of 1 partition changed; ")


@pytest.mark.parametrize("command", ["compact", "reindex"])
def test_one_replica_has_no_others(golden: Path, tmp_path: Path, command: str) -> None:
    """Also where nothing is changed, and where the metadata is given and nothing tells whose disk it is."""
    log_dir = copied(golden, "compact-0-before", tmp_path) / "data0"
    metadata = tmp_path / "metadata"
    metadata.mkdir()
    (log_dir / "__cluster_metadata-0").rename(metadata / "__cluster_metadata-0")
    arguments = [command, log_dir, "cmp-lz4", "--cluster-metadata", metadata]
    for _ in range(2):
        assert "these partitions have no other replicas" in pylogseg(*arguments).text
    (log_dir / "meta.properties").unlink()
    assert "these partitions have no other replicas" in pylogseg(*arguments).text


def test_a_copy_is_not_made_where_a_broker_looks(golden: Path, tmp_path: Path) -> None:
    log_dir = copied(golden, "retention", tmp_path) / "data0"
    before = tree(log_dir)
    for place in (log_dir / "copy", log_dir / "ret-bytes-0" / "copy"):
        for target in (log_dir, log_dir / "ret-bytes-0"):
            done = pylogseg("retain", target, "--ms", "0", "--into", place)
            assert (done.code, "which a broker reads" in done.err) == (2, True)
    assert tree(log_dir) == before


def test_two_copies_at_once(golden: Path, tmp_path: Path) -> None:
    """The second is refused, and does not take away what the first has made so far."""
    log_dir = golden / "broker-4.3" / "compact-0-before" / "data0"
    unfinished = tmp_path / ".copy.pylogseg-unfinished"
    unfinished.mkdir()
    (unfinished / "cmp-lz4-0").mkdir()
    lock = FolderLock(str(unfinished))
    with pytest.raises(StorageError, match="has the lock"):
        offline.compact(log_dir, topic=["cmp-lz4"], into=tmp_path / "copy")
    assert (unfinished / "cmp-lz4-0").is_dir()
    lock.release()


def test_threads(golden: Path, tmp_path: Path) -> None:
    """The same results, in the same order."""
    results = []
    for jobs in (1, 3):
        log_dir = copied(golden, "compact-2-before", tmp_path / str(jobs)) / "data1"
        told: list[str] = []
        result = offline.compact(
            log_dir, jobs=jobs, now_ms=NOW_MS, on_result=lambda part_result, told=told: told.append(part_result.name)
        )
        assert told == [part_result.name for part_result in result]
        # Entries stand in a checkpoint in the order in which they came.
        files = {n: sorted(d.split(b"\n")) if n.endswith("-checkpoint") else d for n, d in contents(log_dir).items()}
        results.append(([part_result.numbers for part_result in result], files))
    assert results[0] == results[1]


def test_progress_and_python(golden: Path, tmp_path: Path) -> None:
    """Every byte is told of; paths may be path objects; iterating gives the results."""
    log_dir = golden / "broker-4.3" / "codecs" / "data1"
    seen: list[int] = []
    result = offline.retain(
        log_dir, max_bytes=1000, topic=["codec-none-0"], into=tmp_path / "copy", on_bytes=seen.append
    )
    (part_result,) = result
    assert (part_result.name, part_result.state, result.exit_code) == ("codec-none-0", "done", 0)
    source = log_dir / "codec-none-0"
    assert sum(seen) == sum(path.stat().st_size for path in source.iterdir())
    left = {path.name for path in (tmp_path / "copy" / "codec-none-0").glob("*.log")}
    gone = [path.stat().st_size for path in source.glob("*.log") if path.name not in left]
    assert part_result.bytes_before - part_result.bytes_after == sum(gone)
    assert "compact" in dir(offline)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        getattr(offline, "nothing")  # noqa: B009
    with pytest.raises(RequestError, match="must not be negative"):
        offline.retain(log_dir, ms=-1)
    with pytest.raises(RequestError, match="in the future"):
        offline.retain(log_dir, before_ms=2**50)


def test_what_is_empty_is_not_all(examples: Path, tmp_path: Path) -> None:
    """A list that was computed and came out empty, an unset variable of the shell: refused by every command."""
    log_dir = shutil.copytree(examples, tmp_path / "data")
    before = tree(log_dir)
    commands: list[tuple[Any, dict[str, Any]]] = [
        (offline.retain, {"max_bytes": 0}),
        (offline.compact, {"force": True}),
        (offline.redact, {"keys": [b"k"]}),
        (offline.recode, {"compression": "zstd"}),
        (offline.truncate, {"to": 0}),
        (offline.delete_records, {"offsets": -1}),
        (offline.repair, {}),
        (offline.reindex, {}),
    ]
    for command, own in commands:
        for empty in ({"topic": []}, {"partition": ()}, {"topic": iter(())}, {"topic": [""]}):
            with pytest.raises(RequestError, match="empty"):
                command(log_dir, **own, **empty)
    for arguments in (["--match", ""], ["--match", "x*"], ["--key", ""], ["--header", "=1"], ["--key", "k", "-t", ""]):
        done = pylogseg("redact", log_dir, *arguments)
        assert (done.code, "empty" in done.err) == (2, True), (arguments, done)
    with pytest.raises(RequestError, match="no offsets"):
        offline.delete_records(log_dir, {})
    assert tree(log_dir) == before
    done = pylogseg("redact", log_dir, "codec-none", "--match", "", "--force", "--dry-run", "--json")
    assert [row["recordsDeleted"] for row in rows(done, "partition")] == [504]  # all but the last


def test_a_name_that_is_not_here(examples: Path, tmp_path: Path) -> None:
    log_dir = shutil.copytree(examples, tmp_path / "data")
    done = pylogseg("delete-records", log_dir, "--offset", "codec-none-1=5", "--offset", "codec-none=100")
    assert (
        done.code,
        "codec-none is a topic, and offsets go by partition: name one, as codec-none-1" in done.text,
    ) == (1, True)
    done = pylogseg("delete-records", log_dir, "txn-a", "--offset", "txn-a=1", "--offset", "nothing-0=1")
    assert (done.code, "nothing-0 is not here" in done.text, "name one, as txn-a-0" in done.text) == (1, True, True)
    assert "2 partitions skipped: no offset is given; offsets go by partition" in done.text
