"""The columns of the tables about a disk. Arrow, SQL, Spark, JSON and the documents take them from here.

Names are those of Kafka's sources where it has one: a batch has a ``maxTimestamp`` (the field of its header), a segment
a ``largestTimestamp`` and a ``size`` (methods of `LogSegment`), and the offset after the last one is ``nextOffset`` (of
`RecordBatch`): ``endOffset`` is inclusive in Kafka's metadata of remote segments.
"""

from __future__ import annotations

from pylogseg.format.codecs import CODEC_NAMES
from pylogseg.format.columns import TableColumn

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
    TableColumn("codec", "string", f"{', '.join(CODEC_NAMES[:-1])} or {CODEC_NAMES[-1]}"),
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

#: Of a `Histogram`.
SIZES = (
    TableColumn("count", "int64", "sizes"),
    TableColumn("total", "int64", "their sum", "bytes"),
    TableColumn("min", "int64", "the smallest", "bytes", source="known_least"),
    TableColumn("mean", "float64", "their mean", "bytes", source="rounded_mean"),
    TableColumn(
        "p50", "int64", "percentiles: at most 6 % too high", "bytes", source=lambda sizes: sizes.percentile(50)
    ),
    TableColumn("p90", "int64", "as `p50`", "bytes", source=lambda sizes: sizes.percentile(90)),
    TableColumn("p99", "int64", "as `p50`", "bytes", source=lambda sizes: sizes.percentile(99)),
    TableColumn("max", "int64", "the largest", "bytes", source="known_largest"),
)
#: Of batches of one codec.
CODEC = (
    TableColumn("batches", "int64", "their number"),
    TableColumn("records", "int64", "in these"),
    TableColumn("storedBytes", "int64", "whole batches in the files", "bytes"),
    TableColumn("bodyBytes", "int64", "their records, compressed", "bytes"),
    TableColumn("rawBytes", "int64", "their records, decompressed", "bytes"),
    TableColumn("ratio", "float64", "decompressed to compressed", source="rounded_ratio"),
)
_MISSING = (
    TableColumn("markers", "int64", "used by control records"),
    TableColumn("belowLogStart", "int64", "deleted by retention or a client", source="below_start"),
    TableColumn("belowLogStartStillInFiles", "int64", "of these", source="still_there"),
    TableColumn("compaction", "int64", "removed by the cleaner"),
    TableColumn("damage", "int64", "in batches that cannot be read"),
    TableColumn("unexplained", "int64", "between two batches, without a trace of the reason"),
    TableColumn("notLookedAt", "int64", "in segments without a key", source="unread"),
)
_RANGE = (
    TableColumn("partition", "string", "its name", source="name"),
    TableColumn("first", "int64", "missing offset", source="first_offset"),
    TableColumn("last", "int64", "missing offset, inclusive", source=lambda missing: missing.end_offset - 1),
    TableColumn("count", "int64", "of offsets", source=lambda missing: missing.end_offset - missing.first_offset),
    TableColumn("reason", "string", "as in `missingOffsets`"),
)

