"""Checks of tiered storage: objects against manifests, these against logs, and both against the broker's metadata."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from pylogseg.disk.disk import Disk, Partition, Segment, is_cluster
from pylogseg.disk.lineage.parts import LeftKind
from pylogseg.disk.tier.files import TierFiles
from pylogseg.disk.tier.joined import DiskWithTier
from pylogseg.disk.tier.slices import TierSegment
from pylogseg.disk.tier.tier import Tier
from pylogseg.disk.tier.uploads import AivenUpload, BrokenUpload, FileUpload, Upload
from pylogseg.errors import CorruptionError, RequestError, StorageError
from pylogseg.format.files.checkpoint import parse_leader_epochs
from pylogseg.format.names import FileKind, partition_folder_name
from pylogseg.inspect.verify.findings import TIER_LINKS, Finding, Level, of_error, of_failure
from pylogseg.inspect.verify.segment_report import SegmentReport
from pylogseg.reading.copies import LogCopies
from pylogseg.values.internal.cut_off import CutOff
from pylogseg.values.internal.notes import Notes
from pylogseg.values.internal.remote import STATES, TOPIC, remote_table
from pylogseg.walker.gaps import GapKind, offsets_text

#: Orphans that are listed one by one.
MAX_ORPHANS = 1000
#: Small files that each manifest of Aiven's plugin names.
_NAMED = (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.PRODUCER_SNAPSHOT, FileKind.LEADER_EPOCHS)


def tiers_of(partitions: Iterable[Partition]) -> list[Tier]:
    """Return the tiers that partitions lie in, each once."""
    tiers = [part.files.tier for part in partitions if isinstance(part.files, (TierFiles, DiskWithTier))]
    return list({id(tier): tier for tier in tiers if tier is not None}.values())


def slice_of(part: Partition, number: int) -> TierSegment | None:
    """Return the upload of a partition's segment; None if it lies on a disk."""
    files = part.files
    return files.slice_of(part.segments[number].path) if isinstance(files, (TierFiles, DiskWithTier)) else None


# ---- what can be done ----

_OTHERS = "take the object from a backup or an older version of the bucket"
_RESTORED = f"`pylogseg restore` takes these offsets from there; to mend the tier, {_OTHERS}"
_REBUILT = f"`pylogseg restore` makes it anew in what it restores; to mend the tier, {_OTHERS}"
_DAMAGED = (
    f"{_OTHERS}; `pylogseg restore` takes what another upload has of it, and with --on-corrupt skip leaves out the rest"
)
_ON_LEADER = "verify the disks of its brokers: another replica may be whole, and can become the leader"
#: Findings about files beside segments, which can be made of these.
_BESIDE = ("offset-index", "time-index", "time-index-end", "transaction-index", "missing-index", "snapshot",
           "leader-epoch")  # fmt: skip
_OF_BATCHES = (*(kind.value for kind in GapKind if kind.is_damage and kind is not GapKind.LOCKED), "header",
               "control", "inner-crc", "gap")  # fmt: skip


def as_uploaded(part: Partition, findings: Iterable[Finding], segment: Segment | None = None) -> Iterator[Finding]:
    """Yield findings with remedies for uploaded files: no broker's folder can be repaired.

    Where damage hides offsets of a segment, it reads the copies that other uploads or the disk have of them.
    """
    files = part.files
    if is_cluster(files):
        kept = (finding for finding in findings if finding.kind not in _BESIDE)
        yield from (finding._replace(other_remedy=_ON_LEADER) for finding in kept)
        return
    if not isinstance(files, (TierFiles, DiskWithTier)):
        yield from findings
        return
    copies = None
    if part.error is not None and isinstance(files, TierFiles):
        yield from (finding._replace(other_remedy="do what the reason says") for finding in findings)
        return
    for finding in findings:
        place = finding.path if segment is None else segment.path
        if isinstance(files, DiskWithTier) and not files.is_uploaded(place):
            yield finding
        elif finding.kind in _BESIDE:
            yield finding._replace(other_remedy=_REBUILT)
        elif finding.kind in _OF_BATCHES and finding.is_damage:
            uploaded = None if segment is None or finding.end_position is None else files.slice_of(segment.path)
            if uploaded is not None and segment is not None:
                copies = copies or LogCopies(part)
                last = finding.last_offset
                end = segment.next_base or uploaded.end_offset if last is None else last + 1
                finding = _name_holder(copies, finding, uploaded.upload.name, end)
            yield finding._replace(other_remedy=finding.other_remedy or _DAMAGED)
        else:
            yield finding


