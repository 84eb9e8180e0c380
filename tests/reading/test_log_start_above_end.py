"""Tests of disk/listing.py. A log start offset above the end of its log hides all records: nothing is read, and that is
no empty log.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from helpers.shell import pylogseg

from pylogseg.archive import list_points, read_point

NAME = "log-start-offset-checkpoint"


@pytest.fixture(params=[1000, 2**63 - 1])
def home(request: pytest.FixtureRequest, examples: Path, tmp_path: Path) -> Path:
    """The example, where the log start of `del-records`, 123, is above its end, 480."""
    home = Path(shutil.copytree(examples, tmp_path / "data"))
    text = (home / NAME).read_text()
    assert "del-records 0 123\n" in text
    (home / NAME).write_text(text.replace("del-records 0 123", f"del-records 0 {request.param}"))
    return home


@pytest.mark.parametrize(
    "command",
    ["cat HOME del-records", "stats HOME -t del-records", "grep . HOME del-records", "lake HOME del-records delta:OUT",
     "sql HOME select+count(*)+from+'del-records'", "export HOME del-records --out OUT"],
)  # fmt: skip
def test_it_is_said(home: Path, tmp_path: Path, command: str) -> None:
    places = {"HOME": home, "OUT": tmp_path / "out", "delta:OUT": f"delta:{tmp_path}/out"}
    done = pylogseg(*(places.get(word, word.replace("+", " ").replace("'", '"')) for word in command.split()))
    assert done.code != 0
    assert "480" in done.err
    assert "log start offset" in done.err


def test_an_archive_has_the_records(home: Path, tmp_path: Path) -> None:
    """The first leader epoch says where the log began."""
    done = pylogseg("archive", home, tmp_path / "archive")
    assert (done.code, NAME in done.err) == (1, True)
    point = read_point(tmp_path / "archive", list_points(tmp_path / "archive")[-1].id)
    (part,) = (part for part in point.partitions if part.topic == "del-records")
    assert (part.start_offset, part.end_offset) == (123, 480)
    assert pylogseg("archive", "status", tmp_path / "archive").code == 1


def test_a_log_that_was_deleted_to_its_end(home: Path) -> None:
    """All of its records were deleted, which is in order."""
    text = (home / NAME).read_text().splitlines()
    (home / NAME).write_text("\n".join([*text[:-1], "del-records 0 480", ""]))
    done = pylogseg("cat", home, "del-records")
    assert (done.code, done.out) == (0, b"")
