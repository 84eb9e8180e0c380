"""Archives of many small segments, beside a disk that the archive has already."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import ClassVar

import many_segments

from pylogseg import archive

SEGMENTS = 400


class Archiving:
    """A disk of small segments, which a run uploads, and one that the newest point has."""

    params: ClassVar[list[int]] = [1, 2]
    param_names: ClassVar[list[str]] = ["threads"]

    def setup(self, threads: int) -> None:
        """Write the disk, and an archive of it."""
        self.folder = Path(tempfile.mkdtemp())
        self.disk = self.folder / "disk"
        many_segments.write(self.disk, SEGMENTS)
        archive.write(self.disk, self.folder / "whole", to_end=True)
        self.count = 0

    def teardown(self, threads: int) -> None:
        """Remove both."""
        shutil.rmtree(self.folder)

    def time_upload(self, threads: int) -> None:
        """All of it into a new archive."""
        self.count += 1
        archive.write(self.disk, self.folder / f"new{self.count}", to_end=True, jobs=threads)

    def time_nothing_new(self, threads: int) -> None:
        """A run that uploads nothing."""
        archive.write(self.disk, self.folder / "whole", to_end=True, jobs=threads)
