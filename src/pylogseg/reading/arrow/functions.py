"""Functions of Arrow columns on the kernels: checksums, partitions, varints, headers, Confluent's wire format.

Each takes a column of any layout of binary or text (sliced, chunked, large, views) and gives one of the same length;
null gives null. Record batches in a column are in `arrow_batches`.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pylogseg import _codec
from pylogseg.errors import CorruptionError, RequestError
from pylogseg.format.words import check_word
from pylogseg.reading.arrow import columns as arrow

#: For a value that cannot be decoded: raise an error with its number, or return null.
RaiseOrNull = Literal["raise", "null"]

_CONFLUENT_HEAD_BYTES = 5


CONFLUENT = pa.struct([pa.field("schemaId", pa.int32()), pa.field("payload", pa.binary())])
HEADERS_MAP = pa.map_(pa.string(), pa.binary())
_WIDEST_VARINT_BYTES = 10


class Spans:
    """The values of a column of binary, where they lie: ``data[offsets[i]:offsets[i + 1]]``.

    Parameters
    ----------
    column : pyarrow.Array or pyarrow.ChunkedArray
        Binary or text of any layout.
    name : str
        What to call it in an error.

    Attributes
    ----------
    array : pyarrow.Array
        The column as one array of binary or large binary.
    offsets : numpy.ndarray of int32 or int64
        One more than values; a view of Arrow's buffer.
    data : numpy.ndarray of uint8
    nulls : numpy.ndarray of bool, or None
        Which values are null; None if none is.

    Raises
    ------
    RequestError
        For a column of another type.
    """

    def __init__(self, column: Any, name: str = "column") -> None:
        if isinstance(column, pa.ChunkedArray):
            column = column.combine_chunks()
            if isinstance(column, pa.ChunkedArray):  # too much for one array with offsets of 32 bits
                column = pa.concat_arrays([chunk.cast(pa.large_binary()) for chunk in column.chunks])
        kind = column.type
        if not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
            wide = pa.types.is_large_string(kind) or "view" in str(kind)
            try:
                column = column.cast(pa.large_binary() if wide else pa.binary())
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
                raise RequestError(f"{name} of {kind} cannot be read as binary") from None
        self.array = column
        _, offsets, data = column.buffers()
        width = np.int64 if pa.types.is_large_binary(column.type) else np.int32
        first, count = column.offset, len(column)
        self.offsets: npt.NDArray[Any] = (
            np.frombuffer(offsets, width)[first : first + count + 1] if count else np.zeros(1, width)
        )
        self.data: npt.NDArray[np.uint8] = np.frombuffer(b"" if data is None else data, np.uint8)
        self.nulls: npt.NDArray[np.bool_] | None = (
            column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None
        )

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def valid(self) -> npt.NDArray[np.bool_]:
        """Mask of the values that are not null."""
        return np.ones(len(self), np.bool_) if self.nulls is None else ~self.nulls


def crc32c(column: Any) -> pa.Array:
    """CRC-32C of every value, as it stands in the header of a record batch.

    Parameters
    ----------
    column : pyarrow.Array or pyarrow.ChunkedArray
        Binary or text.

    Returns
    -------
    pyarrow.Array of int64
        0 to 2^32 - 1.

    Examples
    --------
    >>> import pyarrow as pa
    >>> crc32c(pa.array([b"123456789", None])).to_pylist()
    [3808858755, None]
    """
    spans = Spans(column)
    out = np.empty(len(spans), np.uint32)
    _codec.crc32c_values(spans.offsets, spans.data, out)
    return pa.array(out.astype(np.int64), mask=spans.nulls)


def murmur2(column: Any) -> pa.Array:
    """Hash of every value by which Kafka's producers choose a partition, as a signed int32.

    Examples
    --------
    >>> import pyarrow as pa
    >>> murmur2(pa.array([b"21"])).to_pylist()
    [-973932308]
    """
    spans = Spans(column)
    out = np.empty(len(spans), np.int32)
    _codec.murmur2_values(spans.offsets, spans.data, out)
    return pa.array(out, mask=spans.nulls)


def kafka_partition(column: Any, partitions: int) -> pa.Array:
    """The partition to which Kafka's default partitioner sends a record with this key.

    Parameters
    ----------
    column : pyarrow.Array or pyarrow.ChunkedArray
        Keys. A null key gives null: the producer sends it anywhere.
    partitions : int
        How many the topic has.

    Returns
    -------
    pyarrow.Array of int32
    """
    if partitions < 1:
        raise RequestError(f"a topic has at least one partition, not {partitions}")
    hashes = murmur2(column)
    numbers = (hashes.fill_null(0).to_numpy() & 0x7FFFFFFF) % partitions
    return pa.array(numbers.astype(np.int32), mask=_nulls(hashes))


def decode_varint(column: Any, on_undecoded: RaiseOrNull = "raise") -> pa.Array:
    """The number that every value is as a ZigZag varint of up to 64 bits, as in Kafka's records; int64.

    Parameters
    ----------
    column : pyarrow.Array or pyarrow.ChunkedArray
        Binary; each value is one varint and nothing else.
    on_undecoded : {"raise", "null"}
        Action for a varint that is cut off, too long, or followed by other bytes.

    Raises
    ------
    CorruptionError
        With `on_undecoded` ``"raise"``.
    """
    return _read_varints(column, True, on_undecoded)


def decode_uvarint(column: Any, on_undecoded: RaiseOrNull = "raise") -> pa.Array:
    """The number that every value is as an unsigned varint of up to 32 bits; int64. Parameters as `decode_varint`."""
    return _read_varints(column, False, on_undecoded)


def _read_varints(column: Any, zigzag: bool, on_undecoded: RaiseOrNull) -> pa.Array:
    check_word("on_undecoded", on_undecoded, ("raise", "null"))
    spans = Spans(column)
    out, status = np.empty(len(spans), np.int64), np.empty(len(spans), np.uint8)
    _codec.read_varints(spans.offsets, spans.data, out, zigzag, status)
    bad = (status != 0) & spans.valid
    if bad.any() and on_undecoded == "raise":
        row = int(bad.argmax())
        raise bad_value(row, _codec.VARINT_REASONS[status[row]])
    return pa.array(out, mask=bad | ~spans.valid)


def encode_varint(column: Any) -> pa.Array:
    """Every integer as a ZigZag varint, 1 to 10 bytes.

    Examples
    --------
    >>> import pyarrow as pa
    >>> [value.hex() for value in encode_varint(pa.array([0, -1, 64])).to_pylist()]
    ['00', '01', '8001']
    """
    return _write_varints(column, True)


def encode_uvarint(column: Any) -> pa.Array:
    """Every integer as an unsigned varint, 1 to 5 bytes; a negative one counts as its 32-bit two's complement."""
    return _write_varints(column, False)


