"""`pylogseg export`: write records to files of other formats."""

from __future__ import annotations

import contextlib
import functools
import glob
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pylogseg.cli import common
from pylogseg.cli.losses import report_doubts
from pylogseg.cli.outcomes import print_list
from pylogseg.cli.output import STYLES
from pylogseg.cli.outputs import check_output, refuse_overwriting
from pylogseg.cli.query import Query, query_options
from pylogseg.cli.tiers import Local
from pylogseg.cli.typed import (
    SCHEMA,
    check_secrets,
    check_unused,
    choose_payload_text,
    decoding_of,
    own_decoding,
    own_options,
    typed_of,
    typed_options,
    undecoded_option,
    wants_schema,
)
from pylogseg.cli.workers import Workers, workers_option
from pylogseg.disk.stores import FolderStore, ObjectStore, store_of
from pylogseg.env.beside import sweep
from pylogseg.env.executor import Advance, Executor, Workload
from pylogseg.env.shared import SharedFolder
from pylogseg.errors import NotOwnError, RequestError
from pylogseg.format.names import FileKind
from pylogseg.inspect.small_file_doubts import source_doubts
from pylogseg.inspect.verify.findings import Finding
from pylogseg.inspect.verify.lacking import lacking_for
from pylogseg.reading import column_names
from pylogseg.reading.log_reader import LogReader
from pylogseg.reading.logs import LogFiles
from pylogseg.reading.selection import Selection
from pylogseg.tables.export.file import (
    DEFAULT_COLUMNS,
    FORMS,
    Exported,
    Form,
    earlier_files,
    export_part,
    export_together,
    folder_of,
    target_of,
)
from pylogseg.tables.export.notes import lock_place, note_log, said_of, writing
from pylogseg.tables.export.result import ExportResult
from pylogseg.tables.export.tables import COLUMNS as TABLE_COLUMNS
from pylogseg.tables.export.tables import TableExport, export_logs, files_of_part
from pylogseg.walker.gaps import GapKind

if TYPE_CHECKING:
    from pylogseg.values.decoding import TypedBatches

_EPILOG = """\b
Examples:
  pylogseg export /data/kafka orders --out lake
  pylogseg export /data/kafka orders --out lake --since 7d --to arrow
  pylogseg export /data/kafka orders-3 --out text --to jsonl --value-as json
  pylogseg export /data/kafka orders --out orders.jsonl --value-as schema
  pylogseg export /data/kafka orders --out orders.parquet --value-type string
  pylogseg export /data/kafka orders --out lake --value-type schema
  pylogseg export /data/kafka orders --out s3://bucket/lake
  pylogseg export /data/kafka orders --out lake --by-date
  pylogseg export /data/kafka __consumer_offsets --out offsets.parquet --internal
  duckdb -c "select topic, count(*) from 'lake/**/*.parquet' group by topic"

\b
Each segment becomes a file OUT/topic=NAME/partition=N/<base offset>.parquet, in
Hive's layout: pyarrow, polars, duckdb and Spark read topic and partition from
the folders, so the files do not have them (unless --columns names them).
A segment without records has no file. With --isolation-level read_committed or
--on-corrupt stop, each partition becomes one file, named by its first segment.

\b
If --out ends in .parquet, .arrow, .csv or .jsonl, all selected records are written
to that one file, partition after partition, with columns for topic and partition.
One thread writes it.

\b
Keys and values are bytes. --key-type and --value-type string store them as UTF-8
strings in Parquet and Arrow files. Bytes that are not UTF-8 are an error that
names the record; --not-utf8 writes null or base64:... instead (base64 also for
text that itself begins with base64:). The type schema decodes Avro, Protobuf and
JSON to typed columns, by the schemas of the topic _schemas or of --registry. What
cannot be decoded is kept in a column valueRaw, with the reason in valueError, and
the exit code is 1. In CSV and JSON lines, --key-as and --value-as schema write the
JSON of cat; what cannot be decoded stays text.
--internal does the same for topics that Kafka, Connect and a schema registry write for
themselves: key and value have a member for each type of record. Secrets are masked
unless --show-secrets. Other topics stay as they are. In CSV and JSON lines it writes
what cat --internal prints.

\b
--by-date writes OUT/topic=NAME/date=YYYY-MM-DD/<partition>-<base offset>-<n>.parquet,
by the days of the timestamps in UTC. A run writes the segments that changed since the
last one, and removes files of segments that the cleaner merged. Records that retention
has removed from the log stay. A table has one form, one set of columns and one
isolation level; each line of --json is a file, with its state.

\b
OUT may be a URL, such as s3://bucket/lake: files are uploaded whole, and
_pylogseg/table.json beside them says whether the export ended.

\b
A file appears only when it is complete: an interrupted export leaves complete
files, and with --overwrite leaves those of the earlier export unchanged. If a
partition cannot be read completely, its files of the earlier export stay too.
A partition without a record to export has no file, so restore does not create it.
Records that are known to be missing (offsets that checkpoints, indexes, leader
epochs or snapshots prove) are reported, and the exit code is 1.
Exit codes: 0 success; 1 damage was found, or records are missing; 2 wrong usage or a disk error;
130 interrupted.
"""


