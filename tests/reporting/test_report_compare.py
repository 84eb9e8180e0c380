"""Tests of cli/report.py, reporting/assembly.py and reporting/comparing.py. `report --compare`: what changed since an
earlier report, and what is refused.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.browser import Opened
from helpers.damaged_logs import change_byte
from helpers.shell import expect, pylogseg

import pylogseg as package
from pylogseg.errors import RequestError
from pylogseg.reporting import assembly

DAY_MS = 86_400_000
NOW = 1_700_200_000_000
THEN = NOW - 2 * DAY_MS
CLUSTER = "Iws8qxuXspFOnwrumWcCIw"


def append(folder: Path, count: int, first: int = 0) -> None:
    with package.open_log(folder, segment_bytes=2000) as log:
        for i in range(first, first + count):
            log.append([(THEN + i, b"k%d" % i, b"value" * 9)])


def identify(log_dir: Path, topics: dict[str, str], cluster: str = CLUSTER) -> None:
    """What a broker writes beside logs: who the cluster and its topics are."""
    (log_dir / "meta.properties").write_text(f"version=1\ncluster.id={cluster}\nnode.id=1\n")
    for name, topic_id in topics.items():
        (log_dir / name / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}")


@pytest.fixture(scope="module")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compare") / "kafka"
    names = [f"{name}-0" for name in ("moves", "is-cut", "gone", "made-again", "same", "starts-later", "harmed")]
    for name in names:
        append(folder / name, 100)
    identify(folder, dict.fromkeys(names, "5bdNJEwYTyWDvSsKwr0Dlg"))
    return folder


@pytest.fixture
def log_dir(untouched: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(untouched, tmp_path / "kafka"))


@pytest.fixture(scope="module")
def earlier_facts(untouched: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    return written(untouched, tmp_path_factory.mktemp("earlier") / "before.json").read_text()


def written(log_dir: Path, to: Path, *words: object, now: int = THEN) -> Path:
    done = pylogseg("report", log_dir, "--json", "--now", now, *words)
    assert done.code in (0, 1), done.err
    to.write_bytes(done.out)
    return to


def change(log_dir: Path) -> None:
    append(log_dir / "moves-0", 50, 100)
    append(log_dir / "new-0", 10)
    shutil.rmtree(log_dir / "gone-0")
    for segment in sorted((log_dir / "is-cut-0").glob("*.log"))[-1:]:
        segment.unlink()
    (log_dir / "made-again-0" / "partition.metadata").write_text("version: 0\ntopic_id: 5bdNJEwYTyWDvSsKwr0DlA")
    for segment in sorted((log_dir / "starts-later-0").glob("*"))[:3]:
        if segment.suffix in (".log", ".index", ".timeindex"):
            segment.unlink()
    change_byte(sorted((log_dir / "harmed-0").glob("*.log"))[0], 200)


def places(found: dict[str, Any]) -> dict[str, tuple[Any, ...]]:
    return {p["name"]: (p["logStartOffset"], p["logEndOffset"], p["size"]) for p in found["partitions"]}


def test_what_changed(log_dir: Path, tmp_path: Path) -> None:
    """Partitions and findings, against both reports; on the terminal too. The exit code is the verdict's."""
    earlier = written(log_dir, tmp_path / "before.json", "--full")
    before = json.loads(earlier.read_text())
    change(log_dir)
    done = expect(pylogseg("report", log_dir, "--json", "--full", "--now", NOW, "--compare", earlier), 1)
    (now,) = done.rows
    since = now["since"]
    assert (since["madeMs"], since["spanMs"], since["source"]) == (THEN, 2 * DAY_MS, str(earlier))
    old, new = places(before), places(now)
    found = {row["name"]: row for row in since["partitions"]}
    for name, row in found.items():
        for at, field in enumerate(("start", "end", "size")):
            assert row[f"{field}Before"] == (old[name][at] if name in old else None)
            assert row[f"{field}After"] == (new[name][at] if name in new else None)
    whats = {name: row["what"] for name, row in found.items()}
    assert whats == {
        "moves-0": "moved", "new-0": "new", "gone-0": "gone", "is-cut-0": "cut", "made-again-0": "recreated",
        "starts-later-0": "moved",
    }  # fmt: skip
    order = [row["what"] for row in since["partitions"]]
    assert order == sorted(order, key=["cut", "gone", "recreated", "new", "moved"].index)
    assert since["partitionsSame"] == len(old.keys() & new.keys()) - 4 == 2
    assert found["moves-0"]["recordsPerDay"] == 25
    assert found["moves-0"]["bytesPerDay"] == (new["moves-0"][2] - old["moves-0"][2]) / 2
    assert found["starts-later-0"]["bytesPerDay"] < 0
    kinds = {(row["what"], row["level"], row["topic"]) for row in since["findings"]}
    assert ("new", "damage", "harmed") in kinds
    news, olds = ({(row["path"], row["position"]) for row in report["findings"]} for report in (now, before))
    assert sum(row["what"] == "new" for row in since["findings"]) == len(news - olds)
    said = expect(pylogseg("report", log_dir, "--full", "--now", NOW, "--compare", earlier), 1)
    for words in ("2.0 days", "gone: gone-0", "cut: is-cut-0", "moved: moves-0", "(25 records a day)", "new: damage"):
        assert words in said.text, said.text