def _write_varints(column: Any, zigzag: bool) -> pa.Array:
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if not pa.types.is_integer(array.type):
        raise RequestError(f"varints are made of integers, not of {array.type}")
    numbers = np.ascontiguousarray(array.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False))
    if not zigzag and len(numbers) and not (numbers.min() >= -(1 << 31) and numbers.max() < 1 << 32):
        row = int(((numbers < -(1 << 31)) | (numbers >= 1 << 32)).argmax())
        raise RequestError(f"value {row}: {numbers[row]} does not fit in 32 bits")
    offsets = np.empty(len(numbers) + 1, np.int32)
    data = np.empty(_WIDEST_VARINT_BYTES * len(numbers), np.uint8)
    used = _codec.write_varints(numbers, zigzag, offsets, data)
    validity = None if not array.null_count else pa.py_buffer(np.packbits(~_nulls(array), bitorder="little"))
    buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(data[:used].copy())]
    return pa.Array.from_buffers(pa.binary(), len(numbers), buffers, array.null_count)


def confluent(column: Any, on_undecoded: RaiseOrNull = "raise") -> pa.Array:
    """Values in the wire format of Confluent's schema registry as struct<schemaId: int32, payload: binary>.

    Parameters
    ----------
    column : pyarrow.Array or pyarrow.ChunkedArray
        Binary: a byte 0, the id of the schema in four bytes (big-endian), the payload.
    on_undecoded : {"raise", "null"}
        Action for a value that is shorter or begins with another byte.

    Raises
    ------
    CorruptionError
        With `on_undecoded` ``"raise"``.
    """
    check_word("on_undecoded", on_undecoded, ("raise", "null"))
    spans = Spans(column)
    starts, sizes = spans.offsets[:-1].astype(np.int64), np.diff(spans.offsets)
    good = spans.valid & (sizes >= _CONFLUENT_HEAD_BYTES)
    heads = np.zeros((len(spans), _CONFLUENT_HEAD_BYTES), np.uint8)
    heads[good] = spans.data[starts[good, np.newaxis] + np.arange(_CONFLUENT_HEAD_BYTES)]
    good &= heads[:, 0] == 0
    bad = spans.valid & ~good
    if bad.any() and on_undecoded == "raise":
        row = int(bad.argmax())
        short = f"it has {sizes[row]} bytes, fewer than the {_CONFLUENT_HEAD_BYTES} of magic byte and schema id"
        magic = f"it begins with byte {heads[row, 0]}, not with the magic byte 0"
        raise bad_value(row, short if sizes[row] < _CONFLUENT_HEAD_BYTES else magic)
    ids = np.ascontiguousarray(heads[:, 1:]).view(">i4").reshape(-1).astype(np.int32)
    payload_size = np.where(good, sizes - _CONFLUENT_HEAD_BYTES, -1).astype(np.int32)
    payload = arrow.binary_array(starts + _CONFLUENT_HEAD_BYTES, payload_size, (spans.data,), pa.binary())
    mask = None if good.all() else pa.array(~good)
    return pa.StructArray.from_arrays([pa.array(ids), payload], fields=list(CONFLUENT), mask=mask)


