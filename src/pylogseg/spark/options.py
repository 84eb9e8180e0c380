"""Options of a read: the options of Spark's Kafka source, with their defaults and checks, and a few more.

Names are case-insensitive; values are strings, as Spark passes them. Errors are raised before anything is read.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeVar

from pylogseg.disk.tier.keys import KEYS_OPTION, KEYS_VARIABLE
from pylogseg.disk.tier.opening import is_tier
from pylogseg.errors import RequestError
from pylogseg.format.names import TopicPartition
from pylogseg.reading.arrow.sizes import BATCH_BYTES
from pylogseg.reading.options import options_of
from pylogseg.reading.state import Reading

EARLIEST, LATEST = -2, -1

#: The most bytes of a log that a task reads, unless a single batch is larger.
RANGE_BYTES = 128 << 20
BATCH_ROWS = 20_000

#: Options of the Kafka source that concern a broker: a job that changes its format may keep them.
_BROKER_ONLY = re.compile(r"(kafka\.(?!isolation\.level$).*|groupidprefix|kafkaconsumer\..*|fetchoffset\..*)")
#: Names that Spark itself adds to the options of a table or a query.
_OF_SPARK = re.compile(
    r"(path|paths|location|provider|owner|comment|external|is_managed_location|serialization\.format|option\..*|__.*)"
)
#: Common wrong names, and the right ones.
_MEANT = {
    "topic": "subscribe",
    "topics": "subscribe",
    "pattern": "subscribePattern",
    "topicpattern": "subscribePattern",
    "partition": "assign",
    "partitions": "assign",
}
#: Credentials in a URL.
_SECRETS = re.compile(r"://[^/]*@|://.*\?")
_ONLY_IN_STREAMS = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
_NAMES = (
    #: at most one of: a list; Python's regular expression (any part of a name, never internal topics); JSON `{"orders":
    #: [0, 1]}`; default: all topics
    "subscribe", "subscribePattern", "assign",
    #: default `earliest`, of a stream `latest`; or JSON `{"orders": {"0": 23, "1": -2}}` for every partition; -2 is
    #: earliest, -1 latest
    "startingOffsets",
    #: default `latest`; batch only; the offset itself is not read
    "endingOffsets",
    #: ms since 1970: from the first record as late as the start, up to the first as late as the end. They override the
    #: next two
    "startingTimestamp", "endingTimestamp",
    #: JSON by partition, ms; they override offsets
    "startingOffsetsByTimestamp", "endingOffsetsByTimestamp",
    #: default `error`; if no record is as late as the start; `latest`: nothing is read
    "startingOffsetsByTimestampStrategy",
    #: at least this many tasks, as far as the indexes allow
    "minPartitions",
    #: at most this many offsets, and this much of the log (default `128m`), per task
    "maxRecordsPerPartition", "rangeBytes",
    #: approximate rows of an Arrow batch (`20000`); the most bytes of one (`64m`), unless a record has more
    "batchRows", "batchBytes",
    #: default `true`; `false`: the read continues without missing records, and logs it; also those that checkpoints or
    #: an index show to be [lost](python.md#damage-on_corrupt-and-gaps)
    "failOnDataLoss",
    #: default `raise`; at damage, as [`on_corrupt`](python.md#damage-on_corrupt-and-gaps): `raise`, `stop` or `skip`
    "onCorrupt",
    #: two more kinds of damage: a wrong checksum (`true`); a batch that decompresses to more (`64m`)
    "checkCrc", "maxDecompressedBytes",
    #: default `read_uncommitted`; or [`read_committed`](python.md#transactions-isolation_level)
    "isolationLevel", "kafka.isolation.level",
    #: default `logEnd`; `highWatermark`: no further than the broker's checkpoint of what all replicas have
    "endingAt",
    #: default `false`; more columns
    "includeHeaders", "includeMetadata",
    #: these columns, in this order
    "columns",
    #: default `true`; whether the last segment of each partition is read
    "includeActive",
    #: `value`, `key` or `key,value`: [typed columns](#typed-values)
    "decoding",
    #: with `decoding`: as for [`read_arrow`](typed-values.md#where-schemas-come-from)
    "schema", "registry", "message",
    #: default `false`; with `decoding` of [Kafka's own topics](cluster-state.md#records-as-columns): whether passwords
    #: and keys are shown
    "showSecrets",
    #: default `raw`; [of a value that does not decode](typed-values.md#what-does-not-decode): `raw`, `skip` or `raise`
    "onUndecoded",
    #: JSON for fsspec: `{"key": "...", "client_kwargs": {"endpoint_url": "..."}}`; for encrypted [tiers](tiered.md)
    #: `tier_keys`
    "storageOptions",
    #: URL of the [tier](tiered.md) of these disks
    "tier",
    #: default `false`; batch reads: [map files](python.md#files-that-nobody-cuts-memory_map) that nobody cuts
    "memoryMap",
    #: stream: at most this many offsets per batch, shared in proportion to what partitions have left
    "maxOffsetsPerTrigger",
    #: stream: wait for this many offsets, but not longer than this (`15m`)
    "minOffsetsPerTrigger", "maxTriggerDelay",
)  # fmt: skip
_BYTES = {"": 0, "b": 0, "k": 10, "kb": 10, "m": 20, "mb": 20, "g": 30, "gb": 30}
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}

_Value = TypeVar("_Value")


class Bound(NamedTuple):
    """The start or end of a read, for all partitions or for each.

    Attributes
    ----------
    kind : {"offset", "time"}
        True if the numbers are offsets (also `EARLIEST` and `LATEST`); False if they are milliseconds since 1970.
    default : int or None
        The number for partitions that are not named; None if each has to be named.
    of : dict of (topic, partition) to int
    """

    kind: Literal["offset", "time"]
    default: int | None
    of: dict[TopicPartition, int]


FROM_EARLIEST = Bound("offset", EARLIEST, {})
TO_LATEST = Bound("offset", LATEST, {})


@dataclass(frozen=True)
class SourceOptions:
    """The options of a read; `parse` makes them from strings."""

    topics: tuple[str, ...] = ()
    pattern: str = ""
    assigned: tuple[TopicPartition, ...] = ()
    starting: Bound = FROM_EARLIEST
    ending: Bound = TO_LATEST
    no_match_is_latest: bool = False
    min_partitions: int = 0
    max_records: int = 0
    max_offsets: int = 0
    min_offsets: int = 0
    max_delay_seconds: float = 900.0
    fail_on_data_loss: bool = True
    reading: Reading = field(default_factory=Reading)
    at_high_watermark: bool = False
    range_bytes: int = RANGE_BYTES
    batch_rows: int = BATCH_ROWS
    batch_bytes: int = BATCH_BYTES
    columns: tuple[str, ...] = ()
    include_headers: bool = False
    include_metadata: bool = False
    include_active: bool = True
    storage_options: dict[str, Any] = field(default_factory=dict, repr=False)
    tier: str | None = field(default=None, repr=False)
    memory_map: bool = False
    decoding: tuple[str, ...] = ()
    schema: str = ""
    registry: str = field(default="", repr=False)
    on_undecoded: Literal["raw", "raise", "skip"] = "raw"
    message: str = ""
    show_secrets: bool = False


def parse(given: Mapping[str, Any], *, streaming: bool = False) -> SourceOptions:
    """Read the options of a batch or a streaming read.

    Parameters
    ----------
    given : mapping of str to str
        Names in any case. Values that are not strings (numbers, booleans, dicts) are converted by `as_text`.
    streaming : bool
        True if this is a stream, which has no end, and starts at `LATEST` by default.

    Returns
    -------
    SourceOptions

    Raises
    ------
    RequestError
        For an invalid value, options that exclude each other, and unknown names.
    """
    values = _Values(given)
    _check_names(values)
    if not streaming:
        for name in _ONLY_IN_STREAMS:
            if name in values:
                warnings.warn(f"{name} has no effect in a batch read", stacklevel=2)
    chosen = [name for name in ("subscribe", "subscribePattern", "assign") if name in values]
    if len(chosen) > 1:
        raise RequestError(f"{' and '.join(chosen)}: only one of subscribe, subscribePattern and assign may be given")
    reading = _reading(values)
    if streaming and reading.on_corrupt == "stop":
        raise RequestError(
            "onCorrupt=stop: a stream would continue after the damage with its next batch; use raise or skip"
        )
    memory_map = values.read("memoryMap", _boolean, False)
    if streaming and memory_map:
        raise RequestError("memoryMap: a stream reads files that a broker writes to: only a batch read may map files")
    starting, ending = _bounds(values, streaming)
    return SourceOptions(
        topics=values.read("subscribe", _topics, ()),
        pattern=values.read("subscribePattern", _regex, ""),
        assigned=values.read("assign", _parse_assigned, ()),
        starting=starting,
        ending=ending,
        no_match_is_latest=values.word("startingOffsetsByTimestampStrategy", ("error", "latest")) == "latest",
        min_partitions=values.read("minPartitions", _positive, 0),
        max_records=values.read("maxRecordsPerPartition", _positive, 0),
        max_offsets=values.read("maxOffsetsPerTrigger", _positive, 0),
        min_offsets=values.read("minOffsetsPerTrigger", _positive, 0),
        max_delay_seconds=values.read("maxTriggerDelay", _duration, 900.0),
        fail_on_data_loss=values.read("failOnDataLoss", _boolean, True),
        reading=reading,
        at_high_watermark=values.word("endingAt", ("logEnd", "highWatermark")) == "highWatermark",
        range_bytes=values.read("rangeBytes", _size, RANGE_BYTES),
        batch_rows=values.read("batchRows", _positive, BATCH_ROWS),
        batch_bytes=values.read("batchBytes", _size, BATCH_BYTES),
        columns=values.read("columns", _topics, ()),
        include_headers=values.read("includeHeaders", _boolean, False),
        include_metadata=values.read("includeMetadata", _boolean, False),
        include_active=values.read("includeActive", _boolean, True),
        storage_options=_storage(values),
        tier=values.read("tier", _tier, None),
        memory_map=memory_map,
        **_read_decoding(values),
    )


def _storage(values: _Values) -> dict[str, Any]:
    """Return the options of the store, with the place of a tier's keys: executors may have another environment."""
    nothing: dict[str, Any] = {}
    none: list[str] = []
    storage, keys = values.read("storageOptions", _object, nothing), os.environ.get(KEYS_VARIABLE)
    paths = [*values.read("path", _paths, none), *values.read("paths", _paths, none)]
    reads_tier = "tier" in values or any(map(is_tier, paths))
    return {KEYS_OPTION: os.path.abspath(keys), **storage} if keys and reads_tier else storage


