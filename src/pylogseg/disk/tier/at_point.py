"""A tier as of a point of an archive. The point names the uploads of each log, and the offsets that each serves.

Its URL is the archive's, then ``#``, then an argument of `find_point`:
``aiven+s3://bucket/prefix#20260131T120000000Z-0f3a9c21``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from pylogseg.disk.notes import Note, as_notes
from pylogseg.disk.tier.files import INSIDE, BytesView, TierFile, TierFiles, files_of, opened_once
from pylogseg.disk.tier.keys import KEYS_OPTION, KeyRing
from pylogseg.disk.tier.layouts import find_aiven
from pylogseg.disk.tier.manifest import UploadedSegment
from pylogseg.disk.tier.point import SUFFIXES, ArchivedFile, ArchivedPartition, ArchivedSegment, Point
from pylogseg.disk.tier.points import POINT_MARK, is_point_id, is_point_text, read_point
from pylogseg.disk.tier.read_once import ReadOnce, difference
from pylogseg.disk.tier.sealed_file import open_file
from pylogseg.disk.tier.slices import TieredLog, TierSegment
from pylogseg.disk.tier.tier import Tier
from pylogseg.disk.tier.uploads import AivenUpload, BrokenUpload, Objects, Shared, Stored, Upload, unreadable
from pylogseg.env.filesystem import Entry, FileView
from pylogseg.errors import CorruptionError
from pylogseg.format.files.checkpoint import EpochEntry, encode_leader_epochs, encode_offset_checkpoint
from pylogseg.format.files.properties import MetaProperties, encode_meta_properties
from pylogseg.format.moments import iso_text
from pylogseg.format.names import FileKind, parse_file_name, partition_folder_name, segment_file_name

_LAYOUT = "aiven+"
#: What is said of a point of format 1.
UNSEALED = "this point has no checksum of its own, as older versions wrote them: a change of it would go unnoticed"


def split_point(url: str) -> tuple[str, str | None]:
    """Return the URL of an archive, and the name of its point; None if nothing does."""
    place, mark, wanted = url.rpartition(POINT_MARK)
    return (place, wanted) if mark and is_point_text(wanted) else (url, None)


def opened_at_point(
    text: str, storage_options: Mapping[str, Any] | None = None, *, memory_map: bool = False, is_kept: bool = False
) -> PointFiles | None:
    """Return the file system of the URL of a point; None of another URL.

    With `is_kept`, the same point gives the same file system again: tasks open paths in it one by one.
    """
    url, wanted = split_point(text)
    if wanted is None:
        return None

    def make() -> PointFiles:
        return point_files(url, read_point(url, wanted, storage_options), storage_options, memory_map=memory_map)

    if not is_kept or not is_point_id(wanted):
        return make()
    return opened_once(url, f"{POINT_MARK}{wanted}", storage_options, make, lambda files: True, memory_map=memory_map)


def point_files(
    url: str, point: Point, storage_options: Mapping[str, Any] | None = None, *, memory_map: bool = False
) -> PointFiles:
    """Return the file system of an archive at a point: a log directory with all partitions of that moment.

    Objects are listed. Only manifests that the point needs are read, and their hashes must be the point's.
    """
    options = dict(storage_options or {})
    keys = KeyRing(options.pop(KEYS_OPTION, None))
    objects = ReadOnce(url.removeprefix(_LAYOUT), options, memory_map=memory_map)
    shared = Shared(objects, keys)
    return files_among(url, point, shared, list_stored(objects), set(point.objects), objects.manifests)


def list_stored(objects: Objects) -> dict[str, Stored]:
    return {_key(objects, stored): stored for stored in objects.find()}


def files_among(
    url: str,
    point: Point,
    shared: Shared,
    there: Mapping[str, Stored],
    wanted: Collection[str],
    manifests: Mapping[str, str] | None = None,
) -> PointFiles:
    """Do the work of `point_files` for a listed archive, as if it had only the given objects.

    `manifests` gets the SHA-256 of those that are read, by path; without it, no object is compared with the point.
    """
    objects = shared.objects
    aiven = find_aiven(shared, [stored for key, stored in there.items() if key in wanted and _is_of_segment(key)])
    uploads = {_key(objects, _log_of(upload, objects)): upload for upload in aiven.uploads}
    read = point.by_name
    last = sorted(point.partitions, key=lambda each: each is read[each.name])  # of two of one name, the last is read
    logs = [_log(partition, uploads, objects, manifests) for partition in last]
    return PointFiles(f"{url}{POINT_MARK}{point.id}", Tier(url, objects, aiven, logs), point, shared, there)


def _key(objects: Objects, stored: Stored) -> str:
    return stored.path[len(objects.root) :].lstrip("/")


def _is_of_segment(key: str) -> bool:
    return key.endswith(SUFFIXES)


def _log_of(upload: Upload, objects: Objects) -> Stored:
    """Return the object of an upload's segment, whether it is there or not."""
    if isinstance(upload, AivenUpload):
        return upload.log
    return Stored(f"{objects.root}{upload.name[len(objects.name(objects.root)) :]}", -1, -1)


