"""A partition that a broker is writing, in fast motion, and a reader of it that checks every record.

python -m helpers.live FOLDER SECONDS        the reader: prints what it saw as JSON, fails at a record that nobody wrote
"""

from __future__ import annotations

import faulthandler
import json
import os
import struct
import sys
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path
from random import Random

from reference import build
from reference.batch import Record

RECORDS = 3
SEGMENT_BYTES = 60_000
PREALLOCATED_BYTES = 80_000


def record(offset: int, size: int) -> Record:
    """The record of an offset, whatever happened to its log: only its length differs."""
    return Record(offset, 1_000_000 + offset, b"%d" % offset, b"v%d " % offset + b"x" * size)


def is_right(found) -> bool:
    """Whether a record is one that was written at its offset."""
    head, _, rest = (found.value or b"").partition(b" ")
    return (
        (found.key, found.timestamp, head) == (b"%d" % found.offset, 1_000_000 + found.offset, b"v%d" % found.offset)
        and rest == b"x" * len(rest)
        and found.headers == ()
    )


class Writer:
    """Appends batches of three records, rolls, preallocates and trims; and, if rough, truncates and deletes."""

    def __init__(self, folder: Path, seed: int, rough: bool, preallocate: bool) -> None:
        self.folder, self.rng, self.rough, self.preallocate = folder, Random(seed), rough, preallocate
        self.end = 0
        self.done = Counter()
        self.segments: list[int] = []
        self.places: list[tuple[int, int]] = []  # base offset and position of the batches of the active segment
        self.position = 0
        self._open()

    def path(self, base: int, kind: str = "log") -> Path:
        return self.folder / f"{base:020d}.{kind}"

    def _open(self) -> None:
        base = self.end
        for kind, size in (("index", 4096 * 8), ("timeindex", 4096 * 12)):
            self.path(base, kind).write_bytes(bytes(size))
        self.file = os.open(self.path(base), os.O_RDWR | os.O_CREAT)
        if self.preallocate:
            os.ftruncate(self.file, PREALLOCATED_BYTES)
        self.segments.append(base)
        self.places, self.position = [], 0

    def step(self) -> None:
        """Do one thing that a broker does."""
        chance = self.rng.random()
        if self.position > SEGMENT_BYTES:
            self.roll()
        elif self.rough and chance < 0.02 and len(self.places) > 2:
            self.truncate()
        elif self.rough and chance < 0.03 and len(self.segments) > 4:
            self.delete()
        else:
            self.append()

    def append(self) -> None:
        """One batch, by one write or by two with a moment between them."""
        records = [record(self.end + i, self.rng.randrange(300)) for i in range(RECORDS)]
        data = build.batch_v2(records)
        cut = self.rng.choice((len(data), len(data), self.rng.randrange(1, len(data))))
        os.pwrite(self.file, data[:cut], self.position)
        if cut < len(data):
            time.sleep(0.0002)
            os.pwrite(self.file, data[cut:], self.position + cut)
        if len(self.places) % 5 == 4:
            self._index(records[-1].offset)
        self.places.append((self.end, self.position))
        self.position += len(data)
        self.end += RECORDS
        self.done["append"] += 1

    def _index(self, last_offset: int) -> None:
        base, slot = self.segments[-1], len(self.places) // 5
        with self.path(base, "index").open("r+b") as file:
            file.seek(8 * slot)
            file.write(struct.pack(">ii", last_offset - base, self.position))
        with self.path(base, "timeindex").open("r+b") as file:
            file.seek(12 * slot)
            file.write(struct.pack(">qi", 1_000_000 + last_offset, last_offset - base))

    def roll(self) -> None:
        """Trim the active segment and its indexes, then begin another."""
        self._trim_indexes()
        os.ftruncate(self.file, self.position)
        os.close(self.file)
        self._open()
        self.done["roll"] += 1

    def _trim_indexes(self) -> None:
        slots = len(self.places) // 5
        for kind, size in (("index", 8), ("timeindex", 12)):
            os.truncate(self.path(self.segments[-1], kind), size * slots)

    def truncate(self) -> None:
        """Take back the last batches of the active segment, as a follower does that a new leader corrects."""
        self.places = self.places[: self.rng.randrange(1, len(self.places))]
        self.end, self.position = self.places.pop()
        self._trim_indexes()
        os.ftruncate(self.file, self.position)
        self.done["truncate"] += 1

    def delete(self) -> None:
        """Retention: the oldest segment is renamed, and a little later removed."""
        base = self.segments.pop(0)
        for kind in ("log", "index", "timeindex"):
            self.path(base, kind).rename(self.path(base, f"{kind}.deleted"))
        for path in self.folder.glob("*.deleted"):
            if self.rng.random() < 0.5:
                path.unlink()
        self.done["delete"] += 1

    def run(self, seconds: float) -> None:
        """Go on for a while, and until each thing was done twice."""
        until = time.monotonic() + seconds
        wanted = ("append", "roll", "truncate", "delete") if self.rough else ("append", "roll")
        while time.monotonic() < until or min(self.done[name] for name in wanted) < 2:
            self.step()
            time.sleep(0.0001)
        os.close(self.file)


def check(offsets: list[int], first: int) -> None:
    """Offsets ascend, and come in whole batches."""
    assert all(a < b for a, b in pairwise(offsets)), "offsets do not ascend"
    whole = [offset for offset in offsets if offset >= first + RECORDS]
    assert all(
        whole[i : i + RECORDS] == list(range(whole[i], whole[i] + RECORDS))
        for i in range(0, len(whole), RECORDS)
        if whole[i] % RECORDS == 0
    ), "a batch is not whole"
    assert len({offset // RECORDS for offset in whole}) * RECORDS - len(whole) < RECORDS, "a batch is not whole"


def read_loop(folder: str, seconds: float) -> Counter[str]:
    """Read again and again, in all modes, from the start and from anywhere."""
    import pylogseg

    rng, seen, last = Random(1), Counter(), 0
    until = time.monotonic() + seconds
    while time.monotonic() < until or seen["passes"] < 3:
        mode = rng.choice(("raise", "stop", "skip"))
        first = rng.choice((0, rng.randrange(last + 1)))
        offsets: list[int] = []
        try:
            reader = pylogseg.read(
                folder, offset=first, on_corrupt=mode, drop_behind=rng.random() < 0.3, reuse_buffers=rng.random() < 0.5
            )
            for found in reader:
                assert is_right(found), found
                offsets.append(found.offset)
            seen["alarms"] += sum(gap.is_damage for gap in reader.gaps)
            seen["news"] += sum(not gap.is_damage for gap in reader.gaps)
        except pylogseg.PylogsegError as error:
            seen[type(error).__name__] += 1
            seen[f"error: {str(error)[-150:]}"] += 1
        check(offsets, first)
        seen["passes"] += 1
        seen["records"] += len(offsets)
        if offsets:
            seen["shorter"] += offsets[-1] < last and mode == "raise"
            last = offsets[-1]
    return seen


if __name__ == "__main__":
    faulthandler.dump_traceback_later(float(sys.argv[2]) + 200, exit=True)  # a reader that never ends says where it is
    print(json.dumps(read_loop(sys.argv[1], float(sys.argv[2]))))
