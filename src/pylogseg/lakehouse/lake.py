"""Write topics to tables of lakehouses: each range of the log once, even if runs are killed or compete."""

from __future__ import annotations

import functools
import logging
import random
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from pylogseg.disk.choice import ALL, PartitionChoice, of_topics
from pylogseg.disk.disk import Disk
from pylogseg.env.executor import Executor, Threads, WorkKeywords, Workload, choose_executor
from pylogseg.errors import CorruptionError, PylogsegError, RequestError, StorageError
from pylogseg.format.columns import TableColumn, declare_columns
from pylogseg.format.keywords import split_keywords
from pylogseg.format.names import FileKind
from pylogseg.format.outcome import Outcome
from pylogseg.format.words import check_word, count_text, size_text
from pylogseg.inspect.small_file_doubts import source_doubts
from pylogseg.inspect.verify.findings import Finding
from pylogseg.inspect.verify.lacking import finding_texts
from pylogseg.lakehouse.files import (
    COLUMNS,
    FileOptions,
    Written,
    check_files,
    dead_schema,
    log_key,
    logs_for,
    new_name,
    orphans,
    typed_schema,
    write_task,
)
from pylogseg.lakehouse.formats import TableName, in_order
from pylogseg.lakehouse.latest import COMMIT_BYTES as LATEST_BYTES
from pylogseg.lakehouse.latest import newest, newest_task, rewrite_task, written_rows
from pylogseg.lakehouse.layouts import FLAT, LAYOUTS, Layout, leaf, nest_values, table_schema
from pylogseg.lakehouse.ledger import Covered, Ledger
from pylogseg.lakehouse.library_errors import library_errors
from pylogseg.lakehouse.sinks import Changes, ConflictError, FilePlace, NewFile, Sink, offsets_of, sink_of
from pylogseg.lakehouse.source import SourceTopic, Unwritten, topics_on
from pylogseg.lakehouse.source_losses import WholeDisk, source_losses, vanished_topics
from pylogseg.reading.arrow import columns as arrow
from pylogseg.reading.log_reader import ReadScope
from pylogseg.reading.logs import LogFiles
from pylogseg.reading.ranges import Extent, Range, Task, UncutRange, pieces, plan_tasks
from pylogseg.reading.state import COMMITTED, IsolationLevel, LimitKeywords, Reading
from pylogseg.tables.question import Question
from pylogseg.tables.reader import Reader, Source
from pylogseg.transfer.log_here import LogHere
from pylogseg.values.decoding import Decoding, DecodingKeywords, TypedBatches, typed_batches
from pylogseg.values.forms import for_tables
from pylogseg.values.internal.own_topics import is_own
from pylogseg.walker.gaps import Gap, joined_times

if TYPE_CHECKING:
    from typing_extensions import Unpack

_log = logging.getLogger(__name__)

FILE_BYTES = 256 << 20
COMMIT_BYTES = 2 << 30
#: A task of several threads is no smaller, whatever that makes of files.
_LEAST_TASK_BYTES = 8 << 20
_Work = tuple[int, Task, tuple[LogFiles, ...]]
#: Commits by others that came first, one after the other, until it is given up.
_CONFLICTS = 20
_WAIT_SECONDS = 0.05


@dataclass(frozen=True)
class LakeOptions:
    """How tables are written; see `lake`."""

    reading: Reading = COMMITTED
    decoding: Decoding | None = None
    to_end: bool = False
    force: bool = False
    clean: bool = False
    latest: bool = False
    file_bytes: int = FILE_BYTES
    commit_bytes: int = COMMIT_BYTES
    table_options: Mapping[str, str] = field(default_factory=dict)
    layout: Layout = "flat"

    def __post_init__(self) -> None:
        check_word("on_corrupt", self.reading.on_corrupt, ("raise", "skip"))
        check_word("layout", self.layout, LAYOUTS)
        if self.latest and self.layout != FLAT:
            raise RequestError(f"the latest records need layout {FLAT!r}: expected it in place of {self.layout!r}")
        if self.decoding is not None and "key" in self.decoding.columns:
            if self.latest:
                raise RequestError("the latest record of each key is told by the key's bytes: decode only the value")
            if self.layout != FLAT:
                raise RequestError(f"keys are bytes in the layout {self.layout}: decode only the value")


