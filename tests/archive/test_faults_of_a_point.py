"""Tests of archive/looking.py and disk/tier/json_fields.py. Faults that are no partition's: a point has them, so that
`archive status` says what the run said.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from helpers.shell import pylogseg as shell

import pylogseg
from pylogseg.archive import list_points, read_point, write
from pylogseg.disk.tier.point import seal
from pylogseg.disk.tier.point_json import load_as, parse_point
from pylogseg.disk.tier.point_lists import head_of

HARMED = "log-start-offset-checkpoint"


@pytest.fixture(params=[1, 60], ids=["one object", "lists"])
def archive(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """An archive whose newest point has a fault of a small file, small enough for one object or with lists."""
    disk = tmp_path / "disk"
    for number in range(request.param):
        with pylogseg.open_log(disk / f"t-{number}") as log:
            log.append([(None, b"k", b"v")])
    (disk / HARMED).write_bytes(b"\xff")
    assert write(disk, tmp_path / "archive").exit_code == 1
    return tmp_path / "archive"


def test_status_and_show(archive: Path) -> None:
    status = shell("archive", "status", archive)
    assert (status.code, ", 1 fault, " in status.text) == (1, True)
    assert json.loads(shell("archive", "status", archive, "--json").text)["faults"] == 1
    (listed,) = shell("archive", "points", archive, "--json").rows
    assert listed["faults"] == 1
    shown = shell("archive", "show", archive).text
    assert f"fault: {archive.parent}/disk/{HARMED}" in shown
    assert shown.count("fault: ") == 1
    (fault,) = json.loads(shell("archive", "show", archive, "--json").text)["faults"]
    assert HARMED in fault


def test_a_point_of_an_older_version(archive: Path) -> None:
    """One without the members is read, with the notes that it has; an older reader takes the new ones for notes."""
    point = read_point(archive, list_points(archive)[-1].id)
    members = {name: value for name, value in json.loads(point.text).items() if name not in ("faults", "sha256")}
    old = parse_point(seal(json.dumps(members, separators=(",", ":"))).encode(), "old")
    assert old == replace(point, faults=())
    assert old.head.faults == 0
    for path in (archive / "points").iterdir():
        head = json.loads(path.read_text())
        if head["format"] == 3:
            members = {name: value for name, value in head.items() if name not in ("otherFaultCount", "sha256")}
            fields = load_as(data := seal(json.dumps(members, separators=(",", ":"))).encode(), "old", "a point", (3,))
            assert head_of(fields, data).faults == head["faultCount"] == 0
