"""Tests of disk/tier/keys.py and disk/tier/opening.py. What no key opens was not looked at: it is named, with the id of
its key, and is no damage; all else is checked.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from helpers import shell
from helpers.checks import some
from helpers.damaged_logs import change_byte
from helpers.shell import expect
from helpers.tiered_logs import write_log
from helpers.tiers import Key, Uploader

import pylogseg
from pylogseg.errors import MissingKeyError


class World:
    """A tier of one partition, whose segments have keys in turns: `first`, `second`."""

    def __init__(self, folder: Path) -> None:
        disk = write_log(folder / "disk" / "orders-0")
        self.folder, self.url = folder, f"aiven+file://{folder / 'tier'}"
        bases = [segment.base_offset for segment in pylogseg.open_dir(disk).partitions[0].segments]
        self.manifests: list[Path] = []
        keys = [Key.make(name, folder / "keys") for name in ("first", "second")]
        for number, (base, end) in enumerate(itertools.pairwise(bases)):
            uploader = Uploader(folder / "tier", 2000, True, keys[number % 2])
            self.manifests.append(uploader.segment(disk, base, end))
        self.locked = {o for base, end in list(itertools.pairwise(bases))[1::2] for o in range(base, end)}
        self.all = set(range(bases[-1]))
        (folder / "first").mkdir()
        (folder / "first" / "first.pem").write_bytes((folder / "keys" / "first.pem").read_bytes())

    def run(self, command: str, *more: object, keys: str = "first") -> shell.Done:
        done = shell.pylogseg(command, self.url, "--keys", self.folder / keys, *more)
        assert "Traceback" not in done.err
        return done

    def flip(self) -> Path:
        """Change a byte of a segment that the first key opens."""
        path = self.manifests[2].with_suffix(".log")
        change_byte(path)
        return path


def level(done: shell.Done, name: str) -> list[dict[str, Any]]:
    return [row for row in done.rows if row.get("level") == name]


def test_verify(world: World) -> None:
    """Each object that is not looked at is named once; the exit code is 2, and 1 if there is damage besides."""
    done = expect(world.run("verify", "--json"), 2)
    assert level(done, "damage") == []
    said = level(done, "unread")
    assert [row["path"] for row in said] == [str(path.with_suffix(".log")) for path in world.manifests[1::2]]
    assert all("key 'second' is not in the key ring, which has 'first'" in row["reason"] for row in said)
    assert done.rows[-1]["unread"] == len(said)
    damaged = world.flip()
    done = expect(world.run("verify", "--json"), 1)
    assert {row["path"] for row in level(done, "damage")} == {str(damaged)}
    assert len(level(done, "unread")) == len(said)
    assert world.run("verify", "--quiet", keys="keys").code == 1


@pytest.mark.parametrize("which", ["another", "no key", "a folder"])
def test_wrong_key(world: World, which: str) -> None:
    """A key of that name which is another one, or no key at all, opens nothing: that is no damage either."""
    path = world.folder / "first" / "second.pem"
    if which == "another":
        Key.make("second", world.folder / "first")
    elif which == "no key":
        path.write_text("-----BEGIN NONSENSE-----")
    else:
        path.mkdir()
    done = world.run("verify", "--json")
    assert (done.code, level(done, "damage")) == (2, [])
    assert all("key 'second'" in row["reason"] for row in some(level(done, "unread")))


def test_data_key_is_damaged(world: World) -> None:
    """A key that opens the data keys of other segments is the right one: the manifest is damaged."""
    fields = json.loads(world.manifests[2].read_text())
    wrapped = fields["encryption"]["dataKey"]
    fields["encryption"]["dataKey"] = wrapped[:50] + ("A" if wrapped[50] != "A" else "B") + wrapped[51:]
    world.manifests[2].write_text(json.dumps(fields))
    done = expect(world.run("verify", "--json", keys="keys"), 1)
    assert not level(done, "unread")
    assert any("the dataKey in the manifest is damaged" in row["reason"] for row in level(done, "damage"))
    assert wrapped[20:40] not in done.text + done.err


def test_readers(world: World) -> None:
    """A reader stops there; to skip gives all other records, and the gap says what was not looked at."""
    disk = pylogseg.open_tier(world.url, world.folder / "first")
    with pytest.raises(MissingKeyError, match="cannot read: key 'second' is not in the key ring"):
        list(pylogseg.read(disk))
    reader = pylogseg.read(disk, on_corrupt="skip")
    assert {record.offset for record in reader} == world.all - world.locked
    assert {gap.kind.value for gap in reader.gaps} == {"locked"}
    for isolation in ("read_uncommitted", "read_committed"):
        committed = pylogseg.read(disk, on_corrupt="skip", isolation_level=isolation)  # type: ignore[arg-type]
        assert {record.offset for record in committed} == world.all - world.locked
        table = pylogseg.read_arrow(disk, on_corrupt="skip", isolation_level=isolation, jobs=2).read_all()  # type: ignore[arg-type]
        assert set(table["offset"].to_pylist()) == world.all - world.locked


@pytest.mark.parametrize(
    ("command", "more"),
    [
        ("cat", ["--fields", "offset"]),
        ("cat", ["--fields", "offset", "--on-corrupt", "skip"]),
        ("latest", ["--on-corrupt", "skip", "--limit", "1"]),
        ("sql", ["select count(*) from orders", "--on-corrupt", "skip"]),
    ],
)
def test_commands(world: World, command: str, more: list[str]) -> None:
    if command == "sql":
        pytest.importorskip("duckdb")
    done = expect(world.run(command, *more), 2, "key 'second'")
    assert "damage" not in done.err
    if command == "cat" and "skip" in more:
        assert {row["offset"] for row in done.rows} == world.all - world.locked


def test_counts(world: World) -> None:
    done = expect(world.run("stats", "--json"), 2)
    missing = done.rows[0]["missingOffsets"]
    assert (missing["damage"], missing["notLookedAt"]) == (0, len(world.locked))
    for more in ([], ["--full"]):
        done = expect(world.run("report", "--json", *more), 2)
        assert (done.rows[0]["damage"], done.rows[0]["unread"]) == (0, 2)
        assert "for want of a key or of permission" in done.rows[0]["verdict"]


def test_restore(world: World) -> None:
    target = world.folder / "new"
    target.mkdir()
    assert world.run("restore", target).code == 2
    assert not list(target.iterdir())
    expect(world.run("restore", target, "--on-corrupt", "skip"), 2, out="key 'second'")
    assert {record.offset for record in pylogseg.read(target)} == world.all - world.locked


def test_dump(world: World) -> None:
    path = f"{world.url}!/orders-0/{0:020d}.log"
    done = shell.pylogseg("dump", path, "--json", "--keys", world.folder / "keys")
    assert (done.code, done.rows[-1]["lastOffset"] > 0) == (0, True)
    locked = f"{world.url}!/orders-0/{min(world.locked):020d}.log"
    expect(shell.pylogseg("dump", locked, "--keys", world.folder / "first"), 2, "key 'second' is not in the key ring")


def test_follow_needs_a_disk(world: World) -> None:
    expect(world.run("cat", "--follow", keys="keys"), 2, "--follow needs a broker's disk")
