"""The JSON of a point, as somebody else may have written it: each member is checked when it is taken."""

from __future__ import annotations

import hashlib
import re
from itertools import pairwise

from pylogseg.disk.tier.json_fields import JsonFields
from pylogseg.disk.tier.point import (
    SEALED_FORMAT,
    UNSEALED_FORMAT,
    ArchivedFile,
    ArchivedPartition,
    ArchivedSegment,
    CommitAboveEnd,
    NotSeen,
    Point,
    SeenDisk,
)
from pylogseg.errors import CorruptionError
from pylogseg.format import bounded_json

_SEAL = re.compile(rb',"sha256":"([0-9a-f]{64})"\}')
_SEAL_BYTES = len(',"sha256":""}') + 64
#: The form of the id of a point, which begins with its time.
POINT_ID = re.compile(r"([0-9]{4})([0-9]{2})([0-9]{2})T([0-9]{2})([0-9]{2})([0-9]{2})([0-9]{3})Z-[0-9a-f]{8}")
_FILE = re.compile(r"[0-9]{20}(-[0-9]{10}\.checkpoint|\.snapshot)")
_SHA256 = re.compile(r"[0-9a-f]{24}([0-9a-f]{40})?")
#: Kafka's numbers of partitions, nodes and epochs have 32 bits.
INT32 = 2**31 - 1


def parse_point(data: bytes, at: str) -> Point:
    """Parse a point that is one object, which `at` names in errors; unknown fields are ignored.

    Raises CorruptionError for any length, type or order that a point cannot have, and if it has another SHA-256 than it
    says.
    """
    fields = load_as(data, at, "a point", (UNSEALED_FORMAT, SEALED_FORMAT))
    point = point_of(fields)
    check_seal(fields, data)
    return point


def point_of(fields: JsonFields) -> Point:
    """Return the point that members are, with the partitions and all else that is in lists."""
    disks = disks_of(fields)
    partitions = tuple(parse_partition(partition, len(disks)) for partition in fields.objects("partitions"))
    order = [(partition.topic, partition.topic_id, partition.partition) for partition in partitions]
    for before, after in pairwise(order):
        if before >= after:
            reason = f"partitions has {after} behind {before}: expected each once, in order"
            raise CorruptionError(fields.at, 0, reason)
    return Point(
        fields.text("id", POINT_ID),
        fields.number("timeMs"),
        fields.text("writer"),
        fields.text("clusterId"),
        disks,
        partitions,
        _settings(fields),
        None
        if fields.value.get("notSeen", 0) is None
        else tuple(NotSeen(row.topic(0), row.uuid(1), row.number(2, INT32)) for row in fields.arrays("notSeen")),
        tuple(
            CommitAboveEnd(row.text(0), row.topic(1), row.number(2, INT32), row.number(3), row.number(4))
            for row in fields.arrays("aboveEnd")
        ),
        fields.texts("notes"),
        fields.texts("faults") if "faults" in fields.value else (),
        fields.number("format") != UNSEALED_FORMAT,
    )


def disks_of(fields: JsonFields) -> tuple[SeenDisk, ...]:
    return tuple(_disk(disk) for disk in fields.objects("disks"))


def check_seal(fields: JsonFields, data: bytes) -> None:
    """Check the SHA-256 that a point has of itself, where its format, or the point, says that there is one."""
    if fields.value["format"] == UNSEALED_FORMAT and "sha256" not in fields.value:
        return
    seal, actual = _SEAL.fullmatch(data[-_SEAL_BYTES:]), hashlib.sha256(data[:-_SEAL_BYTES]).hexdigest()
    if seal is None:
        raise fields.fault("sha256", "the last member, the SHA-256 of all bytes before it: it was changed, or rotted")
    if seal[1].decode() != actual:
        reason = (
            f"its SHA-256 is {actual}, and it says {seal[1].decode()}: it was changed after it was written, or rotted"
        )
        raise CorruptionError(fields.at, 0, reason)


def load_as(data: bytes, at: str, what: str, formats: tuple[int, ...]) -> JsonFields:
    """Return the members of a file of an archive; its format must be one of ours."""
    try:
        members = bounded_json.loads(data)
    except RecursionError:
        raise CorruptionError(at, 0, f"not {what}: its JSON is nested too deeply") from None
    except ValueError as error:
        raise CorruptionError(at, getattr(error, "pos", 0), f"not {what}: {error}") from None
    fields = JsonFields(members, at, "")
    if fields.number("format") not in formats:
        raise fields.fault("format", f"{' or '.join(map(str, formats))}; a newer version may have written it")
    return fields


def _disk(fields: JsonFields) -> SeenDisk:
    return SeenDisk(
        fields.text("path"),
        fields.number("nodeId", INT32, -1),
        fields.text("clusterId"),
        fields.text("directoryId"),
        fields.text("state", re.compile("running|stopped|crashed|absent")),
    )


def _settings(fields: JsonFields) -> dict[str, dict[str, str]]:
    topics = {}
    for topic_id in fields.members("settings"):
        of_topic = JsonFields(fields.members("settings")[topic_id], fields.at, f"settings.{topic_id[:22]}")
        topics[topic_id] = {name: of_topic.text(name) for name in of_topic.value}
    return topics


def parse_partition(fields: JsonFields, disks: int) -> ArchivedPartition:
    """Return a partition of a point that has so many disks."""
    start = fields.number("start")
    end = fields.number("end", least=start)
    epochs = tuple((entry.number(0, INT32), entry.number(1)) for entry in fields.arrays("epochs"))
    if any(before[0] >= after[0] or before[1] > after[1] for before, after in pairwise(epochs)):
        raise fields.fault("epochs", "epochs and offsets in order")
    segments = tuple(map(segment_of, fields.arrays("segments")))
    if any(before.end_offset > after.base_offset for before, after in pairwise(segments)):
        raise fields.fault("segments", "segments in the order of their offsets, without overlap")
    if segments and segments[-1].end_offset != end:
        raise fields.fault("end", f"{segments[-1].end_offset}, where the last segment ends")
    inside = fields.members("files")
    for name in inside:
        if not _FILE.fullmatch(name):
            raise CorruptionError(fields.at, 0, f"{fields.where}.files has {name!r}: no such file belongs to a point")
    files = {name: JsonFields(row, fields.at, f"{fields.where}.files.{name}", list) for name, row in inside.items()}
    return ArchivedPartition(
        fields.topic("topic"),
        fields.uuid("topicId"),
        fields.number("partition", INT32),
        start,
        end,
        fields.number("lastStable", end),
        fields.text("endedBy", re.compile("watermark|log end")),
        fields.number("disk", disks - 1),
        epochs,
        segments,
        {name: _file(row, 0, 1) for name, row in files.items()},
        fields.text("fault"),
    )


def _file(fields: JsonFields, size: int, sha256: int) -> ArchivedFile:
    return ArchivedFile(fields.number(size), fields.text(sha256, _SHA256))


def segment_of(fields: JsonFields) -> ArchivedSegment:
    base = fields.number(0)
    log, indexes, manifest = (_file(fields, place, place + 1) for place in (4, 6, 8))
    return ArchivedSegment(
        base, fields.number(1, least=base + 1), fields.number(2, INT32), fields.uuid(3), log, indexes, manifest
    )
