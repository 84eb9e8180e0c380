"""What other readers and writers take for the same work, each by the fastest honest loop that we know.

Their garbage collector is switched off while they run, since millions of small objects keep it busy for nothing.
"""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

import pyarrow as pa

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def without_collector(work: Callable[..., Any]) -> Callable[..., Any]:
    """Run a function without garbage collection."""

    @wraps(work)
    def run(*arguments: Any) -> Any:
        gc.disable()
        try:
            return work(*arguments)
        finally:
            gc.enable()

    return run


def _tables(batches: Iterator[Any], records_of: Callable[[Any], Any], at_once: int = 512) -> Iterator[pa.Table]:
    """Tables of so many batches at a time: lists of a whole file would only be slower."""
    while chunk := list(itertools.islice(batches, at_once)):
        offsets: list[int] = []
        times: list[int] = []
        keys: list[Any] = []
        values: list[Any] = []
        headers: list[Any] = []
        add_offset, add_time, add_key, add_value, add_headers = (
            offsets.append,
            times.append,
            keys.append,
            values.append,
            headers.append,
        )
        for batch in chunk:
            for record in records_of(batch):
                add_offset(record.offset)
                add_time(record.timestamp)
                add_key(record.key)
                add_value(record.value)
                add_headers(record.headers)
        yield pa.table(
            {
                "offset": pa.array(offsets, pa.int64()),
                "timestamp": pa.array(times, pa.timestamp("ms", "UTC")),
                "key": pa.array(keys, pa.binary()),
                "value": pa.array(values, pa.binary()),
                "headers": pa.array(headers, HEADERS) if any(headers) else pa.nulls(len(offsets), HEADERS),
            }
        )


def _valid(batches: Iterator[Any]) -> Iterator[Any]:
    for batch in batches:
        if not batch.validate_crc():
            raise ValueError("a bad CRC")
        yield batch


def _aiokafka_batches(data: bytes) -> Iterator[Any]:
    from aiokafka.record.memory_records import MemoryRecords

    records = MemoryRecords(data)
    while (batch := records.next_batch()) is not None:
        yield batch


@without_collector
def aiokafka_to_arrow(data: bytes) -> int:
    """Every record with all fields, CRCs checked, as Arrow tables; how many records."""
    return sum(table.num_rows for table in _tables(_valid(_aiokafka_batches(data)), iter))


@without_collector
def aiokafka_headers(data: bytes) -> int:
    """Base offset of every batch, from its header."""
    return len([batch.base_offset for batch in _aiokafka_batches(data)])


@without_collector
def kafka_python_to_arrow(data: bytes) -> int:
    """As `aiokafka_to_arrow`, by kafka-python."""
    from kafka.record.memory_records import MemoryRecords

    records = MemoryRecords(data)

    def batches() -> Iterator[Any]:
        while records.has_next():
            yield records.next_batch()

    return sum(table.num_rows for table in _tables(_valid(batches()), iter))


@without_collector
def aiokafka_encode(values: list[bytes], records: int, batch_records: int = 145) -> int:
    """Batches of 100-byte values by its builder; how many bytes."""
    from aiokafka.record.default_records import DefaultRecordBatchBuilder

    size, source = 0, itertools.cycle(values)
    for first in range(0, records, batch_records):
        builder = DefaultRecordBatchBuilder(
            magic=2,
            compression_type=0,
            is_transactional=0,
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
            batch_size=1 << 15,
        )
        for i in range(min(batch_records, records - first)):
            builder.append(i, 1_700_000_000_000 + i, None, next(source), [])
        size += len(builder.build())
    return size


def has(name: str) -> bool:
    """Whether a package is installed."""
    from importlib.util import find_spec

    return find_spec(name) is not None
