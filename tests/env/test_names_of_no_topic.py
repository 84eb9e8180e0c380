"""Tests of disk/choice.py and disk/target.py. Folders named like a partition whose topic Kafka does not allow: each
command names them, and none makes a path.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from helpers.shell import pylogseg
from helpers.trees import entries

import pylogseg as package
from pylogseg.disk.target import Target
from pylogseg.env.storage import LocalStorage

pytestmark = pytest.mark.skipif(os.name == "nt", reason="the file system takes no such names")

NAMES = ["..-0", ".-0", "a b-0", ";-0", "x\ny-0", "$(id)-0", "%2e%2e-0", "\u00fc-0", "n" * 250 + "-0", "a\\b-0",
         f"..-0.{'a' * 32}-delete", f"..-0.{'a' * 32}-stray"]  # fmt: skip
SAID = "no topic can have the name of"
READERS = [
    "ls d",
    "ls -l d",
    "ls --json d",
    "cat d",
    "latest d",
    "grep v d",
    "stats --by partition d",
    "verify d",
    "verify --json d",
    "export d --out o/e",
    "export d --out o/e --by-date",
    "export d --out o/e.csv",
    "lake d delta:o/{topic} --to-end",
    "lake d delta:o/x/{topic} --to-end --json",
    "report d -o o/r.html --csv o/csv",
    "report d --json",
    "diff d d",
]
WRITERS = [
    "recover --no-keep d",
    "repair --no-keep d",
    "reindex d",
    "compact --force --include-active d",
    "compact --force d --into o/k",
    "recode -z zstd d",
    "redact --key k d",
    "retain --ms 1 --force d",
    "delete-records --offset -1 --force d *",
    "copy d o/k",
    "move d o *",
    "restore d o",
    "merge d --into o/k",
]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A log directory ``d`` with a topic and these folders, and an empty folder ``o``."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name in ["t-0", *NAMES]:
        (tmp_path / "d" / name).mkdir(parents=True)
        data = package.encode([(1_700_000_000_000, b"k", b"v")] * 4, base_offset=0, leader_epoch=0)
        (tmp_path / "d" / name / f"{0:020d}.log").write_bytes(data)
    (tmp_path / "o").mkdir()
    return tmp_path


def ran(text: str) -> tuple[int, str]:
    done = pylogseg(*text.split())
    return done.code, done.text + done.err


@pytest.mark.parametrize("line", READERS)
def test_a_reader_names_them_and_reads_none(world: Path, line: str) -> None:
    before = entries(world / "d")
    code, shown = ran(line)
    is_fault = line.startswith("lake")
    assert (code, shown.count(f"d: {SAID}")) == (is_fault, 1 + (line == "report d --json") + (line == "diff d d"))
    assert f"and {len(NAMES) - 5} more: not read" in shown
    assert entries(world / "d") == before
    assert made_of(world) == []


@pytest.mark.parametrize("line", WRITERS)
def test_a_writer_skips_them(world: Path, line: str) -> None:
    before = {path: data for path, data in entries(world / "d").items() if path.split("/")[0] in NAMES}
    code, shown = ran(line)
    assert code == (1 if line.startswith("delete-records") else 0)  # which names them by its pattern
    assert "no topic can have the name" in shown or "--into o/k" in line
    assert {path: data for path, data in entries(world / "d").items() if path.split("/")[0] in NAMES} == before
    assert made_of(world) == []


def made_of(world: Path) -> list[str]:
    """Return the paths outside of the log directory that have something of such a name, or lie beside the target."""
    above = {"a b", ";", "$(id)", "%2e%2e", "\u00fc", "a\\b", "\n", "n" * 250}
    paths = [str(path.relative_to(world)) for path in world.rglob("*") if path.relative_to(world).parts[0] != "d"]
    strange = [path for path in paths if path.split("/")[0] not in ("o", "state")]
    return strange + [path for path in paths if ".." in path or "=." in path or any(name in path for name in above)]


def test_an_archive_has_the_others_and_a_fault(world: Path) -> None:
    code, shown = ran("archive d o/a --to-end")
    assert (code, shown.count(SAID)) == (1, 1)
    point = "aiven+file://" + str(world / "o" / "a") + "#latest"
    assert list(package.open_dir(point).topics) == ["t"]
    assert made_of(world) == []


@pytest.mark.parametrize("name", NAMES)
def test_one_that_is_named_is_read_without_a_topic(world: Path, name: str) -> None:
    """Somebody's copy of a partition may have any name; it gives no table and no folder its own."""
    path = os.path.join("d", name)
    assert [record.value for record in package.read(path)] == [b"v"] * 4
    assert package.read_arrow(path).read_all()["topic"].to_pylist() == [""] * 4
    assert pylogseg("export", path, "--out", "o/e", "--to", "jsonl").code == 0
    assert pylogseg("lake", path, "delta:o/{topic}", "--to-end").code != 0
    assert made_of(world) == []


def test_a_target_skips_them(world: Path) -> None:
    place = Target.find(LocalStorage(), "d")
    assert sorted(name for name in place.names if not place.reason_to_skip(name)) == ["t-0"]
