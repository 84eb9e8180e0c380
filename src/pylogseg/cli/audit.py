"""`pylogseg audit`: check a table that was fed from Kafka against the log."""

from __future__ import annotations

import os
from typing import Any

import click

from pylogseg.cli import common
from pylogseg.cli.options import reading_options
from pylogseg.cli.outcomes import end_with_outcome, print_parts
from pylogseg.cli.typed import SCHEMA, check_unused, decoding_of, typed_options, wants_schema
from pylogseg.cli.workers import Workers, workers_option
from pylogseg.errors import RequestError
from pylogseg.lakehouse.audit import audit as compare
from pylogseg.lakehouse.audit import open_tables
from pylogseg.lakehouse.audit_columns import PRESETS, parse_columns
from pylogseg.lakehouse.audit_result import PartitionAudit
from pylogseg.lakehouse.foreign import ForeignTable, TableFinding
from pylogseg.lakehouse.formats import TABLE_TEXT
from pylogseg.reading.offset_range import OffsetRange, parse_offsets
from pylogseg.reading.state import Reading

_EPILOG = r"""\b
Examples:
  pylogseg audit /data/kafka orders /lake/orders     Delta, Iceberg or Parquet
  pylogseg audit /data/kafka orders iceberg:prod:kafka.orders
                                             a table in a catalog of pyiceberg
  pylogseg audit /backup orders lake.ducklake        DuckLake
  pylogseg audit aiven+s3://bucket/prefix orders delta:s3://lake/orders
                                                     against tiered storage
  pylogseg audit /data/kafka orders /lake/orders --columns offset=meta.offset
  pylogseg audit /data/kafka orders /lake/orders -o :5000000 --json
  pylogseg audit /data/kafka orders /lake/orders --quick     counts only
  pylogseg audit /data/kafka orders /lake/orders --value-as schema
                                             a table that has values decoded

\b
What is said of each partition:
  double     an offset has more than one row; with the files and the snapshots
             that hold them
  changed    key or value differ from the record's
  lost       the record is in no row, and nothing below explains it
  foreign    a row is not a record of the log: aborted, a marker, behind the end
             of the log, or at an offset that the log never had
Not in the table, and rightly so: aborted transactions, control records, what
the cleaner or retention has removed, dead letters (TABLE~dlq, or
--dead-letters), tombstones where the sink writes none (presets connect,
insertfield), and what the table does not have yet: above its last offset (lost
with --complete), or in a transaction that is open.
"Hidden" rows are in files whose partition value is wrong: queries with a filter
miss them.

{TABLE}

\b
TABLE is read once, in the state that it has at the start; SOURCE may be written
to meanwhile. Offsets and hashes lie in temporary files (TMPDIR; 16 bytes a row),
so memory does not grow with the table. With --spark, TMPDIR has to be a folder
that all machines see.

\b
Exit codes: 0 each record once; 1 something is double, changed, lost, foreign or
hidden; 2 wrong usage, a disk error, or nothing is wrong in what was looked at,
but damage, a missing key or an unreadable file left something out; 130
interrupted.
"""


_AS = click.Choice(["bytes", SCHEMA])


def _arguments(function: common.F) -> common.F:
    return common.selection_options(function, last=" TABLE")


