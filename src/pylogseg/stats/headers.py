"""Counts of a segment by the headers of its batches alone: what needs no record."""

from __future__ import annotations

import numpy as np

from pylogseg.format.batches import BatchTable
from pylogseg.stats.segment import V2_HEADER_BYTES, CodecStats, Stats, add_headers, add_ranges, joined


def header_stats(stats: Stats, rows: BatchTable) -> None:
    """Add batches of magic 2 in the order of the file.

    Their records are those that the headers declare; sizes, keys and values stay empty, and so do the decompressed
    bytes of compressed batches. Ranges of missing offsets are those between batches; inside of a batch they are only
    counted.
    """
    if not len(rows):
        return
    add_headers(stats, rows)
    counts, control = rows.count.astype(np.int64), rows.is_control
    stats.records += int(counts[~control].sum())
    stats.control_records += int(counts[control].sum())
    stats.left_out += int((rows.last_offset - rows.base_offset + 1 - counts).sum())
    codec = rows.summary().codec
    for number in np.unique(rows.codec).tolist() if codec is None else (codec,):
        some = rows if codec is not None else rows[rows.codec == number]
        stored = int(some.size.sum(dtype=np.int64))
        body = stored - V2_HEADER_BYTES * len(some)
        found = CodecStats(len(some), int(some.count.sum(dtype=np.int64)), stored, body, 0 if number else body)
        stats.codecs.setdefault(number, CodecStats()).merge(found)
    known = rows.max_timestamp[(rows.max_timestamp >= 0) & (counts > 0)]
    if len(known):
        stats.largest_timestamp = joined(max, stats.largest_timestamp, int(known.max()))
    before = np.concatenate(
        ([stats.end_offset if stats.end_offset >= 0 else rows.base_offset[0]], rows.next_offset[:-1])
    )
    jumps = rows.base_offset > before
    add_ranges(stats, stats.empty, before[jumps], rows.base_offset[jumps])
    add_ranges(stats, stats.control, rows.base_offset[control], rows.next_offset[control])
    if stats.first_offset < 0:
        stats.first_offset = int(rows.base_offset[0])
    stats.end_offset = max(stats.end_offset, int(rows.last_offset.max()) + 1)
