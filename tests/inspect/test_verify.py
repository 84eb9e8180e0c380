"""Tests of cli/verify.py, format/foreign_formats.py, inspect/verify/disk.py, inspect/verify/findings.py,
inspect/verify/indexes.py and inspect/verify/records.py. `pylogseg verify`: what is whole is clean, what was damaged is
found, and what was not checked is said.
"""

from __future__ import annotations

import cProfile
import json
import pstats
import random
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from helpers.checks import some

import pylogseg
from pylogseg import _codec
from pylogseg.cli import shell
from pylogseg.disk.listing import open_dir
from pylogseg.env.executor import Threads
from pylogseg.inspect.verify.disk import VerifySummary, verify_disk
from pylogseg.inspect.verify.findings import REMEDIES, Finding, Level
from pylogseg.inspect.verify.segment import MAX_REMARKS, verify_segment

BROKER = ["codecs", "txn", "txn-old", "compact-0-before", "compact-1-cleaned", "compact-2-before", "compact-3-cleaned",
          "compact-4-before", "compact-5-cleaned", "retention", "metadata", "metadata-trimmed", "unclean"]  # fmt: skip


def check(path: Path, level: Level = Level.INDEXES, **options: Any) -> tuple[list[Finding], VerifySummary]:
    """Findings about everything under a path, folders in any state included."""
    disk = open_dir(path)
    summary = VerifySummary(level)
    return list(verify_disk(disk, summary, partitions=disk.partitions, **options)), summary


def damage(path: Path, level: Level = Level.INDEXES) -> list[str]:
    """Kinds of damage, without repeats, in order."""
    return list(dict.fromkeys(finding.kind for finding in check(path, level)[0] if finding.is_damage))


def notices(path: Path) -> set[str]:
    return {finding.kind for finding in check(path)[0] if not finding.is_damage}


# ---- whole data is clean ----


@pytest.mark.parametrize("case", BROKER)
def test_broker_directories_are_clean(golden: Path, case: str) -> None:
    folder = golden / "broker-4.3" / case
    assert folder.is_dir()
    findings, summary = check(folder)
    if case in ("compact-4-before", "compact-5-cleaned"):  # not all partitions are kept that the checkpoints name
        findings = [finding for finding in findings if finding.kind != "missing" or Path(finding.path).exists()]
    assert [finding for finding in findings if finding.is_damage] == []
    assert {finding.kind for finding in findings} <= {"leftover", "missing", "not-here", "set-aside", "awaits-deletion"}
    assert summary.batches > 0


def test_replayed_logs_are_clean(golden: Path) -> None:
    """But for three that the replay left with damage that a broker does not notice.

    And for one whose records were deleted, while its folder alone does not say up to where: epochs may be lost as well.
    """
    found = {}
    for folder in sorted(golden.glob("replay/*/final")):
        kinds = damage(folder)
        if kinds:
            found[folder.parent.name] = kinds
    assert found == {
        "leader-epochs": ["leader-epoch"],
        "recover-corrupt-epochs": ["leader-epoch-file"],
        "recover-time-index-backwards": ["time-index-end"],
        "recover-unknown-magic": ["magic"],
    }


def test_corpus_is_clean(corpus: Path) -> None:
    """Every partition that older brokers and other clients wrote."""
    folders = {path.parent for path in corpus.rglob("*.log") if "redpanda" not in str(path)}
    assert folders
    for folder in sorted(folders):
        assert damage(folder) == [], folder


def test_redpanda_is_named(corpus: Path) -> None:
    logs = list((corpus / "redpanda-foreign").rglob("*.log"))
    assert logs
    for log in logs:
        (finding,) = verify_segment(open_dir(log).loose[0]).findings
        assert finding.kind == "foreign"
        assert "Redpanda" in finding.reason


def test_example_is_clean(examples: Path) -> None:
    findings, summary = check(examples)
    assert {finding.kind for finding in findings} == {"leftover", "not-here", "stray"}
    assert not any(finding.is_damage for finding in findings)
    assert summary.explained_gaps > 0


