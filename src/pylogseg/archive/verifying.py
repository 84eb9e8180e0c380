"""Check an archive: each object that a point needs is there with the right size and, if it is read, with the right
hash.

A run notes the objects that it read (`read_notes`): a later one may read only new ones, and reports damage again.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from pylogseg.archive.at_point import archive_url
from pylogseg.archive.needs import NeededObject, Needs, read_needs
from pylogseg.archive.newest import known_points
from pylogseg.archive.read_notes import (
    VERIFIED,
    damaged_objects,
    forget_damage,
    note_damage,
    note_points_read,
    read_damage,
    read_times,
)
from pylogseg.disk.choice import ALL, PartitionChoice
from pylogseg.disk.disk import Partition, Segment, uploaded_end
from pylogseg.disk.folders import not_here
from pylogseg.disk.listing import open_folder
from pylogseg.disk.notes import note_lines
from pylogseg.disk.stores import ObjectStore
from pylogseg.disk.tier.at_point import PointFiles, files_among, lacks_of, list_stored
from pylogseg.disk.tier.keys import KEYS_OPTION, KeyRing
from pylogseg.disk.tier.point import MARK, POINTS, SUFFIXES, ArchivedPartition, Point, PointName
from pylogseg.disk.tier.points import archive_store, mark_text, read_mark, read_point
from pylogseg.disk.tier.read_once import ReadOnce, difference
from pylogseg.disk.tier.uploads import Objects, Shared, Stored
from pylogseg.env.executor import INLINE, Advance, Executor, Workload
from pylogseg.errors import CorruptionError, PylogsegError, RequestError, StorageError
from pylogseg.format.moments import iso_text
from pylogseg.format.records import DECOMPRESSED_LIMIT_BYTES
from pylogseg.format.words import count_text, size_text
from pylogseg.inspect.verify.disk import CHECKED, VerifySummary
from pylogseg.inspect.verify.findings import Finding, Level, of_error, of_failure
from pylogseg.inspect.verify.segment import verify_segment
from pylogseg.inspect.verify.segment_report import SegmentReport
from pylogseg.inspect.verify.tiers import as_uploaded

#: What is read of the objects: none, those that no run has read, or all.
ReadObjects = Literal["none", "new", "all"]


@dataclass
class ArchiveSummary(VerifySummary):
    """Counts of the checks of an archive: the objects read by this run, and by earlier runs."""

    points: int = 0
    objects: int = 0  #: That points need, each once.
    object_bytes: int = 0
    objects_read: int = 0
    bytes_read: int = 0
    objects_read_before: int = 0
    read_since_ms: int = -1  #: When the first of these was read; -1 without any.

    def lines(self) -> Iterator[str]:
        """Yield lines about the checks, the objects read now and before, the omitted checks, then the sums."""
        yield "checked: points, and the presence and size of each object that they need"
        if self.objects_read:
            counts = (self.segments, "segment", ""), (self.batches, "batch", "batches"), (self.records, "record", "")
            yield f"read: {count_text(self.objects_read, 'object')} of {size_text(self.bytes_read)}, with their SHA-256"
            contents = ", ".join(count_text(*count) for count in counts)
            yield f"in them: {contents}; {CHECKED[self.level].partition(';')[0]}"
        if self.objects_read_before:
            since = iso_text(self.read_since_ms)
            yield f"read before: {count_text(self.objects_read_before, 'object')}, all since {since}"
        yield from (f"not checked: {text}" for text in self.not_checked)
        texts = [
            count_text(self.points, "point"),
            count_text(self.partitions, "partition"),
            count_text(self.objects, "object"),
            size_text(self.object_bytes),
        ]
        yield f"{self.words}: {', '.join(texts)}"


class _Item(NamedTuple):
    """Objects to read together: the objects of a segment, or one file."""

    segment: Segment | None
    objects: ReadOnce
    keys: tuple[str, ...]  #: Their names in the archive.
    files: tuple[tuple[Stored, str], ...]  #: With the SHA-256 that they should have.
    manifests: tuple[tuple[Stored, str, str], ...]  #: And with what those have that were read already.

    @property
    def size(self) -> int:
        return sum(stored.size for stored, _ in self.files)


class _ItemReport(NamedTuple):
    report: SegmentReport | None
    findings: list[Finding]
    bytes_read: int


class _Archive(NamedTuple):
    """An archive, with the objects that its points need."""

    url: str
    store: ObjectStore
    needs: Needs
    newest: Point | None  #: None if the newest one that is there cannot be read.
    damaged: set[str]  #: The objects in which earlier runs found damage.
    has_all_points: bool  #: False if one is gone, or it or a list of it cannot be read.


def is_archive_at(path: str, storage_options: Mapping[str, Any] | None = None) -> bool:
    """Check whether a folder or the URL of a tier is an archive: it has points, or a run noted that it had some."""
    try:
        store = archive_store(path, storage_options)
        points = known_points(store)
        return bool(points.names or points.damage(store) or store.list(MARK))
    except RequestError:
        return False


def verify_archive(
    archive: str,
    summary: ArchiveSummary,
    *,
    read: ReadObjects = "none",
    choice: PartitionChoice = ALL,
    executor: Executor = INLINE,
    limit_bytes: int = DECOMPRESSED_LIMIT_BYTES,
    storage_options: Mapping[str, Any] | None = None,
    on_bytes: Callable[[int], None] | None = None,
    on_size: Callable[[int], None] = lambda size: None,
) -> Iterator[Finding]:
    """Yield findings about an archive: first from its points and the list of its objects, then from reading objects.

    `summary` is complete after the last one; `on_size` gets the bytes that are to be read. RequestError if there is no
    point.
    """
    found, damage = _open_archive(archive, choice, storage_options)
    needs = found.needs
    summary.points, summary.partitions = len(needs.heads), len(_chosen(found.newest, choice))
    summary.objects = len(needs.objects)
    summary.object_bytes = sum(each.archived.size for each in needs.objects.values())
    yield from summary.count_all([*_of_mark(found), *damage])
    if unsealed := [each.id for each in needs.heads if not each.is_sealed]:
        text = f"whether {count_text(len(unsealed), 'point')} of an older version, such as {unsealed[0]}, "
        summary.not_checked.append(f"{text}{'was' if len(unsealed) == 1 else 'were'} changed: no checksum of its own")
    if found.newest is not None:
        summary.not_checked += _lacks(found.newest, choice)
    there = found.store.list()
    good = {}
    for key, needed in sorted(needs.objects.items()):
        finding = _of_listing(found, key, needed, None if key not in there else there[key].size)
        if finding is None:
            good[key] = needed
        else:
            yield from summary.count_all([finding])
    _note_others(found, there, choice, summary)
    before = {key: each.use.read_ms for key, each in good.items() if each.use.read_ms >= 0 and read != "all"}
    before = {key: read_ms for key, read_ms in before.items() if key not in found.damaged}
    keys = set[str]() if read == "none" else good.keys() - before.keys()
    yield from summary.count_all(_damage_before(found, sorted(found.damaged & good.keys() - keys)))
    summary.objects_read_before = len(before)
    summary.read_since_ms = min(before.values(), default=-1)
    if read == "none":
        unread = len(good.keys() - before.keys() - found.damaged)
        summary.not_checked.append(
            f"the bytes of the objects now (--read-all); {unread:,} were never read (--read-new)"
        )
        return
    is_whole = choice.is_all and good.keys() == needs.objects.keys() and not (needs.errors or needs.conflicts)
    notes = _ReadNotes(found, summary, good)
    yield from _read(found, keys, summary, notes, choice, executor, limit_bytes, on_bytes, on_size, storage_options)
    if is_whole and summary.objects_read and not notes.is_partial:
        notes.note_points()


def _damage_before(found: _Archive, keys: Sequence[str]) -> Iterator[Finding]:
    """Yield the damage that earlier runs found in objects that this run does not read."""
    for key in keys:
        noted = read_damage(found.store, key)
        reason = (
            f"a run that read it at {noted.time} found damage: {noted.reason}; it counts until a run reads it again "
            "without damage (--read-new)"
        )
        yield Finding(found.store.name(key), "archive-object", True, reason)


def _open_archive(
    archive: str, choice: PartitionChoice, storage_options: Mapping[str, Any] | None
) -> tuple[_Archive, list[Finding]]:
    """Read the points of an archive; return the findings about them."""
    store = archive_store(archive, storage_options)
    points = known_points(store)
    if not points.names and not points.damage(store):
        raise RequestError(f"{store.name(POINTS)}: no point of an archive is here: `pylogseg archive` writes the first")
    needs, newest = read_needs(store, points.names, choice, read_times(store)), None
    kind = "archive-point" if points.fault is None else "archive-note"
    damage = [of_error(kind, error) for error in points.damage(store)]
    damage += [_of_point(each) for each in (*needs.errors, *needs.conflicts)]
    if needs.heads:
        try:
            newest = read_point(store, needs.heads[-1].name)
        except (CorruptionError, StorageError) as error:
            damage += [] if needs.errors else [_of_point(error)]
    found = _Archive(archive_url(archive), store, needs, newest, damaged_objects(store), not damage)
    if not damage:
        _check_choice(found, choice)
    return found, damage


def _of_point(error: PylogsegError) -> Finding:
    return of_error("archive-point", error) if isinstance(error, CorruptionError) else of_failure(error)  # type: ignore[arg-type]


def _check_choice(found: _Archive, choice: PartitionChoice) -> None:
    """Raise RequestError for a name or number that selects nothing in any point: nothing would be looked at."""
    there = found.needs.places
    for name in choice.names:
        if not any(PartitionChoice((name,)).takes(*each) for each in there):
            raise not_here(name, sorted(f"{topic}-{number}" for topic, number in there), f"in {found.url}")
    choice.check_numbers(number for topic, number in there if choice.takes(topic, number))


def _lacks(point: Point, choice: PartitionChoice) -> Iterator[str]:
    """Yield the records that the newest point lacks by its own account: that is no damage of the archive."""
    texts = note_lines(lacks_of(point, choice.takes))
    if texts:
        more = f"; and {len(texts) - 1:,} more" if len(texts) > 1 else ""
        yield f"gaps that point {point.id} records: {texts[0]}{more} (pylogseg archive show)"


def _of_mark(found: _Archive) -> Iterator[Finding]:
    """Check the cluster id in `archive.json`: an archive has the points of one cluster."""
    ids = sorted({point.cluster_id for point in found.needs.heads if point.cluster_id})
    needed = f"without it no run of `pylogseg archive` goes on: it should be {mark_text(ids[0] if ids else '')}"
    try:
        of = read_mark(found.store)
    except CorruptionError as error:
        yield of_error("archive-mark", error)
    except StorageError as error:
        yield of_failure(error)
    else:
        if of is None:
            yield Finding(found.store.name(MARK), "archive-mark", True, f"the object is not there, and {needed}")
        elif any(each != (of or ids[0]) for each in ids):
            reason = f"it says {f'cluster {of}' if of else 'no cluster'}, and points here are of {' and '.join(ids)}"
            yield Finding(found.store.name(MARK), "archive-mark", True, reason)


def _chosen(point: Point | None, choice: PartitionChoice) -> list[ArchivedPartition]:
    return [each for each in point.partitions if choice.takes(each.topic, each.partition)] if point else []


def _of_listing(found: _Archive, key: str, needed: NeededObject, size: int | None) -> Finding | None:
    path, use = found.store.name(key), needed.use
    text = f"point {use.newest.id} needs it"
    if use.points > 1:
        text = f"{use.points:,} points need it, the last is {use.newest.id}"
    if size is None:
        return Finding(path, "archive-object", True, f"the object is not there, and {text}")
    if size != needed.archived.size:
        reason = f"the object has {size:,} bytes, and had {needed.archived.size:,} when it was archived; {text}"
        return Finding(path, "archive-object", True, reason, min(size, needed.archived.size))
    return None


def _note_others(found: _Archive, there: Mapping[str, Any], choice: PartitionChoice, summary: ArchiveSummary) -> None:
    if not choice.is_all:
        summary.not_checked.append("partitions that were not asked for")
        return
    ours = (MARK, f"{POINTS}/", f"{VERIFIED}/", "_pylogseg")  # the last is the lock of who writes
    needed = found.needs.objects.keys() | found.needs.lists
    others = [each.size for key, each in there.items() if key not in needed and not key.startswith(ours)]
    if others:
        text = f"objects that no point needs: {len(others):,} of {sum(others):,} bytes"
        reason = "a run may be writing them, or `pylogseg archive prune` removes them"
        if not found.has_all_points:
            reason = "keep them: a point that is gone, or that nobody can read, may need them"
        summary.not_checked.append(f"{text}; {reason}")


# ---- reading ----


def _read(
    found: _Archive,
    keys: set[str],
    summary: ArchiveSummary,
    notes: _ReadNotes,
    choice: PartitionChoice,
    executor: Executor,
    limit_bytes: int,
    on_bytes: Callable[[int], None] | None,
    on_size: Callable[[int], None],
    storage_options: Mapping[str, Any] | None,
) -> Iterator[Finding]:
    """Read objects, from the newest point to the oldest, each once."""
    told, by_point = set[Finding](), dict[PointName, set[str]]()
    needed = found.needs.objects
    on_size(sum(needed[key].archived.size for key in keys))
    options = dict(storage_options or {})
    keys_given = options.pop(KEYS_OPTION, None)
    objects = ReadOnce(found.url.removeprefix("aiven+"), options)
    shared = Shared(objects, KeyRing(keys_given))
    there = list_stored(objects) if keys else {}
    for key in keys:
        by_point.setdefault(needed[key].use.newest, set()).add(key)
    for name, mine in sorted(by_point.items(), key=lambda each: (each[0].time_ms, each[0].id), reverse=True):
        try:
            point = read_point(found.store, name)
        except (CorruptionError, StorageError) as error:
            notes.is_partial = True
            yield from summary.count_all([_of_point(error)])
            continue
        stems = {key.removesuffix(suffix) for key in mine for suffix in SUFFIXES if key.endswith(suffix)}
        # Of a segment of which an object is read, all are known that are there.
        known = {stem + suffix for stem in stems for suffix in SUFFIXES}
        files = files_among(found.url, point, shared, there, known)
        items = list(_items(found, point, files, objects, mine, choice))
        load = Workload("pylogseg verify", [item.size for _, item in items], on_bytes)
        check = functools.partial(_check, level=summary.level, limit_bytes=limit_bytes)
        results = executor.map(check, [item for _, item in items], load)
        for (part, item), result in zip(items, results, strict=True):
            summary.objects_read += len(item.files) + len(item.manifests)
            summary.bytes_read += result.bytes_read + sum(stored.size for stored, *_ in item.manifests)
            findings = list(summary.count_all(_findings(part, item, result, summary)))
            notes.take(item, findings)
            for finding in findings:
                if finding not in told:
                    told.add(finding)
                    yield finding


def _items(
    found: _Archive, point: Point, files: PointFiles, objects: ReadOnce, mine: set[str], choice: PartitionChoice
) -> Iterator[tuple[Partition | None, _Item]]:
    parts = {part.name: part for part in open_folder(files, files.url).partitions}
    for partition in _chosen(point, choice):
        part = parts.get(partition.name)
        segments = {} if part is None else {each.base_offset: each for each in part.segments}
        groups = [
            (segments.get(archived.base_offset), [partition.stem(archived) + suffix for suffix in SUFFIXES])
            for archived in partition.segments
        ]
        groups += [(None, [partition.file_key(name)]) for name in partition.files]
        for segment, keys in groups:
            keys = [key for key in keys if key in mine]
            stored = [(files.get_stored(key), found.needs.objects[key].archived.sha256) for key in keys]
            if stored:
                read = [each for each in stored if each[0].path in objects.manifests]
                manifests = tuple((*each, objects.manifests[each[0].path]) for each in read)
                others = tuple(each for each in stored if each not in read)
                yield part, _Item(segment, objects, tuple(keys), others, manifests)


def _check(item: _Item, advance: Advance, level: Any, limit_bytes: int) -> _ItemReport:
    """Read and check the objects of an item; runs in a thread, or in a task of Spark."""
    findings, done, report = [], 0, None
    with item.objects.sum_objects([stored for stored, _ in item.files], advance):
        if item.segment is not None:
            report = verify_segment(item.segment, level, limit_bytes=limit_bytes)
        for stored, sha256 in item.files:
            try:
                found = item.objects.sha256(stored)
            except StorageError as error:
                findings.append(of_failure(error))
                continue
            done += stored.size
            findings += _of_digest(item.objects, stored, sha256, found)
    for each in item.manifests:
        findings += _of_digest(item.objects, *each)
    return _ItemReport(report, findings, done)


def _of_digest(objects: Objects, stored: Stored, sha256: str, found: str) -> list[Finding]:
    reason = difference(found, sha256)
    return [Finding(objects.name(stored.path), "archive-object", True, reason)] if reason else []


def _findings(part: Partition | None, item: _Item, result: _ItemReport, summary: ArchiveSummary) -> Iterator[Finding]:
    yield from result.findings
    if result.report is None or item.segment is None or part is None:
        return
    summary.add_segment(result.report)
    yield from as_uploaded(part, result.report.findings, item.segment)
    yield from _beyond(item, result.report)


def _beyond(item: _Item, report: SegmentReport) -> Iterator[Finding]:
    """Compare the offsets of batches with the point's; a cleaned segment may have fewer."""
    segment = item.segment
    end = None if segment is None else uploaded_end(segment.files, segment.path)
    if segment is None or end is None or not report.batches:
        return
    if report.first_offset < segment.base_offset or report.next_offset > end:
        reason = (
            f"its batches have offsets {report.first_offset} to {report.next_offset - 1}, and the point says that they "
            f"are {segment.base_offset} to {end - 1}"
        )
        path = item.objects.name(item.files[0][0].path) if item.files else segment.path
        yield Finding(path, "archive-point", True, reason, None, segment.base_offset)


