"""Checks of the records of one batch against the rules of a log, with every error that Kafka would report.

This is the slow path: valid appends come here only if they have to be rewritten.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pylogseg import _codec
from pylogseg._native._append import Batch, Rules
from pylogseg.errors import CorruptionError, InvalidRecordError, PylogsegError, RequestError
from pylogseg.format.batches import scan
from pylogseg.format.codec_error import RAISE_IT, CodecError
from pylogseg.format.codecs import CODECS, decompress
from pylogseg.format.layout import BATCH_HEADER_BYTES
from pylogseg.format.records import DECOMPRESSED_LIMIT_BYTES, RecordColumns, decode

_KEY_AT = (18, 26)
_SHOWN_ERRORS = 3

Int64s = npt.NDArray[np.int64]


class CheckedFields(NamedTuple):
    """The fields of a batch's records that the rules check, as a reader sees them; a key size of -1 is null."""

    offset: Int64s
    timestamp: Int64s
    key_size: Int64s
    magic_differs: npt.NDArray[np.bool_]  #: An inner message of another magic than its wrapper's.


def limit_of(rules: Rules) -> int:
    """Return the most bytes that an appended batch may decompress to: at least the log's largest message."""
    return max(DECOMPRESSED_LIMIT_BYTES, rules.size_limit)


def read_records(
    view: memoryview,
    batch: Batch,
    *,
    where: str,
    lenient: bool = False,
    crc: bool = True,
    limit: int = DECOMPRESSED_LIMIT_BYTES,
) -> CheckedFields:
    """Read the fields that the rules check; the batch's position refers to `view`.

    With `lenient`, a compressed batch of magic 2 is read without its keys and values, as Kafka does with one that stays
    as it is: the declared lengths of its records are then not compared with anything. `crc` is for inner messages,
    `limit` for decompressed bytes. Raises InvalidRecordError for malformed records, RequestError for a body that cannot
    be decompressed, CorruptionError for an inner message that is too small.
    """
    whole = view[batch.position : batch.position + batch.size]
    if batch.magic < 2:
        return _read_wrapped(whole, batch, where, crc, limit) if batch.codec else _alone(whole, batch, where)
    if batch.count < 0:
        raise InvalidRecordError(f"{where}: a count of {batch.count} records")
    columns, reason = _decode_batch(whole, batch, limit)
    if reason and batch.codec and lenient:
        return _partial(whole, batch, where, limit)
    if reason:
        raise _damage(whole, batch, reason, where, limit)
    return CheckedFields(
        columns.offset, columns.timestamp, columns.key_size.astype(np.int64), np.zeros(len(columns), np.bool_)
    )


def check_records(
    checked: CheckedFields, batch: Batch, rules: Rules, now_ms: int, where: str, unwritable: int | None = None
) -> None:
    """Refuse a batch with records that break a rule; the InvalidRecordError lists them all.

    `unwritable` is the first record that cannot be rewritten: a RequestError only if no record before it breaks a rule.
    """
    timestamp = checked.timestamp
    keyless = (checked.key_size < 0) & rules.key_required
    timed = (timestamp != -1) & (not rules.append_time)
    # int64 wraps at hostile timestamps, as in Java.
    age = np.int64(now_ms) - timestamp
    late = timed & ((age > rules.before_ms) | (-age > rules.after_ms))
    stamped = ~timed & batch.is_append_time
    bad = np.flatnonzero(checked.magic_differs | keyless | late | stamped)
    if unwritable is not None and not (len(bad) and bad[0] <= unwritable):
        raise RequestError(f"{where}: record {unwritable} cannot be stored: its timestamp is {timestamp[unwritable]}")
    if not len(bad):
        return
    errors: list[tuple[int, str]] = []
    wrong_time = False
    for i in bad.tolist():
        if checked.magic_differs[i]:
            errors.append((i, f"its magic is not {batch.magic}, the magic of its batch"))
        elif keyless[i]:
            errors.append((i, "it has no key, and the log is compacted"))
        else:
            wrong_time = True
            errors.append((i, _time_error(bool(late[i]), int(timestamp[i]), rules, now_ms)))
    shown = "; ".join(f"record {i}: {reason}" for i, reason in errors[:_SHOWN_ERRORS])
    what = "invalid timestamps" if wrong_time else f"{len(errors)} records refused"
    raise InvalidRecordError(f"{where}: {what}: {shown}", errors)


