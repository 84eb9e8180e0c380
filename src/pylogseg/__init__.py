"""Kafka's log storage engine and record format, without the broker."""

__version__ = "0.1.0"

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pylogseg import offline as offline
    from pylogseg.arrow import read_arrow
    from pylogseg.disk import open_dir
    from pylogseg.embedded.log import EmbeddedLog
    from pylogseg.embedded.opening import open_log
    from pylogseg.errors import ClosedError, CorruptionError, PylogsegError, RequestError, StorageError
    from pylogseg.format.batches import scan
    from pylogseg.log.log import Log
    from pylogseg.log.segment import LogSegment
    from pylogseg.manager.manager import LogManager
    from pylogseg.manager.settings import BrokerSettings
    from pylogseg.reading.stream import Reader, Record, read
    from pylogseg.write import encode

# Loaded on first use: an import of the package must not cost more than what it is used for.
_HOMES = {
    "encode": "pylogseg.write",
    "EmbeddedLog": "pylogseg.embedded.log",
    "BrokerSettings": "pylogseg.manager.settings",
    "Log": "pylogseg.log.log",
    "LogManager": "pylogseg.manager.manager",
    "LogSegment": "pylogseg.log.segment",
    "open_dir": "pylogseg.disk",
    "open_log": "pylogseg.embedded.opening",
    "read_arrow": "pylogseg.arrow",
    "read": "pylogseg.reading.stream",
    "Reader": "pylogseg.reading.stream",
    "Record": "pylogseg.reading.stream",
    "scan": "pylogseg.format.batches",
    "PylogsegError": "pylogseg.errors",
    "RequestError": "pylogseg.errors",
    "ClosedError": "pylogseg.errors",
    "CorruptionError": "pylogseg.errors",
    "StorageError": "pylogseg.errors",
}

__all__ = [
    "BrokerSettings",
    "ClosedError",
    "CorruptionError",
    "EmbeddedLog",
    "Log",
    "LogManager",
    "LogSegment",
    "PylogsegError",
    "Reader",
    "Record",
    "RequestError",
    "StorageError",
    "encode",
    "open_dir",
    "open_log",
    "read",
    "read_arrow",
    "scan",
]


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name == "offline":  # a package, whose functions are loaded one by one
        return import_module("pylogseg.offline")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'pylogseg' has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted([*__all__, *(name for name in globals() if name.startswith("__")), "offline"])
