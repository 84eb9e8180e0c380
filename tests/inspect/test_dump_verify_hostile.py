"""Tests of inspect/dump/kafka_index.py, inspect/dump/kafka_log.py, inspect/dump/kafka_options.py,
inspect/dump/kafka_style.py and inspect/dump/native.py. Damaged folders: dump and verify end, with lines or with an
error of ours, whatever the bytes are.
"""

from __future__ import annotations

import contextlib
import io
import os
import random
import shutil
import struct
from pathlib import Path

import pytest

from pylogseg import _codec
from pylogseg.disk.listing import open_dir
from pylogseg.errors import PylogsegError
from pylogseg.inspect.dump.kafka_options import KafkaOptions
from pylogseg.inspect.dump.kafka_style import kafka_dump
from pylogseg.inspect.dump.native import dump_file
from pylogseg.inspect.verify.disk import VerifySummary, verify_disk
from pylogseg.inspect.verify.findings import Level

SOURCES = ["broker-4.3/damage/transactions/in", "replay/legacy-formats/final", "replay/clean-compressed/final",
           "replay/raft-control-batches/final", "replay/idempotent-producers/final"]  # fmt: skip
#: More for a soak, e.g. 100000.
CASES = int(os.environ.get("PYLOGSEG_HOSTILE_FOLDERS", "100"))


def change(data: bytearray, rng: random.Random) -> None:
    """One change that disks, crashes and programs make."""
    at = rng.randrange(len(data))
    kind = rng.randrange(6)
    if kind == 0:
        data[at] ^= 1 << rng.randrange(8)
    elif kind == 1:
        data[at] = rng.choice([0, 255, 127, 128])
    elif kind == 2:
        data[at : at + 8] = rng.randbytes(8)
    elif kind == 3:
        del data[at:]
    elif kind == 4:
        data[at:at] = bytes(rng.randrange(300))
    else:
        data[at : at + 4] = rng.choice([b"\xff" * 4, b"\x7f\xff\xff\xff", b"\x80\0\0\0", bytes(4)])


def with_crcs(data: bytearray) -> None:
    """Make the check sums of magic 2 right, so that what is behind them is looked at."""
    at = 0
    while at + 61 <= len(data):
        size = 12 + struct.unpack_from(">i", data, at + 8)[0]
        if size < 61 or at + size > len(data) or data[at + 16] != 2:
            return
        struct.pack_into(">I", data, at + 17, _codec.crc32c(bytes(data[at + 21 : at + size])))
        at += size


def damage(folder: Path, rng: random.Random) -> None:
    paths = sorted(folder.iterdir())
    for path in rng.sample(paths, min(len(paths), rng.randint(1, 4))):
        data = bytearray(path.read_bytes())
        for _ in range(rng.randint(1, 5)):
            if data:
                change(data, rng)
        if path.suffix == ".log" and rng.random() < 0.5:
            with_crcs(data)
        path.write_bytes(data)


@pytest.mark.parametrize("source", SOURCES)
def test_damaged_folders(golden: Path, tmp_path: Path, source: str) -> None:
    folder = tmp_path / "x-0"
    for seed in range(CASES // len(SOURCES)):
        rng = random.Random(f"{source} {seed}")
        shutil.copytree(golden / source, folder)
        damage(folder, rng)
        for level in (Level.INDEXES, Level.HEADERS):
            disk = open_dir(folder)
            for finding in verify_disk(disk, VerifySummary(level), partitions=disk.partitions):
                assert finding.remedy
        for path in folder.iterdir():
            dump_every_way(str(path), rng)
        shutil.rmtree(folder)


def dump_every_way(path: str, rng: random.Random) -> None:
    out = io.BytesIO()
    flags = [rng.random() < 0.5 for _ in range(5)]
    kafka_dump([path], out.write, lambda line: None, KafkaOptions(*flags))
    for records in (False, True):
        for as_json in (False, True):
            with contextlib.suppress(PylogsegError):
                dump_file(path, out.write, records=records, as_json=as_json)
