"""The settings of one log: Kafka 4.3's topic settings, with its names, defaults and checks."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypedDict

from pylogseg._setting_text import parse_boolean, parse_double, parse_integer, split_list, trim
from pylogseg.errors import RequestError
from pylogseg.format.codecs import CODECS, BatchCodec, codec_of

_LONG_MAX = 2**63 - 1
_WEEK_MS = 7 * 24 * 60 * 60 * 1000
_INTERNAL_SEGMENT_BYTES = "internal_segment_bytes"

#: As Kafka lists them.
_NAMES_OF_CODECS = tuple(codec.name for codec in reversed(CODECS[1:]))

Check = Callable[[Any], Any]


def kafka_name(name: str) -> str:
    """Return Kafka's name of a setting: dots for underscores.

    >>> kafka_name("segment_index_bytes")
    'segment.index.bytes'
    """
    return name.replace("_", ".")


def _integer(value: Any) -> int:
    if isinstance(value, str):
        return parse_integer(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise ValueError("an integer")


def _setting(default: Any, check: Check) -> Any:
    return field(default=default, metadata={"check": check})


def _whole(default: int, least: int, most: int, also: int | None = None) -> Any:
    expected = f"an integer between {least} and {most}" + (f", or {also}" if also is not None else "")

    def check(value: Any) -> int:
        try:
            number = _integer(value)
        except ValueError:
            number = most + 1
        if not least <= number <= most and number != also:
            raise ValueError(expected)
        return number

    return _setting(default, check)


def _level(codec: str) -> Any:
    record = codec_of(codec)
    assert record.levels is not None
    default, (least, most) = record.default_level, record.levels
    return _whole(default, least, most, also=None if least <= default <= most else default)


def _int(default: int, least: int) -> Any:
    return _whole(default, least, 2**31 - 1)


def _long(default: int, least: int = -(2**63)) -> Any:
    return _whole(default, least, _LONG_MAX)


def _flag(default: bool) -> Any:
    def check(value: Any) -> bool:
        if isinstance(value, str):
            return parse_boolean(value)
        if isinstance(value, bool):
            return value
        raise ValueError("true or false")

    return _setting(default, check)


def _word(default: str, words: tuple[str, ...]) -> Any:
    def check(value: Any) -> str:
        if isinstance(value, str) and trim(value) in words:
            return trim(value)
        raise ValueError(f"one of {', '.join(words)}")

    return _setting(default, check)


def _list(default: tuple[str, ...], check_items: Callable[[Sequence[str]], tuple[str, ...]]) -> Any:
    def check(value: Any) -> tuple[str, ...]:
        items = split_list(value) if isinstance(value, str) else tuple(value) if isinstance(value, Iterable) else None
        if items is None or not all(isinstance(item, str) for item in items):
            raise ValueError("a list of texts")
        return check_items(items)

    return _setting(default, check)


def _check_policies(items: Sequence[str]) -> tuple[str, ...]:
    """Refuse other words than Kafka's two; a repeated one counts once."""
    if not set(items) <= {"compact", "delete"}:
        raise ValueError("a list of compact and delete")
    return tuple(dict.fromkeys(items))


def _check_throttled(items: Sequence[str]) -> tuple[str, ...]:
    """Refuse an item that is neither empty nor a pair of numbers, unless there is only an asterisk."""
    is_good = [*items] == ["*"] or all(re.fullmatch(r"([0-9]+:[0-9]+)?", trim(item)) for item in items)
    if not is_good:
        raise ValueError("a list of partition:broker, or *")
    return tuple(items)


def _ratio(default: float) -> Any:
    def check(value: Any) -> float:
        try:
            number = parse_double(value) if isinstance(value, str) else float(value)
        except (TypeError, ValueError):
            number = -1.0
        if number < 0 or number > 1:  # Kafka takes a NaN: no log is dirtier than that
            raise ValueError("a number between 0 and 1")
        return number

    return _setting(default, check)


