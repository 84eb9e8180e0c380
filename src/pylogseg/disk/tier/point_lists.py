"""Lists as parts of large points: points share a list that did not change.

The partitions of a point, with all else that may be long, are lines of JSON. A line whose CRC says so ends a list, so
that a new segment changes one list, and those behind it stay the same. A list is an object that is named by its
SHA-256, and written before the point. The names of many lists are lines of lists in turn: a point names few.
"""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from pylogseg.disk.stores import ObjectStore, read_many
from pylogseg.disk.tier.json_fields import JsonFields
from pylogseg.disk.tier.point import (
    LISTED_FORMAT,
    ArchivedPartition,
    Point,
    PointHead,
    archived_partition_fields,
    archived_segment_fields,
    disk_fields,
    seal,
)
from pylogseg.disk.tier.point_json import INT32, POINT_ID, check_seal, disks_of, parse_partition, point_of, segment_of
from pylogseg.errors import CorruptionError, StorageError
from pylogseg.format import bounded_json
from pylogseg.format.moments import iso_text

#: The folder of the lists.
LISTS = "lists"
_NAME = re.compile(r"[0-9a-f]{64}")
#: A file takes a block of the disk in any case: a point that is no larger is one object.
_SHORT_BYTES = 4096
#: How many lines a list has, as a rule and at most. Twice as many would cost twice the bytes for each change.
_LINES, _MOST_LINES = 16, 1024
_MOST_LINE_BYTES = 256 << 10
#: So many names stand in the point itself.
_MOST_NAMES = 16
_MOST_DEPTH = 8
_MOST_BYTES = 256 << 20
#: The names of members that lists have, as a point of one object has them.
_SETTINGS, _NOT_SEEN, _ABOVE_END, _NOTE, _PART_OF = "settings", "notSeen", "aboveEnd", "note", "partOf"
#: Of a note. Older versions take a line with it for any other note, and refuse lines that they do not know.
_IS_FAULT = "isFault"

#: A line, and the one that ends a list behind it: whose segments these are.
_Line = tuple[bytes, bytes | None]


def list_key(name: str) -> str:
    return f"{LISTS}/{name}.jsonl"


# ---- writing ----


def write_lists(store: ObjectStore, point: Point, known: Collection[str]) -> tuple[str, bool]:
    """Write the lists of a point, without the lists in `known`, which exist already; a killed run's list counts.

    Returns the text of the point, and whether a list was written. A short point has no lists.
    """
    lines = list(_lines(point))
    if not point.is_sealed or sum(len(line) for line, _ in lines) <= _SHORT_BYTES:
        return point.text, False
    lists = _cut_lists(lines)
    new, depth = dict(lists), 0
    while len(lists) > _MOST_NAMES:
        lists, depth = _cut_lists([(name.encode(), None) for name, _ in lists]), depth + 1
        new.update(lists)
    lacking = [name for name in new if name not in known and store.read(list_key(name)) != new[name]]
    for name in lacking:
        store.put(list_key(name), new[name])
    return _head_text(point, depth, [name for name, _ in lists]), bool(lacking)


def _lines(point: Point) -> Iterator[_Line]:
    """Yield the lines of a point: segments stand before the partition that they belong to."""
    for partition in point.partitions:
        part_of = _line({_PART_OF: [partition.topic, partition.topic_id, partition.partition]})
        yield from ((_line(archived_segment_fields(segment)), part_of) for segment in partition.segments)
        yield _line(archived_partition_fields(partition)), None
    yield from ((_line({_SETTINGS: [topic_id, own]}), None) for topic_id, own in point.settings.items())
    yield from ((_line({_NOT_SEEN: missing}), None) for missing in point.not_seen or ())
    yield from ((_line({_ABOVE_END: commit}), None) for commit in point.above_end)
    faults = set(point.faults)
    for note in point.notes:
        yield _line({_NOTE: note, _IS_FAULT: True} if note in faults else {_NOTE: note}), None


