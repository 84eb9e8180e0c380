"""Commands of the shell as forks of one process that has imported all they need: what a start costs is paid once.

Each is a process of its own, with its streams, folder, variables and exit code. The tests of the start itself, of
signals and of memory begin a new interpreter.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import functools
import importlib
import io
import json
import os
import runpy
import select
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from helpers.shell import environment

#: What the commands import when they need it.
_FURTHER = ("duckdb", "pyarrow.compute", "pyarrow.dataset", "pyarrow.parquet", "rich.progress")
#: Runs without `site` and without a package: a start of 20 ms. Its streams go to the fork, the fork's code comes back.
_CLIENT = """
import array, json, os, socket, struct, sys
server = socket.socket(socket.AF_UNIX)
server.connect(sys.argv[1])
asked = json.dumps([sys.argv[2:], os.getcwd(), dict(os.environ)]).encode("utf-8", "surrogatepass")
rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0, 1, 2]))]
server.sendmsg([struct.pack("<I", len(asked))], rights)
server.sendall(asked)
(code,) = struct.unpack("<i", server.recv(4))
sys.exit(code if code >= 0 else 128 - code)
"""


@functools.cache
def address(*before: str) -> str:
    """The socket of this process's server, which starts when first asked for and ends with this process."""
    folder = tempfile.mkdtemp(prefix="forks")
    words = [*before, sys.executable, "-m", "helpers.forked", f"{folder}/socket"]
    server = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment())
    assert server.stdin is not None
    assert server.stdout is not None
    assert server.stdout.readline() == b"ready\n"

    @atexit.register
    def end() -> None:
        server.stdin.close()
        server.wait()

    return f"{folder}/socket"


def command(*arguments: object, before: Iterable[str] = ()) -> list[str]:
    """The words that start a command, as `helpers.shell.command`; a signal would not reach it.

    What the server is started by, such as `helpers.shell.without_rights`, holds for the command.
    """
    return [sys.executable, "-I", "-S", "-c", _CLIENT, address(*before), *map(str, arguments)]


def python(code: str, *arguments: object) -> list[str]:
    """The words that run a program, as `python -c` does."""
    return command("-c", code, *arguments)


def process(*arguments: object, **options: Any) -> subprocess.Popen[bytes]:
    """Start a command with pipes, as `helpers.shell.process`."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    return subprocess.Popen(command(*arguments), **{"env": environment(), **pipes})


def script(path: Path) -> None:
    """Write a program that is `pylogseg` for a shell."""
    path.write_text(f'#!/bin/sh\nexec {shlex.join(command())} "$@"\n', encoding="utf-8")
    path.chmod(0o755)


def main(place: str) -> None:
    """Serve until the process that started this one is gone."""
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # as the command sets it
    from pylogseg.cli import shell

    for name in shell.list_commands(None):
        shell.get_command(None, name)
    for name in _FURTHER:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    running: dict[int, socket.socket] = {}
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.set_wakeup_fd(wakes)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    server = socket.socket(socket.AF_UNIX)
    server.bind(place)
    server.listen(64)
    print("ready", flush=True)
    while True:
        there, _, _ = select.select([0, woken, server], [], [])
        if 0 in there:  # closed
            os.unlink(place)
            os.rmdir(os.path.dirname(place))
            return
        if woken in there:
            os.read(woken, 4096)
            reap(running)
        if server in there:
            asking, _ = server.accept()
            words, folder, variables, streams = received(asking)
            pid = os.fork()
            if not pid:
                signal.set_wakeup_fd(-1)
                for other in (server, asking, *running.values()):
                    other.close()
                os.close(woken), os.close(wakes)
                become(words, folder, variables, streams)
            for stream in streams:
                os.close(stream)
            running[pid] = asking


def reap(running: dict[int, socket.socket]) -> None:
    """Tell who asked for them how processes ended."""
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        with running.pop(pid) as asking, contextlib.suppress(OSError):  # the client is gone
            asking.sendall(os.waitstatus_to_exitcode(status).to_bytes(4, "little", signed=True))


def received(asking: socket.socket) -> tuple[list[str], str, dict[str, str], list[int]]:
    """What a client asks for: words, folder, variables, and its three streams."""
    size, ancillary, _, _ = asking.recvmsg(4, socket.CMSG_SPACE(12))
    streams = array.array("i", ancillary[0][2]).tolist()
    count, data = int.from_bytes(size, "little"), b""
    while len(data) < count:
        data += asking.recv(count - len(data))
    words, folder, variables = json.loads(data.decode("utf-8", "surrogatepass"))
    return words, folder, variables, streams


def become(words: list[str], folder: str, variables: dict[str, str], streams: list[int]) -> None:
    """Be the command, to the end of this process."""
    code = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(variables)
        time.tzset()
        sys.stdin = open(0, encoding=sys.stdin.encoding, errors=sys.stdin.errors)  # noqa: SIM115
        asked = variables.get("PYTHONIOENCODING", f"{sys.stdout.encoding}:{sys.stdout.errors}").split(":")
        sys.stdout, sys.stderr = (
            io.TextIOWrapper(
                open(number, "wb"),  # noqa: SIM115
                encoding=asked[0],
                errors=errors,
                newline="\n",
                line_buffering=number == 2 or os.isatty(number),
            )
            for number, errors in ((1, asked[-1]), (2, "backslashreplace"))
        )
        if words[:1] == ["-c"]:
            sys.argv = ["-c", *words[2:]]
            exec(words[1], {"__name__": "__main__"})
        else:
            sys.argv = ["pylogseg", *words]
            runpy.run_module("pylogseg", run_name="__main__")
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        threading._shutdown()
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)


if __name__ == "__main__":
    main(sys.argv[1])