class LogSettings(TypedDict, total=False):
    """Names and accepted types of a log's settings, for editors and type checkers; see `LogConfig`."""

    segment_bytes: int | str
    internal_segment_bytes: int | str
    segment_ms: int | str
    segment_jitter_ms: int | str
    segment_index_bytes: int | str
    index_interval_bytes: int | str
    flush_messages: int | str
    flush_ms: int | str
    retention_bytes: int | str
    retention_ms: int | str
    max_message_bytes: int | str
    delete_retention_ms: int | str
    min_compaction_lag_ms: int | str
    max_compaction_lag_ms: int | str
    file_delete_delay_ms: int | str
    min_cleanable_dirty_ratio: float | str
    cleanup_policy: str | Sequence[str]
    compression_type: str
    compression_gzip_level: int | str
    compression_lz4_level: int | str
    compression_zstd_level: int | str
    preallocate: bool | str
    message_timestamp_type: str
    message_timestamp_before_max_ms: int | str
    message_timestamp_after_max_ms: int | str
    min_insync_replicas: int | str
    unclean_leader_election_enable: bool | str
    remote_storage_enable: bool | str
    remote_log_copy_disable: bool | str
    remote_log_delete_on_disable: bool | str
    local_retention_ms: int | str
    local_retention_bytes: int | str
    remote_copy_lag_ms: int | str
    remote_copy_lag_bytes: int | str
    max_decompressed_message_bytes: int | str
    errors_deadletterqueue_group_enable: bool | str
    leader_replication_throttled_replicas: str | Sequence[str]
    follower_replication_throttled_replicas: str | Sequence[str]


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Checked settings of a log. Names are Kafka's with ``_`` for ``.``; values may also be text.

    Unlike in a broker, ``segment_bytes`` may be less than 1 MiB. A broker allows that only through its internal setting
    ``internal.segment.bytes``, which `of` and `from_properties` accept too.

    The settings from ``min_insync_replicas`` on are checked, but have no effect on a log by itself.

    Raises
    ------
    RequestError
        A value that Kafka refuses; the message names the setting, the value and the expected values.

    Examples
    --------
    >>> LogConfig.of(segment_bytes=1 << 20, cleanup_policy="compact").compact
    True
    >>> LogConfig.from_properties({"retention.ms": "-2"})
    Traceback (most recent call last):
    ...
    pylogseg.errors.RequestError: invalid retention.ms='-2': expected an integer between -1 and 9223372036854775807
    """

    #: largest size of a segment; then a new one is rolled
    segment_bytes: int = _int(1 << 30, 14)
    #: a segment is rolled when its first record is older than this
    segment_ms: int = _long(_WEEK_MS, 1)
    #: `segment.ms` is reduced by a random time up to this, for each segment
    segment_jitter_ms: int = _long(0, 0)
    #: size of an index; a full one rolls the segment
    segment_index_bytes: int = _int(10 << 20, 4)
    #: bytes of batches between two index entries
    index_interval_bytes: int = _int(4096, 0)
    #: records after which the log is synced to the disk
    flush_messages: int = _long(_LONG_MAX, 1)
    #: time after which the log is synced to the disk
    flush_ms: int = _long(_LONG_MAX, 0)
    #: the oldest segments are deleted while the log is larger; -1: no limit
    retention_bytes: int = _long(-1)
    #: segments are deleted when their newest record is older; -1: no limit
    retention_ms: int = _long(_WEEK_MS, -1)
    #: largest batch that can be appended
    max_message_bytes: int = _int((1 << 20) + 12, 0)
    #: how long compaction keeps tombstones and transaction markers
    delete_retention_ms: int = _long(24 * 60 * 60 * 1000, 0)
    #: minimum age of a record before it is compacted
    min_compaction_lag_ms: int = _long(0, 0)
    #: age at which a record is compacted, even if the log is mostly clean
    max_compaction_lag_ms: int = _long(_LONG_MAX, 1)
    #: delay between the removal of a segment and the deletion of its files
    file_delete_delay_ms: int = _long(60_000, 0)
    #: share of the log that must be dirty before it is compacted
    min_cleanable_dirty_ratio: float = _ratio(0.5)
    #: `delete`, `compact` or both
    cleanup_policy: tuple[str, ...] = _list(("delete",), _check_policies)
    #: codec of stored batches; `producer`: as sent by the producer
    compression_type: str = _word("producer", ("uncompressed", *_NAMES_OF_CODECS, "producer"))
    #: level of gzip, 1 to 9; -1: the library's default
    compression_gzip_level: int = _level("gzip")
    #: level of lz4, 1 to 17
    compression_lz4_level: int = _level("lz4")
    #: level of zstd, -131072 to 22
    compression_zstd_level: int = _level("zstd")
    #: a new segment file gets its full size at once
    preallocate: bool = _flag(False)
    #: `CreateTime`, or `LogAppendTime`: records get the time of the append
    message_timestamp_type: str = _word("CreateTime", ("CreateTime", "LogAppendTime"))
    #: how far before now a record's timestamp may be
    message_timestamp_before_max_ms: int = _long(_LONG_MAX, 0)
    #: how far after now a record's timestamp may be
    message_timestamp_after_max_ms: int = _long(3_600_000, 0)
    #: for brokers; a log ignores it
    min_insync_replicas: int = _int(1, 1)
    #: for brokers
    unclean_leader_election_enable: bool = _flag(False)
    #: tiered storage; `retain` skips such topics without `--force`
    remote_storage_enable: bool = _flag(False)
    #: for brokers
    remote_log_copy_disable: bool = _flag(False)
    #: for brokers
    remote_log_delete_on_disable: bool = _flag(False)
    #: for brokers with tiered storage
    local_retention_ms: int = _long(-2, -2)
    #: for brokers with tiered storage
    local_retention_bytes: int = _long(-2, -2)
    #: with tiered storage, from Kafka 4.4 on: how old a segment has to be before it is copied; -1: as
    #: `local.retention.ms`
    remote_copy_lag_ms: int = _long(0, -1)
    #: how many bytes have to follow it; -1: as `local.retention.bytes`
    remote_copy_lag_bytes: int = _long(-1, -1)
    #: largest record when decompressed, from Kafka 4.4 on; a broker's setting: `--max-decompressed-bytes` bounds what a
    #: command decompresses
    max_decompressed_message_bytes: int = _whole(2**31 - 9, 1, 2**31 - 9)
    #: share groups may put records here that could not be delivered, from Kafka 4.4 on
    errors_deadletterqueue_group_enable: bool = _flag(False)
    #: for brokers
    leader_replication_throttled_replicas: tuple[str, ...] = _list((), _check_throttled)
    #: for brokers
    follower_replication_throttled_replicas: tuple[str, ...] = _list((), _check_throttled)

    def __post_init__(self) -> None:
        for setting in fields(self):
            value = getattr(self, setting.name)
            try:
                object.__setattr__(self, setting.name, setting.metadata["check"](value))
            except ValueError as error:
                raise RequestError(f"invalid {kafka_name(setting.name)}={value!r}: expected {error}") from None
        if self.min_compaction_lag_ms > self.max_compaction_lag_ms:
            raise RequestError(
                f"invalid min.compaction.lag.ms={self.min_compaction_lag_ms}: expected at most max.compaction.lag.ms, "
                f"{self.max_compaction_lag_ms}"
            )

    @classmethod
    def of(cls, **settings: Any) -> LogConfig:
        """Create settings from keywords; the others have Kafka's defaults."""
        return cls(**_check_names(settings))

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> LogConfig:
        """Create settings from Kafka's names and text values, as ``kafka-configs.sh`` prints them."""
        return cls.of(**{name.replace(".", "_"): value for name, value in properties.items()})

    def with_changes(self, **settings: Any) -> LogConfig:
        """Return a copy with some settings changed."""
        return replace(self, **_check_names(settings)) if settings else self

    def to_properties(self) -> dict[str, str]:
        """Return all settings by Kafka's names, as text that `from_properties` reads."""
        return {kafka_name(setting.name): _text(getattr(self, setting.name)) for setting in fields(self)}

    @property
    def compact(self) -> bool:
        """True if the log is compacted: it keeps the last record of each key."""
        return "compact" in self.cleanup_policy

    @property
    def delete(self) -> bool:
        """True if old segments are deleted by size and by time."""
        return "delete" in self.cleanup_policy

    @property
    def max_segment_ms(self) -> int:
        """The age at which the active segment is rolled, before jitter: a compacted log may roll sooner."""
        return min(self.max_compaction_lag_ms, self.segment_ms) if self.compact else self.segment_ms

    @property
    def preallocate_bytes(self) -> int:
        """The length at which the file of a new segment is created."""
        return self.segment_bytes if self.preallocate else 0


