"""Any file of a broker's disk as lines: JSON for programs, aligned columns for people."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator
from typing import Any

from pylogseg.disk.listing import open_dir
from pylogseg.disk.tier.opening import any_file_system, is_tier
from pylogseg.env.filesystem import FileSystem
from pylogseg.errors import RequestError, StorageError
from pylogseg.format.escape import json_line, printable_line
from pylogseg.format.names import FileKind, parse_file_name
from pylogseg.format.records import DECOMPRESSED_LIMIT_BYTES
from pylogseg.inspect.dump.entries import DumpRow, can_decode, entries
from pylogseg.inspect.dump.kafka_options import Write
from pylogseg.walker.gaps import GapKind

_RECORD_FIELDS = ("position", "offset", "timestamp", "timestampType", "key", "value", "headers")
_SHORT_FIELDS = ("offset", "timestamp", "key", "value", "headers")


def expand_paths(paths: Iterable[str]) -> Iterator[str]:
    """Yield the files of paths: patterns are expanded, and folders replaced by the Kafka files in them.

    A path that cannot be read is yielded as it is given: `dump_file` raises the error.
    """
    for argument in paths:
        files, pattern = any_file_system(argument)
        for path in files.glob(pattern) or [pattern]:
            if not _is_folder(files, path):
                yield _with_scheme(argument, path)
                continue
            names = [e.name for e in files.list_folder(path) if not e.is_dir]
            log_files = [name for name in names if parse_file_name(name).kind is not FileKind.UNKNOWN]
            if not log_files:
                remedy = "; name a file of it: `pylogseg ls -l` prints them" if is_tier(argument) else ""
                raise RequestError(f"{path}: no Kafka files in this folder{remedy}")
            yield from (_with_scheme(argument, files.join(path, name)) for name in log_files)


def _is_folder(files: FileSystem, path: str) -> bool:
    try:
        return files.stat(path).is_dir
    except StorageError:
        return False


def _with_scheme(given: str, path: str) -> str:
    scheme, separator, _ = given.partition("://")
    return path if not separator or "://" in path else f"{scheme}://{path}"


def dump_file(
    path: str,
    write: Write,
    *,
    records: bool = False,
    as_json: bool = False,
    limit_bytes: int = DECOMPRESSED_LIMIT_BYTES,
) -> bool:
    """Write the contents of a file or URL, as JSON lines or with a heading and aligned columns.

    The name determines the kind; a file with an unknown name counts as one of batches if it begins with a batch, else a
    RequestError says that it is not a Kafka file. Returns whether there was no damage. `write` takes bytes that are
    valid only until the call returns. Records of a batch that decompresses to more than `limit_bytes` are damage.
    Raises CorruptionError if a file without batches cannot be decoded, and StorageError if a part cannot be read; the
    readable batches are written first.
    """
    good, lost = True, ""
    lines = _JsonLines(path, write) if as_json else _Columns(path, write)
    for item in _items(path, records, as_json, limit_bytes):
        if isinstance(item, dict):
            good &= not item.get("isDamage", False)
            if item.get("kind") == GapKind.UNREADABLE.value:
                lost = lost or item["reason"]
            lines.row(item)
        else:
            write(item)
    lines.end()
    if lost:
        raise StorageError(path, "read all of it", lost)
    return good


def _items(path: str, records: bool, as_json: bool, limit_bytes: int) -> Iterator[Any]:
    files, plain = any_file_system(path)
    name = parse_file_name(files.split(plain)[1])
    if can_decode(name.kind):
        return entries(files.read_all(plain), name, path)
    from pylogseg.inspect.dump.batches import dump_batches, json_lead, records_program

    program = None
    if records and as_json:
        program = records_program(json_lead(path), _RECORD_FIELDS)
    elif records:
        program = records_program("    {", _SHORT_FIELDS)
    return dump_batches(open_dir(path).loose[0], program, limit_bytes=limit_bytes)


class _JsonLines:
    """A JSON object a line, each with the path of its file."""

    def __init__(self, path: str, write: Write) -> None:
        self._path, self._write = path, write

    def row(self, row: DumpRow) -> None:
        line = json_line({"file": self._path, **row}, separators=(",", ":"))
        self._write(line.encode() + b"\n")

    def end(self) -> None:
        pass


#: Columns of each type of row for people: heading, field, least width (negative: left-aligned).
_COLUMNS: dict[str, tuple[tuple[str, str, int], ...]] = {
    "batch": (
        ("POSITION", "position", 11),
        ("SIZE", "size", 9),
        ("BASE", "baseOffset", 12),
        ("LAST", "lastOffset", 12),
        ("COUNT", "count", 7),
        ("CODEC", "codec", -6),
        ("MAX TIMESTAMP", "maxTimestamp", -24),
        ("EPOCH", "leaderEpoch", 5),
        ("PRODUCER", "producer", -12),
        ("FLAGS", "flags", -5),
        ("CRC", "crc", -3),
    ),
    "offsetIndexEntry": (("SLOT", "slot", 8), ("OFFSET", "offset", 12), ("POSITION", "position", 11)),
    "timeIndexEntry": (("SLOT", "slot", 8), ("OFFSET", "offset", 12), ("TIMESTAMP", "timestamp", -24)),
    "abortedTransaction": (
        ("SLOT", "slot", 8),
        ("PRODUCER", "producerId", 10),
        ("FIRST", "firstOffset", 12),
        ("LAST", "lastOffset", 12),
        ("LAST STABLE", "lastStableOffset", 12),
    ),
    "producer": (
        ("PRODUCER", "producerId", 10),
        ("EPOCH", "producerEpoch", 5),
        ("SEQUENCES", "sequences", -15),
        ("LAST OFFSET", "lastOffset", 12),
        ("TIMESTAMP", "timestamp", -24),
        ("COORDINATOR EPOCH", "coordinatorEpoch", 17),
        ("TXN FROM", "firstTxnOffset", 12),
    ),
    "leaderEpoch": (("EPOCH", "epoch", 8), ("START OFFSET", "startOffset", 12)),
    "checkpointEntry": (("OFFSET", "offset", 12), ("PARTITION", "partition", 9), ("TOPIC", "topic", -1)),
    "property": (("KEY", "key", -16), ("VALUE", "value", -1)),
}
_TIMES = frozenset(["maxTimestamp", "timestamp"])


class _Columns:
    """Aligned columns, with a heading where the type of rows changes."""

    def __init__(self, path: str, write: Write) -> None:
        self._write = write
        self._heading = ""
        self._written = False
        self._line(f"# {path}")

    def row(self, row: DumpRow) -> None:
        kind = row["type"]
        self._written = True
        if kind == "gap":
            level = "DAMAGE" if row["isDamage"] else "notice"
            self._line(f"  {level}: bytes {row['position']} to {row['endPosition']}: {row['kind']}: {row['reason']}")
        elif kind == "controlRecord":
            what = row.get("fields") or row.get("reason", "")
            self._line(f"    offset {row['offset']}  {row['kind']} {json_line(what)}")
        elif kind == "indexRest":
            self._line(f"  {row['zeroSlots']} empty slots, {row['oddBytes']} odd bytes after the entries")
        elif kind in _COLUMNS:
            self._cells(kind, row)
        else:
            for name, value in row.items():
                if name != "type":
                    self._line(f"{name}: {'-' if value is None else value}")

    def _cells(self, kind: str, row: DumpRow) -> None:
        columns = _COLUMNS[kind]
        if kind != self._heading:
            self._heading = kind
            self._line("  ".join(_justify(title, width) for title, _, width in columns).rstrip())
        self._line("  ".join(_justify(_cell(row, name), width) for _, name, width in columns).rstrip())

    def _line(self, text: str) -> None:
        self._write(printable_line(text).encode() + b"\n")

    def end(self) -> None:
        if not self._written:
            self._line("  empty")


def _justify(text: str, width: int) -> str:
    return text.rjust(width) if width > 0 else text.ljust(-width)


def _cell(row: DumpRow, name: str) -> str:
    if name == "producer":
        return _producer(row)
    if name == "flags":
        return _flags(row)
    if name == "crc":
        return "ok" if row["isValid"] else "BAD"
    if name == "sequences":
        return "-" if row["lastSequence"] is None else f"{row['firstSequence']}..{row['lastSequence']}"
    value = row.get(name)
    if value is None:
        return "-"
    return dump_time(value) if name in _TIMES else str(value)


def _producer(row: DumpRow) -> str:
    """Format id, epoch and first sequence."""
    if row.get("producerId") is None:
        return "-"
    base = row["baseSequence"]
    return f"{row['producerId']}/{row['producerEpoch']}" + ("" if base is None else f":{base}")


def _flags(row: DumpRow) -> str:
    """Format flags: T transactional, C control, H delete horizon, A LogAppendTime; v0 or v1 for an old magic."""
    flags = {
        "T": row.get("isTransactional"),
        "C": row.get("isControl"),
        "H": row.get("deleteHorizon") is not None,
        "A": row["timestampType"] == "LogAppendTime",
        f"v{row['magic']}": row["magic"] < 2,
    }
    return "".join(letter for letter, is_set in flags.items() if is_set) or "-"


def dump_time(timestamp_ms: int) -> str:
    """Format a timestamp as ISO 8601 in UTC; as a number if it is outside the calendar."""
    try:
        moment = datetime.datetime(1970, 1, 1) + datetime.timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return f"{timestamp_ms} ms"
    return moment.isoformat(timespec="milliseconds") + "Z"
