"""Tests of archive/looking.py, archive/newest.py, cli/archive.py, cli/points.py, disk/tier/point.py,
disk/tier/point_json.py and disk/tier/points.py. Points of archives: their JSON, what is refused, and which one a time
or a name means.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers.shell import pylogseg as shell

from pylogseg.archive import (
    ArchivedFile,
    ArchivedPartition,
    ArchivedSegment,
    Point,
    SeenDisk,
    find_point,
    list_points,
    read_point,
)
from pylogseg.disk.stores import ObjectStore
from pylogseg.disk.tier.point import CommitAboveEnd, NotSeen
from pylogseg.disk.tier.point_json import parse_point
from pylogseg.disk.tier.points import archive_store, new_id, write_point
from pylogseg.errors import CorruptionError, RequestError, StorageError
from pylogseg.format.uuids import format_uuid

TOPIC_ID, SEGMENT_ID = format_uuid(bytes(range(16))), format_uuid(bytes(16))
FILE = ArchivedFile(7, "ab" * 32)
SEGMENTS = tuple(ArchivedSegment(at, at + 5, 100, SEGMENT_ID, FILE, FILE, FILE) for at in (0, 5))
ORDERS = ArchivedPartition(
    "orders", TOPIC_ID, 0, 2, 10, 8, "watermark", 0, ((0, 0), (3, 6)), SEGMENTS, {"0" * 20 + ".snapshot": FILE}
)
POINT = Point(
    new_id(1_700_000_000_000),
    1_700_000_000_000,
    "a writer",
    "a cluster",
    (SeenDisk("/data", 1, "a cluster", "", "running"),),
    (ORDERS, replace(ORDERS, partition=1, segments=(), end_offset=2, last_stable_offset=2, files={}, fault="unread")),
    {TOPIC_ID: {"cleanup.policy": "compact"}},
    (NotSeen("lost", TOPIC_ID, 0),),
    (CommitAboveEnd("a group", "orders", 0, 11, 10),),
    ("a note", "a fault of a small file"),
    ("a fault of a small file",),
)


@pytest.fixture(params=["folder", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    return archive_store(tmp_path if request.param == "folder" else f"aiven+memory://{tmp_path.parent.name}")


def test_round_trip(store: ObjectStore) -> None:
    write_point(store, POINT)
    assert read_point(store, POINT.id) == POINT
    assert read_point(store, POINT.id[:12]) == POINT
    assert list_points(store) == [POINT.name]
    assert not POINT.is_whole


def test_never_over_another(store: ObjectStore) -> None:
    write_point(store, POINT)
    with pytest.raises(StorageError, match="there is one already"):
        write_point(store, replace(POINT, notes=()))
    assert read_point(store, POINT.id) == POINT
    assert list(store.list()) == [POINT.name.key]


def test_which_one(store: ObjectStore) -> None:
    with pytest.raises(RequestError, match="no point"):
        find_point(store)
    points = [replace(POINT, id=new_id(ms), time_ms=ms) for ms in (1_600_000_000_000, 1_700_000_000_000)]
    for point in reversed(points):
        write_point(store, point)
    store.put("points/notes.txt", b"not ours")
    assert list_points(store) == [point.name for point in points]
    assert find_point(store) == find_point(store, at_ms=1_700_000_000_000) == points[1].name
    assert find_point(store, at_ms=1_699_999_999_999) == points[0].name
    with pytest.raises(RequestError, match=r"no point is as old as 2020-09-13T12:26:39\.999Z; the oldest is 20200913T"):
        find_point(store, at_ms=1_599_999_999_999)
    assert find_point(store, point="latest") == points[1].name
    for text, index in (("2020", 0), ("20231", 1), ("2023-11-14T22:13:19Z", 0), ("2023-11-14T23:13:20+01:00", 1)):
        assert find_point(store, point=text) == points[index].name
    assert find_point(store, point="1699999999999") == points[0].name
    with pytest.raises(RequestError, match="no point begins with '2021'; the newest is 20231114T"):
        find_point(store, point="2021")
    write_point(store, replace(POINT, id=new_id(1_600_000_000_000), time_ms=1_600_000_000_000))
    with pytest.raises(RequestError, match="2 points begin with '2020'"):
        find_point(store, point="2020")
    with pytest.raises(RequestError, match="invalid time '2023-13-01T00:00:00Z' of a point"):
        find_point(store, point="2023-13-01T00:00:00Z")


NAMES = ["2020", "202009", "20200913T12", "2020-09-13T12:26:40Z", "1600000000000", "latest"]
OTHERS = ["", "20", "x", "yesterday", "20200913X", "2020-09-13", "2020-09-13T12:26:40"]


@pytest.mark.parametrize("text", NAMES + OTHERS)
def test_one_rule(tmp_path: Path, text: str) -> None:
    """What names a point for one command does so for each, and what does not is refused in the same words."""
    archive, target = tmp_path / "archive", tmp_path / "new"
    time_ms = 1_600_000_000_000
    write_point(archive_store(archive), replace(POINT, id=new_id(time_ms), time_ms=time_ms))
    target.mkdir()
    done = (
        shell("archive", "show", archive, text),
        shell("archive", "diff", archive, "latest", text),
        shell("restore", archive, target, "--point", text, "--dry-run"),
    )
    refusals = {each.err.partition("invalid point")[2] for each in done}
    assert len(refusals) == 1
    assert (refusals == {""}) == (text in NAMES)
    assert [each.code for each in done[:2]] == [2 * (text in OTHERS)] * 2
    assert text in NAMES or done[2].code == 2


def test_another_points_name(store: ObjectStore) -> None:
    store.put(f"points/{new_id(1_600_000_000_000)}.json", POINT.text.encode())
    with pytest.raises(CorruptionError, match="another point's"):
        read_point(store, "2020")


def test_half_a_digest() -> None:
    whole, half = ArchivedFile(7, "ab" * 32), ArchivedFile(7, "ab" * 16)
    assert whole.is_of(7, "ab" * 32)
    assert half.is_of(7, "ab" * 32)
    assert not half.is_of(8, "ab" * 32)
    assert not half.is_of(7, "ac" * 32)
    assert not whole.is_of(7, "ab" * 31 + "ac")


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of each value of a JSON text."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, each in inside for place in places(each, (*path, key)))]


def sealed(text: str) -> bytes:
    """A text without a checksum, or with that of another one, as a point with its own."""
    found = json.loads(text)
    if isinstance(found, dict) and found.get("format") == 2:
        found.pop("sha256", None)
        text = json.dumps(found)[:-1]
        text += f',"sha256":"{hashlib.sha256(text.encode()).hexdigest()}"}}'
    return text.encode()


def put(text: str, path: tuple[Any, ...], value: Any) -> bytes:
    """The text with another value at a path."""
    found = json.loads(text)
    if not path:
        return json.dumps(value).encode()
    at = found
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return sealed(json.dumps(found))


@pytest.mark.parametrize("value", [None, -2, 1.5, 2**63, True, {"x": 1}, [[]]], ids=repr)
def test_wrong_values(value: Any) -> None:
    """Each place of a point with each wrong value: refused, and named; or it is what a point can have there."""
    for path in places(json.loads(POINT.text)):
        if path in {("time",), ("notSeen",), ("sha256",)}:
            continue
        with pytest.raises(CorruptionError) as caught:
            parse_point(put(POINT.text, path, value), "p.json")
        assert caught.value.path == "p.json"
        if path:
            assert str(path[0]) in str(caught.value), path


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("format",), 3, "format is 3: expected 1 or 2; a newer version"),
        (("partitions", 0, "segments", 1, 0), 4, "partitions[0].segments is"),
        (("partitions", 0, "segments", 1, 5), "AB" * 32, "partitions[0].segments[1][5] is 'ABAB"),
        (("partitions", 0, "segments", 1, 1), 5, "partitions[0].segments[1][1] is 5: expected a number from 6"),
        (
            ("partitions", 0, "segments", 1, 3),
            "../../../etc",
            "partitions[0].segments[1][3] is '../../../etc': expected",
        ),
        (("partitions", 0, "end"), 11, "partitions[0].end is 11: expected 10"),
        (("partitions", 0, "disk"), 1, "partitions[0].disk is 1: expected a number from 0 to 0"),
        (("partitions", 0, "files"), {"../x": [7, "ab" * 32]}, "partitions[0].files has '../x'"),
        (("partitions", 0, "partition"), 2, "expected each once, in order"),
        (("partitions", 0, "topic"), "..", "partitions[0].topic is '..': expected the name of a topic"),
        (("partitions", 0, "epochs", 0, 0), 3, "partitions[0].epochs is"),
    ],
)
def test_what_is_said(path: tuple[Any, ...], value: Any, said: str) -> None:
    with pytest.raises(CorruptionError, match=re.escape(said)):
        parse_point(put(POINT.text, path, value), "p.json")


def test_each_byte() -> None:
    """No byte of a point can be another one, or be gone: not those of its checksum, nor of its format."""
    data = POINT.text.encode()
    assert parse_point(data, "p.json") == POINT
    for at in range(len(data)):
        for changed in (flipped(data, at, 1), flipped(data, at, 3), flipped(data, at, 128), data[:at] + data[at + 1 :]):
            with pytest.raises(CorruptionError):
                parse_point(changed, "p.json")
        with pytest.raises(CorruptionError):
            parse_point(data[:at], "p.json")
    for more in (b"\n", b" ", data):
        with pytest.raises(CorruptionError):
            parse_point(data + more, "p.json")


def flipped(data: bytes, at: int, bits: int) -> bytes:
    return data[:at] + bytes([data[at] ^ bits]) + data[at + 1 :]


def test_a_changed_point(tmp_path: Path) -> None:
    """What was edited is no point for any command; each names it, and none says that all is well."""
    archive, target = tmp_path / "archive", tmp_path / "new"
    target.mkdir()
    write_point(archive_store(archive), POINT)
    path, whole = archive / POINT.name.key, POINT.text
    for old, new in (('"end":10', '"end":2 '), ('"notSeen":[["lost"', '"notSeen":[["tsol"'), ("compact", "delete ")):
        path.write_text(whole.replace(old, new))
        for command in (
            ("verify", archive),
            ("archive", "show", archive),
            ("archive", "points", archive),
            ("archive", "diff", archive, "latest", "latest"),
            ("restore", archive, target, "--node-id", 1),
            ("drill", archive),
            ("ls", f"aiven+file://{archive}#latest"),
        ):
            done = shell(*command)
            assert (done.code, path.name in done.text + done.err) == (1, True), command
    assert list(target.iterdir()) == []


def test_a_point_of_an_older_version(tmp_path: Path) -> None:
    """It has no checksum, and is read; that nobody can tell if it was changed is said."""
    old = replace(POINT, is_sealed=False, partitions=(), not_seen=())
    assert json.loads(old.text)["format"] == 1
    assert parse_point(old.text.encode(), "p.json") == old
    write_point(archive_store(tmp_path), old)
    assert "1 point of an older version" in shell("verify", tmp_path).text
    assert "no checksum of its own" in shell("archive", "show", tmp_path).text
    sealed_as_old = POINT.text.replace('"format":2', '"format":1').encode()
    with pytest.raises(CorruptionError, match="it was changed after it was written"):
        parse_point(sealed_as_old, "p.json")


@pytest.mark.parametrize("data", [b"", b"[]", b"\xff", b"[" * 100_000, b"1" * 5000, b'{"format":1}'])
def test_no_point(data: bytes) -> None:
    with pytest.raises(CorruptionError):
        parse_point(data, "p.json")
