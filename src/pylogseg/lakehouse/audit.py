"""`audit`: is each record of a log once in a table, and right? The audit explains missing records."""

from __future__ import annotations

import functools
import os
import secrets
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pylogseg.disk.choice import PartitionChoice, of_topics
from pylogseg.disk.disk import Disk
from pylogseg.env.executor import Advance, Executor, Threads, WorkKeywords, Workload, choose_executor, job_count
from pylogseg.env.shared import SharedFolder
from pylogseg.errors import RequestError, StorageError
from pylogseg.format.keywords import split_keywords
from pylogseg.format.names import TopicPartition
from pylogseg.format.scratch import Scratch
from pylogseg.inspect.stats.groups import units_of
from pylogseg.lakehouse.audit_columns import TableColumns, find_columns
from pylogseg.lakehouse.audit_partition import (
    Comparison,
    IsDead,
    LogExtent,
    LogPart,
    PartFound,
    audit_of,
    behind_table,
    extent_of,
    part_without_log,
    parts_of,
)
from pylogseg.lakehouse.audit_quick import count_partition, row_groups
from pylogseg.lakehouse.audit_result import Audit, AuditRange, DoubleFiles, PartitionAudit
from pylogseg.lakehouse.audit_runs import NONE, RUN, FilePiece, PieceRows, Runs, Spilling
from pylogseg.lakehouse.audit_times import SUMS, Summing, Sums, add_sums, compare_hours
from pylogseg.lakehouse.foreign import DataFile, ForeignTable, TableFinding, columns_in_file, open_table
from pylogseg.lakehouse.formats import DEAD, NoTableError, in_order
from pylogseg.lakehouse.source import topics_on
from pylogseg.lakehouse.source_losses import WholeDisk, partitions_below, vanished_partitions
from pylogseg.reading.log_reader import LogReader, ReadScope
from pylogseg.reading.logs import LogFiles, logs_of, partitions_of
from pylogseg.reading.offset_range import OPEN_END, OffsetRange, Offsets
from pylogseg.reading.ranges import PART_BYTES
from pylogseg.reading.selection import Selection
from pylogseg.reading.state import LENIENT, SKIPPING, IsolationLevel, LimitKeywords, ReadState
from pylogseg.tables.question import Question
from pylogseg.tables.reader import Reader, Source
from pylogseg.values.decoding import Decoding, DecodingKeywords, TypedBatches, typed_batches
from pylogseg.values.forms import for_tables
from pylogseg.walker.gaps import Gap

if TYPE_CHECKING:
    from typing_extensions import Unpack


#: A piece of a data file has columns of about so many bytes.
_PIECE_BYTES = 64 << 20
#: Pairs of files with double rows that are told for each partition.
_MAX_PAIRS = 20
_END = OPEN_END - 1
_NONE_DEAD = np.zeros(1, np.bool_)

FROM_THE_END = "audit does not accept offsets from the end, which move: give absolute offsets"


class AuditQuestion(LimitKeywords, DecodingKeywords, total=False):
    """Keywords of `audit` about records; a reader may have the same."""

    offset: Offsets
    isolation_level: IsolationLevel


class AuditKeywords(WorkKeywords, AuditQuestion, total=False):
    """Keywords of `audit` that other functions have, too."""


