"""Points of an archive: what each of its partitions was at a moment, and of which objects it is made.

A point is one JSON object, ``points/ID.json``, which is written last, and never over another one. Its id begins with
the time, so that a listing is in order. Its last member is the SHA-256 of all bytes before it. `docs/backup.md`
describes it, for others who read it.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

from pylogseg.disk.stores import ObjectStore, store_of
from pylogseg.disk.tier.json_fields import JsonFields
from pylogseg.errors import CorruptionError, RequestError
from pylogseg.format import bounded_json
from pylogseg.format.moments import iso_text, ms_of

#: The folder of the points, and that of files that are not of the tier's layout.
POINTS, FILES = "points", "files"
#: Says that a place is an archive, and of which cluster: a tier of brokers is none.
MARK = "archive.json"
#: Points of format 1 have no checksum of their own.
_UNSEALED, _SEALED = 1, 2
_MARK_FORMAT = 1
_SEAL = re.compile(rb',"sha256":"([0-9a-f]{64})"\}')
_SEAL_BYTES = len(',"sha256":""}') + 64
_ID = re.compile(r"([0-9]{4})([0-9]{2})([0-9]{2})T([0-9]{2})([0-9]{2})([0-9]{2})([0-9]{3})Z-[0-9a-f]{8}")
_BEGINNING = re.compile(r"[0-9]{4,8}|[0-9]{8}T([0-9]{0,9}|[0-9]{9}Z(-[0-9a-f]{0,8})?)")
_MS = re.compile(r"[0-9]{11,18}")
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+(Z|[+-][0-9]{2}:[0-9]{2})")
#: Names the newest point.
LATEST = "latest"
#: In the URL of an archive, before what says which point of it.
POINT_MARK = "#"
_FILE = re.compile(r"[0-9]{20}(-[0-9]{10}\.checkpoint|\.snapshot)")
_SHA256 = re.compile(r"[0-9a-f]{24}([0-9a-f]{40})?")
_MOST_BYTES = 256 << 20
_MOST_MARK_BYTES = 64 << 10
_INT32 = 2**31 - 1
#: The suffixes of a segment's objects, in the order of `ArchivedSegment.objects`.
SUFFIXES = (".log", ".indexes", ".rsm-manifest")


class ArchivedFile(NamedTuple):
    """An object: how many bytes, and their SHA-256 in hexadecimal digits, or the first 24 of them.

    These are in the id of the segment: all that is known of an object that a killed run left, without reading it.
    """

    size: int
    sha256: str

    def is_of(self, size: int, sha256: str) -> bool:
        """Check whether an object has this size and SHA-256."""
        return size == self.size and sha256.startswith(self.sha256)


class ArchivedSegment(NamedTuple):
    """A segment of the archive: half-open offsets, bytes before compression, and its three objects.

    Its id begins with the first 24 digits of the SHA-256 of its `log`.
    """

    base_offset: int
    end_offset: int
    size: int
    segment_id: str
    log: ArchivedFile
    indexes: ArchivedFile
    manifest: ArchivedFile

    @property
    def objects(self) -> tuple[ArchivedFile, ArchivedFile, ArchivedFile]:
        """Its objects, in the order of `SUFFIXES`."""
        return self.log, self.indexes, self.manifest


@dataclass(frozen=True)
class ArchivedPartition:
    """A partition at a point.

    Attributes
    ----------
    topic, topic_id, partition : str, str, int
    start_offset, end_offset : int
        The log: from its start up to what was committed, or as much of it as could be archived.
    last_stable_offset : int
        Where the first open transaction begins; else `end_offset`.
    ended_by : str
        ``"watermark"``, or ``"log end"`` of a disk that does not say the high watermark and was closed cleanly.
    disk : int
        Which of the point's disks it was read from.
    epochs : tuple of (int, int)
        Leader epochs and their first offsets.
    segments : tuple of ArchivedSegment
        By offset, without overlap. The first may begin below the start, the last ends with the end.
    files : dict of str to ArchivedFile
        Files of the partition's folder that no segment has, by name: the newest ``.checkpoint`` of the metadata, the
        ``.snapshot`` of an empty log.
    fault : str
        Why the archive has less than the disk; empty if it has all.
    """

    topic: str
    topic_id: str
    partition: int
    start_offset: int
    end_offset: int
    last_stable_offset: int
    ended_by: str
    disk: int
    epochs: tuple[tuple[int, int], ...]
    segments: tuple[ArchivedSegment, ...] = field(repr=False)
    files: Mapping[str, ArchivedFile] = field(default_factory=dict, repr=False)
    fault: str = ""

    @property
    def name(self) -> str:
        """Topic and partition, as in a folder's name."""
        return f"{self.topic}-{self.partition}"

    @property
    def folder(self) -> str:
        """The folder of its segments in the archive."""
        return f"{self.topic}-{self.topic_id}/{self.partition}"

    def stem(self, segment: ArchivedSegment) -> str:
        """Return what the names of a segment's objects have before `SUFFIXES`."""
        return f"{self.folder}/{segment.base_offset:020d}-{segment.segment_id}"

    def file_key(self, name: str) -> str:
        """Return the name of the object with one of `files`."""
        return f"{FILES}/{self.folder}/{self.files[name].sha256[:16]}/{name}"

    @property
    def objects(self) -> dict[str, ArchivedFile]:
        """All its objects, by their names in the archive."""
        found = {
            self.stem(segment) + suffix: stored
            for segment in self.segments
            for suffix, stored in zip(SUFFIXES, segment.objects, strict=True)
        }
        return found | {self.file_key(name): stored for name, stored in self.files.items()}