_TYPES = click.Choice(["binary", "string", SCHEMA])


@dataclass(frozen=True)
class _Out:
    """The destination of an export."""

    text: str  #: As it was given.
    store: ObjectStore  #: The folder.
    file: str = ""  #: The name of the one file in it, if it is one.

    @property
    def path(self) -> Path | None:
        """The folder or file, if it is on this machine."""
        return self.store.root / self.file if isinstance(self.store, FolderStore) else None

    @classmethod
    def parse(cls, text: str) -> _Out:
        """Return a folder or file; refuse a name with the ending of another kind of file."""
        if text == "-":
            raise RequestError(
                "--out -: an export writes files; for records on stdout use `pylogseg cat` (a folder: ./-)"
            )
        path = Path(text)
        is_folder = text.endswith(("/", os.sep)) or path.is_dir()
        ends = "" if is_folder else path.suffix
        if not text or (ends not in FORMS.values() and re.fullmatch(r"\.[A-Za-z]\w*", ends)):
            raise RequestError(
                f"{text or 'the name is empty'}: expected a folder, or a file that ends in .parquet, .arrow, .csv or "
                ".jsonl" + ("; the name of a folder may end with /" if text else "")
            )
        if path.suffix not in FORMS.values() or path.is_dir():
            return cls(text, store_of(text))
        above = os.path.dirname(text)
        return cls(text, store_of(above), path.name)


