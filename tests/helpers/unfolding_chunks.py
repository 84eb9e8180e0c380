"""Chunks of few bytes that become many, as a program of its own: it prints what reading them takes.

A line a case: bytes of a chunk, bytes of the objects, the most that memory grew by.
"""

from __future__ import annotations

import threading

import zstandard

from helpers.process_memory import Growth
from pylogseg.disk.tier.chunk_view import Cache, ChunkView, Source, opener
from pylogseg.disk.tier.keys import KeyRing
from pylogseg.disk.tier.manifest import FixedChunks

#: Bytes of a chunk, how many there are, segments, and the size of a read.
CASES = [
    (128 << 20, 3, 1, 8 << 20), (128 << 20, 1, 3, 8 << 20), (128 << 20, 2, 1, 100), (33 << 20, 8, 1, 8 << 20),
    (16 << 20, 4, 4, 8 << 20), (4 << 20, 64, 1, 8 << 20), (4 << 20, 16, 4, 1 << 20), (1 << 20, 256, 1, 8 << 20),
]  # fmt: skip


class Bytes:
    """An object in memory."""

    def __init__(self, data: bytes, path: str) -> None:
        self.data, self.size, self.path = data, len(data), path

    def read(self, position: int, size: int) -> bytes:
        return self.data[position : position + size]


def _walk(view: ChunkView, memory: memoryview) -> None:
    """Windows go through a segment, and look at the end of a chunk and the begin of the next if they are small."""
    size, step = view.size, len(memory)
    places = range(0, size, step) if step > 100 else [size // 2 - 50, 0, size - 100]
    for place in places:
        wanted = memory[: min(step, size - place)]
        assert view.read_into(place, wanted) == len(wanted)


def main() -> None:
    """Read each case, under a limit of what the process may take beside what is measured."""
    threading.stack_size(512 << 10)
    made = {case[0]: zstandard.compress(bytes(case[0])) for case in CASES}
    for chunk, count, segments, step in CASES:
        packed = made[chunk]
        cache, open_chunk = Cache(), opener(None, True, KeyRing(None))
        chunks = FixedChunks(chunk, chunk * count, len(packed), len(packed))
        views = [
            ChunkView(Source(Bytes(packed * count, str(n)), chunks, open_chunk), cache)  # type: ignore[arg-type]
            for n in range(segments)
        ]
        windows = [memoryview(bytearray(b"w" * step)) for _ in views]
        growth = Growth(max(chunk, 48 << 20) + (64 << 20))
        threads = [threading.Thread(target=_walk, args=each) for each in zip(views, windows, strict=True)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print(chunk, len(packed) * count * segments, growth.peak(), sep=";", flush=True)
        del cache, views, threads


if __name__ == "__main__":
    main()