def audit(
    source: Reader | Source,
    table: Any,
    topic: str | Sequence[str] | None = None,
    partition: int | Sequence[int] | None = None,
    *,
    columns: Mapping[str, str] | None = None,
    preset: str | None = None,
    dead_letters: Any = None,
    complete: bool = False,
    quick: bool = False,
    max_ranges: int = 1000,
    **how: Unpack[AuditKeywords],
) -> Audit:
    """Compare a table that was fed from Kafka with its log: missing, double and changed records, with the reason.

    The table is read once, in the state that it has when the call begins; its offsets and the hashes of keys and values
    are kept in temporary files (16 bytes a row, where ``TMPDIR`` says), so memory does not grow with the table. With an
    executor on several machines, these must be in a folder that all of them see.

    Parameters
    ----------
    source : path, URL, Disk, Partition or Reader
        The log, as any reader takes it. It may be written to meanwhile. A reader's topics, partitions, offsets, limits
        and decoding count; other options of it are refused. A reader, or a disk, must not be older than the table: it
        has the log as it was listed.
    table : path, str, pyarrow.dataset.Dataset, pyarrow.Table or ForeignTable
        A folder or file whose format is recognised, or a name that `lake` writes to, as ``iceberg:NAMESPACE.TABLE``;
        ``pylogseg audit --help`` lists all. Also what has Arrow's stream (``__arrow_c_stream__``), such as a frame of
        polars. Table and topic may be given in the order of the shell, too: the topic first.
    topic : str or list of str, optional
        Topics, partitions or patterns; by default the topics that the table has. A table without a column for it needs
        the topic, unless the source has only one.
    partition : int or list of int, optional
        Only partitions with these numbers.
    columns : dict, optional
        Columns of the table by role (``topic``, ``partition``, ``offset``, ``key``, ``value``), where no preset fits:
        ``{"offset": "meta.offset"}``. An empty name says that there is no such column. Without offsets, rows and
        records are compared as multisets of key, value and ``timestamp``, hour by hour: a weaker check.
    preset : str, optional
        The writer of the table's columns; by default the column of offsets shows it.
    dead_letters : path or str, optional
        The table of dead letters, which counts as a part of this one; ``TABLE~dlq`` if there is one.
    offset : (int or None, int or None)
        Only this half-open range. Up to its end the table has to be complete.
    isolation_level
        For readers that also serve `lake`; both levels give the same audit.
    complete : bool
        The table has to have the whole log: records above its last offset count as lost, not as not yet there.
    quick : bool
        Read no row: compare the counts of row groups, by the statistics of offsets in the files' ends, with those of
        the log's headers. Each finding is wrong in the table; a lost record beside a double one, and keys and values,
        are not looked at, nor are check sums.
    decoding : {"value", "key"}, sequence of them, or Decoding, optional
        The table has them decoded: the log's are decoded by their schemas and compared column by column. These are the
        fields of the table's column of that name, or columns of the table itself.
    schema, registry : optional
        As for `pylogseg.lake`: what to decode by, and where schemas are.
    max_ranges : int
        Ranges listed for each partition; all are counted.
    max_decompressed_bytes : int
        A batch that decompresses to more counts as damaged.
    max_bytes_per_second : float, optional
        Read the log no faster.
    jobs : int or None
        Threads; None is one per processor.
    executor : Executor, optional
        What works instead of threads: a `SparkExecutor`.
    on_bytes : callable, optional
        Gets the bytes of table and log that were read, from several threads.

    Returns
    -------
    Audit

    Raises
    ------
    RequestError
        If the table has no known column of offsets, or a name does not exist.
    StorageError
        If the table cannot be opened, or the log cannot be listed.
    """
    workers, asked = split_keywords(how, WorkKeywords, AuditQuestion)
    table, topic = in_order(table, topic)
    question = Question.of("audit", source, topic, partition, AuditQuestion, asked, LENIENT)
    _, choice, selection, reading, decoding = question
    first, end = offset = selection.offsets.absolute(FROM_THE_END)
    if quick and offset != (None, None):
        raise RequestError("quick compares whole files: it cannot be combined with a range of offsets")
    on_bytes = workers.pop("on_bytes", None)
    work = choose_executor(**workers)
    # The table first: what a log gets meanwhile may be missing in it, but not the other way round.
    tables = list(open_tables(table, dead_letters))
    if tables[0].ledger is not None and tables[0].ledger.latest:
        raise RequestError(
            f"{tables[0].name}: lake keeps only the latest record of each key in it, and an audit looks for all: "
            "audit a table of all records, or compare this one with `pylogseg latest`"
        )
    roles = _columns(tables, columns or {}, preset)
    whole_disk = question.open()
    disk = of_topics(whole_disk.select(choice.names or None), choice.names).select(partition=choice.numbers or None)
    chosen = _TopicChoice(choice, frozenset(disk.topics).intersection(choice.names))
    files = [file for table in tables for file in table.files]
    result = Audit(tables[0].name, tables[0].format, tables[0].version, roles, len(files))
    result.findings += [finding for table in tables for finding in table.findings]
    result.findings += _twice(files)
    logs = {_key_of(log): log for log in logs_of(disk)} if disk.partitions or disk.loose else {}
    result.findings += _unlike(tables[0], disk, choice)
    if roles.by_time and (quick or decoding is not None or offset != (None, None)):
        raise RequestError(f"{result.table} has no offsets: quick, decoding and a range of offsets mean nothing there")
    limits = {name: getattr(reading, name) for name in LimitKeywords.__annotations__}
    reading = replace(LENIENT, control=True, **limits)
    state = reading.start(scratch=Scratch)
    part_bytes = None if isinstance(work, Threads) and work.jobs == 1 else PART_BYTES
    dead, is_complete, until = _dead(files), complete or end is not None, _END if end is None else end
    plan = _Plan((first or 0, until), is_complete, state, part_bytes, _list_cleaned(disk), dead)
    committed = replace(state, reading=replace(reading, control=False, isolation_level="read_committed"))
    if quick:
        return _quick(files, logs, chosen, plan._replace(state=committed), work, result)
    if roles.by_time:
        return _by_time(files, logs, chosen, plan._replace(state=committed), work, result, on_bytes)
    typed = None
    if decoding is not None:
        typed = _choose_schemas(decoding, whole_disk, logs)
        for which, decoder in typed.decoders.items():
            roles = roles.with_decoded(tables[0].schema, which, decoder.type)
        roles = _in_all_files(files, roles, work, result)
    pieces = _pieces(files, roles, work, result)
    with tempfile.TemporaryDirectory(prefix="pylogseg-audit-") as folder:
        secret = (secrets.randbits(64), secrets.randbits(64))
        spilling = Spilling(folder, roles, secret)
        shared = [SharedFolder(folder, "set TMPDIR to a folder that they share")]
        load = Workload("pylogseg audit: the table", [piece.size for piece in pieces], on_bytes, shared)
        spilled = list(work.map(spilling.run, pieces, load))
        runs = _by_partition(spilled, [piece.file for piece in pieces], result)
        scope = _scope(logs, runs, roles, chosen, result)
        comparison = Comparison(folder, roles, secret, dead, max_ranges, typed, _unread(files, result))
        items = [part for parts in work.map(plan.parts, scope) for part in parts]
        extents = {part.name: part.whole for part in items}
        named = [(file.path, file.origin) for file in files]
        merge = functools.partial(_merge_parts, extents, named, max_ranges)
        sizes = [part.reader.size if part.reader else 0 for part in items]
        load = Workload("pylogseg audit: the log", sizes, on_bytes, shared)
        names = [part.name for part in items]
        result.partitions = [answer for _, answer in work.merge(comparison.run, items, names, _keep_part, merge, load)]
    result.partitions.sort(key=lambda each: _by_number(each.name))
    return result


