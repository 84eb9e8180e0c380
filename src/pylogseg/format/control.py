"""Keys of control records, and markers that end transactions.

A control record is the key and value of a record in a batch with attribute bit 5. `format/messages/control.py`
decodes the values. Rules: `docs/format.md`, "Control records".
"""

from __future__ import annotations

import enum
import struct
from typing import Any, NamedTuple

from pylogseg.errors import CorruptionError, RequestError
from pylogseg.format.buffers import byte_view
from pylogseg.format.layout import CONTROL_KEY, END_TXN_MARKER


class ControlKind(enum.IntEnum):
    """Kind of a control record. The value is the number in its key, except for ``UNKNOWN``."""

    UNKNOWN = -1
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6

    @property
    def ends_transaction(self) -> bool:
        """True if it is a marker: a commit or an abort."""
        return self in (ControlKind.ABORT, ControlKind.COMMIT)


class ControlKey(NamedTuple):
    """The key of a control record."""

    kind: ControlKind  #: `UNKNOWN` for a type that is not in the list; readers skip such records.
    version: int  #: Any version above 0 is read as 0.
    type: int  #: The number as stored.


def decode_control_key(key: Any, path: str = "<control record>", position: int = 0) -> ControlKey:
    """Read the key of a control record; CorruptionError if it is shorter than 4 bytes or has a negative version."""
    view = byte_view(b"" if key is None else key)
    if len(view) < CONTROL_KEY.size:
        raise CorruptionError(path, position, f"control record key of {len(view)} bytes, it needs {CONTROL_KEY.size}")
    version, number = CONTROL_KEY.struct.unpack_from(view)
    if version < 0:
        raise CorruptionError(path, position, f"control record key of version {version}")
    is_defined = ControlKind.ABORT <= number <= ControlKind.KRAFT_VOTERS
    return ControlKey(ControlKind(number) if is_defined else ControlKind.UNKNOWN, version, number)


def encode_marker(kind: ControlKind, coordinator_epoch: int, version: int = 0) -> tuple[bytes, bytes]:
    """Make key and value of a marker; RequestError for another kind, and a number that does not fit."""
    if not kind.ends_transaction:
        raise RequestError(f"a marker is a commit or an abort, not {kind.name}")
    try:
        return CONTROL_KEY.struct.pack(0, kind), END_TXN_MARKER.struct.pack(version, coordinator_epoch)
    except struct.error as error:
        raise RequestError(f"marker of version {version} with coordinator epoch {coordinator_epoch}: {error}") from None
