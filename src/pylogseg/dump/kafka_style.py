"""The lines of ``kafka-dump-log.sh`` of Kafka 4.3, its flaws included.

The tool tells a file's kind by what stands behind the last dot of its name, writes findings about indexes and offsets
behind everything else to stderr, and ends at the first thing that it cannot read, without a word on the files before.
So does this. Rules: `docs/format.md` has the files; the behaviour was compared with the tool itself.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from pylogseg.dump.kafka_failure import KafkaFailure, number_of
from pylogseg.env.filesystem import file_system
from pylogseg.errors import StorageError

Write = Callable[[Any], object]

MAX_INT = 2**31 - 1


@dataclass(frozen=True)
class KafkaOptions:
    """The options of Kafka's tool, under its names; see its ``--help``."""

    deep_iteration: bool = False
    print_data_log: bool = False
    skip_record_metadata: bool = False
    verify_index_only: bool = False
    index_sanity_check: bool = False
    max_message_size: int = 5 * 1024 * 1024
    max_bytes: int = MAX_INT
    #: Not of Kafka's tool.
    max_decompressed_bytes: int = 64 << 20

    @property
    def is_deep(self) -> bool:
        """Whether records are printed: printing data implies it."""
        return self.deep_iteration or self.print_data_log


@dataclass
class Complaints:
    """What the tool says on stderr when all files are done: pairs of numbers, by kind and file.

    Pairs of mismatches and jumps are kept by their first number, as in the tool: a later one replaces an earlier.
    """

    mismatches: dict[str, dict[int, int]] = field(default_factory=dict)
    timestamps: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    disorder: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    not_found: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    jumps: dict[str, dict[int, int]] = field(default_factory=dict)

    def lines(self) -> Iterable[str]:
        """In the tool's order, but for that of the files: there a hash map's."""
        for path, pairs in self.mismatches.items():
            yield f"Mismatches in :{path}"
            yield from (f"  Index offset: {k}, log offset: {v}" for k, v in sorted(pairs.items(), reverse=True))
        for path, listed in self.timestamps.items():
            yield f"Found timestamp mismatch in :{path}"
            yield from (f"  Index timestamp: {k}, log timestamp: {v}" for k, v in listed)
        for path, listed in self.disorder.items():
            yield f"Found out of order timestamp in :{path}"
            yield from (f"  Index timestamp: {k}, Previously indexed timestamp: {v}" for k, v in listed)
        for path, listed in self.not_found.items():
            yield f"The following indexed offsets are not found in :{path}"
            yield from (f"Indexed offset: {k}, found log offset: {v}" for k, v in listed)
        for path, pairs in self.jumps.items():
            yield f"Non-consecutive offsets in {path}"
            yield from (f"  {k} is followed by {v}" for k, v in sorted(pairs.items()))


def kafka_dump(
    paths: Iterable[str], write: Write, complain: Callable[[str], object], options: KafkaOptions | None = None
) -> bool:
    """Dump files as Kafka's tool does.

    Parameters
    ----------
    paths : iterable of str
        Files or URLs, in the order of their lines.
    write : callable
        Takes the bytes of stdout, piece by piece; a piece is valid only until the call returns.
    complain : callable
        Takes the lines of stderr.
    options : KafkaOptions, optional
        What to print; without, batches and entries.

    Returns
    -------
    bool
        False where the tool dies: the rest of the files is then not dumped, and nothing is said about the earlier ones.
        The last line names the exception; the tool's stack trace is left out.
    """
    options = options or KafkaOptions()
    complaints = Complaints()
    for path in paths:
        try:
            _dump_file(path, write, complain, options, complaints)
        except KafkaFailure as failure:
            complain(f'Exception in thread "main" {failure}')
            return False
    for line in complaints.lines():
        complain(line)
    return True


def _dump_file(
    path: str, write: Write, complain: Callable[[str], object], options: KafkaOptions, complaints: Complaints
) -> None:
    from pylogseg.dump import kafka_index, kafka_log, kafka_small

    shown = _java_path(path)
    write(f"Dumping {shown}\n".encode())
    files, plain = file_system(path)
    name = files.split(plain)[1]
    suffix = name[name.rindex(".") :] if "." in name else ""
    try:
        if suffix in (".log", ".checkpoint"):
            kafka_log.dump_log(files, plain, name, write, options, complaints.jumps.setdefault(absolute(path), {}))
        elif suffix == ".index":
            kafka_index.dump_offset_index(files, plain, shown, write, options, complaints)
        elif suffix == ".timeindex":
            kafka_index.dump_time_index(files, plain, shown, write, options, complaints)
        elif suffix == ".snapshot":
            kafka_small.dump_snapshot(files.read_all(plain), write, complain)
        elif suffix == ".txnindex":
            number_of(name)
            kafka_small.dump_txn_index(files.read_all(plain), absolute(path), write)
        else:
            complain(f"Ignoring unknown file {shown}")
    except StorageError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            raise KafkaFailure("java.nio.file.NoSuchFileException", error.path) from error
        raise
    finally:
        if not complaints.jumps.get(absolute(path), True):
            del complaints.jumps[absolute(path)]


def _java_path(path: str) -> str:
    """As Java's File shows it: without doubled slashes and a last one. URLs are left alone."""
    return path if "://" in path else re.sub("/+", "/", path).rstrip("/") or "/"


def absolute(path: str) -> str:
    """As Java makes a path absolute: `.` and `..` stay."""
    return path if "://" in path else os.path.join(os.getcwd(), _java_path(path))
