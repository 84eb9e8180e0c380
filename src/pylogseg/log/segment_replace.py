"""Replacing segments, so that a crash at any moment leaves the old ones or the new ones.

The new ones are written with the suffix `.cleaned` and flushed. Renaming them to `.swap`, the highest first,
is the point of no return: a load that finds `.swap` files and no `.cleaned` one below them completes the work. Then the
old ones are renamed to `.deleted`, and the new ones get their names. The folder is synced between these steps, which a
broker leaves to the file system's journal.
"""

from __future__ import annotations

from collections.abc import Sequence

from pylogseg.env.storage import Storage
from pylogseg.errors import CorruptionError
from pylogseg.format.names import FileKind, segment_file_name
from pylogseg.log.batch_headers import batch_facts
from pylogseg.log.segment import INDEX_KINDS, LogSegment, SegmentOwner
from pylogseg.log.segment_removal import Remover
from pylogseg.log.segments import Segments

CLEANED, SWAP = ".cleaned", ".swap"


def new_cleaned_segment(owner: SegmentOwner, base_offset: int) -> LogSegment:
    """Create an empty segment with the suffix `.cleaned`; remove leftovers of that name first."""
    for kind in (*INDEX_KINDS, FileKind.LOG):
        owner.storage.remove(owner.storage.join(owner.folder, segment_file_name(base_offset, kind) + CLEANED))
    return LogSegment(owner, base_offset, preallocate_bytes=owner.config.preallocate_bytes, suffix=CLEANED)


def replace_segments(
    storage: Storage,
    folder: str,
    segments: Segments,
    new: Sequence[LogSegment],
    old: Sequence[LogSegment],
    remover: Remover,
) -> list[LogSegment]:
    """Swap segments in; return the removed ones whose base offset no new segment has."""
    new = sorted(new, key=lambda segment: segment.base_offset)
    old = sorted((s for s in old if s.base_offset in segments), key=lambda segment: segment.base_offset)
    storage.sync_folder(folder)
    for segment in reversed(new):
        if segment is new[0] and len(new) > 1:
            storage.sync_folder(folder)
        segment.change_suffix(SWAP)
        segments.add(segment)
    storage.sync_folder(folder)
    bases = {segment.base_offset for segment in new}
    for segment in old:
        if segment.base_offset != new[0].base_offset:
            segments.remove(segment.base_offset)
        remover.remove_segments([segment])
    # Once a new segment has its final name, a load cannot tell which old ones it replaces.
    storage.sync_folder(folder)
    for segment in new:
        if segment.base_offset not in segments:  # an old one with its base offset was removed after it was added
            segments.add(segment)
        segment.change_suffix("")
    storage.sync_folder(folder)
    return [segment for segment in old if segment.base_offset not in bases]


def split_segment(owner: SegmentOwner, segment: LogSegment, segments: Segments, remover: Remover) -> list[LogSegment]:
    """Split a segment with offsets that do not fit into its indexes; return the result of `replace_segments`."""
    new: list[LogSegment] = []
    try:
        position = 0
        while position < segment.size:
            if next(segment.windows(position, recovering=True), None) is None:
                raise CorruptionError(
                    segment.path, position, "no batch is readable here, so the segment cannot be split"
                )
            place = segment.place_at(position)
            part = new_cleaned_segment(owner, place.offset)
            new.append(part)
            copied = copy_batches(segment, position, part)
            if not copied:
                raise CorruptionError(segment.path, position, "offsets of one batch are too far apart for a segment")
            position += copied
        for part in new:
            part.become_inactive()
            part.flush()
            part.set_modified_ms(segment.modified_ms())
        return replace_segments(owner.storage, owner.folder, segments, new, [segment], remover)
    except BaseException:
        for part in new:
            if part.suffix == CLEANED:
                part.delete()
        raise


def copy_batches(source: LogSegment, start: int, target: LogSegment) -> int:
    """Copy batches from a position on, up to the first offset that does not fit; return the bytes copied."""
    done = start
    for window in source.windows(start):
        rows = window.batches
        fits = [target.offset_index.can_hold(offset) for offset in rows.last_offset.tolist()]
        count = fits.index(False) if False in fits else len(fits)
        # As in Kafka, steps of less than a megabyte: where they end decides where index entries lie.
        row = 0
        while row < count:
            end, size = row, 0
            while end < count and (size == 0 or size + int(rows.size[end]) < 1 << 20):
                size += int(rows.size[end])
                end += 1
            part = rows[row:end]
            position = int(part.position[0])
            at = position - window.file_position
            target.append(int(part.last_offset[-1]), window.buffer[at : at + size], batch_facts(part))
            done, row = position + size, end
        if count < len(fits):
            break
    return done - start
