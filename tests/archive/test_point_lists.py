"""Tests of archive/needs.py, disk/tier/point.py and disk/tier/point_lists.py. Lists of points: points share what did
not change, each byte is covered, and `prune` leaves what a point needs.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers.process_memory import Growth
from helpers.shell import pylogseg as shell

from pylogseg.archive import ArchivedFile, ArchivedPartition, ArchivedSegment, Point, SeenDisk, prune, read_point
from pylogseg.archive.needs import read_needs
from pylogseg.disk.stores import ObjectStore
from pylogseg.disk.tier.point import MARK, CommitAboveEnd, NotSeen, PointName
from pylogseg.disk.tier.point_lists import LISTS, list_key, partitions_in
from pylogseg.disk.tier.points import archive_store, list_points, mark_text, new_id, open_points, write_point
from pylogseg.errors import CorruptionError
from pylogseg.format.uuids import format_uuid

TIME_MS, MINUTE_MS = 1_780_000_000_000, 60_000
DISK = SeenDisk("/data", 1, "a cluster", "", "running")


def uuid_of(*of: object) -> str:
    return format_uuid(hashlib.md5(repr(of).encode()).digest())


def segment(topic: str, number: int, base: int) -> ArchivedSegment:
    files = [ArchivedFile(0, hashlib.sha256(repr((topic, number, base, n)).encode()).hexdigest()) for n in range(3)]
    return ArchivedSegment(base, base + 5, 100, uuid_of(topic, number, base), *files)


def partition(topic: str, number: int, segments: int, first: int = 0) -> ArchivedPartition:
    inside = tuple(segment(topic, number, 5 * at) for at in range(first, first + segments))
    start, end = 5 * first, 5 * (first + segments)
    return ArchivedPartition(topic, uuid_of(topic), number, start, end, end, "watermark", 0, ((0, 0),), inside)


def point_of(partitions: Iterator[ArchivedPartition] | list[ArchivedPartition], at: int = 0, **more: Any) -> Point:
    ordered = sorted(partitions, key=lambda each: (each.topic, each.topic_id, each.partition))
    time_ms = TIME_MS + at * MINUTE_MS
    return Point(new_id(time_ms), time_ms, "tests", "a cluster", (DISK,), tuple(ordered), **more)


#: 1,000 segments, in partitions of 1 to 200, and all else that a point may have.
LARGE = point_of(
    [partition("many", number, 10) for number in range(50)]
    + [partition("long", number, 200) for number in range(2)]
    + [replace(partition("odd", number, 1), fault="unread" * (number % 3)) for number in range(100)],
    settings={uuid_of("many"): {"cleanup.policy": "compact"}},
    not_seen=tuple(NotSeen("lost", uuid_of("lost"), number) for number in range(40)),
    above_end=(CommitAboveEnd("a group", "many", 0, 51, 50),),
    notes=("a note\nof two lines", "ü", "a fault"),
    faults=("ü", "a fault"),
)


@pytest.fixture(params=["folder", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    return archive_store(tmp_path if request.param == "folder" else f"aiven+memory://lists-{tmp_path.parent.name}")


@pytest.mark.parametrize("segments", [0, 1, 10, 31, 100, 3000])
def test_round_trip(store: ObjectStore, segments: int) -> None:
    """Of each length, with lists and without, a point is read as it was written."""
    for more in ({}, {"settings": LARGE.settings, "above_end": LARGE.above_end, "notes": LARGE.notes}):
        point = replace(point_of([partition("t", 3, segments)], 3 * segments + len(more)), **more)
        write_point(store, point)
        found = read_point(store, point.id)
        assert found == point
        assert bool(found.lists) == (segments >= 31)
        (opened,) = open_points(store, [point.name])
        assert isinstance(opened, tuple)
        assert opened.head[:8] == point.head[:8]


def test_all_that_a_point_may_have(store: ObjectStore) -> None:
    write_point(store, LARGE)
    assert read_point(store, LARGE.id) == LARGE
    assert read_point(store, LARGE.id).lists
    nobody = replace(LARGE, id=new_id(TIME_MS + 1), time_ms=TIME_MS + 1, not_seen=None)
    write_point(store, nobody)
    assert read_point(store, nobody.id) == nobody


def test_points_share_what_did_not_change(store: ObjectStore) -> None:
    """Of 5,000 segments, a new one and its partition cost few lists, and an unchanged point none."""
    sizes, point = [], point_of([partition("t", number, 50) for number in range(100)])
    known: frozenset[str] = frozenset()
    for at in range(9):
        before = {name: stored.size for name, stored in store.list().items()}
        parts = [each for each in point.partitions if each.partition != 7 or at % 2]
        parts += [] if at % 2 else [partition("t", 7, 50 + at)]
        point = point_of(parts, at)
        write_point(store, point, known)
        known = read_point(store, point.id).lists
        new = {name: stored.size for name, stored in store.list().items() if name not in before}
        sizes.append((len(new), sum(new.values())))
    assert len(known) > 100
    assert all(count == 1 and size < 2048 for count, size in sizes[1::2]), sizes
    assert all(count < 12 and size < 60_000 for count, size in sizes[2::2]), sizes


def test_what_points_need_together(store: ObjectStore) -> None:
    """It is what each of them needs, with how many do, and which is the newest."""
    chance, points = random.Random(1), list[Point]()
    lengths = {("a", 0): 1, ("b", 0): 40, ("b", 1): 300, ("c", 0): 2}
    for at in range(12):
        for key in chance.sample(sorted(lengths), 2):
            lengths[key] += chance.randint(0, 3)
        point = point_of([partition(*key, count, first=at) for key, count in lengths.items()], at)
        points.append(replace(point, is_sealed=at != 2))
        write_point(store, points[-1])
    needs = read_needs(store, list_points(store))
    assert (needs.errors, needs.conflicts, len(needs.heads)) == ([], [], 12)
    assert needs.places == set(lengths)
    expected = dict[str, tuple[ArchivedFile, PointName, int]]()
    for point in points:
        for key, archived in point.objects.items():
            expected[key] = archived, point.name, expected.get(key, (None, None, 0))[2] + 1
    assert {key: (each.archived, *each.use[:2]) for key, each in needs.objects.items()} == expected
    wanted = {list_key(name) for point in points for name in read_point(store, point.id).lists}
    assert needs.lists == wanted == {name for name in store.list() if name.startswith(LISTS)}


def test_prune_leaves_the_lists_that_points_need(store: ObjectStore) -> None:
    points = [point_of([partition("t", 0, 300 + 40 * at), partition("u", 0, 90)], at) for at in range(6)]
    store.put(MARK, mark_text("a cluster").encode())
    for point in points:
        write_point(store, point)
    store.put(list_key("ab" * 32), b"of a run that was killed\n")
    before = set(store.list())
    assert prune_of(store, keep_last=3, dry_run=True).objects > 3
    assert set(store.list()) == before
    prune_of(store, keep_last=3)
    assert [read_point(store, point.id) for point in points[3:]] == points[3:]
    assert list_points(store) == [point.name for point in points[3:]]
    needed = {list_key(name) for point in points[3:] for name in read_point(store, point.id).lists}
    assert {name for name in store.list() if name.startswith(LISTS)} == needed


def prune_of(store: ObjectStore, **how: Any) -> Any:
    return prune(store, **how)  # type: ignore[arg-type]


def test_lists_are_there_before_their_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that is killed at any write leaves no point that lacks a list."""
    store = archive_store(tmp_path)
    order = list[str]()
    for name in ("put", "create"):
        real = getattr(type(store), name)

        def noted(self: Any, key: str, *rest: Any, real: Any = real) -> Any:
            order.append(key)
            return real(self, key, *rest)

        monkeypatch.setattr(type(store), name, noted)
    write_point(store, LARGE)
    assert len(order) > 20
    assert order[-1] == LARGE.name.key
    assert all(name.startswith(LISTS) for name in order[:-1])


