"""Seconds that `pylogseg quorum` takes over a large metadata log, alone and beside one that is shorter.

    python asv_benchmarks/lost_quorum.py [--gigabytes 1] [--records 20] [--folder DIR]

The log has 1,000 partitions, and then changes of their leaders and ISR, so many `--records` in each batch. The shorter
one lacks a topic and the last 1,000 changes: they are named. Exit code 1 if it takes more than 10 s on the wall.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from cluster_state import metadata

from pylogseg.format.builder import build, shared_row
from pylogseg.format.files.properties import MetaProperties, encode_meta_properties
from pylogseg.format.messages.framing import encode_framed
from pylogseg.format.record_input import columns_from_records
from pylogseg.inspect.quorum.look import look_at_quorum

CLUSTER = "pylogsegQuorumLabAAAA0"
MOST_S = 10


def batch(values: Sequence[bytes], base_offset: int) -> bytes:
    rows = [(1_700_000_000_000, None, value) for value in values]
    return bytes(build(columns_from_records(rows, base_offset=base_offset), shared_row(leader_epoch=1))[0])


def write(folder: Path, size: int, per_batch: int) -> tuple[Path, Path]:
    """Write a long log and one that lacks its end; their offsets are patched, which no checksum covers."""
    values = [value for _, value in metadata(51 * 20 + 1000 * per_batch)]
    first, changes = values[: 51 * 20], values[51 * 20 :]
    batches = [batch(changes[at : at + per_batch], 0) for at in range(0, len(changes), per_batch)]
    block = np.frombuffer(b"".join(batches), np.uint8)
    places = np.cumsum([0, *map(len, batches)])[:-1]
    longer, shorter = (folder / name / "__cluster_metadata-0" for name in ("longer", "shorter"))
    longer.mkdir(parents=True)
    head = batch(first, 0)
    end = len(first)
    with open(longer / f"{0:020d}.log", "wb") as file:
        file.write(head)
        for _ in range(max(1, size // len(block))):
            numbers = (end + per_batch * np.arange(len(batches))).astype(">i8").view(np.uint8).reshape(-1, 8)
            piece = block.copy()
            piece[places[:, None] + np.arange(8)] = numbers
            file.write(piece.tobytes())
            end += per_batch * len(batches)
    shorter.parent.mkdir()
    shutil.copytree(longer, shorter)
    topic = {"name": "late", "topicId": f"{99:021d}A"}
    with open(longer / f"{0:020d}.log", "ab") as file:
        file.write(batch([encode_framed("TopicRecord", 0, topic), *changes[:1000]], end))
    for number, log in enumerate((longer, shorter), 1):
        text = encode_meta_properties(MetaProperties(1, CLUSTER, number, f"{number:021d}A"), "")
        (log.parent / "meta.properties").write_bytes(text)
    return longer.parent, shorter.parent


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=1)
    parser.add_argument("--records", type=int, default=20)
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="quorum-", dir=given.folder))
    try:
        disks = write(folder, int(given.gigabytes * 1e9), given.records)
        worst = 0.0
        for some in (disks[:1], disks):
            began, used = time.perf_counter(), time.process_time()
            look = look_at_quorum([str(disk) for disk in some])
            wall, cpu = time.perf_counter() - began, time.process_time() - used
            worst = max(worst, wall)
            lacking = [change.name for pair in look.pairs for change in pair.lacks if change.kind == "topic"]
            print(f"{len(some)} of {given.gigabytes:g} GB, {given.records} records a batch: {wall:.1f} s on the wall, "
                  f"{cpu:.1f} s of processor; lacking topics: {', '.join(lacking) or 'none'}", flush=True)  # fmt: skip
        return int(worst > MOST_S)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    sys.exit(main())
