"""Tests of __main__.py and env/interrupts.py. Ctrl-C at any moment of a command: it ends with 130 and no traceback, and
nothing half-written stays.

The moments are those where the main thread looks for signals, counted; `tests/soak/interrupts.py` has more of them,
those of the start of a process, and some by the clock.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import forked
from helpers.depth import IS_DEEP
from helpers.interrupted import COMMANDS, SENDING, check, moments, places
from helpers.shell import environment

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")

#: So many moments of each command.
_MOMENTS = 4 if IS_DEEP else 2


@pytest.mark.parametrize("text", COMMANDS)
def test_any_moment(examples: Path, tmp_path: Path, text: str) -> None:
    source = places(examples, tmp_path / "source")
    total = moments(forked.python, text, source, tmp_path / "whole")
    draw = random.Random(text)
    for number in range(_MOMENTS):
        at = draw.randrange(number * total // _MOMENTS, (number + 1) * total // _MOMENTS) + 1
        check(forked.python, text, source, tmp_path / str(number), at)
        shutil.rmtree(tmp_path / str(number))


@pytest.mark.parametrize("error", ["RuntimeError('Query interrupted')", "ValueError('no')", None])
def test_a_library_that_swallows_it(examples: Path, error: str | None) -> None:
    """As an error of its own, or without a word: it is no success, and no traceback."""
    swallowing = f"""
import os, signal
from pylogseg.tables.sql import session
real = session._connect
def connect(*given):
    try:
        os.kill(os.getpid(), signal.SIGINT)
        signal.pthread_kill  # the interrupt comes here at the latest
    except KeyboardInterrupt:
        {"pass" if error is None else f"raise {error}"}
    return real(*given)
session._connect = connect
session.held_back = __import__("contextlib").nullcontext
from pylogseg.__main__ import main
main()
"""
    words = forked.python(swallowing, "sql", examples, "select 1 as one")
    done = subprocess.run(words, env=environment(), capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (130, b"")
    assert (b"one" in done.stdout) == (error is None)


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("sql DIR QUERY", "threading.py:start"),
        ("sql DIR QUERY", "_sources/pyarrow.py:__arrow_c_schema__"),
        ("sql DIR QUERY", "_weakrefset.py:_remove"),
        ("sql DIR QUERY", "sql/session.py:__exit__"),
        ("sql DIR QUERY", "shutil.py:rmtree"),
        ("ls DIR", "signal.py:_enum_to_int"),
        ("export DIR --out OUT --jobs 2", "threading.py:start"),
        ("export DIR --out OUT --jobs 2", "threading.py:_acquire_restore"),
        ("verify DIR --jobs 2", "threading.py:__enter__"),
        ("verify DIR --jobs 2", "threading.py:_release_save"),
    ],
)
def test_moments_in_which_it_would_be_lost(examples: Path, tmp_path: Path, text: str, at: str) -> None:
    """Where a thread begins that would not be waited for, a lock stays locked, duckdb or a destructor swallows it.

    And where what is temporary would stay: before it is removed, and in the middle of that.
    """
    check(forked.python, text, places(examples, tmp_path / "source"), tmp_path / "work", at)


def test_the_program_sends_one(examples: Path, tmp_path: Path) -> None:
    """The program of these tests."""
    words = [*forked.python(SENDING, "streams.py:write", tmp_path / "seen"), "ls", str(examples)]
    done = subprocess.run(words, env=environment(), capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")
    assert (tmp_path / "seen").read_text() == "sent"
