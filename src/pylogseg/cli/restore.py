"""`pylogseg restore`: restore partitions from a backup or an exported table into a log directory."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable
from typing import Any

import click
from click.core import ParameterSource

from pylogseg.archive.at_point import point_url
from pylogseg.archive.restoring import restore_point
from pylogseg.archive.whole_cluster.command import restore_cluster
from pylogseg.cli.common import (
    F,
    add_all,
    json_option,
    parse_moment,
    parse_with,
    progress,
    quiet_option,
    size_option,
    target_folder,
    transfer_options,
)
from pylogseg.cli.offline import EXIT_CODES, Request
from pylogseg.cli.outcomes import end_with_outcome, print_parts
from pylogseg.cli.points import at_point, point_options
from pylogseg.cli.streams import say
from pylogseg.cli.tiers import Local, keys_option, tier_of_command, tier_option
from pylogseg.cli.workers import Workers, parts_option, workers_option
from pylogseg.disk.folders import is_archive
from pylogseg.disk.listing import open_dir
from pylogseg.disk.tier.opening import is_tier
from pylogseg.env.urls import CLUSTER_SCHEME
from pylogseg.errors import RequestError
from pylogseg.format.codecs import CODEC_NAMES
from pylogseg.offline.restoring.command import comes_from_table
from pylogseg.offline.restoring.command import restore as restore_partitions
from pylogseg.offline.restoring.tables import Tables
from pylogseg.offline.restoring.tier import Until
from pylogseg.offline.result import Result

_EPILOG = f"""\b
Examples:
  pylogseg restore /backup/2026-01-31 /data/kafka orders    from a copy
  pylogseg restore lake /data/kafka orders                  from an export
  pylogseg restore lake /data/kafka -n                      dry run
  pylogseg restore aiven+s3://bucket/prefix /data/kafka     tiered storage
  pylogseg restore lake s3://bucket/kafka                   into a store
  pylogseg restore s3://bucket/archive /data/kafka --at 2026-01-31T12:00:00Z
                                                            an archive, as it was
  pylogseg restore s3://bucket/archive /data/new --point 20260131 --node-id 1
                                                            as a cluster of one broker
  pylogseg restore /backup/2026-01-31 --to kafka://host:9092 orders -n
                                                            into a running cluster
  pylogseg restore s3://bucket/archive --cluster
      --controller 100@c1.example.com:9093=/new/c100
      --broker 1=/new/b1 --broker 2=/new/b2/d0,/new/b2/d1   all of it, with -n a dry run

