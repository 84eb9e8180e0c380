"""`pylogseg delete-records`: like `kafka-delete-records.sh`, without a broker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO

import click

from pylogseg.cli.offline import DELETED, EXIT_CODES, Request, offline_command
from pylogseg.errors import RequestError
from pylogseg.offline.deleting_records import delete_records as delete_of_logs
from pylogseg.offline.deleting_records import parse_offset_file

_EPILOG = f"""\b
Examples:
  pylogseg delete-records /data/kafka/orders-3 --offset 1500
  pylogseg delete-records /data/kafka --offset orders-3=1500 --offset orders-4=-1
  pylogseg delete-records /data/kafka --offset-json-file offsets.json --dry-run

{EXIT_CODES}"""


@click.command("delete-records", epilog=_EPILOG)
@offline_command
@click.option(
    "--offset",
    "written",
    multiple=True,
    metavar="[PARTITION=]OFFSET",
    help="The first offset to keep, -1 for the high watermark; for all selected partitions, or for one; repeatable.",
)
@click.option(
    "--offset-json-file",
    "file",
    type=click.File("rb"),
    metavar="FILE",
    help="Offsets in the JSON format of kafka-delete-records.sh.",
)
@click.option("--force", is_flag=True, help="Also change topics without delete in cleanup.policy.")  # fmt: skip
def delete_records(request: Request, written: Sequence[str], file: IO[bytes] | None, force: bool) -> None:
    """Raise the log start offset of partitions: records below it are no longer read, and whole segments are deleted.

    The new log start offset is written to the checkpoint of the log directory. Records below it that share a segment
    with later records stay in the file until that segment is deleted.
    """
    offsets = _offsets(written)
    if file is not None:
        if written:
            raise RequestError("--offset and --offset-json-file cannot be combined")
        offsets = parse_offset_file(file.read(), file.name)
    elif not written:
        raise RequestError("missing option: give --offset or --offset-json-file")
    request.run(delete_of_logs, columns=DELETED, offsets=offsets, force=force)


def _offsets(written: Sequence[str]) -> int | dict[str, int]:
    offsets: dict[str, int] = {}
    for text in written:
        name, _, number = text.rpartition("=")
        if not number.lstrip("-").isdecimal() or name in offsets:
            raise RequestError(f"invalid --offset {text}: expected OFFSET or PARTITION=OFFSET, each partition once")
        offsets[name] = int(number)
    if "" in offsets and len(offsets) > 1:
        raise RequestError("--offset without a partition applies to all partitions: it cannot be combined with others")
    return offsets.get("", offsets)
