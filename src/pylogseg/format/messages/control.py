"""Values of control records: markers that end transactions, and KRaft's control records."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pylogseg.errors import CorruptionError, RequestError
from pylogseg.format.buffers import byte_view
from pylogseg.format.control import ControlKey, ControlKind, decode_control_key, encode_marker
from pylogseg.format.layout import CONTROL_KEY, END_TXN_MARKER
from pylogseg.format.messages.codec import MalformedError, decode_message, encode_message, in_version
from pylogseg.format.messages.program import heads
from pylogseg.format.messages.schema import Message, message
from pylogseg.format.records import RecordColumns

#: The messages of the kinds that KRaft writes.
KRAFT_MESSAGES = {
    ControlKind.LEADER_CHANGE: "LeaderChangeMessage",
    ControlKind.SNAPSHOT_HEADER: "SnapshotHeaderRecord",
    ControlKind.SNAPSHOT_FOOTER: "SnapshotFooterRecord",
    ControlKind.KRAFT_VERSION: "KRaftVersionRecord",
    ControlKind.KRAFT_VOTERS: "VotersRecord",
}


class ControlRecord(NamedTuple):
    """A decoded control record."""

    key: ControlKey
    fields: dict[str, Any]  #: The value's, under the names of Kafka's JSON, in the order of the bytes; UUIDs as text.
    rest: bytes = b""  #: What the known fields leave over: of a newer version, or the value of an unknown kind.


def kraft_message(kind: ControlKind, version: int) -> tuple[Message, int]:
    """Return the message of a kind, and the version by which a value is read: a newer one as the newest known."""
    schema = message(KRAFT_MESSAGES[kind])
    return schema, min(version, schema.versions.last)


def decode_control(key: Any, value: Any, path: str = "<control record>", position: int = 0) -> ControlRecord:
    """Decode a control record; `path` and `position` are the value's, for errors.

    A newer version is read as the newest known one. Raises CorruptionError if the key or the value is cut off, has a
    negative version, or holds a length that its bytes do not allow.
    """
    head = decode_control_key(key, path, position)
    data = b"" if value is None else bytes(byte_view(value))
    if head.kind is ControlKind.UNKNOWN:
        return ControlRecord(head, {}, data)
    if len(data) < 2:
        raise CorruptionError(path, position, f"{head.kind.name} value of {len(data)} bytes has no version")
    version = int.from_bytes(data[:2], "big", signed=True)
    if version < 0:
        raise CorruptionError(path, position, f"{head.kind.name} value of version {version}")
    if not head.kind.ends_transaction:
        of, newest = kraft_message(head.kind, version)
        try:
            fields, end = decode_message(of, newest, data)
        except MalformedError as error:
            raise CorruptionError(path, position, f"control record value of {len(data)} bytes: {error}") from None
        return ControlRecord(head, in_version(of.fields, newest, fields), data[end:])
    if len(data) < END_TXN_MARKER.size:
        reason = f"{head.kind.name} marker of {len(data)} bytes, it needs {END_TXN_MARKER.size}"
        raise CorruptionError(path, position, reason)
    _, epoch = END_TXN_MARKER.struct.unpack_from(data)
    return ControlRecord(head, {"version": version, "coordinatorEpoch": epoch}, data[END_TXN_MARKER.size :])


def encode_control(kind: ControlKind, fields: dict[str, Any]) -> tuple[bytes, bytes]:
    """Make key and value of a control record from the fields of `decode_control`, or from their defaults.

    Raises RequestError for a field that there is not, and for one that does not fit its type.
    """
    if kind is ControlKind.UNKNOWN:
        raise RequestError("a control record of an unknown kind cannot be made")
    if kind.ends_transaction:
        if not {"coordinatorEpoch"} <= fields.keys() <= {"version", "coordinatorEpoch"}:
            raise RequestError(f"a marker has the fields version and coordinatorEpoch, not {', '.join(fields)}")
        return encode_marker(kind, fields["coordinatorEpoch"], fields.get("version", 0))
    of = message(KRAFT_MESSAGES[kind])
    return CONTROL_KEY.struct.pack(0, kind), encode_message(of, fields.get("version", 0), fields)


def control_kinds(columns: RecordColumns) -> npt.NDArray[np.int32]:
    """The `ControlKind` of each control record; UNKNOWN also where the key is none."""
    kinds = heads(columns.key_place + 2, columns.key_size - 2, columns.sources, framed=False).number
    version = heads(columns.key_place, columns.key_size, columns.sources, framed=False).number
    is_kind = (kinds >= ControlKind.ABORT) & (kinds <= ControlKind.KRAFT_VOTERS) & (version >= 0) & (version < 0x8000)
    return np.where(is_kind, kinds, np.int32(ControlKind.UNKNOWN))
