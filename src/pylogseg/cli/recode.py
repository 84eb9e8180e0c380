"""`pylogseg recode`: other codecs, levels and formats for what is on a disk, without a broker."""

from __future__ import annotations

import click

from pylogseg.cli.common import decompressed_option, parse_size, parsed
from pylogseg.cli.offline import EXIT_CODES, Request, offline_command
from pylogseg.offline.recoding import recode as recode_logs

_COLUMNS = {"segmentsRewritten": "REWRITTEN", "batchesRewritten": "BATCHES"}

_EPILOG = f"""\b
Examples:
  pylogseg recode /data/kafka orders --compression zstd --dry-run
  pylogseg recode /data/kafka orders --compression zstd --level 19
  pylogseg recode /data/kafka old-topic --magic-2 --merge 16KiB
  pylogseg recode /data/kafka/orders-3 --compression none --into /tmp/plain

\b
Batches that are as they are to be are left alone, and so are segments without
any other: a second run changes nothing, unless --level is given. A topic whose
compression.type is not "producer" keeps getting new batches in that codec.

{EXIT_CODES}"""


@click.command(epilog=_EPILOG)
@offline_command
@decompressed_option("is not touched, and its partition given up")
@click.option(
    "--compression",
    "-z",
    type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
    help="The codec of all batches; default: each keeps its own.",
)
@click.option(
    "--level",
    type=int,
    metavar="N",
    help="Of the codec; also compresses batches again that have it. Default: the topic's setting.",
)
@click.option("--magic-2", is_flag=True, help="Write batches of magic 0 and 1, of brokers before 0.11, as magic 2.")
@click.option(
    "--merge", "merge_bytes", callback=parsed(parse_size), metavar="SIZE",
    help="Put small batches together, up to so many uncompressed bytes: not those of idempotent producers, and only "
    "below the high watermark.",
)  # fmt: skip
def recode(
    request: Request,
    compression: str | None,
    level: int | None,
    magic_2: bool,
    merge_bytes: int | None,
    max_decompressed_bytes: int,
) -> None:
    """Write batches with another codec or level, or in the format of today.

    Records, offsets, timestamps, headers, producers and transactions stay what they are; control batches stay as they
    lie. Batches keep their bounds unless --merge is given. A segment that grows beyond segment.bytes becomes several.
    """
    request.run(
        recode_logs,
        columns=_COLUMNS,
        passes=2,
        compression=compression,
        level=level,
        magic_2=magic_2,
        merge_bytes=merge_bytes,
        max_decompressed_bytes=max_decompressed_bytes,
    )
