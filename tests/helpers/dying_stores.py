"""A store in memory, and processes that die at a request that changes it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Collection, Iterator
from typing import Any

import fsspec
import pytest

from pylogseg.disk.stores import RemoteStore


@pytest.fixture(autouse=True)
def memory() -> Iterator[Any]:
    system = fsspec.filesystem("memory")
    yield system
    system.store.clear()
    system.pseudo_dirs[:] = [""]


class Dies(BaseException):
    """From the request at which a process is killed on, it does nothing."""


def dying(monkeypatch: pytest.MonkeyPatch, at: int, changes: Collection[str]) -> None:
    """Let the process die at a request that changes the store."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    monkeypatch.setattr("os.getpid", lambda: ended.pid)
    done: list[str] = []

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def request(self: RemoteStore, name: str, *more: Any) -> Any:
            if len(done) >= at:
                raise Dies
            done.append(name)
            return real(self, name, *more)

        return request

    for what in changes:
        monkeypatch.setattr(RemoteStore, what, counted(getattr(RemoteStore, what)))
