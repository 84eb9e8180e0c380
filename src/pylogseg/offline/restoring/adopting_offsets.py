"""Committed offsets that come into another cluster: each names a leader epoch and a topic id of the old one.

A client that gets such an epoch waits for a leader that has it, and a broker does not give an offset of a topic with
another id. Both become "not known", in place: the batches keep their sizes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pylogseg import _codec
from pylogseg.format.records import SOURCE_SHIFT, decode_parts
from pylogseg.walker.windows import Window

_IN_SOURCE = (1 << SOURCE_SHIFT) - 1
#: Keys of these versions are those of committed offsets.
_COMMITS = (0, 1)
_WITH_EPOCH, _WITH_TOPIC_ID = 3, 4
_EPOCH_AT = 10  #: In a value, after its version and the offset.
_METADATA_AT = 14
_TIME = 8
#: One tagged field, with tag 0, of 16 bytes.
_TOPIC_ID_TAG = (1, 0, 16)

_Places = npt.NDArray[np.int64]


def forget_cluster(data: bytearray, window: Window) -> int:
    """Change the committed offsets in a copy of a window's bytes; return how many could not be: they are compressed."""
    rows = window.batches[~window.batches.is_control & (window.batches.magic == 2)]
    buffer = np.frombuffer(data, np.uint8)
    kept = 0
    for columns, _ in decode_parts(rows, window.buffer, window.file_position):
        mask = (columns.key_size >= 2) & (columns.value_size >= _METADATA_AT)
        plain = mask & (columns.key_place >> SOURCE_SHIFT == 0) & (columns.value_place >> SOURCE_SHIFT == 0)
        kept += int((mask & ~plain).sum())
        keys, values = columns.key_place[plain], columns.value_place[plain]
        versions = _short(buffer, values)
        chosen = np.isin(_short(buffer, keys), _COMMITS) & (versions >= _WITH_EPOCH)
        _clear(buffer, values[chosen] + _EPOCH_AT, 4, 0xFF)
        flexible = chosen & (versions >= _WITH_TOPIC_ID)
        ends = values + columns.value_size[plain]
        ids = _topic_ids(buffer, values[flexible], ends[flexible])
        _clear(buffer, ids, 16, 0)
        touched = columns.batches[np.unique(columns.batch[plain][chosen])]
        for position, size in zip(touched.position.tolist(), touched.size.tolist(), strict=True):
            at = position - window.file_position
            crc = _codec.crc32c(memoryview(data)[at + 21 : at + size])
            data[at + 17 : at + 21] = crc.to_bytes(4, "big")
    return kept


def _short(buffer: npt.NDArray[np.uint8], places: _Places) -> npt.NDArray[np.int16]:
    pair = buffer[places].astype(np.uint16) << 8 | buffer[places + 1]
    return pair.view(np.int16)


def _clear(buffer: npt.NDArray[Any], places: _Places, count: int, byte: int) -> None:
    buffer[(places[:, None] + np.arange(count)).reshape(-1)] = byte


def _topic_ids(buffer: npt.NDArray[np.uint8], values: _Places, ends: _Places) -> _Places:
    """Return the places of the topic ids in values of version 4; those without one are left out."""
    first = buffer[values + _METADATA_AT].astype(np.int64)
    second = buffer[np.minimum(values + _METADATA_AT + 1, ends - 1)].astype(np.int64)
    is_long = first >= 0x80  # an unsigned varint of two bytes, of the length and 1; metadata is below 4 KiB in Kafka
    length = np.where(is_long, (first & 0x7F) | (second & 0x7F) << 7, first)
    tags = values + _METADATA_AT + np.where(is_long, 2, 1) + length - 1 + _TIME
    fits = tags + len(_TOPIC_ID_TAG) + 16 == ends
    tags = tags[fits]
    is_id = np.ones(len(tags), np.bool_)
    for i, byte in enumerate(_TOPIC_ID_TAG):
        is_id &= buffer[tags + i] == byte
    found: _Places = tags[is_id] + len(_TOPIC_ID_TAG)
    return found
