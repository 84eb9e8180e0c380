"""Batches that hold no data: control batches, and the empty one that compaction leaves of a producer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from pylogseg._native._encoder import Columns
from pylogseg.errors import RequestError
from pylogseg.format.batches import BatchTable
from pylogseg.format.builder import build, rebuild, shared_row
from pylogseg.format.control import ControlKind, encode_marker
from pylogseg.format.record_input import columns_from_records


def control_batch(
    key: bytes,
    value: bytes,
    *,
    base_offset: int,
    timestamp_ms: int,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    transactional: bool = False,
    delete_horizon_ms: int | None = None,
) -> bytearray:
    """Encode one control record, from `format.messages.control.encode_control`, as a batch of its own.

    The producer is that of the transaction that a marker ends; KRaft's records have none. A marker may go at
    `delete_horizon_ms` (KIP-534).
    """
    shared = shared_row(
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=transactional,
        control=True,
        delete_horizon_ms=delete_horizon_ms,
    )
    columns = columns_from_records([(timestamp_ms, key, value)], base_offset=base_offset)
    return build(columns, shared)[0]


def kraft_batch(
    records: Sequence[tuple[bytes, bytes]], *, base_offset: int, timestamp_ms: int, leader_epoch: int
) -> bytearray:
    """Encode control records of KRaft, keys and values of `encode_control`, as one batch: all of them or none count."""
    shared = shared_row(leader_epoch=leader_epoch, control=True)
    columns = columns_from_records([(timestamp_ms, key, value) for key, value in records], base_offset=base_offset)
    return build(columns, shared)[0]


def marker_batch(
    kind: Literal["commit", "abort"],
    *,
    base_offset: int,
    timestamp_ms: int,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int = 0,
    leader_epoch: int = -1,
    delete_horizon_ms: int | None = None,
) -> bytearray:
    """Encode the marker that ends a transaction: 78 bytes, 80 with a horizon that is far from the timestamp."""
    if kind not in ("commit", "abort"):
        raise RequestError(f"a marker is 'commit' or 'abort', not {kind!r}")
    key, value = encode_marker(ControlKind[kind.upper()], coordinator_epoch)
    return control_batch(
        key,
        value,
        base_offset=base_offset,
        timestamp_ms=timestamp_ms,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        delete_horizon_ms=delete_horizon_ms,
    )


def empty_batch(
    *,
    base_offset: int,
    last_offset: int,
    max_timestamp_ms: int,
    append_time: bool = False,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
) -> bytearray:
    """Encode the 61 bytes that stay when compaction takes every record of an active producer's last batch."""
    row: Any = shared_row(
        leader_epoch=leader_epoch,
        append_time_ms=max_timestamp_ms if append_time else None,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        transactional=transactional,
        control=control,
    )
    if not (0 <= base_offset <= last_offset < 1 << 63) or not -1 <= max_timestamp_ms < 1 << 63:
        raise RequestError(
            f"offsets {base_offset} to {last_offset} or max timestamp {max_timestamp_ms} are out of range"
        )
    row["base_offset"], row["last_offset"], row["max_timestamp"] = base_offset, last_offset, max_timestamp_ms
    nothing = Columns(0, None, None, None, None, None, None, None, None, ())
    return rebuild(nothing, BatchTable(np.array(row)))[0]
