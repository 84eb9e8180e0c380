"""Tests of disk/tier/chunk_view.py. A tier is a stranger: large chunks are opened once, and links
in it lead nowhere.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import zlib
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from helpers.damaged_tiers import World

import pylogseg
from pylogseg.disk.lineage.chains import UNKNOWN_EPOCH, Lineage
from pylogseg.disk.tier.chunk_view import Cache, ChunkView, Source
from pylogseg.disk.tier.manifest import FixedChunks
from pylogseg.errors import RequestError

TESTS = Path(__file__).parents[1]


class Bytes:
    """An object in memory."""

    path = "object"

    def __init__(self, data: bytes) -> None:
        self._data, self.size = data, len(data)

    def read(self, position: int, size: int) -> bytes:
        return self._data[position : position + size]


def test_a_chunk_above_the_cache_is_opened_once() -> None:
    """Windows go through it; what is kept of others makes room for it."""
    packed, opened = zlib.compress(bytes(100_000)), []

    def open_chunk(data: bytes, size: int) -> bytes:
        opened.append(size)
        return zlib.decompress(data)

    chunks = FixedChunks(100_000, 300_000, len(packed), len(packed))
    view = ChunkView(Source(Bytes(packed * 3), chunks, open_chunk), Cache(most_bytes=5000))
    for position in range(0, 100_000, 4096):
        assert not any(view.read(position, 1000))
    assert opened == [100_000]


def test_a_chunk_that_was_dropped_is_gone_while_the_thread_that_opened_it_is_late() -> None:
    class Opened(bytes):
        def __del__(self) -> None:
            gone.set()

    gone, second = threading.Event(), threading.Event()

    def late(frame: FrameType, event: str, arg: object) -> None:
        if event == "return" and frame.f_code is Cache._run.__code__:
            threading.setprofile(None)
            assert second.wait(60)

    def load(group: list[int]) -> list[Any]:
        if group == [1]:
            found.append(gone.wait(5))
            second.set()
            return [bytes(1000)]
        return [Opened(1000)]

    cache, chunks, found = Cache(most_bytes=1600), FixedChunks(1000, 2000, 1000, 1000), list[bool]()
    threading.setprofile(late)
    try:
        for chunk in (0, 1):
            cache.get("object", chunk, chunk, load, chunks)
            assert cache.use("object", chunk, len) == 1000
    finally:
        threading.setprofile(None)
    assert found == [True]


@pytest.mark.skipif(sys.platform != "linux", reason="the peak of a process's memory is read from /proc")
def test_opened_chunks_take_no_more_than_the_cache_or_one_chunk() -> None:
    """Few bytes that become many, by the size of a chunk; by segments, one after the other and at the same time."""
    paths = [str(Path(pylogseg.__file__).parents[1]), str(TESTS)]
    done = subprocess.run(
        [sys.executable, str(TESTS / "helpers" / "unfolding_chunks.py")],
        # What is freed goes back to the system.
        env={"PYTHONPATH": ":".join(paths), "MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_THRESHOLD_": "65536"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    cases = [[*map(int, line.split(";"))] for line in done.stdout.splitlines()]
    assert len(cases) == 8
    for chunk, size, peak in cases:
        assert peak <= max(chunk, 48 << 20) + 20 * size + (16 << 20), (chunk, size, peak)


def test_links_to_folders_are_not_followed(tmp_path: Path) -> None:
    world = World(tmp_path / "world")
    root = Path(world.url.partition("://")[2])
    topic = next(path for path in root.iterdir() if path.is_dir())
    expected = world.offsets()
    for name, target in {"self": ".", "up": "..", "all": "/", "nowhere": "none"}.items():
        (root / name).symlink_to(target)
        (topic / name).symlink_to(target)
    assert world.offsets() == expected
    done = world.verify()
    assert (done.code, '"tier-links"' in done.text) == (2, True)
    assert f"{root / 'self'}: a link, which is not followed in a tier" in done.err
    assert "links to folders in the tier: 6" in done.text
    moved = tmp_path / "elsewhere"
    topic.rename(moved)
    topic.symlink_to(moved)
    with pytest.raises(RequestError, match="is a link, which is not followed"):
        pylogseg.open_tier(world.url, world.keys)


def test_a_root_that_is_a_link_is_read(tmp_path: Path) -> None:
    world = World(tmp_path / "world")
    expected = world.offsets()
    scheme, _, root = world.url.partition("://")
    (tmp_path / "link").symlink_to(root)
    world.url = f"{scheme}://{tmp_path / 'link'}"
    assert world.offsets() == expected


def test_epochs_of_offsets() -> None:
    log = Lineage.of([(epoch, 10 * epoch) for epoch in range(1, 20_001)], 0, 300_000)
    assert [log.epoch_at(at) for at in (0, 9, 10, 19, 20, 200_000, 299_999)] == [UNKNOWN_EPOCH] * 2 + [
        1, 1, 2, 20_000, 20_000
    ]  # fmt: skip
    assert Lineage((), 0, 5).epoch_at(3) == UNKNOWN_EPOCH