def _tier(text: str) -> str:
    if not is_tier(text):
        raise ValueError("not the URL of a tier, such as aiven+s3://bucket/prefix")
    return text


def _read_decoding(values: _Values) -> dict[str, Any]:
    none: tuple[str, ...] = ()
    decoding = values.read("decoding", _topics, none)
    if not {*decoding} <= {"key", "value"} or len({*decoding}) < len(decoding):
        raise RequestError(f"decoding={','.join(decoding)!r}: must be value, key, or key,value")
    more = [name for name in ("schema", "registry", "onUndecoded", "message", "showSecrets") if name in values]
    if more and not decoding:
        raise RequestError(f"{', '.join(more)}: only with decoding=value")
    return {
        "decoding": decoding,
        "schema": values.read("schema", str, ""),
        "registry": values.read("registry", str, ""),
        "on_undecoded": values.word("onUndecoded", ("raw", "raise", "skip")),
        "message": values.read("message", str, ""),
        "show_secrets": values.read("showSecrets", _boolean, False),
    }


def paths_of(given: Mapping[str, Any]) -> list[str]:
    """Return the paths of `load(path)` or of option ``path`` or ``paths``, a comma-separated or a JSON list."""
    values = _Values(given)
    paths = _paths(values.read("paths", str, "") or values.read("path", str, ""))
    if not paths or not all(paths):
        raise RequestError(
            'no path: load("/var/lib/kafka/data") needs a log directory, a partition\'s folder, or a URL of one'
        )
    return paths