def _unlike(table: ForeignTable, disk: Disk, choice: PartitionChoice) -> Iterator[TableFinding]:
    """Yield the signs that the table, if `lake` wrote it, has another log; RequestError for another topic's."""
    ledger = table.ledger
    if ledger is None or disk.loose or not disk.partitions:
        return
    for topic in topics_on(disk, to_end=True):
        if topic.name == ledger.topic and topic.error is None:
            vanished = vanished_partitions(WholeDisk(disk, choice), topic, ledger)
            below = (finding.reason for finding in partitions_below(ledger, table.name, vanished))
            unknown = topic.doubts_of_cluster(ledger) if ledger.cluster_id is not None else ()
            for text in (*topic.unlike(ledger, table.name), *below, *unknown, *topic.doubts_of_lineage(ledger)):
                yield TableFinding("ledger", text)


def _unread(files: Sequence[DataFile], result: Audit) -> tuple[int, int]:
    """Return the offsets, half-open, that files may have which could not be read, as far as the table tells."""
    paths = {finding.file for finding in result.findings if finding.kind == "unread" and finding.rows is None}
    if not paths:
        return 0, 0
    column = result.columns.get("offset")
    bounds = [file.bounds.get(column.path) for file in files if column is not None and file.path in paths]
    pairs = [pair for pair in bounds if pair is not None]
    if not pairs or len(pairs) < len(bounds):
        return 0, _END
    return min(first for first, _ in pairs), max(last for _, last in pairs) + 1


def _dead(files: Sequence[DataFile]) -> IsDead:
    return np.array([file.is_dead for file in files] or [False])


def _list_cleaned(disk: Disk) -> set[str]:
    """Return the names of the partitions that the cleaner has been in."""
    return {unit.name for unit in units_of(disk, partitions_of(disk), []) if unit.is_cleaned}


def _threads(work: Executor) -> Threads:
    return work if isinstance(work, Threads) else Threads(job_count(None))


