"""Producer snapshot: a broker's state of the producers of a partition at an offset.

A broker that restarts loads the last one and replays only the log after it. Rules: `docs/format.md`, "Producer
snapshot".
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any, NamedTuple

from pylogseg import _codec
from pylogseg.errors import CorruptionError, RequestError
from pylogseg.format.buffers import byte_view
from pylogseg.format.files.javamap import hash_of_long, map_order
from pylogseg.format.layout import SNAPSHOT_ENTRY, SNAPSHOT_HEADER

#: The only version there is.
VERSION = 1


class ProducerEntry(NamedTuple):
    """The state of one producer."""

    producer_id: int
    producer_epoch: int
    last_sequence: int  #: Of its last batch; -1, as the last offset, if only a marker was seen.
    last_offset: int
    offset_delta: int  #: Last less first sequence of that batch.
    timestamp: int  #: Of its last batch or marker, ms.
    coordinator_epoch: int  #: Of its last marker; -1 none.
    first_txn_offset: int  #: First offset of its open transaction; -1 none is open.

    @property
    def has_batch(self) -> bool:
        """True if a batch is remembered."""
        return self.last_offset >= 0

    @property
    def first_sequence(self) -> int:
        """The last batch's; sequences go on with 0 after 2^31-1. Meaningless without a batch."""
        return (self.last_sequence - self.offset_delta) & 0x7FFFFFFF

    @property
    def has_open_txn(self) -> bool:
        return self.first_txn_offset >= 0


def parse_snapshot(data: Any, path: str = "<producer snapshot>") -> list[ProducerEntry]:
    """Read a producer snapshot; the order of the file means nothing.

    Raises CorruptionError if the file is too short for its header or its count, the version is not 1, or the CRC does
    not match.
    """
    view = byte_view(data)
    if len(view) < SNAPSHOT_HEADER.size:
        raise CorruptionError(
            path, 0, f"producer snapshot of {len(view)} bytes, its header alone has {SNAPSHOT_HEADER.size}"
        )
    version, stored, count = SNAPSHOT_HEADER.struct.unpack_from(view)
    if version != VERSION:
        raise CorruptionError(path, 0, f"producer snapshot of version {version}, only {VERSION} is known")
    computed = _codec.crc32c(view[SNAPSHOT_HEADER["count"].offset :])
    if stored != computed:
        raise CorruptionError(path, SNAPSHOT_HEADER["crc"].offset, f"stored CRC {stored}, computed {computed}")
    body = view[SNAPSHOT_HEADER.size :]
    if not 0 <= count <= len(body) // SNAPSHOT_ENTRY.size:
        reason = f"{count} entries of {SNAPSHOT_ENTRY.size} bytes declared, {len(body)} bytes there"
        raise CorruptionError(path, SNAPSHOT_HEADER["count"].offset, reason)
    rows = SNAPSHOT_ENTRY.struct.iter_unpack(body[: count * SNAPSHOT_ENTRY.size])
    return [ProducerEntry._make(row) for row in rows]


def encode_snapshot(entries: Iterable[ProducerEntry], *, most_entries: int = 0) -> bytes:
    """Make the bytes of a producer snapshot, in the order of Kafka's map.

    The entries come in the order in which the producers were first seen; `most_entries` is how many that map ever had,
    which its order depends on. Raises RequestError if a producer id comes twice, or a number does not fit its field.
    """
    ordered = map_order(entries, lambda entry: hash_of_long(entry.producer_id), most_entries)
    if len({entry.producer_id for entry in ordered}) != len(ordered):
        raise RequestError("a producer id comes twice")
    try:
        body = b"".join([SNAPSHOT_ENTRY.struct.pack(*entry) for entry in ordered])
    except struct.error as error:
        raise RequestError(f"producer entry: {error}") from None
    checked = struct.pack(">i", len(ordered)) + body
    return struct.pack(">hI", VERSION, _codec.crc32c(checked)) + checked