@click.command(epilog=_EPILOG)
@common.selection_options
@click.option(
    "--out",
    "-O",
    required=True,
    type=Local(),
    callback=common.parse_with(_Out.parse),
    help="Folder or URL to write to, or one FILE.parquet, .arrow, .csv or .jsonl.",
)
@click.option(
    "--to", "form", type=click.Choice(list(FORMS)), help="File format; default: by the ending of --out, else parquet."
)
@click.option(
    "--by-date",
    is_flag=True,
    help="Write OUT/topic=NAME/date=YYYY-MM-DD/..., and only segments that changed since the last run.",
)
@click.option(
    "--overwrite", is_flag=True, help="Replace all files of an earlier export of these partitions, in any format."
)
@click.option(
    "columns",
    "--columns",
    "--fields",
    cls=common.Aliased,
    metavar="A,B,...",
    help=f"Default: {','.join(DEFAULT_COLUMNS)}; also batch fields.",
)
@click.option(
    "--compression", default="zstd", show_default=True, metavar="CODEC", help="zstd, lz4, none; Parquet: snappy, gzip."
)
@click.option(
    "--key-as", type=STYLES, default="text", show_default=True, help="How to write keys in CSV and JSON lines."
)
@click.option(
    "--value-as", type=STYLES, default="text", show_default=True, help="How to write values in CSV and JSON lines."
)
@click.option("--key-type", type=_TYPES, default="binary", show_default=True, help="Type of keys in Parquet and Arrow.")
@click.option(
    "--value-type", type=_TYPES, default="binary", show_default=True, help="Type of values in Parquet and Arrow."
)
@click.option(
    "--not-utf8",
    type=click.Choice(["raise", "null", "base64"]),
    default="raise",
    show_default=True,
    help="The form of bytes that are not UTF-8.",
)
@typed_options
@undecoded_option
@own_options
@query_options()
@common.json_option
@workers_option
def export(
    arguments: tuple[str, ...],
    topic: tuple[str, ...],
    partition: tuple[int, ...],
    out: _Out,
    form: str | None,
    by_date: bool,
    overwrite: bool,
    columns: str | None,
    compression: str,
    key_as: str,
    value_as: str,
    key_type: str,
    value_type: str,
    not_utf8: Any,
    as_json: bool,
    workers: Workers,
    schema: str | None,
    registry: str | None,
    message: str | None,
    on_undecoded: str | None,
    internal: bool,
    show_secrets: bool,
    query: Query,
) -> None:
    """Export records to Parquet, Arrow, CSV or JSON lines, by topic and partition."""
    default = TABLE_COLUMNS if by_date else column_names.DEFAULT_COLUMNS if out.file else DEFAULT_COLUMNS
    names = default if columns is None else tuple(name.strip() for name in columns.split(","))
    layout = Form(
        _form_of(out, form),
        names,
        compression,
        key_as,
        value_as,
        key_type,
        value_type,
        not_utf8,
        query.reading.isolation_level,
    )
    _check_form(layout)
    if by_date:
        check_dated(out.text, bool(out.file), layout, query, internal)
    query = query.with_key(key_as)
    chosen = common.select(arguments, topic, partition, from_log_start=query.selection.from_log_start)
    if out.path is not None:
        check_output(out.path, chosen.disk)
    logs = chosen.logs()
    unlisted = [log for log in logs if log.error is not None]
    readers = query.readers(log for log in logs if log.error is None)
    options = {"schema": schema, "registry": registry, "message": message, "on_undecoded": on_undecoded}
    make = _decoded_columns if layout.is_table else _decoded_text
    layouts = make(layout, options, (internal, show_secrets), arguments, readers)
    lacking = lacking_for(chosen.disk, readers, chosen.choice, jobs=workers.jobs)
    report_doubts(source_doubts(chosen.live_partitions(), [FileKind.HIGH_WATERMARKS, FileKind.RECOVERY_POINTS]))
    if by_date:
        listed = [reader.log for reader in readers]
        done = export_by_date(out.text, layout, query, listed, chosen.size, workers, overwrite=overwrite)
        _end(done, as_json, lacking, unlisted)
        return
    _sweep(out)
    if workers.is_spark and (out.file or not isinstance(out.store, FolderStore) or layouts.is_typed):
        raise click.UsageError(
            "--spark exports to a folder that its workers share, and decodes nothing: leave out --spark, or see "
            "pylogseg.spark.jobs.export"
        )
    with workers.executor() as executor, common.progress(chosen.size, "exporting") as advance:
        if out.file:
            done = _one_file(readers, out, layouts.only(out.text), overwrite, advance, is_all=not unlisted)
        else:
            with _claim(out.store, layout, [log.name for log in logs]):
                done = _folder(
                    out.text,
                    readers,
                    out.store,
                    layouts,
                    overwrite,
                    executor,
                    advance,
                    _Notes(out.store, readers, lacking),
                )
            done.kept += [out.store.name(place) for place in _places(unlisted, out.store)] if overwrite else []
    done.undecoded = layouts.undecoded
    _end(done, as_json, lacking, unlisted)