def test_a_list_is_stored_once_and_healed(tmp_path: Path) -> None:
    """What a killed run left is not stored again; a list that rotted is, by the next point that needs it."""
    store, point = archive_store(tmp_path), replace(LARGE, id=new_id(TIME_MS + 1), time_ms=TIME_MS + 1)
    write_point(store, LARGE)
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / LISTS).iterdir()}
    rotten = next(iter(times))
    rotten.write_bytes(flipped(rotten.read_bytes(), 7))
    write_point(store, point)
    changed = [path for path in (tmp_path / LISTS).iterdir() if times.get(path) != path.stat().st_mtime_ns]
    assert changed == [rotten]
    assert read_point(store, point.id) == point
    assert read_point(store, LARGE.id) == LARGE


COMMANDS: list[tuple[Any, ...]] = [
    ("verify", "ARCHIVE"),
    ("archive", "show", "ARCHIVE"),
    ("archive", "diff", "ARCHIVE", "latest", "latest"),
    ("archive", "prune", "ARCHIVE", "--keep-last", 9),
    ("restore", "ARCHIVE", "NEW", "--node-id", 1),
    ("drill", "ARCHIVE"),
    ("ls", "aiven+file://ARCHIVE#latest"),
]


@pytest.mark.parametrize("harm", ["gone", "cut", "empty", "flipped", "other", "folder"])
def test_a_list_that_is_not_what_it_was(tmp_path: Path, harm: str) -> None:
    """Each command that needs it names it, and the exit code is 1; `verify` names it once for all points."""
    archive, new = tmp_path / "archive", tmp_path / "new"
    new.mkdir()
    store = archive_store(archive)
    store.put(MARK, mark_text("a cluster").encode())
    for at in range(3):
        write_point(store, replace(LARGE, id=new_id(TIME_MS + at), time_ms=TIME_MS + at))
    paths = sorted((archive / LISTS).iterdir())
    path, data = paths[0], paths[0].read_bytes()
    path.unlink()
    if harm == "folder":
        path.mkdir()
    elif harm != "gone":
        other = {"cut": data[:-9], "empty": b"", "flipped": flipped(data, 7), "other": paths[1].read_bytes()}
        path.write_bytes(other[harm])
    for command in COMMANDS:
        done = shell(*(str(word).replace("ARCHIVE", str(archive)).replace("NEW", str(new)) for word in command))
        assert (done.code, path.name in done.text + done.err) == (1 if harm != "folder" else done.code, True), command
        assert done.code, command
    rows = [json.loads(line) for line in shell("verify", archive, "--json").text.splitlines()]
    assert sum(path.name in row.get("path", "") for row in rows) == 1
    assert list(new.iterdir()) == []
    assert sum(path.name in line for line in shell("archive", "status", archive).err.splitlines()) == 1
    done = shell("archive", "points", archive)  # which reads no list with lines
    assert (done.code, len(done.err.splitlines())) == ((1, 1) if harm in ("gone", "folder") else (0, 0))
    assert len(done.text.splitlines()) == 1 + 3