def _log(
    partition: ArchivedPartition, uploads: Mapping[str, Upload], objects: Objects, manifests: Mapping[str, str] | None
) -> TieredLog:
    segments = []
    for archived in partition.segments:
        key = partition.stem(archived) + SUFFIXES[0]
        name, place = objects.name(f"{objects.root}/{key}"), f"{objects.root}/{partition.stem(archived)}{SUFFIXES[2]}"
        upload = _check_upload(
            partition, archived, uploads.get(key), name, None if manifests is None else manifests.get(place)
        )
        if manifests is not None and isinstance(upload, AivenUpload):
            upload = replace(upload, sha256=(archived.log.sha256, archived.indexes.sha256))
        segments.append(TierSegment(upload, archived.base_offset, archived.end_offset))
    return TieredLog(partition.topic, partition.partition, partition.topic_id, segments, [], [], [])


def _check_upload(
    partition: ArchivedPartition, archived: ArchivedSegment, upload: Upload | None, name: str, sha256: str | None
) -> Upload:
    """Return the upload of a segment; an unreadable one if it is absent, or differs from the point.

    `sha256` is that of its manifest, if it was read to be compared.
    """
    segment = UploadedSegment(
        partition.topic,
        partition.partition,
        partition.topic_id,
        archived.segment_id,
        archived.base_offset,
        archived.end_offset - 1,
    )
    if upload is None:
        error = unreadable(name.removesuffix(SUFFIXES[0]) + SUFFIXES[2], "read", "the object is not there")
        return BrokenUpload(segment, archived.size, -1, name, error)
    said = upload.segment
    is_other = (said.start_offset, said.end_offset) != (segment.start_offset, segment.end_offset)
    if isinstance(upload, AivenUpload) and is_other:
        reason = (
            f"it is the manifest of offsets {said.start_offset} to {said.end_offset}, and the point has "
            f"{segment.start_offset} to {segment.end_offset} there"
        )
        return BrokenUpload(segment, archived.size, -1, name, CorruptionError(upload.manifest_name, 0, reason))
    if isinstance(upload, AivenUpload) and sha256 is not None and upload.indexes is not None:
        size, was = upload.indexes.size, archived.indexes.size
        if size > was:  # it may be a hole of a terabyte, which takes hours to hash
            path = upload.shared.objects.name(upload.indexes.path)
            reason = f"the object has {size:,} bytes, and had {was:,} when it was archived"
            return BrokenUpload(segment, archived.size, -1, name, CorruptionError(path, was, reason))
    what = "" if sha256 is None else difference(sha256, archived.manifest.sha256)
    if isinstance(upload, AivenUpload) and what:
        return BrokenUpload(segment, archived.size, -1, name, CorruptionError(upload.manifest_name, 0, what))
    return upload


class _Archived:
    """A file of a partition's folder that is an object of its own, and has the SHA-256 that the point says."""

    def __init__(self, shared: Shared, stored: Stored | None, name: str, sha256: str) -> None:
        self._shared, self._stored, self._name, self._sha256 = shared, stored, name, sha256

    def open(self) -> FileView:
        """Return the decrypted object; StorageError if it is absent, MissingKeyError if its key is."""
        return BytesView(self._name, self.read_small(FileKind.UNKNOWN))

    def read_small(self, kind: FileKind) -> bytes:
        if self._stored is None:
            raise unreadable(self._name, "read", "the object is not there")
        with self._shared.objects.open(self._stored) as view:
            data = bytes(view.read(0, view.size))
        if what := difference(hashlib.sha256(data).hexdigest(), self._sha256):
            raise CorruptionError(self._name, 0, what)
        return open_file(data, self._shared.keys, self._name)