def _end(done: ExportResult, as_json: bool, lacking: Sequence[Finding], unlisted: Sequence[LogFiles]) -> None:
    """Print the result, and end the command by its exit code."""
    done.lacking, done.unlisted = lacking, list(dict.fromkeys(str(log.error) for log in unlisted))
    print_list(done, as_json)
    if as_json and done.empty:
        common.complain(f"note: {done.empty_text}")
    if done.exit_code > 1:
        click.get_current_context().exit(done.exit_code)
    common.end_with(bool(done.exit_code))


def _decoded_columns(
    layout: Form, options: dict[str, Any], own: tuple[bool, bool], arguments: Sequence[str], readers: list[LogReader]
) -> _Layouts:
    """Return the forms of Parquet and Arrow files with typed columns, where they are asked for."""
    (internal, show_secrets), names, on_undecoded = own, layout.columns, options["on_undecoded"]
    decoded = wants_schema(layout.key_type, layout.value_type)
    check_unused(decoded, {name: value for name, value in options.items() if name != "on_undecoded"}, "--value-type")
    check_unused(decoded or ["value"] * internal, {"on_undecoded": on_undecoded}, "--internal or --value-type")
    check_secrets(internal, show_secrets)
    if internal and (layout.key_type, layout.value_type) != ("binary", "binary"):
        raise RequestError("--internal cannot be combined with --key-type and --value-type")
    layouts = _Layouts(layout)
    if decoded:
        decoding = decoding_of(decoded, options)
        return layouts.add_types(readers, lambda some: typed_of(decoding, arguments, some, names))
    if internal:
        return layouts.add_types(readers, lambda some: _own(some, arguments, names, on_undecoded, show_secrets))
    return layouts


def _decoded_text(
    layout: Form, options: dict[str, Any], own: tuple[bool, bool], arguments: Sequence[str], readers: list[LogReader]
) -> _Layouts:
    """Return the form of CSV or JSON lines with decoded payloads (as in `cat`), if requested."""
    styles = layout.key_as, layout.value_as
    check_unused(wants_schema(*styles), {"on_undecoded": options["on_undecoded"]}, f"in {layout.name} --value-as")
    layout = replace(layout, typed_text=choose_payload_text(styles, options, own, arguments, readers))
    return _Layouts(replace(layout, key_as=SCHEMA, value_as=SCHEMA) if own[0] else layout)


@dataclass(frozen=True)
class _Layouts:
    """The form of the files: of each topic another one where keys or values are decoded."""

    plain: Form
    of: dict[str, Form] = field(default_factory=dict)

    def add_types(self, readers: list[LogReader], typed: Callable[[list[LogReader]], TypedBatches | None]) -> _Layouts:
        """Return layouts by topic, whose typed columns a function makes for the topic's logs."""
        by_topic: dict[str, list[LogReader]] = {}
        for reader in readers:
            by_topic.setdefault(_topic(reader), []).append(reader)
        return replace(self, of={topic: replace(self.plain, typed=typed(some)) for topic, some in by_topic.items()})

    def form(self, reader: LogReader) -> Form:
        return self.of.get(_topic(reader), self.plain)

    @property
    def is_typed(self) -> bool:
        return bool(self.of) or self.plain.typed_text is not None

    def only(self, out: str) -> Form:
        if len(self.of) > 1:
            some = ", ".join([*self.of][:3]) + (", ..." if len(self.of) > 3 else "")
            raise RequestError(
                f"--out {out} is one file, and {some} have different columns where they are decoded: name one topic, "
                "or give a folder"
            )
        return next(iter(self.of.values()), self.plain)

    @property
    def undecoded(self) -> int:
        """How many payloads did not decode."""
        typed = [self.plain.typed_text, *(form.typed for form in self.of.values())]
        return sum(batches.undecoded for batches in typed if batches is not None)


