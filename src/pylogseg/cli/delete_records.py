"""`pylogseg delete-records`: what `kafka-delete-records.sh` asks of a broker, without a broker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO

import click

from pylogseg.cli.offline import EXIT_CODES, Request, offline_command
from pylogseg.cli.retain import COLUMNS
from pylogseg.errors import RequestError
from pylogseg.offline.deleting_records import delete_records as delete_of_logs
from pylogseg.offline.deleting_records import parse_offsets

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
    "given",
    multiple=True,
    metavar="[PARTITION=]OFFSET",
    help="The first that stays, -1 for the high watermark; of all that NAME chooses, or of one partition; repeatable.",
)
@click.option(
    "--offset-json-file",
    "file",
    type=click.File("rb"),
    metavar="FILE",
    help="The file that Kafka's tool takes.",
)
@click.option("--force", is_flag=True, help="Also topics without delete in cleanup.policy.")  # fmt: skip
def delete_records(request: Request, given: Sequence[str], file: IO[bytes] | None, force: bool) -> None:
    """Let the logs of partitions begin at an offset: what is below is not read any more, and its segments go.

    The log start offset is written to the checkpoint of the log directory. Records below it that share a segment with
    others stay in the file until that segment goes.
    """
    offsets = _offsets(given)
    if file is not None:
        if given:
            raise RequestError("--offset and --offset-json-file contradict each other")
        offsets = parse_offsets(file.read(), file.name)
    elif not given:
        raise RequestError("which offset shall be the first? Say --offset, or --offset-json-file")
    request.run(delete_of_logs, columns=COLUMNS, offsets=offsets, force=force)


def _offsets(given: Sequence[str]) -> int | dict[str, int]:
    found: dict[str, int] = {}
    for text in given:
        name, _, number = text.rpartition("=")
        if not number.lstrip("-").isdecimal() or name in found:
            raise RequestError(f"--offset {text}: a number, or PARTITION=NUMBER, each partition once")
        found[name] = int(number)
    if "" in found and len(found) > 1:
        raise RequestError("--offset without a partition is for all of them: it cannot stand beside others")
    return found.get("", found)
