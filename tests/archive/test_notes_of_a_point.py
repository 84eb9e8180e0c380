"""Tests of archive/at_point.py. Notes as readers print them: those about what is read, and one line for one fact about
many partitions.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from helpers.shell import pylogseg as shell

import pylogseg
from pylogseg.archive import open_archive

READERS: list[tuple[str, ...]] = [
    ("cat", "URL", "b"),
    ("cat", "URL", "b-0"),
    ("cat", "URL", "--topic", "b", "--tail", "1"),
    ("ls", "URL", "b"),
    ("stats", "URL", "b"),
    ("grep", "v", "URL", "b"),
    ("latest", "URL", "b"),
    ("verify", "URL", "b"),
    ("export", "URL", "b", "-O", "OUT"),
    ("sql", "URL", "b", "select count(*) from b"),
    ("sql", "URL", "select count(*) from b"),
    ("lake", "URL", "b", "delta:OUT/{topic}"),
    ("diff", "URL", "URL", "b"),
    ("report", "URL", "b", "-o", "OUT.html"),
    ("restore", "URL", "OUT", "b"),
]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive; its newest point has faults of six partitions of topic a, which the disk has lost."""
    root = tmp_path_factory.mktemp("notes")
    disk = root / "disk"
    disk.mkdir()
    (disk / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=4L6g3nShT-eMCtK--X86sw\n")
    for name in (*(f"a-{number}" for number in range(7)), "b-0", "c-0"):
        with pylogseg.open_log(disk / name) as log:
            log.append([(None, b"k", b"v")])
    assert shell("archive", disk, root / "archive").code in (0, 1)
    for number in range(6):
        shutil.rmtree(disk / f"a-{number}")
    done = shell("archive", disk, root / "archive")
    (line,) = [line for line in done.err.splitlines() if "on none of the disks" in line]
    assert (done.code, "6 partitions, a-0, a-1, a-2, a-3, a-4 and 1 more: it is on none" in line) == (1, True), done.err
    return root


def lines(done: object) -> list[str]:
    return [line for line in done.err.splitlines() if "on none of the disks" in line]  # type: ignore[attr-defined]


@pytest.mark.parametrize("words", READERS, ids=" ".join)
def test_notes_are_about_what_is_read(world: Path, tmp_path: Path, words: tuple[str, ...]) -> None:
    url = f"aiven+file://{world}/archive#latest"
    (tmp_path / "OUT").mkdir()
    done = shell(*(word.replace("URL", url).replace("OUT", str(tmp_path / "OUT")) for word in words))
    assert (done.code, "a-0" in done.err + done.text, "a-1" in done.err + done.text) == (0, False, False), done.err


@pytest.mark.parametrize("words", READERS, ids=" ".join)
def test_one_line_for_one_fact(world: Path, tmp_path: Path, words: tuple[str, ...]) -> None:
    """Of topic a, or of all, one line names some partitions and counts them."""
    url = f"aiven+file://{world}/archive#latest"
    (tmp_path / "OUT").mkdir()
    words = tuple({"b": "a", "b-0": "a"}.get(word, word).replace("from b", "from a") for word in words)
    done = shell(*(word.replace("URL", url).replace("OUT", str(tmp_path / "OUT")) for word in words))
    assert len(lines(done)) == (2 if words[0] == "diff" else 1), done.err
    if words[0] == "restore":  # which says it of paths
        assert "!/a-4 and 1 more, 6 in all: it is on none" in lines(done)[0]
    else:
        assert "6 partitions, a-0, a-1, a-2, a-3, a-4 and 1 more: it is on none" in lines(done)[0]


def test_a_disk_narrows_its_notes(world: Path) -> None:
    disk = open_archive(world / "archive")
    assert [len(each.notes) for each in (disk, disk.select("a"), disk.select("b"))] == [2, 2, 1]
    about_topic, note = disk.select("a-0").notes
    assert "a: no file has its topic id" in about_topic
    assert "a-0: it is on none of the disks" in note
    assert note in disk.select(partition=0).notes
    with pytest.raises(pylogseg.errors.RequestError):
        disk.select("d")
    assert len(lines(shell("cat", f"aiven+file://{world}/archive#latest", "d"))) == 1  # it may be among those


def test_notes_of_disks(tmp_path: Path) -> None:
    """Of the two disks of a broker, lost log starts of the one say nothing about a topic on the other."""
    for disk, topic in (("one", "a"), ("two", "b")):
        with pylogseg.Broker(tmp_path / disk) as broker:
            broker.create_topic(topic, 1)
            broker.produce(topic, b"v")
    (tmp_path / "one" / "log-start-offset-checkpoint").write_text("garbage")
    (tmp_path / "two" / "00000000000000000000.log").touch()
    for command in (("cat",), ("stats",), ("sql", "select count(*) from {}")):
        results = [
            shell(command[0], tmp_path / "one", tmp_path / "two", topic, *(word.format(topic) for word in command[1:]))
            for topic in ("a", "b")
        ]
        assert [done.code == 0 for done in results] == [False, True]
        assert ["log-start" in done.err for done in results] == [True, False]
        assert not any("no broker looks for it" in done.err for done in results)
    whole = shell("cat", tmp_path / "one", tmp_path / "two")
    assert ("log-start" in whole.err, "no broker looks for it" in whole.err) == (True, True)


def test_objects_that_are_gone_are_counted(world: Path, tmp_path: Path) -> None:
    """Seven partitions whose objects are gone are a line of each command; their rows have all."""
    archive = Path(shutil.copytree(world / "archive", tmp_path / "archive"))
    for path in archive.glob("a-*/*/*.log"):
        path.unlink()
    drilled = shell("drill", archive)
    lost = [line for line in drilled.text.splitlines() if "cannot be read from the archive" in line]
    assert (drilled.code, len(lost), "7 partitions, a-0, " in lost[0], "a-4 and 2 more" in lost[0]) == (
        1,
        1,
        True,
        True,
    )
    assert drilled.text.count("on none of the disks") == 1
    rows = [row for row in shell("drill", archive, "--json").rows if "cannot be read" in str(row)]
    assert sum(str(row).count("it cannot be read from the archive") for row in rows) >= 7
    verified = shell("verify", archive)
    assert (verified.code, verified.text.count("DAMAGE"), verified.text.count("remedy:")) == (1, 1, 1)
    assert "and 6 more with the same reason" in verified.text
    assert "7 findings of damage" in verified.text
    assert sum(row.get("level") == "damage" for row in shell("verify", archive, "--json").rows) == 7
    cat = shell("cat", f"aiven+file://{archive}#latest", "--on-corrupt", "skip")
    damage = [line for line in cat.err.splitlines() if "damage:" in line]
    assert (cat.code, len(damage), len(cat.rows)) == (1, 6, 2)
    assert "2 more files with the same reason" in damage[-1]
