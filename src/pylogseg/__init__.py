"""Kafka's log storage engine and record format, without the broker."""

from typing import TYPE_CHECKING, Any

from pylogseg._version import __version__ as __version__

if TYPE_CHECKING:
    from pylogseg import offline as offline
    from pylogseg.config import LogConfig
    from pylogseg.disk.disk import Disk, LogDir, Partition, Segment, open_dir
    from pylogseg.disk.tiers import open_tier
    from pylogseg.errors import (
        ClosedError,
        CorruptionError,
        FencedError,
        InvalidRecordError,
        LockedError,
        OffsetOutOfRangeError,
        OutOfOrderSequenceError,
        PylogsegError,
        RequestError,
        StorageError,
        TooLargeError,
        TransactionStateError,
    )
    from pylogseg.format.batches import BatchTable, scan
    from pylogseg.format.records import RecordColumns, decode
    from pylogseg.inspect.verify.findings import Finding
    from pylogseg.log.log import Appended
    from pylogseg.owned.log import EmbeddedLog
    from pylogseg.owned.manager.manager import LogManager
    from pylogseg.owned.manager.settings import BrokerSettings
    from pylogseg.owned.opening import open_log
    from pylogseg.owned.producer import Producer
    from pylogseg.reading.arrow.encode import encode
    from pylogseg.reading.stream import Reader, Record, read
    from pylogseg.reporting.report import Report, report
    from pylogseg.server.opening import serve
    from pylogseg.server.security import Security
    from pylogseg.server.server import Server
    from pylogseg.server.writing.broker import Broker
    from pylogseg.tables.opening import dataset
    from pylogseg.tables.polars import scan_polars
    from pylogseg.tables.read_arrow import read_arrow
    from pylogseg.values.decoding import Decoding
    from pylogseg.values.internal.inside import Inside, inside
    from pylogseg.values.schemas.store import Schemas
    from pylogseg.walker.gaps import Gap, GapKind

# Loaded on first use: an import of the package must not cost more than what it is used for.
_HOMES = {
    "Appended": "pylogseg.log.log",
    "BatchTable": "pylogseg.format.batches",
    "Broker": "pylogseg.server.writing.broker",
    "BrokerSettings": "pylogseg.owned.manager.settings",
    "ClosedError": "pylogseg.errors",
    "CorruptionError": "pylogseg.errors",
    "Decoding": "pylogseg.values.decoding",
    "Disk": "pylogseg.disk.disk",
    "EmbeddedLog": "pylogseg.owned.log",
    "FencedError": "pylogseg.errors",
    "Finding": "pylogseg.inspect.verify.findings",
    "Gap": "pylogseg.walker.gaps",
    "GapKind": "pylogseg.walker.gaps",
    "Inside": "pylogseg.values.internal.inside",
    "InvalidRecordError": "pylogseg.errors",
    "LockedError": "pylogseg.errors",
    "LogConfig": "pylogseg.config",
    "LogDir": "pylogseg.disk.disk",
    "LogManager": "pylogseg.owned.manager.manager",
    "OffsetOutOfRangeError": "pylogseg.errors",
    "OutOfOrderSequenceError": "pylogseg.errors",
    "Partition": "pylogseg.disk.disk",
    "Producer": "pylogseg.owned.producer",
    "PylogsegError": "pylogseg.errors",
    "Reader": "pylogseg.reading.stream",
    "Record": "pylogseg.reading.stream",
    "RecordColumns": "pylogseg.format.records",
    "Report": "pylogseg.reporting.report",
    "RequestError": "pylogseg.errors",
    "Schemas": "pylogseg.values.schemas.store",
    "Security": "pylogseg.server.security",
    "Segment": "pylogseg.disk.disk",
    "Server": "pylogseg.server.server",
    "StorageError": "pylogseg.errors",
    "TooLargeError": "pylogseg.errors",
    "TransactionStateError": "pylogseg.errors",
    "dataset": "pylogseg.tables.opening",
    "decode": "pylogseg.format.records",
    "encode": "pylogseg.reading.arrow.encode",
    "inside": "pylogseg.values.internal.inside",
    "open_dir": "pylogseg.disk.disk",
    "open_log": "pylogseg.owned.opening",
    "open_tier": "pylogseg.disk.tiers",
    "read": "pylogseg.reading.stream",
    "read_arrow": "pylogseg.tables.read_arrow",
    "report": "pylogseg.reporting.report",
    "scan": "pylogseg.format.batches",
    "scan_polars": "pylogseg.tables.polars",
    "serve": "pylogseg.server.opening",
}

__all__ = [
    "Appended",
    "BatchTable",
    "Broker",
    "BrokerSettings",
    "ClosedError",
    "CorruptionError",
    "Decoding",
    "Disk",
    "EmbeddedLog",
    "FencedError",
    "Finding",
    "Gap",
    "GapKind",
    "Inside",
    "InvalidRecordError",
    "LockedError",
    "LogConfig",
    "LogDir",
    "LogManager",
    "OffsetOutOfRangeError",
    "OutOfOrderSequenceError",
    "Partition",
    "Producer",
    "PylogsegError",
    "Reader",
    "Record",
    "RecordColumns",
    "Report",
    "RequestError",
    "Schemas",
    "Security",
    "Segment",
    "Server",
    "StorageError",
    "TooLargeError",
    "TransactionStateError",
    "dataset",
    "decode",
    "encode",
    "inside",
    "open_dir",
    "open_log",
    "open_tier",
    "read",
    "read_arrow",
    "report",
    "scan",
    "scan_polars",
    "serve",
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