class LakeQuestion(LimitKeywords, DecodingKeywords, total=False):
    """Keywords of `lake` about records; a reader may have the same."""

    isolation_level: IsolationLevel
    on_corrupt: Literal["raise", "skip"]
    check_crc: bool
    drop_behind: bool


class LakeKeywords(WorkKeywords, LakeQuestion, total=False):
    """Keywords of `lake`: fields of `LakeOptions`, and keywords that it shares with other functions."""

    to_end: bool
    force: bool
    clean: bool
    latest: bool
    file_bytes: int
    commit_bytes: int
    table_options: Mapping[str, str]
    layout: Layout


_RANGES = (
    TableColumn("partition", "int32", "its number"),
    TableColumn("firstOffset", "int64", "that the table has"),
    TableColumn("nextOffset", "int64", "after the last one"),
    TableColumn("waiting", "int64", "offsets behind it: not committed, or in an open transaction"),
)


@declare_columns(
    TableColumn("topic", "string", "its name"),
    TableColumn("table", "string", "its name"),
    TableColumn("records", "int64", "that this run committed"),
    TableColumn("deadLetters", "int64", "rows of dead letters that it committed"),
    TableColumn("replaced", "int64", "rows that were replaced or removed"),
    TableColumn("files", "int64", "of these rows"),
    TableColumn("size", "int64", "of these files", "bytes"),
    TableColumn("commits", "int64", "their number"),
    TableColumn("partitions", "list<struct>", "offsets of each", source="ranges", fields=_RANGES),
    TableColumn("removed", "list<string>", "files of killed runs"),
    TableColumn("problems", "list<string>", "damage, missing records and doubts"),
    TableColumn("error", "string", "why the run ended early; null for an end in order"),
)
@dataclass
class LakeTable(Outcome):
    """The work of a run for a topic, and the rest that it left.

    Attributes
    ----------
    topic, table : str
    records, dead_letters : int
        Rows that this run committed.
    replaced : int
        With `latest`, rows that were there before, and were replaced or removed.
    files, size : int
        Of these rows; bytes.
    commits : int
    offsets : dict of int to (int, int)
        The offsets of each partition in the table now, half-open.
    waiting : dict of int to int
        Offsets behind that, up to the end of the log: not committed yet, or in an open transaction.
    removed : list of str
        Files of killed runs that were removed.
    gaps : list of Gap
        Damage that was skipped.
    missing : list of Finding
        Records that are missing from the log.
    doubts : list of str
        Partitions without a high watermark, each with the offset that counted instead.
    error : PylogsegError or None
        Why it ended early.
    """

    topic: str
    table: str
    records: int = 0
    dead_letters: int = 0
    replaced: int = 0
    files: int = 0
    size: int = 0
    commits: int = 0
    offsets: dict[int, tuple[int, int]] = field(default_factory=dict)
    waiting: dict[int, int] = field(default_factory=dict)
    removed: list[str] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    missing: list[Finding] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)
    error: PylogsegError | None = None

    @property
    def problems(self) -> list[str]:
        """Skipped damage, records that the log lacks, timestamps that became null, and doubts about the log's end."""
        return [
            *(str(gap) for gap in joined_times(self.gaps) if gap.is_loss),
            *finding_texts(self.missing),
            *self.doubts,
        ]

    @property
    def exit_code(self) -> int:
        """For a shell: 1 if there is damage, a missing record, a dead letter or a doubt, 2 if the run ended early."""
        if self.error is not None and not isinstance(self.error, CorruptionError):
            return 2
        is_loss = any(gap.is_loss for gap in self.gaps)
        return int(bool(self.error or is_loss or self.missing or self.doubts or self.dead_letters))

    def lines(self) -> Iterator[str]:
        """Yield the line for people."""
        waiting = sum(self.waiting.values())
        counts = (
            (self.dead_letters, "dead letter", f" in {self.table}~dlq"),
            (self.replaced, "row", " replaced or removed"),
            (waiting, "offset", " not committed in the log yet"),
            (len(self.removed), "file", " of killed runs removed"),
        )
        texts = [f"{count_text(self.records, 'record')} in {count_text(self.files, 'file')}"]
        texts += [size_text(self.size)] if self.files else []
        texts += [count_text(count, one) + rest for count, one, rest in counts if count]
        yield f"{self.table}: {', '.join(texts)}"

    @property
    def ranges(self) -> list[dict[str, int]]:
        """The offsets of each partition that the table has, half-open, and the waiting ones."""
        return [
            {"partition": number, "firstOffset": first, "nextOffset": end, "waiting": self.waiting.get(number, 0)}
            for number, (first, end) in sorted(self.offsets.items())
        ]