# ---- damage by the broker's test cases ----

CASES = {
    "intact": ([], set()),
    "intact-clean": ([], set()),
    # A snapshot tells that the log was longer: news as well, where the end is torn and no checkpoint says so.
    "torn-tail": ([], {"torn", "missing"}),
    "torn-tail-clean": ([], {"torn", "missing"}),
    "torn-header": ([], {"torn", "missing"}),
    # The length leads beyond the end of the file, and nothing good follows: it cannot be told from a torn batch.
    "huge-length": ([], {"torn", "missing"}),
    "zero-tail": ([], {"zeros"}),
    "zero-tail-clean": ([], {"zeros"}),
    "bit-second": (["crc"], set()),
    "bit-second-clean": (["crc"], set()),
    "bit-epoch": (["leader-epoch"], set()),
    "garbage-tail": (["length"], set()),
    "bad-magic": (["magic"], set()),
    "no-helpers": ([], {"missing-index"}),
    "no-helpers-clean": ([], {"missing-index"}),
    "bad-index-clean": (["offset-index"], set()),
    "bad-timeindex-clean": (["time-index", "time-index-end"], set()),
    "bad-snapshot-clean": (["snapshot"], set()),
    "bad-epochs-clean": (["leader-epoch-file"], set()),
    "gap": ([], {"gap"}),
    "repeated-batch": (["order"], set()),
    "misnamed-segment": (["order", "offset-index", "time-index"], set()),
    "leftover-cleaned": ([], {"leftover"}),
    "leftover-deleted": ([], {"leftover"}),
    "leftover-swap": ([], {"swap"}),
    "leftover-swap-clean": ([], {"swap"}),
    "leftover-swap-indexes": ([], {"leftover"}),
    "compacted": ([], set()),
    "transactions": ([], set()),
    "transactions-torn": (["torn", "transaction-index"], set()),
    "starts-at-288": ([], set()),
}


@pytest.mark.parametrize("case", CASES)
def test_damaged_folders_are_told_by_their_kind(golden: Path, case: str) -> None:
    folder = golden / "broker-4.3" / "damage" / case / "in"
    assert folder.is_dir()
    expected, news = CASES[case]
    assert sorted(damage(folder)) == sorted(expected)
    assert notices(folder) == news


def test_findings_name_the_place(golden: Path) -> None:
    (finding,) = check(golden / "broker-4.3" / "damage" / "bit-second" / "in")[0]
    assert Path(finding.path).name == "00000000000000000045.log"
    assert (finding.position, finding.offset) == (411, 50)
    assert "CRC mismatch" in finding.reason
    assert finding.remedy == REMEDIES["crc"]


# ---- damage made here ----


@pytest.fixture
def partition(golden: Path, tmp_path: Path) -> Path:
    """A copy of a whole partition with five segments."""
    source = golden / "broker-4.3" / "damage" / "intact" / "in"
    return Path(shutil.copytree(source, tmp_path / "producers-0"))


@pytest.fixture
def transactions(golden: Path, tmp_path: Path) -> Path:
    """A copy of a whole partition with aborted transactions, some across segments."""
    source = golden / "broker-4.3" / "damage" / "transactions" / "in"
    return Path(shutil.copytree(source, tmp_path / "txn-a-0"))


def entries(folder: Path, suffix: str, width: int) -> Iterator[tuple[Path, int]]:
    """Every entry of every index of one kind: file and position."""
    for path in sorted(folder.glob(f"*{suffix}")):
        yield from ((path, at) for at in range(0, path.stat().st_size, width))


