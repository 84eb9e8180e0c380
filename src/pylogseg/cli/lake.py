"""`pylogseg lake`: write topics to tables of a lakehouse, each range of the log once."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import click

from pylogseg.cli import common
from pylogseg.cli.options import question_option
from pylogseg.cli.outcomes import print_part
from pylogseg.cli.typed import SCHEMA, check_unused, decoding_of, typed_options, wants_schema, whole_disk
from pylogseg.cli.workers import Workers, workers_option
from pylogseg.disk.disk import Disk
from pylogseg.disk.notes import joined_lines
from pylogseg.env.executor import Executor
from pylogseg.errors import RequestError
from pylogseg.lakehouse.formats import FORMATS, list_words
from pylogseg.lakehouse.lake import LakeOptions, write_tables
from pylogseg.lakehouse.layouts import FLAT, LAYOUTS
from pylogseg.reading.state import COMMITTED

_FORMS = list_words([f"{of.name}:{form} {text}".rstrip() for of in FORMATS.values() for form, text in of.forms.items()])
_EPILOG = f"""\b
Examples:
  pylogseg lake /data/kafka orders delta:lake/orders
  pylogseg lake /data/kafka orders iceberg:lake/kafka.orders --value-as schema
  pylogseg lake /data/kafka orders iceberg:prod:kafka.orders
  pylogseg lake /data/kafka orders ducklake:lake.sqlite/orders
  pylogseg lake /data/kafka users delta:lake/users --latest
  pylogseg lake /data/kafka 'delta:lake/{{topic}}' --follow --every 60s

\b
The table says which offsets it has, in the same commit as its rows. A run goes
on from there to what is committed in the log: its high watermark, and with
read_committed its last stable offset. It may be killed anywhere and started
again, and several may run at once: each range gets into the table once. A run
that finds nothing new reads nothing.

TABLE is {_FORMS}.
With {{topic}} in it, each topic gets its own table.

\b
Columns are topic, partition, offset, timestamp, timestampType, key, value and
headers; files have one day each. With --value-as schema the value is typed, by
the schemas of the topic _schemas or of --registry, and what does not decode is
kept as it is in the table TABLE~dlq; the exit code is 1 then.

\b
With --spark the workers write the files, and this process commits: they must see
the folder of the table under its name. A table of one kind of run is continued by
the other.

\b
Refused: another topic id or cluster, a log that ends below the table or begins above
its end, a leader epoch that is not in its history any more, a folder that was copied
or moved (Iceberg), and a log of which records are known to be missing.
Exit codes: 0 success; 1 damage, missing records or dead letters; 2 wrong usage,
refused, or a disk error; 130 interrupted.
"""
_AS = click.Choice(["bytes", SCHEMA])


def _parse_option(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise RequestError(f"invalid option {text!r}: expected KEY=VALUE")
    return name, value


@click.command(epilog=_EPILOG)
@lambda function: common.selection_options(function, last=" TABLE")
@click.option("--value-as", type=_AS, default="bytes", show_default=True, help="How values are written.")
@click.option("--key-as", type=_AS, default="bytes", show_default=True, help="How keys are written.")
@typed_options
@click.option(
    "--isolation-level",
    type=click.Choice(["read_committed", "read_uncommitted"]),
    default="read_committed",
    show_default=True,
    help="read_committed leaves out aborted transactions, and ends before an open one.",
)
@click.option(
    "--to-end",
    is_flag=True,
    help="Ignore the high watermark and write up to the end of the log; for the disk of a dead broker.",
)
@click.option(
    "--on-corrupt",
    type=click.Choice(["raise", "skip"]),
    default="raise",
    show_default=True,
    help="At damage: raise an error, or leave it out; no later run comes back to it.",
)
@click.option(
    "--force", is_flag=True, help="Go on where offsets are missing: deleted before they were written, or lost."
)
@click.option("--clean", is_flag=True, help="Remove files that killed runs left, and that are in no table.")
@click.option(
    "--latest",
    is_flag=True,
    help="Keep only the latest record of each key: a record replaces the row of its key, a tombstone removes it.",
)
@click.option(
    "--layout",
    type=click.Choice(LAYOUTS),
    default=FLAT,
    show_default=True,
    help="Columns of the table; redpanda: as in Redpanda's Iceberg topics.",
)
@click.option(
    "table_options",
    "--table-option",
    multiple=True,
    metavar="KEY=VALUE",
    callback=lambda ctx, param, values: dict(map(_parse_option, values)),
    help=f"For {list_words([of.options for of in FORMATS.values() if of.options])}; repeatable.",
)
@click.option("--follow", "-f", is_flag=True, help="Continue with new records, until interrupted.")
@click.option(
    "--every",
    callback=common.parse_with(common.parse_duration),
    default="60s",
    show_default=True,
    help="With --follow: how often.",
)
@common.size_option(
    "file_bytes",
    "--file-size",
    default="256Mi",
    help="About the size of files.",
)
@common.size_option(
    "commit_bytes",
    "--commit-size",
    default="2Gi",
    help="Commit after so many bytes of the log.",
)
@question_option("max_bytes_per_second")
@common.json_option
@workers_option
def lake(
    arguments: tuple[str, ...],
    topic: tuple[str, ...],
    partition: tuple[int, ...],
    value_as: str,
    key_as: str,
    schema: str | None,
    registry: str | None,
    message: str | None,
    isolation_level: Any,
    on_corrupt: Any,
    follow: bool,
    every: float,
    max_bytes_per_second: int | None,
    as_json: bool,
    workers: Workers,
    **how: Any,
) -> None:
    """Write topics to tables of a lakehouse, each record once."""
    *arguments_of_log, table = arguments
    if not arguments_of_log:
        raise click.UsageError("expected a path and a table")
    texts = {"schema": schema, "registry": registry, "message": message}
    which = wants_schema(key_as, value_as)
    check_unused(which, texts, "--value-as")
    decoding = decoding_of(which, texts) if which else None
    reading = replace(COMMITTED, isolation_level=isolation_level, on_corrupt=on_corrupt)
    options = LakeOptions(replace(reading, max_bytes_per_second=max_bytes_per_second), decoding, **how)
    with workers.executor() as executor:
        while True:
            code = _round(arguments_of_log, (topic, partition), table, options, executor, as_json, quiet=follow)
            if not follow:
                break
            time.sleep(every)
    if code:
        click.get_current_context().exit(code)


def _round(
    arguments: Sequence[str],
    names: tuple[Sequence[str], Sequence[int]],
    table: str,
    options: LakeOptions,
    executor: Executor,
    as_json: bool,
    *,
    quiet: bool,
) -> int:
    """Write the records that the log has now; return the exit code."""
    chosen = common.select(arguments, *names)
    parts = Disk((), tuple(chosen.live_partitions()), chosen.disk.loose, is_named=bool(chosen.choice.names))
    whole = chosen.disk if options.decoding is None else whole_disk(arguments)
    # A folder that no topic can have is in no table: of all topics, that is not all.
    code = int(not chosen.choice.names and any(log_dir.not_topics for log_dir in chosen.disk.log_dirs))
    with common.progress(0 if quiet else chosen.size, "writing") as advance:
        for done in write_tables(whole, parts, table, options, executor, advance, chosen.choice):
            if done.commits or (done.error is None and (as_json or not quiet)):
                print_part(done, as_json)
            common.report_gaps(done.gaps)
            common.report_lacking(done.missing)
            for problem in (*joined_lines(done.doubts), *([] if done.error is None else [common.remedy(done.error)])):
                common.complain(problem)
            code = max(code, done.exit_code)
    return max(code, int(common.is_damage_met()))