def lake(
    path: Reader | Source,
    table: str,
    topic: str | Sequence[str] | None = None,
    partition: int | Sequence[int] | None = None,
    **options: Unpack[LakeKeywords],
) -> list[LakeTable]:
    """Write topics to tables of a lakehouse. Each range of a log gets there once.

    A table says which offsets it has, in the same commit as its rows. A run goes on from there to the committed end of
    the log. It may be killed anywhere and started again, and several may run at once.

    Parameters
    ----------
    path, topic, partition
        As for `pylogseg.read`; or a reader, as `pylogseg.read` returns it: its topics and partitions, its isolation
        level, what it does at damage, its limits and its decoding count. Other options of it are refused.
    table : str
        Format and name, as ``delta:FOLDER`` or ``iceberg:NAMESPACE.TABLE``; ``pylogseg lake --help`` lists all forms.
        With ``{topic}`` in it each topic has its own table; those that Kafka writes for itself are then left out unless
        they are named. Table and topic may be given in the order of the shell, too: the topic first.
    isolation_level : {"read_committed", "read_uncommitted"}
        The first (the default) leaves out aborted transactions, and ends before an open one.
    decoding : {"value", "key"}, sequence of them, or Decoding, optional
        Columns to decode to typed values by their schemas; records that do not decode go to the table ``TABLE~dlq``.
    schema, registry
        As for `pylogseg.read_arrow`.
    on_corrupt : {"raise", "skip"}
        At damage: raise an error, or leave it out; no later run comes back to it.
    check_crc, max_decompressed_bytes, max_bytes_per_second, drop_behind
        As for `pylogseg.read`.
    to_end : bool
        Ignore the high watermark and write up to the end of the log: for the disk of a dead broker.
    force : bool
        Go on where offsets are missing: deleted before they were written, or lost from the disk.
    clean : bool
        Remove files of killed runs: no state of the table has them.
    latest : bool
        Keep only the latest record of each key of a partition: a record replaces the row of its key, and a tombstone
        removes it. Records without a key are left out.
    layout : {"flat", "redpanda"}
        Columns of the table; the second has those of Redpanda's Iceberg topics, and is for Iceberg.
    table_options : mapping, optional
        Options of the library that has the table: of Iceberg's catalog, such as ``{"type": "rest", "uri":
        "http://catalog:8181"}``, or of the store of a Delta table, such as ``{"aws_region": "eu-central-1"}``.
    file_bytes, commit_bytes : int
        About the size of files, and how many bytes of the log a commit has.
    jobs : int or None
        Threads; None is one per processor.
    executor : Executor, optional
        In place of threads: `pylogseg.spark.executor.SparkExecutor`, whose workers write files. This process commits.
        A table of the latest records is written by threads.
    on_bytes : callable, optional
        Called with the bytes read since its last call, from several threads.

    Returns
    -------
    list of LakeTable
        One for each topic.

    Raises
    ------
    RequestError
        For a log that is not the one that the table was written from, and invalid arguments.
    IncompleteError
        If the log lacks records.
    CorruptionError
        At damage, unless it is skipped.
    StorageError
        If a file cannot be read or written, or a commit was not made.

    Examples
    --------
    >>> import pylogseg
    >>> found = pylogseg.lake("examples/data", "delta:out/orders", "orders")  # doctest: +SKIP
    """
    work, asked, own = split_keywords(options, WorkKeywords, LakeQuestion, LakeKeywords)
    table, topic = in_order(table, topic)
    question = Question.of("lake", path, topic, partition, LakeQuestion, asked, COMMITTED)
    if isinstance(path, Reader) and question.reading.isolation_level == "read_uncommitted":
        raise RequestError(
            'lake got a reader of uncommitted records: read with isolation_level="read_committed"; for a table of all '
            'records give lake the path, and isolation_level="read_uncommitted"'
        )
    how, whole, choice = LakeOptions(question.reading, question.decoding, **own), question.open(), question.choice
    chosen = of_topics(whole.select(choice.names or None), choice.names).select(partition=choice.numbers or None)
    on_bytes = work.pop("on_bytes", None)
    done = list(write_tables(whole, chosen, table, how, choose_executor(**work), on_bytes, choice))
    for answer in done:
        if answer.error is not None:
            raise answer.error
    return done


