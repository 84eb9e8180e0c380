"""`retain`: the oldest segments go, by age, size or offset, as a broker's retention does it."""

from __future__ import annotations

import os
from typing import Any

from pylogseg.errors import RequestError
from pylogseg.log.log import Log
from pylogseg.log.retention import apply_retention
from pylogseg.log.segment import LogSegment
from pylogseg.offline.options import Options
from pylogseg.offline.outcome import Result
from pylogseg.offline.part import Part
from pylogseg.offline.running import run
from pylogseg.offline.settings import Settings

_ALL_THE_SAME = "take it all the same by --force"


def retain(
    path: str | os.PathLike[str],
    *,
    ms: int | None = None,
    max_bytes: int | None = None,
    before_offset: int | None = None,
    before_ms: int | None = None,
    force: bool = False,
    **options: Any,
) -> Result:
    """Delete the oldest segments of each partition.

    Whole segments go, from the oldest on, as long as a rule says so and all of their records are below the high
    watermark. If none of the rules is given, those of the settings count: ``retention.ms`` and ``retention.bytes``;
    else only the ones that are given.

    Parameters
    ----------
    path : path
        A log directory, or the folder of one partition.
    ms : int, optional
        Segments whose newest record is older than that.
    max_bytes : int, optional
        Segments without which the log still has so many bytes.
    before_offset : int, optional
        Segments that lie below this offset.
    before_ms : int, optional
        Segments whose newest record is older than this time, milliseconds since 1970.
    force : bool
        Take partitions too whose ``cleanup.policy`` has no ``delete``, or whose segments a broker copies to remote
        storage first.
    **options
        Fields of `pylogseg.offline.options.Options`.

    Returns
    -------
    Result
        ``numbers`` of an outcome: ``segmentsDeleted``, ``logStartBefore``.

    Raises
    ------
    RequestError
        If no rule is given and no settings are found: Kafka's defaults would delete what is older than a week.
    """
    shared = Options.of(options)
    for name, value in {"ms": ms, "max_bytes": max_bytes, "before_offset": before_offset}.items():
        if value is not None and value < 0:
            raise RequestError(f"{name} must not be negative, not {value}: leave it out for no limit")
    if before_ms is not None:
        age_ms = shared.clock.now_ms() - before_ms
        if age_ms < 0:
            raise RequestError(f"before_ms {before_ms} lies {-age_ms} ms ahead of the present time")
        ms = age_ms if ms is None else min(ms, age_ms)
    by_rule = ms is not None or max_bytes is not None or before_offset is not None

    def work(part: Part) -> None:
        config = part.config
        if not config.delete and not force:
            part.outcome.leave("cleanup.policy has no delete", _ALL_THE_SAME)
        elif config.remote_storage_enable and not force:
            part.outcome.leave("which segments lie in remote storage is not known here", _ALL_THE_SAME)
        else:
            if by_rule:
                part.config = config.with_changes(
                    cleanup_policy="delete",
                    retention_ms=-1 if ms is None else ms,
                    retention_bytes=-1 if max_bytes is None else max_bytes,
                )
            _retain(part, part.open(), before_offset)

    return run(path, shared, work, check=None if by_rule else _check_known)


def _check_known(settings: Settings) -> None:
    if not settings.sources:
        raise RequestError(
            "no settings of these topics are found, and Kafka's defaults would delete what is older than a week: say "
            "what shall go, or name --server-properties, --cluster-metadata or --config"
        )


def _retain(part: Part, log: Log, before_offset: int | None) -> None:
    start = log.log_start_offset
    count = apply_retention(log)
    if before_offset is not None:
        end = log.log_end_offset

        def is_below(segment: LogSegment, behind: LogSegment | None) -> bool:
            return (end if behind is None else behind.base_offset) <= before_offset

        count += log.delete_oldest(is_below)
    part.outcome.numbers = {"segmentsDeleted": count, "logStartBefore": start}
    part.outcome.state = "done" if count else "unchanged"
