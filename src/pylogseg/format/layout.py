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
    #: magic 2: of the first record; else of the message; of a compressed one of the *last* inside
    (0, "i64", "offset"),
    (8, "i32", "size"),  #: bytes after this field; the entry takes 12 more
)

#: A legacy message up to its key length; the bytes of key and value follow.
MESSAGE_V0 = Structure(
    "Message, magic 0",
    (0, "i64", "offset"),
    (8, "i32", "size"),  #: at least 14
    (12, "u32", "crc"),  #: CRC-32 (as in zlib) of everything from byte 16 on
    (16, "i8", "magic"),  #: 0
    (17, "i8", "attributes"),  #: bits 0-2: codec, 0 none, 1 gzip, 2 snappy, 3 lz4
    (18, "i32", "key_size"),  #: -1: the key is null
)

MESSAGE_V1 = Structure(
    "Message, magic 1",
    (0, "i64", "offset"),
    (8, "i32", "size"),  #: at least 22
    (12, "u32", "crc"),  #: CRC-32 of everything from byte 16 on
    (16, "i8", "magic"),  #: 1
    (17, "i8", "attributes"),  #: as magic 0, and bit 3: 0 CreateTime, 1 LogAppendTime
    (18, "i64", "timestamp"),  #: ms; -1 none
    (26, "i32", "key_size"),  #: -1: the key is null
)

BATCH_HEADER = Structure(
    "Record batch header, magic 2",
    (0, "i64", "base_offset"),  #: of the first record; outside of the CRC
    (8, "i32", "size"),  #: bytes after this field, at least 49
    (12, "i32", "leader_epoch"),  #: -1 unknown; outside of the CRC
    (16, "i8", "magic"),  #: 2
    (17, "u32", "crc"),  #: CRC-32C of everything from byte 21 on
    (21, "i16", "attributes"),  #: see below
    (23, "i32", "last_offset_delta"),  #: last offset less base offset; compaction leaves it as it was
    #: ms, that of the first record; with attribute bit 6 the delete horizon; -1 in an empty batch
    (27, "i64", "base_timestamp"),
    (35, "i64", "max_timestamp"),  #: ms; with LogAppendTime the time of all records
    (43, "i64", "producer_id"),  #: -1 none
    (51, "i16", "producer_epoch"),  #: -1 none
    (53, "i32", "base_sequence"),  #: -1 none
    (57, "i32", "count"),  #: records that follow; after compaction maybe fewer than offsets, or 0
)

#: Bytes of a batch of magic 2 before its records.
BATCH_HEADER_BYTES = BATCH_HEADER.size

OFFSET_INDEX_ENTRY = Structure(
    "Offset index entry",
    (0, "i32", "relative_offset"),  #: last offset of a batch, less the segment's base offset
    (4, "i32", "position"),  #: byte where that batch begins in the `.log`
)

TIME_INDEX_ENTRY = Structure(
    "Time index entry",
    (0, "i64", "timestamp"),  #: greatest timestamp in the segment so far, ms
    (8, "i32", "relative_offset"),  #: last offset of the first batch that has it, less the base offset
)

TXN_INDEX_ENTRY = Structure(
    "Transaction index entry",
    (0, "i16", "version"),  #: 0; Kafka looks at the first byte alone and refuses 1 to 127 there
    (2, "i64", "producer_id"),  #: whose transaction
    (10, "i64", "first_offset"),  #: its first record
    (18, "i64", "last_offset"),  #: its abort marker
    (26, "i64", "last_stable_offset"),  #: of the log when it was aborted
)

SNAPSHOT_HEADER = Structure(
    "Producer snapshot header",
    (0, "i16", "version"),  #: 1
    (2, "u32", "crc"),  #: CRC-32C of everything from byte 6 on
    (6, "i32", "count"),  #: entries that follow
)

SNAPSHOT_ENTRY = Structure(
    "Producer snapshot entry",
    (0, "i64", "producer_id"),
    (8, "i16", "producer_epoch"),
    (10, "i32", "last_sequence"),  #: of its last batch; -1 none is remembered
    (14, "i64", "last_offset"),  #: of that batch; -1 none
    (22, "i32", "offset_delta"),  #: last less first sequence of that batch
    (26, "i64", "timestamp"),  #: ms, of its last batch or marker
    (34, "i32", "coordinator_epoch"),  #: of its last marker; -1 none
    (38, "i64", "first_txn_offset"),  #: where its open transaction begins; -1 none is open
)

CONTROL_KEY = Structure(
    "Control record key",
    (0, "i16", "version"),  #: 0; readers take later ones as 0
    #: 0 abort, 1 commit, 2 leader change, 3 snapshot header, 4 snapshot footer, 5 KRaft version, 6 KRaft voters
    (2, "i16", "type"),
)

END_TXN_MARKER = Structure(
    "End transaction marker",
    (0, "i16", "version"),  #: 0; later ones begin alike
    (2, "i32", "coordinator_epoch"),  #: of the transaction coordinator that wrote it
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
