"""What manifests claim, where one contradicts the next: then the segment itself is asked.

A manifest with a false end offset would take offsets from the uploads behind it, and one with a false leader epoch
would make another branch of them. Where the uploads of a log follow each other, nothing is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from pylogseg.disk.lineage.parts import LeftKind, LeftOut
from pylogseg.disk.tier.layouts import MANIFEST_THREADS, end_offset_of, leaders_within, proved_end_of
from pylogseg.disk.tier.manifest import UploadedSegment
from pylogseg.disk.tier.uploads import AivenUpload, FileUpload, Upload
from pylogseg.errors import PylogsegError
from pylogseg.format.files.checkpoint import parse_leader_epochs
from pylogseg.format.names import FileKind


def settled(uploads: Sequence[Upload]) -> tuple[list[Upload], list[LeftOut]]:
    """Return uploads, in the order of their offsets, with what their segments have, and what was only claimed."""
    found: list[Upload] = list(uploads)
    claims: list[LeftOut] = []
    doubtful = sorted(_doubtful([upload.segment for upload in uploads]))
    if not doubtful:
        return found, claims
    with ThreadPoolExecutor(min(MANIFEST_THREADS, len(doubtful)), thread_name_prefix="pylogseg-tier") as pool:
        for number, segment in zip(doubtful, pool.map(lambda i: _asked(uploads[i]), doubtful), strict=True):
            upload, said = uploads[number], uploads[number].segment
            if segment is None:
                continue
            if isinstance(upload, FileUpload):
                found[number] = replace(upload, segment=segment)
                reason = (
                    f"a batch in it ends at offset {said.end_offset}, and by the others it ends at {segment.end_offset}"
                )
                claims.append(LeftOut(number, segment.end_offset + 1, said.end_offset + 1, LeftKind.CLAIM, reason))
            if not isinstance(upload, AivenUpload):
                continue
            found[number] = replace(upload, manifest=replace(upload.manifest, segment=segment))
            if segment.end_offset < said.end_offset:
                reason = f"its manifest ends at offset {said.end_offset}, and its last batch at {segment.end_offset}"
                claims.append(LeftOut(number, segment.end_offset + 1, said.end_offset + 1, LeftKind.CLAIM, reason))
            foreign = _foreign(said, segment)
            if foreign:
                reason = (
                    f"its manifest has leader epoch {foreign[0]}, and the leader epochs beside the segment have not"
                )
                claims.append(LeftOut(number, said.start_offset, segment.end_offset + 1, LeftKind.CLAIM, reason))
    return found, claims


def _doubtful(segments: Sequence[UploadedSegment]) -> Iterator[int]:
    """Yield those that have offsets of the next one, or a later leader epoch than it."""
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


def _asked(upload: Upload) -> UploadedSegment | None:
    """Return what a segment has, if its manifest claims more; None also if that cannot be told."""
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