\b
SRC is a log directory, as written by `pylogseg copy`, the Parquet or Arrow
files of `pylogseg export`, or the URL of tiered storage. DST is a log directory of
a stopped broker, an empty folder, or a URL: in a store, segments are read as on a
disk; for a broker, copy them to one. There a partition that exists is not compared.
Without names, all of SRC is restored. Either all selected partitions
appear in DST or none; after a crash, run the same command again to complete it.
A partition with other records in DST is an error, unless --overwrite is given,
which always writes.
If SRC is known to lack records (offsets that its checkpoints, indexes, leader
epochs or snapshots prove; partitions that its checkpoints or its cluster's
metadata name; files that the notes of a table name), nothing is restored. With
--force the rest is: the exit code is 1, and no checkpoint is above a log's end.
From a log directory, partitions are copied byte for byte, with their checkpoint
entries. Transactions, markers and producers are included: aborted records stay
aborted. If they come into another cluster, or a topic that was made again, their
producers get ids that no cluster hands out, so that no new producer is taken for an
old one, and leader epochs begin with 0. The output ends with what clients will see.
A folder that a broker took out of use (-stray, -delete) becomes a partition again if
its whole name is given; the folder stays. The exit code is 1: no checkpoint says
where its log started, or which of its records were committed.
If the cluster of DST has another id for the topic (from the metadata in
DST or --cluster-metadata), the partition gets that id.
From a table, records are restored with offset, timestamp, key, value and headers.
From an archive (pylogseg archive), partitions come as they were at a point, with
Kafka's own topics. --node-id makes a new cluster of one broker, in an empty DST:
topics with their ids and settings, groups, transactions, ACLs, users and quotas.
--cluster, without DST, makes new folders for controllers and for brokers, which have
the numbers that they had: metadata, partitions, and all that --node-id brings. With
fewer brokers, these take over what was on the other ones. As all restores it writes
unless -n is given, and changes nothing that is there. It ends with the steps that
start the cluster.
From tiered storage, partitions get the segments, indexes, producer snapshots and
leader epochs that were uploaded; with --tier, also what a broker's disk in SRC
has after them.
A table has no transaction markers, so aborted records would come back as if
committed. Files show that they have none if they were exported with
--isolation-level read_committed, or if column isTransactional is false. For other
files give --committed, or --without-transactions to leave such records out.
Create the topic in the cluster first, with the same number of partitions.
With --to kafka://HOST:PORT there is no DST: topics of a running cluster are made,
or are there and empty, and get the records over Kafka's protocol, with their
offsets. Batches go as they are. Other offsets are taken by markers of empty
transactions, which no consumer sees (1,000 a second), and those below the first
record by records that are deleted then. Aborted records are aborted again; for
open transactions, --abort-open-transactions is needed. -n shows the plan. At the
end all is fetched and compared, topics get the settings of SRC, and groups their
offsets. If it is interrupted, run it again, within 15 minutes if the source has
aborted transactions: it goes on where the partitions end.
If a broker has several log directories, name the one that has the partition, or any
if none has it. A broker starts with it, and `pylogseg move` spreads partitions.

{EXIT_CODES}"""


def _source(ctx: click.Context, param: click.Parameter, value: str) -> str:
    """Check that a source is there, an archive at its newest point; whether a tier is, shows when it is opened."""
    value = at_point(ctx, param, value)
    if not is_tier(value) and ("://" in value or (os.path.isdir(value) and is_archive(os.listdir(value)))):
        value = point_url(value)
    if not is_tier(value) and not os.path.exists(value):
        raise click.BadParameter(f"{value}: no such file or folder", ctx, param)
    return value


def _target(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Check that a target folder exists; a store reports that itself, and a cluster has none."""
    if _is_cluster(ctx.params.get("to")) or ctx.params.get("is_cluster"):
        return value
    if value is None:
        raise click.MissingParameter(ctx=ctx, param=param)
    if _is_cluster(value):
        raise click.BadParameter(f"write --to {value}, and names of topics behind it", ctx, param)
    return value if "://" in value and not is_tier(value) else target_folder(ctx, param, value)


def _is_cluster(value: Any) -> bool:
    return isinstance(value, str) and value.startswith(CLUSTER_SCHEME)


