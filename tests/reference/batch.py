"""Batches and records of magic 0, 1 and 2, read one by one."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

import crcmod.predefined

from reference import compression, varint

crc32c: Callable[[bytes], int] = crcmod.predefined.mkPredefinedCrcFun("crc-32c")

HEADER_V2 = struct.Struct(">qiibIhiqqqhii")
NO_TIMESTAMP, CREATE_TIME, LOG_APPEND_TIME = -1, 0, 1


class CorruptFile(ValueError):
    """A length that no batch can have: nothing behind it can be read."""


class InvalidRecords(ValueError):
    """The batch is whole, but its records cannot be read."""


class Record(NamedTuple):
    """One record. Timestamps are milliseconds, -1 none; a header value may be null, a header name is UTF-8."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...] = ()


class Batch(NamedTuple):
    """What the header of a batch says, and its bytes. What a magic does not have is -1."""

    position: int
    data: bytes
    magic: int
    base_offset: int  # of a compressed legacy wrapper: that of the first record inside
    last_offset: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    leader_epoch: int
    attributes: int
    count: int
    crc: int
    valid: bool

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return len(self.data)

    @property
    def codec(self) -> str:
        """Name of the codec."""
        number = self.attributes & 7
        if number >= len(compression.CODECS):
            raise InvalidRecords(f"unknown compression type {number}")
        return compression.CODECS[number]

    @property
    def timestamp_type(self) -> int:
        """-1 none (magic 0), 0 set by the producer, 1 by the broker."""
        return NO_TIMESTAMP if self.magic == 0 else self.attributes >> 3 & 1

    @property
    def is_transactional(self) -> bool:
        """Whether it belongs to a transaction."""
        return self.magic >= 2 and bool(self.attributes & 0x10)

    @property
    def is_control(self) -> bool:
        """Whether it holds control records."""
        return self.magic >= 2 and bool(self.attributes & 0x20)

    @property
    def delete_horizon(self) -> int | None:
        """The delete horizon, in milliseconds, where there is one."""
        return self.base_timestamp if self.magic >= 2 and self.attributes & 0x40 else None


def batches(data: bytes, start: int = 0) -> Iterator[Batch]:
    """Yield the whole batches of a file; a cut-off one at the end is left out, as Kafka's reader of files does."""
    position = start
    while position < len(data) - 17:
        size, magic = struct.unpack_from(">i", data, position + 8)[0], data[position + 16]
        if size < 14:
            raise CorruptFile(f"size {size} at position {position} is below the smallest, 14")
        if position > len(data) - 12 - size:
            return
        whole = data[position : position + 12 + size]
        yield legacy_batch(position, whole) if magic in (0, 1) else batch_v2(position, whole)
        position += len(whole)


def batch_v2(position: int, data: bytes) -> Batch:
    """Read the 61 bytes of a header; a shorter batch is not valid, and reads as if zeros followed."""
    fields = HEADER_V2.unpack_from(data.ljust(HEADER_V2.size, b"\0"))
    base_offset, _, leader_epoch, magic, crc, attributes, last_offset_delta, base_timestamp, max_timestamp = fields[:9]
    producer_id, producer_epoch, base_sequence, count = fields[9:]
    return Batch(
        position=position,
        data=data,
        magic=magic,
        base_offset=base_offset,
        last_offset=base_offset + last_offset_delta,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        leader_epoch=leader_epoch,
        attributes=attributes,
        count=count,
        crc=crc,
        valid=len(data) >= HEADER_V2.size and crc32c(data[21:]) == crc,
    )


def legacy_batch(position: int, data: bytes) -> Batch:
    """Read a message of magic 0 or 1, which may be a wrapper around others."""
    offset, _, crc, magic, attributes = struct.unpack_from(">qiIbb", data)
    timestamp = struct.unpack_from(">q", data, 18)[0] if magic else -1
    batch = Batch(
        position=position,
        data=data,
        magic=magic,
        base_offset=offset,
        last_offset=offset,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        leader_epoch=-1,
        attributes=attributes,
        count=1,
        crc=crc,
        valid=zlib.crc32(data[16:]) == crc,
    )
    if batch.codec == "none":
        return batch
    return batch._replace(base_offset=legacy_wrapped(batch)[0].offset, count=-1)


def records(batch: Batch) -> Iterator[Record]:
    """Yield the records of a batch, as far as they can be read; the CRC is not looked at."""
    if batch.magic >= 2:
        yield from records_v2(batch)
    elif batch.codec == "none":
        yield legacy_record(batch.data, batch.timestamp_type, batch.max_timestamp)
    else:
        yield from legacy_wrapped(batch)


def records_v2(batch: Batch) -> Iterator[Record]:
    """Yield the records of magic 2; what is declared must be there, and nothing more."""
    if batch.count < 0:
        raise InvalidRecords(f"record count {batch.count}")
    if batch.count == 0:
        return
    body = decompressed(batch, batch.data[HEADER_V2.size :])
    at = 0
    for _ in range(batch.count):
        if at >= len(body):
            raise InvalidRecords("fewer records than declared")
        record, at = record_v2(batch, body, at)
        yield record
    if at != len(body):
        raise InvalidRecords("bytes left behind the last record")


