"""`pylogseg restore`: partitions from a backup or an exported table into a log directory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from pylogseg.cli.common import json_option, parse_size, parsed
from pylogseg.cli.offline import EXIT_CODES, Request
from pylogseg.errors import RequestError
from pylogseg.export.tables import state_of
from pylogseg.format.batches import CODEC_NAMES
from pylogseg.offline.restoring import comes_from_table
from pylogseg.offline.restoring import restore as restore_partitions
from pylogseg.restore.tables import Tables

_EPILOG = f"""\b
Examples:
  pylogseg restore /backup/2026-01-31 /data/kafka orders    from a copy
  pylogseg restore lake /data/kafka orders                  from an export
  pylogseg restore lake /data/kafka -n                      only say what

\b
SRC is a log directory, as `pylogseg copy` makes it, or what `pylogseg export`
wrote: Parquet or Arrow files. DST is a log directory of a broker that is
stopped, or an empty folder. Without names all of SRC is chosen; no records in
DST give way without --overwrite. All that was chosen appears, or none of it;
after a crash the same command again completes it.
From a log directory partitions come byte for byte, with what its checkpoints
say of them. Transactions, markers and producers are in there: what was aborted
stays aborted. If the cluster of DST has another id for the topic (its metadata
is in DST, or --cluster-metadata names it), the partition gets that one.
From a table records come with offsets, timestamps, keys, values and headers.
A table has no markers, so what was aborted would come back as if it had been
committed. Unless the files tell that nothing in them was (they were exported
with --isolation-level read_committed, or their column isTransactional is false), say
--committed, or leave those out.
A partition that is there with other records stays, unless --overwrite.
Make the topic in the cluster first, with as many partitions.

{EXIT_CODES}"""


@click.command(epilog=_EPILOG)
@click.argument("source", metavar="SRC", type=click.Path(exists=True))
@click.argument("target", metavar="DST", type=click.Path(exists=True, file_okay=False))
@click.argument("names", nargs=-1, metavar="[NAME...]")
@click.option("--topic", "-t", multiple=True, metavar="NAME", help="A topic, partition or pattern; repeatable.")
@click.option("--partition", "-p", multiple=True, type=int, metavar="N", help="Only this number; repeatable.")
@click.option("--dry-run", "-n", is_flag=True, help="Say what would be restored; DST stays as it is.")
@click.option("--overwrite", is_flag=True, help="A partition that is there with other records gives way.")
@click.option(
    "--committed", is_flag=True, help="All records of the table were committed: it was exported read_committed."
)
@click.option(
    "--without-transactions", is_flag=True, help="Leave out what was part of one; needs column isTransactional."
)
@click.option("--compression", type=click.Choice(list(CODEC_NAMES)), help="Of batches made from a table.")
@click.option("--batch-bytes", callback=parsed(parse_size), metavar="SIZE", help="Of those, before it; default 16 KiB.")
@click.option("--segment-bytes", callback=parsed(parse_size), metavar="SIZE", help="A segment is full; default 1 GiB.")
@click.option("--cluster-metadata", metavar="FOLDER", help="__cluster_metadata-0 with topics' ids; default: in DST.")
@json_option
@click.option("--quiet", "-q", is_flag=True, help="Only what went wrong.")
def restore(
    source: str,
    target: str,
    names: tuple[str, ...],
    topic: tuple[str, ...],
    partition: tuple[int, ...],
    dry_run: bool,
    as_json: bool,
    quiet: bool,
    cluster_metadata: str | None,
    overwrite: bool,
    committed: bool,
    without_transactions: bool,
    **table: Any,
) -> None:
    """Put partitions from a backup or an exported table, SRC, into a log directory, DST, of a stopped broker."""
    if os.path.isdir(source) and (state_of(Path(source)) or {}).get("state") == "writing":
        raise RequestError(f"{source}: the last export to it did not end, and parts may be missing: run it again")
    options: dict[str, Any] = {"topics": (*names, *topic), "partitions": partition, "dry_run": dry_run}
    Request(source, options, as_json, quiet).run(
        restore_partitions,
        total_bytes=_size(source),
        target=target,
        overwrite=overwrite,
        committed=committed,
        without_transactions=without_transactions,
        cluster_metadata=cluster_metadata,
        **{name: value for name, value in table.items() if value is not None},
    )


def _size(source: str) -> int:
    """Bytes that are read, for the bar of progress; of a log directory each file twice."""
    if comes_from_table(source):
        return Tables(source).size_bytes
    sizes = (os.path.getsize(os.path.join(folder, name)) for folder, _, names in os.walk(source) for name in names)
    return 2 * sum(sizes)
