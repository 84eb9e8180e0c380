"""The broker settings that concern logs, from `server.properties` or by name."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pylogseg._setting_text import parse_boolean, parse_double, parse_integer
from pylogseg.config import LogConfig, kafka_name
from pylogseg.errors import RequestError
from pylogseg.format.codecs import CODECS
from pylogseg.format.files.properties import parse_properties

_HOUR_MS, _MINUTE_MS = 3_600_000, 60_000
_LEAST_DEDUPE_BYTES = 1 << 20

#: Where a broker's name of a topic's setting is not the topic's with ``log.`` in front; earlier ones win.
_SYNONYMS: dict[str, tuple[tuple[str, int], ...]] = {
    "segment_ms": (("log.roll.ms", 1), ("log.roll.hours", _HOUR_MS)),
    "segment_jitter_ms": (("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", _HOUR_MS)),
    "segment_index_bytes": (("log.index.size.max.bytes", 1),),
    "flush_messages": (("log.flush.interval.messages", 1),),
    "flush_ms": (("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1)),
    "retention_ms": (
        ("log.retention.ms", 1),
        ("log.retention.minutes", _MINUTE_MS),
        ("log.retention.hours", _HOUR_MS),
    ),
    "max_message_bytes": (("message.max.bytes", 1),),
    "delete_retention_ms": (("log.cleaner.delete.retention.ms", 1),),
    "min_compaction_lag_ms": (("log.cleaner.min.compaction.lag.ms", 1),),
    "max_compaction_lag_ms": (("log.cleaner.max.compaction.lag.ms", 1),),
    "min_cleanable_dirty_ratio": (("log.cleaner.min.cleanable.ratio", 1),),
    "file_delete_delay_ms": (("log.segment.delete.delay.ms", 1),),
    "unclean_leader_election_enable": (("unclean.leader.election.enable", 1),),
    "min_insync_replicas": (("min.insync.replicas", 1),),
    "compression_type": (("compression.type", 1),),
    **{
        f"compression_{codec.name}_level": ((f"compression.{codec.name}.level", 1),) for codec in CODECS if codec.levels
    },
}


def _setting(default: Any, least: float = 0) -> Any:
    return field(default=default, metadata={"least": least})


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """Settings for all logs; names are Kafka's with ``_`` for ``.``, defaults are Kafka's too.

    Attributes
    ----------
    log_dirs : tuple of str
        Any paths are taken, also a single one.
    topic_defaults : LogConfig
        For topics without settings of their own. The default is Kafka's, except ``retention.ms``, which is -1: nothing
        is deleted unless asked for.
    metadata_log_dir : str or None
        The folder with ``__cluster_metadata-0``, if not in one of `log_dirs`.
    """

    #: log directories; each has its own lock
    log_dirs: tuple[str, ...]
    #: `LogConfig` of topics that set nothing else, from `log.retention.ms`, `log.segment.bytes` and so on; the
    #: defaults are Kafka's, but `retention.ms=-1`
    topic_defaults: LogConfig = field(default_factory=lambda: LogConfig(retention_ms=-1))
    #: folder of `__cluster_metadata-0`, if it is not in one of `log.dirs`
    metadata_log_dir: str | None = None
    #: time between two runs of retention
    log_retention_check_interval_ms: int = _setting(300_000, 1)
    #: time between two writes of the recovery points
    log_flush_offset_checkpoint_interval_ms: int = _setting(60_000)
    #: time between two writes of the log start offsets
    log_flush_start_offset_checkpoint_interval_ms: int = _setting(60_000)
    #: time between two writes of the high watermarks
    replica_high_watermark_checkpoint_interval_ms: int = _setting(5_000)
    #: time before the first of these
    log_initial_task_delay_ms: int = _setting(30_000)
    #: threads that load and close logs, for each log directory
    num_recovery_threads_per_data_dir: int = _setting(2, 1)
    #: a producer that is idle for this long is forgotten
    producer_id_expiration_ms: int = _setting(86_400_000, 1)
    #: time between two searches for such producers
    producer_id_expiration_check_interval_ms: int = _setting(600_000, 1)
    #: false: nothing is compacted, and compacted logs have no retention
    log_cleaner_enable: bool = True
    #: cleaner threads; each compacts one log at a time
    log_cleaner_threads: int = _setting(1)
    #: bytes for the key maps of all threads, at least 1 MiB each; 24 bytes per key
    log_cleaner_dedupe_buffer_size: int = _setting(134_217_728)
    #: largest share of a map that is used
    log_cleaner_io_buffer_load_factor: float = _setting(0.9)
    #: bytes read and written by all cleaner threads together
    log_cleaner_io_max_bytes_per_second: float = _setting(float("inf"), 1)
    #: how long a cleaner waits when there is nothing to compact
    log_cleaner_backoff_ms: int = _setting(15_000)

    def __post_init__(self) -> None:
        object.__setattr__(self, "log_dirs", _paths(self.log_dirs))
        for name, setting in self.__dataclass_fields__.items():
            least, value = setting.metadata.get("least"), getattr(self, name)
            if least is not None and not value >= least:
                raise RequestError(f"invalid {kafka_name(name)}={value!r}: expected a number of at least {least:g}")
        if not self.log_dirs:
            raise RequestError("invalid log.dirs: expected at least one log directory")
        if self.log_cleaner_threads and self.cleaner_thread_bytes < _LEAST_DEDUPE_BYTES:
            raise RequestError(
                f"invalid log.cleaner.dedupe.buffer.size={self.log_cleaner_dedupe_buffer_size}: expected at least "
                f"{_LEAST_DEDUPE_BYTES} for each of the {self.log_cleaner_threads} threads"
            )

    @property
    def cleaner_thread_bytes(self) -> int:
        """Memory of one cleaner thread's map of keys."""
        return min(self.log_cleaner_dedupe_buffer_size // max(self.log_cleaner_threads, 1), 2**31 - 1)

    @classmethod
    def from_properties(cls, properties: Mapping[str, str], **changes: Any) -> BrokerSettings:
        """Create settings from a broker's properties; skip properties that do not concern logs.

        Parameters
        ----------
        properties : mapping of str to str
            From `server.properties`, by `pylogseg.format.files.properties.parse_properties`.
        **changes
            Fields to override.

        Raises
        ------
        RequestError
            For a value that Kafka refuses, naming it.
        """
        values: dict[str, Any] = {}
        for name in cls.__dataclass_fields__:
            text = properties.get(kafka_name(name))
            if text is not None and name not in ("log_dirs", "topic_defaults", "metadata_log_dir"):
                values[name] = _value(name, text, cls.__dataclass_fields__[name].type)
        dirs = properties.get("log.dirs") or properties.get("log.dir") or ""
        values["metadata_log_dir"] = (properties.get("metadata.log.dir") or "").strip() or None
        values["log_dirs"] = tuple(part.strip() for part in dirs.split(",") if part.strip())
        values["topic_defaults"] = LogConfig.of(**{"retention_ms": -1, **topic_fields(properties)})
        return cls(**{**values, **changes})

    @classmethod
    def from_file(cls, path: str | os.PathLike[str], **changes: Any) -> BrokerSettings:
        """Read settings from a `server.properties`; see `from_properties`."""
        with open(path, "rb") as file:
            return cls.from_properties(parse_properties(file.read(), os.fspath(path)), **changes)


def _paths(given: Any) -> tuple[str, ...]:
    try:
        return tuple(os.fspath(path) for path in ([given] if isinstance(given, str | os.PathLike) else given))
    except TypeError:
        raise RequestError(f"invalid log.dirs={given!r}: expected paths") from None


def topic_fields(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the topic defaults in a broker's properties, by the fields of `LogConfig`.

    Raises RequestError for a value that Kafka refuses, naming it.
    """
    fields_given: dict[str, str] = {}
    for name in LogConfig.__dataclass_fields__:
        for synonym, factor in _SYNONYMS.get(name, ((f"log.{kafka_name(name)}", 1),)):
            text = properties.get(synonym)
            if text is not None:
                fields_given[name] = _scale(text, factor)
                try:
                    LogConfig.of(**{name: fields_given[name]})
                except RequestError as error:
                    raise RequestError(f"{synonym}: {error}") from None
                break
    return fields_given


def _scale(text: str, factor: int) -> str:
    """Return a number of a larger unit in the smallest one; -1 is "without limit" in any unit."""
    try:
        number = parse_integer(text) if factor != 1 else -1
    except ValueError:
        return text  # which `LogConfig` refuses
    return text if number < 0 else str(number * factor)


_PARSERS: dict[str, Callable[[str], Any]] = {"bool": parse_boolean, "int": parse_integer, "float": parse_double}
_KINDS = {"bool": "true or false", "int": "an integer", "float": "a number"}


def _value(name: str, text: str, kind: Any) -> Any:
    try:
        return _PARSERS[kind](text)
    except ValueError:
        raise RequestError(f"invalid {kafka_name(name)}={text!r}: expected {_KINDS[kind]}") from None