def test_all_lists_are_gone(tmp_path: Path) -> None:
    """`points`, `status` and `verify` say it, each in a line or two; the numbers that a point has itself stay."""
    archive = tmp_path / "archive"
    store = archive_store(archive)
    store.put(MARK, mark_text("a cluster").encode())
    for at, point in enumerate((LARGE, point_of([partition("t", 0, 40)]))):
        write_point(store, replace(point, id=new_id(TIME_MS + at), time_ms=TIME_MS + at))
    for path in (archive / LISTS).iterdir():
        path.unlink()
    for command in (("archive", "points", archive), ("archive", "status", archive), ("verify", archive)):
        done = shell(*command)
        assert (done.code, "list is not there" in done.text + done.err) == (1, True), command
        assert len(done.err.splitlines()) <= 1, command


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def test_each_byte(tmp_path: Path) -> None:
    """No byte of a point or of its lists can be another one, or be gone."""
    store = archive_store(tmp_path)
    point = point_of([partition("t", 0, 40)])
    write_point(store, point)
    names = [PointName(point.id, point.time_ms)]
    for path in [tmp_path / point.name.key, *(tmp_path / LISTS).iterdir()]:
        data = path.read_bytes()
        for at in range(0, len(data), 1 if path.parent.name != LISTS else 37):
            for changed in (flipped(data, at), data[:at], data[:at] + data[at + 1 :]):
                path.write_bytes(changed)
                with pytest.raises(CorruptionError):
                    read_point(store, point.id)
                needs = read_needs(store, names)
                assert needs.errors, (path, at)
        path.write_bytes(data)
    assert read_point(store, point.id) == point