def _name_holder(copies: LogCopies, finding: Finding, name: str, end: int) -> Finding:
    """Return a finding with the name of another copy that has all of its offsets intact."""
    first = finding.offset
    if not copies.are_there or first is None or end <= first:
        return finding
    names, lost = copies.search_others(first, end, name)
    if lost or not names:
        return finding
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    reason = f"{finding.reason}; {names[0]}{more} {'have' if more else 'has'} {offsets_text(first, end)} whole"
    return finding._replace(reason=reason, other_remedy=_RESTORED)


# ---- manifests against logs ----


def check_uploads(part: Partition, reports: Sequence[SegmentReport], level: Level) -> Iterator[Finding]:
    """Compare the manifests of a partition's segments with the segments."""
    for number, report in enumerate(reports):
        uploaded = slice_of(part, number)
        if uploaded is None or isinstance(uploaded.upload, BrokenUpload):
            continue
        yield from _compare(uploaded, report)
        if level >= Level.INDEXES:
            yield from _epochs(uploaded, report)


def _compare(found: TierSegment, report: SegmentReport) -> Iterator[Finding]:
    said, name = found.upload.segment, found.upload.name
    if found.starts_whole and report.batches and not report.begins_damaged and report.first_offset > said.start_offset:
        reason = f"its manifest begins at offset {said.start_offset}, and its first batch at {report.first_offset}"
        yield Finding(name, "tier-manifest", True, reason, None, said.start_offset, report.first_offset - 1)
    if found.ends_whole and report.is_end_known and report.next_offset != said.end_offset + 1:
        last = report.next_offset - 1
        reason = f"its manifest ends at offset {said.end_offset}, and its last batch at {last}"
        yield Finding(name, "tier-manifest", True, reason, None, min(last, said.end_offset) + 1, None)
    whole = found.starts_whole and found.ends_whole and report.is_end_known and report.batches > 0
    whole &= not (report.is_damaged or report.is_sampled)
    if whole and said.max_timestamp_ms >= 0 and report.max_timestamp != said.max_timestamp_ms:
        reason = f"its manifest has the largest timestamp {said.max_timestamp_ms}, its batches {report.max_timestamp}"
        yield Finding(name, "tier-manifest", True, f"{reason}: lookups by time go wrong", None, said.start_offset)
    if whole and said.leader_epochs and report.epochs:
        written = [run.epoch for run in report.epochs]
        listed = [epoch for epoch, _ in said.leader_epochs]
        # A log that begins inside the segment no longer knows the epochs of what was deleted below.
        begins_inside = said.leader_epochs[0][1] > said.start_offset
        foreign = [e for e in written if e not in listed and not (begins_inside and e < listed[0])]
        if foreign:
            reason = f"its batches have leader epoch {foreign[0]}, and its manifest only {', '.join(map(str, listed))}"
            yield Finding(name, "tier-manifest", True, reason, None, said.start_offset)