def _quick(
    files: Sequence[DataFile],
    logs: dict[TopicPartition, LogFiles],
    choice: _TopicChoice,
    plan: _Plan,
    work: Executor,
    result: Audit,
) -> Audit:
    """Compare counts, without reading rows."""
    result.is_quick, columns = True, result.columns
    answers = list(_threads(work).map(functools.partial(row_groups, columns=columns), list(enumerate(files))))
    result.findings += dict.fromkeys(finding for _, findings, _ in answers for finding in findings)
    untold = sum(rows for _, _, rows in answers)
    is_told = not untold and not any(finding.kind == "unread" for finding in result.findings)
    result.rows += untold
    runs = _by_partition([groups for groups, _, _ in answers], files, result)
    scope = _scope(logs, runs, columns, choice, result)
    # Committed records of a log are one part; all rows belong to it, also those with offsets that no log can have.
    parts = [part._replace(runs=item[2]) for item, (part,) in zip(scope, work.map(plan.parts, scope), strict=True)]
    counted = work.map(functools.partial(count_partition, is_told=is_told), parts)
    result.partitions = sorted(counted, key=lambda each: _by_number(each.name))
    return result


def _by_time(
    files: Sequence[DataFile],
    logs: dict[TopicPartition, LogFiles],
    choice: _TopicChoice,
    plan: _Plan,
    work: Executor,
    result: Audit,
    on_bytes: Callable[[int], None] | None,
) -> Audit:
    """Compare rows and records hour by hour."""
    columns = result.columns
    summing = Summing(columns, (secrets.randbits(64), secrets.randbits(64)))
    only = "" if columns.get("topic") is not None else _only_topic(logs, result)
    pieces = _pieces(files, columns, work, result)
    load = Workload("pylogseg audit: the table", [piece.size for piece in pieces], on_bytes)
    answers = list(work.map(summing.of_table, pieces, load))
    table = _by_partition(answers, [piece.file for piece in pieces], result, "a time")
    if only:
        table = {(only, number): sums for (_, number), sums in table.items()}
    there = _topics({topic for topic, _ in table}, logs, result)
    has_partition = columns.get("partition") is not None
    extents: dict[TopicPartition, LogExtent] = {}
    items: list[tuple[TopicPartition, LogReader]] = []
    wanted = {key: log for key, log in logs.items() if only or choice.choice.names or key[0] in there}
    looked = work.map(plan.stable_parts, list(wanted.values()))
    for (topic, number), (extent, readers) in zip(wanted, looked, strict=True):
        key = topic, number if has_partition else NONE
        extents[key] = extent.join(extents.get(key))
        items += [(key, part) for part in readers]
    chosen = {key: sums for key, sums in table.items() if key in extents or choice.takes(*key)}
    result.other_rows = sum(int(sums["count"].sum()) for key, sums in table.items() if key not in chosen)
    records: dict[TopicPartition, list[tuple[Sums, list[Gap]]]] = {}
    load = Workload("pylogseg audit: the log", [part.size for _, part in items], on_bytes)
    for (key, _), summed in zip(items, work.map(summing.of_log, [part for _, part in items], load), strict=True):
        records.setdefault(key, []).append(summed)
    is_unread = any(answer.unnamed for answer in answers) or _unread(files, result) != (0, 0)
    for key in sorted({*chosen, *extents}):
        name = f"{key[0]}-{key[1]}" if has_partition else key[0]
        log_parts = records.get(key, [])
        sides = _hours([chosen[key]] if key in chosen else []), _hours([sums for sums, _ in log_parts])
        about = extents.get(key)
        gaps = {gap: None for _, of_part in log_parts for gap in of_part} | dict.fromkeys(about.tail if about else ())
        result.partitions.append(compare_hours(name, *sides, about, gaps, plan.is_complete, is_unread))
    return result


def _hours(sums: Sequence[Sums]) -> Sums:
    """Add up the hours of one partition; its topic may have another number in each piece."""
    every = np.concatenate([np.empty(0, SUMS), *sums])
    every["topic"] = every["partition"] = 0
    return add_sums([every])


def open_tables(table: Any, dead_letters: Any = None) -> Iterator[ForeignTable]:
    """Yield the table, and the table of its dead letters if there is one."""
    yield open_table(table)
    if dead_letters is None and isinstance(table, str | os.PathLike):
        try:
            yield _with_dead(open_table(os.fspath(table).rstrip("/") + DEAD))
        except NoTableError:
            return
    elif dead_letters is not None:
        yield _with_dead(open_table(dead_letters, "table of dead letters"))


