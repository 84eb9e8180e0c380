"""Dump files like ``kafka-dump-log.sh`` of Kafka 4.3, including its flaws.

The tool detects a file's kind by the suffix of its name, writes findings about indexes and offsets to stderr after
everything else, and ends at the first file that it cannot read, without the findings about earlier files. This module
does the same. `docs/format.md` describes the files; the behaviour was compared with the tool itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pylogseg.dump import kafka_index, kafka_log, kafka_small
from pylogseg.dump.kafka_failure import KafkaFailure, number_of
from pylogseg.dump.kafka_options import Complaints, KafkaOptions, Write, absolute, java_path
from pylogseg.env.filesystem import file_system
from pylogseg.errors import StorageError


def kafka_dump(
    paths: Iterable[str], write: Write, complain: Callable[[str], object], options: KafkaOptions | None = None
) -> bool:
    """Dump files as Kafka's tool does.

    Parameters
    ----------
    paths : iterable of str
        Files or URLs, in the order of their lines.
    write : callable
        Takes the bytes for stdout, piece by piece; a piece is valid only until the call returns.
    complain : callable
        Takes the lines for stderr.
    options : KafkaOptions, optional
        Options of the tool; by default it prints batches and entries.

    Returns
    -------
    bool
        False if the tool fails: then the other files are not dumped, and findings about earlier ones are not printed.
        The last line has the exception, without the tool's stack trace.
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
    shown = java_path(path)
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