def _time_error(late: bool, timestamp: int, rules: Rules, now_ms: int) -> str:
    if late:
        is_ahead = timestamp > now_ms
        name, limit = ("after", rules.after_ms) if is_ahead else ("before", rules.before_ms)
        within = f"{now_ms - rules.before_ms}..{now_ms + rules.after_ms}"
        return f"its timestamp {timestamp} is not in {within} (message.timestamp.{name}.max.ms is {limit})"
    return "its timestamp type is LogAppendTime, which producers may not set"


def _decode_batch(whole: memoryview, batch: Batch, limit: int) -> tuple[RecordColumns, str]:
    """Decode a batch; return its columns, or why it cannot be decoded."""
    columns, damage = decode(scan(whole, crc=False).batches, whole, limit_bytes=limit)
    return columns, damage[0].reason if damage else ""


def _damage(whole: memoryview, batch: Batch, reason: str, where: str, limit: int) -> PylogsegError:
    """Return the error that Kafka would raise for an unreadable record."""
    if batch.codec:
        try:
            _body(whole, batch, limit)
        except CodecError as error:
            return RequestError(f"{where}: the records cannot be decompressed: {_add_remedy(error)}")
    return InvalidRecordError(f"{where}: {reason}")


def _add_remedy(error: CodecError) -> str:
    """Return the error's text, with the setting that applies to appends."""
    return str(error).replace(RAISE_IT, "raise max_message_bytes to append it")


def _body(whole: memoryview, batch: Batch, limit: int) -> bytes:
    return decompress(batch.codec, whole[BATCH_HEADER_BYTES:], magic=2, limit=limit)


def _partial(whole: memoryview, batch: Batch, where: str, limit: int) -> CheckedFields:
    """Read a compressed batch of magic 2 field by field, skipping keys, values and headers."""
    try:
        body = _body(whole, batch, limit)
    except CodecError as error:
        raise RequestError(f"{where}: the records cannot be decompressed: {_add_remedy(error)}") from None
    offsets, timestamps, keys = [], [], []
    at = 0
    try:
        for _ in range(batch.count):
            _, at = _codec.decode_varint(body, at)
            time_delta, at = _codec.decode_varlong(body, at + 1)
            delta, at = _codec.decode_varint(body, at)
            key, at = _skip(body, at)
            _, at = _skip(body, at)
            at = _skip_headers(body, at)
            offsets.append(_wrap(batch.base_offset + delta))
            timestamps.append(batch.max_timestamp if batch.is_append_time else _wrap(batch.base_timestamp + time_delta))
            keys.append(key)
        if at != len(body):
            raise ValueError("bytes remain after the last declared record")
    except (ValueError, IndexError, PylogsegError) as error:
        raise InvalidRecordError(f"{where}: record {len(keys)}: {error}") from None
    return _fields(offsets, timestamps, keys)


def _skip(body: bytes, at: int) -> tuple[int, int]:
    size, at = _codec.decode_varint(body, at)
    if size > len(body) - at:
        raise ValueError(f"a field of {size} bytes runs past the end")
    return size, at + max(size, 0)


def _skip_headers(body: bytes, at: int) -> int:
    count, at = _codec.decode_varint(body, at)
    if count < 0:
        raise ValueError(f"{count} headers")
    for _ in range(count):
        size, at = _skip(body, at)
        if size < 0:
            raise ValueError("a header without a name")
        _, at = _skip(body, at)
    return at


def _alone(whole: memoryview, batch: Batch, where: str) -> CheckedFields:
    """Read an uncompressed legacy message, of which only the key's size is checked."""
    return _fields([batch.base_offset], [batch.max_timestamp], [_key_size(whole, batch.magic, where)])


def _key_size(entry: memoryview, magic: int, where: str) -> int:
    at = _KEY_AT[1 if magic else 0]
    if len(entry) < at + 4:
        raise RequestError(f"{where}: a message of magic {magic} ends before the size of its key")
    return _int(entry, at)


def _check_fields(entry: memoryview, magic: int, where: str) -> None:
    """Refuse a legacy message whose key or value runs past its end: Kafka finds that while it formats another error."""
    at = _KEY_AT[1 if magic else 0]
    for _ in range(2):
        if at + 4 > len(entry) or _int(entry, at) > len(entry) - at - 4:
            raise RequestError(f"{where}: a message of magic {magic} runs past its end")
        at += 4 + max(_int(entry, at), 0)


