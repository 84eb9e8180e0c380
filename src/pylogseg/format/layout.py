"""The one table of every structure that Kafka's storage writes: names, byte places and types.

`docs/format.md` shows the same tables and `tests/format/test_layout.py` compares the two, so neither can drift. The
parsers of `pylogseg.format.files` and `pylogseg.format.control` take their `struct` formats and dtypes from here; the
kernels have their own constants, which the tests hold against this table.

All integers are big-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np

#: Type names of fixed-width fields: byte width and the letter that `struct` has for it.
WIDTHS = {"i8": 1, "i16": 2, "i32": 4, "u32": 4, "i64": 8}
_LETTERS = {"i8": "b", "i16": "h", "i32": "i", "u32": "I", "i64": "q"}


class Field(NamedTuple):
    """A field of a fixed structure, some bytes from its start; `type` is one of `WIDTHS`."""

    offset: int
    type: str
    name: str

    @property
    def width(self) -> int:
        return WIDTHS[self.type]


class Structure:
    """A run of bytes with fields at fixed places and no gaps between them; docs/format.md has a table of that name."""

    def __init__(self, name: str, *fields: tuple[int, str, str]) -> None:
        self.name = name
        self.fields = tuple(Field(*field) for field in fields)
        self._by_name = {field.name: field for field in self.fields}
        end = 0
        for field in self.fields:
            if field.offset != end:
                raise ValueError(f"{name}: {field.name} is at {field.offset}, the field before it ends at {end}")
            end += field.width
        #: Bytes of the whole structure.
        self.size = end
        #: The fields as a `struct.Struct`.
        self.struct = struct.Struct(">" + "".join(_LETTERS[field.type] for field in self.fields))

    def __iter__(self) -> Iterator[Field]:
        return iter(self.fields)

    def __getitem__(self, name: str) -> Field:
        return self._by_name[name]

    def __repr__(self) -> str:
        return f"Structure({self.name!r}, {self.size} bytes)"

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """The fields as a packed big-endian numpy dtype, for views of many such structures without a copy."""
        import numpy as np

        kinds = [(field.name, f">{field.type[0]}{field.width}") for field in self.fields]
        return np.dtype(kinds)


#: Before every entry of a log file, whatever its magic.
LOG_OVERHEAD = Structure(
    "Log overhead",
    (0, "i64", "offset"),
    (8, "i32", "size"),
)

#: A legacy message up to its key length; the bytes of key and value follow.
MESSAGE_V0 = Structure(
    "Message, magic 0",
    (0, "i64", "offset"),
    (8, "i32", "size"),
    (12, "u32", "crc"),
    (16, "i8", "magic"),
    (17, "i8", "attributes"),
    (18, "i32", "key_size"),
)

MESSAGE_V1 = Structure(
    "Message, magic 1",
    (0, "i64", "offset"),
    (8, "i32", "size"),
    (12, "u32", "crc"),
    (16, "i8", "magic"),
    (17, "i8", "attributes"),
    (18, "i64", "timestamp"),
    (26, "i32", "key_size"),
)

BATCH_HEADER = Structure(
    "Record batch header, magic 2",
    (0, "i64", "base_offset"),
    (8, "i32", "size"),
    (12, "i32", "leader_epoch"),
    (16, "i8", "magic"),
    (17, "u32", "crc"),
    (21, "i16", "attributes"),
    (23, "i32", "last_offset_delta"),
    (27, "i64", "base_timestamp"),
    (35, "i64", "max_timestamp"),
    (43, "i64", "producer_id"),
    (51, "i16", "producer_epoch"),
    (53, "i32", "base_sequence"),
    (57, "i32", "count"),
)

#: Bytes of a batch of magic 2 before its records.
BATCH_HEADER_BYTES = BATCH_HEADER.size

OFFSET_INDEX_ENTRY = Structure(
    "Offset index entry",
    (0, "i32", "relative_offset"),
    (4, "i32", "position"),
)

TIME_INDEX_ENTRY = Structure(
    "Time index entry",
    (0, "i64", "timestamp"),
    (8, "i32", "relative_offset"),
)

TXN_INDEX_ENTRY = Structure(
    "Transaction index entry",
    (0, "i16", "version"),
    (2, "i64", "producer_id"),
    (10, "i64", "first_offset"),
    (18, "i64", "last_offset"),
    (26, "i64", "last_stable_offset"),
)

SNAPSHOT_HEADER = Structure(
    "Producer snapshot header",
    (0, "i16", "version"),
    (2, "u32", "crc"),
    (6, "i32", "count"),
)

SNAPSHOT_ENTRY = Structure(
    "Producer snapshot entry",
    (0, "i64", "producer_id"),
    (8, "i16", "producer_epoch"),
    (10, "i32", "last_sequence"),
    (14, "i64", "last_offset"),
    (22, "i32", "offset_delta"),
    (26, "i64", "timestamp"),
    (34, "i32", "coordinator_epoch"),
    (38, "i64", "first_txn_offset"),
)

CONTROL_KEY = Structure(
    "Control record key",
    (0, "i16", "version"),
    (2, "i16", "type"),
)

END_TXN_MARKER = Structure(
    "End transaction marker",
    (0, "i16", "version"),
    (2, "i32", "coordinator_epoch"),
)

#: Every fixed structure, in the order of `docs/format.md`.
STRUCTURES = (
    LOG_OVERHEAD,
    MESSAGE_V0,
    MESSAGE_V1,
    BATCH_HEADER,
    OFFSET_INDEX_ENTRY,
    TIME_INDEX_ENTRY,
    TXN_INDEX_ENTRY,
    SNAPSHOT_HEADER,
    SNAPSHOT_ENTRY,
    CONTROL_KEY,
    END_TXN_MARKER,
)
