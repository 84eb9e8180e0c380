"""Targets of hostile bytes: indexes, snapshots, checkpoints, properties, status files, control records, names."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import cache
from random import Random
from typing import Any

import numpy as np

from helpers import mutations
from pylogseg._codec import crc32c
from pylogseg.errors import PylogsegError
from pylogseg.format import names
from pylogseg.format.batches import scan
from pylogseg.format.files import checkpoint, index, properties, snapshot, status, txnindex
from pylogseg.format.messages.control import decode_control
from pylogseg.format.records import decode


def files(rng: Random) -> None:
    """One file or record of any kind: what it says, or an error of ours."""
    kind = rng.choice(sorted(KINDS))
    seeds, use = KINDS[kind]
    data = rng.choice(seeds())
    data = mutations.damaged(rng, data) if data and rng.random() < 0.9 else rng.randbytes(rng.randrange(80))
    with suppress(PylogsegError):
        use(rng, data)


def _exact(data: bytes) -> Any:
    out = np.empty(len(data), np.uint8)
    out[:] = np.frombuffer(data, np.uint8)
    return out


def _numbers(rng: Random) -> list[int]:
    return [rng.choice((0, 1, -1, 1000, 2**31, 2**63 - 1, -(2**63))) for _ in range(3)] + [rng.getrandbits(40)]


def _use_index(kind: Any) -> Callable[[Random, bytes], None]:
    def use(rng: Random, data: bytes) -> None:
        found = kind(_exact(data), rng.choice((0, 1000, 2**40)))
        assert 0 <= len(found) <= found.slot_count == len(data) // found._entry.size
        for number in _numbers(rng):
            found.floor(number)
        many = found.floor_positions if kind is index.OffsetIndex else found.floor_offsets
        many(np.array(_numbers(rng)))
        if kind is index.OffsetIndex:
            found.upper_bound(rng.choice(_numbers(rng)[:4]), rng.randrange(1 << 30))
        assert len([found[slot] for slot in range(min(len(found), 3))]) <= 3
        found.check()
        found.check_entries()

    return use


def _use_txn_index(rng: Random, data: bytes) -> None:
    found = txnindex.TxnIndex(_exact(data))
    assert len(list(found)) == len(found) == len(data) // 34
    found.collect(*_numbers(rng)[:2])
    found.check(rng.choice((0, 1000)))


def _use_snapshot(rng: Random, data: bytes) -> None:
    if rng.random() < 0.8 and len(data) > 6:
        data = data[:2] + crc32c(data[6:]).to_bytes(4, "big") + data[6:]
    found = snapshot.parse_snapshot(_exact(data))
    assert len(found) <= len(data) // 30
    assert sorted(snapshot.parse_snapshot(snapshot.encode_snapshot(found))) == sorted(found)


def _use(parse: Callable[[Any], Any]) -> Callable[[Random, bytes], None]:
    return lambda rng, data: parse(_exact(data))


def _use_control(rng: Random, data: bytes) -> None:
    key, value = data[:4], data[4:]
    if rng.random() < 0.7:
        key = b"\0\0\0" + bytes((rng.randrange(9),))
    decode_control(rng.choice((key, key, _exact(key), None)), rng.choice((value, value, _exact(value), None)))


def _use_name(rng: Random, data: bytes) -> None:
    text = data.decode("utf-8", rng.choice(("replace", "surrogateescape", "ignore")))
    found = names.parse_file_name(text)
    assert found.offset is None or 0 <= found.offset < 1 << 63
    folder = names.parse_partition_folder(text)
    assert folder is None or 0 <= folder.partition < 1 << 31


@cache
def _entries() -> tuple[bytes, ...]:
    offsets = np.arange(1000, 1000 + 50 * 7, 7)
    return (
        index.encode_offset_index(1000, offsets, np.arange(50) * 4096),
        index.encode_offset_index(1000, offsets[:3], [0, 10, 20]) + bytes(80),
        index.encode_time_index(1000, np.arange(50) * 10 + 1, offsets),
        index.encode_time_index(1000, [5, 6], [1001, 1005]) + bytes(120),
        b"",
    )


@cache
def _aborted() -> tuple[bytes, ...]:
    return (txnindex.encode_txn_index([txnindex.AbortedTxn(7, i, i + 5, i + 6) for i in range(0, 100, 10)]),)


@cache
def _snapshots() -> tuple[bytes, ...]:
    entries = [snapshot.ProducerEntry(i, 0, 5, 100 + i, 2, 1000, -1, (-1, 99)[i % 2]) for i in range(4)]
    return snapshot.encode_snapshot(entries), snapshot.encode_snapshot([])


@cache
def _texts() -> tuple[bytes, ...]:
    found = {b"0\n2\ntopic-a 0 17\nb 12 9223372036854775807\n", b"0\n1\n5 1000\n"}
    found |= {b"a=b\\\n  c\n!x\n#y\nk\\u0041 : v\n", b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n"}
    kinds = ("*checkpoint*", "*.properties", "*.metadata", "quorum-state", ".kafka_cleanshutdown")
    for kind in kinds:
        found |= {path.read_bytes() for path in mutations.EXAMPLES.rglob(kind) if path.suffix != ".checkpoint"}
    return tuple(sorted(found))


@cache
def _control() -> tuple[bytes, ...]:
    """Keys and values of the control records that the examples hold."""
    found = {b"\0\0\0\0\0\0\0\0\0\1"}
    for path in sorted(mutations.EXAMPLES.rglob("*.log")) + sorted(mutations.EXAMPLES.rglob("*.checkpoint")):
        data = path.read_bytes()
        table = scan(data).batches
        columns, _ = decode(table[table.is_control], data)
        found |= {(columns.key(i) or b"") + (columns.value(i) or b"") for i in range(len(columns))}
    return tuple(sorted(found))


@cache
def _names() -> tuple[bytes, ...]:
    found = {path.name.encode() for path in mutations.EXAMPLES.rglob("*")}
    found |= {b"t-0.0123456789abcdef0123456789abcdef-delete", b"00000000000000000005.log.swap", b"9" * 5000 + b".log"}
    return tuple(sorted(found))


KINDS: dict[str, tuple[Callable[[], tuple[bytes, ...]], Callable[[Random, bytes], None]]] = {
    "offset index": (_entries, _use_index(index.OffsetIndex)),
    "time index": (_entries, _use_index(index.TimeIndex)),
    "transaction index": (_aborted, _use_txn_index),
    "snapshot": (_snapshots, _use_snapshot),
    "offset checkpoint": (_texts, _use(checkpoint.parse_offset_checkpoint)),
    "leader epochs": (_texts, _use(checkpoint.parse_leader_epochs)),
    "properties": (_texts, _use(properties.parse_properties)),
    "meta.properties": (_texts, _use(properties.parse_meta_properties)),
    "partition.metadata": (_texts, _use(status.parse_partition_metadata)),
    "quorum-state": (_texts, _use(status.parse_quorum_state)),
    "clean shutdown": (_texts, _use(status.parse_clean_shutdown)),
    "control": (_control, _use_control),
    "name": (_names, _use_name),
}
