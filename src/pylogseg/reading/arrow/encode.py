"""`encode`: record batches from records, record columns or Arrow tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pylogseg._native._encoder import Columns
from pylogseg.errors import RequestError
from pylogseg.format.builder import BatchKeywords, build, columns_to_encode, shared_row
from pylogseg.format.keywords import split_keywords
from pylogseg.format.record_input import columns_from_records
from pylogseg.format.records import RecordColumns

if TYPE_CHECKING:
    from typing_extensions import Unpack

_ARROW = ("__arrow_c_stream__", "__arrow_c_array__")


def encode(
    records: Any,
    *,
    compression: str | int = "none",
    level: int | None = None,
    batch_bytes: int = 16384,
    batch_records: int | None = None,
    base_offset: int | None = None,
    timestamp_type: Literal["create", "append"] = "create",
    timestamp_default_ms: int = -1,
    **batch: Unpack[BatchKeywords],
) -> bytearray:
    """Encode records into record batches, as Kafka's producer and broker write them.

    Parameters
    ----------
    records : iterable, RecordColumns, or Arrow data
        Records are tuples ``(timestamp, key, value)`` or ``(timestamp, key, value, headers)``, or mappings or objects
        with ``timestamp``, ``key``, ``value``, ``headers``, ``offset``. A timestamp is milliseconds, a datetime with a
        zone, or None; keys and values are bytes, text (stored as UTF-8) or None; headers a mapping, or pairs of name
        and value. An Arrow table (also of pandas and polars) has a column ``value``, and optionally the remaining ones.
        It is read in place, without work for each record in Python.
    magic : int
        2, or the legacy formats 0 and 1. These have no headers, producers and leader epochs (and 0 no timestamps).
    compression : str or int
        ``"none"``, ``"gzip"``, ``"snappy"``, ``"lz4"``, ``"zstd"`` (only magic 2), or the codec's number.
    level : int, optional
        The codec's level; by default Kafka's.
    batch_bytes : int
        Largest size of a batch before compression; a single record may exceed it.
    batch_records : int, optional
        The most records of a batch.
    base_offset : int, optional
        Numbers the records consecutively from here. Without it records keep their offsets, in ascending order, or start
        at 0 without offsets.
    leader_epoch : int
        Of the partition's leader; -1 unknown.
    timestamp_type : {"create", "append"}
        ``"append"`` makes LogAppendTime batches and needs `append_time_ms`.
    append_time_ms : int, optional
        The time of the append by the broker's clock, in ms.
    timestamp_default_ms : int
        For records that have no timestamp; -1 means none.
    producer_id, producer_epoch, base_sequence : int
        Of an idempotent producer; the sequence continues from batch to batch.
    transactional : bool
        Marks the batches as part of their producer's transaction.
    delete_horizon_ms : int, optional
        The time from which the cleaner may remove tombstones and markers (KIP-534).

    Returns
    -------
    bytearray
        The batches, back to back; empty without records. `format.patch` changes offsets, epochs and append
        times in it.

    Raises
    ------
    RequestError
        For invalid arguments and records; the message names the record.
    """
    if timestamp_type not in ("create", "append"):
        raise RequestError(f"invalid timestamp_type {timestamp_type!r}; expected 'create' or 'append'")
    if (timestamp_type == "append") != (batch.get("append_time_ms") is not None):
        raise RequestError("append_time_ms and timestamp_type='append' must be given together")
    if base_offset is not None and base_offset < 0:
        raise RequestError(f"base_offset {base_offset} is negative")
    (fields,) = split_keywords(batch, BatchKeywords)
    shared = shared_row(compression=compression, **fields)
    columns = input_columns(records, base_offset, timestamp_default_ms)
    return build(columns, shared, batch_bytes=batch_bytes, batch_records=batch_records, level=level)[0]


def input_columns(records: Any, base_offset: int | None, timestamp_default_ms: int) -> Columns:
    if isinstance(records, Columns):
        return records
    if isinstance(records, RecordColumns):
        return columns_to_encode(records, base_offset=base_offset)
    if any(hasattr(records, name) for name in _ARROW):
        from pylogseg.reading.arrow.inputs import columns_from_arrow

        return columns_from_arrow(records, base_offset=base_offset, timestamp_default_ms=timestamp_default_ms)
    return columns_from_records(records, base_offset=base_offset, timestamp_default_ms=timestamp_default_ms)
