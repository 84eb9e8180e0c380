"""`export --by-date`: a table by topic and date; a run adds the new records."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

import click

from pylogseg.cli import common
from pylogseg.cli.query import Query
from pylogseg.cli.workers import Workers
from pylogseg.reading.logs import LogFiles
from pylogseg.reading.selection import Selection
from pylogseg.tables.export.file import Form
from pylogseg.tables.export.result import ExportResult
from pylogseg.tables.export.tables import TableExport, export_logs, files_of_part

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
