"""Tests of inspect/verify/records.py. `verify` of batches that contradict themselves behind a right CRC, and what a
real Kafka does with each of them.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any, NamedTuple

import fuzz
import pytest
from helpers import handmade
from scenarios import HW, op

import pylogseg
from pylogseg.disk.listing import open_dir
from pylogseg.inspect.verify.disk import VerifySummary, verify_disk
from pylogseg.inspect.verify.findings import Level

NOW = 1_700_000_000_000
LOG_APPEND, TRANSACTIONAL, CONTROL = 8, 16, 32
_IDEMPOTENT = (5, 0, 0)


class Case(NamedTuple):
    """A batch behind offset 3, the finding about it, and where Kafka ends with an error."""

    batch: bytes
    kind: str = ""
    is_damage: bool = True
    loads: bool = True  #: Whether a broker recovers a log with it.
    cleans: bool = True


def rows(first: bytes = b"key-", count: int = 3) -> bytes:
    return b"".join(handmade.record(i, i, first + b"%d" % i, b"value-%d" % i) for i in range(count))


def data(flags: int = 0, key: bytes = b"key-", **fields: Any) -> bytes:
    """Three records, of which the last one will be the last of its key."""
    how = {"codec": 0, "timestamp": NOW, "max_timestamp": NOW + 2, **fields}
    return handmade.batch(rows(key), how.pop("count", 3), flags=flags, **how)


def control(
    key: bytes | None, value: bytes | None, producer: tuple[int, int, int] = (5, 0, -1), **fields: Any
) -> bytes:
    body = handmade.record(0, 0, key, value)
    how = {"codec": 0, "flags": CONTROL | TRANSACTIONAL, "timestamp": NOW, "producer": producer, **fields}
    return handmade.batch(body, 1, **how)


COMMIT, ENDED = struct.pack(">hh", 0, 1), struct.pack(">hi", 0, 0)

CASES = {
    "whole": Case(data()),
    "whole, of a transaction": Case(data(TRANSACTIONAL, producer=_IDEMPOTENT)),
    "marker": Case(control(COMMIT, ENDED)),
    "marker of a later version": Case(control(struct.pack(">hh", 3, 0), struct.pack(">hi", 2, 0) + b"more")),
    "marker that is not transactional": Case(control(COMMIT, ENDED, flags=CONTROL)),
    "record of a Raft log": Case(control(struct.pack(">hh", 0, 6), b"?", (-1, -1, -1), flags=CONTROL)),
    "record of a Raft log of the future": Case(control(struct.pack(">hh", 0, 60), b"?", (-1, -1, -1), flags=CONTROL)),
    "unknown attributes": Case(data(0x7F80)),
    "sequence that goes back": Case(data(producer=(9, 0, 100))),
    "gap behind the records": Case(data(last=4)),
    "control bit on data": Case(data(CONTROL), "control"),
    "control bit on data with short keys": Case(data(CONTROL, b""), "control", cleans=False),
    "control bit on data of a producer": Case(data(CONTROL, producer=_IDEMPOTENT), "control", loads=False),
    "control bit on data of a transaction": Case(
        data(CONTROL | TRANSACTIONAL, producer=_IDEMPOTENT), "control", loads=False
    ),
    "control record without a key": Case(control(None, ENDED), "control", loads=False),
    "marker without a value": Case(control(COMMIT, None), "control", loads=False),
    "marker with a short value": Case(control(COMMIT, b"\0\0"), "control", loads=False),
    "marker of version -1": Case(control(struct.pack(">hh", -1, 1), ENDED), "control", loads=False),
    "marker with a value of version -1": Case(control(COMMIT, struct.pack(">hi", -1, 0)), "control", loads=False),
    "record of a Raft log, of a producer": Case(control(struct.pack(">hh", 0, 3), b"?"), "control", loads=False),
    "transactional without a producer": Case(data(TRANSACTIONAL), "uncleanable", cleans=False),
    "producer without an epoch": Case(data(producer=(5, -1, 0)), "uncleanable", cleans=False),
    "producer without a sequence": Case(data(producer=(5, 0, -1)), "uncleanable", cleans=False),
    "times below -1": Case(data(timestamp=-500, max_timestamp=-498), "uncleanable", False, cleans=False),
    "greatest timestamp too low": Case(data(max_timestamp=NOW - 5), "timestamp", False),
    "greatest timestamp too high": Case(data(max_timestamp=NOW + 10**10), "timestamp", False),
    "fewer records declared": Case(data(count=2, last=2), "records", cleans=False),
    "more records declared": Case(data(count=4, last=2), "header", cleans=False),
    "no records declared": Case(data(count=0, last=2), "header"),
    "count below 0": Case(data(count=-1, last=2), "header", cleans=False),
    "last offset too low": Case(data(last=1), "records"),
    "last offset below the first": Case(data(last=-1), "header"),
    "codec of nobody": Case(data(codec=6), "header", loads=True, cleans=False),
}  # fmt: skip


def segment(case: Case) -> bytes:
    """Three records, the batch behind them, and a later value of one of its keys."""
    made = bytearray(case.batch)
    struct.pack_into(">q", made, 0, 3)
    before = pylogseg.encode([(NOW, b"first", b"%d" % i) for i in range(3)], base_offset=0, leader_epoch=0)
    end = 4 + max(0, struct.unpack_from(">i", made, 23)[0])
    return (
        bytes(before)
        + bytes(made)
        + bytes(pylogseg.encode([(NOW, b"key-1", b"later")], base_offset=end, leader_epoch=0))
    )


@pytest.mark.parametrize("name", CASES)
def test_a_contradiction_is_found(tmp_path: Path, name: str) -> None:
    case = CASES[name]
    disk = open_dir(handmade.partition(tmp_path, segment(case)))
    findings = list(verify_disk(disk, VerifySummary(Level.RECORDS), partitions=disk.partitions))
    about = {finding.kind: finding for finding in findings if finding.kind != "gap"}
    both = {"header", "records"}  # a wrong count is a fault of either
    assert set(about) - both == {case.kind} - both - {""}, findings
    assert case.kind or not about
    if case.kind:
        assert about[case.kind].is_damage == case.is_damage
        assert about[case.kind].offset == 3


def test_kafka_ends_at_them(kafka: Any, tmp_path: Path) -> None:
    """Each batch as a disk has it: a broker recovers the log, and cleans it."""
    lists = [
        (f"{number:02}", [
            op("create", config={"cleanup.policy": "compact"}, now=NOW), HW, op("crash"),
            op("file", action="append", name="@last.log", hex=segment(case).hex()),
            op("open", clean=False, recovery_point=0), HW, op("roll"), HW, op("clean"),
            op("capture", keep="final"),
        ])
        for number, case in enumerate(CASES.values())
    ]  # fmt: skip
    fuzz.on_kafka(lists, tmp_path)
    found = {}
    for (number, _), name in zip(lists, CASES, strict=True):
        answers = [json.loads(line) for line in (tmp_path / number / "expected.jsonl").read_text().splitlines()]
        ended = {row["op"]: "error" not in row for row in answers}
        found[name] = ended["open"], not ended["open"] or ended["clean"]
    assert found == {name: (case.loads, case.cleans) for name, case in CASES.items()}