class PointFiles(TierFiles):
    """The file system of an archive at a point; `logs` end where the point says, and a log directory is around them."""

    is_exact = True

    def __init__(self, url: str, tier: Tier, point: Point, shared: Shared, there: Mapping[str, Stored]) -> None:
        super().__init__(url, tier)
        self.point, self.objects, self._there = point, shared.objects, there
        self.notes += _notes(self.url, point)
        self._folders[url] = dict(_beside(point))
        for partition in point.partitions:
            name = partition_folder_name(partition.topic, partition.partition)
            log = self.logs.get(name)
            if log is not None and log.topic_id == partition.topic_id:
                files = dict(files_of(log)) | dict(_more_files(partition, shared, there))
                self._folders[f"{url}{INSIDE}{name}"] = dict(sorted(files.items()))

    def get_stored(self, key: str) -> Stored:
        return self._there[key]


def _notes(url: str, point: Point) -> Iterable[Note]:
    """Yield notes for readers about records that the point does not have."""
    topics = {partition.topic for partition in point.partitions}
    faults = {f"{partition.name}: {partition.fault}" for partition in point.partitions}
    yield from as_notes((text for text in point.notes if text not in faults), url, topics)
    if not point.is_sealed:
        yield Note(url, UNSEALED, is_of_all=True)
    yield from lacks_of(point, url=url)


def lacks_of(
    point: Point, takes: Callable[[str, int], bool] = lambda topic, partition: True, *, url: str = ""
) -> list[Note]:
    """Return the records that a point lacks of some partitions, by its own account."""
    notes, read = list[Note](), point.by_name
    for part in point.partitions:
        fact = part.fault
        if part is not read[part.name]:
            fact = f"the point has two topics of this name: that with the id {part.topic_id} is left out"
        if fact and takes(part.topic, part.partition):
            notes.append(Note(url, fact, part.topic, part.partition))
    for lost in point.not_seen or ():
        if takes(lost.topic, lost.partition):
            notes.append(Note(url, "it was on none of the archived disks", lost.topic, lost.partition))
    return notes


def _beside(point: Point) -> Iterator[tuple[str, TierFile]]:
    """Yield the files beside the partitions of a log directory: `meta.properties`, and the checkpoints."""
    if point.cluster_id:
        data = encode_meta_properties(MetaProperties(0, point.cluster_id), iso_text(point.time_ms))
        yield _small(FileKind.META_PROPERTIES, data)
    partitions = point.by_name.values()
    ends = {(part.topic, part.partition): part.end_offset for part in partitions}
    starts = {(part.topic, part.partition): part.start_offset for part in partitions if part.start_offset}
    for kind, offsets in (
        (FileKind.RECOVERY_POINTS, ends),
        (FileKind.HIGH_WATERMARKS, ends),
        (FileKind.LOG_STARTS, starts),
    ):
        yield _small(kind, encode_offset_checkpoint(offsets))


def _small(kind: FileKind, data: bytes, name: str = "") -> tuple[str, TierFile]:
    name = name or kind.value
    return name, TierFile(Entry(name, False, len(data), -1), kind, None, data)


def _more_files(
    partition: ArchivedPartition, shared: Shared, there: Mapping[str, Stored]
) -> Iterator[tuple[str, TierFile]]:
    """Yield the further files of a partition's folder, and its empty segments."""
    epochs = [EpochEntry(*entry) for entry in partition.epochs]
    yield _small(FileKind.LEADER_EPOCHS, encode_leader_epochs(epochs))
    start, segments = partition.start_offset, partition.segments
    is_behind = not segments or segments[0].base_offset > start  # its first records were all cleaned away
    is_short = not segments or not segments[-1].size  # the last ones too: their offsets are not given again
    bases = {base for base, is_empty in ((start, is_behind), (partition.end_offset, is_short)) if is_empty}
    for base in bases:
        for kind in (FileKind.LOG, FileKind.OFFSET_INDEX, FileKind.TIME_INDEX):
            yield _small(kind, b"", segment_file_name(base, kind))
    for name, archived in partition.files.items():
        yield name, _make_tier_file(partition, name, archived, shared, there)


def _make_tier_file(
    partition: ArchivedPartition, name: str, archived: ArchivedFile, shared: Shared, there: Mapping[str, Stored]
) -> TierFile:
    key = partition.file_key(name)
    source: Any = _Archived(
        shared, there.get(key), shared.objects.name(f"{shared.objects.root}/{key}"), archived.sha256
    )
    return TierFile(Entry(name, False, archived.size, -1), parse_file_name(name).kind, source)
