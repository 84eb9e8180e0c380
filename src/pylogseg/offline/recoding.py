"""`recode`: the batches of a log with another codec or level, in the format of today, or merged."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pylogseg.config import compression_levels
from pylogseg.errors import RequestError
from pylogseg.format.builder import codec_number
from pylogseg.format.codec_error import CodecError
from pylogseg.format.codecs import CODECS
from pylogseg.format.records import DECOMPRESSED_LIMIT_BYTES
from pylogseg.offline.options import OptionKeywords, Options, takes_executor
from pylogseg.offline.partition import OfflinePartition
from pylogseg.offline.recoding_batches import Merging, Recoding
from pylogseg.offline.result import Result
from pylogseg.offline.rewriting import change_part
from pylogseg.offline.running import run_command

if TYPE_CHECKING:  # typing has it from Python 3.11 on
    from typing_extensions import Unpack


@takes_executor
def recode(
    path: str | os.PathLike[str],
    *,
    compression: str | int | None = None,
    level: int | None = None,
    magic_2: bool = False,
    merge_bytes: int | None = None,
    max_decompressed_bytes: int = DECOMPRESSED_LIMIT_BYTES,
    **options: Unpack[OptionKeywords],
) -> Result:
    """Write batches with another codec or level, or as magic 2; records, offsets and timestamps do not change.

    Parameters
    ----------
    path : path
        A log directory, or the folder of one partition.
    compression : str or int, optional
        A codec, as `pylogseg.encode` takes it. Batches that have it already are left alone, unless a level is given
        too. Without it each batch keeps its codec.
    level : int, optional
        Of the codec; the topic's setting (``compression.zstd.level`` and so on) if not given.
    magic_2 : bool
        Write batches of magic 0 and 1, of brokers before 0.11, in the format of today.
    merge_bytes : int, optional
        Put batches that follow one another into one as long as its records have at most so many bytes, uncompressed.
        Only batches without a producer, of one leader epoch and one kind, below the high watermark: a replica cuts its
        log at the bounds of batches, so only batches that all replicas have are merged.
    max_decompressed_bytes : int
        A partition with a batch that decompresses to more fails: a few bytes can declare a large size, and it has to
        fit into memory several times.
    **options
        See `pylogseg.offline.options.Options`.

    Returns
    -------
    Result
        ``numbers`` of a result: ``batchesRewritten``, ``segmentsRewritten``. Its ``rows`` have one of type
        ``"segment"`` for each segment that was rewritten.
    """
    shared = Options.of(options)
    if level is not None and compression is None:
        raise RequestError(f"a level ({level}) goes with a codec: give compression (--compression) too")
    if compression is None and not magic_2 and merge_bytes is None:
        raise RequestError(
            "nothing to change: give compression (--compression), magic_2 (--magic-2) or merge_bytes (--merge)"
        )
    if merge_bytes is not None and merge_bytes < 1:
        raise RequestError(f"merge_bytes (--merge) must be at least 1, got {merge_bytes}")
    codec = None if compression is None else codec_number(compression)
    try:
        CODECS[codec or 0].check_level(level)
    except CodecError as error:
        raise RequestError(str(error)) from None

    def work(part: OfflinePartition) -> None:
        log = part.open()
        merging = None if merge_bytes is None else Merging(merge_bytes, log.high_watermark)
        levels = level if level is not None else compression_levels(part.config)
        record_limit = part.config.max_decompressed_message_bytes
        change = Recoding(codec, magic_2, level is not None, levels, merging, max_decompressed_bytes, record_limit)
        change_part(part, log, change, "batchesRewritten")

    return run_command(path, shared, work)