# ---- what later runs know of it ----


class _ReadNotes:
    """Notes of a run in the archive about the objects that it reads, at once: somebody may kill it."""

    def __init__(self, found: _Archive, summary: ArchiveSummary, good: Collection[str]) -> None:
        self._found, self._summary = found, summary
        self._lacking = {_stem(key) for key in found.needs.objects if key not in good}
        self.is_partial = False  #: True if some of it was not looked at, or it is not known whether it is damage.

    def take(self, item: _Item, findings: Sequence[Finding]) -> None:
        """Note the damaged objects of an item, and forget the damage of good ones."""
        levels, reasons = {finding.level for finding in findings}, dict[str, str]()
        damage = [finding for finding in findings if finding.is_damage]
        # An object that is gone, cut or another one is to blame for what is wrong with the others of its segment.
        rotten = [finding for finding in damage if finding.kind == "archive-object"]
        if rotten or self._lacking.isdisjoint(map(_stem, item.keys)):
            for finding in rotten or damage:
                named = [key for key in item.keys if finding.path.endswith(f"/{key}")] or item.keys
                reasons.update({key: finding.reason for key in named if key not in reasons})
        for key, reason in reasons.items():
            self._write(key, note_damage, key, reason)
        if not levels.isdisjoint(("unread", "unknown")):
            self.is_partial = True
        elif "damage" not in levels and self._summary.level is Level.INDEXES:  # a lower one may not see it
            for key in self._found.damaged.intersection(item.keys):
                self._write(key, forget_damage, key)

    def note_points(self) -> None:
        summary = self._summary
        read_ms = summary.read_since_ms if summary.read_since_ms >= 0 else time.time_ns() // 1_000_000
        self._write("all of it", note_points_read, read_ms, [head.id for head in self._found.needs.heads])

    def _write(self, subject: str, note: Callable[..., None], *content: Any) -> None:
        try:
            note(self._found.store, *content)
        except (PylogsegError, OSError) as error:
            text = f"{subject}: that it was read could not be noted in the archive: {error}"
            self._summary.not_checked.append(text)


def _stem(key: str) -> str:
    """Return the name that the objects of a segment have in common."""
    return key.rpartition(".")[0] if key.endswith(SUFFIXES) else key
