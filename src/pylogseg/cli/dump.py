"""`pylogseg dump`: decode a file."""

from __future__ import annotations

import sys
from typing import Any

import click

from pylogseg.cli import completion
from pylogseg.cli.common import complain, end_with, end_with_unreadable, json_option, write_stdout
from pylogseg.cli.options import decompressed_option
from pylogseg.cli.streams import say
from pylogseg.cli.tiers import keys_option
from pylogseg.errors import CorruptionError, RequestError, StorageError

_EPILOG = """\b
Examples:
  pylogseg dump /data/kafka/orders-3/00000000000000000000.log      its batches
  pylogseg dump /data/kafka/orders-3/00000000000000000000.log -r   their records too
  pylogseg dump /data/kafka/orders-3/00000000000000000000.timeindex --json
  pylogseg dump /data/kafka                 checkpoints and other small files
  pylogseg dump --style kafka --print-data-log orders-3/00000000000000000000.log

\b
Exit codes: 0 success; 1 damage was found; 2 wrong usage, a file that is not
Kafka's, or a disk error; 130 interrupted. A closed pipe is not an error.
"""


@click.command(epilog=_EPILOG)
@click.argument("paths", nargs=-1, metavar="FILE...", shell_complete=completion.files)
@click.option("--files", metavar="F1,F2", help="More files, separated by commas, as for kafka-dump-log.sh.")
@click.option("--records", "-r", is_flag=True, help="Print the records of each batch too.")
@json_option
@click.option(
    "--style",
    type=click.Choice(["table", "kafka"]),
    default="table",
    show_default=True,
    help="kafka prints the same lines as kafka-dump-log.sh 4.3.",
)
@click.option("--deep-iteration", is_flag=True, help="kafka style: print records.")
@click.option("--print-data-log", is_flag=True, help="kafka style: print records with keys and payloads.")
@click.option("--skip-record-metadata", is_flag=True, help="kafka style: print only keys and payloads of records.")
@click.option("--verify-index-only", is_flag=True, help="kafka style: check indexes without printing entries.")
@click.option(
    "--index-sanity-check", is_flag=True, help="kafka style: check indexes only as a broker does when it starts."
)
@click.option(
    "--max-message-size", type=int, metavar="BYTES", help="kafka style: largest batch that an index may point to."
)
@click.option("--max-bytes", type=int, metavar="BYTES", help="kafka style: read at most BYTES of a log.")
@click.option("--offsets-decoder", is_flag=True, help="kafka style: decode records of __consumer_offsets.")
@click.option("--transaction-log-decoder", is_flag=True, help="kafka style: decode records of __transaction_state.")
@click.option(
    "--cluster-metadata-decoder", is_flag=True, help="kafka style: decode records of __cluster_metadata and snapshots."
)
@click.option(
    "--remote-log-metadata-decoder", is_flag=True, help="kafka style: decode records of __remote_log_metadata."
)
@click.option("--share-group-state-decoder", is_flag=True, help="kafka style: decode records of __share_group_state.")
@decompressed_option("counts as damaged")
@keys_option
def dump(
    paths: tuple[str, ...],
    files: str | None,
    records: bool,
    as_json: bool,
    style: str,
    max_decompressed_bytes: int,
    **kafka: Any,
) -> None:
    """Decode any FILE of a broker's disk: batches, entries or fields.

    FILE is a log, index, snapshot, checkpoint, meta.properties or another small file, also with a suffix such as
    .deleted. The command decodes all files of a partition's folder, and only the small files of a log directory.
    """
    from pylogseg.inspect.dump.native import expand_paths

    named = [*paths, *(files.split(",") if files else [])]
    if not named:
        raise RequestError("no file to dump")
    kafka_only = {name: value for name, value in kafka.items() if value not in (None, False)}
    if style == "kafka":
        if records or as_json:
            raise RequestError("--records and --json cannot be combined with --style kafka: use --print-data-log")
        _as_kafka(named, kafka_only | {"max_decompressed_bytes": max_decompressed_bytes})
    elif kafka_only:
        options = ", ".join("--" + name.replace("_", "-") for name in kafka_only)
        raise RequestError(f"{options} needs --style kafka")
    else:
        _as_rows(list(expand_paths(named)), records, as_json, max_decompressed_bytes)


def _as_kafka(paths: list[str], options: dict[str, Any]) -> None:
    from pylogseg.inspect.dump.kafka_options import KafkaOptions
    from pylogseg.inspect.dump.kafka_style import kafka_dump

    def complain(line: str) -> None:
        sys.stdout.flush()
        say(line, err=True)

    end_with(not kafka_dump(paths, write_stdout, complain, KafkaOptions(**options)))


def _as_rows(paths: list[str], records: bool, as_json: bool, limit_bytes: int) -> None:
    from pylogseg.inspect.dump.native import dump_file

    damage, unread = False, []
    for path in paths:
        try:
            damage |= not dump_file(path, write_stdout, records=records, as_json=as_json, limit_bytes=limit_bytes)
        except CorruptionError as error:
            damage = True
            complain(f"damage: {error}")
        except StorageError as error:
            unread.append(error)
    end_with_unreadable(unread, damage)
