"""Dump producer snapshots and transaction indexes like Kafka's dump tool."""

from __future__ import annotations

import struct
from collections.abc import Callable

from pylogseg import _codec
from pylogseg.dump.kafka_failure import KafkaFailure
from pylogseg.dump.kafka_options import Write
from pylogseg.errors import CorruptionError
from pylogseg.files.snapshot import ProducerEntry, parse_snapshot
from pylogseg.files.txnindex import TxnIndex
from pylogseg.format.layout import SNAPSHOT_HEADER


def dump_snapshot(data: bytes, write: Write, complain: Callable[[str], object]) -> None:
    """Write a line for each producer; a malformed file is reported on stderr, and the tool continues."""
    try:
        entries = parse_snapshot(data)
    except CorruptionError as error:
        complain(_java_reason(data, error))
        return
    write("".join(_snapshot_line(entry) for entry in entries).encode())


def _snapshot_line(entry: ProducerEntry) -> str:
    line = (
        f"producerId: {entry.producer_id} producerEpoch: {entry.producer_epoch} "
        f"coordinatorEpoch: {entry.coordinator_epoch} currentTxnFirstOffset: {optional(entry.first_txn_offset)} "
        f"lastTimestamp: {entry.timestamp}"
    )
    if entry.has_batch:
        line += (
            f" firstSequence: {entry.first_sequence} lastSequence: {entry.last_sequence} "
            f"lastOffset: {entry.last_offset} offsetDelta: {entry.offset_delta} timestamp: {entry.timestamp}"
        )
    return line + "\n"


def optional(value: int) -> str:
    """Format a number like Java's OptionalLong; a negative one is missing."""
    return f"OptionalLong[{value}]" if value >= 0 else "OptionalLong.empty"


def _java_reason(data: bytes, error: CorruptionError) -> str:
    schema = "Snapshot failed schema validation: "
    if len(data) < 2:
        return schema + "null"
    (version,) = struct.unpack_from(">h", data)
    if version != 1:
        return f"{schema}Snapshot contained an unknown file version {version}"
    if len(data) < SNAPSHOT_HEADER.size or error.position == SNAPSHOT_HEADER["count"].offset:
        return schema + error.reason
    _, stored, _ = SNAPSHOT_HEADER.struct.unpack_from(data)
    computed = _codec.crc32c(data[SNAPSHOT_HEADER["count"].offset :])
    return f"Snapshot is corrupt (CRC is no longer valid). Stored crc: {stored}. Computed crc: {computed}"


def dump_txn_index(data: bytes, path: str, write: Write) -> None:
    """Write a line for each aborted transaction."""
    try:
        index = TxnIndex(data, path)
    except CorruptionError:
        versions = [data[at] for at in range(0, len(data) - 33, 34) if 0 < data[at] < 128]
        what = f"Unexpected aborted transaction version {versions[0]}"
        reason = f"{what} in transaction index {path}, current version is 0"
        raise KafkaFailure("org.apache.kafka.common.KafkaException", reason) from None
    lines = [
        f"version: {_first_byte(version)} producerId: {producer} firstOffset: {first} lastOffset: {last} "
        f"lastStableOffset: {stable}\n"
        for version, producer, first, last, stable in index.entries.tolist()
    ]
    write("".join(lines).encode())


def _first_byte(version: int) -> int:
    """Return the first byte of the version: the tool reads only that one."""
    return version >> 8
