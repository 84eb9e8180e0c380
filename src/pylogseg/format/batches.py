"""The batch table: one row per record batch, as numpy columns, and the scan that fills it.

A row is what the header says (`docs/format.md`, "Record batch header, magic 2") and a verdict. Nothing here decodes a
record.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pylogseg import _codec
from pylogseg.errors import Ending
from pylogseg.format.buffers import byte_view

#: Choices among rows or records, and offsets of them.
Mask = npt.NDArray[np.bool_]
OffsetArray = npt.NDArray[np.int64]

#: One row of the batch table. `_native/kernels/batch.pxd` has the same structure; `tests/format/test_batches.py`
#: compares the two.
BATCH_DTYPE = np.dtype(
    [
        ("position", "i8"),  # byte position of the batch in its file
        ("base_offset", "i8"),  # a compressed legacy wrapper does not tell: there it is last_offset
        ("last_offset", "i8"),
        ("base_timestamp", "i8"),  # ms; the delete horizon where attribute bit 6 is set
        ("max_timestamp", "i8"),  # ms; -1 none
        ("producer_id", "i8"),  # -1 none
        ("size", "i4"),  # bytes of the whole batch, the 12 bytes of offset and length included
        ("leader_epoch", "i4"),  # -1 unknown, and in legacy batches
        ("base_sequence", "i4"),  # -1 none
        ("count", "i4"),  # records that the header declares; -1 in a compressed legacy wrapper, which does not tell
        ("crc", "u4"),  # as stored
        ("attributes", "i2"),
        ("producer_epoch", "i2"),
        ("magic", "i1"),
        ("verdict", "u1"),  # errors.Verdict
        ("pad", "V6"),
    ]
)

_NO_BYTES = np.empty(0, np.uint8)
_CODEC_MASK = 0x07
_LOG_APPEND = 0x08
_TRANSACTIONAL = 0x10
_CONTROL = 0x20
_DELETE_HORIZON = 0x40


class Summary(NamedTuple):
    """Properties of all rows of a batch table, and its beginning and end.

    Attributes
    ----------
    lowest_last_offset, highest_base_offset : int
    lowest_magic, highest_magic : int
    any_attributes, common_attributes : int
        Attribute bits that are set in some row, and in every row.
    ascends : bool
        True if no offset is negative, and each batch begins after the end of the one before it.
    is_overfull : bool
        True if a batch of magic 2 says that it has more records than offsets.
    first_base_offset : int
        Of the first row.
    offset_before_last : int or None
        Last offset of the row before the last one, None if there is one row.
    last_base_offset, last_offset, end_position : int
        Of the last row: its offsets, and the position of the byte after it.
    """

    lowest_last_offset: int
    highest_base_offset: int
    lowest_magic: int
    highest_magic: int
    any_attributes: int
    common_attributes: int
    ascends: bool
    is_overfull: bool
    first_base_offset: int
    offset_before_last: int | None
    last_base_offset: int
    last_offset: int
    end_position: int

    @property
    def is_compressed(self) -> bool:
        """True if any batch may be."""
        return bool(self.any_attributes & _CODEC_MASK)

    @property
    def codec(self) -> int | None:
        """The codec of all batches, None if they differ."""
        differs = (self.any_attributes ^ self.common_attributes) & _CODEC_MASK
        return None if differs else self.any_attributes & _CODEC_MASK

    @property
    def has_control(self) -> bool:
        """True if any may be a control batch."""
        return bool(self.any_attributes & _CONTROL)

    @property
    def is_ordinary(self) -> bool:
        """True if none is transactional, a control batch, or has a delete horizon."""
        return not self.any_attributes & (_TRANSACTIONAL | _CONTROL | _DELETE_HORIZON)

    @property
    def timestamp_type(self) -> int | None:
        """The timestamp type of all batches, None if they differ."""
        if self.lowest_magic != self.highest_magic or (self.any_attributes ^ self.common_attributes) & _LOG_APPEND:
            return None
        return -1 if not self.highest_magic else int(bool(self.any_attributes & _LOG_APPEND))


class BatchTable:
    """Rows about record batches, with a numpy column for every field.

    Parameters
    ----------
    rows : numpy.ndarray
        Structured array of `BATCH_DTYPE`. The table does not copy it.

    Notes
    -----
    Every field of `BATCH_DTYPE` is an attribute that returns a view (strided, not contiguous) of that column;
    the flags are computed. Indexing with a mask, a slice or an index array gives a smaller table.
    """

    __slots__ = ("_summary", "rows")

    def __init__(self, rows: npt.NDArray[Any]) -> None:
        self.rows = rows
        self._summary: Summary | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, which: Any) -> BatchTable:
        return BatchTable(self.rows[which])

    def __getattr__(self, name: str) -> npt.NDArray[Any]:
        if name in _FIELDS:
            column: npt.NDArray[Any] = self.rows[name]
            return column
        raise AttributeError(name)

    def __repr__(self) -> str:
        if not len(self):
            return "BatchTable(0 batches)"
        return (
            f"BatchTable({len(self)} batches, offsets {self.rows['base_offset'][0]} to {self.rows['last_offset'][-1]})"
        )

    def summary(self) -> Summary:
        """Properties of all rows, of which there must be one: cheaper than a scan of a column, and cached."""
        if self._summary is None:
            self._summary = Summary(*_codec.survey(np.ascontiguousarray(self.rows)))
        return self._summary

    @property
    def next_offset(self) -> npt.NDArray[np.int64]:
        """Offset after the last one of each batch."""
        return np.asarray(self.rows["last_offset"] + 1)

    @property
    def codec(self) -> npt.NDArray[np.int16]:
        """Codec number (`CODECS` of `format/codecs.py`; 5 to 7 are no codec)."""
        return np.asarray(self.rows["attributes"] & _CODEC_MASK)

    @property
    def is_log_append_time(self) -> npt.NDArray[np.bool_]:
        """True if the broker's clock set the timestamps; never in magic 0."""
        return np.asarray((self.rows["attributes"] & _LOG_APPEND != 0) & (self.rows["magic"] > 0))

    @property
    def timestamp_type(self) -> npt.NDArray[np.int32]:
        """0 CreateTime, 1 LogAppendTime, -1 none (magic 0)."""
        kind = self.is_log_append_time.astype(np.int32)
        kind[self.rows["magic"] == 0] = -1
        return kind

    @property
    def is_transactional(self) -> npt.NDArray[np.bool_]:
        """True if the batch belongs to a transaction (its marker too)."""
        return self._flag(_TRANSACTIONAL)

    @property
    def is_control(self) -> npt.NDArray[np.bool_]:
        """True if the batch holds control records, which are not data."""
        return self._flag(_CONTROL)

    @property
    def has_delete_horizon(self) -> npt.NDArray[np.bool_]:
        """True if ``base_timestamp`` is a delete horizon (KIP-534)."""
        return self._flag(_DELETE_HORIZON)

    def _flag(self, bit: int) -> npt.NDArray[np.bool_]:
        return np.asarray((self.rows["attributes"] & bit != 0) & (self.rows["magic"] == 2))


