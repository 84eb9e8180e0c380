"""Tests of the whole package. The benchmarks of the engine run: each once, on little data. What they measure is asv's
business.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "asv_benchmarks"


@pytest.fixture
def benchmarks(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(FOLDER)
    from benchmarks import archive_runs, engine_logs, offline_commands, state_tables, tables

    monkeypatch.setattr(engine_logs, "RECORDS", 3000)
    monkeypatch.setattr(engine_logs, "SEGMENTS", 3)
    monkeypatch.setattr(offline_commands, "RECORDS", 3000)
    monkeypatch.setattr(state_tables, "RECORDS", 3000)
    monkeypatch.setattr(tables, "RECORDS", 3000)
    monkeypatch.setattr(archive_runs, "SEGMENTS", 10)
    modules = archive_runs, engine_logs, offline_commands, state_tables, tables
    return {name: kind for module in modules for name, kind in vars(module).items()}


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
@pytest.mark.parametrize(
    "name",
    [
        *("Appending", "Finding", "Reopened", "Recovering", "Opening", "OfflineReading", "OfflineChanging", "Typed"),
        *("ClusterState", "Audit", "Scan", "Archiving"),
    ],
)
def test_each_runs(benchmarks: Any, name: str) -> None:
    kind = benchmarks[name]
    arguments = tuple(kind.params[-1:]) if hasattr(kind, "params") else ()
    works = [each for each in dir(kind) if each.startswith(("time_", "track_"))]
    assert works
    for work in works:
        made = kind()
        made.setup(*arguments)
        folder = made.folder
        try:
            getattr(made, work)(*arguments)
        finally:
            made.teardown(*arguments)
        assert not folder.exists()


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_passes_over_a_partition(tmp_path: Path) -> None:
    options = ["--sizes", "8", "--map-kib", "400", "--value-bytes", "200", "--folder", tmp_path / "log"]
    command = [sys.executable, FOLDER / "passes.py", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    said = re.fullmatch(r"8 MiB, 40,000 records, a map of 400 KiB: (\d+) rounds, own memory [\d.]+ MB\n", done.stdout)
    assert said is not None
    assert int(said[1]) == 3
    assert not (tmp_path / "log").exists()
