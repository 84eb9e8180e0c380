"""A duckdb connection with the tables of a disk: statements in, streams of columns out."""

from __future__ import annotations

import contextlib
import difflib
import functools
import re
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from queue import Empty
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads

from pylogseg.env.beside import temporary_folder
from pylogseg.env.executor import processors
from pylogseg.env.handover import Handover
from pylogseg.env.interrupts import held_back
from pylogseg.errors import PylogsegError, RequestError, install_text
from pylogseg.reading.scan import Table, plan_scan, rows_of
from pylogseg.tables.sql.answers import (
    answer_schema,
    as_declared,
    cast_columns,
    row_limit,
    with_dictionaries,
    with_json,
)
from pylogseg.tables.sql.words import with_bytes, with_offset, with_text, words_of
from pylogseg.walker.gaps import Gap

try:
    import duckdb
except ImportError:  # a session says so
    duckdb = None  # type: ignore[assignment]

#: A blob as text, and as JSON, and text as what it is compared with. Bytes that are not UTF-8 are shown as by
#: `pylogseg cat`; null says that there is no JSON. `try` would be shorter, at a hundred times the cost where it fails.
_FUNCTIONS = (
    """create macro text(a blob) as
         case when strlen(decode(a, 'ignore')) = octet_length(a) and not starts_with(decode(a, 'ignore'), 'base64:')
              then decode(a, 'ignore') else 'base64:' || to_base64(a) end,
       (a varchar) as a, (a) as a::varchar""",
    """create macro json(a blob) as
         case when json_valid(decode(a, 'replace')) then decode(a, 'replace')::json end,
       (a) as a::json""",
    """create macro "->>"(a blob, b) as
         case when json_valid(decode(a, 'replace')) then json_extract_string(decode(a, 'replace'), b) end,
       (a, b) as json_extract_string(a, b)""",
    "create macro same_kind(a blob, b) as encode(b), (a varchar, b) as b",
)
#: Statements about the tables that there are: they see all of them.
_CATALOG_WORDS = frozenset(["show", "tables", "information_schema", "duckdb_views", "duckdb_columns", "pg_catalog"])
_BATCH_ROWS = 65536
_BATCHES_AHEAD = 4
_LOOK_SECONDS = 0.05
_TELL_SECONDS = 1.0


class TableReading(NamedTuple):
    """One reading of a table by a statement."""

    table: str
    columns: tuple[str, ...]  #: What is read besides what the filter needs.
    filter: Any  #: What the reading leaves out by itself.


class Answer(NamedTuple):
    """The rows of a statement; iterate over `batches` before the next statement."""

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]