class SeenDisk(NamedTuple):
    """A log directory that was archived; -1 and empty where it does not say."""

    path: str
    node_id: int
    cluster_id: str
    directory_id: str
    #: ``"running"``, ``"stopped"`` (cleanly) or ``"crashed"``; ``"absent"`` one that an earlier point had.
    state: str


class CommitAboveEnd(NamedTuple):
    """A committed offset of a group that lies above the end of its partition at the point."""

    group: str
    topic: str
    partition: int
    offset: int
    end_offset: int


class NotSeen(NamedTuple):
    """A partition of the cluster's metadata that was on none of the disks."""

    topic: str
    topic_id: str
    partition: int


class PointName(NamedTuple):
    """A point by its name: what a listing knows of it."""

    id: str
    time_ms: int

    @property
    def key(self) -> str:
        """The name of its object in the archive."""
        return f"{POINTS}/{self.id}.json"


@dataclass(frozen=True)
class Point:
    """A point of an archive.

    Attributes
    ----------
    id, time_ms : str, int
        The time is that at which the archive began to look at the disks.
    writer : str
        The program that wrote it, with its version.
    cluster_id : str
        Empty if no disk says it.
    disks : tuple of SeenDisk
    partitions : tuple of ArchivedPartition
        By topic, id and number; Kafka's own topics and the metadata too.
    settings : dict of str to dict of str to str
        Settings of topics by topic id, from the cluster's metadata.
    not_seen : tuple of NotSeen, or None
        None if none of the disks has the metadata, so that nobody knows.
    above_end : tuple of CommitAboveEnd
    notes : tuple of str
        Where replicas disagree, and what else a restore should know.
    is_sealed : bool
        Whether it has a checksum of its own, which those of format 1 have not: nobody can tell if they were changed.
    """

    id: str
    time_ms: int
    writer: str
    cluster_id: str
    disks: tuple[SeenDisk, ...]
    partitions: tuple[ArchivedPartition, ...] = field(repr=False)
    settings: Mapping[str, Mapping[str, str]] = field(default_factory=dict, repr=False)
    not_seen: tuple[NotSeen, ...] | None = ()
    above_end: tuple[CommitAboveEnd, ...] = ()
    notes: tuple[str, ...] = ()
    is_sealed: bool = True

    @property
    def name(self) -> PointName:
        """Its name."""
        return PointName(self.id, self.time_ms)

    @property
    def objects(self) -> dict[str, ArchivedFile]:
        """All objects that it needs, by their names in the archive."""
        return {key: stored for partition in self.partitions for key, stored in partition.objects.items()}

    @property
    def by_name(self) -> dict[str, ArchivedPartition]:
        """What is read of each topic and partition; of several of one name and of other topic ids, the last."""
        return {each.name: each for each in self.partitions}

    @property
    def is_whole(self) -> bool:
        """Whether all partitions of the cluster are known to be in it, up to what was committed."""
        return self.not_seen == () and not any(partition.fault for partition in self.partitions)

    @property
    def text(self) -> str:
        """The point as JSON."""
        text = json.dumps(
            {
                "format": _SEALED if self.is_sealed else _UNSEALED,
                "id": self.id,
                "time": iso_text(self.time_ms),
                "timeMs": self.time_ms,
                "writer": self.writer,
                "clusterId": self.cluster_id,
                "disks": [
                    {
                        "path": disk.path,
                        "nodeId": disk.node_id,
                        "clusterId": disk.cluster_id,
                        "directoryId": disk.directory_id,
                        "state": disk.state,
                    }
                    for disk in self.disks
                ],
                "settings": self.settings,
                "notSeen": self.not_seen,
                "aboveEnd": self.above_end,
                "notes": self.notes,
                "partitions": list(map(_partition_fields, self.partitions)),
            },
            separators=(",", ":"),
        )
        return _with_seal(text) if self.is_sealed else text