#: What `stats` counts, of a partition, a topic or all together.
STATS = (
    TableColumn("name", "string", "of the partition or topic; `all`"),
    TableColumn("partitions", "int32", "their number"),
    TableColumn("segments", "int32", "their number", source="stats.segments"),
    TableColumn("size", "int64", "of the segments", "bytes", source="stats.size_bytes"),
    TableColumn("batches", "int64", "their number", source="stats.batches"),
    TableColumn("emptyBatches", "int64", "batches whose records the cleaner removed", source="stats.empty_batches"),
    TableColumn("controlBatches", "int64", "batches of control records", source="stats.control_batches"),
    TableColumn(
        "transactionalBatches",
        "int64",
        "batches of transactions, markers among them",
        source="stats.transactional_batches",
    ),
    TableColumn("records", "int64", "without control records", source="stats.records"),
    TableColumn("controlRecords", "map<string, int64>", "by type", source="markers"),
    TableColumn("codecs", "map<string, struct>", "by codec", fields=CODEC),
    TableColumn("magics", "map<string, int64>", "batches by version of the format"),
    TableColumn("timestampTypes", "map<string, int64>", "batches by type of their timestamps", source="time_types"),
    TableColumn("leastTimestamp", "timestamp", "the least of the records", source="stats.least_timestamp"),
    TableColumn("largestTimestamp", "timestamp", "the largest of the records", source="stats.largest_timestamp"),
    TableColumn("recordBytes", "struct", "keys and values, without framing", fields=SIZES, source="stats.record_sizes"),
    TableColumn("keyBytes", "struct", "keys", fields=SIZES, source="stats.key_sizes"),
    TableColumn("valueBytes", "struct", "values", fields=SIZES, source="stats.value_sizes"),
    TableColumn("nullKeys", "int64", "records without a key", source="stats.null_keys"),
    TableColumn("distinctKeys", "int64", "different keys", source="stats.keys.count"),
    TableColumn("distinctKeysExact", "bool", "false: an estimate, within about 1 %", source="stats.keys.is_exact"),
    TableColumn("tombstones", "int64", "records with a key and without a value", source="stats.tombstones"),
    TableColumn("headers", "int64", "of all records", source="stats.headers"),
    TableColumn("producers", "int32", "different producer ids"),
    TableColumn(
        "dirtyRatio", "float64", "share of the bytes of sealed segments that is not cleaned; null without a cleaner"
    ),
    TableColumn("missingOffsets", "struct", "by reason", fields=_MISSING, source="missing"),
    TableColumn("missingRanges", "list<struct>", "of offsets", fields=_RANGE, source="ranges"),
    TableColumn("missingRangesNotListed", "int64", "ranges that are only counted", source="unlisted"),
    TableColumn("gaps", "list<string>", "damage, and ranges without a trace of the reason"),
)

#: The same of a range of time: nothing is missing there.
STATS_OF_RANGE = tuple(
    column for column in STATS if not column.name.startswith("missing") and column.name != "dirtyRatio"
)

_RECORDS = TableColumn("records", "int64", "without control records")
_BYTES = TableColumn("bytes", "int64", "of their keys and values", "bytes")
#: What `stats` counts by hour, and by key.
HOURS = (_TOPIC, TableColumn("hour", "timestamp", "its begin, in UTC; of the records' timestamps"), _RECORDS, _BYTES)
KEYS = (_TOPIC, TableColumn("key", "binary", "of the records; null for those without"), _RECORDS, _BYTES)

#: What an export by date says of each file, and of a part of a log without one.
EXPORTED = (
    _TOPIC,
    _PARTITION,
    TableColumn("baseOffset", "int64", "of the segment; of what is missing, the first offset"),
    TableColumn("state", "string", "written, unchanged, to do, gone, skipped (behind damage that stops) or missing"),
    TableColumn("path", "string", "of the file; null if there is none"),
    TableColumn("records", "int64", "in the file"),
    TableColumn("size", "int64", "of the file", "bytes", source="size_bytes"),
    TableColumn("problem", "string", "what could not be read; null for the others"),
)

#: What a restore of rows says of each partition.
RESTORED = (
    _TOPIC,
    _PARTITION,
    TableColumn("state", "string", "written, unchanged or to do"),
    TableColumn("path", "string", "of the folder"),
    TableColumn("firstOffset", "int64", "of the rows"),
    TableColumn("nextOffset", "int64", "after the last row"),
    TableColumn("records", "int64", "their number"),
    TableColumn("segments", "int32", "their number"),
    TableColumn("size", "int64", "of the segments", "bytes"),
)

#: What `pylogseg.spark.segments` tells by names and indexes, besides columns of `SEGMENTS`: no segment is opened.
NEXT_SEGMENT = TableColumn("nextSegmentBaseOffset", "int64", "base offset of the next segment; null for the last one")
INDEX_ENTRIES = TableColumn("indexEntries", "int32", "of the offset index; null if it is missing")
LISTED_SEGMENTS = (
    *(column for column in SEGMENTS if column.name not in ("companions", "error", "firstTimestamp", "nextOffset")),
    NEXT_SEGMENT,
    INDEX_ENTRIES,
)
