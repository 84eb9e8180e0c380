"""Tests of cli/outputs.py and disk/outside.py. Tests of disk/outside.py: no command writes other things into a log
directory, or into the folder of a partition.
"""

import shutil
from pathlib import Path

import pytest
from helpers.shell import pylogseg
from helpers.trees import tree

from pylogseg.disk.outside import check_outside
from pylogseg.errors import RequestError

#: Commands that make something, by what they are asked: IN is a disk that they read, OUT the place to write to.
COMMANDS = {
    "export": "export IN txn-a --out OUT",
    "export, one file": "export IN txn-a --out OUT.parquet",
    "export, by date": "export IN txn-a --out OUT --by-date",
    "copy": "copy IN OUT txn-a",
    "merge": "merge IN --into OUT",
    "recode": "recode IN txn-a --compression zstd --into OUT",
    "compact": "compact IN cmp-short -c cleanup.policy=compact --into OUT",
    "report": "report IN -o OUT.html",
    "groups": "groups IN --export OUT.json",
    "sql": "sql IN txn-a --output OUT.parquet SELECT_ALL",
    "repair": "repair IN --keep OUT",
    "recover": "recover IN --keep OUT",
    "archive": "archive IN OUT",
    "drill": "drill ARCHIVE txn-a --evidence OUT",
    "lake, Delta": "lake IN txn-a delta:OUT",
    "lake, Iceberg": "lake IN txn-a iceberg:OUT/db.orders",
}
PLACES = ["new", "txn-a-0/new", "txn-a-0", "deep/er/new"]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, examples: Path) -> Path:
    root = tmp_path_factory.mktemp("world")
    for name in ("in", "broker"):
        shutil.copytree(examples, root / name)
    (root / "broker" / "deep" / "er").mkdir(parents=True)
    assert pylogseg("archive", root / "in", root / "archive").code == 0
    (root / "link").symlink_to(root / "broker")
    return root


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("through", ["broker", "link"])
def test_each_command_refuses(world: Path, command: str, through: str) -> None:
    before = tree(world / "broker")
    for place in PLACES:
        names = {"IN": world / "in", "ARCHIVE": world / "archive", "SELECT_ALL": "select * from records"}
        words = [word.replace("OUT", str(world / through / place)) for word in COMMANDS[command].split()]
        done = pylogseg(*(names.get(word, word) for word in words))
        assert done.code == 2, (place, done.text, done.err)
        why = ("no broker starts with other things in it", "exists", "expected an empty folder")
        assert any(reason in done.err for reason in why), (place, done.err)
        assert tree(world / "broker") == before, place


def test_what_is_outside(world: Path) -> None:
    for place in ("new", "in-0/x", "archive/y", "txn-a-0"):
        check_outside(world / place)
    alone = shutil.copytree(world / "in" / "txn-a-0", world / "alone" / "txn-a-0")
    with pytest.raises(RequestError, match="the folder of a partition"):
        check_outside(alone / "table")