def _paths(text: str) -> list[str]:
    paths = _strings(text, "path") if text.lstrip().startswith("[") else [part.strip() for part in text.split(",")]
    return [re.sub("^file:/+", "/", path) for path in paths]  # as Spark writes paths of this machine


def for_table(given: Mapping[str, Any]) -> dict[str, str] | None:
    """Return the options that a catalog stores for a table, without its own additions; None outside a catalog.

    Credentials are refused: these options become part of the table's schema, and of everything made from it.
    """
    values = {name.lower(): as_text(value) for name, value in given.items()}
    options = {name.removeprefix("option."): values[name] for name in values if name.startswith("option.")}
    if "owner" not in values and not options:
        return None
    kept = {name: value for name, value in options.items() if not _BROKER_ONLY.fullmatch(name)}
    kept.update({name: values[name] for name in ("path", "paths") if name in values})
    for name in ("path", "paths", "registry", "tier", "storageoptions"):
        if name in kept and (name == "storageoptions" or _SECRETS.search(kept[name])):
            raise RequestError(
                f"{'storageOptions' if name == 'storageoptions' else name}: a table cannot keep credentials: "
                "they would be in the schema of everything that is made from it. Put them into the environment or the "
                "configuration files of fsspec, or into the query: SELECT ... FROM t WITH (storageOptions = '...')"
            )
    check_names(kept)
    return kept