def write_tables(
    whole: Disk,
    chosen: Disk,
    table: str,
    options: LakeOptions,
    executor: Executor,
    advance: Callable[[int], None] | None = None,
    choice: PartitionChoice = ALL,
) -> Iterator[LakeTable]:
    """Write the topics of a disk; yield a result for each. An error of one topic does not stop the rest.

    `whole` is the disk that they were selected from by `choice`; it has the schemas. `advance` gets the bytes that were
    read.
    """
    name = TableName.parse(table)
    topics, disk = topics_on(chosen, to_end=options.to_end), WholeDisk(whole, choice)
    if name.has_topic:
        topics += vanished_topics(disk, topics)
    if name.has_topic and not chosen.is_named:
        topics = [topic for topic in topics if not is_own(topic.name)]
    names = [topic.name for topic in topics if topic.name]
    if not name.has_topic and len(names) > 1:
        some = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
        raise RequestError(f"{table}: a table has one topic, and there are {some}: name one, or write {{topic}} in it")
    for topic in topics:
        try:
            if topic.error is not None:
                raise topic.error
            own = name.of_topic(topic.name) if name.has_topic else name
        except PylogsegError as error:
            yield LakeTable(topic.name, name.text, error=error)
            continue
        yield _TableRun(disk, topic, own, options, executor, advance).run()


