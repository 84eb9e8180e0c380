"""The layouts of tiers: the names by which objects belong to a segment."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import Any

import numpy as np

from pylogseg.disk.lineage.chains import add_epochs
from pylogseg.disk.tier.manifest import MANIFEST_LIMIT_BYTES, UploadedSegment, parse_manifest
from pylogseg.disk.tier.uploads import AivenUpload, BrokenUpload, FileUpload, Shared, Stored, Upload
from pylogseg.errors import CorruptionError, PylogsegError, RequestError, StorageError
from pylogseg.format.batches import BatchTable
from pylogseg.format.files.checkpoint import EpochEntry, parse_leader_epochs
from pylogseg.format.files.index import OffsetIndex
from pylogseg.format.files.snapshot import parse_snapshot
from pylogseg.format.names import FileKind, check_topic
from pylogseg.walker.gaps import Gap
from pylogseg.walker.windows import SMALL_WINDOW_BYTES, Window, walk

_NEVER = 2**63 - 1
#: Manifests that are read at one time from a store.
MANIFEST_THREADS = 128
_UUID = "[A-Za-z0-9_-]{22}"
_AIVEN = re.compile(rf"(?:(.*)/)?([^/]+)-({_UUID})/([0-9]{{1,10}})/([0-9]{{20}})-({_UUID})\.(log|indexes|rsm-manifest)")
_FILES = re.compile(
    rf"(?:(.*)/)?([^/]+)-([0-9]{{1,10}})-({_UUID})/([0-9]{{20}})-({_UUID})"
    r"\.(log|index|timeindex|txnindex|leader_epoch_checkpoint|snapshot)"
)
_KINDS = {
    "log": FileKind.LOG,
    "index": FileKind.OFFSET_INDEX,
    "timeindex": FileKind.TIME_INDEX,
    "txnindex": FileKind.TXN_INDEX,
    "leader_epoch_checkpoint": FileKind.LEADER_EPOCHS,
    "snapshot": FileKind.PRODUCER_SNAPSHOT,
}


@dataclass
class Found:
    """The finished uploads of a tier, and its other objects.

    `orphans` are of segments without a manifest: an upload or a deletion is running, or was interrupted.
    """

    uploads: list[Upload] = field(default_factory=list)
    orphans: list[Stored] = field(default_factory=list)
    others: list[Stored] = field(default_factory=list)


def find_aiven(shared: Shared, objects: Iterable[Stored]) -> Found:
    """Return the uploads of Aiven's plugin among objects; reads all manifests, many at a time."""
    contents = Found()
    named: dict[tuple[str, ...], dict[str, Stored]] = {}  # the first is the folder above the topic's
    for stored in objects:
        match = _AIVEN.fullmatch(stored.path)
        if match is None:
            contents.others.append(stored)
        else:
            named.setdefault((match[1] or "", *match.group(2, 3, 4, 5, 6)), {})[match[7]] = stored
    whole = {name: parts for name, parts in named.items() if "rsm-manifest" in parts}
    for name, parts in named.items():
        if name not in whole:
            contents.orphans += parts.values()
    uploads = _each(shared, lambda item: _aiven_upload(shared, *item), sorted(whole.items()))
    topic_ids = {upload.segment.topic_id for upload in uploads if not isinstance(upload, BrokenUpload)}
    for upload, name in zip(uploads, sorted(whole), strict=True):
        if upload.segment.topic_id in topic_ids or _is_topic(upload.segment.topic):
            contents.uploads.append(upload)
        else:
            contents.others += whole[name].values()
    return contents


def _is_topic(name: str) -> bool:
    try:
        check_topic(name)
    except RequestError:
        return False
    return True


def _each(shared: Shared, make: Callable[[Any], Upload], items: list[Any]) -> list[Upload]:
    if shared.objects.is_local or len(items) < 2:
        return list(map(make, items))
    with ThreadPoolExecutor(min(MANIFEST_THREADS, len(items)), thread_name_prefix="pylogseg-tier") as pool:
        return list(pool.map(make, items))