def _topic(reader: LogReader) -> str:
    return reader.log.segments[0].topic if reader.log.segments else ""


def _own(
    readers: list[LogReader],
    arguments: Sequence[str],
    names: Sequence[str],
    on_undecoded: str | None,
    show_secrets: bool,
) -> TypedBatches | None:
    """Return the decoder of a topic that Kafka writes for itself; None for any other topic."""
    try:
        return typed_of(own_decoding(names, on_undecoded, show_secrets), arguments, readers, names)
    except NotOwnError:
        return None


def _sweep(out: _Out) -> None:
    """Remove the leftovers of killed exports to this place."""
    if not isinstance(out.store, FolderStore):
        return
    patterns = [f".{glob.escape(out.file)}.*.tmp"] if out.file else [".*.tmp", "topic=*/partition=*/.*.tmp"]
    for path in sweep(out.store.root, patterns):
        common.complain(
            f"note: {path}: of an export that still runs, or was killed on another machine: if none runs, remove it"
        )


@contextlib.contextmanager
def _claim(store: ObjectStore, form: Form, names: Sequence[str]) -> Iterator[None]:
    """Take a place in a store for this export, whose readers see by its notes whether it ended."""
    if isinstance(store, FolderStore):
        yield
        return
    with lock_place(store):
        if "columns" in (said_of(store) or {}):
            raise RequestError(f"{store.url}: Spark's export wrote this table, by date: export to another place")
        with writing(store, {"form": form.name}, names):
            yield


def _form_of(out: _Out, form: str | None) -> str:
    """Return the requested format, or the one that the file name implies."""
    by_name = Path(out.file).suffix.removeprefix(".")
    if by_name and form not in (None, by_name):
        raise RequestError(
            f"--out {out.text} and --to {form} contradict each other: remove --to, or give a folder as --out"
        )
    return form or by_name or "parquet"


def _check_form(form: Form) -> None:
    """Refuse options that have no meaning for the format."""
    for what, style, kind in (("key", form.key_as, form.key_type), ("value", form.value_as, form.value_type)):
        if form.is_table and style != "text":
            raise RequestError(f"--{what}-as {style} is for CSV and JSON lines; for {form.name} use --{what}-type")
        if not form.is_table and kind != "binary":
            raise RequestError(f"--{what}-type is for Parquet and Arrow files; for {form.name} use --{what}-as")
    if form.not_utf8 != "raise" and "string" not in (form.key_type, form.value_type):
        raise RequestError(f"--not-utf8 {form.not_utf8} needs --key-type string or --value-type string")


def _one_file(
    readers: list[LogReader], out: _Out, form: Form, overwrite: bool, advance: Advance, is_all: bool
) -> ExportResult:
    """Write all records to one file; `is_all` says whether the readers are of all that was asked for."""
    is_there = _check_free(out.store, out.file, overwrite)
    if not is_all and is_there:
        return ExportResult(out.text, kept=[out.text])
    with contextlib.ExitStack() as stack:
        target = out.path or stack.enter_context(out.store.scratch()) / out.file
        row = export_together(readers, target, form, advance, replaces=is_there)
        if row.path and out.path is None:
            row = _move(row, target.parent, out.store)
    result = ExportResult(out.text, is_damaged=common.report_gaps(row.gaps))
    if row.path:
        result.files = [row]
    else:
        result.kept = [out.text]
    return result


def _check_free(store: ObjectStore, name: str, overwrite: bool) -> bool:
    """Return whether there is a file; unless `overwrite` is set, that is an error."""
    if isinstance(store, FolderStore):
        refuse_overwriting(store.path(name), overwrite)
        return store.path(name).exists()
    is_there = name in store.list(name)
    if is_there and not overwrite:
        raise RequestError(f"{store.name(name)} exists already: replace it with --overwrite")
    return is_there