def test_nothing_changed(golden: Path, examples: Path, tmp_path: Path) -> None:
    paths = examples, golden / "inside" / "groups" / "data0", golden / "broker-4.3" / "txn" / "data0"
    for number, path in enumerate(paths):
        made = package.report(path, now_ms=NOW)
        made.write_json(tmp_path / f"{number}.json")
        since = made.since(tmp_path / f"{number}.json").facts.since
        assert since is not None
        assert since.partitions == since.findings == since.settings == since.replicas == since.notes == ()
        assert since.partitions_same == sum(each.state == "live" for each in made.facts.partitions) > 0
        assert since.findings_same == len(made.facts.findings)
        assert {each["what"] for each in since.groups} <= {"same", "stuck"}


def test_groups_settings_and_replicas(golden: Path, tmp_path: Path) -> None:
    """The earlier report is this one with other numbers."""
    path = golden / "inside" / "groups"
    made = package.report([path / "data0", path / "data1"], now_ms=NOW)
    before = made.to_dict()
    names = [each["group"] for each in before["groups"] if each["lag"]]
    for row in before["groupOffsets"]:
        row["offset"] = row["offset"] - 1 if row["group"] in names[:2] and row["offset"] else row["offset"]
    lags = {names[0]: 0, names[1]: 10_000}
    for row in before["groups"]:
        row["lag"] = lags.get(row["group"], row["lag"])
    kept = [row for row in before["groups"] if row["group"] != names[2]]
    before["groups"] = [*kept, kept[0] | {"group": "left"}]
    before["topicSettings"][0]["value"] = "another"
    before["topicSettings"].append({"topic": "in", "name": "segment.ms", "value": "1"})
    before["replicas"][0]["leader"], before["replicas"][0]["inSync"] = 77, [77, 78]
    earlier = tmp_path / "before.json"
    earlier.write_text(json.dumps(before))
    since = made.since(earlier).facts.since
    assert since is not None
    found = {each["group"]: each for each in since.groups}
    moved = sum(1 for row in made.to_dict()["groupOffsets"] if row["group"] == names[0] and row["offset"])
    assert tuple(found[names[0]][name] for name in ("what", "lagBefore", "read")) == ("behind", 0, moved)
    assert found[names[1]]["what"] == "caught up"
    assert (found["left"]["what"], found[names[2]]["what"]) == ("gone", "new")
    assert found[names[3]]["what"] == "stuck"
    order = [each["what"] for each in since.groups]
    assert order == sorted(order, key=["stuck", "behind", "gone", "new", "caught up", "same"].index)
    assert [(each["before"], each["after"]) for each in since.settings if each["name"] == "segment.ms"] == [("1", None)]
    assert len(since.settings) == 2
    (who,) = since.replicas
    assert (who["leaderBefore"], who["inSyncBefore"]) == (77, [77, 78])


def gone(**other: Any) -> dict[str, Any]:
    row = {"name": "x-0", "state": "live", "disk": "d", "logStartOffset": 0, "logEndOffset": 1, "size": 2}
    return row | other