def _aiven_upload(shared: Shared, name: tuple[str, ...], parts: dict[str, Stored]) -> Upload:
    _, topic, topic_id, partition, offset, segment_id = name
    stored = parts["rsm-manifest"]
    at = shared.objects.name(stored.path)
    log = parts.get("log") or Stored(stored.path.removesuffix("rsm-manifest") + "log", -1, stored.modified_ms)
    try:
        if stored.size > MANIFEST_LIMIT_BYTES:
            raise CorruptionError(at, MANIFEST_LIMIT_BYTES, f"a manifest of {stored.size} bytes is not read")
        manifest = parse_manifest(shared.objects.read(stored, 0, stored.size), at)
        segment = manifest.segment
        said = (segment.topic_id, segment.partition, segment.start_offset, segment.segment_id)
        if said != (topic_id, int(partition), int(offset), segment_id) or not topic.endswith(segment.topic):
            raise CorruptionError(
                at,
                0,
                f"the manifest is of another segment than its name: of {segment.topic}-{said[1]}, offset {said[2]}",
            )
    except (CorruptionError, StorageError) as error:
        named = UploadedSegment(topic, int(partition), topic_id, segment_id, int(offset), -1)
        return BrokenUpload(named, max(log.size, 0), log.modified_ms, shared.objects.name(log.path), error)
    if manifest.encryption is not None:
        shared.keys.note(manifest.encryption.key_id, manifest.encryption.wrapped)
    return AivenUpload(shared, manifest, log, parts.get("indexes"))


def find_files(shared: Shared, objects: Iterable[Stored]) -> Found:
    """Return the uploads of Kafka's `LocalTieredStorage` among objects."""
    contents = Found()
    named: dict[tuple[str, ...], dict[FileKind, Stored]] = {}
    for stored in objects:
        match = _FILES.fullmatch(stored.path)
        if match is None or not _is_topic(match[2]):
            contents.others.append(stored)
        else:
            named.setdefault((match[1] or "", *match.group(2, 3, 4, 5, 6)), {})[_KINDS[match[7]]] = stored
    whole = []
    for name, files in sorted(named.items()):
        if FileKind.LOG in files and FileKind.LEADER_EPOCHS in files:
            whole.append((name, files))
        else:
            contents.orphans += files.values()
    for upload, (_, files) in zip(_each(shared, lambda item: _file_upload(shared, *item), whole), whole, strict=True):
        if isinstance(upload, BrokenUpload) and upload.missing:
            contents.orphans += files.values()  # its copy broke off: the snapshot is copied after the leader epochs
        else:
            contents.uploads.append(upload)
    return contents


def _file_upload(shared: Shared, name: tuple[str, ...], files: dict[FileKind, Stored]) -> Upload:
    _, topic, partition, topic_id, offset, segment_id = name
    segment = UploadedSegment(topic, int(partition), topic_id, segment_id, int(offset), -1)
    upload = FileUpload(shared, segment, files)
    try:
        if FileKind.PRODUCER_SNAPSHOT in files:
            parse_snapshot(upload.read_small(FileKind.PRODUCER_SNAPSHOT), upload.name)
    except CorruptionError:  # it is copied last: half of it may be there
        files = {kind: stored for kind, stored in files.items() if kind is not FileKind.PRODUCER_SNAPSHOT}
        upload = FileUpload(shared, segment, files)
    except StorageError:
        pass  # who reads it will meet that
    try:
        end, last_epoch = _end_of(upload)
        if end <= int(offset):
            raise CorruptionError(
                upload.name, 0, f"no batch in it has an offset from {int(offset)} on, as its name says"
            )
        leaders = _leaders_of(upload, end, _first_epoch(upload), last_epoch)
    except (CorruptionError, StorageError) as error:
        place = segment, upload.size, upload.modified_ms, upload.name
        return BrokenUpload(*place, error, missing=upload.missing, has_manifest=False)
    return FileUpload(shared, segment._replace(end_offset=end - 1, leader_epochs=leaders), files)


