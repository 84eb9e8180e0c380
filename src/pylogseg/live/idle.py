"""Idle connections: kept for a while for the next request to the same node, then closed.

One thread of the process closes them; it ends when none is left.
"""

from __future__ import annotations

import atexit
import os
import selectors
import threading
import time
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pylogseg.live.connection import BrokerConnection

#: So long a connection is kept.
IDLE_S = 5.0
#: Settings of a client, and a node of the cluster.
IdleKey = tuple[object, int | None]


class _Idle(NamedTuple):
    key: IdleKey
    link: BrokerConnection
    since: float


_idle: list[_Idle] = []
_changed = threading.Condition()
_closer: threading.Thread | None = None


def keep(key: IdleKey, link: BrokerConnection) -> None:
    """Keep a connection without requests under way."""
    global _closer
    with _changed:
        _idle.append(_Idle(key, link, time.monotonic()))
        if _closer is None or not _closer.is_alive():
            _closer = threading.Thread(target=_close_old, name="pylogseg-idle-connections", daemon=True)
            _closer.start()


def take_kept(key: IdleKey) -> BrokerConnection | None:
    """Return the youngest connection that is kept and still open; None without one."""
    with _changed:
        for at in reversed(range(len(_idle))):
            if _idle[at].key != key:
                continue
            link = _idle.pop(at).link
            if _is_quiet(link):
                return link
            link.close()
    return None


def _is_quiet(link: BrokerConnection) -> bool:
    """Check whether there is nothing to read: a broker sends nothing unasked, so that else the connection has ended."""
    with selectors.DefaultSelector() as selector:
        selector.register(link, selectors.EVENT_READ)
        return not selector.select(0)


def close_all() -> None:
    """Close all connections that are kept."""
    with _changed:
        for entry in _idle:
            entry.link.close()
        _idle.clear()
        _changed.notify_all()


def _close_old() -> None:
    global _closer
    with _changed:
        while _idle:
            wait = _idle[0].since + IDLE_S - time.monotonic()
            if wait > 0:
                _changed.wait(wait)
            else:
                _idle.pop(0).link.close()
        _closer = None


def _begin_in_child() -> None:
    """Close the copies that a forked process has; its parent goes on with the connections."""
    global _changed, _closer
    _changed, _closer = threading.Condition(), None
    close_all()


atexit.register(close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_in_child)
