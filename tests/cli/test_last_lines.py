"""Tests of cli/outcomes.py and cli/offline.py: the summary stands last, one line says it of many."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.shell import pylogseg

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
