"""The space that retention and compaction would free, now and in a week, from the sizes and times of segments."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from pylogseg.config import LogConfig, kafka_name
from pylogseg.disk.disk import LogDir
from pylogseg.disk.target import Target
from pylogseg.env.filesystem import LocalFiles
from pylogseg.errors import PylogsegError, RequestError, StorageError
from pylogseg.format.names import METADATA_TOPIC, FileKind
from pylogseg.log.retention import breached_by_size, breached_by_time
from pylogseg.offline.options import Options
from pylogseg.offline.settings import Settings
from pylogseg.reporting.facts import CleaningFact, Command, Freed
from pylogseg.reporting.series import DAY_MS
from pylogseg.values.internal.cluster import INTERNAL_TOPICS

WEEK_MS = 7 * DAY_MS
#: Settings that are shown.
_SHOWN = ("cleanup_policy", "retention_ms", "retention_bytes", "segment_bytes", "segment_ms",
          "min_cleanable_dirty_ratio", "min_compaction_lag_ms", "delete_retention_ms")  # fmt: skip


#: Topics that no broker deletes by Kafka's default time.
_KEPT = {METADATA_TOPIC, *INTERNAL_TOPICS}


@dataclass(frozen=True)
class CleaningSettings:
    """The settings of a log, and where they come from."""

    config: LogConfig
    given_fields: frozenset[str]  #: Fields that are set; the others are assumed to be Kafka's defaults.
    source: str
    is_cleaned: bool = False  #: That it is compacted is known by the cleaner's checkpoint, and by nothing else.

    @property
    def is_policy_known(self) -> bool:
        return self.is_cleaned or "cleanup_policy" in self.given_fields

    @property
    def is_retention_known(self) -> bool:
        """True if the settings say which records retention deletes."""
        is_set = not self.given_fields.isdisjoint(("retention_ms", "retention_bytes"))
        return self.is_policy_known and (is_set or not self.config.delete)

    def source_of(self, name: str) -> str:
        """Return where the value of a field comes from."""
        if name == "cleanup_policy" and self.is_cleaned:
            return "cleaner"
        return "set" if name in self.given_fields else "assumed"

    @cached_property
    def shown(self) -> tuple[dict[str, str], ...]:
        """The settings that decide on deletion."""
        values = self.config.to_properties()
        return tuple(
            {"name": name, "value": values[name], "source": self.source_of(field)}
            for field, name in ((field, kafka_name(field)) for field in _SHOWN)
        )

    def retention_options(self) -> tuple[str, ...]:
        """Return the options with which `retain` deletes by the time here, if nobody has set one."""
        is_set = not self.given_fields.isdisjoint(("retention_ms", "retention_bytes"))
        return () if is_set or self.config.retention_ms < 0 else ("-c", f"retention.ms={self.config.retention_ms}")


class SettingsOf:
    """The settings of the topics in the log directories of a disk, read once."""

    def __init__(self, log_dirs: Sequence[LogDir], options: Options) -> None:
        self.notes: list[str] = []
        self._options = options
        self._of: dict[str, Settings] = {}
        self._found: dict[tuple[str, str, bool, str], CleaningSettings] = {}
        for log_dir in log_dirs:
            if isinstance(log_dir.files, LocalFiles):
                with contextlib.suppress(StorageError):  # its properties are a finding
                    self._of[log_dir.path] = self._read(log_dir.path)

    def _read(self, path: str) -> Settings:
        place = Target(path, (), path, True)
        try:
            settings = Settings(place, self._options)
            self.notes += settings.doubts
            return settings
        except (RequestError, StorageError) as error:
            without = replace(self._options, cluster_metadata="none")
            settings = Settings(place, without)  # what was given is at fault, if that is refused too
            self.notes.append(f"settings of topics: {error}")
            return settings

    def of(self, log_dir: str, topic: str, name: str, is_cleaned: bool) -> CleaningSettings:
        """Return the settings of a log in a log directory, by the name of its folder.

        `is_cleaned` is whether the cleaner's checkpoint names its topic: then it is compacted.
        """
        settings = self._of.get(log_dir)
        # Of a topic that was made again, partitions may have other ids.
        key = log_dir, topic, is_cleaned, settings.why_unknown(topic, name) if settings else ""
        if key not in self._found:
            self._found[key] = self._looked_up(settings, topic, name, is_cleaned)
        return self._found[key]

    def _looked_up(self, settings: Settings | None, topic: str, name: str, is_cleaned: bool) -> CleaningSettings:
        own = _own(settings, topic, name)
        if not is_cleaned or "cleanup_policy" in own.given_fields:
            return own
        config = replace(own.config, cleanup_policy=("compact",))
        source = f"compacted, as {FileKind.CLEANER_OFFSETS.value} names the topic; {own.source}"
        return CleaningSettings(config, own.given_fields, source, True)


def _own(settings: Settings | None, topic: str, name: str) -> CleaningSettings:
    if settings is None:
        return CleaningSettings(LogConfig(), frozenset(), "Kafka's defaults: there are no settings beside the log")
    try:
        config = settings.config_of(topic, name)
    except PylogsegError as error:
        return CleaningSettings(LogConfig(), frozenset(), f"Kafka's defaults: {error}")
    fields = frozenset(field for field in _SHOWN if settings.knows(topic, field, name=name))
    if "retention_ms" not in fields and topic not in _KEPT:
        # Commands delete nothing by a default; what a broker would delete is another question.
        config = replace(config, retention_ms=LogConfig().retention_ms)
    unknown = settings.why_unknown(topic, name)
    return CleaningSettings(config, fields, f"Kafka's defaults: {unknown}" if unknown else settings.describe())


@dataclass(frozen=True)
class RetainedPiece:
    """A segment, as the rules of retention see it."""

    base_offset: int
    size: int
    time_ms: int  #: Its greatest timestamp, or the file's time if no record has one.

    def largest_timestamp(self) -> int:
        return self.time_ms


class LogShape(NamedTuple):
    """A log, as retention and the cleaner see it."""

    pieces: Sequence[RetainedPiece]  #: Live segments, by base offset.
    log_start: int
    log_end: int
    high_watermark: int | None  #: None if no checkpoint has it: then the end counts.
    last_stable: int  #: The first offset of the oldest open transaction, or the end.
    cleaned_to: int | None
    bytes_per_day: float


def count_deletable(shape: LogShape, config: LogConfig, now_ms: int, more_bytes: int = 0) -> tuple[int, int]:
    """Return how many segments, and bytes, retention would delete at a time.

    `more_bytes` come until then, in segments that retention leaves. The rules are those of `log.retention`.
    """
    left = list(shape.pieces)
    gone: list[RetainedPiece] = []
    watermark = shape.log_end if shape.high_watermark is None else shape.high_watermark

    def delete(breached: Callable[[RetainedPiece, RetainedPiece | None], bool]) -> None:
        while left:
            behind = left[1] if len(left) > 1 else None
            end = shape.log_end if behind is None else behind.base_offset
            if watermark < end or not breached(left[0], behind) or (behind is None and left[0].size == 0):
                return
            gone.append(left.pop(0))

    delete(lambda piece, behind: behind is not None and behind.base_offset <= shape.log_start)
    if config.delete:
        delete(breached_by_size(sum(piece.size for piece in left) + more_bytes, config.retention_bytes))
        delete(breached_by_time(now_ms, config.retention_ms))
    return len(gone), sum(piece.size for piece in gone)


def dirty(shape: LogShape, config: LogConfig, now_ms: int) -> tuple[int, int]:
    """Return the bytes of the clean and the dirty section, as `log.cleaner_range` counts them."""
    if not shape.pieces:
        return 0, 0
    noted = shape.log_start if shape.cleaned_to is None else shape.cleaned_to
    first_dirty = noted if shape.log_start <= noted <= shape.log_end else shape.log_start
    active = shape.pieces[-1].base_offset
    watermark = shape.log_end if shape.high_watermark is None else shape.high_watermark
    bounds = [min(shape.last_stable, watermark), active]
    lag = max(config.min_compaction_lag_ms, 0)
    if lag > 0:
        bounds += [p.base_offset for p in _from(shape.pieces, first_dirty, active) if p.time_ms > now_ms - lag][:1]
    uncleanable = max(first_dirty, min(bounds))
    sealed = _from(shape.pieces, uncleanable, active) if uncleanable <= active else []
    end = sealed[0].base_offset if sealed else active
    clean = sum(piece.size for piece in _from(shape.pieces, -1, first_dirty))
    return clean, sum(piece.size for piece in _from(shape.pieces, min(first_dirty, end), end))


def _from(pieces: Sequence[RetainedPiece], offset: int, end: int) -> list[RetainedPiece]:
    """Return the segments from the one that holds an offset, or the first after it, that begin below `end`."""
    if end <= offset:
        return []
    first = max(sum(piece.base_offset <= offset for piece in pieces) - 1, 0)
    return [piece for piece in pieces[first:] if piece.base_offset < end]


def cleaning_fact(
    shape: LogShape,
    settings: CleaningSettings,
    now_ms: int,
    keys: tuple[int, int, bool] | None,
    commands: list[Command],
) -> CleaningFact:
    """Return the records and bytes that retention and compaction would delete.

    `keys` are the numbers of records and of distinct keys, and whether these are of all records; None if none was
    decoded.
    """
    config = settings.config
    week_bytes = round(shape.bytes_per_day * 7)
    now_segments, now_bytes = count_deletable(shape, config, now_ms)
    then_segments, then_bytes = count_deletable(shape, config, now_ms + WEEK_MS, week_bytes)
    how = "by the sizes and times of the segments, with the settings named here"
    is_assumed = not settings.is_retention_known
    if is_assumed:
        how = f"only if the assumed settings are the topic's: {how}"
    retention_now = Freed(now_segments, now_bytes, False, how, is_assumed)
    rate = f"{how}, at {round(shape.bytes_per_day):,} bytes a day; of the segments that are there now"
    retention_then = Freed(then_segments, then_bytes, True, rate, is_assumed)
    size = sum(piece.size for piece in shape.pieces)
    left = size if is_assumed else size - then_bytes
    if not config.compact:
        none = Freed(0, 0, False, "cleanup.policy has no compact", not settings.is_policy_known)
        freed = retention_now, retention_then, none, none
        return _fact(shape, settings, (None, None), freed, left + week_bytes, commands)
    clean_bytes, dirty_bytes = dirty(shape, config, now_ms)
    compaction_now = _estimate_compaction(clean_bytes, dirty_bytes, keys)
    # What is dirty then may be all that is there now, and still is there.
    compaction_then = _estimate_compaction(min(clean_bytes, left), max(0, left - clean_bytes), keys)
    sections = clean_bytes, dirty_bytes
    left += week_bytes - (compaction_then.bytes or 0)
    return _fact(
        shape, settings, sections, (retention_now, retention_then, compaction_now, compaction_then), left, commands
    )


def _estimate_compaction(clean_bytes: int, dirty_bytes: int, keys: tuple[int, int, bool] | None) -> Freed:
    if not dirty_bytes:
        return Freed(None, 0, False, "nothing that may be cleaned is dirty")
    total = clean_bytes + dirty_bytes
    if keys is None or not keys[0] or not keys[2]:
        why = f"not known before all keys are read (--full): at most {total:,} bytes"
        return Freed(None, None, True, why)
    records, distinct, _ = keys
    share = max(0.0, 1.0 - distinct / records)
    why = f"estimated by {distinct:,} different keys of {records:,} records; a dry run of compact counts it"
    return Freed(None, round(total * share), True, why)


def _fact(
    shape: LogShape,
    settings: CleaningSettings,
    sections: tuple[int | None, int | None],
    freed: tuple[Freed, Freed, Freed, Freed],
    size_in_a_week: int,
    commands: list[Command],
) -> CleaningFact:
    policy = ",".join(settings.config.cleanup_policy)
    clean_bytes, dirty_bytes = sections
    total = None if clean_bytes is None or dirty_bytes is None else clean_bytes + dirty_bytes
    ratio = None if total is None or dirty_bytes is None else (round(dirty_bytes / total, 4) if total else 0.0)
    return CleaningFact(
        settings=settings.shown,
        settings_source=settings.source,
        policy=policy if settings.is_policy_known else None,
        assumed_policy=policy,
        cleaned_to=shape.cleaned_to,
        clean_bytes=clean_bytes,
        dirty_bytes=dirty_bytes,
        dirty_ratio=ratio,
        retention_now=freed[0],
        retention_in_a_week=freed[1],
        compaction_now=freed[2],
        compaction_in_a_week=freed[3],
        size_in_a_week=max(0, size_in_a_week),
        commands=tuple(commands),
    )
