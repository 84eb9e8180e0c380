"""Tests of env/beside.py. Each command that writes, onto a disk that is full or becomes full: exit code 2, and nothing
half-made stays.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from helpers.depth import some_of
from helpers.shell import command, environment
from helpers.shell import pylogseg as shell

import pylogseg
from pylogseg.archive import list_points

#: New files and folders, which are made in OUT on the full disk.
NEW: dict[str, tuple[str, ...]] = {
    "export": ("export", "DISK", "-O", "OUT/table"),
    "export to a file": ("export", "DISK", "t", "-O", "OUT/all.parquet"),
    "export by date": ("export", "DISK", "-O", "OUT/table", "--by-date"),
    "export as text": ("export", "DISK", "t", "-O", "OUT/all.jsonl"),
    "copy": ("copy", "DISK", "OUT/copy"),
    "merge": ("merge", "DISK", "--into", "OUT/merged"),
    "compact": ("compact", "DISK", "t", "--force", "--into", "OUT/compacted"),
    "recode": ("recode", "DISK", "t", "--compression", "gzip", "--into", "OUT/recoded"),
    "redact": ("redact", "DISK", "t", "--key", "k1", "--into", "OUT/redacted"),
    "repair": ("repair", "DISK", "--into", "OUT/repaired"),
    "move": ("move", "DISK", "OUT", "t-0"),
    "archive": ("archive", "DISK", "OUT/archive"),
    "restore of a point": ("restore", "ARCHIVE", "OUT", "--at", "now", "--node-id", "1"),
    "restore of partitions": ("restore", "ARCHIVE#latest", "OUT", "t"),
    "restore of a copy": ("restore", "DISK", "OUT", "t"),
    "restore of a table": ("restore", "TABLE", "OUT", "--committed"),
    "drill": ("drill", "ARCHIVE", "--folder", "OUT"),
    "evidence of a drill": ("drill", "ARCHIVE", "--evidence", "OUT/evidence"),
    "report": ("report", "DISK", "-o", "OUT/page.html"),
    "report as csv": ("report", "DISK", "--csv", "OUT/csv"),
    "sql": ("sql", "DISK", "t", "select * from t", "-O", "OUT/answer.parquet"),
    "groups": ("groups", "GROUPS", "--export", "OUT/offsets.csv"),
    "lake": ("lake", "DISK", "t", "delta:OUT/lake"),
    "lake of latest": ("lake", "DISK", "t", "iceberg:OUT/lake/a.t", "--latest"),
}
#: What changes the logs of a disk.
CHANGES: dict[str, tuple[str, ...]] = {
    "compact": ("compact", "OUT/disk", "t", "--force"),
    "recode": ("recode", "OUT/disk", "t", "--compression", "none"),
    "redact": ("redact", "OUT/disk", "t", "--key", "k1"),
}
ROOMS = (0, 12_288)
#: What may fit into the larger room.
SMALL = ("evidence of a drill", "groups")


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("full")
    with pylogseg.Broker(root / "disk") as broker:
        broker.create_topic("t", 1, {"internal.segment.bytes": "20000", "compression.type": "gzip"})
        for number in range(40):
            broker.produce("t", os.urandom(3000), key=b"k%d" % (number % 7))
    assert shell("archive", root / "disk", root / "archive").code == 0
    assert shell("export", root / "disk", "t", "-O", root / "table").code == 0
    return root


def files(folder: Path) -> dict[Path, bytes]:
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def committed_files(out: Path) -> list[Path]:
    """What commits files to a table: an entry of Delta's log that adds one, a snapshot of Iceberg."""
    added = [path for path in out.rglob("_delta_log/*.json") if b'"add"' in path.read_bytes()]
    return [*added, *out.rglob("snap-*.avro")]


def fill(small: Path, room: int) -> None:
    """Take all of a small disk but some room."""
    left = os.statvfs(small)
    (small / "filler").write_bytes(bytes(max(left.f_bavail * left.f_bsize - room, 0)))


@pytest.mark.parametrize("room", ROOMS)
@pytest.mark.parametrize("name", some_of(NEW, len(NEW)))
def test_new_files(disk: Path, golden: Path, small: Path, tmp_path: Path, name: str, room: int) -> None:
    """With room again, the same command does it all."""
    shutil.copytree(disk / "disk", tmp_path / "disk")
    out = small / "out"
    out.mkdir()
    texts = {
        "DISK": str(tmp_path / "disk"),
        "ARCHIVE": f"aiven+file://{disk}/archive",
        "TABLE": str(disk / "table"),
        "GROUPS": str(golden / "inside" / "groups"),
        "OUT": str(out),
    }
    words = list(NEW[name])
    for mark, text in texts.items():
        words = [word.replace(mark, text) for word in words]
    before = files(tmp_path / "disk")
    fill(small, room)
    done = shell(*words)
    if name in SMALL and room:
        assert done.code in (0, 2)
        return
    assert done.code == 2, (done.code, done.text, done.err)
    said = done.text + done.err
    assert "[SQL:" not in said
    assert "No space left on device" in said or "disk is full" in said, said
    assert str(small) in said
    assert "Traceback" not in said
    assert files(tmp_path / "disk") == before
    left = {path for path in files(out) if path.name not in (".lock", "lock")}
    if name == "archive":
        assert list_points(out / "archive") == []
    elif name.startswith("lake"):
        assert committed_files(out) == []
    else:
        assert {path for path in left if "_pylogseg" not in path.parts} == set()
    (small / "filler").unlink()
    again = shell(*words)
    is_drill = "drill" in name  # whose archive has no metadata of its cluster
    assert again.code == (2 if is_drill else 0), (again.text, again.err)
    assert "No space" not in again.text + again.err


@pytest.mark.parametrize("room", ROOMS)
@pytest.mark.parametrize("name", CHANGES)
def test_changes(disk: Path, small: Path, name: str, room: int) -> None:
    """The log is what it was."""
    shutil.copytree(disk / "disk", small / "disk")
    words = [word.replace("OUT", str(small)) for word in CHANGES[name]]
    rows = list(pylogseg.read(small / "disk"))
    fill(small, room)
    done = shell(*words)
    assert (done.code, "No space left on device" in done.text + done.err) == (2, True), (done.text, done.err)
    assert "make room on the disk" in done.text
    assert list(pylogseg.read(small / "disk")) == rows
    assert shell("verify", small / "disk").code == 0
    (small / "filler").unlink()
    assert shell(*words).code == 0


@pytest.mark.parametrize("words", ["cat", "ls", "stats", "dump", "verify --json", "latest"])
def test_output_that_goes_to_a_full_disk(disk: Path, small: Path, words: str) -> None:
    fill(small, 0)
    with open(small / "rows", "wb") as rows:
        verb, *more = words.split()
        path = next((disk / "disk" / "t-0").glob("*.log")) if verb == "dump" else disk / "disk"
        line = command(verb, path, *more)
        done = subprocess.run(line, stdout=rows, stderr=subprocess.PIPE, env=environment(), check=False)
    assert done.returncode == 2
    assert b"No space left on device" in done.stderr
    assert b"Traceback" not in done.stderr