def _epochs(found: TierSegment, report: SegmentReport) -> Iterator[Finding]:
    """Compare the leader epochs beside a segment with its manifest, and both with its batches."""
    upload, name = found.upload, found.upload.small_name(FileKind.LEADER_EPOCHS)
    if FileKind.LEADER_EPOCHS not in upload.small_files:
        if report.epochs:
            reason = f"no leader epoch is in it, and the batches of its segment have {report.epochs[0].epoch}"
            yield Finding(name, "leader-epoch", True, reason, None, upload.segment.start_offset)
        return
    try:
        beside = parse_leader_epochs(upload.read_small(FileKind.LEADER_EPOCHS), name)
    except CorruptionError as error:
        yield of_error("leader-epoch", error)
        return
    except StorageError as error:
        yield of_failure(error)
        return
    epochs_here = {entry.epoch for entry in beside}
    missing = [epoch for epoch, _ in upload.segment.leader_epochs if epoch not in epochs_here]
    if missing:
        reason = f"leader epoch {missing[0]} is in its manifest, and not in the leader epochs beside the segment"
        yield Finding(upload.name, "tier-manifest", True, reason, None, upload.segment.start_offset)
    for before, after in pairwise(beside):
        if after.epoch <= before.epoch or after.start_offset <= before.start_offset:
            reason = f"epoch {after.epoch} from offset {after.start_offset} on follows {before.epoch}"
            yield Finding(name, "leader-epoch", True, f"{reason} from {before.start_offset} on", None)
            return
    if report.is_damaged or report.is_sampled:
        return
    for what, where, epochs in (
        ("the leader epochs beside it", name, [(entry.epoch, entry.start_offset) for entry in beside]),
        ("its manifest", upload.name, list(upload.segment.leader_epochs)),
    ):
        wrong = _unlike(epochs, report, upload.segment.end_offset)
        if wrong is not None:
            kind = "leader-epoch" if where == name else "tier-manifest"
            reason = f"its batch at offset {wrong[0]} has leader epoch {wrong[1]}, and {what} {wrong[2]}"
            yield Finding(where, kind, True, reason, None, wrong[0])


def _unlike(epochs: list[tuple[int, int]], report: SegmentReport, last: int) -> tuple[int, int, str] | None:
    """Return an offset where a segment has another leader epoch than the list, with both epochs."""
    own = report.epochs
    for number, (epoch, first, _) in enumerate(own):
        end = own[number + 1].first_offset if number + 1 < len(own) else min(report.next_offset, last + 1)
        for offset in (first, end - 1):
            listed = max((entry for entry in epochs if entry[1] <= offset), key=lambda entry: entry[1], default=None)
            # What lies below the first one may have been deleted.
            if listed is not None and listed[0] != epoch:
                return offset, epoch, str(listed[0])
    return None


# ---- objects against manifests ----


def check_tier(tier: Tier, chosen: Mapping[str, Partition], not_checked: list[str]) -> Iterator[Finding]:
    """Check that the objects of partitions are there and as large as their manifests say; list objects without a
    segment.

    `chosen` are partitions by name; `not_checked` gets phrases on what was not looked at.
    """
    copies = 0
    for log in tier.logs:
        name = partition_folder_name(log.topic, log.partition)
        if name not in chosen:
            continue
        inside = {segment.upload.name for segment in log.segments[1:-1]}
        asked = None
        for upload in tier.by_partition.get((log.topic, log.partition, log.topic_id), []):
            for finding in _objects(upload):
                asked = asked or LogCopies(chosen[name])
                end = (finding.last_offset or 0) + 1
                yield finding if finding.other_remedy else _name_holder(asked, finding, upload.name, end)
            if isinstance(upload, FileUpload):
                yield from _files(upload, inside)
        for first, end in log.holes:
            reason = f"{name}: {offsets_text(first, end)} of the log are in no upload"
            yield Finding(tier.url, "tier-hole", True, reason, None, first, end - 1)
        for upload, left in log.left:
            copies += left.kind is LeftKind.COPY
            if left.kind is LeftKind.CLAIM:
                first, last = left.first_offset, left.end_offset - 1
                yield Finding(upload.name, "tier-manifest", True, left.reason, None, first, last)
            if left.kind is LeftKind.BRANCH:
                what = offsets_text(left.first_offset, left.end_offset)
                reason = f"{what} are not in the log: {left.reason}"
                yield Finding(upload.name, "tier-branch", False, reason, None, left.first_offset, left.end_offset - 1)
    orphans = tier.found.orphans
    for stored in orphans[:MAX_ORPHANS]:
        path = tier.name_of(stored)
        yield Finding(path, "tier-orphan", False, f"{stored.size:,} bytes without a manifest")
    if len(orphans) > MAX_ORPHANS:
        yield Finding(tier.url, "tier-orphan", False, f"and {len(orphans) - MAX_ORPHANS:,} more objects")
    if copies:
        not_checked.append(f"{copies:,} uploads, or parts of them, with offsets that others have too")
    if tier.found.others:
        not_checked.append(f"objects in the tier with names of another kind: {len(tier.found.others):,}")
    if tier.links:
        reason = f"links to folders in the tier: {len(tier.links):,}, which are not followed: {tier.links[0]}"
        yield Finding(tier.url, TIER_LINKS, False, reason)
    for (topic, topic_id), count in tier.older.items():
        not_checked.append(f"{count:,} uploads of an older topic, {topic}-{topic_id}")


