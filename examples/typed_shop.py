"""Write a disk with values in Avro and Protobuf, and the topic of the schema registry that says what they are.

    python examples/typed_shop.py DIR
    pylogseg schemas DIR
    pylogseg sql DIR --value-as schema "select value.id, value.lines[1].sku from orders"

Orders were written by two versions of their schema, one of them is broken; payments are in Protobuf. Times and values
are fixed, so that every run gives the same records.
"""

from __future__ import annotations

import json
import struct
import sys
from pathlib import Path
from typing import Any

from pylogseg import open_log
from pylogseg.testing.clock import ManualClock

#: 2026-03-01T12:00:00Z
NOON_MS = 1_772_366_400_000
LINE = {"type": "record", "name": "Line", "fields": [{"name": "sku", "type": "string"}, {"name": "n", "type": "int"}]}
STATE = {"type": "enum", "name": "State", "symbols": ["NEW", "PAID", "SENT"]}
FIELDS: list[dict[str, Any]] = [
    {"name": "id", "type": "long"},
    {"name": "customer", "type": ["null", "string"]},
    {"name": "state", "type": STATE},
    {"name": "lines", "type": {"type": "array", "items": LINE}},
]
#: Version 2 has one field more.
PLACED = {"name": "placed", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}], "default": None}
ORDER_1 = json.dumps({"type": "record", "name": "Order", "fields": FIELDS})
ORDER_2 = json.dumps({"type": "record", "name": "Order", "fields": [*FIELDS, PLACED]})
PAYMENT = 'syntax = "proto3"; message Payment { int64 order = 1; double amount = 2; optional string method = 3; }'
SCHEMAS = [("orders-value", 1, 1, "AVRO", ORDER_1), ("orders-value", 2, 2, "AVRO", ORDER_2),
           ("payments-value", 1, 3, "PROTOBUF", PAYMENT)]  # fmt: skip


def write(folder: Path) -> None:
    """Write all topics."""
    clock = ManualClock(NOON_MS + 20 * 60_000)
    with open_log(folder / "_schemas-0", clock=clock, cleanup_policy="compact") as log:
        log.append([registered(*each) for each in SCHEMAS])
    with open_log(folder / "orders-0", clock=clock, segment_bytes=4096) as log:
        for number in range(200):
            log.append([(NOON_MS + 1000 * number, f"c-{number % 7}", order(number))])
    with open_log(folder / "payments-0", clock=clock) as log:
        log.append([(NOON_MS + 1000 * number + 500, None, payment(number)) for number in range(0, 200, 2)])


def registered(subject: str, version: int, number: int, kind: str, text: str) -> tuple[int, str, str]:
    """Return the record by which a registry keeps a schema."""
    key = {"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1}
    value = {"subject": subject, "version": version, "id": number, "schema": text, "deleted": False}
    return NOON_MS - 3_600_000, json.dumps(key), json.dumps(value | ({} if kind == "AVRO" else {"schemaType": kind}))


def order(number: int) -> bytes:
    """Return an order in Avro; from 100 on in version 2."""
    if number == 42:
        return b"\0\0\0\0\1 not an order"
    customer = b"\0" if number % 11 == 0 else b"\2" + text(f"c-{number % 7}")
    lines = b"".join(text(f"sku-{(number + i) % 5}") + zigzag(i + 1) for i in range(1 + number % 2))
    made = zigzag(number) + customer + zigzag(number % 3) + zigzag(1 + number % 2) + lines + b"\0"
    return b"\0\0\0\0\1" + made if number < 100 else b"\0\0\0\0\2" + made + b"\2" + zigzag(NOON_MS + 1000 * number)


def payment(number: int) -> bytes:
    """Return a payment in Protobuf; the last byte of the frame says that it is the first message of its file."""
    method = b"" if number % 3 == 0 else b"\x1a\4" + (b"card", b"bank")[number % 3 - 1]
    return b"\0\0\0\0\3\0" + b"\x08" + varint(number) + b"\x11" + struct.pack("<d", number % 90 + 10) + method


def varint(number: int) -> bytes:
    """Return a number in groups of seven bits."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def zigzag(number: int) -> bytes:
    """Return a number as Avro has it."""
    return varint((number << 1) ^ (number >> 63))


def text(string: str) -> bytes:
    """Return a string as Avro has it."""
    return zigzag(len(string.encode())) + string.encode()


if __name__ == "__main__":
    write(Path(sys.argv[1]))