class _TableRun:
    """Writes a topic to a table, and to the table of its dead letters."""

    def __init__(
        self,
        whole: WholeDisk,
        topic: SourceTopic,
        name: TableName,
        options: LakeOptions,
        executor: Executor,
        advance: Callable[[int], None] | None,
    ) -> None:
        self._whole, self._topic, self._options = whole, topic, options
        self._executor, self._advance = executor, advance
        self._table = sink_of(name, options.table_options, options.layout)
        if options.latest and not isinstance(executor, Threads):
            raise RequestError(f"{name.text}: a table of the latest records is written by threads, not on Spark")
        decodes = options.decoding is not None
        self._dead = sink_of(name.dead, options.table_options, options.layout) if decodes else None
        self._numbers = [log.partition.partition for log in topic.logs]
        self._found = LakeTable(topic.name, self._table.name)
        self._typed: TypedBatches | None = None
        self._is_passed = False

    def run(self) -> LakeTable:
        try:
            for conflicts in range(_CONFLICTS):
                try:
                    self._once()
                    break
                except ConflictError as error:
                    _log.info("%s", error)
                    reason = error
                time.sleep(random.uniform(0, _WAIT_SECONDS * (1 + conflicts)))
            else:
                raise StorageError(
                    self._table.name,
                    "commit to",
                    f"other writers committed first {_CONFLICTS} times; run it again: {reason}",
                )
            if self._options.clean:
                self._clean()
        except PylogsegError as error:
            self._found.error = error
        finally:
            for sink in (self._table, self._dead):
                if sink is not None:
                    sink.close()
        return self._found

    def _once(self) -> None:
        """Go on from the newest ledger; ConflictError if another commit came first."""
        ledger = self._load(self._table)
        dead = None if self._dead is None else self._load(self._dead)
        state = self._options.reading.start()
        spans = self._topic.spans(ledger, state, self._table.name, force=self._options.force)
        self._found.gaps = list(state.gaps)
        self._found.missing = source_losses(
            self._whole, self._topic, spans, ledger, self._table.name, force=self._options.force
        )
        parts = [source.partition for source in self._topic.logs]
        self._found.doubts = [
            *(source.doubt for source in self._topic.logs if source.doubt),
            *self._topic.doubts(ledger),
            *source_doubts(parts, [FileKind.RECOVERY_POINTS], self._topic.once),
        ]
        if not spans and ledger is None and self._knows_columns():  # a table without rows, so that queries find it
            spans = self._topic.nothing()
        if spans:
            ledger = self._write(spans, self._with_source(ledger), dead)
        else:
            self._pass_over(())
            self._check_columns(ledger, dead)
        self._found.offsets = {} if ledger is None else {n: extent[:2] for n, extent in ledger.partitions.items()}
        self._found.waiting = self._waiting(ledger)

    def _with_source(self, ledger: Ledger | None) -> Ledger:
        """Return the ledger to go on from; one of an older version gets the id of the cluster."""
        topic, options = self._topic, self._options
        if ledger is not None:
            return replace(ledger, cluster_id=ledger.cluster_id or topic.cluster_id)
        return Ledger(
            topic.name, topic.topic_id, options.reading.isolation_level, "", {}, options.latest, topic.cluster_id
        )

    def _knows_columns(self) -> bool:
        """Check whether the schemas give a table's columns although the log has no record."""
        try:
            self._typed_of(())
        except RequestError as error:
            _log.info("%s: no table yet: %s", self._table.name, error)
            return False
        return True

    def _check_columns(self, ledger: Ledger | None, dead: Ledger | None) -> None:
        """Refuse rows that the table does not take, also while there are none."""
        if ledger is None or dead is not None:  # what has a table of dead letters, was decoded
            return
        typed = self._typed_of(())
        schema = arrow.schema(COLUMNS) if typed is None else typed_schema(typed)
        self._table.open(table_schema(self._options.layout, schema), False)

    def _pass_over(self, unread: Sequence[UncutRange]) -> None:
        """Count the bytes of offsets that the table has already as read, once."""
        if self._advance is not None and not self._is_passed:
            whole = sum(segment.size for source in self._topic.logs for segment in source.log.segments)
            self._advance(whole - sum(piece.range.size for piece in unread))
        self._is_passed = True

    def _load(self, sink: Sink) -> Ledger | None:
        ledger = sink.load(self._numbers)
        latest = self._options.latest if sink is self._table else None
        self._topic.check(ledger, self._options.reading.isolation_level, sink.name, latest=latest)
        return ledger

    def _waiting(self, ledger: Ledger | None) -> dict[int, int]:
        """Return the number of offsets of each partition behind the table's; only names and indexes are read."""
        waiting = {}
        for source in self._topic.logs:
            extent = None if ledger is None else ledger.partitions.get(source.partition.partition)
            has = source.log.log_start_offset if extent is None else extent.next_offset
            if source.log.log_end_offset > has:
                waiting[source.partition.partition] = source.log.log_end_offset - has
        return waiting

    def _write(self, spans: Sequence[Unwritten], ledger: Ledger, dead: Ledger | None) -> Ledger:
        options = self._options
        typed, plain = self._typed_of(spans), arrow.schema(COLUMNS)
        place = self._open(self._table, plain if typed is None else typed_schema(typed), ledger)
        state, prefix = options.reading.start(), self._topic.topic_id or "log"
        how = FileOptions(state, place, prefix, options.file_bytes, typed)
        dead_ledger, ahead = dead or replace(ledger, partitions={}, commit=""), {}
        dead_ledger = replace(dead_ledger, cluster_id=ledger.cluster_id)
        if self._dead is not None:
            how = replace(how, dead=self._open(self._dead, dead_schema(plain), dead_ledger))
            ahead = _ahead(ledger, dead)
            first = {number: start for number, (start, _) in ahead.items()}
            how = replace(how, dead_offsets=self._dead.offsets(first) if first else {})
        logs = {log_key(span.source.log): span.source.log for span in spans}
        whole = [piece for span in spans for piece in pieces(Extent(span.source.log, *span[1:3]))]
        self._pass_over(whole)
        folders = [share for to in (how.rows, how.dead) if to is not None for share in to.store.list_shared(to.folder)]
        number = 0
        for tasks, extents in _commits(spans, whole, options, getattr(self._executor, "jobs", 8)):
            sizes = [sum(piece.size for piece in task) for task in tasks]
            load = Workload("pylogseg lake", sizes, self._advance, folders)
            work = [(number + i, task, logs_for(task, logs)) for i, task in enumerate(tasks)]
            number += len(tasks)
            done, changes = self._write_rows(work, how, load) if not options.latest else self._latest(work, how, load)
            rows = [file for written in done for file in (*written.rows, *written.again)]
            letters = [file for written in done for file in written.dead]
            for sink, files in ((self._table, rows), (self._dead, letters)):
                if sink is not None:
                    check_files(sink.store, files, f"nothing of it is committed to {self._table.name}")
            uncommitted = [(self._table, file) for file in rows]
            try:
                if self._dead is not None:
                    uncommitted += [(self._dead, file) for file in letters]
                    # First, and also if there are none: a run that decodes otherwise sees by it what this one has seen.
                    self._check_ahead(letters, ahead, self._dead)
                    dead_ledger = self._commit(self._dead, letters, dead_ledger, extents)
                    uncommitted = uncommitted[: len(rows)]
                ledger = self._commit(self._table, rows, ledger, extents, changes)
            except ConflictError as error:
                if error.certain:
                    for sink, file in uncommitted:
                        sink.store.remove(file.path)
                raise
            self._count(done)
        return ledger

    def _write_rows(self, work: Sequence[_Work], how: FileOptions, load: Workload) -> tuple[list[Written], None]:
        return list(self._executor.map(functools.partial(write_task, how=how), work, load)), None

    def _latest(self, work: Sequence[_Work], how: FileOptions, load: Workload) -> tuple[list[Written], Changes | None]:
        """Write the latest records of a commit, and rewrite the remaining rows of files that lose rows by it."""
        answers = list(self._executor.map(functools.partial(newest_task, how=how), work, load))
        rows = newest([table for table, _ in answers]) if answers else None
        if rows is None or not rows.num_rows:
            return [Written([], [], [gap for _, gaps in answers for gap in gaps])], None
        # By this name it is known that the files are of no run that is going on, once the ledger is past it.
        first = work[0][1][0]
        name = functools.partial(new_name, how, first.partition, first.first_offset)
        done = written_rows(rows, how, name(work[0][0]))
        done = replace(done, gaps=[*(gap for _, gaps in answers for gap in gaps), *done.gaps])
        keys = rows.select(["partition", "key"])
        live = self._table.live(keys)
        if isinstance(live, int):
            return [replace(done, lost=live)], Changes(keys)
        again = functools.partial(rewrite_task, how=how, keys=keys)
        kept = list(self._executor.map(again, [(name(i), file.path) for i, file in enumerate(live)]))
        gone = [file for file, rewrite in zip(live, kept, strict=True) if rewrite.lost]
        return [done, *kept], Changes(keys, gone)

    def _open(self, sink: Sink, schema: pa.Schema, ledger: Ledger) -> FilePlace:
        layout = self._options.layout
        schema = table_schema(layout, schema)
        if not sink.is_there:
            sink.make(schema, ledger)
            if self._load(sink) is not None:
                raise ConflictError(f"{sink.name}: another run has made it, and has written to it")
        place = sink.open(schema, not ledger.partitions)
        return place if layout == FLAT else replace(place, arranged=nest_values)

    def _check_ahead(self, letters: Sequence[NewFile], ahead: Mapping[int, tuple[int, int]], sink: Sink) -> None:
        """Refuse new dead letters among records that another run has decoded: it may write them as rows."""
        if self._options.force or not ahead:
            return
        columns = [leaf(self._options.layout, name) for name in ("partition", "offset")]
        for file in letters:
            with library_errors(file.path, "read"), pq.ParquetFile(sink.store.open_file(file.path)) as opened:
                by_partition = offsets_of(opened.read(columns=columns))
            for number, offsets in by_partition.items():
                start, end = ahead.get(number, (0, 0))
                for offset in offsets[(offsets >= start) & (offsets < end)][:1]:
                    raise ConflictError(
                        f"offset {offset} of {self._topic.name}-{number} does not decode, and another run, which goes "
                        "on or was killed, has decoded it: let that one end, or run it again with its schemas, or "
                        "force it"
                    )

    def _commit(
        self,
        sink: Sink,
        files: Sequence[NewFile],
        before: Ledger,
        extents: Mapping[int, Covered],
        changes: Changes | None = None,
    ) -> Ledger:
        """Commit, and return the new ledger.

        Where another commit came first that wrote no rows of the log, it is tried again with the same files, unless
        these replace others.
        """
        after = before.with_extents(extents, uuid.uuid4().hex)
        for _ in range(_CONFLICTS):
            try:
                sink.commit(files, after, changes)
                return after
            except Exception as error:  # if it is not of a conflict, the commit may have been made
                reason = error
            now = self._load(sink)
            commit = "" if now is None else now.commit
            if commit == after.commit:
                return after
            certain = isinstance(reason, ConflictError)
            if commit != before.commit or (certain and changes is not None):
                raise ConflictError(f"{sink.name}: {reason}", certain=certain) from reason
            if not certain:
                with library_errors(sink.name, "commit to"):
                    raise reason
        raise ConflictError(f"{sink.name}: {reason}")

    def _count(self, done: Sequence[Written]) -> None:
        result = self._found
        result.commits += 1
        for written in done:
            files = (*written.rows, *written.dead, *written.again)
            result.records += sum(file.rows for file in written.rows)
            result.dead_letters += sum(file.rows for file in written.dead)
            result.replaced += written.lost
            result.files += len(files)
            result.size += sum(file.size for file in files)
            result.gaps += [gap for gap in written.gaps if gap not in result.gaps]

    def _typed_of(self, spans: Sequence[Unwritten]) -> TypedBatches | None:
        """Choose the schemas, once a run."""
        decoding = self._options.decoding
        if decoding is not None and self._typed is None:
            decoding = replace(decoding, form=for_tables, on_undecoded="raw")
            logs = [entry.source.log for entry in spans] or [entry.log for entry in self._topic.logs]
            scope = ReadScope.of(logs)
            self._typed = typed_batches(decoding, self._whole.disk, [self._topic.name], COLUMNS, scope.chunks)
        return self._typed

    def _clean(self) -> None:
        for sink in (self._table, self._dead):
            ledger = None if sink is None else sink.load(self._numbers)
            if sink is None or ledger is None:
                continue
            committed = {number: extent.next_offset for number, extent in ledger.partitions.items()}
            for path in orphans(sink.store, sink.folder, committed, sink.files()):
                sink.store.remove(path)
                self._found.removed.append(path)


