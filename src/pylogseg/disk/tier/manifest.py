"""The manifest of an uploaded segment, as Aiven's plugin writes it: one JSON object, and the chunk index in it.

All chunks have the same original size but the last one. Their sizes in the object are the same too if they are not
compressed (`FixedChunks`), else each has its own (`VariableChunks`). Nothing is allocated for what an index claims
before the bytes that say so are there.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from pylogseg.disk.tier.json_fields import show_value
from pylogseg.errors import CorruptionError, RequestError
from pylogseg.format import bounded_json
from pylogseg.format.codec_error import CodecError
from pylogseg.format.names import FileKind, check_topic
from pylogseg.format.uuids import parse_uuid
from pylogseg.format.zstd_frames import decompress, sized_compressor

#: The most that the list of chunk sizes may become, as in Aiven's plugin.
SIZES_LIMIT_BYTES = 10 << 20
#: The largest chunk that is read into memory; the plugin's default is 4 MiB.
CHUNK_LIMIT_BYTES = 256 << 20
#: A frame of zstd has so many bytes at least.
_LEAST_FRAME_BYTES = 9
#: Each chunk costs time, whatever is in it: of smaller ones no more are read.
_SMALL_BYTES, _MOST_SMALL = 1024, 4096
_INT32 = 2**31 - 1


class Chunks(Protocol):
    """The chunks of one segment."""

    @property
    def chunk_size(self) -> int: ...
    @property
    def file_size(self) -> int: ...
    @property
    def count(self) -> int: ...
    @property
    def object_size(self) -> int: ...
    def place(self, chunk: int) -> tuple[int, int]: ...


def original_size(chunks: Chunks, chunk: int) -> int:
    """Return how many bytes of the segment a chunk has."""
    return min(chunks.chunk_size, chunks.file_size - chunk * chunks.chunk_size)


@dataclass(frozen=True)
class FixedChunks:
    """Chunks of one size but the last. `stored` sizes count bytes in the object, compressed or encrypted."""

    chunk_size: int
    file_size: int
    stored_size: int
    last_stored_size: int

    @property
    def count(self) -> int:
        return -(-self.file_size // self.chunk_size)

    @property
    def object_size(self) -> int:
        return (self.count - 1) * self.stored_size + self.last_stored_size if self.count else 0

    def place(self, chunk: int) -> tuple[int, int]:
        """Return where a chunk begins and ends in the object."""
        start = chunk * self.stored_size
        return start, start + (self.last_stored_size if chunk == self.count - 1 else self.stored_size)


@dataclass(frozen=True)
class VariableChunks:
    """Chunks that each have a size of their own in the object; `ends` are positions in it."""

    chunk_size: int
    file_size: int
    ends: npt.NDArray[np.int64]

    @property
    def count(self) -> int:
        return len(self.ends)

    @property
    def object_size(self) -> int:
        return int(self.ends[-1]) if len(self.ends) else 0

    def place(self, chunk: int) -> tuple[int, int]:
        """Return where a chunk begins and ends in the object."""
        return int(self.ends[chunk - 1]) if chunk else 0, int(self.ends[chunk])


def bounded_number(at: str, fields: dict[str, Any], name: str, most: int = _INT32, least: int = 0) -> int:
    """Return a number of a JSON object; CorruptionError if it is not there, or not within its bounds."""
    value = fields.get(name)
    if type(value) is not int or not least <= value <= most:
        raise CorruptionError(at, 0, f"{name} is {show_value(value)}: expected a number from {least} to {most}")
    return value


def parse_chunks(fields: Any, at: str) -> Chunks:
    """Return the chunk index of a manifest; CorruptionError if it contradicts itself. `at` names the manifest."""
    if not isinstance(fields, dict):
        raise CorruptionError(at, 0, "chunkIndex is not a JSON object")
    size, file_size = (
        bounded_number(at, fields, "originalChunkSize", least=1),
        bounded_number(at, fields, "originalFileSize"),
    )
    if min(size, file_size) > CHUNK_LIMIT_BYTES:
        raise CorruptionError(at, 0, f"chunks of {size} bytes, and at most {CHUNK_LIMIT_BYTES} are read into memory")
    if size < _SMALL_BYTES and file_size > size * _MOST_SMALL:
        raise CorruptionError(at, 0, f"{file_size} bytes in chunks of {size}: of so small ones {_MOST_SMALL} are read")
    kind = fields.get("type")
    if kind == "fixed":
        stored = bounded_number(at, fields, "transformedChunkSize", least=1)
        return FixedChunks(size, file_size, stored, bounded_number(at, fields, "finalTransformedChunkSize"))
    if kind != "variable":
        raise CorruptionError(at, 0, f"a chunk index of type {show_value(kind)}: only fixed and variable are known")
    sizes = _sizes(fields.get("transformedChunks"), at)
    expected = -(-file_size // size)
    if len(sizes) != expected:
        raise CorruptionError(
            at, 0, f"{len(sizes)} chunks are listed, and {file_size} bytes in chunks of {size} are {expected}"
        )
    return VariableChunks(size, file_size, np.cumsum(sizes, dtype=np.int64))


def check_compressed(chunks: Chunks, overhead: int, at: str) -> None:
    """Check that each chunk has as many bytes in the object as a compressed one can have.

    Fewer would cost time for nothing; more would be fetched before anyone sees that they are none.
    """
    if isinstance(chunks, VariableChunks):
        sizes = np.diff(chunks.ends, prepend=0)
    else:
        sizes = np.array(
            [end - start for start, end in map(chunks.place, {0, chunks.count - 1} if chunks.count else ())]
        )
    whole = min(chunks.chunk_size, chunks.file_size)
    least, most = overhead + _LEAST_FRAME_BYTES, overhead + whole + whole // 64 + 512
    odd = sizes[(sizes < least) | (sizes > most)]
    if len(odd):
        raise CorruptionError(
            at,
            0,
            f"a chunk of {int(odd[0])} bytes in the object, where {whole} bytes, compressed, have {least} to {most}",
        )


def _decode_base64(text: str) -> bytes:
    """Decode base64 as an encoder writes it: the last character has bits that say nothing, which only damage sets."""
    data = base64.b64decode(text, validate=True)
    if base64.b64encode(data).decode() != text:
        raise ValueError("bits that belong to no byte are set")
    return data


def _sizes(text: Any, at: str) -> npt.NDArray[np.int64]:
    """Return the sizes in the text of `transformedChunks`: base64 of a zstd frame of `decode_sizes`."""
    if not isinstance(text, str):
        raise CorruptionError(at, 0, "transformedChunks is not there, or no text")
    try:
        packed = _decode_base64(text)
        return decode_sizes(decompress(memoryview(packed), SIZES_LIMIT_BYTES), at)
    except CodecError as error:  # a ValueError too
        reason = f"it becomes more than {SIZES_LIMIT_BYTES} bytes" if error.is_limit else str(error)
        raise CorruptionError(at, 0, f"transformedChunks: {reason}") from None
    except (ValueError, binascii.Error) as error:
        raise CorruptionError(at, 0, f"transformedChunks is not base64: {error}") from None


def decode_sizes(data: bytes, at: str) -> npt.NDArray[np.int64]:
    """Return the sizes of chunks from their binary list.

    That is a count; if it is 1, one size; if it is more, a base, the width of a value in bytes, all values but the last
    one, which the base is added to, and the last size as it is. Numbers have four bytes, all are big-endian.
    """

    def number(position: int) -> int:
        return int.from_bytes(data[position : position + 4], "big", signed=True)

    count = number(0) if len(data) >= 4 else -1
    width = data[8] if len(data) > 8 else 0
    expected = {0: 4, 1: 8}.get(count, 13 + (count - 1) * width)
    if count < 0 or len(data) != expected or (count > 1 and not 1 <= width <= 4):
        raise CorruptionError(
            at, 0, f"the list of chunk sizes has {len(data)} bytes for {count} chunks of {width} bytes each"
        )
    if count < 2:
        sizes = np.array([number(4)] * count, np.int64)
    else:
        values = np.zeros((count - 1, 4), np.uint8)
        values[:, 4 - width :] = np.frombuffer(data, np.uint8, (count - 1) * width, 9).reshape(-1, width)
        sizes = np.append(values.view(">u4").ravel().astype(np.int64) + number(4), number(len(data) - 4))
    if len(sizes) and (sizes.min() < 0 or sizes.max() > _INT32):
        raise CorruptionError(at, 0, f"a chunk of {int(sizes.min())} bytes, and one of {int(sizes.max())}")
    return sizes


def encode_sizes(sizes: Sequence[int]) -> bytes:
    """Return the binary list of chunk sizes that `decode_sizes` reads."""
    values = np.array(sizes, np.int64)
    head, last = len(values).to_bytes(4, "big"), values[-1:].astype(">i4").tobytes()
    if len(values) < 2:
        return head + last
    base = int(values[:-1].min())
    rest = (values[:-1] - base).astype(">u4")
    width = max(1, -(-int(rest.max()).bit_length() // 8))
    body = rest.view(np.uint8).reshape(-1, 4)[:, 4 - width :].tobytes()
    return head + base.to_bytes(4, "big") + bytes([width]) + body + last


def _chunk_fields(chunks: Chunks) -> dict[str, Any]:
    fields: dict[str, Any] = {"originalChunkSize": chunks.chunk_size, "originalFileSize": chunks.file_size}
    if isinstance(chunks, FixedChunks):
        sizes = {"transformedChunkSize": chunks.stored_size, "finalTransformedChunkSize": chunks.last_stored_size}
        return fields | {"type": "fixed", **sizes}
    assert isinstance(chunks, VariableChunks)
    packed = sized_compressor()(memoryview(encode_sizes(np.diff(chunks.ends, prepend=0).tolist())))
    return fields | {"type": "variable", "transformedChunks": base64.b64encode(packed).decode()}


#: The largest manifest that is read; the list of chunk sizes in it is bounded too.
MANIFEST_LIMIT_BYTES = 16 << 20
_INT64 = 2**63 - 1
#: The largest data key: what an RSA key of 65,536 bits wraps it in.
_WRAPPED_LIMIT_BYTES = 8192
#: The names of the small files of a segment in a manifest, in the order of their bytes.
INDEXES = {
    "offset": FileKind.OFFSET_INDEX,
    "timestamp": FileKind.TIME_INDEX,
    "producerSnapshot": FileKind.PRODUCER_SNAPSHOT,
    "leaderEpoch": FileKind.LEADER_EPOCHS,
    "transaction": FileKind.TXN_INDEX,
}


class Encryption(NamedTuple):
    """How the objects of a segment are encrypted: its own key, wrapped by `key_id`; `aad` authenticates each chunk."""

    key_id: str
    wrapped: bytes
    aad: bytes

    def __repr__(self) -> str:
        """Return a text without keys, for callers that print a manifest."""
        return f"Encryption(key_id={self.key_id!r})"


class UploadedSegment(NamedTuple):
    """An uploaded segment by its manifest or its files; -1 is unknown, and `end_offset` is in the segment."""

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
    """A manifest; `indexes` are the position and size of each small file, before encryption."""

    chunks: Chunks
    indexes: dict[FileKind, tuple[int, int]] = field(repr=False)
    is_compressed: bool
    encryption: Encryption | None
    segment: UploadedSegment


def parse_manifest(data: bytes, at: str) -> Manifest:
    """Parse a manifest, which `at` names in errors; unknown fields are ignored."""
    if len(data) > MANIFEST_LIMIT_BYTES:
        raise CorruptionError(at, MANIFEST_LIMIT_BYTES, f"a manifest of {len(data)} bytes is not read")
    try:
        value = bounded_json.loads(data)
    except RecursionError:
        raise CorruptionError(at, 0, "not a manifest: its JSON is nested too deeply") from None
    except ValueError as error:
        # Not the error itself, which may quote the text, and so a key.
        raise CorruptionError(at, getattr(error, "pos", 0), "not a manifest: this is not JSON") from None
    fields = _object(value, "the manifest", at)
    if fields.get("version") != "1":
        raise CorruptionError(at, 0, f"a manifest of version {str(fields.get('version'))[:20]!r}: only '1' is known")
    if type(fields.get("compression")) is not bool:
        raise CorruptionError(at, 0, "compression is neither true nor false")
    manifest = Manifest(
        parse_chunks(fields.get("chunkIndex"), at),
        _indexes(_object(fields.get("segmentIndexes"), "segmentIndexes", at), at),
        fields["compression"],
        parse_encryption(fields.get("encryption"), at),
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


def encode_manifest(manifest: Manifest) -> bytes:
    """Return the manifest as Aiven's plugin writes it; `parse_manifest` gives it back."""
    segment, encryption = manifest.segment, manifest.encryption
    places = {kind: {"position": at, "size": size} for kind, (at, size) in manifest.indexes.items()}
    fields = {
        "version": "1",
        "chunkIndex": _chunk_fields(manifest.chunks),
        "segmentIndexes": {name: places.get(kind) for name, kind in INDEXES.items()},
        "compression": manifest.is_compressed,
        "remoteLogSegmentMetadata": {
            "remoteLogSegmentId": {
                "topicIdPartition": {
                    "topicId": segment.topic_id,
                    "topicPartition": {"topic": segment.topic, "partition": segment.partition},
                },
                "id": segment.segment_id,
            },
            "startOffset": segment.start_offset,
            "endOffset": segment.end_offset,
            "maxTimestampMs": segment.max_timestamp_ms,
            "brokerId": segment.broker_id,
            "eventTimestampMs": segment.event_timestamp_ms,
            "segmentLeaderEpochs": {str(epoch): start for epoch, start in segment.leader_epochs},
        },
    }
    if encryption is not None:
        fields["encryption"] = encryption_fields(encryption)
    return json.dumps(fields).encode()


