"""Tests of cli/cluster.py. The drill of `docs/lost-cluster.md` without a broker: the page's commands, on the disks of a
broker that was stopped.

`tests/kafka/broker/lost_cluster.py` does it with brokers and their clients.
"""

from __future__ import annotations

import csv
import re
import shlex
import shutil
from pathlib import Path

import documents
import pytest
from helpers.shell import Done, expect, pylogseg

import pylogseg as package

PAGE = documents.ROOT / "docs" / "lost-cluster.md"
TOPICS = ("in", "in2")
GROUPS = ("k848-main", "classic-main", "simple")
Place = tuple[str, int]


@pytest.fixture(scope="module")
def lost(golden: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The disks; what one would mount."""
    return Path(shutil.copytree(golden / "inside" / "groups", tmp_path_factory.mktemp("lost") / "mnt"))


@pytest.fixture
def new(tmp_path: Path, lost: Path) -> Path:
    """A log directory of another cluster, with the topics and without a record."""
    folder = tmp_path / "new"
    for number, partition in enumerate(p for p in package.open_dir(lost) if p.topic in TOPICS):
        (folder / partition.name).mkdir(parents=True)
        text = f"version: 0\ntopic_id: {'newTopicOfThisCluster'[:21]}{'AQgw'[number % 4]}\n"
        (folder / partition.name / "partition.metadata").write_text(text)
    documents.owned(folder, 7, "disk", "anotherClusterOfTests")
    return folder


def the_commands(word: str) -> list[str]:
    """The page's commands of ours that begin with a word."""
    blocks = (block.text for block in documents.blocks(PAGE, "bash"))
    found = [line for text in blocks for line in text.splitlines() if line.startswith(f"pylogseg {word}")]
    assert found, word
    return found


def run(line: str, lost: Path, new: Path) -> Done:
    """Run a command of the page here."""
    line = line.replace("orders payments", " ".join(TOPICS))
    words = [re.sub("^/data/new", str(new), re.sub("^/mnt/old", str(lost), word)) for word in shlex.split(line)[1:]]
    return pylogseg(*words)


def records(path: Path, topic: str) -> dict[Place, list[tuple[int, bytes | None, bytes | None]]]:
    found: dict[Place, list[tuple[int, bytes | None, bytes | None]]] = {}
    for record in package.read(path, topic):
        found.setdefault((topic, record.partition), []).append((record.offset, record.key, record.value))
    return found


def committed(path: Path) -> dict[tuple[str, str, int], int]:
    """Offsets by group, topic and partition out of the file for Kafka's tool."""
    with path.open(encoding="utf-8") as lines:
        return {(group, topic, int(number)): int(offset) for group, topic, number, offset in csv.reader(lines)}


def test_see_what_there_is(lost: Path, new: Path) -> None:
    for line in the_commands("groups /mnt/old"):
        if "--export" in line:
            continue
        done = run(line, lost, new)
        assert done.code == 0, (line, done.err)
        assert {*GROUPS} <= {row.split()[0] for row in done.text.splitlines() if row}
    for line in [*the_commands("cluster"), *the_commands("verify")]:
        assert run(line, lost, new).code == 0, line
    lags = pylogseg("groups", lost, "k848-main", "--lag", "--json").rows
    for row in lags:
        if row.get("lagRecords") is None:
            continue
        there = [r for r in package.read(lost, row["topic"], row["partition"]) if r.offset >= row["offset"]]
        assert row["lagRecords"] == len(there)


def test_consumers_go_on_where_they_stood(
    lost: Path, new: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (restore,) = (each for each in the_commands("restore") if "--cluster" not in each)
    expect(run(restore, lost, new), 0)
    (export,) = the_commands("groups /mnt/old --export")
    assert run(export, lost, new).code == 0
    offsets = {at: offset for at, offset in committed(tmp_path / "offsets.csv").items() if at[1] in TOPICS}
    assert {group for group, _, _ in offsets} >= {*GROUPS}
    before = {place: rows for topic in TOPICS for place, rows in records(lost, topic).items()}
    after = {place: rows for topic in TOPICS for place, rows in records(new, topic).items()}
    assert before == after
    for (group, topic, number), offset in offsets.items():
        left = [row for row in before[topic, number] if row[0] >= offset]
        assert [row for row in after[topic, number] if row[0] >= offset] == left, group
    ids = {(new / f"{topic}-0" / "partition.metadata").read_text() for topic in TOPICS}
    assert all("newTopicOfThisCluster" in text for text in ids)  # those that the new cluster gave


def test_a_mirror_with_other_offsets(lost: Path, tmp_path: Path) -> None:
    """The offsets of the page's file by records, where a mirror has begun later."""
    mirror, skipped = tmp_path / "mirror", 5
    for partition in (0, 1, 2, 3):
        with package.open_log(mirror / f"in-{partition}") as log:
            for record in list(package.read(lost, "in", partition))[skipped:]:
                log.append([(record.timestamp, record.key, record.value)])
    file = tmp_path / "mapped.csv"
    done = pylogseg("groups", lost, "k848-main", "classic-main", "--map-to", mirror, "--export", file)
    assert done.code in (0, 1), done.err  # `in2` is not there
    mapped = {at: offset for at, offset in committed(file).items() if at[1] == "in"}
    plain = tmp_path / "plain.csv"
    pylogseg("groups", lost, "k848-main", "classic-main", "--export", plain)
    checked = 0
    for at, offset in committed(plain).items():
        if at not in mapped:
            continue
        behind = [(r.key, r.value) for r in package.read(lost, "in", at[2]) if r.offset >= offset]
        there = [(r.key, r.value) for r in package.read(mirror, "in", at[2]) if r.offset >= mapped[at]]
        assert there == behind
        checked += offset != mapped[at]
    assert checked