def record_v2(batch: Batch, body: bytes, at: int) -> tuple[Record, int]:
    """Read one record at ``at``; return it and the position behind it."""
    try:
        size, at = varint.read_signed(body, at)
        if size > len(body) - at:
            raise InvalidRecords("record longer than what is left")
        start, at = at, at + 1  # the record's attributes are not used
        timestamp_delta, at = varint.read_signed(body, at, 64)
        offset_delta, at = varint.read_signed(body, at)
        key, at = sized(body, at)
        value, at = sized(body, at)
        headers, at = headers_v2(body, at)
    except varint.VarintError as error:
        raise InvalidRecords(str(error)) from error
    if at - start != size:
        raise InvalidRecords(f"record of {at - start} bytes declares {size}")
    timestamp = wrapped_long(batch.base_timestamp + timestamp_delta)
    if batch.timestamp_type == LOG_APPEND_TIME:
        timestamp = batch.max_timestamp
    return Record(batch.base_offset + offset_delta, timestamp, key, value, headers), at


def headers_v2(body: bytes, at: int) -> tuple[tuple[tuple[bytes, bytes | None], ...], int]:
    """Read the count of headers and the headers; return them and the position behind them."""
    count, at = varint.read_signed(body, at)
    if not 0 <= count <= len(body) - at:
        raise InvalidRecords(f"{count} headers")
    headers = []
    for _ in range(count):
        name, at = sized(body, at)
        if name is None:
            raise InvalidRecords("header without a name")
        value, at = sized(body, at)
        headers.append((name, value))
    return tuple(headers), at


def sized(body: bytes, at: int) -> tuple[bytes | None, int]:
    """Read bytes behind their length; any negative length is null."""
    size, at = varint.read_signed(body, at)
    if size < 0:
        return None, at
    if size > len(body) - at:
        raise InvalidRecords("bytes longer than what is left")
    return body[at : at + size], at + size


def wrapped_long(value: int) -> int:
    """Return ``value`` as 64-bit arithmetic leaves it."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def decompressed(batch: Batch, data: bytes) -> bytes:
    """Return the bytes of the records of a batch."""
    try:
        return compression.decompress(batch.codec, data, batch.magic)
    except compression.CompressionError as error:
        raise InvalidRecords(str(error)) from error


def legacy_record(data: bytes, wrapper_type: int, wrapper_timestamp: int) -> Record:
    """Read a message that is no wrapper; inside one that the broker stamped, the wrapper's time counts."""
    offset, magic = struct.unpack_from(">q", data)[0], data[16]
    timestamp = -1
    if magic:
        timestamp = struct.unpack_from(">q", data, 18)[0] if wrapper_type != LOG_APPEND_TIME else wrapper_timestamp
    key, at = legacy_sized(data, 26 if magic else 18)
    value, _ = legacy_sized(data, at)
    return Record(offset, timestamp, key, value)


def legacy_sized(data: bytes, at: int) -> tuple[bytes | None, int]:
    """Read bytes behind their length of four bytes."""
    if at + 4 > len(data):
        raise InvalidRecords("message ends early")
    size = struct.unpack_from(">i", data, at)[0]
    if size < 0:
        return None, at + 4
    if size > len(data) - at - 4:
        raise InvalidRecords("bytes longer than the message")
    return data[at + 4 : at + 4 + size], at + 4 + size


def legacy_wrapped(batch: Batch) -> list[Record]:
    """Return the records inside a wrapper: in magic 1 their offsets count from the first, the wrapper's is the last."""
    if batch.codec == "zstd":
        raise InvalidRecords(f"zstd in magic {batch.magic}")
    value = legacy_record(batch.data, NO_TIMESTAMP, -1).value
    if value is None:
        raise InvalidRecords("wrapper without a value")
    data, inside, at = decompressed(batch, value), [], 0
    while at + 12 <= len(data):
        size = struct.unpack_from(">i", data, at + 8)[0]
        if size < 14:
            raise InvalidRecords(f"size {size} inside a wrapper")
        if at + 12 + size > len(data):
            break
        if data[at + 17] & 7:
            raise InvalidRecords("compressed message inside a wrapper")
        inside.append(legacy_record(data[at : at + 12 + size], batch.timestamp_type, batch.max_timestamp))
        at += 12 + size
    if not inside:
        raise InvalidRecords("wrapper without messages")
    return inside if batch.magic == 0 else absolute(inside, batch.last_offset)


def absolute(inside: list[Record], last_offset: int) -> list[Record]:
    """Turn relative offsets into the log's; a wrapper at 0 is an old client's, which left them as they are."""
    if last_offset and last_offset < inside[-1].offset:
        raise InvalidRecords("wrapper's offset is below that of its last message")
    base = last_offset - inside[-1].offset if last_offset else 0
    return [record._replace(offset=base + record.offset) for record in inside]
