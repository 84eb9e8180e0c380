"""Checks of an append by its batch headers and CRCs, in Kafka's order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pylogseg._native import _append
from pylogseg._native._append import Batch
from pylogseg.errors import CorruptionError, InvalidRecordError, OffsetsOutOfOrderError, RequestError, TooLargeError
from pylogseg.format.codecs import CODECS
from pylogseg.format.layout import BATCH_HEADER_BYTES
from pylogseg.log.producer_state import Origin

_OVERHEAD_BYTES = 12
_PREFIX_BYTES = 17
_SMALLEST_BYTES = 14
#: The log's end comes after it.
HIGHEST_OFFSET = 2**63 - 2


class Analysis(NamedTuple):
    """Summary of the batch headers of an append."""

    batches: list[Batch]  #: Their CRCs are good.
    first_offset: int  #: Of the first batch; -1 if that is a legacy one, or there is none.
    last_offset: int
    last_offset_of_first: int
    max_timestamp: int  #: ms; -1 none.
    codec: int  #: Of the last batch that has one; 0 none.
    valid_bytes: int  #: Without a partial batch at the end, and batches of a later leader.


def frames(view: memoryview, where: str) -> Iterator[tuple[int, int]]:
    """Yield position and size of each whole batch of a request, as a broker does; ignore a partial one at the end.

    Raises CorruptionError for a length that no batch has, or an unknown magic.
    """
    position = 0
    while len(view) - position >= _OVERHEAD_BYTES:
        length = _int(view, position + 8)
        if length < _SMALLEST_BYTES:
            raise CorruptionError(where, position, f"length {length}, a batch has at least {_SMALLEST_BYTES}")
        if len(view) - position < _PREFIX_BYTES:
            return
        if view[position + 16] > 2:
            raise CorruptionError(where, position, f"unknown magic {view[position + 16]}")
        size = _OVERHEAD_BYTES + length
        if size > len(view) - position:
            return
        yield position, size
        position += size


def analyze(
    view: memoryview, origin: Origin, leader_epoch: int, *, size_limit: int | None, monotonic: bool, where: str
) -> Analysis:
    """Check the batches of an append by their headers and CRCs; the first that is wrong is raised.

    Batches of clients must begin at offset 0; in replication, batches from the first one with a later epoch than
    `leader_epoch` on are left out (KAFKA-18723). Raises RequestError for a codec that does not exist.
    """
    batches: list[Batch] = []
    first = last_of_first = last = greatest = -1
    codec = 0
    skip = False
    for position, size in frames(view, where):
        magic, epoch = view[position + 16], _int(view, position + 12)
        if magic < 2:
            epoch = -1
        base_offset = int.from_bytes(view[position : position + 8], "big", signed=True)
        if origin is Origin.CLIENT and magic == 2 and base_offset != 0:
            raise InvalidRecordError(f"{where}: the base offset of a client's batch is {base_offset}, not 0")
        skip = skip or (origin is Origin.REPLICATION and epoch > leader_epoch)
        if skip:
            continue
        batch, good = header_of(view, position, size, size_limit, where)
        if not batches:
            first, last_of_first = (base_offset if magic == 2 else -1), batch.last_offset
        disorder = monotonic and last >= batch.last_offset
        before, last = last, batch.last_offset
        _check_size(size, size_limit, where)
        if not good:
            raise CorruptionError(where, position, f"the stored CRC {batch.crc} does not match the batch")
        greatest = max(greatest, batch.max_timestamp)
        if batch.codec >= len(CODECS):
            raise RequestError(f"{where}: the batch at {position} has the unknown codec {batch.codec}")
        codec = batch.codec or codec
        if monotonic and not batch.base_offset <= last <= HIGHEST_OFFSET:
            raise InvalidRecordError(f"{where}: the batch at {position} has the offsets {base_offset} to {last}")
        if disorder:
            raise OffsetsOutOfOrderError(f"{where}: the batch at {position} has last offset {last}, not above {before}")
        batches.append(batch)
    valid = batches[-1].position + batches[-1].size if batches else 0
    return Analysis(batches, first, last, last_of_first, greatest, codec, valid)


def header_of(view: memoryview, position: int, size: int, size_limit: int | None, where: str) -> tuple[Batch, bool]:
    """Return the header of a whole batch, and whether its CRC matches; refuse one too short or over the limit."""
    if view[position + 16] == 2 and size < BATCH_HEADER_BYTES:
        if size < 27:  # the field that the last offset comes from is not there
            raise RequestError(f"{where}: the batch at {position} has {size} bytes, its header {BATCH_HEADER_BYTES}")
        _check_size(size, size_limit, where)
        raise CorruptionError(where, position, f"a batch of {size} bytes, its header has {BATCH_HEADER_BYTES}")
    return _append.read_batch(view, position, size)


def _check_size(size: int, size_limit: int | None, where: str) -> None:
    if size_limit is not None and size > size_limit:
        raise TooLargeError(f"{where}: a batch of {size} bytes is larger than the limit, {size_limit}")


def _int(view: memoryview, at: int) -> int:
    return int.from_bytes(view[at : at + 4], "big", signed=True)