def to_confluent(payload: Any, schema_id: int) -> pa.Array:
    """Payloads in the wire format of Confluent's schema registry, all of one schema; binary."""
    if not 0 <= schema_id < 1 << 31:
        raise RequestError(f"a schema id is a number from 0 to 2^31 - 1, not {schema_id}")
    array = Spans(payload, "payload").array.cast(pa.binary())
    head = pa.scalar(b"\0" + schema_id.to_bytes(4, "big"), pa.binary())
    return pc.binary_join_element_wise(head, array, pa.scalar(b"", pa.binary()))


def headers_map(column: Any) -> pa.Array:
    """Headers as a map of name to value: of several with one name the last counts, as Kafka's ``lastHeader`` has it.

    Parameters
    ----------
    column : pyarrow.Array or pyarrow.ChunkedArray
        List of structs of name and value, as records have them. Null stays null.

    Returns
    -------
    pyarrow.Array of map<string, binary>
    """
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    kind = array.type
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    if not (is_list and pa.types.is_struct(kind.value_type) and kind.value_type.num_fields == 2):
        raise RequestError(f"headers are a list of structs of name and value, not {kind}")
    counts = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    names, values = (array.flatten().flatten()[field] for field in (0, 1))
    names, values = names.cast(pa.string()), values.cast(pa.binary())
    row = np.repeat(np.arange(len(array)), counts)
    codes = names.dictionary_encode().indices.fill_null(0).to_numpy(zero_copy_only=False)
    pairs = row * (int(codes.max(initial=0)) + 1) + codes
    # The last one of each pair, in the order in which those stand.
    last = np.sort(len(pairs) - 1 - np.unique(pairs[::-1], return_index=True)[1])
    if len(last) < len(pairs):
        names, values = names.take(pa.array(last)), values.take(pa.array(last))
        counts = np.bincount(row[last], minlength=len(array))
    offsets = np.zeros(len(array) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    validity = None if not array.null_count else pa.py_buffer(np.packbits(~_nulls(array), bitorder="little"))
    entries = pa.StructArray.from_arrays(
        [names, values], fields=[pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())]
    )
    buffers = [validity, pa.py_buffer(offsets)]
    return pa.Array.from_buffers(HEADERS_MAP, len(array), buffers, array.null_count, children=[entries])


def bad_value(row: int, reason: str, position: int = 0) -> CorruptionError:
    """Return the error for one value of a column."""
    return CorruptionError(f"value {row} of the column", position, reason)


def _nulls(array: pa.Array) -> npt.NDArray[np.bool_]:
    mask: npt.NDArray[np.bool_] = array.is_null().to_numpy(zero_copy_only=False)
    return mask
