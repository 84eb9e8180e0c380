"""Proofs that a server changes nothing: a hash of the files, a read-only mount, and its system calls."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

#: System calls that change files, or open them.
CALLS = (
    "open,openat,openat2,creat,truncate,ftruncate,fallocate,rename,renameat,renameat2,unlink,unlinkat,mkdir,"
    "mkdirat,rmdir,link,linkat,symlink,symlinkat,chmod,fchmod,fchmodat,chown,fchown,fchownat,utimensat,setxattr,mknod,"
    "mknodat,pwrite64,pwritev,pwritev2,copy_file_range,flock,fcntl"
)
#: Of these, the harmless ones: opened for reading, no lock of a file, or the second half of a call, which has no flags.
HARMLESS = re.compile(
    r"resumed>|\b(open|openat|openat2)\((?!.*\b(O_WRONLY|O_RDWR|O_CREAT|O_TRUNC|O_APPEND|O_TMPFILE)\b)|\bfcntl\((?!.*F_(OFD_)?SETLK)"
)


class Writes(NamedTuple):
    """What a trace of system calls has shown."""

    calls: list[str]
    text: str


def digest(folders: list[Path]) -> str:
    """One number for all files below some folders, with their names and times."""
    found = hashlib.sha256()
    for path in sorted(path for folder in folders for path in folder.rglob("*")):
        found.update(f"{path} {path.stat().st_mtime_ns} {path.stat().st_mode}".encode())
        if path.is_file():
            found.update(path.read_bytes())
    return found.hexdigest()


@contextmanager
def readonly(folder: Path) -> Iterator[Path]:
    """The folder on a read-only mount; the folder itself where this system does not let us mount."""
    place = folder.with_name(f"{folder.name}-mounted")
    place.mkdir()
    mounted = os.geteuid() == 0 and shutil.which("mount") is not None
    if mounted:
        bind = subprocess.run(["mount", "--bind", folder, place], capture_output=True, check=False)
        again = bind.returncode or subprocess.run(["mount", "-o", "remount,bind,ro", place], check=False).returncode
        mounted = not again
    print(f"read-only mount: {'yes' if mounted else 'not permitted here'}", flush=True)
    try:
        yield place if mounted else folder
    finally:
        if mounted:
            # What served it has just been ended: the system may need a moment to let go of its files.
            for _ in range(50):
                if subprocess.run(["umount", place], capture_output=True, check=False).returncode == 0:
                    break
                time.sleep(0.2)
            else:
                subprocess.run(["umount", "--lazy", place], check=True)


class Watched:
    """`pylogseg serve` in a process, its system calls written down by strace where that is permitted."""

    def __init__(self, folders: list[Path], scratch: Path, *options: str) -> None:
        self._folders = folders
        self._trace = scratch / "calls"
        command = [sys.executable, "-m", "pylogseg", "serve", *map(str, folders), "--listen", "127.0.0.1:0", *options]
        self._traced = can_trace()
        if self._traced:
            command = ["strace", "-f", "--seccomp-bpf", "-y", "-o", str(self._trace), "-e", f"trace={CALLS}", *command]
        self._output = scratch / "serve.log"
        with self._output.open("w") as output:
            self._process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
        until = time.monotonic() + 60
        while not (found := re.search(r"\b(127\.0\.0\.1:\d+)", self._output.read_text())):
            if self._process.poll() is not None or time.monotonic() > until:
                sys.exit(f"pylogseg serve did not start: {self._output.read_text()}")
            time.sleep(0.05)
        self.address = found[1]

    def __enter__(self) -> Watched:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGINT)
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()

    def writes(self) -> Writes:
        """System calls that could have changed a served file, once the server has ended."""
        if not self._traced:
            return Writes([], "system calls were not traced: strace is not there or not permitted")
        lines = self._trace.read_text(errors="replace").splitlines()
        mine = [line for line in lines if any(str(folder) in line for folder in self._folders)]
        calls = [line for line in mine if not HARMLESS.search(line)]
        for line in calls[:10]:
            print(f"  writes: {line[:200]}")
        return Writes(calls, f"{len(calls)} writing system calls among {len(mine)} for them under strace")


def can_trace() -> bool:
    """Whether strace is there and may trace."""
    if shutil.which("strace") is None:
        return False
    return subprocess.run(["strace", "-o", os.devnull, "true"], capture_output=True, check=False).returncode == 0