def parse_offsets_by_topic(text: str, name: str) -> dict[TopicPartition, int]:
    """Parse numbers by topic and partition, as in ``{"orders": {"0": 23, "1": -2}}``; errors name the option."""
    example = f'{name} must be JSON like {{"orders": {{"0": 23, "1": -2}}}}'
    try:
        parsed = json.loads(text)
        return {
            (topic, int(partition)): _int(number)
            for topic, numbers in parsed.items()
            for partition, number in numbers.items()
        }
    except (ValueError, TypeError, AttributeError) as error:
        raise RequestError(f"{example}, not {text!r}: {error}") from None


def _int(number: Any) -> int:
    if isinstance(number, bool) or not isinstance(number, int):
        raise ValueError(f"{number!r} is not a whole number")
    return number


class _Values:
    """Option values by name in any case; errors name the option."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self._texts = {str(name).lower(): as_text(value) for name, value in given.items() if value is not None}

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._texts

    def __iter__(self) -> Any:
        return iter(self._texts)

    def read(self, name: str, make: Callable[[str], _Value], default: _Value) -> _Value:
        """Parse a value; an error of the parser gets the name of the option."""
        text = self._texts.get(name.lower())
        if text is None:
            return default
        try:
            return make(text)
        except RequestError:
            raise
        except ValueError as error:
            raise RequestError(f"{name}={text!r}: {error}") from None

    def word(self, name: str, allowed: Sequence[str]) -> str:
        """Return one of a few words, in any case; the first is the default."""
        text = self._texts.get(name.lower(), allowed[0])
        allowed_word = next((word for word in allowed if word.lower() == text.strip().lower()), None)
        if allowed_word is None:
            raise RequestError(f"{name}={text!r}: must be one of {', '.join(allowed)}")
        return allowed_word


def as_text(value: Any) -> str:
    """Return a value as the text of a Spark option: booleans in lower case, lists and dicts as JSON."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return value
    return json.dumps(list(value) if isinstance(value, tuple) else value, default=os.fspath)


def check_names(given: Mapping[str, Any]) -> None:
    """Raise RequestError for an unknown option; warn about options without effect on files."""
    _check_names(_Values(given))


def _check_names(values: _Values) -> None:
    names = {name.lower(): name for name in _NAMES}
    ignored = []
    for name in values:
        if name in names or _OF_SPARK.fullmatch(name):
            continue
        if _BROKER_ONLY.fullmatch(name):
            ignored.append(name)
            continue
        close = difflib.get_close_matches(name, names, 1, 0.8)
        meant = _MEANT.get(name) or (names[close[0]] if close else None)
        hint = f". Did you mean {meant!r}?" if meant else f"; there are: {', '.join(_NAMES)}"
        raise RequestError(f"unknown option {name!r}{hint}")
    if ignored:
        warnings.warn(f"no effect without a broker: {', '.join(sorted(ignored))}", stacklevel=3)


def _bounds(values: _Values, streaming: bool) -> tuple[Bound, Bound]:
    starting = _read_bound(values, "starting", LATEST if streaming else EARLIEST)
    if streaming:
        for name in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"):
            if name in values:
                raise RequestError(f"{name}: a stream has no end")
        return starting, TO_LATEST
    if starting.kind == "offset" and (starting.default == LATEST or LATEST in starting.of.values()):
        raise RequestError("startingOffsets: a batch read cannot start at latest (-1)")
    ending = _read_bound(values, "ending", LATEST)
    if ending.kind == "offset" and (ending.default == EARLIEST or EARLIEST in ending.of.values()):
        raise RequestError("endingOffsets: a read cannot end at earliest (-2)")
    if starting.of and ending.of and starting.of.keys() != ending.of.keys():
        odd = ", ".join(f"{topic}-{number}" for topic, number in sorted(starting.of.keys() ^ ending.of.keys()))
        raise RequestError(f"start and end must name the same partitions; only one of them has {odd}")
    for which, start in starting.of.items():
        end = ending.of.get(which, LATEST)
        if starting.kind == ending.kind and start >= 0 and end >= 0 and start > end:
            raise RequestError(f"{which[0]}-{which[1]} would start at {start}, after its end {end}")
    return starting, ending


