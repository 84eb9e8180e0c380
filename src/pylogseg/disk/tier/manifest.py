"""The manifest of an uploaded segment, as Aiven's plugin writes it: one JSON object."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pylogseg.disk.tier.chunks import Chunks, check_compressed, parse_chunks, whole
from pylogseg.errors import CorruptionError, RequestError
from pylogseg.format import bounded_json
from pylogseg.format.names import FileKind, check_topic
from pylogseg.format.uuids import parse_uuid

#: The largest manifest that is read; the list of chunk sizes in it is bounded too.
MANIFEST_LIMIT_BYTES = 16 << 20
_INT64 = 2**63 - 1
#: The largest data key: what an RSA key of 65,536 bits wraps it in.
_WRAPPED_LIMIT_BYTES = 8192
#: The names of the small files of a segment in a manifest, in the order of their bytes.
_INDEXES = {
    "offset": FileKind.OFFSET_INDEX,
    "timestamp": FileKind.TIME_INDEX,
    "producerSnapshot": FileKind.PRODUCER_SNAPSHOT,
    "leaderEpoch": FileKind.LEADER_EPOCHS,
    "transaction": FileKind.TXN_INDEX,
}


class Encryption(NamedTuple):
    """How the objects of a segment are encrypted.

    Attributes
    ----------
    key_id : str
        Of the key that wraps the segment's own.
    wrapped : bytes
        The segment's own key, encrypted.
    aad : bytes
        Additional data that each chunk is authenticated with.
    """

    key_id: str
    wrapped: bytes
    aad: bytes

    def __repr__(self) -> str:
        """Return a text without keys, for whoever prints a manifest."""
        return f"Encryption(key_id={self.key_id!r})"


class UploadedSegment(NamedTuple):
    """What is known of an uploaded segment, from its manifest or its files.

    Attributes
    ----------
    topic, partition, topic_id, segment_id : str, int, str, str
    start_offset, end_offset : int
        Both in the segment.
    max_timestamp_ms : int
        -1 if it is not known.
    broker_id, event_timestamp_ms : int
        Who uploaded it, and when; -1 if that is not known.
    leader_epochs : tuple of (int, int)
        The leader epochs in it, with the first offset of each.
    """

    topic: str
    partition: int
    topic_id: str
    segment_id: str
    start_offset: int
    end_offset: int
    max_timestamp_ms: int = -1
    broker_id: int = -1
    event_timestamp_ms: int = -1
    leader_epochs: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Manifest:
    """A manifest.

    Attributes
    ----------
    chunks : Chunks
        Of the object with the segment.
    indexes : dict of FileKind to (int, int)
        Position and size of each small file in the object with the indexes, as they are before encryption.
    is_compressed : bool
    encryption : Encryption or None
    segment : UploadedSegment
    """

    chunks: Chunks
    indexes: dict[FileKind, tuple[int, int]] = field(repr=False)
    is_compressed: bool
    encryption: Encryption | None
    segment: UploadedSegment


def parse_manifest(data: bytes, at: str) -> Manifest:
    """Parse a manifest; fields that are not known are passed by. `at` names it in errors.

    Raises
    ------
    CorruptionError
        If it is no JSON, lacks a field, or contradicts itself.
    """
    if len(data) > MANIFEST_LIMIT_BYTES:
        raise CorruptionError(at, MANIFEST_LIMIT_BYTES, f"a manifest of {len(data)} bytes is not read")
    try:
        found = bounded_json.loads(data)
    except RecursionError:
        raise CorruptionError(at, 0, "no manifest: its JSON is nested too deep") from None
    except ValueError as error:
        # Not the error itself, which may quote the text, and so a key.
        raise CorruptionError(at, getattr(error, "pos", 0), "no manifest: this is no JSON") from None
    fields = _object(found, "the manifest", at)
    if fields.get("version") != "1":
        raise CorruptionError(at, 0, f"a manifest of version {str(fields.get('version'))[:20]!r}: only '1' is known")
    if type(fields.get("compression")) is not bool:
        raise CorruptionError(at, 0, "compression is neither true nor false")
    manifest = Manifest(
        parse_chunks(fields.get("chunkIndex"), at),
        _indexes(_object(fields.get("segmentIndexes"), "segmentIndexes", at), at),
        fields["compression"],
        _encryption(fields.get("encryption"), at),
        _segment(_object(fields.get("remoteLogSegmentMetadata"), "remoteLogSegmentMetadata", at), at),
    )
    overhead = 0 if manifest.encryption is None else 28
    chunks = manifest.chunks
    if manifest.is_compressed:
        check_compressed(chunks, overhead, at)
    elif chunks.object_size != chunks.file_size + overhead * chunks.count:
        raise CorruptionError(
            at, 0, f"{chunks.file_size} bytes in {chunks.count} chunks cannot be {chunks.object_size} in the object"
        )
    return manifest


def _object(value: Any, name: str, at: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise CorruptionError(at, 0, f"{name} is not there, or no JSON object")
    return value


def _indexes(fields: dict[str, Any], at: str) -> dict[FileKind, tuple[int, int]]:
    found = {}
    for name, kind in _INDEXES.items():
        if fields.get(name) is not None:
            place = _object(fields[name], f"segmentIndexes.{name}", at)
            found[kind] = whole(at, place, "position"), whole(at, place, "size")
    if FileKind.LEADER_EPOCHS not in found or FileKind.OFFSET_INDEX not in found:
        raise CorruptionError(at, 0, "segmentIndexes has no offset index, or no leader epochs")
    return found


def _encryption(value: Any, at: str) -> Encryption | None:
    if value is None:
        return None
    fields = _object(value, "encryption", at)
    key, aad = fields.get("dataKey"), fields.get("aad")
    if not isinstance(key, str) or not isinstance(aad, str) or ":" not in key:
        raise CorruptionError(at, 0, "encryption has no dataKey of the form KEYID:BASE64, or no aad")
    key_id, _, wrapped = key.partition(":")
    if max(len(wrapped), len(aad)) > 2 * _WRAPPED_LIMIT_BYTES:
        raise CorruptionError(at, 0, f"a dataKey or aad of {max(len(wrapped), len(aad))} characters is not read")
    try:
        return Encryption(key_id, base64.b64decode(wrapped, validate=True), base64.b64decode(aad, validate=True))
    except (ValueError, binascii.Error):
        raise CorruptionError(at, 0, "the dataKey or the aad of encryption is no base64") from None


def _segment(fields: dict[str, Any], at: str) -> UploadedSegment:
    ids = _object(fields.get("remoteLogSegmentId"), "remoteLogSegmentId", at)
    place = _object(ids.get("topicIdPartition"), "topicIdPartition", at)
    name = _object(place.get("topicPartition"), "topicPartition", at)
    topic, topic_id, segment_id = name.get("topic"), place.get("topicId"), ids.get("id")
    if not isinstance(topic, str) or not isinstance(topic_id, str) or not isinstance(segment_id, str):
        raise CorruptionError(at, 0, "the topic, its id or the segment's id is no text")
    try:
        check_topic(topic)
        parse_uuid(topic_id)
        parse_uuid(segment_id)
    except RequestError as error:
        raise CorruptionError(at, 0, str(error)) from None
    start = whole(at, fields, "startOffset", _INT64)
    return UploadedSegment(
        topic,
        whole(at, name, "partition"),
        topic_id,
        segment_id,
        start,
        whole(at, fields, "endOffset", _INT64 - 1, start),
        whole(at, fields, "maxTimestampMs", _INT64, -1),
        whole(at, fields, "brokerId", least=-1),
        whole(at, fields, "eventTimestampMs", _INT64, -1),
        _epochs(_object(fields.get("segmentLeaderEpochs"), "segmentLeaderEpochs", at), at),
    )


def _epochs(fields: dict[str, Any], at: str) -> tuple[tuple[int, int], ...]:
    found = []
    for epoch in fields:
        if not epoch.isascii() or not epoch.isdecimal() or len(epoch) > 10:
            raise CorruptionError(at, 0, f"{epoch[:20]!r} is no leader epoch")
        found.append((int(epoch), whole(at, fields, epoch, _INT64)))
    return tuple(sorted(found))