def stored_codec(config: LogConfig) -> BatchCodec | None:
    """Return the codec that a log gives to all batches; None if it keeps the producers'."""
    if config.compression_type == "producer":
        return None
    return CODECS[0] if config.compression_type == "uncompressed" else codec_of(config.compression_type)


def compression_levels(config: LogConfig) -> dict[int, int]:
    """Return the levels of a log's batches, by number of codec."""
    return {
        codec.number: getattr(config, f"compression_{codec.name}_level") for codec in CODECS if codec.levels is not None
    }


def _check_names(settings: dict[str, Any]) -> dict[str, Any]:
    """Check the names of settings; the internal segment size overrides the public one."""
    names = {field.name for field in fields(LogConfig)}
    for name in settings:
        if name not in names and name != _INTERNAL_SEGMENT_BYTES:
            close = difflib.get_close_matches(name, names, 1)
            hint = f". Did you mean {kafka_name(close[0])!r}?" if close else ""
            raise RequestError(f"unknown log setting {kafka_name(name)!r}{hint}")
    settings = dict(settings)
    internal = settings.pop(_INTERNAL_SEGMENT_BYTES, None)
    return settings if internal is None else {**settings, "segment_bytes": internal}


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if value != value:
        return "NaN"
    return ",".join(value) if isinstance(value, tuple) else str(value)