@pytest.mark.parametrize(
    ("harm", "word"),
    [
        (lambda found: found | {"clusterIds": ["another-cluster"]}, "another cluster"),
        (lambda found: found | {"version": 2}, "newer"),
        (lambda found: [found], "not the JSON of a report"),
        (lambda found: {}, "not the JSON of a report"),
        (lambda found: {name: value for name, value in found.items() if name != "findings"}, "findings"),
        (lambda found: found | {"partitions": [7]}, "not the JSON of a report"),
        (lambda found: found | {"partitions": [{"name": "x-0", "state": "live"}]}, "not the JSON of a report"),
        (lambda found: found | {"scope": {"size": "many"}}, "not the JSON of a report"),
        (lambda found: found | {"groups": {"a": 1}}, "not the JSON of a report"),
        (lambda found: found | {"madeMs": NOW + 1}, "not made before"),
        (lambda found: found | {"madeMs": -(10**30)}, "not made before"),
        (lambda found: found | {"partitions": [gone(logEndOffset=float("nan"))]}, "not the JSON of a report"),
        (lambda found: found | {"partitions": [gone(name="\ud800-0")]}, "not the JSON of a report"),
    ],
)
def test_what_is_refused(
    untouched: Path, earlier_facts: str, tmp_path: Path, harm: Callable[[dict[str, Any]], Any], word: str
) -> None:
    earlier = tmp_path / "before.json"
    earlier.write_text(json.dumps(harm(json.loads(earlier_facts))))
    page = tmp_path / "report.html"
    done = expect(pylogseg("report", untouched, "-o", page, "--now", NOW, "--compare", earlier), 2)
    assert word in done.err, done.err
    assert "Traceback" not in done.err
    assert not page.exists()


def test_files_that_are_none(log_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text("<!DOCTYPE html>")
    (tmp_path / "deep.json").write_text("[" * 100_000 + "]" * 100_000)
    with pytest.raises(RequestError, match=r"not the JSON of a report \(nested too deeply\)"):
        package.report(log_dir).since(tmp_path / "deep.json")
    for name in ("page.html", "nothing.json"):
        expect(pylogseg("report", log_dir, "--compare", tmp_path / name), 2, name)
    with pytest.raises(RequestError, match="not the JSON of a report"):
        package.report(log_dir).since(tmp_path / "page.html")


def test_of_very_many(log_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Partitions that are not shown one by one are compared too; those that were not asked for are not gone."""
    package.report(log_dir, now_ms=THEN).write_json(tmp_path / "before.json")
    monkeypatch.setattr(assembly, "MOST_PARTITIONS", 2)
    made = package.report(log_dir, now_ms=NOW)
    assert len(made.facts.partitions_in_brief) == 5
    same = made.since(tmp_path / "before.json").facts.since
    assert same is not None
    assert (same.partitions, same.partitions_same) == ((), 7)
    made.write_json(tmp_path / "brief.json")
    append(log_dir / "moves-0", 5, 100)
    later = package.report(log_dir, now_ms=NOW).since(tmp_path / "brief.json").facts.since
    assert later is not None
    assert [(each["name"], each["endBefore"], each["endAfter"]) for each in later.partitions] == [("moves-0", 100, 105)]
    one = package.report(log_dir, "same", now_ms=NOW).since(tmp_path / "before.json").facts.since
    assert one is not None
    assert (one.partitions, one.partitions_same) == ((), 1)


def test_of_the_page(opened: Opened, log_dir: Path, tmp_path: Path) -> None:
    earlier = written(log_dir, tmp_path / "before.json")
    change(log_dir)
    page = tmp_path / "report.html"
    done = pylogseg(
        "report", log_dir, "--now", NOW, "--compare", earlier, "-o", page, "--csv", tmp_path / "csv", "--json"
    )
    (found,) = done.rows
    opened.go(page, "/since")
    assert opened.text("#title-since").startswith("Since 2023-11-15")
    shown = {row["Partition"]: row for row in opened.rows("Partitions that changed")}
    assert {name: (row["End before"], row["End now"], row["Records a day"]) for name, row in shown.items()} == {
        row["name"]: (row["endBefore"], row["endAfter"], row["recordsPerDay"]) for row in found["since"]["partitions"]
    }
    assert len(opened.rows("Findings that are new or gone")) == len(found["since"]["findings"]) > 0
    assert (tmp_path / "csv" / "since-partitions.csv").exists()
