"""Counts of a segment by the headers of its batches alone: what needs no record."""

from __future__ import annotations

import numpy as np

from pylogseg.format.batches import BatchTable
from pylogseg.inspect.stats.segment import V2_HEADER_BYTES, CodecStats, Stats, add_headers, add_ranges, joined


def header_stats(stats: Stats, rows: BatchTable) -> None:
    """Add batches of magic 2 in the order of the file.

    Their records are those that the headers declare; sizes, keys and values stay empty, and so do the decompressed
    bytes of compressed batches. Ranges of missing offsets are those between batches; inside of a batch they are only
    counted.
    """
    if not len(rows):
        return
    add_headers(stats, rows)
    counts, summary = rows.count.astype(np.int64), rows.summary()
    total = int(counts.sum())
    if summary.has_control:
        control = rows.is_control
        held = int(counts[control].sum())
        stats.records, stats.control_records = stats.records - held, stats.control_records + held
        add_ranges(stats, stats.control, rows.base_offset[control], rows.next_offset[control])
    stats.records += total
    ends = rows.next_offset
    stats.left_out += int((ends - rows.base_offset).sum()) - total
    for number in np.unique(rows.codec).tolist() if summary.codec is None else (summary.codec,):
        some = rows if summary.codec is not None else rows[rows.codec == number]
        stored = int(some.size.sum(dtype=np.int64))
        body = stored - V2_HEADER_BYTES * len(some)
        records = total if some is rows else int(some.count.sum(dtype=np.int64))
        found = CodecStats(len(some), records, stored, body, 0 if number else body)
        stats.codecs.setdefault(number, CodecStats()).merge(found)
    latest = int(rows.max_timestamp.max(where=counts > 0, initial=-1))
    if latest >= 0:
        stats.largest_timestamp = joined(max, stats.largest_timestamp, latest)
    before = np.empty_like(ends)
    before[0], before[1:] = stats.end_offset if stats.end_offset >= 0 else rows.base_offset[0], ends[:-1]
    jumps = rows.base_offset > before
    if jumps.any():
        add_ranges(stats, stats.empty, before[jumps], rows.base_offset[jumps])
    if stats.first_offset < 0:
        stats.first_offset = int(rows.base_offset[0])
    stats.end_offset = max(stats.end_offset, int(ends.max()))
