"""The rows of a range of the log as Parquet files, each of one day or hour; no part of a table until a commit."""

from __future__ import annotations

import contextlib
import os
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pylogseg.env.executor import Advance
from pylogseg.env.file_errors import storage_error
from pylogseg.env.shared import check_written
from pylogseg.errors import StorageError
from pylogseg.lakehouse.contents import CONTENTS, Contents, add_contents, contents_text
from pylogseg.lakehouse.sinks import (
    NO_PERIOD,
    UNMEASURED,
    FilePlace,
    NewFile,
    OffsetsByPartition,
    in_calendar,
    is_plain,
)
from pylogseg.lakehouse.stores import FileStore, below
from pylogseg.reading.log_reader import ReadScope
from pylogseg.reading.logs import LogFiles
from pylogseg.reading.ranges import Task, url_of
from pylogseg.reading.scan import LogScan
from pylogseg.reading.selection import Selection
from pylogseg.reading.state import ReadState
from pylogseg.values.decoding import TypedBatches
from pylogseg.walker.gaps import Gap

#: Of rows; those of dead letters have `REASON` besides.
COLUMNS = ("topic", "partition", "offset", "timestamp", "timestampType", "key", "value", "headers")
REASON = "error"
#: Name of a file: topic id, partition and offset that it begins with, attempt, number.
_NAME = re.compile(r"(?P<topic>[\w-]+)\.(?P<partition>\d+)\.(?P<first>\d{20})\.[0-9a-f]{32}-\d+\.parquet")
#: Files that are open at the same time: a timestamp may be anything.
_OPEN_FILES = 128
_ROW_GROUP_BYTES = 64 << 20
#: Of all open files together, in memory.
_WAITING_BYTES = 2 * _ROW_GROUP_BYTES
_ROW_GROUP_ROWS = 1 << 20
_CODEC = "zstd"


@dataclass(frozen=True)
class FileOptions:
    """How the tasks of a commit are written; it may travel to another process."""

    state: ReadState
    rows: FilePlace
    prefix: str  #: Of names of files.
    file_bytes: int
    typed: TypedBatches | None = None
    dead: FilePlace | None = None  #: Of what does not decode.
    #: Of dead letters that were committed, when the rows beside them were not: a run was killed in between.
    dead_offsets: OffsetsByPartition = field(default_factory=dict)


@dataclass
class Written:
    """The result of a task."""

    rows: list[NewFile]
    dead: list[NewFile]
    gaps: list[Gap]
    again: list[NewFile] = field(default_factory=list)  #: With rows that other files had.
    lost: int = 0  #: Rows of these that are not in them.


def write_task(work: tuple[int, Task, tuple[LogFiles, ...]], advance: Advance, how: FileOptions) -> Written:
    """Write the files of a task, which has a number in its commit; runs in a thread, or in another process."""
    number, task, logs = work
    state = replace(how.state, gaps=[], on_bytes=advance)
    scan = LogScan(ReadScope(logs, Selection(), state), COLUMNS)
    name = new_name(how, task[0].partition, task[0].first_offset, number)
    written = split_typed(scan.batches(task, COLUMNS, scan.memory(COLUMNS), None), how, name)
    return replace(written, gaps=[*scan.gaps, *written.gaps])


def new_name(how: FileOptions, partition: int, first_offset: int, number: int) -> str:
    """Return how the names of new files begin. Each attempt has its own: Spark may make two at once, or forget one."""
    return f"{how.prefix}.{partition}.{first_offset:020d}.{uuid.uuid4().hex}-{number}"


def split_typed(batches: Iterable[pa.RecordBatch], how: FileOptions, name: str) -> Written:
    """Write rows to files of the table, and records that do not decode to files of dead letters."""
    gaps: list[Gap] = []
    if how.rows.has_calendar:
        batches = (in_calendar(batch, gaps) for batch in batches)
    with TimedFiles(how.rows, name, how.file_bytes) as rows:
        if how.typed is None or how.dead is None:
            rows.write_all(batches)
            return Written(rows.finish(), [], gaps)
        typed = how.typed.with_names(how.typed.names)  # its gaps are those of this task
        with TimedFiles(how.dead, name, how.file_bytes) as dead:
            for batch in batches:
                for good, bad in _told_apart(batch, typed):
                    rows.write(_without(good, how.dead_offsets))
                    dead.write(_without(bad, how.dead_offsets))
            return Written(rows.finish(), dead.finish(), [*gaps, *typed.gaps])


def dead_schema(schema: pa.Schema) -> pa.Schema:
    """Return the columns of dead letters, made of the columns of plain rows."""
    return schema.append(pa.field(REASON, pa.string()))


def typed_schema(typed: TypedBatches) -> pa.Schema:
    """Return the columns of rows that are decoded."""
    return pa.schema([field for field in typed.schema() if not _is_beside(field.name, typed)])


