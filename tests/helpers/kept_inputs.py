"""Inputs that coverage led to: bytes in the place of a random generator, and the archive of those that are kept."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from random import Random

#: Folders of the targets of `soak/hostile.py`; `python tests/soak guided --pack` writes it.
ARCHIVE = Path(__file__).resolve().parents[1] / "soak" / "guided.tar.xz"


class Drawn(Random):
    """A generator that gives given bytes, and behind their end what a generator does that has them for its seed.

    So a mutation of the bytes is a mutation of what is made from them, and no loop runs for ever.
    """

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self._data, self._place = data, 0

    def getrandbits(self, k: int, /) -> int:
        """Take as many bytes as the bits need."""
        if self._place >= len(self._data):
            return super().getrandbits(k)
        size = (k + 7) // 8
        taken = self._data[self._place : self._place + size]
        self._place += size
        return int.from_bytes(taken, "little") & ((1 << k) - 1)

    def random(self) -> float:
        """Take a byte: a decision is worth no more."""
        return self.getrandbits(8) / 256


def kept() -> dict[str, list[bytes]]:
    """Return the inputs of the archive by target; none before there is one."""
    found: dict[str, list[bytes]] = {}
    if not ARCHIVE.exists():
        return found
    with tarfile.open(ARCHIVE) as archive:
        for member in archive:
            file = archive.extractfile(member)
            if file is not None:
                found.setdefault(Path(member.name).parent.name, []).append(file.read())
    return found


def pack(corpus: Path, most_bytes: int) -> None:
    """Write the archive from a folder of folders: the shortest inputs of each, at most so many bytes of a folder."""
    with tarfile.open(ARCHIVE, "w:xz") as archive:
        for folder in sorted(path for path in corpus.iterdir() if path.is_dir()):
            room = most_bytes
            for path in sorted(folder.iterdir(), key=lambda path: (path.stat().st_size, path.name)):
                data = path.read_bytes()
                if len(data) > room:
                    break
                room -= len(data)
                member = tarfile.TarInfo(f"{folder.name}/{path.name}")
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