def _with_dead(table: ForeignTable) -> ForeignTable:
    return replace(table, files=tuple(replace(file, is_dead=True) for file in table.files))


def _columns(tables: Sequence[ForeignTable], given: Mapping[str, str], preset: str | None) -> TableColumns:
    chosen = find_columns(tables[0].schema, tables[0].name, given, preset)
    for dead in tables[1:]:
        # Dead letters have the bytes that could not be decoded; where the table has none, neither are compared.
        other = find_columns(dead.schema, dead.name, {}, None)
        for column in chosen.columns:
            there = other.get(column.role)
            if there is None and column.role in ("partition", "offset"):
                raise RequestError(f"{dead.name}, the dead letters, has no column for the {column.role}")
            if there is not None and there.path != column.path:
                raise RequestError(
                    f"{dead.name}, the dead letters, has the {column.role} in {there.name}, the table in "
                    f"{column.name}: audit them one by one"
                )
    return chosen


def _twice(files: Iterable[DataFile]) -> Iterator[TableFinding]:
    """Yield files that are listed twice; their rows are double."""
    by_path: dict[str, list[DataFile]] = {}
    for file in files:
        by_path.setdefault(file.path, []).append(file)
    for path, several in by_path.items():
        if len(several) > 1:
            who = ", ".join(dict.fromkeys(file.origin or "unknown" for file in several))
            yield TableFinding("twice", f"the table lists it {len(several)} times (added by {who})", path)


def _choose_schemas(decoding: Decoding, disk: Disk, logs: Mapping[TopicPartition, LogFiles]) -> TypedBatches:
    """Choose the schemas of the records of the selected topics."""
    names = [name for name in ("key", "value") if name in decoding.columns]
    scope = ReadScope.of([*logs.values()], reading=SKIPPING)
    decoding = replace(decoding, form=for_tables, on_undecoded="raw")
    return typed_batches(decoding, disk, sorted({topic for topic, _ in logs}), names, scope.chunks)


def _in_all_files(files: Sequence[DataFile], columns: TableColumns, work: Executor, result: Audit) -> TableColumns:
    """Return the columns without columns that the table got later: older rows have a null there, records a default."""
    lacking = _threads(work).map(functools.partial(_lacking, columns=columns), files)
    gone = sorted({role for roles in lacking for role in roles})
    if gone:
        text = f"some files do not have {', '.join(gone)}, which came to the table later: not compared"
        result.findings.append(TableFinding("note", text))
    result.columns = columns.without(gone)
    return result.columns


def _lacking(file: DataFile, advance: Advance, columns: TableColumns) -> set[str]:
    if file.is_dead or file.batches is not None:
        return set()
    try:
        with file.parquet() as opened:
            names, _ = columns_in_file(file, columns, opened.schema_arrow)
    except StorageError:
        return set()
    return {column.role for column in columns.decoded} - {*names}


def _pieces(files: Sequence[DataFile], columns: TableColumns, work: Executor, result: Audit) -> list[FilePiece]:
    """Read the ends of the data files, on this machine, and return the pieces to read; findings go to the result."""
    # Only few bytes are read of each, and what opens a catalog does not travel.
    footers = list(_threads(work).map(functools.partial(_footer, columns=columns), list(enumerate(files))))
    result.findings += dict.fromkeys(finding for _, findings in footers for finding in findings)
    pieces = [piece for in_file, _ in footers for piece in in_file]
    return [piece._replace(number=n, file=replace(piece.file, check=None)) for n, piece in enumerate(pieces)]


def _footer(
    item: tuple[int, DataFile], advance: Advance, columns: TableColumns
) -> tuple[list[FilePiece], list[TableFinding]]:
    number, file = item
    if file.batches is not None:
        return [FilePiece(0, number, file, (), 0, 0)], []
    try:
        metadata, _, findings = file.footer()
    except StorageError as error:
        return [], [TableFinding("unread", str(error), file.path)]
    pieces: list[FilePiece] = []
    groups: list[int] = []
    size = row = first_row = 0
    wanted = [column.path[0] for column in columns.columns]
    for i in range(metadata.num_row_groups):
        group = metadata.row_group(i)
        groups.append(i)
        row += group.num_rows
        size += sum(
            chunk.total_compressed_size
            for chunk in map(group.column, range(group.num_columns))
            if chunk.path_in_schema.split(".")[0] in wanted
        )
        if size >= _PIECE_BYTES or i + 1 == metadata.num_row_groups:
            pieces.append(FilePiece(0, number, file, tuple(groups), first_row, size))
            groups, size, first_row = [], 0, row
    return pieces, findings