def _is_beside(name: str, typed: TypedBatches) -> bool:
    return typed.source_of(name) != name


def _told_apart(batch: pa.RecordBatch, typed: TypedBatches) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
    """Yield the decoded rows of a batch, and the rows that do not decode, as in the log, with the reason."""
    first = 0
    for decoded in typed.batches([batch]):
        raw = batch.slice(first, decoded.num_rows)
        first += decoded.num_rows
        reason = pc.coalesce(*(decoded.column(f"{name}Error") for name in typed.decoders))
        rows = decoded.select([name for name in decoded.schema.names if not _is_beside(name, typed)])
        good = pc.is_null(reason)
        dead = pa.RecordBatch.from_arrays([*raw.columns, reason], schema=dead_schema(raw.schema))
        if reason.null_count == len(reason):
            yield rows, dead.slice(0, 0)
        else:
            yield rows.filter(good), dead.filter(pc.invert(good))


def _without(batch: pa.RecordBatch, offsets: OffsetsByPartition) -> pa.RecordBatch:
    """Leave out rows of some offsets: they were committed as dead letters before."""
    if not offsets or not batch.num_rows:
        return batch
    partition, offset = (batch.column(name).to_numpy() for name in ("partition", "offset"))
    keep = np.ones(batch.num_rows, np.bool_)
    for number, gone in offsets.items():
        keep &= (partition != number) | ~np.isin(offset, gone)
    return batch if keep.all() else batch.filter(pa.array(keep))


