"""Indexes, snapshots and other small files as rows: a dictionary for each entry, with stable names.

Every row has ``type``; the other names are those of Kafka's documentation. A missing number is None, not -1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from pylogseg.format.files.checkpoint import parse_leader_epochs, parse_offset_checkpoint
from pylogseg.format.files.index import OffsetIndex, TimeIndex
from pylogseg.format.files.properties import parse_meta_properties, parse_properties
from pylogseg.format.files.snapshot import parse_snapshot
from pylogseg.format.files.status import parse_clean_shutdown, parse_partition_metadata, parse_quorum_state
from pylogseg.format.files.txnindex import TxnIndex
from pylogseg.format.names import FileKind, FileName

DumpRow = dict[str, Any]


def entries(data: bytes, name: FileName, path: str) -> Iterator[DumpRow]:
    """Decode a file that holds no batches; `name` has its kind, and the base offset of indexes.

    Raises CorruptionError if it is malformed. Indexes have no checksum: whole entries are returned as they are
    (`pylogseg verify` compares them with the log).
    """
    return _DECODERS[name.kind](data, name.offset or 0, path)


def can_decode(kind: FileKind) -> bool:
    return kind in _DECODERS


def _offset_index(data: bytes, base: int, path: str) -> Iterator[DumpRow]:
    index = OffsetIndex(data, base, path)
    for slot, (offset, position) in enumerate(zip(index.offsets.tolist(), index.positions.tolist(), strict=True)):
        yield {"type": "offsetIndexEntry", "slot": slot, "offset": offset, "position": position}
    yield from _rest(index)


def _time_index(data: bytes, base: int, path: str) -> Iterator[DumpRow]:
    index = TimeIndex(data, base, path)
    for slot, (timestamp, offset) in enumerate(zip(index.timestamps.tolist(), index.offsets.tolist(), strict=True)):
        yield {"type": "timeIndexEntry", "slot": slot, "timestamp": timestamp, "offset": offset}
    yield from _rest(index)


def _rest(index: OffsetIndex | TimeIndex) -> Iterator[DumpRow]:
    if index.zero_count or index.odd_bytes:
        yield {"type": "indexRest", "zeroSlots": index.zero_count, "oddBytes": index.odd_bytes}


def _txn_index(data: bytes, base: int, path: str) -> Iterator[DumpRow]:
    index = TxnIndex(data, path)
    for slot, txn in enumerate(index):
        yield {
            "type": "abortedTransaction",
            "slot": slot,
            "producerId": txn.producer_id,
            "firstOffset": txn.first_offset,
            "lastOffset": txn.last_offset,
            "lastStableOffset": txn.last_stable_offset,
        }
    if index.odd_bytes:
        yield {"type": "indexRest", "zeroSlots": 0, "oddBytes": index.odd_bytes}


def _snapshot(data: bytes, base: int, path: str) -> Iterator[DumpRow]:
    for entry in parse_snapshot(data, path):
        has = entry.has_batch
        yield {
            "type": "producer",
            "producerId": entry.producer_id,
            "producerEpoch": entry.producer_epoch,
            "coordinatorEpoch": none_if_negative(entry.coordinator_epoch),
            "firstTxnOffset": none_if_negative(entry.first_txn_offset),
            "firstSequence": entry.first_sequence if has else None,
            "lastSequence": entry.last_sequence if has else None,
            "lastOffset": entry.last_offset if has else None,
            "offsetDelta": entry.offset_delta if has else None,
            "timestamp": entry.timestamp,
        }


def none_if_negative(value: int) -> int | None:
    """Return None for Kafka's -1, which means that a number is missing."""
    return value if value >= 0 else None


def _leader_epochs(data: bytes, base: int, path: str) -> Iterator[DumpRow]:
    for epoch, start_offset in parse_leader_epochs(data, path):
        yield {"type": "leaderEpoch", "epoch": epoch, "startOffset": start_offset}


def _offset_checkpoint(data: bytes, base: int, path: str) -> Iterator[DumpRow]:
    for (topic, partition), offset in parse_offset_checkpoint(data, path).items():
        yield {"type": "checkpointEntry", "topic": topic, "partition": partition, "offset": offset}


def _properties(data: bytes, base: int, path: str) -> Iterator[DumpRow]:
    parse_meta_properties(data, path)
    for key, value in parse_properties(data, path).items():
        yield {"type": "property", "key": key, "value": value}


def _partition_metadata(data: bytes, base: int, path: str) -> Iterator[DumpRow]:
    metadata = parse_partition_metadata(data, path)
    yield {"type": "partitionMetadata", "version": metadata.version, "topicId": metadata.topic_id}


def _quorum_state(data: bytes, base: int, path: str) -> Iterator[DumpRow]:
    state = parse_quorum_state(data, path)
    yield {
        "type": "quorumState",
        "version": state.version,
        "leaderId": none_if_negative(state.leader_id),
        "leaderEpoch": none_if_negative(state.leader_epoch),
        "votedId": none_if_negative(state.voted_id),
        "votedDirectoryId": state.voted_directory_id,
        "voters": list(state.voters),
        "clusterId": state.cluster_id,
    }


def _clean_shutdown(data: bytes, base: int, path: str) -> Iterator[DumpRow]:
    yield {"type": "cleanShutdown", "brokerEpoch": parse_clean_shutdown(data)}


def _lock(data: bytes, base: int, path: str) -> Iterator[DumpRow]:
    yield {"type": "lock", "size": len(data)}


_DECODERS: dict[FileKind, Callable[[bytes, int, str], Iterator[DumpRow]]] = {
    FileKind.OFFSET_INDEX: _offset_index,
    FileKind.TIME_INDEX: _time_index,
    FileKind.TXN_INDEX: _txn_index,
    FileKind.PRODUCER_SNAPSHOT: _snapshot,
    FileKind.LEADER_EPOCHS: _leader_epochs,
    FileKind.PARTITION_METADATA: _partition_metadata,
    FileKind.QUORUM_STATE: _quorum_state,
    FileKind.RECOVERY_POINTS: _offset_checkpoint,
    FileKind.LOG_STARTS: _offset_checkpoint,
    FileKind.HIGH_WATERMARKS: _offset_checkpoint,
    FileKind.CLEANER_OFFSETS: _offset_checkpoint,
    FileKind.META_PROPERTIES: _properties,
    FileKind.CLEAN_SHUTDOWN: _clean_shutdown,
    FileKind.LOCK: _lock,
}