@click.command(epilog=_EPILOG.replace(r"\b", "\b").replace("{TABLE}", f"TABLE is {TABLE_TEXT}."))
@_arguments
@click.option(
    "--columns", "-c", multiple=True, metavar="ROLE=COLUMN",
    help="Which column is topic, partition, offset, key or value, if no preset fits; a dot stands before a field of a "
    "struct. Repeatable; without a column after the sign, there is none: with offset= and timestamp=COLUMN, rows are "
    "compared by the hour.",
)  # fmt: skip
@click.option(
    "--preset",
    type=click.Choice(list(PRESETS)),
    help="The writer of TABLE, which tells its columns; default: by its columns.",
)
@click.option("--value-as", type=_AS, default="bytes", show_default=True, help="The form of values in TABLE.")
@click.option("--key-as", type=_AS, default="bytes", show_default=True, help="The form of keys in TABLE.")
@typed_options
@click.option("--dead-letters", metavar="TABLE", help="A table of dead letters, a part of TABLE; default: TABLE~dlq.")
@click.option(
    "--offset",
    "-o",
    "offsets",
    metavar="A:B",
    callback=common.parse_with(parse_offsets),
    help="From offset A up to B, exclusive, up to which TABLE has to be complete.",
)
@click.option("--complete", is_flag=True, help="Count records that are not in TABLE yet as lost.")
@click.option("--quick", is_flag=True, help="Read no row: compare counts by the statistics of files and by headers.")
@click.option(
    "--max-ranges", type=click.IntRange(min=0), default=1000, show_default=True, metavar="N",
    help="List at most N ranges of each partition; all are counted.",
)  # fmt: skip
@click.option("--quiet", "-q", is_flag=True, help="Print only faults, and the total.")
@reading_options("max_decompressed_bytes", "max_bytes_per_second")
@common.json_option
@workers_option
def audit(
    arguments: tuple[str, ...],
    topic: tuple[str, ...],
    partition: tuple[int, ...],
    columns: tuple[str, ...],
    value_as: str,
    key_as: str,
    schema: str | None,
    registry: str | None,
    message: str | None,
    preset: str | None,
    dead_letters: str | None,
    offsets: OffsetRange | None,
    quiet: bool,
    as_json: bool,
    workers: Workers,
    reading: Reading,
    **options: Any,
) -> None:
    """Compare a table that was fed from Kafka with its log: missing, double and changed records, with the reason.

    PATH is the log. TABLE is a path whose format is recognised, or a name that `lake` takes.
    """
    if len(arguments) < 2:
        raise click.UsageError("Missing argument 'TABLE'.")
    *paths, named = arguments
    texts = {"schema": schema, "registry": registry, "message": message}
    which = wants_schema(key_as, value_as)
    check_unused(which, texts, "--value-as")
    tables = list(open_tables(named, dead_letters))  # before the log, which may go on
    chosen = common.select(paths, topic, partition)
    _check_names(chosen, topic)
    size = chosen.size + sum(map(_size, tables))
    with workers.executor() as executor, common.progress(size, "auditing") as advance:
        answers = compare(
            chosen.disk,
            tables[0],
            list(chosen.choice.names) or None,
            list(chosen.choice.numbers) or None,
            columns=parse_columns(columns),
            decoding=decoding_of(which, texts) if which else None,
            preset=preset,
            dead_letters=tables[1] if len(tables) > 1 else None,
            offset=offsets,
            executor=executor,
            on_bytes=advance,
            **reading.keywords,
            **options,
        )
    is_unread = common.is_damage_met()
    print_parts(answers, as_json, lambda part: not (quiet and _is_in_order(part)))
    end_with_outcome(answers, as_json, 2 * is_unread)


def _is_in_order(part: PartitionAudit | TableFinding) -> bool:
    return isinstance(part, PartitionAudit) and part.is_right and part.is_whole


def _check_names(chosen: common.Chosen, topics: tuple[str, ...]) -> None:
    """Refuse a name that is a topic and a partition of another topic, unless it was given as a topic."""
    for name in {*chosen.choice.names}.difference(topics).intersection(chosen.disk.topics):
        for other in chosen.disk.partitions:
            if other.name == name:
                raise RequestError(
                    f"{name} is a topic, and partition {other.partition} of the topic {other.topic}: write --topic "
                    f"{name}, or --topic {other.topic} --partition {other.partition}"
                )


def _size(table: ForeignTable) -> int:
    return sum(os.path.getsize(file.path) for file in table.files if file.open is None and os.path.exists(file.path))
