"""Tests of offline/by_executor.py. Offline commands with an executor of other processes, from Python: their arguments,
and the same bytes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers.pickled_executor import Pickled
from helpers.trees import contents

import pylogseg
from pylogseg import offline
from pylogseg.env.executor import Threads
from pylogseg.errors import RequestError

NOW = 1_700_000_000_000


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for number in range(2):
        with pylogseg.open_log(tmp_path / "data" / f"t-{number}", segment_bytes=500) as log:
            for i in range(20):
                log.append([(NOW + i, b"k%d" % (i % 3), b"value %d" % i)])
    return tmp_path / "data"


def logs(folder: Path) -> dict[str, Any]:
    return {name: data for name, data in contents(folder).items() if name.endswith((".log", "index"))}


def test_an_argument_by_its_place(root: Path, tmp_path: Path) -> None:
    there = offline.truncate(root / "t-0", 12, into=tmp_path / "there", executor=Pickled(), now_ms=NOW)
    here = offline.truncate(root / "t-0", 12, into=tmp_path / "here", executor=Threads(2), now_ms=NOW)
    assert [(each.state, each.log_end) for each in there] == [(each.state, each.log_end) for each in here]
    assert [each.state for each in there] == ["done"]
    assert logs(tmp_path / "there") == logs(tmp_path / "here")


def test_a_run_completes_what_is_there(root: Path, tmp_path: Path) -> None:
    """Others may be in the folder already; with other options they give way only to `overwrite`."""
    out, executor = tmp_path / "out", Pickled()
    for names, states in ((["t-0"], ["done"]), (["t"], ["unchanged", "done"])):
        done = offline.redact(root, keys=[b"k1"], topic=names, into=out, executor=executor, now_ms=NOW)
        assert [each.state for each in done] == states
    with pytest.raises(RequestError, match="t-0: it already exists, and was not made by this command"):
        offline.redact(root, keys=[b"k2"], into=out, executor=executor)
    done = offline.redact(root, keys=[b"k2"], into=out, executor=executor, overwrite=True)
    assert [each.state for each in done] == ["done", "done"]
    assert {record.key for record in pylogseg.read(out)} == {b"k0", b"k1"}


def test_refused(root: Path, tmp_path: Path) -> None:
    before = contents(root)
    with pytest.raises(RequestError, match="give a folder that its workers share as into"):
        offline.compact(root, force=True, executor=Pickled())
    with pytest.raises(RequestError, match="overwrite is for an executor of other processes"):
        offline.compact(root, force=True, into=tmp_path / "out", overwrite=True)
    assert (contents(root), (tmp_path / "out").exists()) == (before, False)
