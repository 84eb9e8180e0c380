"""Tiers: what a broker's plugin uploaded is read and restored, beside the segments themselves."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import ClassVar

import data

import pylogseg
from pylogseg import offline
from pylogseg.inspect.verify.disk import VerifySummary, verify_disk
from pylogseg.inspect.verify.findings import Level

sys.path.insert(1, str(Path(__file__).resolve().parents[2] / "tests"))
from helpers.tiers import Key, Uploader

RECORDS = 400_000
#: Of the plugin's documentation.
CHUNK_BYTES = 4 << 20


class Tiers:
    """40 MB in segments of 8 MiB, as they lie on a disk, and as objects on the same disk."""

    params: ClassVar[list[str]] = ["segments", "plain", "zstd and AES"]
    param_names: ClassVar[list[str]] = ["of"]

    def setup(self, of: str) -> None:
        """Write the log, and upload it."""
        self.folder = Path(tempfile.mkdtemp())
        log = self.folder / "disk" / "bench-0"
        with pylogseg.open_log(log, segment_bytes=8 << 20, retention_ms=-1) as written:
            written.append(data.table(RECORDS), batch_bytes=16384)
        ring = self.folder / "ring"
        key = Key.make("k", ring)
        uploader = Uploader(self.folder / "tier", CHUNK_BYTES, of != "plain", None if of == "plain" else key)
        uploader.partition(log, active=True)
        self.place = str(self.folder / "disk") if of == "segments" else f"aiven+file://{self.folder / 'tier'}"
        os.environ["PYLOGSEG_TIER_KEYS"] = str(ring)

    def teardown(self, of: str) -> None:
        """Remove both."""
        shutil.rmtree(self.folder)

    def time_open(self, of: str) -> None:
        """List what is there; of a tier, read the manifests."""
        pylogseg.open_dir(self.place)

    def time_columns(self, of: str) -> None:
        """All records as columns, memory used again."""
        for _ in pylogseg.read(pylogseg.open_dir(self.place), reuse_buffers=True).chunks():
            pass

    def time_arrow(self, of: str) -> None:
        """All columns, values copied."""
        for _ in pylogseg.read_arrow(pylogseg.open_dir(self.place)):
            pass

    def time_hundredth(self, of: str) -> None:
        """A hundredth of the offsets, from the middle."""
        middle = RECORDS // 2
        for _ in pylogseg.read_arrow(pylogseg.open_dir(self.place), offset=(middle, middle + RECORDS // 100)):
            pass

    def time_verify(self, of: str) -> None:
        """Every chunk, CRC, record and entry of an index."""
        for found in verify_disk(pylogseg.open_dir(self.place), VerifySummary(Level.INDEXES)):
            assert not found.is_damage, found

    def time_restore(self, of: str) -> None:
        """Into an empty log directory, which is removed again."""
        target = self.folder / "restored"
        target.mkdir()
        offline.restore(self.place, target)
        shutil.rmtree(target)
