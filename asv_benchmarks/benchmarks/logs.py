"""Whole logs: reading with each codec, as columns, Arrow and text; memory; encoding; import."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import data
import pyarrow as pa
from memory import page_faults

import pylogseg
from pylogseg.format.text import json_lines, render
from pylogseg.reading.arrow.columns import schema

RECORDS = 300_000


def write_log(folder: Path, codec: str, records: int = RECORDS) -> Path:
    """A partition's folder with one sealed segment."""
    log = folder / codec / "bench-0"
    log.mkdir(parents=True)
    with (log / data.NAME).open("wb") as file:
        file.write(data.segment(records, codec))
    (log / f"{records:020d}.log").touch()
    return log


class Reading:
    """300,000 records of 100 bytes, CRCs checked."""

    params = data.CODECS
    param_names = ("codec",)

    def setup(self, codec: str) -> None:
        """A log in a folder of its own."""
        self.folder = tempfile.TemporaryDirectory()
        self.log = write_log(Path(self.folder.name), codec)

    def teardown(self, codec: str) -> None:
        """Remove the log."""
        self.folder.cleanup()

    def time_columns(self, codec: str) -> None:
        """Record columns, memory used again."""
        for _ in pylogseg.read(self.log, reuse_buffers=True).chunks():
            pass

    def time_arrow(self, codec: str) -> None:
        """All columns, values copied."""
        for _ in pylogseg.read_arrow(self.log):
            pass

    def track_page_faults(self, codec: str) -> float:
        """Pages that the system clears anew for record batches: what one lets go of is lent to the next."""
        return page_faults(lambda: self.time_arrow(codec))

    track_page_faults.unit = "faults"

    def time_arrow_views(self, codec: str) -> None:
        """All columns, values as views."""
        for _ in pylogseg.read_arrow(self.log, views=True):
            pass

    def time_arrow_mapped(self, codec: str) -> None:
        """All columns, values as views into the mapped file."""
        for _ in pylogseg.read_arrow(pylogseg.open_dir(self.log, memory_map=True), views=True):
            pass

    def time_arrow_few_columns(self, codec: str) -> None:
        """Offset and value."""
        for _ in pylogseg.read_arrow(self.log, columns=["offset", "value"]):
            pass

    def time_records(self, codec: str) -> None:
        """The first 20,000 records as objects."""
        for _ in pylogseg.read(self.log, limit=20_000):
            pass

    def time_json_lines(self, codec: str) -> None:
        """Text of all records."""
        program = json_lines(topic="bench", partition=0)
        for chunk in pylogseg.read(self.log, reuse_buffers=True).chunks():
            render(chunk.columns, program)

    def time_dump_kafka_style(self, codec: str) -> None:
        """The lines of kafka-dump-log.sh."""
        from pylogseg.inspect.dump.kafka_options import KafkaOptions
        from pylogseg.inspect.dump.kafka_style import kafka_dump

        with open(os.devnull, "wb") as null:
            kafka_dump([str(self.log / data.NAME)], null.write, print, KafkaOptions(print_data_log=True))


class ReadingKeyed:
    """300,000 records with a key, and with a header in each tenth batch or in none."""

    params = ("none", "some")
    param_names = ("headers",)

    def setup(self, headers: str) -> None:
        """A log in a folder of its own."""
        self.folder = tempfile.TemporaryDirectory()
        self.log = Path(self.folder.name) / "bench-0"
        self.log.mkdir()
        kind = schema(["headers"]).field(0).type
        with (self.log / data.NAME).open("wb") as file:
            for first in range(0, RECORDS, 1000):
                table = data.table(1000, first)
                keys = [b"key-%07d" % i for i in range(first, first + 1000)]
                table = table.append_column("key", pa.array(keys, pa.binary()))
                has_one = headers == "some" and first % 10_000 == 0
                one = [[{"key": "name", "value": b"header"}] if has_one else None] * 1000
                file.write(pylogseg.encode(table.append_column("headers", pa.array(one, kind)), base_offset=first))
        (self.log / f"{RECORDS:020d}.log").touch()

    def teardown(self, headers: str) -> None:
        """Remove the log."""
        self.folder.cleanup()

    def time_arrow(self, headers: str) -> None:
        """All columns."""
        for _ in pylogseg.read_arrow(self.log):
            pass

    def time_arrow_keys(self, headers: str) -> None:
        """Keys alone."""
        for _ in pylogseg.read_arrow(self.log, columns=["key"]):
            pass

    def time_arrow_values(self, headers: str) -> None:
        """Values alone."""
        for _ in pylogseg.read_arrow(self.log, columns=["value"]):
            pass


class Encoding:
    """150,000 records of 100 bytes from an Arrow table."""

    params = data.CODECS
    param_names = ("codec",)

    def setup(self, codec: str) -> None:
        """The table."""
        self.table = data.table(150_000)

    def time_encode(self, codec: str) -> None:
        """Batches of 16 KiB."""
        pylogseg.encode(self.table, compression=codec)


class Streaming:
    """A segment of 512 MiB, read in bounded memory."""

    timeout = 300

    def setup(self) -> None:
        """The segment, on the disk."""
        self.folder = tempfile.TemporaryDirectory()
        small = write_log(Path(self.folder.name), "none")
        self.log = Path(self.folder.name) / "large" / "bench-0"
        self.log.mkdir(parents=True)
        data.large_segment(small / data.NAME, self.log / data.NAME, 512 << 20)

    def teardown(self) -> None:
        """Remove the segment."""
        self.folder.cleanup()

    def track_arrow_memory(self) -> float:
        """Most that Arrow's pool held, in megabytes: what record batches are made of."""
        pool = pa.default_memory_pool()
        before, most = pool.bytes_allocated(), 0
        for _ in pylogseg.read_arrow(self.log):
            most = max(most, pool.bytes_allocated() - before)
        return most / 1e6

    track_arrow_memory.unit = "MB"

    def peakmem_arrow(self) -> None:
        """The whole process; pages of the mapped file, which the system may take back, count too."""
        for _ in pylogseg.read_arrow(self.log):
            pass


class Import:
    """A fresh interpreter; what numpy takes of it is beside."""

    def time_pylogseg(self) -> None:
        """``import pylogseg`` behind numpy."""
        subprocess.run([sys.executable, "-c", "import numpy, pylogseg"], check=True)

    def time_numpy(self) -> None:
        """``import numpy`` alone."""
        subprocess.run([sys.executable, "-c", "import numpy"], check=True)