_FIELDS = frozenset(BATCH_DTYPE.names or ()) - {"pad"}


def joined_rows(parts: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Return rows of batch tables back to back, copied as bytes: numpy itself takes them field by field.

    The rows of one table alone are not copied.
    """
    if len(parts) == 1:
        return parts[0]
    return np.concatenate([_NO_BYTES, *(np.ascontiguousarray(part).view(np.uint8) for part in parts)]).view(BATCH_DTYPE)


class Scan(NamedTuple):
    """Result of a scan.

    Attributes
    ----------
    batches : BatchTable
        The whole batches, good or with a bad CRC, in the order of the file.
    position : int
        File position where the scan ended: the end of the last whole batch.
    ending : Ending
        Why it ended there.
    """

    batches: BatchTable
    position: int
    ending: Ending


def scan(
    buffer: Any,
    *,
    start: int = 0,
    end: int | None = None,
    file_position: int = 0,
    crc: bool = True,
    max_rows: int | None = None,
    any_magic: bool = False,
) -> Scan:
    """Read the headers of all batches in a buffer, and check their CRCs.

    Parameters
    ----------
    buffer : buffer
        Contiguous bytes: ``bytes``, ``bytearray``, ``memoryview``, ``mmap`` or a numpy array of bytes. Read, not kept.
    start, end : int
        The part of the buffer to scan, in bytes from its start; the end is the buffer's by default.
    file_position : int
        Where byte 0 of the buffer lies in its file; positions in the result are positions in the file.
    crc : bool
        True if to check the CRC of each batch; without, the verdicts are ``UNCHECKED``.
    max_rows : int, optional
        Stop after so many batches, with ``Ending.MORE``.
    any_magic : bool
        Take a magic above 2 for 2, as Kafka's own reading of files does, instead of ending there.

    Returns
    -------
    Scan
        Never raises for what the bytes hold: a bad CRC is a verdict, a damaged length an ending.
    """
    view = byte_view(buffer)
    stop = len(view) if end is None else end
    parts: list[npt.NDArray[Any]] = []
    left = max_rows
    # A row a KiB is a guess that costs little when wrong, for the next table is larger; a batch has at least 26 bytes.
    room = min(max((stop - start) // 1024, 16), 1 << 16)
    while True:
        rows = np.empty(room if left is None else min(room, left), BATCH_DTYPE)
        count, start, ending = _codec.scan(view, start, stop, file_position, rows, crc, any_magic)
        parts.append(rows[:count])
        if left is not None:
            left -= count
        if ending != Ending.MORE or left == 0:
            break
        room = min(4 * room, 1 << 16)
    return Scan(BatchTable(joined_rows(parts)), file_position + start, Ending(ending))