def _with_seal(text: str) -> str:
    """Return a JSON object with the SHA-256 of all that is before it as its last member."""
    body = text[:-1]
    return f'{body},"sha256":"{hashlib.sha256(body.encode()).hexdigest()}"}}'


def _partition_fields(partition: ArchivedPartition) -> dict[str, Any]:
    return {
        "topic": partition.topic,
        "topicId": partition.topic_id,
        "partition": partition.partition,
        "start": partition.start_offset,
        "end": partition.end_offset,
        "lastStable": partition.last_stable_offset,
        "endedBy": partition.ended_by,
        "disk": partition.disk,
        "epochs": partition.epochs,
        "fault": partition.fault,
        "files": partition.files,
        "segments": [
            [segment.base_offset, segment.end_offset, segment.size, segment.segment_id, *sum(segment.objects, ())]
            for segment in partition.segments
        ],
    }


# ---- in a store ----


def archive_store(
    archive: str | os.PathLike[str] | ObjectStore, storage_options: Mapping[str, Any] | None = None
) -> ObjectStore:
    """Return the store of an archive by its path or URL, which may have the layout before it (``aiven+``)."""
    if not isinstance(archive, (str, os.PathLike)):
        return archive
    place, mark, wanted = os.fspath(archive).rpartition(POINT_MARK)
    if mark and is_point_text(wanted):
        raise RequestError(f"{os.fspath(archive)}: this is the URL of a point: name the archive, {place}")
    return store_of(os.fspath(archive).removeprefix("aiven+"), storage_options)


def new_id(time_ms: int) -> str:
    """Return a new id for a point of a time."""
    return re.sub(r"[-:.]", "", iso_text(time_ms)) + f"-{uuid.uuid4().hex[:8]}"


def list_points(
    archive: str | os.PathLike[str] | ObjectStore, storage_options: Mapping[str, Any] | None = None
) -> list[PointName]:
    """List the points of an archive by their names, the oldest first; objects of other names are left out.

    Parameters
    ----------
    archive : path or URL
        Of the archive, with or without ``aiven+`` before it.
    storage_options : mapping, optional
        Options of fsspec.

    Returns
    -------
    list of PointName

    Raises
    ------
    StorageError
        If the store fails.
    """
    keys = archive_store(archive, storage_options).list(POINTS)
    names = (key.removeprefix(f"{POINTS}/").removesuffix(".json") for key in keys if key.endswith(".json"))
    found = [PointName(name, time_ms) for name in names if (time_ms := _time_of(name)) is not None]
    return sorted(found, key=lambda name: (name.time_ms, name.id))


def _time_of(name: str) -> int | None:
    """Return the time in the id of a point; None if it is none."""
    if not _ID.fullmatch(name):
        return None
    try:
        return ms_of(datetime.datetime.strptime(name[:18] + "+0000", "%Y%m%dT%H%M%S%f%z"))
    except ValueError:
        return None


def read_point(
    archive: str | os.PathLike[str] | ObjectStore,
    point: str | PointName,
    storage_options: Mapping[str, Any] | None = None,
) -> Point:
    """Read a point.

    Parameters
    ----------
    archive, storage_options
        As in `list_points`.
    point : str or PointName
        As in `find_point`.

    Returns
    -------
    Point

    Raises
    ------
    RequestError
        If there is no such point.
    CorruptionError
        If it is not what a point can be.
    """
    store = archive_store(archive, storage_options)
    return _read(store, point if isinstance(point, PointName) else find_point(store, point=point))


def is_point_text(text: str) -> bool:
    """Check whether a text may say which point is meant, as `find_point` takes it."""
    return text == LATEST or any(form.fullmatch(text) for form in (_BEGINNING, _MS, _TIME))


def check_point_text(text: str) -> None:
    """Raise RequestError for what `is_point_text` is not true of."""
    if not is_point_text(text):
        expected = "an id such as 20260131T120000000Z-0f3a9c21, a beginning of it from the year on, or a time"
        raise RequestError(f"invalid point {text!r}: expected {expected}")


