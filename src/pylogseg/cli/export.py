"""`pylogseg export`: write records to files of other formats."""

from __future__ import annotations

import contextlib
import glob
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from pylogseg.cli import common
from pylogseg.cli.output import STYLES
from pylogseg.cli.query import make_query, query_options
from pylogseg.cli.typed import SCHEMA, check_unused, report_undecoded, typed_of, typed_options, wants_schema
from pylogseg.env.pool import Advance, map_ordered
from pylogseg.errors import RequestError
from pylogseg.export.file import (
    DEFAULT_COLUMNS,
    FORMS,
    Exported,
    Form,
    export_part,
    export_together,
    folder_of,
    target_of,
)
from pylogseg.export.unfinished import create_folder, sweep, unfinished
from pylogseg.reading import stream
from pylogseg.reading.log_reader import LogFiles, LogReader

_EPILOG = """\b
Examples:
  pylogseg export /data/kafka orders --out lake
  pylogseg export /data/kafka orders --out lake --since 7d --to arrow
  pylogseg export /data/kafka orders-3 --out text --to jsonl --value-as json
  pylogseg export /data/kafka orders --out orders.parquet --value-type string
  pylogseg export /data/kafka orders --out lake --value-type schema
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
text that itself begins with base64:). "schema" decodes Avro by the schemas of
the topic _schemas, or of --registry, to typed columns; what cannot be decoded is
kept in a column valueRaw, with the reason in valueError: exit code 1.

\b
A file appears only when it is complete: an interrupted export leaves complete
files, and with --overwrite leaves those of the earlier export unchanged.
Exit codes: 0 success; 1 damage was found; 2 wrong usage or a disk error;
130 interrupted.
"""


_TYPES = click.Choice(["binary", "string", SCHEMA])


@click.command(epilog=_EPILOG)
@common.selection_options
@click.option(
    "--out",
    "-O",
    required=True,
    type=click.Path(path_type=Path),
    help="Folder to write to, or one FILE.parquet, .arrow, .csv or .jsonl.",
)
@click.option(
    "--to", "form", type=click.Choice(list(FORMS)), help="File format; default: by the ending of --out, else parquet."
)
@click.option("--overwrite", is_flag=True, help="Replace all files of an earlier export of these partitions.")
@click.option("--columns", metavar="A,B,...", help=f"Default: {','.join(DEFAULT_COLUMNS)}; also batch fields.")
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
    help="What to do with bytes that are not UTF-8.",
)
@typed_options
@click.option(
    "--undecoded",
    type=click.Choice(["raw", "skip", "raise"]),
    help="What to do with a value that cannot be decoded: raw (the default) keeps its bytes in a column.",
)
@query_options()
@common.json_option
@common.jobs_option
def export(
    arguments: tuple[str, ...],
    topic: tuple[str, ...],
    partition: tuple[int, ...],
    out: Path,
    form: str | None,
    overwrite: bool,
    columns: str | None,
    compression: str,
    key_as: str,
    value_as: str,
    key_type: str,
    value_type: str,
    not_utf8: Any,
    as_json: bool,
    jobs: int,
    schema: str | None,
    registry: str | None,
    undecoded: str | None,
    **ranges: Any,
) -> None:
    """Export records to Parquet, Arrow, CSV or JSON lines, by topic and partition."""
    is_one = out.suffix in FORMS.values() and not out.is_dir()
    default = stream.DEFAULT_COLUMNS if is_one else DEFAULT_COLUMNS
    names = default if columns is None else tuple(name.strip() for name in columns.split(","))
    layout = Form(
        _form_of(out, form, is_one),
        names,
        compression,
        key_as,
        value_as,
        key_type,
        value_type,
        not_utf8,
        ranges["isolation_level"],
    )
    _check_form(layout)
    query = make_query(key_as=key_as, **ranges)
    chosen = common.select(arguments, topic, partition, from_log_start=not ranges["below_log_start"])
    logs = chosen.logs()
    readers = [query.of(log) for log in logs]
    decoded = wants_schema(key_type, value_type)
    check_unused(decoded, schema, registry, "--value-type")
    if decoded:
        options = {"schema": schema, "registry": registry, "on_undecoded": undecoded}
        layout = replace(layout, typed=typed_of(decoded, arguments, readers, names, options))
    elif undecoded is not None:
        raise RequestError("--undecoded goes with --value-type schema")
    _sweep(out, is_one)
    with common.progress(chosen.size, "exporting") as advance:
        if is_one:
            written, damage = _one_file(readers, out, layout, overwrite, advance)
        else:
            written, damage = _folder(logs, readers, out, layout, overwrite, jobs, advance)
    common.try_print(_print, written, as_json)
    if layout.typed is not None:
        damage |= report_undecoded(layout.typed.undecoded)
    common.end_with(damage)


