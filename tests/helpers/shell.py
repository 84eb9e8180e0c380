"""The shell for tests: in this process, and as one of its own."""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from click.testing import CliRunner

from helpers.damaged_logs import change_byte
from pylogseg.cli import shell as group

ROOT = Path(__file__).resolve().parents[2]


class Done(NamedTuple):
    """What a command did."""

    code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        """The output as text."""
        return self.out.decode()

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The output as JSON lines."""
        return [json.loads(line) for line in self.out.splitlines()]


def pylogseg(*arguments: object) -> Done:
    """Run a command in this process; an exception that is no exit is raised."""
    # Older versions of click mix the two streams, unless they are told not to.
    mixes = "mix_stderr" in inspect.signature(CliRunner).parameters
    runner = CliRunner(**({"mix_stderr": False} if mixes else {}))
    done = runner.invoke(group, [str(a) for a in arguments], prog_name="pylogseg")
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return Done(done.exit_code, done.stdout_bytes, done.stderr)


def run(text: str) -> Done:
    """Run words in this process; whatever they meet, there is no traceback."""
    done = pylogseg(*text.split())
    assert "Traceback" not in done.err
    return done


def rows(done: Done, kind: str) -> list[dict[str, Any]]:
    """The rows of one type, of what a command printed as JSON."""
    return [row for row in done.rows if row["type"] == kind]


def expect(done: Done, code: int, *words: str, out: str | Iterable[str] = ()) -> Done:
    """Check how a command ended: its exit code, words in its messages, and words in its output; return it."""
    assert done.code == code, f"{done.err}{done.out[-2000:]!r}"
    for word in words:
        assert word in done.err
    for word in [out] if isinstance(out, str) else out:
        assert word in done.text
    return done


def command(*arguments: object) -> list[str]:
    """The words that start a command as a process."""
    return [sys.executable, "-m", "pylogseg", *map(str, arguments)]


def without_rights() -> list[str]:
    """What a command begins with to be one that the rights of files count for, also of root."""
    if os.geteuid() != 0:
        return []
    lost = "-dac_override,-dac_read_search"
    return ["setpriv", f"--bounding-set={lost}", f"--inh-caps={lost}"]


def environment() -> dict[str, str]:
    """For a process that finds the package as this one does."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONUNBUFFERED": ""}


def process(*arguments: object, **options: Any) -> subprocess.Popen[bytes]:
    """Start a command as a process with pipes."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    return subprocess.Popen(command(*arguments), **{"env": environment(), **pipes})


def at_work(running: subprocess.Popen[bytes], folder: Path) -> bool:
    """Whether a process has a file open below a folder; where the system does not tell, after two seconds."""
    opened = Path(f"/proc/{running.pid}/fd")
    if not opened.exists():
        time.sleep(2)
        return True
    names = []
    for path in opened.iterdir():
        with contextlib.suppress(OSError):  # closed meanwhile
            names.append(os.readlink(path))
    return any(name.startswith(f"{folder}{os.sep}") for name in names)


@contextlib.contextmanager
def locked(log_dir: Path) -> Iterator[int]:
    """While another process has the lock of a log directory, as a broker has it; the id of that process."""
    program = (
        "import sys; from pylogseg.env.locks import FolderLock\n"
        "lock = FolderLock(sys.argv[1]); print('locked', flush=True); sys.stdin.read()"
    )
    arguments = [sys.executable, "-c", program, log_dir]
    pipe = subprocess.PIPE
    with subprocess.Popen(arguments, stdin=pipe, stdout=pipe, env=environment()) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline().strip() == b"locked"
        try:
            yield holder.pid
        finally:
            holder.kill()


def damaged(source: Path, target: Path, segment: str, position: int) -> Path:
    """A copy of a partition's folder with one byte of a segment changed."""
    shutil.copytree(source, target)
    change_byte(target / segment, position, 0x5A)
    return target
