"""`pylogseg export`: records to files of other formats."""

from __future__ import annotations

import contextlib
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
from pylogseg.errors import RequestError
from pylogseg.jobs.export import DEFAULT_COLUMNS, FORMS, Exported, Form, export_part, folder_of, target_of
from pylogseg.jobs.pool import map_ordered
from pylogseg.reading.wanted import LogFiles, Wanted

_EPILOG = """\b
Examples:
  pylogseg export /data/kafka orders --out lake
  pylogseg export /data/kafka orders --out lake --since 7d --to arrow
  pylogseg export /data/kafka orders-3 --out text --to jsonl --value-as json
  duckdb -c "select topic, count(*) from 'lake/**/*.parquet' group by topic"

\b
A segment becomes a file OUT/topic=NAME/partition=N/<base offset>.parquet, as
Hive names them: pyarrow, polars, duckdb and Spark read topic and partition from
the folders, so they are not in the files (unless --columns names them).
A segment without records has no file. With --isolation read_committed or
--on-corrupt stop, a partition becomes one file, named by its first segment.

\b
A file appears when it is whole: an interrupted export leaves whole files only,
and with --overwrite those of the earlier export, as they were.
Exit codes: 0 fine; 1 damage was met; 2 wrong usage, or a disk failed;
130 interrupted.
"""


@click.command(epilog=_EPILOG)
@common.selection_options
@click.option(
    "--out", "-O", required=True, type=click.Path(path_type=Path, file_okay=False), help="Folder to write to."
)
@click.option("--to", "form", type=click.Choice(list(FORMS)), default="parquet", show_default=True)
@click.option("--overwrite", is_flag=True, help="Replace what an earlier export wrote for these partitions, all of it.")
@click.option("--columns", metavar="A,B,...", help=f"Default: {','.join(DEFAULT_COLUMNS)}; also batch fields.")
@click.option(
    "--compression", default="zstd", show_default=True, metavar="CODEC", help="zstd, lz4, none; Parquet: snappy, gzip."
)
@click.option("--key-as", type=STYLES, default="text", show_default=True, help="How CSV and JSON lines write keys.")
@click.option("--value-as", type=STYLES, default="text", show_default=True, help="How they write values.")
@query_options()
@common.json_option
@common.jobs_option
def export(
    arguments: tuple[str, ...],
    topic: tuple[str, ...],
    partition: tuple[int, ...],
    out: Path,
    form: str,
    overwrite: bool,
    columns: str | None,
    compression: str,
    key_as: str,
    value_as: str,
    as_json: bool,
    jobs: int,
    **ranges: Any,
) -> None:
    """Records to Parquet, Arrow, CSV or JSON lines, by topic and partition."""
    names = DEFAULT_COLUMNS if columns is None else tuple(name.strip() for name in columns.split(","))
    _check_form(out, form, key_as, value_as)
    wish = Form(form, names, compression, key_as, value_as)
    query = make_query(key_as=key_as, **ranges)
    chosen = common.select(arguments, topic, partition)
    logs = chosen.logs(from_log_start=not ranges["below_log_start"])
    parts = [part for log in logs for part in query.of(log).by_segment() if part.log.segments]
    _check_targets(parts, out, wish, overwrite)
    damage, written = False, []
    with common.progress(chosen.size, "exporting") as advance, _apart(out, overwrite) as folder:
        for row in map_ordered(lambda part, tick: export_part(part, folder, wish, tick), parts, jobs, advance):
            damage |= common.report_gaps(row.gaps)
            written += [row] if row.path else []
        if overwrite:
            written = [_moved(row, folder, out) for row in written]
            _remove_others(logs, {Path(row.path) for row in written if row.path}, out, wish)
    common.told(_print, written, as_json)
    common.end_with(damage)


def _check_form(out: Path, form: str, key_as: str, value_as: str) -> None:
    if out.suffix in FORMS.values() and not out.is_dir():
        raise RequestError(f"{out} names a file, and an export is a folder of files: --out {out.with_suffix('')}")
    for option, style in (("--key-as", key_as), ("--value-as", value_as)):
        if form in ("parquet", "arrow") and style != "text":
            raise RequestError(f"{option} {style} is for CSV and JSON lines: {form} files have the bytes as they are")


@contextlib.contextmanager
def _apart(out: Path, overwrite: bool) -> Iterator[Path]:
    """Where files are written: what is there already stays as it is until all that replaces it is whole."""
    if not overwrite:
        yield out
        return
    # Readers of datasets skip names that begin with a dot.
    folder = out / f".{os.getpid()}.tmp"
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _moved(row: Exported, folder: Path, out: Path) -> Exported:
    """A file that was written apart, under its name."""
    assert row.path is not None
    target = out / Path(row.path).relative_to(folder)
    target.parent.mkdir(parents=True, exist_ok=True)
    os.replace(row.path, target)
    return replace(row, path=str(target))


def _remove_others(logs: list[LogFiles], written: set[Path], out: Path, form: Form) -> None:
    """Remove what an earlier export of the same form left for partitions that have been written now."""
    name = re.compile(
        r"\d{20}" + re.escape(FORMS[form.name]) + r"|\.\d{20}" + re.escape(FORMS[form.name]) + r"\.\d+\.tmp"
    )
    for log in logs:
        folder = folder_of(log, out)
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            if name.fullmatch(path.name) and path not in written:
                path.unlink()


def _check_targets(parts: list[Wanted], out: Path, form: Form, overwrite: bool) -> None:
    """Two parts must not become one file, and a file that is there stays unless it may be replaced."""
    targets: set[Path] = set()
    for part in parts:
        target = target_of(part, out, form)
        if target in targets:
            path = part.log.segments[0].path
            raise RequestError(f"{target} would be written twice, the second time for {path}: export them apart")
        if not overwrite and target.exists():
            raise RequestError(f"{target} is there already: --overwrite replaces it")
        targets.add(target)


def _print(rows: list[Exported], as_json: bool) -> None:
    for row in rows:
        if as_json:
            common.print_json({"path": row.path, "records": row.records, "sizeBytes": row.size_bytes})
    if not as_json:
        records, size = sum(row.records for row in rows), sum(row.size_bytes for row in rows)
        counts = f"{records} record{'s' * (records != 1)} in {len(rows)} file{'s' * (len(rows) != 1)}"
        click.echo(f"{counts}, {common.size_text(size)}")
