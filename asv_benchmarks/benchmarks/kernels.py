"""Kernels on buffers: checksums, headers, decoding, index search."""

from __future__ import annotations

import data
import numpy as np
import pyarrow as pa

from pylogseg import _codec
from pylogseg._native import _gather
from pylogseg.format.batches import scan
from pylogseg.format.files.index import OffsetIndex
from pylogseg.format.records import decode
from pylogseg.format.scratch import Scratch

RECORDS = 300_000


class Checksums:
    """CRCs of blocks; a block of 64 KiB at 20 GB/s takes 3.3 us."""

    params = (64, 4096, 65536, 1 << 20)
    param_names = ("size_bytes",)

    def setup(self, size_bytes: int) -> None:
        """A block of random bytes."""
        self.block = np.random.default_rng(1).bytes(size_bytes)

    def time_crc32c(self, size_bytes: int) -> None:
        """Magic 2."""
        _codec.crc32c(self.block)

    def time_crc32(self, size_bytes: int) -> None:
        """Magic 0 and 1."""
        _codec.crc32(self.block)


class Lending:
    """Memory for 64 columns, one after the other, each of which is written to: by the `Lender` of Arrow's columns.

    The pool of Arrow beside it clears its pages anew, or keeps them, as it likes.
    """

    params = (1 << 17, 1 << 20, 8 << 20)
    param_names = ("size_bytes",)

    def setup(self, size_bytes: int) -> None:
        """A lender that has lent before."""
        self.lend = _gather.Lender(pa.allocate_buffer)
        self.time_lender(size_bytes)

    def time_lender(self, size_bytes: int) -> None:
        """Memory that comes back is lent again."""
        for _ in range(64):
            np.frombuffer(self.lend(size_bytes), np.uint8)[::4096] = 1

    def time_pool(self, size_bytes: int) -> None:
        """Each time from the pool."""
        for _ in range(64):
            np.frombuffer(pa.allocate_buffer(size_bytes), np.uint8)[::4096] = 1


class Batches:
    """Headers and records of 300,000 records in a buffer."""

    def setup_cache(self) -> bytes:
        """A segment."""
        return data.segment(RECORDS)

    def setup(self, buffer: bytes) -> None:
        """Its batch table."""
        self.batches = scan(buffer).batches
        self.scratch = Scratch()

    def time_headers(self, buffer: bytes) -> None:
        """Scan without CRC."""
        scan(buffer, crc=False)

    def time_headers_and_crc(self, buffer: bytes) -> None:
        """Scan with CRC."""
        scan(buffer)

    def time_decode(self, buffer: bytes) -> None:
        """Record columns, memory used again."""
        decode(self.batches, buffer, scratch=self.scratch)


class Index:
    """Floor search in an offset index of 50,000 entries."""

    def setup(self) -> None:
        """An index, and keys in no order."""
        entries = np.empty((50_000, 2), ">i4")
        entries[:, 0] = np.arange(1, 50_001) * 150
        entries[:, 1] = np.arange(50_000) * 16_384
        self.index = OffsetIndex(entries.tobytes(), 0)
        self.keys = np.random.default_rng(3).integers(0, 50_000 * 150, 100_000)

    def time_one(self) -> None:
        """One look-up."""
        self.index.floor(3_141_592)

    def time_kernel_call(self) -> None:
        """One search without the objects around it."""
        _codec.search(self.index.buffer, 8, 0, 4, 50_000, 3_141_592)

    def time_bulk(self) -> None:
        """100,000 keys in one call."""
        self.index.floor_positions(self.keys)
