"""Tests of reporting/facts.py and reporting/page.py. The page of a report in a browser: it opens in silence, and its
numbers are those of the commands.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from helpers.browser import Opened, tab
from helpers.depth import some_of
from helpers.many_facts import many
from helpers.shell import pylogseg, rows

import pylogseg as package
from pylogseg.reporting.facts import MOST_PARTITIONS
from pylogseg.reporting.page import page

if TYPE_CHECKING:
    from playwright.sync_api import Browser

DAMAGED = ("bad-index-clean", "bad-magic", "bit-second", "garbage-tail", "intact", "leftover-swap", "zero-tail")
LARGEST_BYTES = 3 << 20


@pytest.fixture(scope="module")
def damaged_dir(golden: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("damaged")
    for case in DAMAGED:
        shutil.copytree(golden / "broker-4.3" / "damage" / case / "in", folder / f"{case}-0")
    return folder


def reported(out: Path, *paths: Path) -> Path:
    """A report of all bytes, as the command writes it."""
    done = pylogseg("report", *paths, "--full", "-o", out / "report.html")
    assert done.code in (0, 1), done.err
    return out / "report.html"


def golden_dirs(golden: Path) -> dict[str, list[Path]]:
    inside = golden / "inside" / "groups"
    return {
        "transactions": [golden / "broker-4.3" / "txn" / f"data{n}" for n in range(2)],
        "groups": [inside / "data0"],
    }


@pytest.fixture(params=["examples", "transactions", "groups", "damaged"])
def disk(request: pytest.FixtureRequest, golden: Path, examples: Path) -> list[Path]:
    """Log directories."""
    if request.param == "examples":
        return [examples]
    if request.param == "damaged":
        found: Path = request.getfixturevalue("damaged_dir")
        return [found]
    return golden_dirs(golden)[request.param]


@pytest.fixture(scope="module")
def examples_file(examples: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return reported(tmp_path_factory.mktemp("examples"), examples)


def numbers(row: dict[str, Any], *names: str) -> tuple[Any, ...]:
    return tuple(row[name] for name in names)


def test_numbers(opened: Opened, disk: list[Path], tmp_path: Path) -> None:
    """Those of `ls`, `stats` and `verify`."""
    compare(opened, disk, tmp_path)


def test_numbers_of_other_brokers(browser: Browser, corpus: Path, tmp_path: Path) -> None:
    for folder in some_of(sorted(path for path in corpus.iterdir() if path.is_dir()), 3):
        if pylogseg("ls", folder).code == 2:
            continue  # no files of a Kafka
        opened = tab(browser)
        (tmp_path / folder.name).mkdir()
        compare(opened, [folder], tmp_path / folder.name)
        opened.page.context.close()
        assert opened.wrong == [], folder.name


def compare(opened: Opened, disk: list[Path], tmp_path: Path) -> None:
    opened.go(reported(tmp_path, *disk))
    tiles = opened.tiles()

    listed = [row for row in pylogseg("ls", *disk, "--json").rows if row["state"] == "live"]
    seen = [row for row in opened.rows("Partitions") if row["State"] == "live"]
    titles = ("Partition", "Start", "End", "Size", "On disk", "First", "Newest")
    fields = ("logStartOffset", "logEndOffset", "size", "diskBytes", "firstTimestamp", "newestTimestamp")
    # Several disks may have a replica each.
    assert Counter(numbers(row, *titles) for row in seen) == Counter(
        (f"{row['topic']}-{row['partition']}", *numbers(row, *fields)) for row in listed
    )
    assert tiles["Partitions"] == len(listed)
    assert tiles["Size"] == sum(row["size"] for row in listed)
    topics = {row["Topic"]: row for row in opened.rows("Topics")}
    assert {name: row["Size"] for name, row in topics.items()} == {
        name: sum(row["size"] for row in listed if row["topic"] == name) for name in topics
    }

    counted = pylogseg("stats", *disk, "--by", "partition", "--json")
    if len({row["Partition"] for row in seen}) == len(seen):  # it refuses replicas of one partition
        shown = {row["Partition"]: row["Records"] for row in seen}
        assert {row["name"]: row["records"] for row in counted.rows} == shown

    checked = pylogseg("verify", *disk, "--json")
    (summary,) = rows(checked, "summary")
    assert (tiles["Damage"], tiles["Notices"]) == (summary["damaged"], summary["notices"])
    assert tiles["Segments"] == summary["segments"]
    if opened.page.locator("#part-findings").count():
        more = opened.page.locator("#part-findings button.more")
        if more.is_visible():
            more.click()
        text = opened.text("#part-findings")
        for row in rows(checked, "finding"):
            assert all(row[name] in text for name in ("path", "reason", "remedy")), row


@pytest.mark.parametrize("name", ["txn-a-0", "cmp-short-0", "codec-zstd-0", "legacy-0", "del-records-0"])
def test_numbers_of_a_partition(opened: Opened, examples: Path, examples_file: Path, name: str) -> None:
    opened.go(examples_file, name)
    (row,) = pylogseg("stats", examples, name, "--json").rows
    assert opened.text("h1") == name
    assert opened.tiles()["Records"] == row["records"]
    assert opened.tiles("#part-keys")["Different keys"] == row["distinctKeys"]
    records = opened.tiles("#part-records")
    assert numbers(records, "Records", "Tombstones", "Without a key", "Headers") == numbers(
        row, "records", "tombstones", "nullKeys", "headers"
    )
    shown = {each["Bytes of"]: each for each in opened.rows("Sizes")}
    for kind in ("record", "key", "value"):
        wanted = row[f"{kind}Bytes"]
        titles = ("Total", "Least", "Median", "90 %", "99 %", "Largest")
        assert numbers(shown[kind], *titles) == numbers(wanted, "total", "min", "p50", "p90", "p99", "max")
    codecs = {each["Codec"]: each for each in opened.rows("Codecs")}
    assert set(codecs) == set(row["codecs"])
    for codec, wanted in row["codecs"].items():
        assert numbers(codecs[codec], "Batches", "Records") == numbers(wanted, "batches", "records")
    if opened.page.locator("#part-missing").count():
        missing = {each["Reason"]: each["Offsets"] for each in opened.rows("Missing offsets by reason")}
        reasons = {"log start": "belowLogStart", "not explained": "unexplained"}
        assert missing == {reason: row["missingOffsets"][reasons.get(reason, reason)] for reason in missing}
    else:
        assert not any(row["missingOffsets"].values())


def test_groups(opened: Opened, golden: Path, tmp_path: Path) -> None:
    disk = golden_dirs(golden)["groups"]
    opened.go(reported(tmp_path, *disk), "/groups")
    listed = pylogseg("groups", *disk, "--json").rows
    seen = {row["Group"]: row for row in opened.rows("Consumer groups")}
    assert set(seen) == {row["group"] for row in listed}
    for row in listed:
        assert numbers(seen[row["group"]], "Type", "State", "Members", "Offsets") == numbers(
            row, "type", "state", "members", "offsets"
        )
    offsets = {
        (row["group"], f"{row['topic']}-{row['partition']}"): row
        for row in pylogseg("groups", *disk, "--offsets", "--json").rows
        # A partition that is only assigned has no offset of the group.
        if (row.get("offset"), row.get("pendingOffset")) != (None, None)
    }
    shown = {(row["Group"], row["Partition"]): row for row in opened.rows("Offsets of groups, and their lag")}
    assert set(shown) == set(offsets)
    for key, row in offsets.items():
        assert numbers(shown[key], "Offset", "End", "Lag", "Committed") == numbers(
            row, "offset", "endOffset", "lag", "commitTime"
        )
    waits = [row["Waits for"] or 0 for row in opened.rows("Consumer groups")]
    assert waits == sorted(waits, reverse=True)
    assert waits[0] == max(row["Waits for"] or 0 for row in shown.values()) > 0
    known = {row["Group"] for row in shown.values() if row["Waits for"] is not None}
    assert known == {name for name, row in seen.items() if row["Waits for"] is not None}


def test_replicas(opened: Opened, examples_file: Path, examples: Path) -> None:
    """Leaders, replicas, those in sync and settings of topics: what the tables of the metadata have."""
    opened.go(examples_file, "/replicas")
    state = package.cluster_state(examples)
    shown = {row["Partition"]: row for row in opened.rows("Replicas")}
    wanted = state.rows("partitions")
    assert set(shown) == {f"{row['topic']}-{row['partition']}" for row in wanted}
    for row in wanted:
        found = shown[f"{row['topic']}-{row['partition']}"]
        assert found["Brokers"] == ", ".join(map(str, row["replicas"]))
        assert (found["State"] == "no leader") == (row["leader"] < 0)
    settings = [(row["Topic"], row["Setting"]) for row in opened.rows("Settings of topics")]
    assert sorted(settings) == sorted(
        (row["resource"], row["name"]) for row in state.rows("configs") if row["resourceType"] == "TOPIC"
    )


def test_damage_map(opened: Opened, damaged_dir: Path, tmp_path: Path) -> None:
    """A file with damage, its positions as a table; the same as `verify` finds."""
    opened.go(reported(tmp_path, damaged_dir), "bit-second-0")
    (found,) = rows(pylogseg("verify", damaged_dir / "bit-second-0", "--json"), "finding")
    file = Path(found["path"]).name
    (row,) = opened.rows(f"Findings in {file}")
    assert numbers(row, "From byte", "First offset", "Last offset", "Reason", "Remedy") == numbers(
        found, "position", "offset", "lastOffset", "reason", "remedy"
    )
    segment = next(row for row in opened.rows("Segments") if row["Segment"] == file)
    part = opened.page.locator("#part-damage rect.part.damage")
    good = opened.page.locator("#part-damage rect.part.good").bounding_box()
    box = part.bounding_box()
    assert box
    assert good
    assert box["x"] - good["x"] == pytest.approx(good["width"] * row["From byte"] / segment["Size"], abs=3)
    assert box["width"] == pytest.approx(good["width"] * (row["To byte"] - row["From byte"]) / segment["Size"], abs=3)


def test_empty(opened: Opened, tmp_path: Path) -> None:
    """A disk without a record."""
    (tmp_path / "data" / "orders-0").mkdir(parents=True)
    (tmp_path / "data" / "orders-0" / f"{0:020}.log").touch()
    opened.go(reported(tmp_path, tmp_path / "data"))
    assert opened.tiles()["Partitions"] == 1
    opened.at("orders-0")
    assert opened.text("h1") == "orders-0"


def test_size(opened: Opened, examples: Path, tmp_path: Path) -> None:
    """A thousand partitions of ten segments, whose numbers have nothing in common, are below 3 MB."""
    facts = many(json.loads(pylogseg("report", examples, "--json").out), MOST_PARTITIONS, 10)
    file = tmp_path / "many.html"
    file.write_text(page(facts), encoding="utf-8")
    assert file.stat().st_size < LARGEST_BYTES
    last = facts["partitions"][-1]["name"]
    opened.go(file, last)
    assert opened.text("h1") == last