class Session:
    """Runs statements over tables; one at a time, by one thread of its own, so that Ctrl-C reaches the caller.

    `tables` opens each table when a statement first names it; `nameless` are topics without one. The thread that waits
    for rows calls `on_wait` every second with the number of rows read so far, and with None when the wait is over.
    """

    def __init__(
        self,
        tables: Mapping[str, Callable[[], Table]],
        *,
        jobs: int,
        allow_files: bool = False,
        nameless: Sequence[str] = (),
        on_wait: Callable[[int | None], None] = lambda _: None,
    ) -> None:
        self.tables, self._nameless, self._on_wait = tables, nameless, on_wait
        self._rows_read = 0
        self._limit: int | None = None
        self._beside = 0
        self.opened: dict[str, Table] = {}
        #: The readings of the last statement.
        self.scans: list[TableReading] = []
        self.only_explains = False
        self._errors: list[PylogsegError] = []
        self._stop = threading.Event()
        self._by_word = {name.lower(): name for name in tables}
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(temporary_folder("pylogseg-sql-"))
            with held_back():
                self._connection = _connect(jobs, str(folder), allow_files)
            self._folder = stack.pop_all()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        with self._folder:
            self._connection.close()

    @property
    def gaps(self) -> list[Gap]:
        """The gaps that the readings so far found."""
        return [gap for table in self.opened.values() for gap in table.gaps]

    @property
    def is_unchecked(self) -> bool:
        """True if a reading so far counted by the headers of batches."""
        return any(table.is_unchecked for table in self.opened.values())

    @property
    def undecoded(self) -> int:
        """Number of payloads that readings so far could not decode, up to the last row that the caller took."""
        return sum(table.undecoded for table in self.opened.values()) - self._beside

    def run(self, sql: str) -> Generator[Answer]:
        """Run the statements of a text one by one, and yield the answers of statements with rows.

        RequestError if duckdb refuses one; what a table raised in its reading comes as it is.
        """
        for statement in self._statements(with_text(with_bytes(sql))):
            self.scans, self._rows_read = [], 0
            with contextlib.closing(self._by_thread(functools.partial(self._execute, statement))) as items:
                schema = next(items, None)
                if schema is not None:
                    yield Answer(schema, items)

    def explain(self, sql: str) -> list[dict[str, Any]]:
        """Return the readings that the statements of a text would make, a row for each reading of a table.

        One reading may skip ranges because of another reading's records. That shows only later, so here no range is
        skipped.
        """
        rows = []
        for scan in self._scans_of(sql):
            table = self.opened[scan.table]
            read, there = plan_scan(table, scan.filter), plan_scan(table)
            rows.append(
                {
                    "table": scan.table,
                    "segments": read.segments,
                    "allSegments": there.segments,
                    "readBytes": read.size_bytes,
                    "allBytes": there.size_bytes,
                    "columns": list(scan.columns),
                    "filter": None if scan.filter is None else _show_filter(scan.filter),
                }
            )
        return rows

    def _scans_of(self, sql: str) -> list[TableReading]:
        """Return the readings of the statements of a text; all tables are empty for it."""
        scans: list[TableReading] = []
        self.only_explains = True
        try:
            for answer in self.run(sql):
                for _ in answer.batches:
                    pass
                scans += self.scans
        finally:
            self.only_explains = False
        return scans

    def _statements(self, sql: str) -> Sequence[Any]:
        try:
            with held_back():
                try:
                    statements: Sequence[Any] = self._connection.extract_statements(sql)
                except duckdb.ParserException:
                    sql = with_offset(sql)
                    statements = self._connection.extract_statements(sql)
        except duckdb.Error as error:
            raise explain_sql_error(error, sql, self._collect_names()) from None
        self._register(words_of(sql))
        return statements

    def _register(self, words: Iterable[str]) -> None:
        named = {*words}
        wanted = self._by_word if named & _CATALOG_WORDS else [word for word in self._by_word if word in named]
        for word in wanted:
            self.open(self._by_word[word])

    def _collect_names(self) -> SqlNames:
        columns = [name for table in self.opened.values() for name in table.schema.names]
        return SqlNames(list(self.tables), self._nameless, list(dict.fromkeys(columns)))

    def open(self, name: str) -> Table:
        """Return a table, which statements can name from then on."""
        if name not in self.opened:
            table = self.opened[name] = self.tables[name]()
            with held_back():
                self._connection.register(name, _Table(self, name, with_dictionaries(with_json(table.schema))))
        return self.opened[name]

    def _execute(self, statement: Any) -> Iterator[Any]:
        """Yield the schema of the answer, then its record batches; nothing for a statement without an answer."""
        try:
            if not _has_rows(statement):
                self._connection.execute(statement)
                return
            self._limit = self._limit_of(statement)
            relation = cast_columns(self._connection.sql(statement))
            types = relation.types
            reader = relation.to_arrow_reader(_BATCH_ROWS)
            schema = answer_schema(reader.schema, types)
            yield schema
            for batch in reader:
                yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            if self._errors:
                raise self._errors[0] from None
            if self._stop.is_set():
                raise KeyboardInterrupt from None
            raise explain_sql_error(error, statement.query, self._collect_names()) from None

    def _limit_of(self, statement: Any) -> int | None:
        """Return how many rows of a table with decoded columns are enough for a statement, where a number is."""
        if not any(_errors_of(table.schema) for table in self.opened.values()) or self.only_explains:
            return None
        (row,) = self._connection.execute(f"explain (format json) {statement.query}").fetchall()
        return row_limit(row[-1], statement.query)

    def _by_thread(self, work: Callable[[], Iterator[Any]]) -> Generator[Any]:
        """Run a generator in another thread and yield its items: this thread stays free for interrupts."""
        items = Handover[Any](_BATCHES_AHEAD, self._stop)
        self._stop.clear()
        self._errors.clear()

        def run() -> None:
            try:
                for item in work():
                    if not items.put((item, None)):
                        return
                items.put((None, None))
            except BaseException as error:
                items.put((None, error))

        thread = threading.Thread(target=run, name="pylogseg-sql", daemon=True)
        try:
            with held_back():  # a thread that is not known to have begun would not be waited for
                thread.start()
            while True:
                item, error = self._await_item(items)
                if error is not None:
                    raise error
                if item is None:
                    return
                yield item
        finally:
            self._stop.set()
            while thread.is_alive():
                self._connection.interrupt()
                thread.join(_LOOK_SECONDS)

    def _await_item(self, items: Handover[Any]) -> Any:
        """Return the next item; tell meanwhile how many rows were read."""
        try:
            while True:
                with contextlib.suppress(Empty):
                    return items.get(timeout=_TELL_SECONDS)
                self._on_wait(self._rows_read)
        finally:
            self._on_wait(None)

    def read(self, name: str, columns: Sequence[str] | None, expression: Any) -> pa.RecordBatchReader:
        """Return the stream that duckdb reads for a table."""
        table = self.opened[name]
        wanted = table.schema.names if columns is None else [*columns]
        self.scans.append(TableReading(name, tuple(wanted), expression))
        schema = with_dictionaries(with_json(pa.schema([table.schema.field(column) for column in wanted])))
        if self.only_explains:
            return pa.RecordBatchReader.from_batches(schema, iter(()))
        errors = _errors_of(table.schema) if self._limit is not None else []
        batches = self._watch_rows(table, list(dict.fromkeys([*wanted, *errors])), expression)
        if errors:
            batches = self._first_rows(table, batches, errors)
        return pa.RecordBatchReader.from_batches(
            schema, (as_declared(batch.select(wanted), schema) for batch in batches)
        )

    def _first_rows(
        self, table: Table, batches: Generator[pa.RecordBatch], errors: Sequence[str]
    ) -> Generator[pa.RecordBatch]:
        """Pass on the requested number of rows; undecoded payloads behind them do not count."""
        left, before, bad = self._limit or 0, table.undecoded, 0
        with contextlib.closing(batches):
            for batch in batches:
                part = batch.slice(0, left)
                left -= part.num_rows
                marks = [part.column(name).is_valid() for name in errors]
                bad += pc.sum(functools.reduce(pc.or_, marks)).as_py() or 0
                if not left:  # nobody asks again: the last rows end the reading
                    batches.close()
                    self._beside += table.undecoded - before - bad
                yield part
                if not left:
                    return

    def _watch_rows(self, table: Table, columns: list[str], expression: Any) -> Generator[pa.RecordBatch]:
        """Pass on the read rows until the statement has to stop; keep the original error."""
        try:
            with contextlib.closing(rows_of(table, columns, expression, jobs=processors())) as batches:
                for batch in batches:
                    if self._stop.is_set():
                        return
                    self._rows_read += batch.num_rows
                    yield batch
        except PylogsegError as error:
            self._errors.append(error)
            raise


