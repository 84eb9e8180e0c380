"""The segments of a tiered partition: uploads, or the parts of them that form the log where uploads overlap."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from pylogseg.disk.lineage.chains import Lineage
from pylogseg.disk.lineage.parts import LeftKind, LeftOut, LogRange, assemble, lineage_of
from pylogseg.disk.tier.layouts import MANIFEST_THREADS, base_at, cut_at, end_offset_of, leaders_within, proved_end_of
from pylogseg.disk.tier.manifest import UploadedSegment
from pylogseg.disk.tier.uploads import AivenUpload, BrokenUpload, FileUpload, Upload
from pylogseg.env.filesystem import FileView, PartsOfFiles
from pylogseg.errors import PylogsegError
from pylogseg.format.files.checkpoint import EpochEntry, parse_leader_epochs
from pylogseg.format.files.index import OffsetIndex, TimeIndex, encode_offset_index, encode_time_index
from pylogseg.format.files.txnindex import TxnIndex
from pylogseg.format.names import FileKind

_UNENDING = 2**63 - 1
#: Of so many of the newest uploads the leader epochs are tried, where those of the newest are damaged.
_TRIED = 8
#: Files of which a part of a segment has a part.
_CUT = (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TXN_INDEX)


@dataclass(frozen=True)
class TierSegment:
    """An upload, or its batches that begin in a half-open range of offsets; an end of -1 is unknown."""

    upload: Upload
    first_offset: int
    end_offset: int

    def within(self, first_offset: int, end_offset: int) -> TierSegment:
        """Return a range of it; the whole upload for its whole range, also without a known end."""
        if first_offset <= self.first_offset and end_offset >= self.end_offset:
            return self
        return TierSegment(self.upload, first_offset, end_offset)

    @property
    def starts_whole(self) -> bool:
        return self.first_offset == self.upload.segment.start_offset

    @property
    def ends_whole(self) -> bool:
        return self.end_offset in (-1, self.upload.segment.end_offset + 1)

    @cached_property
    def place(self) -> tuple[int, int]:
        """Where it begins and ends in the upload; all of it if it cannot be read, so that a reader meets why."""
        try:
            start = 0 if self.starts_whole else cut_at(self.upload, self.first_offset)[1]
            end = self.upload.size if self.ends_whole else cut_at(self.upload, self.end_offset)[0]
        except PylogsegError:
            return 0, self.upload.size
        return start, max(start, end)

    @property
    def size(self) -> int:
        return self.place[1] - self.place[0]

    def open(self) -> FileView:
        view = self.upload.open()
        return view if self.starts_whole and self.ends_whole else PartsOfFiles([(view, *self.place)])

    @cached_property
    def small_files(self) -> dict[FileKind, int]:
        """Sizes of the indexes and of the snapshot at the end, which only a whole end has."""
        there = dict(self.upload.small_files)
        if not self.ends_whole:
            there.pop(FileKind.PRODUCER_SNAPSHOT, None)
        if not (self.starts_whole and self.ends_whole):
            there |= {kind: self._size_of(kind) for kind in _CUT if kind in there}
            if not there.get(FileKind.TXN_INDEX):
                there.pop(FileKind.TXN_INDEX, None)  # the aborts are those of another part
        return there

    def _size_of(self, kind: FileKind) -> int:
        try:
            return len(self.read_small(kind))
        except PylogsegError:  # who reads it will meet the damage
            return self.upload.small_files[kind]

    def read_small(self, kind: FileKind) -> bytes:
        """Return a small file, cut to these offsets."""
        data = self.upload.read_small(kind)
        base = self.upload.segment.start_offset
        if (self.starts_whole and self.ends_whole) or kind not in _CUT:
            return data
        if kind is FileKind.TXN_INDEX:  # an abort of another branch hides records that this one committed
            entries = TxnIndex(data, self.upload.name).entries
            ends = entries["last_offset"]
            return bytes(entries[(ends >= self.first_offset) & (ends < self.end_offset)].tobytes())
        if kind is FileKind.TIME_INDEX:
            times = TimeIndex(data, base)
            kept = (times.offsets >= self.first_offset) & (times.offsets < self.end_offset)
            return encode_time_index(self.first_offset, times.timestamps[kept], times.offsets[kept])
        index, (start, end) = OffsetIndex(data, base), self.place
        positions = index.positions.astype(np.int64)
        # An entry of an append (brokers before 3.9.1) that goes on behind the part names an offset behind it.
        kept = (positions > start) & (positions < end) & (index.offsets < self.end_offset)
        return encode_offset_index(self.first_offset, index.offsets[kept], positions[kept] - start)


class TieredLog(NamedTuple):
    """A partition in a tier: its segments by offset, without overlaps, and the half-open ranges that no upload has.

    `left` is what uploads have beside the log, with the reason; `copies` is what other uploads have of it too.
    """

    topic: str
    partition: int
    topic_id: str
    segments: list[TierSegment]
    left: list[tuple[Upload, LeftOut]]
    holes: list[tuple[int, int]]
    copies: list[TierSegment]


def whole_log(
    name: tuple[str, int, str], uploads: Sequence[Upload], lineage: Lineage | None = None, end: int = _UNENDING
) -> TieredLog:
    """Return the log that uploads of a partition form up to an offset; by the lineage of a replica, if one is given.

    An upload with a damaged manifest stays in the log where no other has its first offset: a reader shall meet it. The
    slice leaves out offsets that a manifest claims and its segment does not have.
    """
    good: list[Upload] = sorted((u for u in uploads if not isinstance(u, BrokenUpload)), key=_order)
    good, claims = settle_uploads(good)
    parts = _parts(good)
    if parts and lineage is None:
        lineage = _lineage(good, parts)
    segments: list[TierSegment] = []
    left: list[tuple[Upload, LeftOut]] = []
    holes: list[tuple[int, int]] = []
    if parts and lineage is not None:
        assembly = assemble(parts, lineage.shorten(end))
        segments = [TierSegment(good[piece.part], piece.first_offset, piece.end_offset) for piece in assembly.pieces]
        left, holes = [(good[piece.part], piece) for piece in (*assembly.left, *claims)], assembly.holes
    if segments:
        segments[0] = _with_all_of_its_first_batch(segments[0])
    for number, broken in enumerate(sorted((u for u in uploads if isinstance(u, BrokenUpload)), key=_order)):
        first = broken.segment.start_offset
        if first >= end or any(segment.first_offset <= first < segment.end_offset for segment in segments):
            left.append((broken, LeftOut(number, first, -1, LeftKind.COPY, "its manifest is damaged; others have it")))
        else:
            segments.append(TierSegment(broken, first, -1))
    segments.sort(key=lambda segment: segment.first_offset)
    copies = [TierSegment(upload, piece.first_offset, piece.end_offset) for upload, piece in left
              if piece.kind is LeftKind.COPY and piece.end_offset >= 0]  # fmt: skip
    return TieredLog(*name, segments, left, holes, copies)


def _with_all_of_its_first_batch(first: TierSegment) -> TierSegment:
    """Return the first segment of a log, from the batch on that the log begins in: records were deleted up to there."""
    if first.starts_whole:
        return first
    try:
        return TierSegment(first.upload, base_at(first.upload, first.first_offset), first.end_offset)
    except PylogsegError:  # who reads it will meet that
        return first


def _order(upload: Upload) -> tuple[int, int, str]:
    return upload.segment.start_offset, upload.segment.event_timestamp_ms, upload.segment.segment_id


def _parts(uploads: Sequence[Upload]) -> list[LogRange]:
    """Return uploads as parts, in their order; overlapping uploads are checked for flaws first."""
    parts: list[LogRange] = []
    furthest, shared = 0, set()
    for number, upload in enumerate(uploads):
        segment = upload.segment
        epochs = tuple(EpochEntry(*entry) for entry in segment.leader_epochs)
        parts.append(LogRange(segment.start_offset, segment.end_offset + 1, epochs))
        if number and segment.start_offset < parts[furthest].end_offset:
            shared |= {number, furthest}
        if parts[number].end_offset > parts[furthest].end_offset:
            furthest = number
    return [part._replace(rank=uploads[i].flaw) if i in shared else part for i, part in enumerate(parts)]


def _lineage(uploads: Sequence[Upload], parts: Sequence[LogRange]) -> Lineage:
    """Return the lineage of the newest upload, from its epochs since the beginning of the log if they can be read.

    A manifest has only the epochs of its segment. If one uploaded segment follows another, these suffice. If a segment
    in the middle lacks its own first epoch (it was deleted), the leader epochs of the newest uploads are read.
    """
    if all(one.end_offset == two.first_offset and _knows_its_start(two) for one, two in itertools.pairwise(parts)):
        return lineage_of(parts)
    with_epochs = [i for i in range(len(parts)) if FileKind.LEADER_EPOCHS in uploads[i].small_files]
    newest = sorted(with_epochs, key=lambda i: (parts[i].lineage.last_epoch, parts[i].end_offset))[::-1]
    for last in newest[:_TRIED]:
        try:
            data = uploads[last].read_small(FileKind.LEADER_EPOCHS)
            epochs = tuple(parse_leader_epochs(data, uploads[last].name))
        except PylogsegError:
            continue
        lineage = lineage_of([*parts, parts[last]._replace(epochs=epochs)])
        # What lies below the first epoch was deleted: other leaders may have written it, and nobody knows how far.
        start = min(epochs[0].start_offset, lineage.end) if epochs else lineage.start
        return lineage._replace(start=max(lineage.start, start))
    return lineage_of(parts)


def _knows_its_start(part: LogRange) -> bool:
    return not part.epochs or part.epochs[0].start_offset <= part.first_offset


def settle_uploads(uploads: Sequence[Upload]) -> tuple[list[Upload], list[LeftOut]]:
    """Return uploads by their offsets, with the offsets that their segments have, and the claims of manifests."""
    settled: list[Upload] = list(uploads)
    claims: list[LeftOut] = []
    doubtful = sorted(_doubtful([upload.segment for upload in uploads]))
    if not doubtful:
        return settled, claims
    with ThreadPoolExecutor(min(MANIFEST_THREADS, len(doubtful)), thread_name_prefix="pylogseg-tier") as pool:
        for number, segment in zip(doubtful, pool.map(lambda i: _prove_segment(uploads[i]), doubtful), strict=True):
            upload, said = uploads[number], uploads[number].segment
            if segment is None:
                continue
            if isinstance(upload, FileUpload):
                settled[number] = replace(upload, segment=segment)
                reason = (
                    f"a batch in it ends at offset {said.end_offset}, and by the others it ends at {segment.end_offset}"
                )
                claims.append(LeftOut(number, segment.end_offset + 1, said.end_offset + 1, LeftKind.CLAIM, reason))
            if not isinstance(upload, AivenUpload):
                continue
            settled[number] = replace(upload, manifest=replace(upload.manifest, segment=segment))
            if segment.end_offset < said.end_offset:
                reason = f"its manifest ends at offset {said.end_offset}, and its last batch at {segment.end_offset}"
                claims.append(LeftOut(number, segment.end_offset + 1, said.end_offset + 1, LeftKind.CLAIM, reason))
            foreign = _foreign(said, segment)
            if foreign:
                reason = (
                    f"its manifest has leader epoch {foreign[0]}, and the leader epochs beside the segment have not"
                )
                claims.append(LeftOut(number, said.start_offset, segment.end_offset + 1, LeftKind.CLAIM, reason))
    return settled, claims


def _doubtful(segments: Sequence[UploadedSegment]) -> Iterator[int]:
    """Yield uploads that overlap the next one, or have a later leader epoch than it."""
    following, behind = None, None  # the first and the highest last epoch of those that begin next
    for number in reversed(range(len(segments))):
        segment = segments[number]
        if following is not None and segment.start_offset < following.start_offset:
            behind, following = (following.start_offset, _last_epoch(following)), segment
        elif following is None or _last_epoch(segment) > _last_epoch(following):
            following = segment
        if behind is not None and (segment.end_offset >= behind[0] or _last_epoch(segment) > behind[1]):
            yield number


def _last_epoch(segment: UploadedSegment) -> int:
    return max((epoch for epoch, _ in segment.leader_epochs), default=-1)


def _prove_segment(upload: Upload) -> UploadedSegment | None:
    """Return the offsets that a segment has, if its manifest claims more; None also if the files do not show it."""
    said = upload.segment
    if isinstance(upload, FileUpload):  # all but its end is known from the segment
        try:
            end = proved_end_of(upload)
        except PylogsegError:
            return None
        is_less = said.start_offset < end <= said.end_offset
        leaders = tuple((epoch, start) for epoch, start in said.leader_epochs if start < end)
        return said._replace(end_offset=end - 1, leader_epochs=leaders) if is_less else None
    if not isinstance(upload, AivenUpload):
        return None
    try:
        end = end_offset_of(upload)
        epochs = parse_leader_epochs(upload.read_small(FileKind.LEADER_EPOCHS), upload.name)
    except PylogsegError:
        return None
    if end <= said.start_offset:
        return None
    last = min(end - 1, said.end_offset)
    has = said._replace(end_offset=last, leader_epochs=leaders_within(epochs, said.start_offset, last + 1))
    return has if last < said.end_offset or _foreign(said, has) else None


def _foreign(said: UploadedSegment, has: UploadedSegment) -> list[int]:
    own = {epoch for epoch, _ in has.leader_epochs}
    return [epoch for epoch, start in said.leader_epochs if epoch not in own and start <= has.end_offset]
