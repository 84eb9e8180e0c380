"""Tests of offline/running.py. Commands that change a disk, where the folder of a partition is a symbolic link: nothing
is written through it.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from helpers.shell import pylogseg as shell

import pylogseg

COMMANDS = [
    ("delete-records", "DISK", "t-0", "--offset", "5"),
    ("retain", "DISK", "t", "--bytes", "1"),
    ("compact", "DISK", "t", "--force"),
    ("truncate", "DISK", "t-0", "--to", "5"),
    ("reindex", "DISK", "t-0"),
    ("redact", "DISK", "t-0", "--key", "k"),
    ("recode", "DISK", "t-0", "--compression", "zstd"),
    ("repair", "DISK", "t-0"),
    ("recover", "DISK"),
    ("move", "DISK", "OTHER", "t-0"),
]


@pytest.fixture(scope="module")
def linked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("linked")
    with pylogseg.Broker(root / "disk") as broker:
        broker.create_topic("t", 1, {"cleanup.policy": "compact,delete"})
        for number in range(10):
            broker.produce("t", b"%d" % number, key=b"k")
    (root / "elsewhere").mkdir()
    (root / "disk" / "t-0").rename(root / "elsewhere" / "t-0")
    return root


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
def test_the_remedy_is_about_the_link(linked: Path, tmp_path: Path, words: tuple[str, ...]) -> None:
    """It names the commands that put the folder in the place of the link; what they are given then works."""
    root = Path(shutil.copytree(linked, tmp_path / "root"))
    link, folder = root / "disk" / "t-0", root / "elsewhere" / "t-0"
    link.symlink_to(folder)
    (root / "other").mkdir()
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    texts = {"DISK": root / "disk", "OTHER": root / "other"}
    done = shell(*(texts.get(word, word) for word in words))
    assert (done.code, "Usage" in done.err) == (2, False), done.err
    assert f"remedy: while the broker is stopped, `rm {link}`, then `mv {folder} {link}`" in done.text
    assert "permissions" not in done.text
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    link.unlink()
    shutil.move(folder, link)
    assert shell(*(texts.get(word, word) for word in words)).code in (0, 1)