def _places(logs: Iterable[LogFiles], store: ObjectStore) -> list[str]:
    """Return the folders of logs that have files of an earlier export."""
    return list(dict.fromkeys(os.path.dirname(name) for name in earlier_files(logs, store)))


def _folder(
    out: str,
    readers: list[LogReader],
    store: ObjectStore,
    layouts: _Layouts,
    overwrite: bool,
    executor: Executor,
    advance: Advance,
    notes: _Notes,
) -> ExportResult:
    if isinstance(store, FolderStore) and store.root.exists() and not store.root.is_dir():
        raise RequestError(
            f"--out {store.url} is a file: give a folder, or a name that ends in .parquet, .arrow, .csv or .jsonl"
        )
    parts = [part for reader in readers for part in reader.parts() if part.log.segments]
    _check_targets(parts, store, layouts.plain, overwrite)
    done, unread, rows = ExportResult(out), list[LogFiles](), list[tuple[str, Exported]]()
    if not overwrite:
        notes.begin()
    formed = [(part, layouts.form(part)) for part in parts]
    with _output_folder(store, overwrite) as folder:
        load = Workload("pylogseg export", [part.size for part in parts], advance, [SharedFolder(str(folder))])
        work = functools.partial(_export_part, folder=folder)
        for part, row in zip(parts, executor.map(work, formed, load), strict=True):
            done.is_damaged |= common.report_gaps(row.gaps)
            notes.add_gaps(part, row)
            unread += [part.log] if any(gap.kind is GapKind.UNREADABLE for gap in row.gaps) else []
            if row.path:
                rows.append((folder_of(part.log), row if overwrite else _move(row, folder, store)))
        done.empty = len({folder_of(reader.log) for reader in readers} - {place for place, _ in rows})
        if overwrite:
            kept = _places(unread, store)
            notes.begin(kept)
            rows = [(place, _move(row, folder, store)) for place, row in rows if place not in kept]
            new = {row.path for _, row in rows}
            for name in earlier_files([reader.log for reader in readers], store):
                if store.name(name) not in new and os.path.dirname(name) not in kept:
                    store.delete(name)
            done.kept = [store.name(place) for place in kept]
    done.files = [row for _, row in rows]
    notes.end(rows)
    return done


def _export_part(formed: tuple[LogReader, Form], advance: Advance, folder: Path) -> Exported:
    part, form = formed
    return export_part(part, folder, form, advance)


class _Notes:
    """Notes on the logs of an export, so that a reader of its files knows their gaps.

    It says of each that an export did not end, until it has.
    """

    def __init__(self, store: ObjectStore, readers: Sequence[LogReader], lacking: Sequence[Finding]) -> None:
        self._store = store
        self._logs = {folder_of(reader.log): reader.log for reader in readers if reader.log.segments}
        self._problems: dict[str, list[str]] = {place: [] for place in self._logs}
        by_path = {log.path: place for place, log in self._logs.items()}
        for finding in lacking:
            place = by_path.get(finding.path) or by_path.get(os.path.dirname(finding.path))
            if place is not None:
                self._problems[place].append(f"the log lacks records: {finding.reason}")

    def begin(self, kept: Collection[str] = ()) -> None:
        """Before a file is written; folders that are `kept` as they are stay noted as they are."""
        for place in kept:
            self._logs.pop(place, None)
        for place in self._logs:
            note_log(self._store, self._key(place), [], "an export of it did not end: run it again")

    def add_gaps(self, part: LogReader, row: Exported) -> None:
        self._problems[folder_of(part.log)] += [str(gap) for gap in row.gaps if gap.is_damage]

    def end(self, rows: Sequence[tuple[str, Exported]]) -> None:
        """After the last file."""
        files: dict[str, list[tuple[str, int, int]]] = {place: [] for place in self._logs}
        for place, row in rows:
            name = f"{place}/{os.path.basename(row.path or '')}"
            files[place].append((name, row.records, row.size_bytes))
        for place, exported in files.items():
            note_log(self._store, self._key(place), exported, "; ".join(self._problems[place]) or None)

    def _key(self, place: str) -> tuple[str, int]:
        segment = self._logs[place].segments[0]
        return segment.topic, segment.partition


