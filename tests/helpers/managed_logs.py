"""What the tests of `LogManager` begin with: settings, a clock, records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pylogseg import BrokerSettings, EmbeddedLog
from pylogseg.testing.clock import ManualClock, ManualScheduler


def records(count: int, keys: int = 3) -> list[tuple[None, bytes, bytes]]:
    """Records of a few keys."""
    return [(None, b"key%d" % (i % keys), b"v" * 50) for i in range(count)]


def settings(tmp_path: Path, **changes: Any) -> BrokerSettings:
    """Those of a broker with two log directories and no cleaner."""
    dirs = (str(tmp_path / "a"), str(tmp_path / "b"))
    return BrokerSettings(**{"log_dirs": dirs, "log_cleaner_enable": False, **changes})


def manual() -> dict[str, Any]:
    """A clock that moves when told and its scheduler, as `LogManager` takes them."""
    clock = ManualClock(1_700_000_000_000)
    return {"clock": clock, "scheduler": ManualScheduler(clock)}


def names(path: Path) -> list[str]:
    """Folders in a folder."""
    return sorted(each.name for each in path.iterdir() if each.is_dir())


def fill(log: EmbeddedLog, count: int = 30) -> None:
    """Append records, a batch each."""
    for record in records(count):
        log.append([record])
