"""`retain`: delete the oldest segments by age, size or offset, like a broker's retention."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pylogseg.disk.target import Target
from pylogseg.errors import CorruptionError, RequestError
from pylogseg.format.names import FileKind, parse_partition_folder
from pylogseg.inspect.verify.findings import REMEDIES
from pylogseg.log.log import Log
from pylogseg.log.segment import LogSegment
from pylogseg.offline.ages import check_ages, name_blocking, name_held
from pylogseg.offline.options import OptionKeywords, Options, takes_executor
from pylogseg.offline.partition import OfflinePartition
from pylogseg.offline.result import Result
from pylogseg.offline.running import is_named, run_command
from pylogseg.offline.settings import Settings

if TYPE_CHECKING:  # typing has it from Python 3.11 on
    from typing_extensions import Unpack

_ALL_THE_SAME = "use --force to delete anyway"
_SAY = (
    "nothing is deleted by Kafka's defaults: give a rule (--ms, --bytes, --before-offset, --before-time) or the "
    "settings (--cluster-metadata, --server-properties, --config)"
)
_NAME_IT = "it may be compacted: name the topic, give --cluster-metadata, or use --force to delete anyway"


@takes_executor
def retain(
    path: str | os.PathLike[str],
    *,
    ms: int | None = None,
    max_bytes: int | None = None,
    before_offset: int | None = None,
    before_ms: int | None = None,
    force: bool = False,
    **options: Unpack[OptionKeywords],
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
        Remove segments with a newest record older than this.
    max_bytes : int, optional
        Remove segments while the log still has so many bytes without them.
    before_offset : int, optional
        Remove segments below this offset. Partitions whose high watermark is below it are given up.
    before_ms : int, optional
        Remove segments with a newest record older than this time, milliseconds since 1970.
    force : bool
        Take also partitions without ``delete`` in their ``cleanup.policy``, and partitions of tiered topics.
    **options
        See `pylogseg.offline.options.Options`.

    Returns
    -------
    Result
        ``numbers`` of a result: ``segmentsDeleted``, ``logStartBefore``, ``offsetsGone``.

    Raises
    ------
    RequestError
        If nothing may be done: there is no rule, and no topic has settings. If only some topics have none, these are
        skipped, with ``not_done``: Kafka's defaults would delete all records older than a week.
    """
    shared = Options.of(options)
    for name, value in {"ms": ms, "max_bytes": max_bytes, "before_offset": before_offset}.items():
        if value is not None and value < 0:
            raise RequestError(f"{name} must not be negative, not {value}: leave it out for no limit")
    if before_ms is not None:
        age_ms = shared.clock.now_ms() - before_ms
        if age_ms < 0:
            raise RequestError(f"before_ms {before_ms} is {-age_ms} ms in the future")
        ms = age_ms if ms is None else min(ms, age_ms)
    by_rule = ms is not None or max_bytes is not None or before_offset is not None
    named = is_named(Target.find_all(shared.storage, os.fspath(path))[0], shared)

    def work(part: OfflinePartition) -> None:
        config = part.config
        unknown = "" if force or (by_rule and named) else _why_unknown(part.settings, part.topic, part.name, by_rule)
        if unknown:
            part.result.skip(unknown, _SAY if not by_rule else _NAME_IT, not_done=True)
        elif not config.delete and not force:
            part.result.skip("cleanup.policy has no delete", _ALL_THE_SAME)
        elif config.remote_storage_enable and not force:
            part.result.skip("it is not known here which segments are in remote storage", _ALL_THE_SAME)
        else:
            if by_rule:
                part.config = config.with_changes(
                    cleanup_policy="delete",
                    retention_ms=-1 if ms is None else ms,
                    retention_bytes=-1 if max_bytes is None else max_bytes,
                )
            elif not part.settings.knows(part.topic, "retention_ms", name=part.name):
                part.config = config.with_changes(retention_ms=-1)
                part.result.notes.append("retention.ms is not known, so nothing goes by its age")
            _retain(part, part.open(), before_offset)

    def check(settings: Settings, names: list[str]) -> None:
        """Refuse as a whole if there is nothing that may be done."""
        folders = [(f.topic, name) for name in names if (f := parse_partition_folder(name)) and not f.state]
        unknown = [_why_unknown(settings, topic, name, by_rule) for topic, name in folders]
        if unknown and all(unknown) and not force and not (by_rule and named):
            others = len(set(unknown)) - 1
            more = f" ({others:,} more topic{'s' * (others > 1)} likewise)" if others else ""
            raise RequestError(f"{unknown[0]}{more}: {_SAY if not by_rule else _NAME_IT}")

    return run_command(path, shared, work, check=check, frees=True)


def _why_unknown(settings: Settings, topic: str, name: str, by_rule: bool) -> str:
    """Return why the retention settings of a topic are unknown; otherwise empty."""
    if not settings.knows(topic, "cleanup_policy", name=name) and (unknown := settings.why_unknown(topic, name)):
        return unknown
    if by_rule or settings.knows(topic, "retention_ms", "retention_bytes", name=name):
        return ""
    unknown = settings.why_unknown(topic, name)
    return unknown or f"neither retention.ms nor retention.bytes of topic {topic} is in the metadata"


def _retain(part: OfflinePartition, log: Log, before_offset: int | None) -> None:
    start = log.log_start_offset
    if before_offset is not None and before_offset > log.high_watermark:
        raise RequestError(
            f"{part.folder}: offset {before_offset} is above the high watermark, {log.high_watermark} (the log ends at "
            f"{log.log_end_offset}); a time is given by --before-time"
        )
    now_ms = part.clock.now_ms()
    try:
        check_ages(log, now_ms)
    except CorruptionError as error:
        if error.path.endswith(FileKind.TIME_INDEX.value):
            part.result.remedy = REMEDIES["time-index-end"]
        raise
    count = log.apply_retention()
    if before_offset is not None:
        end = log.log_end_offset

        def is_below(segment: LogSegment, behind: LogSegment | None) -> bool:
            return (end if behind is None else behind.base_offset) <= before_offset

        count += log.delete_oldest(is_below)
    part.result.notes += [note for note in (name_blocking(log, now_ms), name_held(log, now_ms)) if note]
    gone = log.log_start_offset - start
    part.result.numbers = {"segmentsDeleted": count, "logStartBefore": start, "offsetsGone": gone}
    part.result.state = "done" if count else "unchanged"