@pytest.mark.parametrize(
    ("suffix", "width", "field", "kind"),
    [
        (".index", 8, slice(0, 4), "offset-index"),
        (".index", 8, slice(4, 8), "offset-index"),
        (".timeindex", 12, slice(0, 8), "time-index"),
    ],
)
def test_every_changed_entry_of_an_index_is_found(
    partition: Path, suffix: str, width: int, field: slice, kind: str
) -> None:
    for path, at in some(entries(partition, suffix, width)):
        whole = path.read_bytes()
        for change in (1, -1):
            data = bytearray(whole)
            place = slice(at + field.start, at + field.stop)
            number = int.from_bytes(data[place], "big", signed=True) + change
            data[place] = number.to_bytes(field.stop - field.start, "big", signed=True)
            path.write_bytes(data)
            assert damage(partition) == [kind], (path.name, at, change)
        path.write_bytes(whole)


def test_a_time_index_entry_that_names_another_batch_is_found(partition: Path) -> None:
    for path, at in some(entries(partition, ".timeindex", 12)):
        whole = path.read_bytes()
        data = bytearray(whole)
        relative = int.from_bytes(data[at + 8 : at + 12], "big")
        data[at + 8 : at + 12] = (relative + 5).to_bytes(4, "big")  # batches hold five records
        path.write_bytes(data)
        assert damage(partition) == ["time-index"]
        path.write_bytes(whole)


@pytest.mark.parametrize("at", [2, 18])
def test_every_changed_entry_of_a_transaction_index_is_found(transactions: Path, at: int) -> None:
    """Another producer, another marker."""
    for path, start in some(entries(transactions, ".txnindex", 34)):
        whole = path.read_bytes()
        data = bytearray(whole)
        data[start + at + 7] ^= 1
        path.write_bytes(data)
        assert damage(transactions) == ["transaction-index"], (path.name, start)
        path.write_bytes(whole)


def test_every_missing_entry_of_a_transaction_index_is_found(transactions: Path) -> None:
    """Also where the data of the transaction lies in an earlier segment."""
    for path, start in some(entries(transactions, ".txnindex", 34)):
        whole = path.read_bytes()
        path.write_bytes(whole[:start] + whole[start + 34 :])
        assert damage(transactions) == ["transaction-index"], (path.name, start)
        path.write_bytes(whole)


def test_aborts_whose_records_compaction_removed_need_no_entry(tmp_path: Path) -> None:
    """Recovery writes none for aborts after a commit of the same producer, whose data is in an earlier segment."""
    (tmp_path / "logs").mkdir()
    config = {"cleanup_policy": "compact", "segment_bytes": 2000, "min_cleanable_dirty_ratio": 0.0001}
    settings = pylogseg.BrokerSettings(log_dirs=(str(tmp_path / "logs"),), log_cleaner_enable=False)
    with pylogseg.LogManager(settings, {"t": config}) as manager:
        log = manager.log("t", 0)
        producer = log.producer(1)
        producer.begin()
        producer.append([(None, b"a%d" % i, b"x" * 500) for i in range(3)])
        log.engine.roll()
        producer.append([(None, b"b%d" % i, b"y" * 500) for i in range(2)])
        producer.commit()
        for _ in range(2):
            producer.begin()
            producer.append([(None, b"c", b"3")] * 3)
            producer.abort()
        producer.begin()
        producer.append([(None, b"d", b"4")])
        producer.commit()
        log.engine.roll()
        cleaner = manager.cleaning.new_cleaner()
        while manager.cleaning.clean_dirtiest(cleaner):
            pass
    for name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint"):
        (tmp_path / "logs" / name).unlink()
    with pylogseg.LogManager(settings, {"t": config}):
        pass
    assert damage(tmp_path / "logs") == []


