"""The frame in front of a message in a record: its type and version.

Topics of coordinators have both in two bytes, the type in the key and the version in the value. The metadata log, its
snapshots and the topic of remote segments have no keys; a value begins with three unsigned varints.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from pylogseg import _codec
from pylogseg.errors import CorruptionError, RequestError
from pylogseg.format.messages.codec import MalformedError, decode_message, encode_message
from pylogseg.format.messages.schema import Message, by_number, message
from pylogseg.format.names import METADATA_TOPIC

#: Topics by the part of Kafka that writes them.
HOMES = {
    "__consumer_offsets": "group-coordinator",
    "__transaction_state": "transaction-coordinator",
    "__share_group_state": "share-coordinator",
    METADATA_TOPIC: "metadata",
    "__remote_log_metadata": "storage",
}
COORDINATOR_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
_FRAME_VERSION = 1


class Part(NamedTuple):
    """A key or a value of a record.

    Attributes
    ----------
    message : Message or None
        None for an unknown type.
    number, version : int
        Type and version as in the record; a key of a coordinator has version 0.
    fields : dict or None
        None for an unknown type or version, and for a null value.
    trailing : bytes
        What is left behind the last field; all of it if nothing could be decoded.
    """

    message: Message | None
    number: int
    version: int
    fields: dict[str, Any] | None
    trailing: bytes = b""


def _corrupt(error: Exception, what: str, data: bytes, path: str, offset: int | None) -> CorruptionError:
    return CorruptionError(path, 0, f"{what} of {len(data)} bytes: {error}", offset)


def _decode(kind: Message | None, number: int, version: int, data: bytes, at: int) -> Part:
    if kind is None or not kind.versions.has(version):
        return Part(kind, number, version, None, data[at:])
    fields, end = decode_message(kind, version, data, at)
    return Part(kind, number, version, fields, data[end:])


def _int16(data: bytes) -> int:
    if len(data) < 2:
        raise MalformedError("two bytes are needed for its type or version")
    return int.from_bytes(data[:2], "big", signed=True)


def decode_coordinator(
    topic: str, key: bytes, value: bytes | None, path: str = "<record>", offset: int | None = None
) -> tuple[Part, Part]:
    """Decode a record of a coordinator's topic.

    Returns
    -------
    (key, value) : tuple of Part
        The fields of a tombstone's value are None, and its version is -1.

    Raises
    ------
    CorruptionError
        If the bytes of a known type and version are malformed.
    """
    home = HOMES[topic]
    try:
        number = _int16(key)
        first = _decode(by_number(home, "coordinator-key").get(number), number, 0, key, 2)
    except MalformedError as error:
        raise _corrupt(error, "key", key, path, offset) from None
    if value is None:
        return first, Part(by_number(home, "coordinator-value").get(number), number, -1, None)
    try:
        version = _int16(value)
        return first, _decode(by_number(home, "coordinator-value").get(number), number, version, value, 2)
    except MalformedError as error:
        raise _corrupt(error, "value", value, path, offset) from None


def decode_framed(topic: str, value: bytes, path: str = "<record>", offset: int | None = None) -> Part:
    """Decode a value of the metadata log or of the topic of remote segments.

    Raises
    ------
    CorruptionError
        If the frame is none, or the bytes of a known type and version are malformed.
    """
    try:
        frame, at = _codec.decode_uvarint(value, 0)
        if frame != _FRAME_VERSION:
            raise MalformedError(f"frame version {frame} is not {_FRAME_VERSION}")
        number, at = _codec.decode_uvarint(value, at)
        version, at = _codec.decode_uvarint(value, at)
        kind = by_number(HOMES[topic], "metadata").get(number)
        return _decode(kind, number, version, value, at)
    except ValueError as error:
        raise _corrupt(error, "metadata record", value, path, offset) from None


def encode_coordinator(
    name: str, key: dict[str, Any], version: int = 0, value: dict[str, Any] | None = None
) -> tuple[bytes, bytes | None]:
    """Encode a record of a coordinator's topic; without a value it is a tombstone.

    Parameters
    ----------
    name : str
        Of the record, as ``"OffsetCommit"``.
    key : dict
        Its fields.
    version : int
        Of the value.
    value : dict, optional
        Its fields.
    """
    of_key = message(f"{name}Key")
    raw = int(of_key.number or 0).to_bytes(2, "big") + encode_message(of_key, 0, key)
    if value is None:
        return raw, None
    return raw, version.to_bytes(2, "big") + encode_message(message(f"{name}Value"), version, value)


def encode_framed(name: str, version: int, fields: dict[str, Any]) -> bytes:
    """Encode a value of the metadata log or of the topic of remote segments."""
    of = message(name)
    if of.kind != "metadata" or of.number is None:
        raise RequestError(f"{name} is not a record of the metadata log")
    head = b"".join(map(_codec.encode_uvarint, (_FRAME_VERSION, of.number, version)))
    return head + encode_message(of, version, fields)
