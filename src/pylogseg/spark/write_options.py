"""The options of `df.write.format("pylogseg")`, and the columns that it needs."""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Callable, Mapping
from typing import Any

from pylogseg.errors import RequestError
from pylogseg.format.names import check_topic
from pylogseg.offline.restoring.partition import RestoreOptions
from pylogseg.offline.restoring.rows import COLUMNS, WriteOptions

_UNITS = {"": 0, "b": 0, "k": 10, "kb": 10, "m": 20, "mb": 20, "g": 30, "gb": 30}
#: Names that Spark itself adds to the options.
_OF_SPARK = re.compile(r"path|paths|serialization\.format|provider|__.*")


def parse_write(given: Mapping[str, Any], *, takes_urls: bool = False) -> WriteOptions:
    """Parse the options of a write; names in any case. With `takes_urls`, the path may be a URL."""
    texts = {str(name).lower(): value if isinstance(value, str) else json.dumps(value) for name, value in given.items()}
    values = {name: _read(texts, name, make) for name, make in _OPTIONS.items() if name.lower() in texts}
    names = {name.lower(): name for name in _OPTIONS}
    for name in texts:
        if name not in names and not _OF_SPARK.fullmatch(name):
            close = difflib.get_close_matches(name, names, 1, 0.7)
            meant = f". Did you mean {names[close[0]]!r}?" if close else f"; there are: {', '.join(_OPTIONS)}"
            raise RequestError(f"unknown option {name!r} for a write{meant}")
    restored = {_FIELDS[name]: values[name] for name in values.keys() & _FIELDS.keys()}
    topic, partitions = values.get("topic", ""), values.get("partitions", 0)
    return WriteOptions(_root(texts.get("path", ""), takes_urls), topic, partitions, RestoreOptions(**restored))


def check_row_columns(names: Mapping[str, str], options: WriteOptions) -> None:
    """Check the columns of the rows, by Spark's names of types (``bigint``), before anything is written."""
    for name, kinds in COLUMNS.items():
        if name in names and names[name] not in kinds:
            raise RequestError(f"column {name} must be {' or '.join(kinds)}, not {names[name]}")
    if "value" not in names:
        raise RequestError(f"no column value to write; there are: {', '.join(names)}")
    if "topic" not in names and not options.topic:
        raise RequestError('no topic: add a column topic, or option("topic", "orders")')
    if "partition" not in names and not options.partitions:
        raise RequestError('no partition: add a column partition, or option("partitions", 12) for their number')
    if options.restore.offsets == "keep" and "offset" not in names:
        raise RequestError('no column offset to keep: option("offsets", "assign") assigns new offsets')


def _read(texts: Mapping[str, str], name: str, make: Callable[[str], Any]) -> Any:
    text = texts[name.lower()]
    try:
        return make(text.strip())
    except RequestError:
        raise
    except ValueError as error:
        raise RequestError(f"{name}={text!r}: {error}") from None


def _root(path: str, takes_urls: bool) -> str:
    if not path:
        raise RequestError('no path: save("/var/lib/kafka/restored") needs the folder for the partitions')
    path = path.removeprefix("file://")
    if "://" in path and takes_urls:
        return path
    if "://" in path:
        raise RequestError(
            f"{path}: partitions are put in place by renames, which object stores do not have; write to a folder that "
            "all workers share, or to the store by the job: pylogseg.spark.jobs.restore(spark, df, path)"
        )
    return os.path.abspath(path)


def _size(text: str) -> int:
    match = re.fullmatch(r"([0-9]{1,18})\s*([a-zA-Z]*)", text)
    if match is None or match[2].lower() not in _UNITS or int(match[1]) == 0:
        raise ValueError("must be a size above 0, like 1073741824 or 1g")
    return int(match[1]) << _UNITS[match[2].lower()]


def _number(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,19}", text):
        raise ValueError("must be a whole number")
    return int(text)


def _topic(text: str) -> str:
    check_topic(text)
    return text


def _topic_ids(text: str) -> dict[str, str]:
    ids = json.loads(text)
    if not isinstance(ids, dict) or not all(isinstance(value, str) for value in ids.values()):
        raise ValueError('must be JSON like {"orders": "qvJxX8QJTdCZPuKqMEMk1w"}')
    return ids


_OPTIONS: dict[str, Callable[[str], Any]] = {
    #: topic of all rows
    "topic": _topic,
    #: number of partitions of a topic: a row without `partition` goes where Kafka's producer sends its key
    "partitions": _number,
    #: default `keep`; `keep` needs a column `offset` that ascends in each partition; `assign` numbers the records from
    #: `baseOffset` (0) on
    "offsets": str.lower,
    "baseOffset": _number,
    #: default `none`; codec of the batches
    "compression": str.lower,
    #: sizes of segments (default `1g`), and of batches before compression (`16k`)
    "segmentBytes": _size,
    "batchBytes": _size,
    #: default `keep`; `keep` uses the column; `create` and `append` are for all records
    "timestampType": str.lower,
    #: default 0; epoch of all batches
    "leaderEpoch": _number,
    #: JSON of topic to id for `partition.metadata`, which a KRaft broker needs
    "topicIds": _topic_ids,
}
_FIELDS = {
    "offsets": "offsets",
    "baseOffset": "base_offset",
    "compression": "compression",
    "segmentBytes": "segment_bytes",
    "batchBytes": "batch_bytes",
    "timestampType": "timestamp_type",
    "leaderEpoch": "leader_epoch",
    "topicIds": "topic_ids",
}
