"""Tests of cli/outcomes.py, cli/verify.py and format/outcome.py. Tests of cli/outcomes.py and cli/offline.py: the
summary stands last, one line says it of many.
"""

from __future__ import annotations

import re
import shutil
from collections import Counter
from pathlib import Path

import pytest
from helpers.shell import pylogseg

from pylogseg.disk.notes import without_paths

#: Commands on a copy of the examples, and the beginning of their last line.
LAST = {
    "verify DISK": "no damage, ",
    "copy DISK OUT": "copied 19 partitions, ",
    "copy DISK OUT --dry-run": "would copy 19 partitions, ",
    "archive DISK OUT": "20",
    "restore DISK EMPTY": "TOTAL: ",
    "move DISK EMPTY txn-a --dry-run": "TOTAL: ",
    "merge DISK --into OUT --dry-run": "TOTAL: ",
    "compact DISK --dry-run": "TOTAL: ",
    "recover DISK --dry-run": "TOTAL: ",
    "repair DISK --dry-run": "TOTAL: ",
    "reindex DISK --dry-run": "TOTAL: ",
    "recode DISK txn-a --compression zstd --dry-run": "TOTAL: ",
}


def words(line: str, disk: Path, folder: Path) -> list[str]:
    (folder / "empty").mkdir(parents=True)
    names = {"DISK": disk, "OUT": folder / "out", "EMPTY": folder / "empty"}
    return [str(names.get(word, word)) for word in line.split()]


@pytest.mark.parametrize("command", LAST)
def test_the_summary_stands_last_and_json_has_the_same_exit_code(command: str, examples: Path, tmp_path: Path) -> None:
    done = pylogseg(*words(command, examples, tmp_path / "a"))
    assert done.text.splitlines()[-1].startswith(LAST[command])
    assert pylogseg(*words(command, examples, tmp_path / "b"), "--json").code == done.code


def test_a_restore_says_once_that_topics_keep_their_ids(examples: Path, tmp_path: Path) -> None:
    done = pylogseg(*words("restore DISK EMPTY", examples, tmp_path))
    (line,) = (line for line in done.text.splitlines() if "the cluster's own one is not known" in line)
    assert line.startswith("16 topics, __consumer_offsets, __transaction_state, cmp-short, cmp-txn, codec-gzip and 11 ")


#: Commands on a disk on which a small file of each partition has no bytes.
ALIKE = (
    "verify DISK", "copy DISK OUT", "archive DISK OUT", "merge DISK --into OUT --dry-run", "compact DISK --dry-run",
    "recover DISK --dry-run", "reindex DISK --dry-run", "restore DISK EMPTY --force", "move DISK EMPTY * --force",
)  # fmt: skip
_NAMES = re.compile(r"\b[\w-]+-\d+\b")


@pytest.mark.parametrize("file", ["partition.metadata", "leader-epoch-checkpoint"])
@pytest.mark.parametrize("command", ALIKE)
def test_the_same_of_many_partitions_is_one_line(command: str, file: str, examples: Path, tmp_path: Path) -> None:
    disk = shutil.copytree(examples, tmp_path / "disk")
    for path in disk.glob(f"*/{file}"):
        path.write_bytes(b"")
    done = pylogseg(*words(command, disk, tmp_path))
    lines = [_NAMES.sub("", without_paths(line)) for line in (done.text + done.err).splitlines()]
    often = {line: count for line, count in Counter(lines).items() if count > 3}
    assert {
        line for line in often if not line.startswith(("        remedy:", "        urgency:", "        also:"))
    } == set()
