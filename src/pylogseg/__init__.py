"""Kafka's log storage engine and record format, without the broker."""

from typing import TYPE_CHECKING, Any

from pylogseg._version import __version__ as __version__

if TYPE_CHECKING:
    from pylogseg import offline as offline
    from pylogseg.config import LogConfig as LogConfig
    from pylogseg.disk.disk import (
        Disk as Disk,
    )
    from pylogseg.disk.disk import (
        LogDir as LogDir,
    )
    from pylogseg.disk.disk import (
        Partition as Partition,
    )
    from pylogseg.disk.disk import (
        Segment as Segment,
    )
    from pylogseg.disk.disk import (
        open_dir as open_dir,
    )
    from pylogseg.disk.tiers import open_tier as open_tier
    from pylogseg.errors import (
        ClosedError as ClosedError,
    )
    from pylogseg.errors import (
        CorruptionError as CorruptionError,
    )
    from pylogseg.errors import (
        FencedError as FencedError,
    )
    from pylogseg.errors import (
        InvalidRecordError as InvalidRecordError,
    )
    from pylogseg.errors import (
        MissingKeyError as MissingKeyError,
    )
    from pylogseg.errors import (
        OffsetOutOfRangeError as OffsetOutOfRangeError,
    )
    from pylogseg.errors import (
        OutOfOrderSequenceError as OutOfOrderSequenceError,
    )
    from pylogseg.errors import (
        PylogsegError as PylogsegError,
    )
    from pylogseg.errors import (
        RequestError as RequestError,
    )
    from pylogseg.errors import (
        StorageError as StorageError,
    )
    from pylogseg.errors import (
        TooLargeError as TooLargeError,
    )
    from pylogseg.errors import (
        TransactionStateError as TransactionStateError,
    )
    from pylogseg.format.batches import BatchTable as BatchTable
    from pylogseg.format.batches import scan as scan
    from pylogseg.format.records import RecordColumns as RecordColumns
    from pylogseg.format.records import decode as decode
    from pylogseg.inspect.verify.findings import Finding as Finding
    from pylogseg.log.log import Appended as Appended
    from pylogseg.owned.log import EmbeddedLog as EmbeddedLog
    from pylogseg.owned.manager.manager import LogManager as LogManager
    from pylogseg.owned.manager.settings import BrokerSettings as BrokerSettings
    from pylogseg.owned.opening import open_log as open_log
    from pylogseg.owned.producer import Producer as Producer
    from pylogseg.reading.arrow.encode import encode as encode
    from pylogseg.reading.stream import Reader as Reader
    from pylogseg.reading.stream import Record as Record
    from pylogseg.reading.stream import read as read
    from pylogseg.reporting.report import Report as Report
    from pylogseg.reporting.report import report as report
    from pylogseg.server.opening import serve as serve
    from pylogseg.server.security import Security as Security
    from pylogseg.server.server import Server as Server
    from pylogseg.server.writing.broker import Broker as Broker
    from pylogseg.tables.opening import dataset as dataset
    from pylogseg.tables.polars import scan_polars as scan_polars
    from pylogseg.tables.read_arrow import read_arrow as read_arrow
    from pylogseg.values.decoding import Decoding as Decoding
    from pylogseg.values.internal.inside import Inside as Inside
    from pylogseg.values.internal.inside import inside as inside
    from pylogseg.values.schemas.store import Schemas as Schemas
    from pylogseg.walker.gaps import Gap as Gap
    from pylogseg.walker.gaps import GapKind as GapKind

#: Modules and their public names, each loaded on first use: an import of the package must not cost more than what it is
#: used for. Type checkers read the imports above, and a test compares the two.
_PUBLIC = {
    "pylogseg.config": "LogConfig",
    "pylogseg.disk.disk": "Disk LogDir Partition Segment open_dir",
    "pylogseg.disk.tiers": "open_tier",
    "pylogseg.errors": (
        "ClosedError CorruptionError FencedError InvalidRecordError MissingKeyError OffsetOutOfRangeError "
        "OutOfOrderSequenceError PylogsegError RequestError StorageError TooLargeError TransactionStateError"
    ),
    "pylogseg.format.batches": "BatchTable scan",
    "pylogseg.format.records": "RecordColumns decode",
    "pylogseg.inspect.verify.findings": "Finding",
    "pylogseg.log.log": "Appended",
    "pylogseg.owned.log": "EmbeddedLog",
    "pylogseg.owned.manager.manager": "LogManager",
    "pylogseg.owned.manager.settings": "BrokerSettings",
    "pylogseg.owned.opening": "open_log",
    "pylogseg.owned.producer": "Producer",
    "pylogseg.reading.arrow.encode": "encode",
    "pylogseg.reading.stream": "Reader Record read",
    "pylogseg.reporting.report": "Report report",
    "pylogseg.server.opening": "serve",
    "pylogseg.server.security": "Security",
    "pylogseg.server.server": "Server",
    "pylogseg.server.writing.broker": "Broker",
    "pylogseg.tables.opening": "dataset",
    "pylogseg.tables.polars": "scan_polars",
    "pylogseg.tables.read_arrow": "read_arrow",
    "pylogseg.values.decoding": "Decoding",
    "pylogseg.values.internal.inside": "Inside inside",
    "pylogseg.values.schemas.store": "Schemas",
    "pylogseg.walker.gaps": "Gap GapKind",
}
_HOMES = {name: module for module, names in _PUBLIC.items() for name in names.split()}
__all__ = sorted(_HOMES)


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
