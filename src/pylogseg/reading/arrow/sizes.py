"""Arrow record batches of about even size, in rows and in bytes."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

import pyarrow as pa

#: The most bytes of a batch, if nobody says another number.
BATCH_BYTES = 64 << 20
#: A batch of this part of the most bytes is large enough: to merge it with others copies it, and holds it twice.
_ENOUGH = 4


def of_even_size(batches: Iterable[pa.RecordBatch], rows: int, size_bytes: int) -> Iterator[pa.RecordBatch]:
    """Merge small batches and split large ones, to about so many rows: each batch costs a message.

    None has twice as many rows, or more than `size_bytes`, but for a row that is larger by itself.
    """
    waiting: list[pa.RecordBatch] = []
    count = held = 0

    def is_large(rows_of_it: int, bytes_of_it: int) -> bool:
        return rows_of_it >= rows or _ENOUGH * bytes_of_it >= size_bytes

    for batch in batches:
        for part in _cut_evenly(batch, rows, size_bytes):
            size = part.nbytes
            alone = is_large(part.num_rows, size)
            if not alone:
                waiting.append(part)
                count, held = count + part.num_rows, held + size
            if alone or is_large(count, held):
                yield from _merge_waiting(waiting)
                waiting, count, held = [], 0, 0
            if alone:
                yield part
    yield from _merge_waiting(waiting)


def _cut_evenly(batch: pa.RecordBatch, rows: int, size_bytes: int) -> Iterator[pa.RecordBatch]:
    parts = max(batch.num_rows // rows, 1)
    bounds = [batch.num_rows * i // parts for i in range(parts + 1)]
    for first, end in itertools.pairwise(bounds):
        yield from no_larger(batch.slice(first, end - first), size_bytes)


def no_larger(batch: pa.RecordBatch, size_bytes: int) -> Iterator[pa.RecordBatch]:
    """Yield a batch in parts of at most so many bytes; a row that is larger is a part by itself."""
    if batch.num_rows < 2 or batch.nbytes <= size_bytes:
        yield batch
        return
    half = batch.num_rows // 2
    yield from no_larger(batch.slice(0, half), size_bytes)
    yield from no_larger(batch.slice(half), size_bytes)


def _merge_waiting(waiting: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    if len(waiting) < 2:
        return waiting
    merged: list[pa.RecordBatch] = pa.Table.from_batches(waiting).combine_chunks().to_batches()
    return merged