def _errors_of(schema: pa.Schema) -> list[str]:
    """Return the columns that say why a payload does not decode."""
    return [name for name in ("keyError", "valueError") if name in schema.names]


def _show_filter(filter: Any) -> str:
    """Return a filter as text, a field of a struct as ``value.id``."""
    names = re.compile(r"FieldRef\.Nested\((.*?\))\)")
    return names.sub(lambda found: ".".join(re.findall(r"Name\((.*?)\)", found[1])), str(filter))


def _has_rows(statement: Any) -> bool:
    """Check whether a statement has an answer, and not only an effect."""
    kinds = [str(kind).rpartition(".")[2] for kind in statement.expected_result_type]
    return kinds == ["QUERY_RESULT"] or str(statement.type).endswith("MULTI")


class _Table(pads.Dataset):
    """A table as duckdb sees it."""

    def __init__(self, session: Session, name: str, schema: pa.Schema) -> None:
        self._session, self._name, self._columns = session, name, schema

    @property
    def schema(self) -> pa.Schema:
        return self._columns

    def scanner(self, columns: Sequence[str] | None = None, filter: Any = None, **_: Any) -> _Scanner:
        """Return a scanner of some columns, and of the rows that a filter lets through."""
        return _Scanner(self._session.read(self._name, columns, filter))


class _Scanner(pads.Scanner):
    """One reading, in duckdb's threads; the threads of pyarrow's own scanners would outlive the query."""

    def __init__(self, reader: pa.RecordBatchReader) -> None:
        self._reader = reader

    @property
    def projected_schema(self) -> pa.Schema:
        return self._reader.schema

    def to_reader(self) -> pa.RecordBatchReader:
        return self._reader