def _object(value: Any, name: str, at: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise CorruptionError(at, 0, f"{name} is not there, or no JSON object")
    return value


def _indexes(fields: dict[str, Any], at: str) -> dict[FileKind, tuple[int, int]]:
    places = {}
    for name, kind in INDEXES.items():
        if fields.get(name) is not None:
            place = _object(fields[name], f"segmentIndexes.{name}", at)
            places[kind] = bounded_number(at, place, "position"), bounded_number(at, place, "size")
    if FileKind.LEADER_EPOCHS not in places or FileKind.OFFSET_INDEX not in places:
        raise CorruptionError(at, 0, "segmentIndexes has no offset index, or no leader epochs")
    return places


def encryption_fields(encryption: Encryption) -> dict[str, str]:
    """Return how something is encrypted as JSON has it."""
    wrapped, aad = (base64.b64encode(part).decode() for part in (encryption.wrapped, encryption.aad))
    return {"dataKey": f"{encryption.key_id}:{wrapped}", "aad": aad}


def parse_encryption(value: Any, at: str) -> Encryption | None:
    """Read it again; None where nothing is encrypted, CorruptionError where it is no such JSON."""
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
        return Encryption(key_id, _decode_base64(wrapped), _decode_base64(aad))
    except (ValueError, binascii.Error):
        raise CorruptionError(at, 0, "the dataKey or the aad of encryption is not base64") from None


def _segment(fields: dict[str, Any], at: str) -> UploadedSegment:
    ids = _object(fields.get("remoteLogSegmentId"), "remoteLogSegmentId", at)
    place = _object(ids.get("topicIdPartition"), "topicIdPartition", at)
    name = _object(place.get("topicPartition"), "topicPartition", at)
    topic, topic_id, segment_id = name.get("topic"), place.get("topicId"), ids.get("id")
    if not isinstance(topic, str) or not isinstance(topic_id, str) or not isinstance(segment_id, str):
        raise CorruptionError(at, 0, "the topic, its id or the segment's id is not text")
    try:
        check_topic(topic)
        parse_uuid(topic_id)
        parse_uuid(segment_id)
    except RequestError as error:
        raise CorruptionError(at, 0, str(error)) from None
    start = bounded_number(at, fields, "startOffset", _INT64)
    return UploadedSegment(
        topic,
        bounded_number(at, name, "partition"),
        topic_id,
        segment_id,
        start,
        bounded_number(at, fields, "endOffset", _INT64 - 1, start),
        bounded_number(at, fields, "maxTimestampMs", _INT64, -1),
        bounded_number(at, fields, "brokerId", least=-1),
        bounded_number(at, fields, "eventTimestampMs", _INT64, -1),
        _epochs(_object(fields.get("segmentLeaderEpochs"), "segmentLeaderEpochs", at), at),
    )


def _epochs(fields: dict[str, Any], at: str) -> tuple[tuple[int, int], ...]:
    epochs = []
    for epoch in fields:
        if not epoch.isascii() or not epoch.isdecimal() or len(epoch) > 10:
            raise CorruptionError(at, 0, f"{epoch[:20]!r} is not a leader epoch")
        epochs.append((int(epoch), bounded_number(at, fields, epoch, _INT64)))
    return tuple(sorted(epochs))