def _line(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _cut_lists(lines: Iterable[_Line]) -> list[tuple[str, bytes]]:
    lists, inside, size = list[tuple[str, bytes]](), list[bytes](), 0
    part_of: bytes | None = None
    for line, part_of in lines:
        inside.append(line)
        size += len(line)
        if zlib.crc32(line) % _LINES == 0 or len(inside) == _MOST_LINES or size >= _MOST_LINE_BYTES:
            lists.append(_name_list(inside, part_of))
            inside, size = [], 0
    if inside:
        lists.append(_name_list(inside, part_of))
    return lists


def _name_list(lines: Sequence[bytes], part_of: bytes | None) -> tuple[str, bytes]:
    data = b"".join(line + b"\n" for line in ([*lines, part_of] if part_of is not None else lines))
    return hashlib.sha256(data).hexdigest(), data


def _head_text(point: Point, depth: int, lists: Sequence[str]) -> str:
    head = point.head
    text = json.dumps(
        {
            "format": LISTED_FORMAT,
            "id": point.id,
            "time": iso_text(point.time_ms),
            "timeMs": point.time_ms,
            "writer": point.writer,
            "clusterId": point.cluster_id,
            "disks": list(map(disk_fields, point.disks)),
            "partitionCount": head.partitions,
            "objectBytes": head.size,
            "notSeenCount": head.not_seen,
            "faultCount": head.faults - len(point.faults),  # as older versions count them
            "otherFaultCount": len(point.faults),
            "depth": depth,
            "lists": list(lists),
        },
        separators=(",", ":"),
    )
    return seal(text)


# ---- reading ----


def head_of(fields: JsonFields, data: bytes) -> PointHead:
    """Return the point's own file, without reading its lists."""
    check_seal(fields, data)
    names = fields.texts("lists")
    for number, name in enumerate(names):
        if not _NAME.fullmatch(name):
            raise CorruptionError(fields.at, 0, f"lists[{number}] is {name[:60]!r}: expected the name of a list")
    disks_of(fields)
    fields.text("writer")
    return PointHead(
        fields.text("id", POINT_ID),
        fields.number("timeMs"),
        fields.text("clusterId"),
        fields.number("partitionCount"),
        fields.number("objectBytes"),
        None if fields.value.get("notSeenCount", 0) is None else fields.number("notSeenCount"),
        fields.number("faultCount") + (fields.number("otherFaultCount") if "otherFaultCount" in fields.value else 0),
        True,
        fields.number("depth", _MOST_DEPTH),
        names,
    )


def names_of_lists(store: ObjectStore, head: PointHead, at: str) -> tuple[list[str], set[str]]:
    """Return the names of a point's lists that have its lines, in order, and the names of all of its lists."""
    names, deeper = list(head.lists), set(head.lists)
    for _ in range(head.depth):
        names = [name for data in read_lists(store, names, at) for name in names_in(data, at)]
        deeper.update(names)
    return names, deeper


def read_listed(store: ObjectStore, fields: JsonFields, head: PointHead) -> Point:
    names, keys = names_of_lists(store, head, fields.at)
    members = dict(fields.value) | {
        "settings": {},
        "notSeen": [],
        "aboveEnd": [],
        "notes": [],
        "faults": [],
        "partitions": [],
    }
    segments, part_of = list[Any](), None
    for data in read_lists(store, names, fields.at):
        for row in _rows(data, fields.at):
            if isinstance(row, list):
                segments.append(row)
            elif _PART_OF in row:
                if part_of not in (None, row[_PART_OF]):
                    raise CorruptionError(fields.at, 0, f"a list has segments of {part_of} and {row[_PART_OF]}")
                part_of = row[_PART_OF]
            elif "topic" in row:
                if part_of not in (None, [row["topic"], row.get("topicId"), row.get("partition")]):
                    raise CorruptionError(fields.at, 0, f"a list has segments of {part_of} before {row['topic']!r}")
                members["partitions"].append({**row, "segments": segments})
                segments, part_of = [], None
            else:
                _add(members, row, fields.at)
    if segments or part_of is not None:
        raise CorruptionError(fields.at, 0, f"its lists end with {len(segments):,} segments of no partition")
    if head.not_seen is None:
        members["notSeen"] = None
    point = replace(point_of(JsonFields(members, fields.at, "")), lists=frozenset(keys))
    if point.head._replace(depth=head.depth, lists=head.lists) != head:
        raise CorruptionError(fields.at, 0, "its lists have another number of partitions, bytes or faults than it says")
    return point


def _add(members: dict[str, Any], row: dict[str, Any], at: str) -> None:
    """Add a line that is no partition's to the members that it is one of."""
    fields = JsonFields(row, at, "a list")
    if _SETTINGS in row:
        topic_id, own = fields.array(_SETTINGS).text(0), row[_SETTINGS][1:]
        members["settings"][topic_id] = own[0] if own else None
    elif _NOTE in row:
        members["notes"].append(row[_NOTE])
        if row.get(_IS_FAULT) is True:
            members["faults"].append(row[_NOTE])
    elif kind := {_NOT_SEEN, _ABOVE_END} & row.keys():
        name = kind.pop()
        members[name].append(row[name])
    else:
        raise CorruptionError(at, 0, f"a list has {str(row)[:60]}: no such line belongs to a point")


def read_lists(store: ObjectStore, names: Sequence[str], at: str) -> Iterator[bytes]:
    """Yield lists that `at` needs, each checked; CorruptionError if they are too large together."""
    size = 0
    for name, read in zip(names, read_many(store, names, list_key), strict=True):
        data = check_list(store, name, read, at)
        size += len(data)
        if size > _MOST_BYTES:
            raise CorruptionError(at, 0, f"its lists have over {_MOST_BYTES:,} bytes: they are not read")
        yield data


def check_list(store: ObjectStore, name: str, data: bytes | StorageError | None, at: str) -> bytes:
    """Return a list that `at` needs; CorruptionError if it is not there or has another SHA-256."""
    if isinstance(data, StorageError):
        raise data
    if data is None:
        raise CorruptionError(store.name(list_key(name)), 0, f"the list is not there, and {at} needs it")
    if (digest := hashlib.sha256(data).hexdigest()) != name:
        reason = (
            f"its SHA-256 is {digest}, and not its name: it was changed after it was written, or rotted; {at} needs it"
        )
        raise CorruptionError(store.name(list_key(name)), 0, reason)
    return data


def names_in(data: bytes, at: str) -> Iterator[str]:
    for line in data.decode("ascii", "replace").splitlines():
        if not _NAME.fullmatch(line):
            raise CorruptionError(at, 0, f"a list of lists has {line[:60]!r}: expected the name of a list")
        yield line


def partitions_in(data: bytes, at: str) -> Iterator[ArchivedPartition]:
    """Yield the partitions of a list, each with only the segments that are in this list."""
    segments = list[Any]()
    for row in _rows(data, at):
        if isinstance(row, list):
            segments.append(row)
            continue
        fields = JsonFields(row, at, "a list")
        if "topic" in row:
            fields.value["segments"] = segments
            yield parse_partition(fields, INT32)
            segments = []
        elif _PART_OF in row:
            of = fields.array(_PART_OF)
            inside = tuple(segment_of(JsonFields(row, at, "a segment", list)) for row in segments)
            end = inside[-1].end_offset if inside else 0
            yield ArchivedPartition(of.topic(0), of.uuid(1), of.number(2, INT32), 0, end, end, "", 0, (), inside)
            segments = []
    if segments:
        raise CorruptionError(at, 0, f"a list ends with {len(segments):,} segments of no partition")


def _rows(data: bytes, at: str) -> list[Any]:
    """Return the lines of a list: arrays and objects."""
    try:
        rows: list[Any] = bounded_json.loads(b"[" + data.rstrip(b"\n").replace(b"\n", b",") + b"]")
    except (RecursionError, ValueError) as error:
        raise CorruptionError(at, 0, f"a list is not JSON: {error}") from None
    for row in rows:
        if not isinstance(row, (dict, list)):
            raise CorruptionError(at, 0, f"a list has {str(row)[:60]}: expected an object or an array")
    return rows