def _first_epoch(upload: FileUpload) -> int:
    """Return the leader epoch of the first batch; -1 without one at the beginning.

    Raises CorruptionError if it begins at a later offset than the name of the segment says: it is another one.
    """
    start, rows = upload.segment.start_offset, next(_headers(upload, upload.segment.start_offset), None)
    if rows is None or rows.position[0]:
        return -1
    first = int(rows.base_offset[0])
    # No checksum covers one base offset; the batches behind it have theirs.
    if first > start and len(rows) > 1 and rows.base_offset[1] == rows.last_offset[0] + 1:
        raise CorruptionError(upload.name, 0, f"its first batch begins at offset {first}, and its name says {start}")
    return int(rows.leader_epoch[0])


def _leaders_of(upload: FileUpload, end: int, first_epoch: int, last_epoch: int) -> tuple[tuple[int, int], ...]:
    """Return the leader epochs of a copied segment; from its batches if the file beside it cannot be right.

    Neither has a checksum. An epoch of the file that a batch confirms is taken; if none does, that of its batches.
    """
    start, name = upload.segment.start_offset, upload.small_name(FileKind.LEADER_EPOCHS)
    leaders: tuple[tuple[int, int], ...] = ()
    try:
        leaders = leaders_within(parse_leader_epochs(upload.read_small(FileKind.LEADER_EPOCHS), name), start, end)
    except CorruptionError:
        if upload.missing:  # its copy broke off in this file
            raise
    # Below the first one of the list, records were deleted.
    fits = _ascend(leaders) and (first_epoch < 0 or leaders[0][1] > start or leaders[0][0] == first_epoch)
    if fits and (last_epoch < 0 or leaders[-1][0] == last_epoch):
        return leaders
    own = [
        (first, epoch)
        for rows in _headers(upload, start)
        for first, epoch in zip(rows.base_offset.tolist(), rows.leader_epoch.tolist(), strict=True)
        if epoch >= 0
    ]
    ends = [first for _, first in leaders[1:]] + [end]
    settled = []
    for (epoch, first), stop in zip(leaders, ends, strict=False):
        there = [own_epoch for base, own_epoch in own if first <= base < stop]
        if there and epoch not in there:
            epoch = min(there[0], epoch) if len(there) == 1 else there[0] if len(set(there)) == 1 else -1
        settled.append((epoch, first))
    if _ascend(settled) and settled[0][0] >= 0:
        return tuple(settled)
    entries: list[EpochEntry] = []
    add_epochs(entries, ((epoch, first) for first, epoch in own))
    return tuple(entries)


def _ascend(leaders: Sequence[tuple[int, int]]) -> bool:
    """Check whether there are leader epochs, in order."""
    return bool(leaders) and all(after[0] > before[0] for before, after in pairwise(leaders))


def leaders_within(epochs: Sequence[EpochEntry], start: int, end: int) -> tuple[tuple[int, int], ...]:
    """Return the leader epochs of a range of offsets, cut from the log's, in the form of a manifest."""
    before = [entry for entry in epochs if entry.start_offset <= start][-1:]
    own = before + [entry for entry in epochs if start < entry.start_offset < end]
    return tuple((entry.epoch, max(entry.start_offset, start)) for entry in own)


def end_offset_of(upload: Upload) -> int:
    """Return the offset after the last batch: the headers from the last entry of the offset index on are read."""
    return _end_of(upload)[0]


def _end_of(upload: Upload) -> tuple[int, int]:
    """Return the offset after the last batch, and the leader epoch of that batch; -1 without one."""
    ends = [(upload.segment.start_offset, -1)]
    for rows in _headers(upload, _NEVER):
        last = int(rows.last_offset.argmax())
        ends.append((int(rows.last_offset[last]) + 1, int(rows.leader_epoch[last])))
    return max(ends, key=lambda each: each[0])


