"""Batches of magic 0, 1 and 2 from records, laid out as Kafka's own writers do."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

from reference.batch import HEADER_V2, Record, crc32c
from reference.compression import CODECS, compress
from reference.varint import write_signed

LOG_APPEND, TRANSACTIONAL, CONTROL, DELETE_HORIZON = 0x08, 0x10, 0x20, 0x40


def batch_v2(
    records: Sequence[Record],
    *,
    base_offset: int | None = None,
    last_offset: int | None = None,
    max_timestamp: int | None = None,
    codec: str = "none",
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
    log_append_time: int | None = None,
    delete_horizon: int | None = None,
    count: int | None = None,
) -> bytes:
    """Return a batch of magic 2.

    Offsets, the base and max timestamp and the count follow from the records where they are not given; the
    ``log_append_time`` becomes the max timestamp, as a broker leaves it, and ``delete_horizon`` the base timestamp.
    """
    first = base_offset if base_offset is not None else records[0].offset
    last = last_offset if last_offset is not None else records[-1].offset
    base_timestamp = records[0].timestamp if records else -1
    if delete_horizon is not None:
        base_timestamp = delete_horizon
    if max_timestamp is None:
        max_timestamp = max((record.timestamp for record in records), default=-1)
    if log_append_time is not None:
        max_timestamp = log_append_time
    flags = (LOG_APPEND, log_append_time is not None), (TRANSACTIONAL, transactional), (CONTROL, control)
    attributes = CODECS.index(codec) | sum(
        bit for bit, on in (*flags, (DELETE_HORIZON, delete_horizon is not None)) if on
    )
    body = b"".join(record_v2(record, first, base_timestamp) for record in records)
    if records:
        body = compress(codec, body)
    fields = attributes, last - first, base_timestamp, max_timestamp, producer_id, producer_epoch, base_sequence
    declared = len(records) if count is None else count
    tail = HEADER_V2.pack(0, 0, 0, 0, 0, *fields, declared)[21:] + body
    return struct.pack(">qiibI", first, len(tail) + 9, leader_epoch, 2, crc32c(tail)) + tail


def record_v2(record: Record, base_offset: int, base_timestamp: int) -> bytes:
    """Return a record of magic 2 behind its length."""
    body = b"\0" + write_signed(record.timestamp - base_timestamp, 64) + write_signed(record.offset - base_offset)
    body += sized(record.key) + sized(record.value) + write_signed(len(record.headers))
    body += b"".join(sized(name) + sized(value) for name, value in record.headers)
    return write_signed(len(body)) + body


def sized(data: bytes | None) -> bytes:
    """Return bytes behind their length as a varint; null is -1."""
    return write_signed(-1) if data is None else write_signed(len(data)) + data


def end_marker(
    offset: int,
    *,
    commit: bool,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int = 0,
    timestamp: int = 0,
    leader_epoch: int = -1,
) -> bytes:
    """Return the marker that ends a transaction."""
    record = Record(offset, timestamp, struct.pack(">hh", 0, int(commit)), struct.pack(">hi", 0, coordinator_epoch))
    return batch_v2(
        [record],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        leader_epoch=leader_epoch,
        transactional=True,
        control=True,
    )


def legacy(records: Sequence[Record], magic: int, *, codec: str = "none", log_append_time: int | None = None) -> bytes:
    """Return records as messages of magic 0 or 1: one after the other, or in one wrapper where there is a codec."""
    if log_append_time is not None:
        records = [record._replace(timestamp=log_append_time) for record in records]
    flag = LOG_APPEND if magic and log_append_time is not None else 0
    if codec == "none":
        return b"".join(message(record, magic, flag) for record in records)
    base = records[0].offset if magic else 0
    inside = b"".join(message(record._replace(offset=record.offset - base), magic, flag) for record in records)
    newest = max(record.timestamp for record in records)
    wrapper = Record(records[-1].offset, newest, None, compress(codec, inside, magic))
    return message(wrapper, magic, flag | CODECS.index(codec))


def message(record: Record, magic: int, attributes: int = 0) -> bytes:
    """Return one message of magic 0 or 1 with its offset and size in front."""
    body = struct.pack(">bb", magic, attributes)
    if magic:
        body += struct.pack(">q", record.timestamp)
    for data in (record.key, record.value):
        body += struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data
    return struct.pack(">qiI", record.offset, len(body) + 4, zlib.crc32(body)) + body
