"""Record columns: the records of many batches as arrays, with payloads as positions in buffers.

Decoding copies no payload. It leaves, for every record, where its key, value and headers lie; what a consumer does
with them (copy, view, text, compare) is one of the gather kernels of `_records`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pylogseg.format.batches import BatchTable

#: A place is ``(source << SOURCE_SHIFT) | position``: byte ``position`` of ``sources[source]``.
SOURCE_SHIFT = 40
SOURCE_MASK = (1 << SOURCE_SHIFT) - 1

#: Where the records of a batch lie: in the buffer of the file (source 0) or decompressed in an arena (source 1).
BODY_DTYPE = np.dtype([("place", "i8"), ("size", "i8")])


class RecordColumns(NamedTuple):
    """Records of a stretch of a log, as columns of equal length.

    Attributes
    ----------
    offset : numpy.ndarray of int64
    timestamp : numpy.ndarray of int64
        Milliseconds as a consumer sees them: the append time in a LogAppendTime batch; -1 none.
    key_place, value_place : numpy.ndarray of int64
        First byte of key and value, as places (see `SOURCE_SHIFT`).
    key_size, value_size : numpy.ndarray of int32
        Bytes; -1 is null.
    headers_place : numpy.ndarray of int64
        First byte behind the count of headers.
    header_count : numpy.ndarray of int32
    batch : numpy.ndarray of int32
        Row of ``batches`` that the record came from.
    batches : BatchTable
    sources : tuple of buffers
        What the places point into: the file's bytes, and an arena of decompressed ones (may be empty). The columns
        keep them alive; a memory map stays mapped as long as any column of it lives.
    """

    offset: npt.NDArray[np.int64]
    timestamp: npt.NDArray[np.int64]
    key_place: npt.NDArray[np.int64]
    key_size: npt.NDArray[np.int32]
    value_place: npt.NDArray[np.int64]
    value_size: npt.NDArray[np.int32]
    headers_place: npt.NDArray[np.int64]
    header_count: npt.NDArray[np.int32]
    batch: npt.NDArray[np.int32]
    batches: BatchTable
    sources: tuple[Any, ...]
