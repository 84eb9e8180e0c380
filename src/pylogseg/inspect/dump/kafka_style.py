"""Dump files like ``kafka-dump-log.sh`` of Kafka 4.3, including its flaws.

The tool detects a file's kind by the suffix of its name, writes findings about indexes and offsets to stderr after
everything else, and ends at the first file that it cannot read, without the findings about earlier files. This module
does the same. `docs/format.md` describes the files; the behaviour was compared with the tool itself.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable

from pylogseg import _codec
from pylogseg.disk.tier.opening import any_file_system
from pylogseg.errors import CorruptionError, StorageError, is_missing
from pylogseg.format.files.snapshot import ProducerEntry, parse_snapshot
from pylogseg.format.files.txnindex import TxnIndex
from pylogseg.format.layout import SNAPSHOT_HEADER
from pylogseg.inspect.dump import kafka_index, kafka_log
from pylogseg.inspect.dump.kafka_options import (
    Complaints,
    KafkaFailure,
    KafkaOptions,
    Write,
    java_path,
    make_absolute,
    number_of,
)


def kafka_dump(
    paths: Iterable[str], write: Write, complain: Callable[[str], object], options: KafkaOptions | None = None
) -> bool:
    """Dump files or URLs as Kafka's tool does; by default batches and entries. Return whether it did not fail.

    `write` takes the bytes for stdout (a piece is valid only until the call returns), `complain` the lines for stderr.
    After a failure the other files are not dumped, and findings about earlier ones are not printed. The last line has
    the exception, without the tool's stack trace.
    """
    options = options or KafkaOptions()
    complaints = Complaints()
    for path in paths:
        try:
            _dump_file(path, write, complain, options, complaints)
        except KafkaFailure as failure:
            complain(f'Exception in thread "main" {failure}')
            return False
    for line in complaints.lines():
        complain(line)
    return True


def _dump_file(
    path: str, write: Write, complain: Callable[[str], object], options: KafkaOptions, complaints: Complaints
) -> None:
    shown = java_path(path)
    write(f"Dumping {shown}\n".encode())
    files, plain = any_file_system(path)
    name = files.split(plain)[1]
    suffix = name[name.rindex(".") :] if "." in name else ""
    try:
        if suffix in (".log", ".checkpoint"):
            kafka_log.dump_log(files, plain, name, write, options, complaints.jumps.setdefault(make_absolute(path), {}))
        elif suffix == ".index":
            kafka_index.dump_offset_index(files, plain, shown, write, options, complaints)
        elif suffix == ".timeindex":
            kafka_index.dump_time_index(files, plain, shown, write, options, complaints)
        elif suffix == ".snapshot":
            _dump_snapshot(files.read_all(plain), write, complain)
        elif suffix == ".txnindex":
            number_of(name)
            _dump_txn_index(files.read_all(plain), make_absolute(path), write)
        else:
            complain(f"Ignoring unknown file {shown}")
    except StorageError as error:
        if is_missing(error):
            raise KafkaFailure("java.nio.file.NoSuchFileException", error.path) from error
        raise
    finally:
        if not complaints.jumps.get(make_absolute(path), True):
            del complaints.jumps[make_absolute(path)]


def _dump_snapshot(data: bytes, write: Write, complain: Callable[[str], object]) -> None:
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
        f"coordinatorEpoch: {entry.coordinator_epoch} currentTxnFirstOffset: {_optional(entry.first_txn_offset)} "
        f"lastTimestamp: {entry.timestamp}"
    )
    if entry.has_batch:
        line += (
            f" firstSequence: {entry.first_sequence} lastSequence: {entry.last_sequence} "
            f"lastOffset: {entry.last_offset} offsetDelta: {entry.offset_delta} timestamp: {entry.timestamp}"
        )
    return line + "\n"


def _optional(value: int) -> str:
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


def _dump_txn_index(data: bytes, path: str, write: Write) -> None:
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