def _by_partition(
    answers: Sequence[PieceRows], files: Sequence[DataFile], result: Audit, place: str = "an offset"
) -> dict[TopicPartition, Any]:
    """Return the runs or sums of each partition of the table, by topic and number; unreadable rows become findings."""
    topics: dict[str, int] = {}
    every = []
    for answer, file in zip(answers, files, strict=True):
        if answer.error is not None:
            result.findings.append(TableFinding("unread", answer.error, file.path))
        if answer.unnamed:
            text = f"rows without {place} or a partition: whether they are in the log is not known"
            result.findings.append(TableFinding("unread", text, file.path, answer.unnamed))
            result.rows += answer.unnamed
        numbers = np.array([topics.setdefault(name, len(topics)) for name in answer.topics] or [0], np.int32)
        result.dead_letters += int(answer.rows["count"].sum()) if file.is_dead else 0
        rows = answer.rows.copy()
        rows["topic"] = numbers[rows["topic"]] if len(rows) else rows["topic"]
        every.append(rows)
    rows = np.concatenate(every) if every else np.empty(0, RUN)
    result.rows += int(rows["count"].sum())
    rows = rows[np.lexsort((rows["partition"], rows["topic"]))]
    names = list(topics)
    starts = np.flatnonzero(np.diff(rows["topic"]) | np.diff(rows["partition"])) + 1
    groups = np.split(rows, starts) if len(rows) else []
    return {(names[group["topic"][0]], int(group["partition"][0])): group for group in groups}


def _only_topic(logs: Mapping[TopicPartition, LogFiles], result: Audit) -> str:
    """Return the topic of a table that does not say it."""
    topics = sorted({topic for topic, _ in logs})
    if len(topics) != 1:
        some = ", ".join(topics[:5]) + (", ..." if len(topics) > 5 else "")
        raise RequestError(
            f"{result.table} has no column for the topic, or no row, and the source has {len(topics)} ({some}): name "
            "the one that it was fed from"
        )
    return topics[0]


def _topics(there: set[str], logs: Mapping[TopicPartition, LogFiles], result: Audit) -> set[str]:
    """Return the topics of a table's rows; for an empty table the topic of its source."""
    return there if there or result.rows or not result.is_whole else {_only_topic(logs, result)}


def _scope(
    logs: dict[TopicPartition, LogFiles],
    runs: dict[TopicPartition, Runs],
    columns: TableColumns,
    choice: _TopicChoice,
    result: Audit,
) -> list[tuple[str, LogFiles | None, Runs]]:
    """Return the partitions to compare: their names, logs and runs."""
    if columns.get("topic") is None:
        only = _only_topic(logs, result)
        runs = {(only, number): group for (_, number), group in runs.items()}
    elif not choice.choice.names:
        there = _topics({topic for topic, _ in runs}, logs, result)
        logs = {key: log for key, log in logs.items() if key[0] in there}
    if columns.get("partition") is None:
        if len(logs) != 1:
            raise RequestError(
                f"{result.table} has no column for the partition, and {len(logs)} are selected: name one (orders-3), "
                "or say which column it is (--columns partition=NAME)"
            )
        runs = {next(iter(logs)): np.concatenate([np.empty(0, RUN), *runs.values()])}
    chosen = {key: group for key, group in runs.items() if key in logs or choice.takes(*key)}
    result.other_rows = sum(int(group["count"].sum()) for key, group in runs.items() if key not in chosen)
    none = np.empty(0, RUN)
    keys = sorted({*logs, *chosen})
    return [(_name(key, logs.get(key)), logs.get(key), chosen.get(key, none)) for key in keys]


def _name(key: TopicPartition, log: LogFiles | None) -> str:
    return f"{key[0]}-{key[1]}" if log is None else log.name


def _key_of(log: LogFiles) -> TopicPartition:
    if log.segments:
        return log.segments[0].topic, log.segments[0].partition
    return _by_number(log.name)


