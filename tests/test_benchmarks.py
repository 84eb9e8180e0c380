"""The benchmarks of the engine run: each once, on little data. What they measure is asv's business."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parent.parent / "asv_benchmarks"


@pytest.fixture
def benchmarks(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(FOLDER)
    monkeypatch.syspath_prepend(FOLDER / "benchmarks")
    import engine_logs

    monkeypatch.setattr(engine_logs, "RECORDS", 3000)
    monkeypatch.setattr(engine_logs, "SEGMENTS", 3)
    return engine_logs


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
@pytest.mark.parametrize("name", ["Appending", "Finding", "Recovering", "Opening"])
def test_each_runs(benchmarks: Any, name: str) -> None:
    kind = getattr(benchmarks, name)
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
