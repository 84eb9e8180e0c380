"""Ctrl-C at random moments of commands, from the start of the process on: `test_any_moment.py` with more of them.

Half of them are events of the main thread, also those of imports; the others come by the clock. A command ends with 130
without a traceback and leaves nothing half-written. Before the package's first line, Python itself ends as it likes.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from helpers.interrupted import COMMANDS, check, moments, places, words_of
from helpers.shell import ROOT, command, environment

_PATIENCE_S = 60.0


def started(code: str, *arguments: object) -> list[str]:
    """The words that run a program in a new interpreter."""
    return [sys.executable, "-c", code, *map(str, arguments)]


def by_clock(text: str, source: Path, work: Path, seconds: float) -> None:
    """Interrupt a command after some time."""
    asked = command(*words_of(text, source, work))
    (work / "tmp").mkdir()
    env = {**environment(), "TMPDIR": str(work / "tmp")}
    with subprocess.Popen(asked, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as running:
        time.sleep(seconds)
        running.send_signal(signal.SIGINT)
        _, said = running.communicate(timeout=_PATIENCE_S)
    is_early = running.returncode in (-signal.SIGINT, 1) and "pylogseg/cli" not in said
    what = f"{text}, after {seconds:.3f} s: {running.returncode}: {said}"
    assert is_early or running.returncode in (130, 0, -signal.SIGINT), what
    assert is_early or "Traceback" not in said, what
    assert is_early or not any((work / "tmp").iterdir()), what


def main() -> None:
    """Go through the commands until the time is over."""
    parser = argparse.ArgumentParser(prog=sys.argv[0], description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--only", default="", help="Commands that begin with this.")
    given = parser.parse_args()
    draw, until, count = random.Random(given.seed), time.monotonic() + 60 * given.minutes, 0
    with tempfile.TemporaryDirectory() as folder:
        source, work = places(ROOT / "examples" / "data", Path(folder, "source")), Path(folder, "work")
        chosen = [text for text in COMMANDS if text.startswith(given.only)]
        known: dict[str, tuple[int, float]] = {}
        while time.monotonic() < until:
            text = draw.choice(chosen)
            if text not in known:
                begun = time.monotonic()
                known[text] = moments(started, text, source, work), time.monotonic() - begun
            total, seconds = known[text]
            if draw.random() < 0.5:
                check(started, text, source, work, draw.randint(1, total))
            else:
                by_clock(text, source, work, draw.random() * seconds)
            shutil.rmtree(work)
            count += 1
    print(f"{count} interrupts of {len(known)} commands")


if __name__ == "__main__":
    main()