def test_entries_beyond_the_last_offset_that_there_is(tmp_path: Path) -> None:
    """Their offsets wrap, and are out of order then: the rest of the disk is checked all the same."""
    base = 2**63 - 20
    for name in ("a-0", "b-0"):
        folder = tmp_path / name
        folder.mkdir()
        columns = {"offset": [base], "timestamp": [1_000], "key": [b"k"], "value": [b"v"]}
        (folder / f"{base:020}.log").write_bytes(pylogseg.encode(pa.table(columns)))
        (folder / f"{base:020}.index").write_bytes(b"")
        (folder / f"{base:020}.timeindex").write_bytes(struct.pack(">qiqi", 1_000, 15, 2_000, 100))
    found = [(finding.path[-29:-25], finding.kind, finding.position) for finding in check(tmp_path)[0]]
    assert [(kind, position) for _, kind, position in found] == [("time-index", 12)] * 2


def test_a_zero_tail_of_an_index_is_no_finding(partition: Path) -> None:
    (index, times) = (max(partition.glob(f"*.{kind}")) for kind in ("index", "timeindex"))
    index.write_bytes(index.read_bytes() + bytes(8 * 1000))
    times.write_bytes(times.read_bytes() + bytes(12 * 1000))
    assert check(partition)[0] == []