class TimedFiles:
    """Writes rows to a file for each period, or several large ones; unfinished files are removed."""

    def __init__(self, place: FilePlace, name: str, file_bytes: int) -> None:
        self._place, self._name, self._file_bytes = place, name, file_bytes
        self._open: dict[int, _OneFile] = {}
        self._done: list[NewFile] = []
        self._paths: list[str] = []
        self._is_finished = False

    def __enter__(self) -> TimedFiles:
        return self

    def __exit__(self, *error: object) -> None:
        if not self._is_finished:
            for file in self._open.values():
                file.abandon()
            for path in self._paths:
                with contextlib.suppress(StorageError):  # of a store that does not answer
                    self._place.store.remove(path)

    def write_all(self, batches: Iterable[pa.RecordBatch]) -> None:
        for batch in batches:
            self.write(batch)

    def write(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        times = batch.column("timestamp").cast(pa.int64())
        has_nulls = times.null_count > 0
        periods = (times.fill_null(0) if has_nulls else times).to_numpy() // self._place.period.micros
        if has_nulls:
            periods[times.is_null().to_numpy(zero_copy_only=False)] = NO_PERIOD
        if periods.min() == periods.max():
            self._write(int(periods[0]), batch)
        else:
            order = np.argsort(periods, kind="stable")
            present, starts = np.unique(periods[order], return_index=True)
            for period, rows in zip(present.tolist(), np.split(order, starts[1:]), strict=True):
                # A copy: a slice would keep the rows of all periods.
                self._write(period, batch.take(pa.array(rows)))
        waiting = sum(writer.waiting_bytes for writer in self._open.values())
        while waiting > _WAITING_BYTES:
            period, most = max(self._open.items(), key=lambda each: each[1].waiting_bytes)
            waiting -= most.waiting_bytes
            self._flush(period, most)

    def _write(self, period: int, batch: pa.RecordBatch) -> None:
        file = self._open.get(period) or self._open.setdefault(period, self._open_period(period))
        file.wait(batch)
        if file.waiting_bytes >= _ROW_GROUP_BYTES or file.waiting_rows >= _ROW_GROUP_ROWS:
            self._flush(period, file)

    def _open_period(self, period: int) -> _OneFile:
        folder = below(self._place.folder, self._place.period.folder_of(period))
        self._paths.append(f"{folder}/{self._name}{len(self._paths):05d}.parquet")
        return _OneFile(self._place, self._paths[-1], period)

    def _flush(self, period: int, file: _OneFile) -> None:
        file.flush()
        if file.size >= self._file_bytes:
            self._close(period)
        opened = [number for number in self._open if self._open[number].is_open]
        if len(opened) > _OPEN_FILES:
            self._close(max(opened, key=lambda each: self._open[each].size))

    def _close(self, period: int) -> None:
        self._done.append(self._open[period].close())
        del self._open[period]  # not before: what fails is given up with the others

    def finish(self) -> list[NewFile]:
        """Write the waiting rows, and return all files."""
        for period in [*self._open]:
            self._close(period)
        self._is_finished = True
        return self._done


class _OneFile:
    """A file that is written: row groups of many batches, since one batch is too small for one."""

    def __init__(self, place: FilePlace, path: str, period: int) -> None:
        self._place, self._path, self._period, self._schema = place, path, period, place.schema
        self._file: IO[bytes] | None = None
        self._writer: pq.ParquetWriter | None = None
        self._metadata: list[Any] = []
        self._waiting: list[pa.RecordBatch] = []
        self._contents: Contents = {}
        self._rows = self.waiting_rows = self.waiting_bytes = 0

    @property
    def is_open(self) -> bool:
        return self._file is not None

    @property
    def size(self) -> int:
        return 0 if self._file is None else self._file.tell()

    def wait(self, batch: pa.RecordBatch) -> None:
        """Take rows, which wait in memory."""
        self._waiting.append(batch)
        self._rows += batch.num_rows
        self.waiting_rows += batch.num_rows
        self.waiting_bytes += batch.nbytes

    def flush(self) -> None:
        """Write the waiting rows as a row group."""
        with _name_errors(self._path):
            self._flush()

    def _flush(self) -> None:
        if self._writer is None:
            self._file = self._place.store.create(self._path)
            names = _list_measured(self._schema) if is_plain(self._schema) else True
            self._writer = pq.ParquetWriter(
                self._file, self._schema, compression=_CODEC, use_dictionary=names, write_statistics=names,
                store_schema=False, metadata_collector=self._metadata,
            )  # fmt: skip
        if self._waiting:
            rows = pa.Table.from_batches(self._waiting)
            if self._place.arranged is None:
                arranged = rows
            else:
                arranged = pa.Table.from_batches(map(self._place.arranged, self._waiting))
            table = pa.Table.from_arrays(
                [column.cast(field.type) for column, field in zip(arranged.columns, self._schema, strict=True)],
                schema=self._schema,
            )
            self._writer.write_table(table, row_group_size=max(self.waiting_rows, 1))
            add_contents(self._contents, rows)
        self._waiting, self.waiting_rows, self.waiting_bytes = [], 0, 0

    def close(self) -> NewFile:
        """End the file; its bytes are on the disk then, as a commit needs it."""
        self.flush()
        file, writer = self._file, self._writer
        assert file is not None  # opened by the flush
        assert writer is not None
        with _name_errors(self._path):
            writer.add_key_value_metadata({CONTENTS: contents_text(self._contents)})
            writer.close()
            return NewFile(self._path, self._rows, self._place.store.close(file), self._period, self._metadata[0])

    def abandon(self) -> None:
        """Leave the file as it is, on a full disk too."""
        if self._file is not None and self._writer is not None:
            with contextlib.suppress(OSError, pa.ArrowException, RuntimeError):  # the last: there is no metadata
                self._writer.close()  # else it tries to when it is freed, and says that it cannot
            with contextlib.suppress(OSError):
                self._file.close()


def _list_measured(schema: pa.Schema) -> list[str]:
    """Return the columns of plain rows of which a dictionary, and the least and greatest, are of use."""
    names = []
    for column in schema:
        inner = column.type if pa.types.is_struct(column.type) else ()
        names += [f"{column.name}.{field.name}" for field in inner if field.name not in UNMEASURED] or [column.name]
    return [name for name in names if name not in UNMEASURED]


@contextlib.contextmanager
def _name_errors(path: str) -> Iterator[None]:
    """Make errors of the system an error that names the file."""
    try:
        yield
    except OSError as error:
        raise storage_error(path, "write", error) from error


def check_files(store: FileStore, files: Sequence[NewFile], outcome: str) -> None:
    """Raise StorageError unless files are there as tasks have written them; `outcome` ends the message."""
    for file, size in zip(files, store.sizes([file.path for file in files]), strict=True):
        check_written(file.path, file.size, size, outcome)


def logs_for(task: Task, logs: Mapping[str, LogFiles]) -> tuple[LogFiles, ...]:
    """Return the logs of the segments of a task, by `log_key`."""
    return tuple(logs[folder] for folder in dict.fromkeys(piece.folder for piece in task))


def log_key(log: LogFiles) -> str:
    """Return the mark of a log's segments for `Range.folder`."""
    segment = log.segments[0]
    return url_of(segment.files, segment.path).replace(os.sep, "/").rpartition("/")[0]


def orphans(store: FileStore, folder: str, committed: Mapping[int, int], known: Iterable[str]) -> list[str]:
    """Return files of runs that died: of this name, in no state of the table, and too late to be committed.

    A commit is refused that begins below what the ledger has, so such a file is of no run that is still going.
    """
    there, paths = {*known}, []
    for path in sorted(store.walk(folder)):
        name = _NAME.fullmatch(path.rpartition("/")[2])
        if name is None or path in there:
            continue
        if int(name["first"]) < committed.get(int(name["partition"]), 0):
            paths.append(path)
    return paths
