"""`pylogseg copy`: copy a partition or a log directory consistently while a broker may write to it."""

from __future__ import annotations

import functools
from typing import Any

import click

from pylogseg.cli import common
from pylogseg.cli.outcomes import end_with_outcome, print_part
from pylogseg.cli.tiers import Local, LocalOrCluster
from pylogseg.offline.copying.command import copy as copy_log_dir
from pylogseg.offline.options import Options
from pylogseg.offline.running import chosen_bytes

_EPILOG = r"""\b
Examples:
  pylogseg copy /data/kafka /backup/2026-01-31          all partitions
  pylogseg copy /data/kafka /backup/orders orders       one topic
  pylogseg copy /data/kafka/orders-3 /backup/o3         one partition, to
                                                        /backup/o3/orders-3
  pylogseg copy /data/kafka /backup/x --dry-run         list partitions and bytes
  pylogseg copy kafka://broker:9092/orders /backup/y    a topic of a running
                                                        cluster, up to its high
                                                        watermarks

\b
DST is a new log directory: an empty folder, or a path that does not exist. The
copy is written beside it, to .DST.pylogseg-unfinished, and renamed when all of
it is on the disk, so DST is complete or missing. After an interruption run the
same command again; it removes what was left.
The command takes no lock and writes nothing to SRC; a broker may keep running.
Each partition is copied as of one moment, different partitions as of different
moments. The active segment is copied up to its last complete batch, and indexes,
snapshots, leader epochs and checkpoints are cut to match. If retention, a roll
or the cleaner changes a partition meanwhile, it is read again.
A broker that starts on the copy reads the active segments once more, as after
a crash, unless SRC had a clean shutdown. meta.properties is copied too: for
another broker, replace it with that broker's own.

\b
What SRC is known to lack is reported: offsets that checkpoints, indexes, leader
epochs or snapshots prove, and partitions that the cluster's metadata assigns to
this disk. So is damage that headers show; checksums of sealed segments are left
to `pylogseg verify`. The rest is copied, without the indexes of missing segments,
no checkpoint is above the end of its log, and the exit code is 1.

\b
Exit codes: 0 success; 1 records are known to be missing, or damage was seen;
2 wrong usage or a disk error (a partition or a small file of SRC that cannot be
read is reported and left out, the rest is copied); 130 interrupted.
"""


@click.command(epilog=_EPILOG.replace(r"\b", "\b"))
@common.transfer_options(
    {"type": LocalOrCluster(exists=True, file_okay=False)},
    {"type": Local()},
    "Only list what would be copied, and how many bytes.",
)
@common.json_option
@common.jobs_option
def copy(
    source: str,
    target: str,
    names: tuple[str, ...],
    topic: tuple[str, ...],
    partition: tuple[int, ...],
    dry_run: bool,
    as_json: bool,
    jobs: int,
) -> None:
    """Copy a partition or a log directory, SRC, into a new log directory, DST, while a broker may write to it."""
    choice: dict[str, Any] = {"topic": (*names, *topic) or None, "partition": partition or None}
    size = 0 if dry_run else chosen_bytes(source, Options.of(choice))
    with common.progress(size, "copying") as advance:
        done = copy_log_dir(
            source,
            target,
            **choice,
            dry_run=dry_run,
            jobs=jobs,
            on_bytes=advance,
            on_partition=functools.partial(print_part, as_json=as_json),  # the copy goes on if the pipe is closed
        )
    end_with_outcome(done, as_json)
