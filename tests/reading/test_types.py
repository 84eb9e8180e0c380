"""Tests of tables/reader.py. Types of settings and of shared keywords, as a type checker sees them."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers.shell import environment

import pylogseg
from pylogseg.config import LogConfig, LogSettings
from pylogseg.env.executor import WorkKeywords
from pylogseg.format.builder import BatchKeywords, shared_row
from pylogseg.lakehouse.lake import LakeKeywords, LakeOptions, LakeQuestion
from pylogseg.server.view import View, ViewKeywords

ROOT = Path(__file__).resolve().parents[2]

_CALLS = {
    'open_log("t-0", segment_bytes=1 << 20, cleanup_policy="compact", preallocate=True)': None,
    'open_log("t-0", segment_bytes="1048576", cleanup_policy=["compact", "delete"], internal_segment_bytes=99)': None,
    'open_log("t-0", keep="kept", **read_from_somewhere())': None,
    'open_log("t-0", segment_byte=1)': 'Unexpected keyword argument "segment_byte"',
    'open_log("t-0", retention_ms=[1])': 'Argument "retention_ms" to "open_log" has incompatible type',
    'lake("disk", "delta:t", clean=True, decoding="value", registry="schemas", jobs=2)': None,
    'lake("disk", "delta:t", cleen=True)': 'Unexpected keyword argument "cleen"',
    'lake("disk", "delta:t", layout="wide")': 'Argument "layout" to "lake" has incompatible type',
    'audit("disk", "table", jobs="2")': 'Argument "jobs" to "audit" has incompatible type',
    'encode([], compression="lz4", producer_id=1, producer_epoch=0, base_sequence=0)': None,
    'encode([], producer="1")': 'Unexpected keyword argument "producer"',
    'report("disk", max_decompressed_bytes="1M")': 'Argument "max_decompressed_bytes" to "report" has',
    'offline.restore("disk", "new", comitted=True)': 'Unexpected keyword argument "comitted"',
    'serve("disk", on_corrupt="stop")': 'Argument "on_corrupt" to "serve" has incompatible type',
}


def test_every_setting_has_its_type() -> None:
    assert {*LogSettings.__annotations__} == {*LogConfig.__dataclass_fields__, "internal_segment_bytes"}


def test_keywords_are_fields() -> None:
    shared = {*WorkKeywords.__annotations__, *LakeQuestion.__annotations__}
    assert {*LakeKeywords.__annotations__} - shared == {*LakeOptions.__dataclass_fields__} - {"reading", "decoding"}
    assert {*ViewKeywords.__annotations__} == {*View._fields}
    assert {*BatchKeywords.__annotations__} < {*inspect.signature(shared_row).parameters}


def test_a_keyword_that_no_function_has_is_refused() -> None:
    """With the names that there are; also where the type checker is not asked."""
    options: Any = {"cleen": True}
    for function in (pylogseg.lake, pylogseg.audit, pylogseg.offline.diff, pylogseg.offline.restore):
        with pytest.raises(TypeError, match="unexpected keyword argument 'cleen'; expected one of jobs, executor, "):
            function("examples/data", "out", **options)


def test_programs_run_without_typing_extensions() -> None:
    code = "import sys; sys.modules['typing_extensions'] = None; from pylogseg import open_log"
    subprocess.run([sys.executable, "-c", code], env=environment(), check=True)


def test_mypy_knows_settings_and_keywords(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    program = tmp_path / "program.py"
    lines = ["from typing import Any", "from pylogseg import *", "", "def read_from_somewhere() -> Any: ...", ""]
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