def test_zeros_at_the_end_of_an_index_of_a_closed_segment(partition: Path) -> None:
    """A broker takes them for entries: by a greatest timestamp of 0 its retention deletes the segment at once."""
    for suffix, size, expected in (
        (".index", 8, ("offset-index", False)),
        (".timeindex", 12, ("time-index-end", True)),
    ):
        path = min(partition.glob(f"*{suffix}"))
        whole = path.read_bytes()
        for kept in (0, len(whole) // size // 2 * size):
            path.write_bytes(whole[:kept] + bytes(len(whole) + size - kept))
            found = [(finding.kind, finding.is_damage, finding.position) for finding in check(partition)[0]]
            assert found == [(*expected, kept)]
        path.write_bytes(whole)
    assert check(partition)[0] == []


def test_a_time_index_of_a_closed_segment_that_lost_its_last_entry(partition: Path) -> None:
    path = min(partition.glob("*.timeindex"))
    whole = path.read_bytes()
    path.write_bytes(whole[:-12])
    (finding,) = (finding for finding in check(partition)[0] if finding.kind == "time-index-end")
    assert (finding.is_damage, finding.position) == (False, len(whole) - 24)
    assert "the greatest timestamp of the segment is" in finding.reason
    last = max(partition.glob("*.timeindex"))
    path.write_bytes(whole)
    last.write_bytes(last.read_bytes()[:-12])  # as beside a broker that appends to it
    assert damage(partition) == []


def test_an_index_without_its_segment(partition: Path) -> None:
    (partition / "00000000000000000999.index").write_bytes(b"")
    assert notices(partition) == {"orphan"}


def test_a_flipped_bit_anywhere_is_found(partition: Path) -> None:
    """But in base offset, leader epoch and magic, which no check sum covers, each has its own check."""
    path = sorted(partition.glob("*.log"))[1]
    whole = path.read_bytes()
    rng = random.Random(7)
    for position in [*range(0, 61), *(rng.randrange(61, len(whole)) for _ in range(60))]:
        data = bytearray(whole)
        data[position] ^= 1 << rng.randrange(8)
        path.write_bytes(data)
        found = check(partition)[0]
        assert found, position
    path.write_bytes(whole)


def _with_crc(data: bytearray, start: int = 0) -> bytearray:
    size = 12 + struct.unpack_from(">i", data, start + 8)[0]
    struct.pack_into(">I", data, start + 17, _codec.crc32c(bytes(data[start + 21 : start + size])))
    return data


@pytest.mark.parametrize(
    ("position", "change", "kind"),
    [(61, 0x40, "records"), (60, 0x40, "header"), (22, 0x07, "header")],
    ids=["length of a record", "count", "codec"],
)
def test_bytes_under_a_good_check_sum(partition: Path, position: int, change: int, kind: str) -> None:
    path = min(partition.glob("*.log"))
    data = bytearray(path.read_bytes())
    data[position] ^= change
    path.write_bytes(_with_crc(data))
    assert kind in damage(partition)


def test_a_wrong_greatest_timestamp_is_a_notice(partition: Path) -> None:
    path = min(partition.glob("*.log"))
    data = bytearray(path.read_bytes())
    data[42] ^= 1
    path.write_bytes(_with_crc(data))
    assert "timestamp" in notices(partition)


def test_check_sums_inside_of_wrappers(golden: Path, tmp_path: Path) -> None:
    """A gzip wrapper whose own CRC holds around a message whose CRC does not."""
    import gzip

    message = struct.pack(">bbqi", 1, 0, 1_000, -1) + struct.pack(">i", 3) + b"abc"
    good = struct.pack(">I", _codec.crc32(message)) + message
    bad = struct.pack(">I", _codec.crc32(message) ^ 1) + message
    for inner, kinds in ((good, []), (bad, ["inner-crc"])):
        value = gzip.compress(struct.pack(">qi", 0, len(inner)) + inner)
        wrapper = struct.pack(">bbqi", 1, 1, 1_000, -1) + struct.pack(">i", len(value)) + value
        entry = struct.pack(">I", _codec.crc32(wrapper)) + wrapper
        path = tmp_path / "old-0" / "00000000000000000000.log"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(struct.pack(">qi", 0, len(entry)) + entry)
        assert damage(path.parent) == kinds


def test_segments_that_overlap(partition: Path) -> None:
    first, second, *_ = sorted(partition.glob("*.log"))
    first.write_bytes(first.read_bytes() + second.read_bytes())
    assert "overlap" in damage(partition)


def test_leader_epochs_out_of_order(partition: Path) -> None:
    (partition / "leader-epoch-checkpoint").write_text("0\n2\n3 0\n1 50\n")
    assert damage(partition) == ["leader-epoch"]


def test_files_of_a_log_directory(golden: Path, tmp_path: Path) -> None:
    source = next(golden.glob("broker-4.3/txn/data0"))
    data = Path(shutil.copytree(source, tmp_path / "data0"))
    points = data / "recovery-point-offset-checkpoint"
    points.write_text(points.read_text().replace("txn-a 1 13", "txn-a 1 14"))
    (data / "meta.properties").write_text("version=7\n")
    (data / "cleaner-offset-checkpoint").write_text("0\n3\n")
    found = {(finding.kind, finding.is_damage) for finding in check(data)[0]}
    assert found == {("missing", True), ("meta-properties", True), ("checkpoint", True)}


def test_a_kraft_snapshot_without_its_footer(golden: Path, tmp_path: Path) -> None:
    source = next(golden.glob("broker-4.3/metadata/data0/__cluster_metadata-0"))
    folder = Path(shutil.copytree(source, tmp_path / "__cluster_metadata-0"))
    path = max(folder.glob("*.checkpoint"))
    sizes, data, at = [], path.read_bytes(), 0
    while at < len(data):
        sizes.append(12 + struct.unpack_from(">i", data, at + 8)[0])
        at += sizes[-1]
    path.write_bytes(data[: -sizes[-1]])
    assert damage(folder) == ["kraft-snapshot"]


def test_many_findings_are_counted_not_listed(partition: Path) -> None:
    path = max(partition.glob("*.index"))
    log = max(partition.glob("*.log"))
    size = log.stat().st_size
    path.write_bytes(b"".join(struct.pack(">ii", i + 1, size + i) for i in range(100)))
    findings = [finding for finding in check(partition)[0] if finding.kind == "offset-index"]
    assert len(findings) == MAX_REMARKS + 1
    assert findings[-1].reason == "and 80 more of this kind"


# ---- levels, limits ----


def test_levels_look_at_what_they_say(golden: Path) -> None:
    case = golden / "broker-4.3" / "damage"
    assert damage(case / "bit-second" / "in", Level.HEADERS) == []
    assert damage(case / "bit-second" / "in", Level.CRC) == ["crc"]
    assert damage(case / "bad-index-clean" / "in", Level.RECORDS) == []
    assert damage(case / "repeated-batch" / "in", Level.HEADERS) == ["order"]


def test_the_summary_says_what_was_not_checked(golden: Path) -> None:
    folder = golden / "broker-4.3" / "damage" / "intact" / "in"
    said = {level: " ".join(check(folder, level)[1].not_checked) for level in Level}
    assert "checksums" in said[Level.HEADERS]
    assert "records" in said[Level.CRC]
    assert "checksums" not in said[Level.CRC]
    assert "indexes" in said[Level.RECORDS]
    assert "replicas" in said[Level.INDEXES]


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_a_batch_over_the_limit_is_not_checked_and_not_damaged(golden: Path, codec: str) -> None:
    (folder,) = golden.glob(f"broker-4.3/codecs/data?/codec-{codec}-1")
    findings, summary = check(folder, limit_bytes=100)
    assert findings == []
    assert any("the limit" in text for text in summary.not_checked)


def test_counts_are_those_of_the_records(golden: Path, decoded: Any) -> None:
    for path in some(sorted(golden.glob("broker-4.3/codecs/data?/*-0/*.log"))):
        report = verify_segment(open_dir(path).loose[0])
        batches = decoded(path)["batches"]
        assert report.batches == len(batches)
        assert report.records == sum(len(batch["records"]) for batch in batches)


def test_threads_find_the_same(golden: Path) -> None:
    folder = golden / "broker-4.3" / "damage" / "transactions-torn" / "in"
    assert check(folder, executor=Threads(3))[0] == check(folder)[0]


def test_work_grows_with_the_partitions_and_not_with_their_square(tmp_path: Path) -> None:
    """Counted in calls, which no other load on the machine changes."""
    calls = {}
    for count in (200, 800):
        for i in range(count):
            folder = tmp_path / str(count) / f"topic{i}-0"
            folder.mkdir(parents=True)
            (folder / f"{0:020}.log").touch()
        disk = open_dir(tmp_path / str(count))
        profile = cProfile.Profile()
        profile.enable()
        chosen = disk.select(["topic1*", "topic*", "*-0"])
        list(verify_disk(chosen, VerifySummary(Level.INDEXES)))
        list(verify_disk(disk, VerifySummary(Level.INDEXES)))
        profile.disable()
        assert len(chosen.partitions) == count
        calls[count] = pstats.Stats(profile).total_calls
    assert calls[800] < 5 * calls[200]


# ---- the shell ----


def run(*arguments: str | Path) -> Any:
    """Run the shell in this process."""
    return CliRunner().invoke(shell, ["verify", *map(str, arguments)])


def test_shell_exit_codes(golden: Path, tmp_path: Path) -> None:
    case = golden / "broker-4.3" / "damage"
    assert run(case / "intact" / "in").exit_code == 0
    assert run(case / "torn-tail" / "in").exit_code == 0
    assert run(case / "bit-second" / "in").exit_code == 1
    assert run(case / "bit-second" / "in", "--level", "headers").exit_code == 0
    assert run(tmp_path / "missing").exit_code == 2


def test_shell_says_what_and_what_not(golden: Path) -> None:
    out = run(golden / "broker-4.3" / "damage" / "bit-second" / "in").stdout
    assert "position 411, offset 50" in out
    assert "remedy: " in out
    assert "1 finding of damage: 1 partition, 5 segments, 38 batches, 190 records" in out
    assert "not checked: " in out


def test_shell_json(golden: Path) -> None:
    out = run("--json", golden / "broker-4.3" / "damage" / "bit-second" / "in").stdout
    finding, summary = map(json.loads, out.splitlines())
    assert (finding["type"], finding["level"], finding["kind"]) == ("finding", "damage", "crc")
    assert set(finding) == {
        "type", "level", "urgency", "kind", "path", "position", "offset", "lastOffset", "reason", "remedy",
    }  # fmt: skip
    assert (summary["type"], summary["damaged"], summary["level"]) == ("summary", 1, "indexes")
    assert summary["notChecked"]
