"""A log that is written: appends, fetches, look-ups, recovery, opening; the work of the table's rows of the engine."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import data
import numpy as np
from engine import close, open_log, sent
from memory import anonymous_mb

from pylogseg import encode, scan
from pylogseg.log.log import Log

#: Where logs lie: in memory the figures are of the program, on a disk also of the disk.
PLACES = {"tmpfs": "/dev/shm", "disk": None}
RECORDS = 300_000
SEGMENTS = 200


class InAFolder:
    """A folder in one of the places, which is gone afterwards."""

    params = tuple(name for name, root in PLACES.items() if root is None or Path(root).is_dir())
    param_names = ("place",)
    number = 1  # each sample finds what `setup` left
    timeout = 300

    def setup(self, place: str) -> None:
        """Make the folder."""
        self.folder = Path(tempfile.mkdtemp(prefix="pylogseg-asv-", dir=PLACES[place]))

    def teardown(self, place: str) -> None:
        """Remove it with what is in it."""
        shutil.rmtree(self.folder)


class Appending(InAFolder):
    """512 batches of 16 KiB, or as many records."""

    def setup(self, place: str) -> None:
        """Batches as a producer sends them, and a log without any."""
        super().setup(place)
        (self.folder / data.NAME).write_bytes(data.segment(RECORDS // 3))
        self.batches = sent(self.folder / data.NAME)
        self.joined = b"".join(self.batches)
        self.table = data.table(145 * len(self.batches))
        self.log = open_log(self.folder / "t-0")

    def teardown(self, place: str) -> None:
        """Close the log."""
        close(self.log)
        super().teardown(place)

    def time_append(self, place: str) -> None:
        """One batch a call."""
        for batch in self.batches:
            self.log.append_as_leader(batch, 0)

    def time_append_many(self, place: str) -> None:
        """All batches in one call."""
        self.log.append_many(self.joined, 0).raise_first()

    def time_append_columns(self, place: str) -> None:
        """Columns, which are encoded first."""
        batches = encode(self.table, batch_bytes=data.BATCH_BYTES)
        starts = scan(batches, crc=False).batches.position
        np.frombuffer(batches, np.uint8)[starts[:, None] + np.arange(8)] = 0
        self.log.append_many(batches, 0, in_place=True).raise_first()

    def time_append_and_flush(self, place: str) -> None:
        """The same as `time_append_many`, forced to the disk."""
        self.log.append_many(self.joined, 0).raise_first()
        self.log.flush()

    def track_growth(self, place: str) -> float:
        """Own memory that 30 times as much takes."""
        self.log.append_many(self.joined, 0).raise_first()
        early = anonymous_mb()
        for _ in range(30):
            self.log.append_many(self.joined, 0).raise_first()
        return max(0.0, anonymous_mb() - early)

    track_growth.unit = "MB"


class Finding:
    """A log of 300,000 records in the page cache: places by offset and by time."""

    timeout = 300

    def setup(self) -> None:
        """The log with its indexes, and what is looked for."""
        self.folder = Path(tempfile.mkdtemp(prefix="pylogseg-asv-"))
        path = self.folder / "bench-0"
        path.mkdir()
        (path / data.NAME).write_bytes(data.segment(RECORDS))
        close(open_log(path, clean=False))
        self.log = open_log(path)
        random = np.random.default_rng(3)
        self.many = (random.random(100_000) * self.log.log_end_offset).astype(np.int64)
        self.offsets = self.many[:5000].tolist()
        self.times = random.integers(1_700_000_000_000, 1_700_000_000_600, 1000).tolist()

    def teardown(self) -> None:
        """Close and remove it."""
        close(self.log)
        shutil.rmtree(self.folder)

    def time_fetch(self) -> None:
        """5,000 reads at random offsets, a call each."""
        for offset in self.offsets:
            self.log.fetch(offset, 1)

    def time_place(self) -> None:
        """Places of 5,000 random offsets, a call each."""
        for offset in self.offsets:
            self.log.fetch(offset, 1, placed=True)

    def time_fetch_in_order(self) -> None:
        """The whole log, slices of a megabyte."""
        offset, end = 0, self.log.log_end_offset
        while offset < end:
            offset = int(scan(self.log.fetch(offset, 1 << 20).data, crc=False).batches.last_offset[-1]) + 1

    def time_places_in_bulk(self) -> None:
        """Places of 100,000 random offsets in one call."""
        self.log.locate_many(self.many)

    def time_offset_for_time(self) -> None:
        """1,000 look-ups by time, a call each."""
        for timestamp in self.times:
            self.log.offset_for_time(timestamp)


class Reopened:
    """A log of 200 segments that was closed in order and opened again: look-ups by call, from segment to segment."""

    number = 1  # the first look-up in a segment opens its files
    timeout = 300

    def setup(self) -> None:
        """The log, opened, and what is looked for."""
        self.folder = Path(tempfile.mkdtemp(prefix="pylogseg-asv-"))
        log = open_log(self.folder / "bench-0", segment_bytes=1 << 14)
        batches = [encode([(1_700_000_000_000 + i, None, bytes(15_000))]) for i in range(SEGMENTS)]
        log.append_many(b"".join(map(bytes, batches)), 0).raise_first()
        close(log)
        self.log = open_log(self.folder / "bench-0", segment_bytes=1 << 14)
        self.offsets = np.random.default_rng(3).integers(0, SEGMENTS, 5000).tolist()

    def teardown(self) -> None:
        """Close and remove it."""
        close(self.log)
        shutil.rmtree(self.folder)

    def time_place(self) -> None:
        """Places of 5,000 random offsets."""
        for offset in self.offsets:
            self.log.fetch(offset, 1, placed=True)

    def time_fetch(self) -> None:
        """Reads at them."""
        for offset in self.offsets:
            self.log.fetch(offset, 1)

    def time_offset_for_time(self) -> None:
        """Look-ups by the times of their records."""
        for offset in self.offsets:
            self.log.offset_for_time(1_700_000_000_000 + offset)


class Recovering(InAFolder):
    """300,000 records after a crash, without indexes."""

    def setup(self, place: str) -> None:
        """The segment alone."""
        super().setup(place)
        self.path = self.folder / "bench-0"
        self.path.mkdir()
        (self.path / data.NAME).write_bytes(data.segment(RECORDS))

    def time_recovery(self, place: str) -> None:
        """CRCs and headers are checked, indexes built."""
        close(open_log(self.path, clean=False))


class Opening(InAFolder):
    """A log of 200 segments that was closed in order."""

    def setup(self, place: str) -> None:
        """The log, closed."""
        super().setup(place)
        log = open_log(self.folder / "bench-0", segment_bytes=1 << 14)
        log.append_many(bytes(encode([(1_700_000_000_000, None, bytes(15_000))])) * SEGMENTS, 0).raise_first()
        close(log)
        self.opened: list[Log] = []

    def teardown(self, place: str) -> None:
        """Wait for what the logs do beside themselves."""
        for log in self.opened:
            log.scheduler.shutdown()
        super().teardown(place)

    def time_open(self, place: str) -> None:
        """Open it and let go of its files again."""
        log = open_log(self.folder / "bench-0")
        log.close_handles()
        self.opened.append(log)
