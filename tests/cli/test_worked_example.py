"""Tests of cli/workers.py. The command that docs/contributing.md shows: in threads, as pickles and on Spark, with
damage and a tier.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from helpers.damaged_logs import hurt
from helpers.pickled_executor import Pickled

import pylogseg
from pylogseg.cli.workers import Workers

PAGE = Path(__file__).parents[2] / "docs" / "contributing.md"


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file of the page, where it can be imported."""
    (text,) = re.findall(r'```python\n("""`pylogseg lengths`.*?)```', PAGE.read_text(), re.DOTALL)
    assert len(text.splitlines()) < 60
    path = tmp_path / "code" / "lengths.py"
    path.parent.mkdir()
    path.write_text(text)
    monkeypatch.syspath_prepend(str(path.parent))
    yield path
    sys.modules.pop("lengths", None)


def run(*words: object) -> tuple[int, list[dict[str, int]], str]:
    command = importlib.import_module("lengths").lengths
    mixes = {"mix_stderr": False} if "mix_stderr" in inspect.signature(CliRunner).parameters else {}
    done = CliRunner(**mixes).invoke(command, [*map(str, words), "--json"])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def test_threads_and_pickles(
    example: Path, examples: Path, golden: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = Counter(-1 if r.value is None else len(r.value) for r in pylogseg.read(examples, "codec-none"))
    code, rows, _ = run(examples, "codec-none")
    assert (code, {row["bytes"]: row["records"] for row in rows}) == (0, dict(sizes))
    disk, tier = hurt(examples, tmp_path / "data"), f"localtier+file://{golden}/tier/kafka-localtieredstorage"
    places = [[disk, "--on-corrupt", "skip"], [tier]]
    alone = [run(*words, "--jobs", 3) for words in places]
    assert alone[0][0] == 1
    assert "damage: " in alone[0][2]
    assert alone[1][1]
    monkeypatch.setattr(Workers, "executor", lambda self: contextlib.nullcontext(Pickled()))
    assert [run(*words) for words in places] == alone


def test_spark(spark: Any, example: Path, examples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextlib.contextmanager
    def session(master: str, settings: dict[str, str]) -> Iterator[Any]:
        spark.sparkContext.addPyFile(str(example))
        yield spark

    monkeypatch.setattr("pylogseg.spark.session.session", session)
    disk = hurt(examples, tmp_path / "data")
    assert run(disk, "--on-corrupt", "skip", "--spark", "default") == run(disk, "--on-corrupt", "skip")