def proved_end_of(upload: FileUpload) -> int:
    """Return the offset after the last batch, as all batches together show it: all are read, and their checksums.

    No checksum covers base offsets: a batch begins where the one before it ends, unless the one after it contradicts.
    The offset index may know the last offset of a damaged batch at the end.
    """
    expected, after_gap, behind = upload.segment.start_offset, False, 0
    with upload.open() as view:
        for item in walk(view, lowest_offset=expected):
            if isinstance(item, Gap):
                after_gap, behind = True, item.position
                continue
            bases, lasts = item.batches.base_offset.tolist(), item.batches.last_offset.tolist()
            for row, (base, last) in enumerate(zip(bases, lasts, strict=True)):
                following = bases[row + 1] if row + 1 < len(bases) else None
                is_base = base == expected or (base > expected and (after_gap or following == last + 1))
                expected, after_gap = (last + 1 if is_base else expected + max(0, last - base) + 1), False
    if after_gap and FileKind.OFFSET_INDEX in upload.small_files:
        index = OffsetIndex(upload.read_small(FileKind.OFFSET_INDEX), upload.segment.start_offset)
        at = np.flatnonzero(index.positions == behind)
        expected = max([expected, *(int(offset) + 1 for offset in index.offsets[at])])
    return expected


def cut_at(upload: Upload, offset: int) -> tuple[int, int]:
    """Return the positions in a segment at which batches below an offset end, and batches from it on begin.

    Damage beside the cut is left out where the batch before it ends with the offset, and else belongs to both.
    """
    reached, end, begin = upload.segment.start_offset, 0, upload.size
    for rows in _headers(upload, offset):
        behind = np.flatnonzero(rows.base_offset >= offset)
        count = int(behind[0]) if len(behind) else len(rows)
        if count:
            reached, end = int(rows.last_offset[count - 1]) + 1, int(rows.position[count - 1] + rows.size[count - 1])
        if len(behind):
            begin = int(rows.position[count])
            break
    return (end if reached >= offset else begin), end


def base_at(upload: Upload, offset: int) -> int:
    """Return the base offset of the batch with an offset; without such a batch the offset itself."""
    for rows in _headers(upload, offset):
        there = np.flatnonzero((rows.base_offset <= offset) & (offset <= rows.last_offset))
        if len(there):
            return int(rows.base_offset[there[0]])
        if int(rows.base_offset[-1]) > offset:
            break
    return offset


def _headers(upload: Upload, offset: int) -> Iterator[BatchTable]:
    """Yield the headers of batches, from the last one on that the offset index has below an offset.

    An index that is damaged, or points to no such batch, is ignored: nothing is left out by it.
    """
    base = upload.segment.start_offset
    with upload.open() as view:

        def walk_from(start: int) -> Iterator[Window | Gap]:
            return walk(view, start=start, lowest_offset=base, crc=False, first_window_bytes=SMALL_WINDOW_BYTES)

        start = _find_position(upload, offset)
        items = walk_from(start)
        first = next(items, None)
        if start and not (isinstance(first, Window) and _begins(first.batches, start, offset)):
            items, first = walk_from(0), None
        for item in items if first is None else chain([first], items):
            if isinstance(item, Window):
                yield item.batches


def _begins(rows: BatchTable, position: int, offset: int) -> bool:
    """Check whether the first batch lies at a position, and begins below an offset."""
    return bool(rows.position[0] == position and rows.base_offset[0] < offset)


def _find_position(upload: Upload, offset: int) -> int:
    """Return a position of a batch below an offset, by the index; 0 if it has none."""
    if FileKind.OFFSET_INDEX not in upload.small_files or offset <= upload.segment.start_offset:
        return 0
    try:
        index = OffsetIndex(upload.read_small(FileKind.OFFSET_INDEX), upload.segment.start_offset)
    except PylogsegError:
        return 0
    there = index.positions[(index.offsets < offset) & (index.positions >= 0) & (index.positions < upload.size)]
    return int(there[-1]) if len(there) else 0
