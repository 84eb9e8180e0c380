"""`pylogseg merge`: one log directory made of the disks of several brokers."""

from __future__ import annotations

import os
from collections.abc import Sequence

import click

from pylogseg.cli import completion
from pylogseg.cli.common import json_option, partition_option, paths_and_names, quiet_option, topic_option
from pylogseg.cli.offline import Request
from pylogseg.cli.tiers import DISK, Local
from pylogseg.cli.workers import parts_option
from pylogseg.errors import RequestError
from pylogseg.offline.merging.command import merge as merge_disks

_COLUMNS = {"committed": "COMMITTED", "offsetsFromOthers": "FROM OTHERS", "offsetsMissing": "MISSING"}

_EPILOG = """\b
Examples:
  pylogseg merge /mnt/b1 /mnt/b2 /mnt/b3 --into /data/merged -n    what would come
                                                                   from where
  pylogseg merge /mnt/b1 /mnt/b2 /mnt/b3 --into /data/merged
  pylogseg merge /mnt/b1 /mnt/b2 orders --into /data/merged --take orders-3=/mnt/b2
  pylogseg merge /mnt/b1 /mnt/b2 --into /data/merged --take 'orders,audit-*=/mnt/b2'

\b
Each DIR is a log directory, or a folder of several, of a broker of one cluster. No
broker runs; nothing is written to DIR. FOLDER is an empty folder, or a path that
does not exist: it appears when all of it is on the disk, so it is complete or
missing.
Of each partition, the log of one replica is written: one that was in sync, by the
newest __cluster_metadata-0 in a DIR; else an eligible leader replica, else the last
known one. Of several, and without metadata, it is the one with the highest leader
epoch, and then the longest. Damaged and missing ranges come from the other replicas,
batch by batch, as far as leader epochs show that the records are the same. In
compacted topics only damaged ranges do: what the cleaner removed stays removed.
If another replica knew records as committed that this log does not have, as after
an unclean election, both sides are named and the partition is not written:
--take says which side counts. With the name of a partition it always does; with a
topic, a pattern, or several separated by commas, for their partitions with two sides.

\b
Exit codes: 0 success; 1 committed records differ, offsets are missing in all
replicas or may be, a partition of the cluster is on no DIR, or one failed; 2 wrong
usage, a disk error, or a broker runs; 130 interrupted: FOLDER does not exist, run the command again.
"""


@click.command(epilog=_EPILOG)
@click.argument("arguments", metavar="DIR... [NAME...]", nargs=-1, required=True, shell_complete=completion.names)
@click.option(
    "--into", metavar="FOLDER", type=Local(), required=True, help="The new log directory: empty, or a new path."
)
@topic_option
@partition_option
@click.option("--take", multiple=True, metavar="NAME[,NAME...]=DIR", help="Take NAME from DIR alone; repeatable.")
@click.option(
    "--dry-run", "-n", is_flag=True, help="Read everything, report the source of each range, and write nothing."
)
@click.option(
    "--cluster-metadata",
    metavar="FOLDER",
    help="The __cluster_metadata-0 folder of the cluster, or 'none'; default: the newest one in DIR.",
)
@json_option
@parts_option
@click.option("--verbose", "-v", is_flag=True, help="Print each line for each partition.")
@quiet_option
def merge(
    arguments: tuple[str, ...],
    into: str,
    topic: tuple[str, ...],
    partition: tuple[int, ...],
    take: tuple[str, ...],
    dry_run: bool,
    cluster_metadata: str | None,
    as_json: bool,
    jobs: int,
    verbose: bool,
    quiet: bool,
) -> None:
    """Make one log directory, FOLDER, of the disks of several brokers of a cluster."""
    paths, names = paths_and_names(arguments, several=True)
    sources = [DISK.convert(path, None, click.get_current_context()) for path in paths]
    sides = dict(side for text in take for side in _sides(text))
    options = {"dry_run": dry_run, "jobs": jobs, "topic": (*names, *topic) or None, "partition": partition or None}
    Request(into, options, as_json, quiet, verbose).run(
        lambda path, **shared: merge_disks(sources, path, take=sides, cluster_metadata=cluster_metadata, **shared),
        columns=_COLUMNS,
        total_bytes=_size(sources),
    )


def _sides(text: str) -> list[tuple[str, str]]:
    names, _, folder = text.partition("=")
    if not all(names.split(",")) or not folder:
        raise RequestError(f"--take {text}: expected a partition and a folder, as in orders-3=/mnt/b2")
    return [(name, folder) for name in names.split(",")]


def _size(sources: Sequence[str]) -> int:
    """Bytes to read, for the progress bar: all replicas once, and one of three again."""
    names = (os.path.join(above, name) for path in sources for above, _, files in os.walk(path) for name in files)
    size = sum(os.path.getsize(path) for path in names if path.endswith(".log") and os.path.exists(path))
    return size + size // max(len(sources), 1)