def _read_wrapped(whole: memoryview, batch: Batch, where: str, crc: bool, limit: int) -> CheckedFields:
    """Read the inner messages of a compressed one, and check their CRCs."""
    inner = _inner_messages(whole, batch, where, limit)
    offsets, timestamps, keys, differs = [], [], [], []
    base = _inner_base(inner, batch, where)
    for entry in inner:
        magic = entry[16]
        if entry[17] & 7 >= len(CODECS):
            raise RequestError(f"{where}: an inner message with the unknown codec {entry[17] & 7}")
        if entry[17] & 7:
            raise InvalidRecordError(f"{where}: an inner message of a compressed message is compressed itself")
        differs.append(magic != batch.magic)
        keys.append(0)
        if magic == batch.magic:
            stored, computed = int.from_bytes(entry[12:16], "big"), _codec.crc32(entry[16:])
            if crc and stored != computed:
                raise CorruptionError(where, batch.position, f"an inner message has CRC {stored}, computed {computed}")
            keys[-1] = _key_size(entry, magic, where)
        else:
            _check_fields(entry, magic, where)
        offsets.append(_wrap(base + _long(entry, 0)))
        stamped = magic == 1 and batch.is_append_time
        timestamps.append(batch.max_timestamp if stamped else _long(entry, 18) if magic and len(entry) >= 26 else -1)
    return _fields(offsets, timestamps, keys)._replace(magic_differs=np.array(differs, np.bool_))


def _inner_messages(whole: memoryview, batch: Batch, where: str, limit: int) -> list[memoryview]:
    for codec in CODECS:
        if codec.number == batch.codec and batch.magic < codec.lowest_magic:
            raise InvalidRecordError(
                f"{where}: a message of magic {batch.magic} cannot be compressed with {codec.name}"
            )
    value_at = _KEY_AT[batch.magic] + 4 + max(_key_size(whole, batch.magic, where), 0)
    size = _int(whole, value_at) if value_at + 4 <= len(whole) else len(whole)
    if size < 0:
        raise InvalidRecordError(f"{where}: a compressed message with a null value")
    if size > len(whole) - value_at - 4:
        raise RequestError(f"{where}: the value of a compressed message runs past its end")
    try:
        value = whole[value_at + 4 : value_at + 4 + size]
        body = memoryview(decompress(batch.codec, value, magic=batch.magic, limit=limit))
    except CodecError as error:
        raise RequestError(f"{where}: the inner messages cannot be decompressed: {_add_remedy(error)}") from None
    messages: list[memoryview] = []
    at = 0
    while len(body) - at >= 12:
        length = _int(body, at + 8)
        if length < 14:
            raise CorruptionError(where, batch.position, f"an inner message has length {length}, less than 14")
        if length > len(body) - at - 12:
            break  # one that is cut off is ignored
        messages.append(body[at : at + 12 + length])
        at += 12 + length
    if not messages:
        raise InvalidRecordError(f"{where}: a compressed message holds no inner message")
    return messages


def _inner_base(inner: list[memoryview], batch: Batch, where: str) -> int:
    """Return the base of the inner offsets: 0 in magic 0, in magic 1 computed from the wrapper's offset."""
    if batch.magic == 0 or batch.last_offset == 0:
        return 0
    last = _long(inner[-1], 0)
    if batch.last_offset < last:
        raise InvalidRecordError(
            f"{where}: a compressed message has offset {batch.last_offset}, its last inner message {last}"
        )
    return batch.last_offset - last


def _fields(offsets: list[int], timestamps: list[int], keys: list[int]) -> CheckedFields:
    offset, timestamp, key_size = (np.array(values, np.int64) for values in (offsets, timestamps, keys))
    return CheckedFields(offset, timestamp, key_size, np.zeros(len(keys), np.bool_))


def _int(data: memoryview, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "big", signed=True)


def _long(data: memoryview, at: int) -> int:
    return int.from_bytes(data[at : at + 8], "big", signed=True)


def _wrap(value: int) -> int:
    """Wrap a sum as Java does."""
    return ((value + (1 << 63)) & ((1 << 64) - 1)) - (1 << 63)
