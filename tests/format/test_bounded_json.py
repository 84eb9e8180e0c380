"""Tests of format/bounded_json.py. JSON of strangers takes no more than 20 times its bytes and 64 MB."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from helpers.depth import IS_DEEP

import pylogseg
from pylogseg.format import bounded_json

TESTS = Path(__file__).parents[1]
#: What is read, however much there is of it.
READ = {
    "1", "1.5", "null", '"ab"', '{"id":12345,"name":"abcdef","price":12.5}', "[1.5,2.5]", "members", "members of text",
}  # fmt: skip


@pytest.mark.skipif(sys.platform != "linux", reason="the peak of a process's memory is read from /proc")
def test_json_takes_twenty_times_its_bytes() -> None:
    done = subprocess.run(
        [sys.executable, str(TESTS / "helpers" / "unfolding_json.py")],
        env={"PYTHONPATH": f"{Path(pylogseg.__file__).parents[1]}:{TESTS}", "PYTHONIOENCODING": "utf-8"}
        | ({"PYLOGSEG_DEEP": "1"} if IS_DEEP else {}),
        capture_output=True,
        encoding="utf-8",
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    cases = [line.split(";") for line in done.stdout.splitlines()]
    assert len(cases) == (4 * 27 if IS_DEEP else 2 * 25 + 4 * 2)
    for _, name, size, peak, _ in cases:
        assert int(peak) <= 20 * int(size) + (64 << 20), (name, size, peak)
    refused = {
        (name, int(size) > 3 << 20) for kind, name, size, _, is_read in cases if (kind, is_read) == ("read", "False")
    }
    assert ("[[]]", True) in refused
    assert all(is_large and name not in READ for name, is_large in refused)


def test_what_is_refused_is_said() -> None:
    with pytest.raises(ValueError, match=r"6000001 bytes of JSON, .* would take over 20 times as much memory"):
        bounded_json.loads(b"[" + b"[]," * 1_999_999 + b"[]]")
    assert bounded_json.loads("[" + "[]," * 1000 + "[]]") == [[]] * 1001
