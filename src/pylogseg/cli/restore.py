"""`pylogseg restore`: restore partitions from a backup or an exported table into a log directory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from pylogseg.cli.common import json_option, parse_size, parsed, target_folder, topic_option
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
  pylogseg restore lake /data/kafka -n                      dry run

\b
SRC is a log directory, as written by `pylogseg copy`, or the Parquet or Arrow
files of `pylogseg export`. DST is a log directory of a stopped broker, or an empty
folder. Without names, all of SRC is restored. Either all selected partitions
appear in DST or none; after a crash, run the same command again to complete it.
A partition with other records in DST is an error, unless --overwrite is given.
From a log directory, partitions are copied byte for byte, with their checkpoint
entries. Transactions, markers and producers are included: aborted records stay
aborted. If the cluster of DST has another id for the topic (from the metadata in
DST or --cluster-metadata), the partition gets that id.
From a table, records are restored with offset, timestamp, key, value and headers.
A table has no transaction markers, so aborted records would come back as if
committed. Files show that they have none if they were exported with
--isolation-level read_committed, or if column isTransactional is false. For other
files give --committed, or --without-transactions to leave such records out.
Create the topic in the cluster first, with the same number of partitions.

{EXIT_CODES}"""


@click.command(epilog=_EPILOG)
@click.argument("source", metavar="SRC", type=click.Path(exists=True))
@click.argument("target", metavar="DST", callback=target_folder)
@click.argument("names", nargs=-1, metavar="[NAME...]")
@topic_option
@click.option("--partition", "-p", multiple=True, type=int, metavar="N", help="Only partition N; repeatable.")
@click.option("--dry-run", "-n", is_flag=True, help="Report what would be restored, and change nothing.")
@click.option("--overwrite", is_flag=True, help="Replace partitions that exist with other records.")
@click.option("--committed", is_flag=True, help="Treat all records of the table as committed.")
@click.option(
    "--without-transactions", is_flag=True, help="Leave out records of transactions; needs column isTransactional."
)
@click.option("--compression", type=click.Choice(list(CODEC_NAMES)), help="Codec of batches made from a table.")
@click.option(
    "--batch-bytes",
    callback=parsed(parse_size),
    metavar="SIZE",
    help="Uncompressed size of batches made from a table; default: 16 KiB.",
)
@click.option("--segment-bytes", callback=parsed(parse_size), metavar="SIZE", help="Size of segments; default: 1 GiB.")
@click.option(
    "--cluster-metadata",
    metavar="FOLDER",
    help="The __cluster_metadata-0 folder with the topic ids; default: the one in DST.",
)
@json_option
@click.option("--quiet", "-q", is_flag=True, help="Print only errors and the total.")
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
    """Restore partitions from a backup or an exported table, SRC, into a log directory of a stopped broker, DST."""
    if os.path.isdir(source) and (state_of(Path(source)) or {}).get("state") == "writing":
        raise RequestError(
            f"{source}: the last export to it did not finish, and parts may be missing: run the export again"
        )
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
    """Return the bytes to read, for the progress bar; each file of a log directory is read twice."""
    if comes_from_table(source):
        return Tables(source).size_bytes
    sizes = (os.path.getsize(os.path.join(folder, name)) for folder, _, names in os.walk(source) for name in names)
    return 2 * sum(sizes)
