"""Logs whose values are in Avro, with the schemas beside them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa

import pylogseg
from helpers.typed_values import varint

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "who", "type": ["null", "string"]},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "SENT"]}},
        {"name": "much", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 50, "scale": 2}],
         "default": None},
    ],
}  # fmt: skip


def order(number: int) -> bytes:
    """A value of `ORDER`, framed as schema 7; every fifth has no `who`, every third an amount."""
    who = b"\0" if number % 5 == 0 else b"\2" + varint(len(b"c-%d" % number)) + b"c-%d" % number
    much = b"\2\2" + bytes([number % 100]) if number % 3 == 0 else b"\0"
    return b"\0\0\0\0\7" + varint(number) + who + varint(number % 2) + much


def append_later_orders(root: Path, count: int) -> None:
    """Append orders of a later schema, 8, which has a field more; to the partition that `write_orders` has written."""
    note = {"name": "note", "type": ["null", "string"], "default": None}
    (root / "schemas" / "8.avsc").write_text(json.dumps({**ORDER, "fields": [*ORDER["fields"], note]}))
    with pylogseg.open_log(root / "orders-0", segment_bytes=4_000, index_interval_bytes=500) as log:
        numbers = range(log.log_end_offset, log.log_end_offset + count)
        values = [b"\0\0\0\0\10" + order(n)[5:] + b"\2" + varint(4) + b"note" for n in numbers]
        times = pa.array([1000 * n for n in numbers], pa.timestamp("ms", "UTC"))
        log.append(pa.table({"timestamp": times, "value": pa.array(values, pa.binary())}), batch_bytes=1_000)


def write_keyed_orders(root: Path, count: int, seed: int, *, typed: bool = False) -> None:
    """Append orders with keys, some of them of earlier ones, tombstones and records without a key; two partitions."""
    (root / "schemas").mkdir(parents=True, exist_ok=True)
    (root / "schemas" / "7.avsc").write_text(json.dumps(ORDER))
    random = np.random.default_rng(seed)
    for partition in (0, 1):
        folder = root / f"orders-{partition}"
        with pylogseg.open_log(folder, segment_bytes=2_000, index_interval_bytes=300) as log:
            first = log.log_end_offset
            keys = [None if n == 7 else b"%d:%d" % (n % 2, n) for n in random.integers(0, 60, count).tolist()]
            kinds = random.integers(0, 10, count).tolist()
            values = [
                None if kind == 0 else b"what?" if kind == 1 and typed else order(first + n)
                for n, kind in enumerate(kinds)
            ]
            times = pa.array([20_000_000 * (first + n) for n in range(count)], pa.timestamp("ms", "UTC"))
            columns = {"timestamp": times, "key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())}
            log.append(pa.table(columns), batch_bytes=300)


def bad(number: int) -> bool:
    """Whether the value of a number does not decode."""
    return number % 100 == 13


def write_orders(root: Path, count: int, partition: int = 0) -> Path:
    """A partition of orders in several segments, one second a record; one in a hundred values does not decode."""
    (root / "schemas").mkdir(parents=True, exist_ok=True)
    (root / "schemas" / "7.avsc").write_text(json.dumps(ORDER))
    with pylogseg.open_log(root / f"orders-{partition}", segment_bytes=20_000, index_interval_bytes=1000) as log:
        for first in range(0, count, 50):
            numbers = range(first, min(first + 50, count))
            values = [b"what?" if bad(n) else order(n) for n in numbers]
            times = pa.array([1000 * n for n in numbers], pa.timestamp("ms", "UTC"))
            log.append(pa.table({"timestamp": times, "value": pa.array(values, pa.binary())}), batch_bytes=1 << 20)
    return root