def _read_bound(values: _Values, end: Literal["starting", "ending"], default: int) -> Bound:
    """Return the start or end. As in Spark, a time for all overrides times by partition, and these offsets."""
    if f"{end}Timestamp" in values:
        return Bound("time", values.read(f"{end}Timestamp", _moment, 0), {})
    by_time = f"{end}OffsetsByTimestamp"
    if by_time in values:
        times: dict[TopicPartition, int] = values.read(by_time, lambda text: parse_offsets_by_topic(text, by_time), {})
        for (topic, number), time in times.items():
            if time < 0:
                raise RequestError(f"{by_time}: {time} of {topic}-{number} is not a time in milliseconds since 1970")
        return Bound("time", None, times)
    name = f"{end}Offsets"
    words = {"earliest": EARLIEST, "latest": LATEST}

    def make(text: str) -> Bound:
        word = words.get(text.strip().lower())
        if word is not None:
            return Bound("offset", word, {})
        offsets = parse_offsets_by_topic(text, name)
        for (topic, number), offset in offsets.items():
            if offset < EARLIEST:
                raise RequestError(f"{name}: {offset} of {topic}-{number} is neither an offset nor -1 or -2")
        return Bound("offset", None, offsets)

    return values.read(name, make, Bound("offset", default, {}))


def _reading(values: _Values) -> Reading:
    """Return the reading of the options that `Reading` declares for Spark; Kafka's name of isolation works, too."""
    chosen: dict[str, Any] = {}
    for name, (of, declared) in options_of(Reading).items():
        if not declared.spark or declared.spark not in values:
            continue
        if declared.words and name != "isolation_level":
            chosen[name] = values.word(declared.spark, declared.words)
        else:
            chosen[name] = values.read(declared.spark, _PARSERS[declared.parse or str(of.type)], of.default)
    if "isolation_level" not in chosen:
        chosen["isolation_level"] = values.read("kafka.isolation.level", _level, "read_uncommitted")
    return Reading(**chosen)


def _level(text: str) -> str:
    if text not in options_of(Reading)["isolation_level"][1].words:
        raise ValueError("must be read_uncommitted or read_committed, in lower case as for Kafka's consumers")
    return text


def _topics(text: str) -> tuple[str, ...]:
    names = _strings(text, "a list") if text.lstrip().startswith("[") else [name.strip() for name in text.split(",")]
    if not any(names):
        raise ValueError("must name at least one topic")
    return tuple(dict.fromkeys(filter(None, names)))


def _strings(text: str, what: str) -> list[str]:
    items = json.loads(text)
    if not all(isinstance(item, str) for item in items):
        raise RequestError(f"{what} {text!r}: must be a JSON list of strings")
    return list(items)


def _regex(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"invalid Python regular expression: {error}") from None
    return text


def _parse_assigned(text: str) -> tuple[TopicPartition, ...]:
    try:
        parsed = json.loads(text)
        chosen = [(topic, _int(number)) for topic, numbers in parsed.items() for number in numbers]
    except (ValueError, TypeError, AttributeError):
        chosen = []
    if not chosen:
        raise ValueError('must be JSON like {"orders": [0, 1]}')
    return tuple(dict.fromkeys(chosen))


def _object(text: str) -> dict[str, Any]:
    parsed = json.loads(text)
    if not isinstance(parsed, dict):
        raise ValueError('must be a JSON object, like {"key": "...", "secret": "..."}')
    return parsed


def _boolean(text: str) -> bool:
    value = {"true": True, "false": False}.get(text.lower())
    if value is None:
        raise ValueError("must be true or false")
    return value


def _positive(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,19}", text) or int(text) == 0:
        raise ValueError("must be a whole number above 0, without spaces")
    return int(text)


def _moment(text: str) -> int:
    if not re.fullmatch(r"\s*[0-9]{1,19}\s*", text):
        raise ValueError("must be milliseconds since 1970")
    return int(text)


def _size(text: str) -> int:
    match = re.fullmatch(r"\s*([0-9]{1,18})\s*([a-zA-Z]*)\s*", text)
    if match is None or match[2].lower() not in _BYTES or int(match[1]) == 0:
        raise ValueError("must be a size above 0, like 134217728 or 128m")
    return int(match[1]) << _BYTES[match[2].lower()]


#: By the form or the type of an option of `Reading`.
_PARSERS: dict[str, Callable[[str], Any]] = {"size": _size, "bool": _boolean, "IsolationLevel": _level}


def _duration(text: str) -> float:
    match = re.fullmatch(r"\s*([0-9]{1,18})\s*([a-zA-Z]+)\s*", text)
    if match is None or match[2].lower() not in _SECONDS:
        raise ValueError("must be a time like 30s, 15m or 1h")
    return int(match[1]) * _SECONDS[match[2].lower()]
