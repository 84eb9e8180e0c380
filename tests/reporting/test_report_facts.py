"""Tests of reporting/cluster.py, reporting/facts.py, reporting/lags.py, reporting/report.py, reporting/scanning.py and
reporting/totals.py. The facts of a report against what `stats`, `ls`, `verify`, `groups` and `transactions` say of the
same files.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from helpers.damaged_logs import log_dir_of
from helpers.depth import IS_DEEP, some_of
from helpers.golden_brokers import BROKERS
from helpers.shell import pylogseg

import pylogseg as package
from pylogseg.reporting import lags, partitions

Row = dict[str, Any]
#: Golden cases of damage, as folders of partitions.
DAMAGED = [
    "bad-epochs-clean", "bad-index-clean", "bad-magic", "bad-snapshot-clean", "bad-timeindex-clean", "bit-epoch",
    "bit-second", "bit-second-clean", "compacted", "gap", "garbage-tail", "huge-length", "intact", "leftover-cleaned",
    "leftover-deleted", "leftover-swap", "leftover-swap-indexes", "misnamed-segment", "no-helpers", "repeated-batch",
    "starts-at-288", "torn-header", "torn-tail", "transactions", "transactions-torn", "zero-tail",
]  # fmt: skip
#: Of the corpus, that of another program.
FOREIGN = {"wire", "redpanda-foreign"}


def facts(path: Path, *words: object) -> Row:
    done = pylogseg("report", path, "--json", *words)
    assert done.code in (0, 1), done.err
    (row,) = done.rows
    assert done.code == (1 if row["damage"] else 0)
    return row


def same_counts(path: Path, found: Row, *, is_full: bool) -> int:
    """Compare partitions with `stats`; return how many."""
    rows = pylogseg("stats", path, "--by", "partition", "--json").rows
    mine = {each["name"]: each for each in found["partitions"]}
    for row in rows:
        part = mine[row["name"]]
        counted = {name: part[name] for name in ("records", "batches", "controlBatches", "emptyBatches", "size")}
        assert counted == {name: row[name] for name in counted}, row["name"]
        missing = row["missingOffsets"]
        assert part["missing"]["isAll"]
        assert [part["missing"][name] for name in ("markers", "belowLogStart", "compaction", "damage")] == [
            missing[name] for name in ("markers", "belowLogStart", "compaction", "damage")
        ]
        assert part["missing"]["notExplained"] == missing["unexplained"]
        sample = part["sample"]
        if is_full and sample is not None:
            assert sample["isAll"] or part["damage"]
            for name in ("recordBytes", "keyBytes", "valueBytes", "nullKeys", "tombstones", "headers", "distinctKeys"):
                assert sample[name] == row[name], name
            codecs = {each.pop("name"): each for each in sample["codecs"]}
            assert codecs == row["codecs"]
    return len(rows)


def same_list(path: Path, found: Row) -> int:
    """Compare partitions with `ls`; return how many."""
    rows = pylogseg("ls", path, "--json").rows
    mine = {each["path"]: each for each in found["partitions"]}
    names = ("state", "size", "diskBytes", "firstTimestamp", "newestTimestamp", "logStartOffset", "logEndOffset")
    for row in rows:
        assert {name: mine[row["path"]][name] for name in names} == {name: row[name] for name in names}
    assert len(mine) == len(rows)
    return len(rows)


def same_segments(path: Path, found: Row) -> int:
    """Compare the segments of the partitions that were scanned with `ls -l`; return how many."""
    rows = {row["path"]: row for row in pylogseg("ls", path, "-l", "--json").rows}
    names = ("state", "baseOffset", "nextOffset", "size", "firstTimestamp", "largestTimestamp", "companions")
    seen = 0
    for part in found["partitions"]:
        for segment in part["segments"]:
            if part["read"] != "names" and segment["state"] in ("sealed", "active"):
                row = rows[f"{part['path']}/{segment['name']}"]
                assert {name: segment[name] for name in names} == {name: row[name] for name in names}
                seen += 1
    return seen


def same_findings(path: Path, found: Row) -> int:
    """Compare findings with `verify`; return how many."""
    names = ("level", "kind", "path", "position", "offset", "lastOffset", "reason", "remedy")
    rows = [row for row in pylogseg("verify", path, "--json").rows if row["type"] == "finding"]
    mine = [each for each in found["findings"] if each["level"] != "advice"]
    assert _sorted(mine, names) == _sorted(rows, names)
    return len(rows)


def _sorted(rows: list[Row], names: tuple[str, ...]) -> list[str]:
    return sorted(repr([row[name] for name in names]) for row in rows)


@pytest.mark.parametrize("name", BROKERS)
def test_golden(golden: Path, name: str) -> None:
    path = golden / name / "data1"
    full, headers = facts(path, "--full"), facts(path)
    for found in (full, headers):
        assert same_counts(path, found, is_full=found is full) > 0
        assert same_list(path, found) > 0
        assert same_segments(path, found) > 0
    same_findings(path, full)
    assert full["scope"]["segmentsReadWhole"] == full["scope"]["segments"]
    assert headers["scope"]["segmentsWithAllHeaders"] > 0


@pytest.mark.parametrize("case", DAMAGED)
def test_damaged(golden: Path, case: str, tmp_path: Path) -> None:
    path = log_dir_of(golden, case, tmp_path)
    full, headers = facts(path, "--full"), facts(path)
    for found in (full, headers):
        assert same_counts(path, found, is_full=found is full) == 1
        same_list(path, found)
    same_findings(path, full)
    levels = [each["level"] for each in full["findings"]]
    assert (full["damage"], full["notices"]) == (levels.count("damage"), levels.count("notice"))
    # What headers show, all of it shows too.
    assert {repr(each) for each in headers["findings"]} <= {repr(each) for each in full["findings"]}


def test_corpus(corpus: Path) -> None:
    seen = 0
    for path in some_of(sorted(each for each in corpus.iterdir() if each.is_dir() and each.name not in FOREIGN), 8):
        full, headers = facts(path, "--full"), facts(path)
        for found in (full, headers):
            same_list(path, found)
            if path.name != "snappy-three-replicas":  # of three brokers: `stats` counts them one by one
                same_counts(path, found, is_full=found is full)
        seen += same_findings(path, full)
    assert seen > (100 if IS_DEEP else 10)


def test_groups_and_transactions(golden: Path) -> None:
    path = golden / "inside" / "groups"
    both = [path / "data0", path / "data1"]
    done = pylogseg("report", *both, "--json")
    (found,) = done.rows
    groups = pylogseg("groups", *both, "--json").rows
    assert len(groups) > 5
    names = ("group", "type", "state", "members", "offsets")
    assert _sorted(found["groups"], names) == _sorted(groups, names)
    lags = [row for row in pylogseg("groups", *both, "--offsets", "--json").rows if row.get("offset") is not None]
    names = ("group", "topic", "partition", "offset", "endOffset", "lag")
    # Offsets that are only pending in a transaction have no number yet.
    mine = [each for each in found["groupOffsets"] if each["offset"] is not None]
    assert _sorted(mine, names) == _sorted(lags, names)
    same_lags(found, pylogseg("groups", *both, "--lag", "--json").rows)
    transactions = pylogseg("transactions", *both, "--json").rows
    names = ("transactionalId", "producerId", "producerEpoch", "state", "timeoutMs", "startTime", "lastUpdateTime")
    assert _sorted(found["transactions"], names) == _sorted(transactions, names)
    opened = pylogseg("transactions", *both, "--open", "--json").rows
    names = ("topic", "partition", "producerId", "startOffset", "transactionalId", "hanging")
    assert _sorted(found["openTransactions"], names) == _sorted(opened, names)
    producers = pylogseg("transactions", *both, "--producers", "--json").rows
    mine = [
        {"topic": part["topic"], "partition": part["partition"], **each}
        for part in found["partitions"]
        for each in part["producers"]
    ]
    names = ("topic", "partition", "producerId", "producerEpoch", "lastSequence", "lastTimestamp", "transactionalId")
    assert _sorted(mine, names) == _sorted(producers, names)


def same_lags(found: Row, rows: list[Row]) -> None:
    """In time as `groups --lag` counts it, oldest unread record first; what is not known is in no figure."""
    timed = {(row["group"], row["topic"], row["partition"]): row.get("lagMs") for row in rows}
    offsets = found["groupOffsets"]
    first = [each["firstUnreadTimestamp"] for each in offsets]
    waiting = [each for each in first if each is not None]
    assert len(waiting) > 20
    assert first == sorted(waiting) + [None] * (len(first) - len(waiting))
    for each in offsets:
        if each["whyNotKnown"]:
            assert each["lagMs"] is each["ageMs"] is None
        else:
            assert each["lagMs"] == max(0, timed[each["group"], each["topic"], each["partition"]] or 0)
            at = each["firstUnreadTimestamp"]
            assert each["ageMs"] == (0 if at is None else max(0, found["madeMs"] - at))
    for group in found["groups"]:
        own = [each for each in offsets if each["group"] == group["group"]]
        known = [each for each in own if not each["whyNotKnown"]]
        assert group["notKnown"] == len(own) - len(known)
        counted = [each["lag"] for each in own if not each["stale"] and (each["lag"] is not None and each["lag"] >= 0)]
        assert group["lag"] == (sum(counted) if counted else None)
        for name in ("lagMs", "ageMs"):
            assert group[name] == max((each[name] for each in known), default=None), group
    ahead = next(each for each in found["groups"] if each["group"] == "ahead")
    assert (ahead["lag"], ahead["notKnown"]) == (None, 1)


def test_no_age_is_negative(golden: Path) -> None:
    """Where the clocks of those that wrote are ahead of ours."""
    path = golden / "inside" / "groups"
    found = facts(path / "data0", path / "data1", "--now", 1_000_000_000_000)
    with_ages = {name: rows for name, rows in found.items() if isinstance(rows, list) and rows and "ageMs" in rows[0]}
    assert {"groupOffsets", "groups", "openTransactions"} <= with_ages.keys()
    ages = [each["ageMs"] for rows in with_ages.values() for each in rows]
    assert ages.count(0) > 5
    assert min(each for each in ages if each is not None) == 0


@pytest.mark.parametrize(("bound", "most"), [("MOST_LOOKED_UP", 5), ("MOST_BYTES", 10_000)])
def test_lags_are_bounded(golden: Path, monkeypatch: pytest.MonkeyPatch, bound: str, most: int) -> None:
    """Of many offsets those with the largest lag are looked at, and the report says so."""
    path = golden / "inside" / "groups"
    monkeypatch.setattr(lags, bound, most)
    found = package.report([path / "data0", path / "data1"]).to_dict()
    assert any("lag in time of" in note for note in found["scope"]["notes"])
    left = [each for each in found["groupOffsets"] if "not looked at" in each["whyNotKnown"]]
    looked = [each for each in found["groupOffsets"] if each["ageMs"]]
    assert 5 <= len(looked) < len(left)
    assert min(each["lag"] for each in looked) >= max(each["lag"] for each in left)


def test_totals(golden: Path) -> None:
    """Topics and disks are the sums of their partitions."""
    path = golden / "inside" / "groups"
    found = package.report([path / "data0", path / "data1"]).to_dict()
    live = [each for each in found["partitions"] if each["state"] == "live"]
    for topic in found["topics"]:
        own = [each for each in live if each["topic"] == topic["name"]]
        for name in ("size", "diskBytes", "records", "batches"):
            assert topic[name] == sum(each[name] for each in own), (topic["name"], name)
        assert sum(topic["series"]["records"]) == sum(sum(each["series"]["records"]) for each in own)
    for disk in found["disks"]:
        own = [each for each in found["partitions"] if each["disk"] == disk["path"]]
        assert disk["size"] == sum(each["size"] for each in own) > 0
    assert sum(topic["records"] for topic in found["topics"]) == sum(each["records"] for each in live) > 0


def test_series(golden: Path) -> None:
    """Records by time are those that have a time, of batches by their largest one."""
    path = golden / "broker-4.3" / "codecs" / "data0"
    for full in (False, True):
        for part in package.report(path, full=full).facts.partitions:
            series = part.series
            assert sum(series.records) + series.untimed == part.records
            assert sum(series.bytes) <= part.size
            assert list(series.starts) == sorted(set(series.starts))
            assert all(start % series.step_ms == 0 for start in series.starts)


def test_urgency(golden: Path, tmp_path: Path) -> None:
    """What keeps a broker from starting, lost records, files to rebuild, and last what heals by itself."""
    folder = tmp_path / "kafka"
    for case in ("bad-index-clean", "bit-second", "zero-tail"):
        shutil.copytree(golden / "broker-4.3" / "damage" / case / "in", folder / f"{case}-0")
    (folder / "no folder of a partition").mkdir()
    (folder / "meta.properties").write_text("version=1\ncluster.id=3Db5QLSqSZieL3rJBUUegA\nnode.id=1\n")
    found = package.report(folder).facts.findings
    urgencies = [each.urgency for each in found]
    assert list(dict.fromkeys(urgencies)) == ["start", "lost", "mend", "heals"]
    assert (found[0].kind, found[-1].kind) == ("foreign-folder", "zeros")


def test_what_makes_producers_older_is_said_of_each_cause(
    golden: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(partitions, "_MOST_BEHIND", 0)
    folder = tmp_path / "d" / "producers-0"
    shutil.copytree(golden / "broker-4.3" / "codecs" / "data1" / "producers-0", folder)
    (folder / f"{195:020d}.snapshot").unlink()
    (folder / f"{180:020d}.snapshot").unlink()
    (folder / f"{180:020d}.snapshot").symlink_to("nowhere")
    lines = facts(tmp_path / "d")["scope"]["notChecked"]
    (said,) = (line for line in lines if line.startswith("producers-0: producers"))
    assert "are as in the snapshot at offset 180; producers and open transactions may be older ones: " in said
    assert "00180.snapshot: cannot read" in said
