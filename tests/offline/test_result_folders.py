"""Tests of offline/result.py. What merge, copy and `--into` make gets its name at the end, and takes the place of
nothing but an empty folder.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.tiered_logs import write_log

from pylogseg import offline
from pylogseg.errors import RequestError, StorageError

Make = Callable[[Path, Path, Callable[[object], None]], object]


def merged(source: Path, out: Path, on_each: Callable[[object], None]) -> object:
    return offline.merge([source], out, on_result=on_each)


def copied(source: Path, out: Path, on_each: Callable[[object], None]) -> object:
    return offline.copy(source, out, on_partition=on_each)


def compacted(source: Path, out: Path, on_each: Callable[[object], None]) -> object:
    config = {"cleanup.policy": "compact"}
    return offline.compact(source, config=config, into=str(out), on_result=on_each)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_log(tmp_path / "disk" / "orders-0", 1, 20).parent


@pytest.mark.parametrize("make", [merged, copied, compacted])
def test_files_that_came_meanwhile(source: Path, make: Make) -> None:
    """The folder was empty at the start. What somebody puts there before the end stays."""
    out = source.parent / "out"
    out.mkdir()
    with pytest.raises(StorageError, match="somebody has put files here"):
        make(source, out, lambda result: (out / "precious").touch())
    assert [path.name for path in out.iterdir()] == ["precious"]
    assert not list(source.parent.glob(".out*"))


@pytest.mark.parametrize("make", [merged, copied, compacted])
def test_links(source: Path, make: Make) -> None:
    """A link is no place for a folder: that shows at the start, not when hours of work are done."""
    (source.parent / "elsewhere").mkdir()
    link = source.parent / "out"
    link.symlink_to(source.parent / "elsewhere")
    done: list[object] = []
    with pytest.raises(RequestError, match="a symbolic link: name a folder in it"):
        make(source, link, done.append)
    assert not done
    make(source, link / "log", done.append)
    assert (source.parent / "elsewhere" / "log" / "orders-0").is_dir()