def _sweep(out: Path, is_one: bool) -> None:
    """Remove what killed exports to this place have left."""
    patterns = [f".{glob.escape(out.name)}.*.tmp"] if is_one else [".*.tmp", "topic=*/partition=*/.*.tmp"]
    for path in sweep(out.parent if is_one else out, patterns):
        common.complain(
            f"note: {path}: of an export that still runs, or was killed on another machine: if none runs, remove it"
        )


def _form_of(out: Path, form: str | None, is_one: bool) -> str:
    """Return the requested format, or the one that the file name implies."""
    by_name = out.suffix.removeprefix(".") if is_one else None
    if by_name and form not in (None, by_name):
        raise RequestError(f"--out {out} and --to {form} contradict each other: remove --to, or give a folder as --out")
    return form or by_name or "parquet"


def _check_form(form: Form) -> None:
    """Refuse options that have no meaning for the format."""
    is_table = form.name in ("parquet", "arrow")
    for what, style, kind in (("key", form.key_as, form.key_type), ("value", form.value_as, form.value_type)):
        if is_table and style != "text":
            raise RequestError(f"--{what}-as {style} is for CSV and JSON lines; for {form.name} use --{what}-type")
        if not is_table and kind != "binary":
            raise RequestError(f"--{what}-type is for Parquet and Arrow files; for {form.name} use --{what}-as")
    if form.not_utf8 != "raise" and "string" not in (form.key_type, form.value_type):
        raise RequestError(f"--not-utf8 {form.not_utf8} needs --key-type string or --value-type string")


def _one_file(
    readers: list[LogReader], out: Path, form: Form, overwrite: bool, advance: Advance
) -> tuple[list[Exported], bool]:
    """Write all records to one file; return what was written, and whether there was damage."""
    if not overwrite and out.exists():
        raise RequestError(f"{out} exists already: replace it with --overwrite")
    row = export_together(readers, out, form, advance)
    return [row], common.report_gaps(row.gaps)


def _folder(
    logs: list[LogFiles], readers: list[LogReader], out: Path, form: Form, overwrite: bool, jobs: int, advance: Advance
) -> tuple[list[Exported], bool]:
    """Write a file for each part; return what was written, and whether there was damage."""
    if out.exists() and not out.is_dir():
        raise RequestError(
            f"--out {out} is a file: give a folder, or a name that ends in .parquet, .arrow, .csv or .jsonl"
        )
    parts = [part for each in readers for part in each.by_segment() if part.log.segments]
    _check_targets(parts, out, form, overwrite)
    damage, written = False, []
    with _output_folder(out, overwrite) as folder:
        for row in map_ordered(lambda part, tick: export_part(part, folder, form, tick), parts, jobs, advance):
            damage |= common.report_gaps(row.gaps)
            written += [row] if row.path else []
        if overwrite:
            written = [_moved(row, folder, out) for row in written]
            _remove_others(logs, {Path(row.path) for row in written if row.path}, out, form)
    return written, damage


@contextlib.contextmanager
def _output_folder(out: Path, overwrite: bool) -> Iterator[Path]:
    """Yield the output folder, with `overwrite` a temporary one: old files stay until all new ones are ready."""
    if not overwrite:
        yield out
        return
    folder = out / unfinished()
    create_folder(folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _moved(row: Exported, folder: Path, out: Path) -> Exported:
    """Move a file from the temporary folder to its final path."""
    assert row.path is not None
    target = out / Path(row.path).relative_to(folder)
    target.parent.mkdir(parents=True, exist_ok=True)
    os.replace(row.path, target)
    return replace(row, path=str(target))


def _remove_others(logs: list[LogFiles], written: set[Path], out: Path, form: Form) -> None:
    """Remove the other files of the same format that an earlier export wrote for these partitions."""
    name = re.compile(r"\d{20}" + re.escape(FORMS[form.name]))
    for log in logs:
        folder = folder_of(log, out)
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            if name.fullmatch(path.name) and path not in written:
                path.unlink()


def _check_targets(parts: list[LogReader], out: Path, form: Form, overwrite: bool) -> None:
    """Refuse two parts that would become one file, and files that exist unless `overwrite` is set."""
    targets: set[Path] = set()
    for part in parts:
        target = target_of(part, out, form)
        if target in targets:
            path = part.log.segments[0].path
            raise RequestError(
                f"{target} would be written twice, the second time for {path}: export them to different folders"
            )
        if not overwrite and target.exists():
            raise RequestError(f"{target} exists already: replace it with --overwrite")
        targets.add(target)


def _print(rows: list[Exported], as_json: bool) -> None:
    for row in rows:
        if as_json:
            common.print_json({"path": row.path, "records": row.records, "sizeBytes": row.size_bytes})
    if not as_json:
        records, size = sum(row.records for row in rows), sum(row.size_bytes for row in rows)
        counts = f"{records} record{'s' * (records != 1)} in {len(rows)} file{'s' * (len(rows) != 1)}"
        click.echo(f"{counts}, {common.size_text(size)}")
