"""Tests of cli/workers.py. One job, several executors: the same rows, messages and exit codes from threads and where
all is sent as pickles.
"""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from typing import Any

import pytest
from helpers.damaged_logs import hurt
from helpers.depth import diagonals
from helpers.every_job import READING, WRITING, partitions, told, words, written
from helpers.foreign_tables import broken
from helpers.pickled_executor import Pickled
from helpers.shell import Done
from helpers.shell import pylogseg as run

from pylogseg.cli.workers import Workers
from pylogseg.format.files.status import encode_clean_shutdown
from pylogseg.format.names import FileKind


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs a command as if it had `--spark`, with pickles in its place."""

    def executor(self: Workers) -> Any:
        return contextlib.nullcontext(Pickled())

    def done(*words: object) -> Done:
        with monkeypatch.context() as patch:
            patch.setattr(Workers, "executor", executor)
            patch.setattr(Workers, "is_spark", True)
            for module in ("cli.workers", "lakehouse.audit"):
                patch.setattr(f"pylogseg.{module}.PART_BYTES", 3000)  # here segments are shared, there they are not
            return run(*words)

    return done


@pytest.fixture(scope="module")
def disks(examples: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A whole directory, and one with damage."""
    root = tmp_path_factory.mktemp("disks")
    names = ("codec-none-1", "codec-gzip-0", "txn-a-0", "txn-a-1", "timestamps-0")
    for name in names:
        shutil.copytree(examples / name, root / "whole" / name)
    table = broken(root / "table", root / "whole")
    return {"whole": root / "whole", "damaged": hurt(root / "whole", root / "damaged"), "table": table}


@pytest.mark.parametrize("which", ["whole", "damaged"])
@pytest.mark.parametrize("text", READING)
def test_reading(sent: Any, disks: dict[str, Path], text: str, which: str) -> None:
    places = {"DIR": disks[which], "OTHER": disks["whole"], "TABLE": disks["table"]}
    assert told(sent(*words(text, **places))) == told(run(*words(text, **places)))


@pytest.mark.parametrize("which", ["whole", "damaged"])
def test_a_marker_says_if_records_were_lost(sent: Any, disks: dict[str, Path], which: str, tmp_path: Path) -> None:
    """It loses the broker's epoch, so that the controller knows, on a copy that each executor makes."""
    source, marker = tmp_path / "source", FileKind.CLEAN_SHUTDOWN.value
    shutil.copytree(disks[which], source)
    (source / marker).write_bytes(encode_clean_shutdown(14))
    done = [
        each("recover", source, "codec-none", "--full", "--no-keep", "--into", tmp_path / name)
        for each, name in ((sent, "there"), (run, "here"))
    ]
    assert [each.code for each in done] == [which == "damaged"] * 2
    for name in ("there", "here"):
        assert (tmp_path / name / marker).read_bytes() == encode_clean_shutdown(None if which == "damaged" else 14)


@pytest.mark.parametrize(("text", "which"), diagonals(WRITING, ["whole", "damaged"], 2))
def test_writing(sent: Any, disks: dict[str, Path], text: str, which: str, tmp_path: Path) -> None:
    one, other = tmp_path / "one" / "out", tmp_path / "other" / "out"
    for each in (one, other):
        each.mkdir(parents=True)
    there = sent(*words(text, DIR=disks[which], OUT=one))
    here = run(*words(text, DIR=disks[which], OUT=other))
    if "--into" in text:
        assert (there.code, partitions(there, one)) == (here.code, partitions(here, other))
    else:
        assert told(there, one) == told(here, other)
    assert written(one) == written(other)
