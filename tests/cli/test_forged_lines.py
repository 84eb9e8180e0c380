"""Tests of cli/outcomes.py. A name of a folder, or a text of a point, with line ends in it: no command prints a line
that somebody made up.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from helpers.shell import pylogseg

import pylogseg as package
from pylogseg.archive import list_points, read_point, write
from pylogseg.disk.tier.points import archive_store, new_id, write_point

FORGED = "\nFORGED            0  live\r\nFORGED 2\ty"

COMMANDS = [
    "ls D", "ls -l -a D", "verify D", "stats D", "stats D --by partition --gaps --top-keys 3",
    "cat D --on-corrupt skip",
    "grep v D", "grep v D --count", "grep v D --names", "latest D", "dump D", "diff D OTHER", "diff OTHER D",
    "recover --dry-run D", "repair --dry-run --no-keep D", "reindex --dry-run D", "compact --force --dry-run D",
    "retain --dry-run D --config retention.ms=1", "redact --key k --dry-run D", "recode -z zstd --dry-run D",
    "copy D OUT", "restore D OUT", "export D --out OUT", "report D -o OUT/x.html", "cluster D", "groups D",
    "transactions D", "schemas D", "archive D OUT", "delete-records --dry-run D NAME:1",
    "truncate --dry-run D NAME --to 0", "move --dry-run D OUT NAME", "merge --dry-run D OTHER --into OUT",
    "sql D .tables", "cat D NAME", "cat D NAME-none", "restore D OUT NAME", "lake D delta:OUT/{topic}",
]  # fmt: skip
OF_POINTS = [
    "archive show A", "archive points A", "archive status A", "archive diff A FIRST LAST", "verify A",
    "verify A --read-all",
    "ls P", "cat P", "stats P", "verify P", "restore P OUT", "restore A OUT --node-id 1", "drill A", "groups P",
    "cluster P", "report P -o OUT/x.html", "archive D2 COPY",
]  # fmt: skip


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path | str]:
    folder = tmp_path_factory.mktemp("forged")
    name = f"x{FORGED}"
    with package.Broker(folder / "good") as broker:
        broker.create_topic("t", 1)
        for number in range(5):
            broker.produce("t", b"v%d" % number, key=b"k")
    write(folder / "good", folder / "archive")
    for disk in ("disk", "other"):
        shutil.copytree(folder / "good", folder / disk)
        shutil.copytree(folder / "good" / "t-0", folder / disk / f"{name}-0")
    path = folder / "disk" / f"{name}-0" / f"{0:020d}.log"
    path.write_bytes(path.read_bytes()[:-7] + b"garbage")
    path.with_name(f"y{FORGED}.log").write_bytes(b"")
    whole = read_point(folder / "archive", list_points(folder / "archive")[-1])
    parts = tuple(replace(each, fault=f"a fault{FORGED}") for each in whole.partitions)
    store = archive_store(folder / "archive")
    for number in (1, 2):
        time_ms = whole.time_ms + number
        disks = tuple(each._replace(path=f"{each.path}{FORGED}") for each in whole.disks)
        forged = replace(
            whole, id=new_id(time_ms), time_ms=time_ms, notes=(f"a note{FORGED}",), partitions=parts, disks=disks
        )
        write_point(store, replace(forged, writer=f"w{FORGED}"))
    shutil.copytree(folder / "archive", folder / "copy")
    points = [each.id for each in list_points(folder / "archive")]
    return {
        "D": folder / "disk", "D2": folder / "good", "OTHER": folder / "other", "A": folder / "archive",
        "P": f"aiven+file://{folder}/archive#latest", "COPY": folder / "copy", "FIRST": points[0], "LAST": points[-1],
        "NAME": name,
    }  # fmt: skip


@pytest.mark.parametrize("line", COMMANDS + OF_POINTS)
def test_no_line_is_forged(places: dict[str, Path | str], tmp_path: Path, line: str) -> None:
    out = tmp_path / "out"
    out.mkdir()
    words: list[str] = []
    for word in line.split(" "):
        base, colon, rest = word.partition(":")
        of = places.get(base)
        words.append(word.replace("OUT", str(out)) if of is None else f"{of}{colon}{rest}")
    done = pylogseg(*words)
    assert [each for each in [*done.out.decode().split("\n"), *done.err.split("\n")] if each.startswith("FORGED")] == []
    assert "\r" not in done.out.decode() + done.err
    assert "Usage:" not in done.err, done.err


def test_the_name_is_shown_escaped(places: dict[str, Path | str]) -> None:
    assert r"x\nFORGED" in pylogseg("ls", places["D"]).err
    assert r"a note\nFORGED" in pylogseg("archive", "show", places["A"]).text