WRONG = [
    None,
    -2,
    2**63,
    True,
    "x" * 70,
    {"x": 1},
    [[]],
    [1, "../x"],
    {"partOf": ["..", "x", -1]},
    {"topic": "..", "partition": 0},
]


@pytest.mark.parametrize("value", WRONG, ids=repr)
def test_no_line_of_a_list_is_believed(tmp_path: Path, value: Any) -> None:
    """Another line in a list, with the right SHA-256 of the list and of the point: refused, or read as such a line."""
    store = archive_store(tmp_path)
    point = point_of([partition("t", 0, 40)], notes=("a note",))
    write_point(store, point)
    head = json.loads((tmp_path / point.name.key).read_text())
    datas = [store.read(list_key(name)) or b"" for name in head["lists"]]
    for number, data in enumerate(datas):
        lines = data.splitlines()
        for at in range(len(lines)):
            for changed in (
                [*lines[:at], json.dumps(value).encode(), *lines[at + 1 :]],
                [*lines, json.dumps(value).encode()],
            ):
                content = b"\n".join(changed) + b"\n"
                name = hashlib.sha256(content).hexdigest()
                store.put(list_key(name), content)
                lists = [*head["lists"][:number], name, *head["lists"][number + 1 :]]
                (tmp_path / point.name.key).write_bytes(sealed({**head, "lists": lists}))
                with pytest.raises(CorruptionError):
                    read_point(store, point.id)
                for part in partitions_or_none(content):
                    assert not set(part.folder.split("/")) & {"..", ""}


def partitions_or_none(content: bytes) -> list[ArchivedPartition]:
    try:
        return list(partitions_in(content, "a point"))
    except CorruptionError:
        return []


def sealed(members: dict[str, Any]) -> bytes:
    members = {name: value for name, value in members.items() if name != "sha256"}
    body = json.dumps(members, separators=(",", ":"))[:-1]
    return f'{body},"sha256":"{hashlib.sha256(body.encode()).hexdigest()}"}}'.encode()


@pytest.mark.parametrize(
    ("member", "value", "said"),
    [
        ("lists", ["../x"], "lists[0] is '../x': expected the name of a list"),
        ("lists", 3, "lists is 3: expected a JSON array"),
        ("depth", 9, "depth is 9: expected a number from 0 to 8"),
        ("depth", 1, "a list of lists has"),
        ("partitionCount", 2, "another number of partitions"),
        ("objectBytes", 2**62, "another number of partitions, bytes"),
        ("faultCount", -1, "faultCount is -1"),
        ("notSeenCount", 1, "another number of partitions"),
        ("timeMs", 3, "another point's"),
        ("id", "../x", "id is '../x'"),
        ("disks", [], "disk is 0: expected a number from 0 to -1"),
        ("format", 4, "format is 4: expected 1 or 2 or 3; a newer version"),
        ("format", 2, "partitions is missing"),
    ],
)
def test_no_member_of_a_point_is_believed(tmp_path: Path, member: str, value: Any, said: str) -> None:
    store = archive_store(tmp_path)
    point = point_of([partition("t", 0, 40)])
    write_point(store, point)
    path = tmp_path / point.name.key
    path.write_bytes(sealed({**json.loads(path.read_text()), member: value}))
    with pytest.raises(CorruptionError, match=re.escape(said)):
        read_point(store, point.id)


def test_a_week_of_unchanged_points(tmp_path: Path) -> None:
    """90 points over 1,000 segments: each costs less than 2 kB; `verify` keeps one of them, and reads lists once."""
    store, known = archive_store(tmp_path), frozenset[str]()
    store.put(MARK, mark_text("a cluster").encode())
    parts = [partition("t", number, 20) for number in range(50)]
    for at in range(90):
        point = point_of(parts, at)
        write_point(store, point, known)
        known = known or read_point(store, point.id).lists
        if at == 9:
            few = memory_of_verify(tmp_path)
    assert sum(path.stat().st_size for path in (tmp_path / "points").iterdir()) < 90 * 2048
    assert memory_of_verify(tmp_path) - few < 8 << 20
    assert len(shell("archive", "points", tmp_path, "--json").text.splitlines()) == 90


def memory_of_verify(archive: Path) -> int:
    growth = Growth(256 << 20)
    try:
        shell("verify", archive)
    finally:
        peak = growth.peak()
    return peak