def _objects(upload: Upload) -> Iterator[Finding]:
    if isinstance(upload, BrokenUpload):
        error = upload.error
        kind = "tier-manifest" if upload.has_manifest else "tier-object"
        yield of_error(kind, error) if isinstance(error, CorruptionError) else of_failure(error)
    if not isinstance(upload, AivenUpload):
        return
    start, last = upload.segment.start_offset, upload.segment.end_offset
    if upload.error is not None:
        yield Finding(upload.name, "tier-object", True, "the object is not there", None, start, last)
    elif upload.log.size != (expected := upload.manifest.chunks.object_size):
        reason = f"the object has {upload.log.size:,} bytes, and its manifest says {expected:,}"
        yield Finding(upload.name, "tier-object", True, reason, min(upload.log.size, expected), start, last)
    unnamed = [kind.value for kind in _NAMED if kind not in upload.manifest.indexes]
    if unnamed:
        reason = f"it does not say where {' and '.join(unnamed)} of its segment are"
        yield Finding(upload.manifest_name, "tier-manifest", True, reason, None, start, last)
    end = upload.indexes_size
    if upload.indexes is None:
        reason = "the object with its indexes, its producer snapshot and leader epochs is not there"
        yield Finding(upload.name, "tier-object", True, reason, None, start, last, other_remedy=_REBUILT)
    elif upload.indexes.size != end:
        path = upload.shared.objects.name(upload.indexes.path)
        reason = f"the object has {upload.indexes.size:,} bytes, and its manifest says {end:,}"
        place = min(upload.indexes.size, end), start, last
        yield Finding(path, "tier-object", upload.indexes.size < end, reason, *place, other_remedy=_REBUILT)


def _files(upload: FileUpload, inside: Collection[str]) -> Iterator[Finding]:
    """Look for files of an upload that are not there: a copy breaks off at a log's end, a deletion at its start.

    `inside` names the uploads between them.
    """
    segment = upload.segment
    for path in upload.missing:
        where = None, segment.start_offset, segment.end_offset
        if upload.name in inside:
            yield Finding(path, "tier-object", True, "the object is not there, or is damaged", *where)
        else:
            reason = "the object is not there, or not whole: a copy or a deletion broke off, or it is lost"
            yield Finding(path, "tier-unfinished", False, reason, *where)


# ---- against the metadata of the broker ----