@contextlib.contextmanager
def _output_folder(store: ObjectStore, overwrite: bool) -> Iterator[Path]:
    """Yield the output folder, with `overwrite` a temporary one: old files stay until all new ones are ready."""
    if isinstance(store, FolderStore) and not overwrite:
        yield store.root
        return
    with store.scratch() as folder:
        yield folder


def _move(row: Exported, folder: Path, store: ObjectStore) -> Exported:
    """Move a file from the temporary folder, if it lies in one, to where it belongs."""
    assert row.path is not None
    name = Path(row.path).relative_to(folder).as_posix()
    if row.path != store.name(name):
        store.put(name, Path(row.path))
    return replace(row, path=store.name(name))


def _check_targets(parts: list[LogReader], store: ObjectStore, form: Form, overwrite: bool) -> None:
    """Refuse two parts that would become one file, and files that exist unless `overwrite` is set."""
    targets: set[str] = set()
    for part in parts:
        target = target_of(part, form)
        if target in targets:
            path = part.log.segments[0].path
            raise RequestError(
                f"{store.name(target)} would be written twice, the second time for {path}: export them to different "
                "folders"
            )
        if isinstance(store, FolderStore):
            refuse_overwriting(store.path(target), overwrite)
        targets.add(target)
    for earlier in () if overwrite else earlier_files([part.log for part in parts], store):
        if earlier in targets:
            raise RequestError(f"{store.name(earlier)} exists already: replace it with --overwrite")
        if Path(earlier).suffix != FORMS[form.name]:
            raise RequestError(
                f"{store.name(earlier)} is of an earlier export in another form: replace it with --overwrite, or name "
                "another folder"
            )


# ---- --by-date: a table by topic and date; a run adds the new records ----

#: Options that select other records than a table by date has.
_OTHERS = {"offsets": "offset", "from_log_start": "below-log-start", "latest": "latest", "tombstones": "tombstones"}


def check_dated(out: str, is_file: bool, form: Form, query: Query, is_decoded: bool) -> None:
    """Refuse options that a table by date has no place for."""
    if is_file:
        raise click.UsageError(f"--out {out}: --by-date writes a folder of files")
    plain = Selection()
    flags = [flag for name, flag in _OTHERS.items() if getattr(query.selection, name) != getattr(plain, name)]
    flags += ["key"] if query.key is not None else []
    flags += ["control"] if query.reading.control else []
    if flags:
        raise click.UsageError(f"--{flags[0]} cannot be combined with --by-date")
    if is_decoded or (form.key_type, form.value_type) != ("binary", "binary"):
        raise click.UsageError("--by-date writes bytes: leave out --key-type, --value-type and --internal")


def export_by_date(
    out: str,
    form: Form,
    query: Query,
    logs: Sequence[LogFiles],
    total_bytes: int,
    workers: Workers,
    *,
    overwrite: bool,
) -> ExportResult:
    # Unreadable bytes do not replace rows that were read.
    state = replace(query.state, reading=replace(query.reading, skip_unreadable=False))
    place = out if "://" in out else os.path.abspath(out)
    table = TableExport(place, form, query.reading.isolation_level, overwrite=overwrite)
    with workers.executor() as executor, common.progress(total_bytes, "exporting") as advance:
        done = export_logs(logs, table, query.selection, state, executor=executor, on_bytes=advance)
    files = [file for part in done for file in files_of_part(part, table.store)]
    failed = [part for part in done if part.problem is not None]
    problems = [f"{part.topic}-{part.partition}: segment {part.base_offset}: {part.problem}" for part in failed]
    return ExportResult(out, files, problems=problems)