class _OffsetOrCluster(click.ParamType[Any]):
    """An offset, or the URL of a running cluster."""

    name = "offset"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return an int, or the URL."""
        return value if _is_cluster(value) else click.IntRange(min=0).convert(value, param, ctx)


def _cluster_options(command: F) -> F:
    """Add the options of a restore into a running cluster."""
    offsets = "Into a cluster: keep the offsets of SRC, or append committed records where partitions end."
    map_file = "With --offsets new: write where the records went to FILE, as CSV, or JSON if its name ends so."
    replicas = "Into a cluster: of topics that are made; default: as many as the cluster gives."
    options = [
        click.option("--offsets", type=click.Choice(["keep", "new"]), help=f"{offsets}  [default: keep]"),
        click.option("--map", "map_file", metavar="FILE", type=Local(), help=map_file),
        click.option("--replicas", type=click.IntRange(min=1), metavar="N", help=replicas),
        click.option("--without-groups", is_flag=True, help="Into a cluster: commit no offsets of groups."),
    ]
    return add_all(command, options)


def _tier_end_options(command: F) -> F:
    """Add ``--to`` and ``--until``, where a log that is restored from a tier ends."""
    to = "kafka://HOST:PORT: into this running cluster. From a tier, an offset: leave it out, and all after it."
    until = "From a tier: end before the first record since this time (2h ago, 2026-01-31T12:00:00Z, or milliseconds)."
    options = [
        click.option("--to", type=_OffsetOrCluster(), metavar="URL|OFFSET", is_eager=True, help=to),
        click.option("--until", metavar="TIME", callback=parse_with(parse_moment), help=until),
    ]
    return add_all(command, options)


def _arrival_options(command: F) -> F:
    """Add ``--keep-producers`` and ``--abort-open-transactions``, for logs that come into a cluster."""
    keep = (
        "Leave the ids of producers and the leader epochs as they are, or give the log others, which no new producer "
        "gets; default: keep them if the topic has the id that it had in SRC."
    )
    abort = "Abort the transactions that are open at the end of a log: no consumer with read_committed gets past them."
    options = [
        click.option("--keep-producers/--forget-producers", default=None, help=keep),
        click.option("--abort-open-transactions", is_flag=True, help=abort),
    ]
    return add_all(command, options)


def _node_options(command: F) -> F:
    """Add ``--cluster`` and the options that name its nodes."""
    whole = "From an archive: make a whole cluster, of new folders for each controller and broker; there is no DST."
    controller = "With --cluster: a voter, one, three or five of them, and its new log directory."
    broker = "With --cluster: a broker by the number that it had, and its new log directories."
    options = [
        click.option("--cluster", "is_cluster", is_flag=True, is_eager=True, help=whole),
        click.option("--controller", "controllers", multiple=True, metavar="ID@HOST:PORT=DIR", help=controller),
        click.option("--broker", "brokers", multiple=True, metavar="ID=DIR[,DIR]", help=broker),
        click.option("--listener", metavar="NAME", help="With --cluster: the controllers' listener."),
    ]
    return add_all(command, options)


@click.command(epilog=_EPILOG)
@transfer_options(
    {"callback": _source},
    {"callback": _target, "required": False},
    "Report the partitions that would be restored, and change nothing.",
)
@click.option("--overwrite", is_flag=True, help="Replace partitions that exist with other records.")
@click.option("--force", is_flag=True, help="Restore also from a backup that lacks records.")
@click.option("--committed", is_flag=True, help="Treat all records of the table as committed.")
@click.option(
    "--without-transactions", is_flag=True, help="Leave out records of transactions; needs column isTransactional."
)
@click.option("--compression", type=click.Choice(list(CODEC_NAMES)), help="Codec of batches made from a table.")
@size_option("--batch-bytes", help="Uncompressed size of batches made from a table; default: 16 KiB.")
@size_option("--segment-bytes", help="Size of segments; default: 1 GiB.")
@click.option(
    "--cluster-metadata",
    metavar="FOLDER",
    help="The __cluster_metadata-0 folder with the topic ids; default: the one in DST.",
)
@point_options
@click.option(
    "--node-id",
    type=click.IntRange(0, 2**31 - 1),
    metavar="N",
    help="From an archive: make DST, which is empty, the log directory of broker N, a cluster by itself.",
)
@_node_options
@_arrival_options
@tier_option
@keys_option
@_tier_end_options
@_cluster_options
@click.option(
    "--on-corrupt",
    type=click.Choice(["raise", "skip"]),
    default="raise",
    show_default=True,
    help="From a tier or an archive: at damage restore nothing, or everything except damaged and missing batches.",
)
@json_option
@functools.partial(workers_option, jobs=parts_option)
@quiet_option
def restore(
    source: str,
    target: str | None,
    names: tuple[str, ...],
    topic: tuple[str, ...],
    partition: tuple[int, ...],
    dry_run: bool,
    as_json: bool,
    quiet: bool,
    cluster_metadata: str | None,
    overwrite: bool,
    force: bool,
    committed: bool,
    without_transactions: bool,
    to: int | str | None,
    until: int | None,
    on_corrupt: str,
    keep_producers: bool | None,
    abort_open_transactions: bool,
    node_id: int | None,
    is_cluster: bool,
    controllers: tuple[str, ...],
    brokers: tuple[str, ...],
    listener: str | None,
    workers: Workers,
    **table: Any,
) -> None:
    """Restore partitions from a backup, an exported table or tiered storage, SRC, into DST.

    DST is a log directory of a stopped broker. With --cluster: a whole cluster, into new folders.
    """
    if is_cluster:
        _check_options_of_cluster()
        nodes = {"controllers": _controllers(controllers), "brokers": _brokers(brokers), "listener": listener}
        _restore_cluster(source, workers, as_json, quiet, dry_run=dry_run, force=force, on_corrupt=on_corrupt, **nodes)
        return
    if controllers or brokers or listener:
        raise click.UsageError("--controller, --broker and --listener go with --cluster")
    of_cluster = {name: table.pop(name) for name in ("offsets", "map_file", "replicas", "without_groups")}
    if isinstance(to, str):
        _refuse_other_options()
        if workers.is_spark:
            raise click.UsageError("--spark: a restore into a running cluster works with threads of this machine")
        names = names if target is None else (target, *names)
        with workers.executor() as executor:
            _to_cluster(
                source,
                to,
                as_json,
                topic=(*names, *topic) or None,
                partition=partition or None,
                dry_run=dry_run,
                force=force,
                abort_open_transactions=abort_open_transactions,
                executor=executor,
                **of_cluster,
            )
        return
    if any(of_cluster.values()):
        raise click.UsageError("--offsets, --map, --replicas and --without-groups need --to kafka://HOST:PORT")
    choice = {"topic": (*names, *topic) or None, "partition": partition or None}
    command: Callable[..., Result] = restore_partitions
    if node_id is not None:
        command = functools.partial(restore_point, node_id=node_id)
        if tier_of_command() is not None:
            raise click.UsageError("--node-id is for an archive, which --tier is not: give its URL as SRC")
    Request(source, {**choice, "dry_run": dry_run}, as_json, quiet, workers=workers).run(
        command,
        total_bytes=_size(source),
        target=target,
        overwrite=overwrite,
        force=force,
        committed=committed,
        without_transactions=without_transactions,
        cluster_metadata=cluster_metadata,
        tier=tier_of_command(),
        until=None if to is None and until is None else Until(to, until),
        on_corrupt=on_corrupt,
        keep_producers=keep_producers,
        abort_open_transactions=abort_open_transactions,
        **{name: value for name, value in table.items() if value is not None},
    )


def _refuse_other_options() -> None:
    """Raise UsageError for options of a restore into a log directory."""
    context = click.get_current_context()
    flags = [
        param.opts[0]
        for param in context.command.params
        if param.name not in _OF_CLUSTER
        and context.get_parameter_source(param.name or "") is ParameterSource.COMMANDLINE
    ]
    if flags:
        raise click.UsageError(f"{', '.join(flags)}: not for a restore into a running cluster")


#: Parameters of a restore into a running cluster.
_OF_CLUSTER = {
    "source", "target", "names", "topic", "partition", "dry_run", "as_json", "quiet", "force", "to", "offsets",
    "map_file", "replicas", "without_groups", "abort_open_transactions", "jobs", "spark", "spark_conf", "at", "point",
    "tier", "keys",
}  # fmt: skip


def _to_cluster(
    source: str, to: str, as_json: bool, *, without_groups: bool, replicas: int | None, offsets: str | None, **how: Any
) -> None:
    """Restore into a running cluster, print the result, and end with its exit code."""
    from pylogseg.offline.restoring.to_cluster import restore_to_cluster  # the client: only where it is used

    size = _size(source) // 2 if "://" not in source else _size(source)
    how |= {"replicas": replicas or -1, "offsets": offsets or "keep", "tier": tier_of_command()}
    with progress(size * (1 if how["dry_run"] else 4), "restoring") as advance:
        try:
            done = restore_to_cluster(source, to, with_groups=not without_groups, on_bytes=advance, **how)
        except KeyboardInterrupt:
            unfinished = "run the command again: it goes on where the partitions end"
            say("interrupted: nothing was changed" if how["dry_run"] else f"interrupted: {unfinished}", err=True)
            raise
    shown = {"failed"} if done.dry_run else {"failed", "done", "unchanged"}
    print_parts(done, as_json, lambda row: as_json or row.state in shown)
    end_with_outcome(done, as_json)


#: Parameters that a restore of a whole cluster has.
_OF_WHOLE_CLUSTER = {"source", "is_cluster", "controllers", "brokers", "listener", "dry_run", "force", "on_corrupt",
               "as_json", "quiet", "at", "point", "keys", "jobs"}  # fmt: skip


def _check_options_of_cluster() -> None:
    """Refuse options without a meaning for a whole cluster, by name."""
    context = click.get_current_context()
    strangers = [
        param for param in context.command.params
        if param.name and param.name not in _OF_WHOLE_CLUSTER
        and context.get_parameter_source(param.name) is ParameterSource.COMMANDLINE
    ]  # fmt: skip
    for param in strangers:
        name = param.opts[0] if isinstance(param, click.Option) else (param.human_readable_name or "").strip("[].")
        raise click.UsageError(f"{name} does not go with --cluster, which restores all of a point into new folders")


def _controllers(texts: tuple[str, ...]) -> dict[str, str]:
    folders_of: dict[str, str] = {}
    for text in texts:
        voter, sign, folder = text.partition("=")
        if not sign or not folder:
            raise click.UsageError(f"--controller {text}: expected ID@HOST:PORT=DIR, such as 1@c1:9093=/new/c1")
        if voter in folders_of:
            raise click.UsageError(f"--controller {voter} is given twice")
        folders_of[voter] = folder
    if not folders_of:
        raise click.UsageError("--cluster: name each new controller, by --controller ID@HOST:PORT=DIR")
    return folders_of


def _brokers(texts: tuple[str, ...]) -> dict[int, list[str]]:
    folders_of: dict[int, list[str]] = {}
    for text in texts:
        number, _, folders = text.partition("=")
        if not number.isascii() or not number.isdecimal() or not all(folders.split(",")):
            raise click.UsageError(f"--broker {text}: expected ID=DIR[,DIR], such as 1=/new/b1")
        if int(number) in folders_of:
            raise click.UsageError(f"--broker {number} is given twice: its log directories are one list, ID=DIR,DIR")
        folders_of[int(number)] = folders.split(",")
    if not folders_of:
        raise click.UsageError("--cluster: name each broker that there will be, by --broker ID=DIR[,DIR]")
    return folders_of


def _restore_cluster(source: str, workers: Workers, as_json: bool, quiet: bool, **how: Any) -> None:
    if not is_tier(source):
        raise click.UsageError(
            f"--cluster restores from an archive: {source} is not one; leave out --cluster, or name an archive"
        )
    with progress(_size(source), "restore") as advance, workers.executor() as executor:
        cluster = restore_cluster(source, on_bytes=advance, executor=executor, **how)
    if as_json:
        print_parts(cluster, as_json)
    if quiet and not as_json:
        cluster.is_short = True
    end_with_outcome(cluster, as_json)


def _size(source: str) -> int:
    """Return the bytes to read, for the progress bar; each file of a log directory is read twice."""
    if is_tier(source) or tier_of_command() is not None:
        return sum(part.size for part in open_dir(source, tier=tier_of_command()))
    if comes_from_table(source):
        with contextlib.suppress(RequestError):  # which the restore itself raises
            return Tables(source).size_bytes
    sizes = (os.path.getsize(os.path.join(folder, name)) for folder, _, names in os.walk(source) for name in names)
    return 2 * sum(sizes)