def _commits(
    spans: Sequence[Unwritten], whole: Sequence[UncutRange], options: LakeOptions, jobs: int
) -> Iterator[tuple[list[Task], dict[int, Covered]]]:
    """Yield the tasks of each commit, and the table's offsets of the partitions after it."""
    total = sum(piece.range.size for piece in whole)
    target = min(options.file_bytes, max(total // max(jobs, 1), _LEAST_TASK_BYTES))
    tasks = plan_tasks(whole, target)
    most = min(options.commit_bytes, LATEST_BYTES) if options.latest else options.commit_bytes
    group: list[Task] = []
    size = 0
    for task in tasks:
        weight = sum(part.size for part in task)
        if group and size + weight > most:
            yield group, _extents(spans, [part for task in group for part in task])
            group, size = [], 0
        group.append(task)
        size += weight
    # Also where there is nothing left to read: the table has what there is then.
    yield group, _extents(spans, None)


def _extents(spans: Sequence[Unwritten], parts: Sequence[Range] | None) -> dict[int, Covered]:
    """Return the offsets that a table has after some parts, or after all."""
    ends = {} if parts is None else {part.partition: part.end_offset for part in parts}
    extents = {}
    for span in spans:
        number = span.source.partition.partition
        end = span.end_offset if parts is None else ends.get(number)
        if end is not None:
            epoch = _epoch(span.source, span.end_offset, end)
            extents[number] = Covered(span.begins, end, epoch, span.skipped)
    return extents


def _ahead(ledger: Ledger, dead: Ledger | None) -> dict[int, tuple[int, int]]:
    """Return the offsets whose dead letters a run has committed, but not yet, or never, the rows beside them."""
    ahead = {}
    for number, extent in ({} if dead is None else dead.partitions).items():
        had = ledger.partitions.get(number)
        has = extent.first_offset if had is None else had.next_offset
        if extent.next_offset > has:
            ahead[number] = (has, extent.next_offset)
    return ahead


def _epoch(source: LogHere, log_end: int, end: int) -> int:
    return source.lineage_to(log_end).epoch_at(end - 1)


__all__: list[Any] = ["LakeTable", "lake", "write_tables"]