def is_point_id(text: str) -> bool:
    """Check whether a text is the id of a point, or a beginning of one, from the year on."""
    return _BEGINNING.fullmatch(text) is not None


def find_point(
    archive: str | os.PathLike[str] | ObjectStore,
    *,
    point: str | None = None,
    at_ms: int | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> PointName:
    """Find a point by its name or by a time; the newest, without either.

    Parameters
    ----------
    archive, storage_options
        As in `list_points`.
    point : str, optional
        Its id; a beginning of it, the year at least, that no other point has; a time in ISO 8601 with its zone or in
        milliseconds since 1970, for the last point up to it; or ``"latest"``.
    at_ms : int, optional
        The last point up to this time is found, in milliseconds since 1970.

    Returns
    -------
    PointName

    Raises
    ------
    RequestError
        If there is none, or `point` is nothing of these.
    """
    if point is not None:
        check_point_text(point)
    if point is not None and not is_point_id(point):
        at_ms, point = _ms_said(point), None
    store = archive_store(archive, storage_options)
    names = list_points(store)
    if not names:
        raise RequestError(f"{store.name(POINTS)}: no point of an archive is here")
    if point is not None:
        found = [name for name in names if name.id.startswith(point)]
        if len(found) != 1:
            what = f"{len(found)} points begin" if found else "no point begins"
            last = f"; the newest is {names[-1].id}" if not found else f", such as {found[0].id} and {found[1].id}"
            raise RequestError(f"{store.name(POINTS)}: {what} with {point!r}{last}")
        return found[0]
    found = [name for name in names if at_ms is None or name.time_ms <= at_ms]
    if not found:
        raise RequestError(
            f"{store.name(POINTS)}: no point is as old as {iso_text(at_ms or 0)}; the oldest is {names[0].id}"
        )
    return found[-1]


def _ms_said(text: str) -> int | None:
    """Return the time that a text says; None if it names the newest point."""
    if text == LATEST:
        return None
    if _MS.fullmatch(text):
        return int(text)
    try:  # Python 3.10 does not accept Z
        return ms_of(datetime.datetime.fromisoformat(re.sub("Z$", "+00:00", text)))
    except ValueError:
        raise RequestError(f"invalid time {text!r} of a point: expected 2026-01-31T12:00:00Z") from None


def _read(store: ObjectStore, name: PointName) -> Point:
    at, size = store.name(name.key), store.list(name.key).get(name.key)
    if size is None:
        raise RequestError(f"{at}: there is no such point")
    if size.size > _MOST_BYTES:
        raise CorruptionError(at, _MOST_BYTES, f"a point of {size.size} bytes is not read")
    point = parse_point(store.read(name.key) or b"", at)
    if point.name != name:
        raise CorruptionError(at, 0, f"id is {point.id!r}, of the time {point.time_ms}: it is another point's")
    return point


def write_point(store: ObjectStore, point: Point) -> None:
    """Write a point; StorageError if something else has its name."""
    store.create(point.name.key, point.text.encode())


def mark_text(cluster_id: str) -> str:
    """Return what the mark of an archive says."""
    return json.dumps({"format": _MARK_FORMAT, "clusterId": cluster_id})


def read_mark(store: ObjectStore) -> str | None:
    """Return of which cluster an archive is, empty if its first disks did not say; None if no mark is there.

    CorruptionError if it is not what `mark_text` makes.
    """
    at, stored = store.name(MARK), store.list(MARK).get(MARK)
    if stored is None:
        return None
    if stored.size > _MOST_MARK_BYTES:
        raise CorruptionError(at, _MOST_MARK_BYTES, f"{stored.size:,} bytes: not what says that this is an archive")
    return _loaded(store.read(MARK) or b"", at, "what says that this is an archive", (_MARK_FORMAT,)).text("clusterId")


# ---- reading JSON ----


def parse_point(data: bytes, at: str) -> Point:
    """Parse a point, which `at` names in errors; unknown fields are ignored.

    Raises CorruptionError for any length, type or order that a point cannot have, and if it has another SHA-256 than it
    says.
    """
    fields = _loaded(data, at, "a point", (_UNSEALED, _SEALED))
    disks = tuple(_disk(each) for each in fields.objects("disks"))
    partitions = tuple(_partition(each, len(disks)) for each in fields.objects("partitions"))
    order = [(each.topic, each.topic_id, each.partition) for each in partitions]
    for before, after in pairwise(order):
        if before >= after:
            raise CorruptionError(at, 0, f"partitions has {after} behind {before}: expected each once, in order")
    point = Point(
        fields.text("id", _ID),
        fields.number("timeMs"),
        fields.text("writer"),
        fields.text("clusterId"),
        disks,
        partitions,
        _settings(fields),
        None
        if fields.value.get("notSeen", 0) is None
        else tuple(NotSeen(each.topic(0), each.uuid(1), each.number(2, _INT32)) for each in fields.arrays("notSeen")),
        tuple(
            CommitAboveEnd(each.text(0), each.topic(1), each.number(2, _INT32), each.number(3), each.number(4))
            for each in fields.arrays("aboveEnd")
        ),
        fields.texts("notes"),
        fields.number("format") == _SEALED,
    )
    _check_seal(fields, data)
    return point


def _check_seal(fields: JsonFields, data: bytes) -> None:
    """Check the SHA-256 that a point has of itself, where its format, or the point, says that there is one."""
    if fields.value["format"] == _UNSEALED and "sha256" not in fields.value:
        return
    seal, found = _SEAL.fullmatch(data[-_SEAL_BYTES:]), hashlib.sha256(data[:-_SEAL_BYTES]).hexdigest()
    if seal is None:
        raise fields.fault("sha256", "the last member, the SHA-256 of all bytes before it: it was changed, or rotted")
    if seal[1].decode() != found:
        reason = (
            f"its SHA-256 is {found}, and it says {seal[1].decode()}: it was changed after it was written, or rotted"
        )
        raise CorruptionError(fields.at, 0, reason)


def _loaded(data: bytes, at: str, what: str, formats: tuple[int, ...]) -> JsonFields:
    """Return the members of a file of an archive, of a format that is known here."""
    try:
        found = bounded_json.loads(data)
    except RecursionError:
        raise CorruptionError(at, 0, f"not {what}: its JSON is nested too deeply") from None
    except ValueError as error:
        raise CorruptionError(at, getattr(error, "pos", 0), f"not {what}: {error}") from None
    fields = JsonFields(found, at, "")
    if fields.number("format") not in formats:
        raise fields.fault("format", f"{' or '.join(map(str, formats))}; a newer version may have written it")
    return fields


def _disk(fields: JsonFields) -> SeenDisk:
    return SeenDisk(
        fields.text("path"),
        fields.number("nodeId", _INT32, -1),
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


def _partition(fields: JsonFields, disks: int) -> ArchivedPartition:
    start = fields.number("start")
    end = fields.number("end", least=start)
    epochs = tuple((each.number(0, _INT32), each.number(1)) for each in fields.arrays("epochs"))
    if any(before[0] >= after[0] or before[1] > after[1] for before, after in pairwise(epochs)):
        raise fields.fault("epochs", "epochs and offsets in order")
    segments = tuple(map(_segment, fields.arrays("segments")))
    if any(before.end_offset > after.base_offset for before, after in pairwise(segments)):
        raise fields.fault("segments", "segments in the order of their offsets, without overlap")
    if segments and segments[-1].end_offset != end:
        raise fields.fault("end", f"{segments[-1].end_offset}, where the last segment ends")
    inside = fields.members("files")
    for name in inside:
        if not _FILE.fullmatch(name):
            raise CorruptionError(fields.at, 0, f"{fields.where}.files has {name!r}: no such file belongs to a point")
    files = {name: JsonFields(each, fields.at, f"{fields.where}.files.{name}", list) for name, each in inside.items()}
    return ArchivedPartition(
        fields.topic("topic"),
        fields.uuid("topicId"),
        fields.number("partition", _INT32),
        start,
        end,
        fields.number("lastStable", end),
        fields.text("endedBy", re.compile("watermark|log end")),
        fields.number("disk", disks - 1),
        epochs,
        segments,
        {name: _file(each, 0, 1) for name, each in files.items()},
        fields.text("fault"),
    )


def _file(fields: JsonFields, size: int, sha256: int) -> ArchivedFile:
    return ArchivedFile(fields.number(size), fields.text(sha256, _SHA256))


def _segment(fields: JsonFields) -> ArchivedSegment:
    base = fields.number(0)
    log, indexes, manifest = (_file(fields, place, place + 1) for place in (4, 6, 8))
    return ArchivedSegment(
        base, fields.number(1, least=base + 1), fields.number(2, _INT32), fields.uuid(3), log, indexes, manifest
    )
