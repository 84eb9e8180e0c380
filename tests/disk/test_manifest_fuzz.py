"""Tests of disk/tier/json_fields.py and disk/tier/manifest.py. Whatever is in a manifest or a list of chunk sizes: it
is read as what it says, or refused by a CorruptionError.
"""

from __future__ import annotations

import base64
import itertools
import json
from typing import Any

import pytest
import zstandard
from hypothesis import assume, given
from hypothesis import strategies as st

from pylogseg.disk.tier.manifest import (
    SIZES_LIMIT_BYTES,
    Manifest,
    decode_sizes,
    encode_sizes,
    original_size,
    parse_chunks,
    parse_manifest,
)
from pylogseg.errors import CorruptionError
from pylogseg.format.uuids import format_uuid

SECRET = "c2VjcmV0IHNlY3JldCBzZWNyZXQ="
GOOD: dict[str, Any] = {
    "version": "1",
    "chunkIndex": {
        "type": "variable", "originalChunkSize": 4096, "originalFileSize": 16333,
        "transformedChunks": "KLUv/SAQgQAAAAAABAAACbgBLwAOAAAJtQ==",
    },
    "segmentIndexes": {
        "offset": {"position": 0, "size": 148}, "timestamp": {"position": 148, "size": 208},
        "producerSnapshot": {"position": 356, "size": 84}, "leaderEpoch": {"position": 440, "size": 36},
        "transaction": None,
    },
    "compression": True,
    "encryption": {"dataKey": f"key1:{SECRET}", "aad": SECRET},
    "remoteLogSegmentMetadata": {
        "remoteLogSegmentId": {
            "topicIdPartition": {
                "topicId": format_uuid(bytes(range(16))), "topicPartition": {"topic": "orders", "partition": 0}
            },
            "id": format_uuid(bytes(range(1, 17))),
        },
        "startOffset": 483, "endOffset": 970, "maxTimestampMs": 1795348643176, "brokerId": 1,
        "eventTimestampMs": 1795348643564, "segmentLeaderEpochs": {"0": 483}, "txnIdxEmpty": True,
    },
}  # fmt: skip
VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.integers(-1, 5), st.floats(), st.text(max_size=30),
    st.sampled_from(["fixed", "variable", "1", "", "key:AAAA", "\ud800"]),
    st.lists(st.integers(), max_size=2), st.dictionaries(st.text(max_size=5), st.integers(), max_size=2),
)  # fmt: skip
FIXED = {"type": "fixed", "originalChunkSize": 4096, "originalFileSize": 16333, "transformedChunkSize": 4124,
         "finalTransformedChunkSize": 4073}  # fmt: skip


def places(value: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """All places in a JSON object."""
    if not isinstance(value, dict):
        return [path]
    return [path, *(place for name, inner in value.items() for place in places(inner, (*path, name)))]


def changed(fields: Any, place: tuple[str, ...], value: Any) -> Any:
    """A copy with another value at a place; without it, if that is ``...``."""
    if not place:
        return value
    inner = changed(fields[place[0]], place[1:], value)
    return {name: inner if name == place[0] else old for name, old in fields.items()
            if inner is not ... or name != place[0]}  # fmt: skip


def test_unknown_keys_are_passed_by() -> None:
    more = changed(GOOD, ("segmentIndexes", "transaction"), {"position": 476, "size": 30, "new": 1}) | {"new": {"a": 1}}
    assert parse_manifest(json.dumps(more).encode(), "here").segment.end_offset == 970


@given(st.sampled_from(places(GOOD)), st.one_of(st.just(...), VALUES), st.booleans())
def test_manifests(place: tuple[str, ...], value: Any, is_fixed: bool) -> None:
    """One value is another: of what is read, all parts are bounded."""
    fields = {**GOOD, "chunkIndex": FIXED, "compression": False} if is_fixed else GOOD
    assume(not is_fixed or place[:1] != ("chunkIndex",) or place == ("chunkIndex",))
    fields = changed(fields, place, value)
    assume(fields is not ...)
    try:
        manifest = parse_manifest(json.dumps(fields).encode("utf-8", "surrogatepass"), "here")
    except CorruptionError as error:
        said = str(error)
    else:
        said = repr(manifest)
        check_bounds(manifest)
    assert SECRET not in said
    assert b"secret" not in said.encode("utf-8", "surrogatepass")


def check_bounds(manifest: Manifest) -> None:
    """All that a manifest says has bounds."""
    chunks = manifest.chunks
    assert 0 <= chunks.file_size < 2**31
    if chunks.count:
        assert 0 < original_size(chunks, chunks.count - 1) <= chunks.chunk_size
        assert chunks.place(chunks.count - 1)[1] == chunks.object_size
    assert 0 <= manifest.segment.start_offset <= manifest.segment.end_offset


@given(st.binary(max_size=200))
def test_garbage(data: bytes) -> None:
    with pytest.raises(CorruptionError):
        parse_manifest(data, "here")


@given(st.lists(st.integers(0, 2**31 - 1), max_size=50) | st.lists(st.integers(4_000_000, 4_000_300), max_size=300))
def test_sizes_come_back(sizes: list[int]) -> None:
    assert decode_sizes(encode_sizes(sizes), "here").tolist() == sizes


@given(st.binary(max_size=60))
def test_sizes_of_any_bytes(data: bytes) -> None:
    try:
        sizes = decode_sizes(data, "here")
    except CorruptionError:
        return
    assert len(sizes) <= len(data)
    assert not len(sizes) or sizes.min() >= 0


@given(st.lists(st.integers(1, 5000), min_size=1, max_size=40), st.integers(1, 1 << 20), st.data())
def test_chunk_index(sizes: list[int], chunk_size: int, data: st.DataObject) -> None:
    """Places are next to each other, and as many as the file needs."""
    file_size = chunk_size * (len(sizes) - 1) + data.draw(st.integers(1, chunk_size))
    packed = base64.b64encode(zstandard.compress(encode_sizes(sizes))).decode()
    fields = {"type": "variable", "originalChunkSize": chunk_size, "originalFileSize": file_size,
              "transformedChunks": packed}  # fmt: skip
    chunks = parse_chunks(fields, "here")
    ends = [chunks.place(i) for i in range(chunks.count)]
    assert [end - start for start, end in ends] == sizes
    assert all(before[1] == after[0] for before, after in itertools.pairwise(ends))
    assert sum(original_size(chunks, i) for i in range(chunks.count)) == file_size
    with pytest.raises(CorruptionError):
        parse_chunks({**fields, "originalFileSize": file_size + chunk_size}, "here")


def test_sizes_that_become_too_much() -> None:
    """The limit holds before anything is allocated for what a frame declares."""
    packed = base64.b64encode(zstandard.compress(bytes(SIZES_LIMIT_BYTES + 1))).decode()
    fields = {"type": "variable", "originalChunkSize": 1, "originalFileSize": 1, "transformedChunks": packed}
    with pytest.raises(CorruptionError, match="more than"):
        parse_chunks(fields, "here")