def _connect(jobs: int, folder: str, allow_files: bool) -> Any:
    """Return a connection that reaches nothing but its tables; no statement changes that."""
    if duckdb is None:
        raise RequestError(f"pylogseg sql needs duckdb: {install_text('sql')}")
    settings: dict[str, Any] = {
        "threads": jobs,
        # No variable of Python is a table.
        "python_enable_replacements": False,
        # Nothing is fetched from the net on behalf of a query.
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "temp_directory": folder,
    }
    connection = duckdb.connect(":memory:", config=settings)
    connection.execute("set timezone = 'UTC'")
    for function in _FUNCTIONS:
        connection.execute(function)
    if not allow_files:
        connection.execute("set enable_external_access = false")
    connection.execute("set lock_configuration = true")
    return connection


# ---- errors of duckdb in one line, with the table or column that was probably meant ----

_NO_TABLE = re.compile(r"Table with name (.+?) does not exist")
_NO_COLUMN = re.compile(r'(?:Referenced column|column named|Referenced table) "(.+?)"')
_PREFIX = re.compile(r"^(?:[\w ]+ Error: |INTERRUPT )+")
_NO_FILES = ": statements reach only the tables of the log; --allow-files lets them read and write files"
#: By a part of the error.
_HINTS = {
    "STRING -> BLOB": ": keys and values are bytes: write encode('...') for text, '\\x00'::blob for bytes",
    "BLOB": ": keys and values are bytes: write text(value), or octet_length(value) for the size",
    "file system operations are disabled": _NO_FILES,
    "disabled through configuration": _NO_FILES,
    "the configuration has been locked": ": a query has the settings of the command",
    "Out of Memory": ": select fewer columns or rows",
}
#: A name that needs no quotes.
_PLAIN = re.compile(r"[A-Za-z_]\w*")


class SqlNames(NamedTuple):
    """Names that a statement can have."""

    tables: Sequence[str]
    nameless: Sequence[str]  #: Topics without a table of their own.
    columns: Sequence[str]  #: Of the tables that were opened.


def explain_sql_error(error: Exception, sql: str, known: SqlNames) -> RequestError:
    """Return the error of a statement that duckdb refused."""
    said = str(error)
    first = _PREFIX.sub("", said.strip().splitlines()[0]).rstrip("!. ")
    return RequestError(f"{first}{_hint(said, sql, known)}")


def _hint(said: str, sql: str, known: SqlNames) -> str:
    unquoted = [name for name in known.tables if not _PLAIN.fullmatch(name) and _is_bare(name, sql)]
    if unquoted:
        return f': the name {unquoted[0]} has to be in double quotes: "{unquoted[0]}"'
    table = _NO_TABLE.search(said)
    if table:
        return _of_table(table[1], known)
    column = _NO_COLUMN.search(said)
    if column:
        if column[1].lower() in (name.lower() for name in known.tables):
            return f": text is in single quotes: '{column[1]}'"
        return _guess(column[1], known.columns) or (f"; there are {', '.join(known.columns)}" if known.columns else "")
    return next((hint for sign, hint in _HINTS.items() if sign in said), "")


def _of_table(name: str, known: SqlNames) -> str:
    same = [topic for topic in known.nameless if topic.lower() == name.strip('"').lower()]
    if same:
        return f": SQL does not tell {' and '.join(same)} apart; select from records where topic = '{same[0]}'"
    return _guess(name, known.tables) or f"; there are {_list_names(known.tables)}"


def _guess(word: str, names: Iterable[str]) -> str:
    by_word = {name.lower(): name for name in names}
    close = difflib.get_close_matches(word.strip('"').lower(), by_word, n=1)
    if not close:
        return ""
    name = by_word[close[0]]
    return f": did you mean {name if _PLAIN.fullmatch(name) else f'{chr(34)}{name}{chr(34)}'}?"


def _is_bare(name: str, sql: str) -> bool:
    """Check whether a name stands in a statement without quotes."""
    return bool(re.search(rf'(?<![\w."\'-]){re.escape(name)}(?![\w."\'-])', sql, re.IGNORECASE))


def _list_names(names: Sequence[str], most: int = 12) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
