"""What a type checker knows of the package: names and values of a log's settings."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.shell import environment

from pylogseg.config import LogConfig, LogSettings

ROOT = Path(__file__).resolve().parents[2]

_CALLS = {
    'open_log("t-0", segment_bytes=1 << 20, cleanup_policy="compact", preallocate=True)': None,
    'open_log("t-0", segment_bytes="1048576", cleanup_policy=["compact", "delete"], internal_segment_bytes=99)': None,
    'open_log("t-0", keep="kept", **read_from_somewhere())': None,
    'open_log("t-0", segment_byte=1)': 'Unexpected keyword argument "segment_byte"',
    'open_log("t-0", retention_ms=[1])': 'Argument "retention_ms" to "open_log" has incompatible type',
}


def test_every_setting_has_its_type() -> None:
    assert {*LogSettings.__annotations__} == {*LogConfig.__dataclass_fields__, "internal_segment_bytes"}


def test_programs_run_without_typing_extensions() -> None:
    code = "import sys; sys.modules['typing_extensions'] = None; from pylogseg import open_log"
    subprocess.run([sys.executable, "-c", code], env=environment(), check=True)


def test_mypy_knows_the_settings(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    program = tmp_path / "program.py"
    lines = ["from typing import Any", "from pylogseg import open_log", "", "def read_from_somewhere() -> Any: ...", ""]
    program.write_text("\n".join([*lines, *_CALLS]) + "\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-error-summary", "--strict", str(program)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    # With a cache, mypy names the file where an earlier run had the same program.
    found = re.findall(rf"^.*\b{program.name}:(\d+: error: .*)$", done.stdout, re.MULTILINE)
    wanted = [(len(lines) + number, words) for number, words in enumerate(_CALLS.values(), 1) if words]
    assert len(found) == len(wanted), done.stdout + done.stderr
    for line, (number, words) in zip(found, wanted, strict=True):
        assert line.startswith(f"{number}: ")
        assert words in line