class _TopicChoice(NamedTuple):
    """The choice of partitions, also of partitions that the source lacks; a topic's name means the topic."""

    choice: PartitionChoice
    topics: frozenset[str]  #: The names that are topics.

    def takes(self, topic: str, number: int) -> bool:
        """Check whether a partition is among the chosen ones."""
        is_others = f"{topic}-{number}" in self.topics and topic not in self.topics
        return not is_others and self.choice.takes(topic, number)


class _Plan(NamedTuple):
    """How logs are cut into parts."""

    offsets: tuple[int, int]
    is_complete: bool
    state: ReadState
    part_bytes: int | None
    cleaned: set[str]  #: Names of partitions.
    dead: IsDead = _NONE_DEAD

    def stable_parts(self, log: LogFiles, advance: Advance) -> tuple[LogExtent, list[LogReader]]:
        """Return the extent of a log, and readers of its parts up to the first undecided offset."""
        whole = self._extent_of(log)
        return whole, self._readers(log, whole.log_start_offset, whole.stable_offset)

    def parts(self, item: tuple[str, LogFiles | None, Runs], advance: Advance) -> list[LogPart]:
        name, log, runs = item
        first, end = self.offsets
        if log is None:
            return [part_without_log(name, runs)]
        whole = self._extent_of(log)
        behind = _END if self.is_complete else behind_table(runs, self.dead)
        readers = self._readers(log, first, min(end, whole.end_offset))
        return parts_of(name, log, readers, runs, behind, whole, self.offsets)

    def _extent_of(self, log: LogFiles) -> LogExtent:
        return extent_of(log, log.name in self.cleaned)

    def _readers(self, log: LogFiles, first: int, end: int) -> list[LogReader]:
        reader = LogReader.of(log, Selection(offsets=OffsetRange(first, end)), self.state)
        return reader.parts(self.part_bytes) or [reader]


def _merge_parts(
    known: Mapping[str, LogExtent],
    files: Sequence[tuple[str, str | None]],
    max_ranges: int,
    name: str,
    found: Iterable[PartFound],
) -> PartitionAudit:
    whole = audit_of(name, known[name])
    parts = list(found)
    is_cleaned = known[name].is_cleaned or any(part.is_cleaned for part in parts)
    pairs: Counter[tuple[int, int]] = Counter()
    ranges: list[AuditRange] = []
    for part in parts:
        for name in ("rows", "present", "double", "changed", "unlisted", "gaps"):
            setattr(whole, name, getattr(whole, name) + getattr(part, name))
        for name in ("missing", "foreign", "unchecked"):
            for reason, count in getattr(part, name).items():
                getattr(whole, name)[reason] += count
        pairs.update(part.pairs)
        ranges += part.ranges
        # Without a cleaner, a log has each offset: somebody has taken records out of it.
        whole.missing["compacted" if is_cleaned else "notLookedAt"] += part.absent
        if is_cleaned:
            whole.unchecked["compacted"] += part.extra
        else:
            whole.foreign["absent"] += part.extra
            ranges += [*part.extra_ranges, *(part.absent_ranges if part.absent else ())]
            whole.unlisted += part.extra_unlisted
    ranges = _join_ranges(sorted(ranges, key=lambda of: (of.first_offset, of.kind)))
    whole.ranges = ranges[:max_ranges]
    whole.unlisted += len(ranges) - len(whole.ranges)
    for (one, other), count in pairs.most_common(_MAX_PAIRS):
        (path, origin), (again, origin_again) = files[one], files[other]
        whole.double_files.append(DoubleFiles((path, again), (origin, origin_again), count))
    return whole


def _join_ranges(ranges: Iterable[AuditRange]) -> list[AuditRange]:
    """Join ranges that the border of a chunk or a part has cut."""
    joined: list[AuditRange] = []
    last: dict[tuple[str, str], int] = {}
    for span in ranges:
        at = last.get(span[:2])
        if at is not None and joined[at].last_offset + 1 == span.first_offset:
            records = joined[at].records + span.records
            joined[at] = joined[at]._replace(last_offset=span.last_offset, records=records)
        else:
            last[span[:2]] = len(joined)
            joined.append(span)
    return joined


def _by_number(name: str) -> TopicPartition:
    topic, _, number = name.rpartition("-")
    return (topic, int(number)) if number.isdecimal() else (name, -1)


def _keep_part(found: dict[int, PartFound], number: int, part: PartFound) -> None:
    """Keep the result of a part until all parts of the partition are merged."""
    found[number] = part
