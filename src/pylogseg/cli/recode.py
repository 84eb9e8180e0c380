"""`pylogseg recode`: change codec, level or format of batches on a disk, without a broker."""

from __future__ import annotations

import click

from pylogseg.cli.common import size_option
from pylogseg.cli.offline import EXIT_CODES, Request, offline_command
from pylogseg.cli.options import decompressed_option
from pylogseg.format.codecs import CODEC_NAMES
from pylogseg.offline.recoding import recode as recode_logs

_COLUMNS = {"segmentsRewritten": "REWRITTEN", "batchesRewritten": "BATCHES"}

_EPILOG = f"""\b
Examples:
  pylogseg recode /data/kafka orders --compression zstd --dry-run
  pylogseg recode /data/kafka orders --compression zstd --level 19
  pylogseg recode /data/kafka old-topic --magic-2 --merge 16KiB
  pylogseg recode /data/kafka/orders-3 --compression none --into /tmp/plain

\b
Batches that need no change are not rewritten, nor are segments without other
batches: a second run changes nothing, unless --level is given. If a topic's
compression.type is not "producer", the broker writes new batches in that codec.

{EXIT_CODES}"""


@click.command(epilog=_EPILOG)
@offline_command
@decompressed_option("is not changed, and its partition fails")
@click.option(
    "--compression",
    "-z",
    type=click.Choice(list(CODEC_NAMES)),
    help="The new codec of all batches; default: each keeps its own.",
)
@click.option(
    "--level",
    type=int,
    metavar="N",
    help="Compression level; batches that have the codec are recompressed too. Default: the topic's setting.",
)
@click.option("--magic-2", is_flag=True, help="Convert batches of magic 0 and 1 (brokers before 0.11) to magic 2.")
@size_option(
    "--merge",
    "merge_bytes",
    help="Merge small batches, up to SIZE uncompressed bytes, below the high watermark; batches of idempotent "
    "producers are never merged.",
)
def recode(
    request: Request,
    compression: str | None,
    level: int | None,
    magic_2: bool,
    merge_bytes: int | None,
    max_decompressed_bytes: int,
) -> None:
    """Rewrite batches with another codec or level, or in the current format.

    Records, offsets, timestamps, headers, producers and transactions do not change, and control batches are copied as
    they are. Batches keep their boundaries unless --merge is given. A segment that exceeds segment.bytes is split.
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
