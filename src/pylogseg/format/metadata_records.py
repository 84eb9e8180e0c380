"""Records of the metadata log of a KRaft cluster, those that say which topics there are, where, and how they are set.

A value is a frame version, the number of the record's type and a version, each an unsigned varint, then the fields in
Kafka's flexible serialization. Other types than the ones here are skipped. Rules: `docs/format.md`, "Metadata
records".
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from pylogseg import _codec
from pylogseg.errors import CorruptionError
from pylogseg.format.buffers import byte_view
from pylogseg.format.control import format_uuid

#: ``resourceType`` of a configuration record: of a topic, of a broker (all of them, if its name is empty).
TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4
_FRAME_VERSION = 1
#: Tag of the replicas in a change of a partition.
_REPLICAS_TAG = 2
#: And of their log directories.
_DIRECTORIES_TAG = 8


class TopicRecord(NamedTuple):
    """A topic was made."""

    name: str
    topic_id: str


class RemoveTopicRecord(NamedTuple):
    """A topic was deleted, with its settings."""

    topic_id: str


class PartitionRecord(NamedTuple):
    """A partition was made, or given other replicas.

    Attributes
    ----------
    topic_id : str
    partition : int
    replicas : tuple of int or None
        Ids of brokers; None for a change of something else.
    directories : tuple of str or None
        Ids of their log directories, in the same order; None where that is not said.
    """

    topic_id: str
    partition: int
    replicas: tuple[int, ...] | None
    directories: tuple[str, ...] | None = None


class ConfigRecord(NamedTuple):
    """A setting.

    Attributes
    ----------
    resource_type : int
        `TOPIC_RESOURCE`, `BROKER_RESOURCE` or another.
    resource : str
        The topic, or the id of the broker; empty for all brokers.
    name : str
    value : str or None
        None: the setting goes back to its default.
    """

    resource_type: int
    resource: str
    name: str
    value: str | None


class TransactionRecord(NamedTuple):
    """Several records count together, or not at all.

    Attributes
    ----------
    step : {"begin", "end", "abort"}
    """

    step: str


MetadataRecord = TopicRecord | RemoveTopicRecord | PartitionRecord | ConfigRecord | TransactionRecord
_STEPS = {23: "begin", 24: "end", 25: "abort"}


def decode_metadata_record(
    value: Any, path: str = "<metadata record>", offset: int | None = None
) -> MetadataRecord | None:
    """Read the value of a record of the metadata log.

    Parameters
    ----------
    value : buffer
        As in the record.
    path, offset : str, int
        Where the record lies, for the error.

    Returns
    -------
    record or None
        None for a type that says nothing of topics and settings. Fields that a newer version adds after those known
        are skipped.

    Raises
    ------
    CorruptionError
        If the bytes end too early or hold a length that they do not allow.
    """
    data = bytes(byte_view(b"" if value is None else value))
    try:
        fields = _Fields(data)
        frame = fields.uvarint()
        if frame != _FRAME_VERSION:
            raise ValueError(f"frame version {frame} is not {_FRAME_VERSION}")
        kind, version = fields.uvarint(), fields.uvarint()
        return _decode(fields, kind, version)
    except ValueError as error:  # UnicodeDecodeError is one
        raise CorruptionError(path, 0, f"metadata record of {len(data)} bytes: {error}", offset) from None


def _decode(fields: _Fields, kind: int, version: int) -> MetadataRecord | None:
    if kind == 2:
        return TopicRecord(fields.text(), fields.uuid())
    if kind == 3:
        partition, topic_id = fields.int32(), fields.uuid()
        replicas = fields.int32s()
        if version < 1:
            return PartitionRecord(topic_id, partition, replicas)
        for _ in range(3):  # in sync, removing, adding
            fields.int32s()
        for _ in range(3):  # leader, leader epoch, partition epoch
            fields.int32()
        return PartitionRecord(topic_id, partition, replicas, fields.uuids())
    if kind == 4:
        return ConfigRecord(fields.int8(), fields.text(), fields.text(), fields.nullable_text())
    if kind == 5:
        partition, topic_id = fields.int32(), fields.uuid()
        tagged = fields.tagged()
        changed, moved = tagged.get(_REPLICAS_TAG), tagged.get(_DIRECTORIES_TAG)
        return PartitionRecord(
            topic_id,
            partition,
            None if changed is None else _Fields(changed).int32s(),
            None if moved is None else _Fields(moved).uuids(),
        )
    if kind == 9:
        return RemoveTopicRecord(fields.uuid())
    return TransactionRecord(_STEPS[kind]) if kind in _STEPS else None


class _Fields:
    """Takes fields one after another; a ValueError where the bytes do not have one."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def _take(self, size: int) -> bytes:
        if size > len(self._data) - self._at:
            raise ValueError(f"{size} bytes are wanted at {self._at}, {len(self._data) - self._at} are left")
        self._at += size
        return self._data[self._at - size : self._at]

    def uvarint(self) -> int:
        value, self._at = _codec.decode_uvarint(self._data, self._at)
        return value

    def int8(self) -> int:
        return int.from_bytes(self._take(1), "big", signed=True)

    def int32(self) -> int:
        return int.from_bytes(self._take(4), "big", signed=True)

    def uuid(self) -> str:
        return format_uuid(self._take(16))

    def nullable_text(self) -> str | None:
        length = self.uvarint()
        return self._take(length - 1).decode() if length else None

    def text(self) -> str:
        text = self.nullable_text()
        if text is None:
            raise ValueError("a text is null")
        return text

    def int32s(self) -> tuple[int, ...]:
        count = self.uvarint() - 1
        if count < 0:
            raise ValueError("a list is null")
        raw = self._take(4 * count)
        return struct.unpack(f">{count}i", raw)

    def uuids(self) -> tuple[str, ...]:
        return tuple(self.uuid() for _ in range(max(self.uvarint() - 1, 0)))

    def tagged(self) -> dict[int, bytes]:
        found = {}
        for _ in range(self.uvarint()):  # each takes two bytes at least, so a count that lies ends at the last byte
            tag, size = self.uvarint(), self.uvarint()
            found[tag] = self._take(size)
        return found
