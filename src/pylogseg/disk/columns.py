"""The columns of the tables of what is on a disk. Arrow, SQL, Spark, JSON and the documents take them from here.

Names are those of Kafka's sources where it has one: a batch has a ``maxTimestamp`` (the field of its header), a segment
a ``largestTimestamp`` and a ``size`` (methods of `LogSegment`), and the offset after the last one is ``nextOffset`` (of
`RecordBatch`): ``endOffset`` is inclusive in Kafka's metadata of remote segments.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

#: Types, with the names that Arrow has for them; times are UTC in microseconds, in JSON milliseconds since 1970.
ColumnType = Literal["string", "bool", "int16", "int32", "int64", "timestamp", "list<int64>", "list<string>"]

_SPARK_TYPES: dict[ColumnType, str] = {
    "string": "string",
    "bool": "boolean",
    "int16": "smallint",
    "int32": "int",
    "int64": "bigint",
    "timestamp": "timestamp",
    "list<int64>": "array<bigint>",
    "list<string>": "array<string>",
}


class TableColumn(NamedTuple):
    """A column of a table."""

    name: str
    type: ColumnType
    meaning: str
    unit: str = ""
    is_read: bool = False  #: Whether a segment is opened for it; else the listing of the folder says it.


_TOPIC = TableColumn("topic", "string", "by the folder's name")
_PARTITION = TableColumn("partition", "int32", "by the folder's name")
_SEGMENT = TableColumn("segment", "string", "name of the segment's file")
_PRODUCER_ID = TableColumn("producerId", "int64", "of the idempotent or transactional producer; -1 for none")
_FIRST_TIMESTAMP = TableColumn("firstTimestamp", "timestamp", "of the first record that has one", is_read=True)
_ERROR = TableColumn("error", "string", "why it could not be read; null for the others", is_read=True)

#: A stretch of bytes without a good batch has a `problem`, and nulls for what is not known of it.
BATCHES = (
    _TOPIC,
    _PARTITION,
    _SEGMENT,
    TableColumn("position", "int64", "of the batch in its file", "bytes"),
    TableColumn("size", "int64", "of the whole batch, header included", "bytes"),
    TableColumn("baseOffset", "int64", "offset of the first record when the batch was written"),
    TableColumn("lastOffset", "int64", "offset of the last record when it was written"),
    TableColumn("count", "int32", "records"),
    TableColumn("magic", "int32", "version of the format: 0, 1 or 2"),
    TableColumn("codec", "string", "none, gzip, snappy, lz4 or zstd"),
    TableColumn("timestampType", "int32", "0 CreateTime, 1 LogAppendTime, -1 none (magic 0)"),
    TableColumn("maxTimestamp", "timestamp", "the largest of the records, by the header"),
    TableColumn("leaderEpoch", "int32", "of the leader that appended it; -1 for none"),
    _PRODUCER_ID,
    TableColumn("producerEpoch", "int16", "-1 for none"),
    TableColumn("baseSequence", "int32", "sequence of the first record; -1 for none"),
    TableColumn("isTransactional", "bool", "part of a transaction; its marker too"),
    TableColumn("isControl", "bool", "holds control records, which are not data"),
    TableColumn("problem", "string", "what is wrong with bytes that are not a good batch; null for a batch"),
)

SEGMENTS = (
    _TOPIC,
    _PARTITION,
    _SEGMENT,
    TableColumn("path", "string", "of the segment's file"),
    TableColumn("state", "string", "active (the last one of its partition) or sealed"),
    TableColumn("baseOffset", "int64", "by the file's name"),
    TableColumn("nextOffset", "int64", "after the last whole batch", is_read=True),
    TableColumn("size", "int64", "of the file", "bytes"),
    TableColumn("modified", "timestamp", "when the file was last written"),
    _FIRST_TIMESTAMP,
    TableColumn("largestTimestamp", "timestamp", "the largest of its batches", is_read=True),
    TableColumn("companions", "list<string>", "indexes and snapshots beside it, as their names end"),
    _ERROR,
)

PARTITIONS = (
    _TOPIC,
    _PARTITION,
    TableColumn("state", "string", "live, unreadable, or that in the folder's name: delete, future, stray"),
    TableColumn("path", "string", "of the folder"),
    TableColumn("segments", "int32", "their number"),
    TableColumn("logStartOffset", "int64", "the first offset that clients can read"),
    TableColumn("logEndOffset", "int64", "after the last record", is_read=True),
    TableColumn("size", "int64", "of the segments", "bytes"),
    TableColumn("diskBytes", "int64", "of all files in the folder", "bytes"),
    _FIRST_TIMESTAMP,
    TableColumn("newestTimestamp", "timestamp", "the largest in the last segment that has any", is_read=True),
    TableColumn("missingSegments", "list<int64>", "base offsets of segments with indexes and no log", is_read=True),
    _ERROR,
)

#: A row for each entry. Where a file is damaged, `problem` says why, and what is not known is null.
INDEXES = (
    _TOPIC,
    _PARTITION,
    _SEGMENT,
    TableColumn("index", "string", "index, timeindex or txnindex"),
    TableColumn("slot", "int32", "number of the entry in its file, from 0"),
    TableColumn("offset", "int64", "of an offset or time index"),
    TableColumn("position", "int64", "of an offset index: where the batch begins", "bytes"),
    TableColumn("timestamp", "timestamp", "of a time index: the largest up to the offset"),
    TableColumn("producerId", "int64", "of a transaction index, as the next ones: who aborted"),
    TableColumn("firstOffset", "int64", "of the aborted transaction"),
    TableColumn("lastOffset", "int64", "of its marker"),
    TableColumn("lastStableOffset", "int64", "when it was aborted"),
    TableColumn("problem", "string", "what is wrong with the file; null for an entry"),
)

#: The tables by name, as SQL and `pylogseg.dataset` know them.
TABLES = {"batches": BATCHES, "segments": SEGMENTS, "partitions": PARTITIONS, "indexes": INDEXES}

#: What `pylogseg.spark.segments` tells by names and indexes, besides columns of `SEGMENTS`: no segment is opened.
NEXT_SEGMENT = TableColumn("nextSegmentBaseOffset", "int64", "base offset of the next segment; null for the last one")
INDEX_ENTRIES = TableColumn("indexEntries", "int32", "of the offset index; null if it is missing")
LISTED_SEGMENTS = (
    *(column for column in SEGMENTS if column.name not in ("companions", "error", "firstTimestamp", "nextOffset")),
    NEXT_SEGMENT,
    INDEX_ENTRIES,
)


def spark_ddl(columns: Iterable[TableColumn]) -> str:
    """Return columns as a schema that Spark parses."""
    return ", ".join(f"`{column.name}` {_SPARK_TYPES[column.type]}" for column in columns)


def markdown(columns: Iterable[TableColumn]) -> str:
    """Return columns as a table of a document."""
    rows = [f"| `{c.name}` | `{c.type}` | {c.meaning}{f' ({c.unit})' if c.unit else ''} |\n" for c in columns]
    return "| column | type | meaning |\n|---|---|---|\n" + "".join(rows)