def check_metadata(
    tier: Tier, metadata: Disk, chosen: Collection[str], asked: Callable[[str, int], bool], not_checked: list[str]
) -> Iterator[Finding]:
    """Compare a tier with `__remote_log_metadata`: each finished upload has to be there, unchanged.

    `chosen` are names of partitions, as in `check_tier`; of partitions that the tier does not have at all, those count
    that `asked` selects.
    """
    if not any(part.topic == TOPIC and not part.state for part in metadata.partitions):
        where = ", ".join(log_dir.path for log_dir in metadata.log_dirs) or "what was given"
        raise RequestError(f"{where}: no partition of {TOPIC} here to compare the tier with")
    notes = Notes()
    rows = remote_table(metadata, CutOff(), notes).to_pylist()
    for text in notes.damage:
        yield Finding(tier.url, "tier-metadata", True, text)
    not_checked += [text for text in notes if text not in notes.damage]
    there = {
        upload.segment.segment_id: upload
        for (topic, partition, _), uploads in tier.by_partition.items()
        for upload in uploads
        if partition_folder_name(topic, partition) in chosen
    }
    listed = {partition_folder_name(topic, partition) for topic, partition, _ in tier.by_partition}
    said = {row["segmentId"] for row in rows}
    rows_of = {(row["topicId"], row["partition"]) for row in rows}
    finished: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for row in rows:
        if row["state"] == STATES[1]:
            finished.setdefault((row["topicId"], row["partition"]), []).append((row["startOffset"], row["endOffset"]))
    for row in rows:
        name = partition_folder_name(row["topic"], row["partition"])
        if name in chosen or (name not in listed and asked(row["topic"], row["partition"])):
            yield from _row(tier, row, there.get(row["segmentId"]), finished)
    silent = set()
    for segment_id, upload in there.items():
        segment = upload.segment
        if segment_id in said:
            continue
        if (segment.topic_id, segment.partition) not in rows_of:
            silent.add(f"{segment.topic}-{segment.partition}")
            continue
        reason = "the metadata does not know it: its deletion did not finish, or the metadata given is older"
        yield Finding(upload.name, "tier-orphan", False, reason, None, segment.start_offset, segment.end_offset)
    if silent:
        not_checked.append(f"{len(silent):,} partitions that the metadata given says nothing of, such as {min(silent)}")


def _row(
    tier: Tier, row: dict[str, Any], upload: Upload | None, others: dict[tuple[str, int], list[tuple[int, int]]]
) -> Iterator[Finding]:
    name = f"{row['topic']}-{row['partition']}"
    what = f"{name}: segment {row['segmentId']}"
    first, last = row["startOffset"], row["endOffset"]
    finished = row["state"] == STATES[1]
    if upload is None:
        if finished:
            reason = f"{what} was uploaded at {row['eventTime']}, and is not there"
            yield Finding(tier.url, "tier-missing", True, reason, None, first, last)
        elif row["state"] == STATES[0]:
            reason = f"{what}: its upload began at {row['eventTime']}, and never finished"
            ranges = others.get((row["topicId"], row["partition"]), [])
            again = any(start <= first and last <= end for start, end in ranges)
            reason += ", but a later one did" if again else f"; no other has offsets {first} to {last}"
            yield Finding(tier.url, "tier-unfinished", False, reason, None, first, last)
        return
    if finished and not isinstance(upload, AivenUpload):
        for path in upload.missing:
            reason = f"{what} was uploaded at {row['eventTime']}, and this object is not there, or is damaged"
            yield Finding(path, "tier-missing", True, reason, None, first, last)
    if not finished and not upload.missing:
        reason = f"{what} is complete, and its state is {row['state']} since {row['eventTime']}"
        yield Finding(upload.name, "tier-state", False, reason, None, first, last)
    if isinstance(upload, BrokenUpload):
        return
    segment = upload.segment
    pairs = [
        ("start offset", first, segment.start_offset),
        ("end offset", last, segment.end_offset),
        ("size", row["size"], upload.size),
        ("leader epochs", {e["leaderEpoch"]: e["offset"] for e in row["leaderEpochs"]}, dict(segment.leader_epochs)),
    ]
    for field, expected, actual in pairs:
        if expected != actual:
            reason = f"{what}: the metadata has {field} {expected}, the tier {actual}"
            yield Finding(upload.name, "tier-metadata", True, reason, None, first, last)
