"""Commands that get an interrupt at a chosen moment: an event of the main thread, by its number or the place."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from helpers.shell import environment
from helpers.trees import contents

#: Of a directory DIR, a folder OUT that is not there, and one that is empty.
COMMANDS = [
    "ls DIR",
    "cat DIR --on-corrupt skip",
    "grep value DIR --jobs 2",
    "latest DIR timestamps-0",
    "dump DIR/txn-a-0",
    "stats DIR --json",
    "stats DIR --by topic --jobs 2",
    "verify DIR --jobs 2",
    "diff DIR DIR",
    "groups DIR",
    "transactions DIR",
    "report DIR --output OUT.html",
    "export DIR --out OUT --jobs 2",
    "export DIR --out OUT --to jsonl",
    "copy DIR OUT",
    "restore DIR THERE",
    "recover DIR --into OUT --full",
    "compact DIR timestamps --include-active --into OUT --force",
    "recode DIR codec-none --compression zstd --into OUT",
    "sql DIR QUERY",
    "sql DIR QUERY --output OUT.parquet",
    "sql DIR QUERY --explain",
]
#: Where Python looks for signals: the begin of a function, and the end of a compiled one. None comes where a generator
#: yields: what it cleans up would be forgotten.
MOMENTS = ("call", "c_return")
#: A compiled function at whose end none comes: `with lock:` would leave it locked. It is an event from Python 3.14 on;
#: and 3.14 alone looks for signals there, a fault of its own.
NO_MOMENT = "__enter__"
QUERY = "select * from records where octet_length(value) > 2 order by value"
#: Its arguments: the number of an event, or FILE:FUNCTION for its first call; a file for what became of it; the words.
SENDING = f"""
MOMENTS, NO_MOMENT = {MOMENTS}, {NO_MOMENT!r}
import faulthandler, os, signal, sys
faulthandler.dump_traceback_later(50, exit=True)
at, told = sys.argv.pop(1), sys.argv.pop(1)
file, _, function = at.rpartition(":")
from pylogseg.__main__ import main
seen, sent = 0, False

def look(frame, event, arg):
    global seen, sent
    if event not in MOMENTS or getattr(arg, "__name__", None) == NO_MOMENT:
        return
    seen += 1
    code = frame.f_code
    if seen == int(function) if not file else code.co_name == function and code.co_filename.endswith(file):
        sys.setprofile(None)
        sent = True
        os.kill(os.getpid(), signal.SIGINT)

sys.argv[0] = "pylogseg"
sys.setprofile(look)
try:
    main()
finally:
    sys.setprofile(None)
    with open(told, "w") as out:
        out.write("sent" if sent else str(seen))
"""
#: A command has so many seconds to end, on a machine that does much beside it; before, it says where its threads are.
_PATIENCE_S = 60.0
Start = Callable[..., list[str]]


def places(examples: Path, source: Path) -> Path:
    """A directory with a few partitions."""
    for name in (
        "codec-none-1",
        "codec-gzip-0",
        "txn-a-0",
        "timestamps-0",
        "__consumer_offsets-0",
        "__transaction_state-0",
    ):
        shutil.copytree(examples / name, source / name)
    return source


def words_of(text: str, source: Path, work: Path) -> list[str]:
    """The words of a command; what it writes is in a folder, which is made."""
    (work / "there").mkdir(parents=True)
    given = {"QUERY": QUERY, "THERE": str(work / "there"), "DIR": str(source), "OUT": str(work / "out")}
    return [
        next((value + word[len(name) :] for name, value in given.items() if word.startswith(name)), word)
        for word in text.split()
    ]


def _run(start: Start, text: str, source: Path, work: Path, at: object) -> tuple[subprocess.CompletedProcess[str], str]:
    words = words_of(text, source, work)
    (work / "tmp").mkdir()
    done = subprocess.run(
        [*start(SENDING, at, work / "seen"), *words],
        env={**environment(), "TMPDIR": str(work / "tmp")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_PATIENCE_S,
        check=False,
    )
    seen = (work / "seen").read_text() if (work / "seen").exists() else ""
    return done, seen


def moments(start: Start, text: str, source: Path, work: Path) -> int:
    """How many events a command has that is not interrupted."""
    done, seen = _run(start, text, source, work, 0)
    assert done.returncode in (0, 1), done.stderr
    shutil.rmtree(work)
    return int(seen)


def check(start: Start, text: str, source: Path, work: Path, at: object) -> None:
    """Interrupt a command; what it had to write is there as a whole, or not at all."""
    before = contents(source)
    done, seen = _run(start, text, source, work, at)
    what = f"{text}, at {at}: {done.returncode}, {seen}: {done.stderr}"
    assert contents(source) == before, what
    assert os.listdir(work / "tmp") == [], what
    assert "Traceback" not in done.stderr, what
    assert "ignored" not in done.stderr, what
    if seen.isdecimal():  # it was over before
        assert done.returncode in (0, 1), what
        return
    assert done.returncode == 130, what
    left = [path.name for path in work.rglob("*") if path.name.endswith((".tmp", "-unfinished", ".cleaned", ".swap"))]
    assert left == [], what


def interrupted(work: Callable[[], None], at: int) -> bool:
    """Do some work in this process, with an interrupt at a moment of a number; return whether it came.

    TimeoutError if it does not end: a lock stayed locked.
    """
    seen = 0

    def look(frame: FrameType, event: str, arg: Any) -> None:
        nonlocal seen
        seen += event in MOMENTS and getattr(arg, "__name__", None) != NO_MOMENT
        if seen == at:
            sys.setprofile(None)
            signal.raise_signal(signal.SIGINT)

    def too_long(number: int, frame: FrameType | None) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, too_long)
    signal.alarm(int(_PATIENCE_S))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it in the background
    try:
        sys.setprofile(look)
        work()
    except KeyboardInterrupt:
        return True
    finally:
        sys.setprofile(None)
        signal.alarm(0)
        signal.signal(signal.SIGINT, before)
    return seen >= at
