"""A range of offsets of a segment as an archived segment: its checked batches, and a broker's files beside them.

The result is a valid segment that begins with the range: a reader of the archive needs no other part of it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pylogseg.archive.planning import PartitionPlan
from pylogseg.archive.seen import SeenCopy
from pylogseg.disk.disk import Segment
from pylogseg.disk.stores import ObjectStore
from pylogseg.disk.tier.layouts import leaders_within
from pylogseg.disk.tier.manifest import MANIFEST_LIMIT_BYTES, UploadedSegment, parse_manifest
from pylogseg.disk.tier.point import SUFFIXES, ArchivedFile, ArchivedSegment
from pylogseg.disk.tier.writing import UploadForm, UploadWriter, digest_begin_of, segment_id_of
from pylogseg.env.executor import Advance
from pylogseg.env.file_errors import storage_error
from pylogseg.env.filesystem import FileView
from pylogseg.errors import CorruptionError, RequestError, StorageError
from pylogseg.format.batches import BatchTable
from pylogseg.format.files.checkpoint import EpochEntry
from pylogseg.format.names import FileKind
from pylogseg.log.producers import Producers
from pylogseg.reading.positions import position_of_offset
from pylogseg.reading.producers import replay
from pylogseg.reading.removed_segments import open_unless_removed
from pylogseg.reading.state import Throttle
from pylogseg.transfer.checked import checked_windows
from pylogseg.transfer.segment_files import MadeIndexes, cut_transactions, epochs_file, last_stable, snapshot_file
from pylogseg.walker.gaps import Gap
from pylogseg.walker.windows import Window


class Uploaded(NamedTuple):
    """The result of a range: the segment, if there is anything in it, how far it goes, and why not to its end."""

    segment: ArchivedSegment | None
    end: int
    fault: str = ""
    stable: int | None = None  #: The last stable offset there, as far as it is known.
    is_new: bool = True  #: True if it was uploaded, and was not there from a run that was killed.
    is_all: bool = False  #: True if a batch follows that is not committed as a whole.
    hole: tuple[int, int] | None = None  #: The first offsets that no batch has, of a log that is not compacted.


@dataclass(frozen=True)
class UploadJob:
    """Settings that all uploads of a run share."""

    store: ObjectStore
    form: UploadForm
    scratch: Path | None  #: None where each worker has its own.
    throttle: Throttle | None
    now_ms: int
    times_ms: tuple[int, ...] = ()  #: Of the points that there are.

    def put(self, stem: str, log: Path, beside: tuple[bytes, bytes], there: Mapping[str, int]) -> None:
        """Upload the objects of a segment; the manifest is the last.

        The name of the first two tells their content: one that a killed run left whole is the same.
        """
        log_name, body_name, manifest_name = (stem + suffix for suffix in SUFFIXES)
        if there.get(os.path.basename(log_name)) != log.stat().st_size:
            self.store.put(log_name, log)
        if there.get(os.path.basename(body_name)) != len(beside[0]):
            self.store.put(body_name, beside[0])
        self.store.put(manifest_name, beside[1])


def upload(
    job: UploadJob,
    plan: PartitionPlan,
    there: Mapping[str, int],
    copy: SeenCopy,
    segment: Segment,
    first: int,
    end: int,
    advance: Advance,
) -> Uploaded:
    """Upload the batches of a copy's segment from one offset on, up to another one or to the first damage.

    `there` has what is in the folder of the partition in the archive, with sizes.
    """
    assert job.scratch is not None
    opened = open_unless_removed(segment)
    if opened is None:
        return Uploaded(None, end)  # a broker removed it
    path = job.scratch / uuid.uuid4().hex
    try:
        with opened as view, open(path, "wb") as file:
            writer = UploadWriter(file, job.form)
            given = copy.read_snapshot(end)
            # The log may be cleaned once it was read: then it does not say any more what was in it.
            producers = None if given is not None else copy.producers_at(first)
            made = _Batches(job, plan, segment, writer, first, end, producers)
            with contextlib.closing(writer):
                made.read(view, advance)
                digest = writer.finish()
        is_sealed = segment.next_base == end and not made.fault
        reached = end if is_sealed else made.reached
        if reached <= first:
            return Uploaded(None, first, made.fault, is_all=made.is_all)
        epochs = plan.lineage.epochs or (EpochEntry(0, first),)  # a manifest has one, also of batches without any
        if producers is not None:
            snapshot = snapshot_file(producers)
        else:
            snapshot = given if given is not None and reached == end else copy.snapshot_at(reached)
        node = -1 if copy.node_id is None else copy.node_id
        leaders = leaders_within(epochs, first, reached)
        small = {
            **made.indexes.finish(),
            FileKind.TXN_INDEX: _cut_txn_index(segment, first, reached),
            FileKind.PRODUCER_SNAPSHOT: snapshot,
            FileKind.LEADER_EPOCHS: epochs_file(epochs, reached),
        }
        # All that is in the objects is in the id, but for the time: what has the name already is the same.
        # An encrypted object is never the same twice, and an id made of its plain bytes would confirm a guess of them.
        said = repr((reached, node, made.max_timestamp, leaders)).encode()
        beside_log = os.urandom(16) if job.form.key is not None else b"".join((said, *small.values()))
        segment_id = segment_id_of(digest, beside_log)
        of = plan.key[0], plan.key[2], plan.key[1], segment_id, first, reached - 1, made.max_timestamp, node
        stem = f"{plan.folder}/{first:020d}-{segment_id}"

        def beside(time_ms: int) -> tuple[bytes, bytes]:
            return writer.beside(small, UploadedSegment(*of, time_ms, leaders))

        archived = plan.lost.get(segment_id)
        body, manifest = _as_before(job, stem, archived, beside) or beside(job.now_ms)
        job.put(stem, path, (body, manifest), there)
        found = ArchivedSegment(
            first,
            reached,
            writer.size,
            segment_id,
            ArchivedFile(writer.stored_size, digest),
            *(ArchivedFile(len(data), hashlib.sha256(data).hexdigest()) for data in (body, manifest)),
        )
        if is_sealed and made.reached < end and made.hole is None:
            made.hole = made.reached, end
        hole = None if plan.is_compacted else made.hole
        stable = last_stable(snapshot, reached)
        return Uploaded(found, reached, made.fault, stable, is_all=made.is_all, hole=hole)
    except OSError as error:
        if isinstance(error, StorageError):
            raise
        # The disk with scratch files fails, and no log.
        raise storage_error(job.store.name(plan.folder), "write", error) from error
    finally:
        with contextlib.suppress(FileNotFoundError):
            path.unlink()


def _as_before(
    job: UploadJob, stem: str, archived: ArchivedSegment | None, beside: Callable[[int], tuple[bytes, bytes]]
) -> tuple[bytes, bytes] | None:
    """Return the small objects of an uploaded segment unchanged; None if it has none, or other ones.

    A point may need them, also a point that is not listed yet. If the store lost the manifest, it is made again with
    the time of the run that uploaded it, since the point has its digest.
    """
    name = stem + SUFFIXES[2]
    old = job.store.read(name)
    if old:
        with contextlib.suppress(CorruptionError):
            made = beside(parse_manifest(old, job.store.name(name)).segment.event_timestamp_ms)
            if made[1] == old:
                return made
    for time_ms in () if archived is None else reversed(job.times_ms):
        made = beside(time_ms)
        if archived is not None and archived.manifest.is_of(len(made[1]), hashlib.sha256(made[1]).hexdigest()):
            return made
    return None


def left_by_killed(
    job: UploadJob, plan: PartitionPlan, there: Mapping[str, int], segment: Segment, first: int, end: int
) -> Uploaded | None:
    """Return a fitting segment from this offset on that a killed run uploaded whole; None without one.

    `there` has what is in the folder of the partition in the archive, with sizes.
    """
    best = None
    for name in there:
        stem, _, suffix = name.partition(".")
        if suffix != "rsm-manifest" or not name.startswith(f"{first:020d}-"):
            continue
        key = f"{plan.folder}/{stem}"
        if there[name] > MANIFEST_LIMIT_BYTES:
            continue
        data = job.store.read(f"{key}.rsm-manifest")
        try:
            manifest = parse_manifest(data or b"", job.store.name(f"{key}.rsm-manifest"))
        except CorruptionError:
            continue
        of = manifest.segment
        if of.segment_id in plan.known_ids:  # the plan keeps it, or knows that the log has other bytes there now
            continue
        reached = of.end_offset + 1
        whole = max((at + size for at, size in manifest.indexes.values()), default=0)
        indexes = job.store.read(f"{key}.indexes") if there.get(f"{stem}.indexes") == whole else None
        is_whole = indexes is not None and len(indexes) == whole
        is_whole = is_whole and there.get(f"{stem}.log") == manifest.chunks.object_size
        is_same = of.leader_epochs == leaders_within(plan.lineage.epochs, first, reached) or not plan.lineage.epochs
        fits = reached <= end and is_whole and is_same and of.segment_id == stem[21:] and of.start_offset == first
        if segment.next_base == reached and segment.base_offset == first:
            fits = fits and manifest.chunks.file_size == segment.size
        elif plan.is_compacted or segment.base_offset in plan.joined:
            fits = fits and segment.next_base is None
        if fits and indexes is not None and data is not None and (best is None or reached > best.end_offset):
            best = ArchivedSegment(
                first,
                reached,
                manifest.chunks.file_size,
                of.segment_id,
                ArchivedFile(manifest.chunks.object_size, digest_begin_of(of.segment_id)),
                *(ArchivedFile(len(each), hashlib.sha256(each).hexdigest()) for each in (indexes, data)),
            )
    return None if best is None else Uploaded(best, best.end_offset, is_new=False)


class _Batches:
    """The batches of a range, as they are read: to the writer, into their index, and on to the producers there are."""

    def __init__(
        self,
        job: UploadJob,
        plan: PartitionPlan,
        segment: Segment,
        writer: UploadWriter,
        first: int,
        end: int,
        producers: Producers | None,
    ) -> None:
        self._job, self._segment, self._writer, self._producers = job, segment, writer, producers
        self._first, self._end, self.reached = first, end, first
        self._starts = np.array([entry.start_offset for entry in plan.lineage.epochs], np.int64)
        self._epochs = np.array([entry.epoch for entry in plan.lineage.epochs], np.int64)
        self.indexes = MadeIndexes(first)
        self._rooms = _TwoRooms()
        self.fault, self.max_timestamp = "", -1
        self.is_all = False  #: True if a batch follows that is not committed as a whole.
        self.hole: tuple[int, int] | None = None  #: The first offsets between batches that no batch has.

    def read(self, view: FileView, advance: Advance) -> None:
        """Read up to the end of the range, or to damage."""
        segment, first = self._segment, self._first
        start = position_of_offset(segment, view, first) if first > segment.base_offset else 0
        lowest = segment.base_offset if start == 0 else first
        for window in checked_windows(
            view, lowest, self._ends_at, start=start, is_last=segment.is_last, memory=self._rooms.free
        ):
            if not self._take(window, advance):
                break

    def _ends_at(self, gap: Gap) -> bool:
        """Check whether a gap ends the range; damage before its first batch does not belong to it."""
        is_before = self.reached == self._first and gap.next_offset is not None and gap.next_offset <= self._first
        if is_before and gap.is_damage:
            return False
        self.fault = f"{gap.path}, position {gap.position}: {gap.reason}" if gap.is_damage else ""
        return True

    def _take(self, window: Window, advance: Advance) -> bool:
        """Take the batches of a window that are in the range; return whether to go on."""
        rows = self._in_order(window.batches)
        begin = int(np.searchsorted(rows.last_offset, self._first))
        stop = begin + int(np.searchsorted(rows.last_offset[begin:], self._end))
        chosen = rows[begin:stop]
        if len(chosen):
            at = int(chosen.position[0]) - window.file_position
            size = int(chosen.position[-1] + chosen.size[-1]) - int(chosen.position[0])
            if self._producers is not None:
                replay(self._producers, chosen, window)
            self._writer.add(memoryview(window.buffer)[at : at + size])
            self._rooms.switch()
            self.indexes.add(chosen)
            self._note_holes(chosen)
            self.max_timestamp = max(self.max_timestamp, int(chosen.max_timestamp.max()))
            self.reached = int(chosen.last_offset[-1]) + 1
            if self._job.throttle is not None:
                self._job.throttle.spend(size)
            advance(size)
        if stop < len(rows):
            self.is_all = self.reached == int(rows.base_offset[stop]) < self._end
        return not self.fault and stop == len(rows) and self.reached < self._end

    def _note_holes(self, rows: BatchTable) -> None:
        expected = np.append(self.reached, rows.last_offset[:-1] + 1)
        at = np.flatnonzero(rows.base_offset > expected)
        if len(at) and self.hole is None:
            self.hole = int(expected[at[0]]), int(rows.base_offset[at[0]])

    def _in_order(self, rows: BatchTable) -> BatchTable:
        """Return the batches before the first one that cannot belong here: no checksum covers offsets and epochs."""
        bases, lasts = rows.base_offset, rows.last_offset
        wrong = np.append(False, bases[1:] <= lasts[:-1]) | ((bases < self.reached) & (lasts >= self._first))
        what = "does not follow the batches before it"
        if not wrong.any() and self._segment.next_base is not None:
            wrong, what = lasts >= self._segment.next_base, f"is not below {self._segment.next_base}, the next segment"
        if not wrong.any() and len(self._starts):
            at = np.searchsorted(self._starts, bases, side="right") - 1
            wrong = (at >= 0) & (rows.magic >= 2) & (rows.leader_epoch >= 0) & (rows.leader_epoch != self._epochs[at])
            # Above the range, others may have written what is not committed.
            wrong &= (bases >= self._first) & (lasts < self._end)
            what = "has another leader epoch than the log there"
        if not wrong.any():
            return rows
        row = int(np.flatnonzero(wrong)[0])
        self.fault = (
            f"{self._segment.path}, position {rows.position[row]}: a batch of offset {bases[row]} and leader epoch"
            f" {rows.leader_epoch[row]} {what}"
        )
        return rows[:row]


class _TwoRooms:
    """Memory for windows in turn: the writer may still hash the last one while the next is read, maybe twice."""

    def __init__(self) -> None:
        self._rooms, self._next = [bytearray(), bytearray()], 0

    def free(self, size: int) -> memoryview:
        """Return memory that the writer does not use."""
        if len(self._rooms[self._next]) < size:
            self._rooms[self._next] = bytearray(size)
        return memoryview(self._rooms[self._next])[:size]

    def switch(self) -> None:
        """Switch rooms: the writer took this window, and does not need the last one any more."""
        self._next = 1 - self._next


def _cut_txn_index(segment: Segment, first: int, end: int) -> bytes:
    """Return the transaction index of a range; none where it cannot be read: a restore makes it anew."""
    data = segment.hint(FileKind.TXN_INDEX)
    if not data:
        return b""
    try:
        return cut_transactions(data, segment.companions[FileKind.TXN_INDEX], first, end)
    except (CorruptionError, RequestError):
        return b""
