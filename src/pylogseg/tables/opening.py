"""Open tables of what `open_dir` finds: one as a `pylogseg.dataset`, or all by their names, as SQL has them."""

from __future__ import annotations

import functools
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypedDict

from pylogseg.disk.disk import Disk, Partition, Segment
from pylogseg.disk.listing import as_disk
from pylogseg.errors import RequestError
from pylogseg.format.names import METADATA_TOPIC
from pylogseg.reading.column_names import BATCH_COLUMNS, check_columns
from pylogseg.reading.log_reader import ReadScope
from pylogseg.reading.logs import logs_of, partitions_of, topics_of
from pylogseg.reading.partition import OPEN_END, IsolationLevel, OnCorrupt, ReadOptions
from pylogseg.reading.scan import LogScan, Table
from pylogseg.reading.stream import Path
from pylogseg.tables.dataset import TableDataset

if TYPE_CHECKING:
    from pylogseg.values.decoding import Decoding, OnUndecoded, SchemaChoice
    from pylogseg.values.schemas.store import Schemas

#: What engines count rows by, first: it needs no payload, and they ask for the first column where they need none.
COLUMNS = ("topic", "partition", "offset", "timestamp", "timestampType", "key", "value", "headers", *BATCH_COLUMNS)

Opener = Callable[[], Table]
TopicOpener = Callable[..., Table]

#: Tables of `pylogseg.cluster_state` by the topic that they come from.
STATE = {
    "__consumer_offsets": ("groups", "group_members", "group_offsets", "group_lags"),
    "__share_group_state": ("share_offsets",),
    "__transaction_state": ("transactions", "open_transactions", "producers"),
    "_schemas": ("schemas",),
    "__remote_log_metadata": ("remote_segments",),
    METADATA_TOPIC: ("topics", "cluster_partitions", "configs", "brokers", "acls", "quotas", "users", "features"),
}
#: Tables of the whole disk.
_OF_DISK = ("records", "batches", "segments", "partitions", "indexes")


class RecordOptions(TypedDict, total=False):
    """Options of `dataset` for records."""

    isolation_level: IsolationLevel
    on_corrupt: OnCorrupt
    columns: Sequence[str] | None
    control: bool
    check_crc: bool
    from_log_start: bool
    max_decompressed_bytes: int
    decoding: str | Sequence[str] | Decoding | None
    schema: SchemaChoice | Mapping[str, SchemaChoice] | None
    registry: Path | Schemas | None
    on_undecoded: OnUndecoded | None


def dataset(
    path: Path | Sequence[Path] | Disk | Partition | Sequence[Partition],
    topic: str | Sequence[str] | None = None,
    partition: int | Sequence[int] | None = None,
    *,
    of: str = "records",
    isolation_level: IsolationLevel = "read_uncommitted",
    on_corrupt: OnCorrupt = "raise",
    columns: Sequence[str] | None = None,
    control: bool = False,
    check_crc: bool = True,
    from_log_start: bool = True,
    max_decompressed_bytes: int = 64 << 20,
    decoding: str | Sequence[str] | Decoding | None = None,
    schema: SchemaChoice | Mapping[str, SchemaChoice] | None = None,
    registry: Path | Schemas | None = None,
    on_undecoded: OnUndecoded | None = None,
) -> TableDataset:
    """Return logs as a dataset, for duckdb, polars, DataFusion, pandas and pyarrow.

    An engine tells a dataset which columns and rows a query needs. Only these are read: partitions, segments and ranges
    of segments that cannot have a matching row are left out by their names and indexes, and the rest is filtered.

    Parameters
    ----------
    path : path, URL, list of them, Disk, Partition or list of partitions
        As for `pylogseg.read`.
    topic : str or list of str, optional
        Topics, partitions (``"orders-3"``) or shell patterns; all live partitions by default.
    partition : int or list of int, optional
        Only partitions with these numbers.
    of : {"records", "batches", "segments", "partitions", "indexes"}, or a table of `pylogseg.cluster_state`
        What the rows are: records, headers of batches, segments, partitions, or entries of indexes; a column `problem`
        or `error` describes damage. Or a table about the cluster: ``"groups"``, ``"group_offsets"``, ``"topics"``, ...;
        the cluster's partitions are ``"cluster_partitions"``.
    isolation_level, on_corrupt, control, check_crc, from_log_start, max_decompressed_bytes
        As for `pylogseg.read`; `TableDataset.gaps` has the gaps.
    columns : sequence of str, optional
        The columns of the dataset; by default all: those of `read_arrow`, and those about batches.
    decoding, schema, registry, on_undecoded
        As for `pylogseg.read_arrow`: keys and values as typed columns. A filter may be about their fields, as
        ``pyarrow.compute.field("value", "id") == 5``. `TableDataset.undecoded` counts what did not decode.

    Returns
    -------
    TableDataset
        A `pyarrow.dataset.Dataset`. It is a snapshot: make another one to see what was appended since.

    Raises
    ------
    RequestError
        For invalid arguments and unknown names.
    StorageError
        If a folder cannot be listed.

    Examples
    --------
    >>> import pylogseg
    >>> import pyarrow.compute as pc
    >>> found = pylogseg.dataset("examples/data", "txn-a-0")
    >>> found.to_table(columns=["offset", "value"], filter=pc.field("offset") < 2).to_pylist()
    [{'offset': 0, 'value': b'committed'}, {'offset': 1, 'value': b'committed'}]
    """
    whole = as_disk(path)
    given = {"schema": schema, "registry": registry, "on_undecoded": on_undecoded}
    if decoding is None and any(each is not None for each in given.values()):
        raise RequestError(f"{', '.join(given)} go with decoding='value'")
    options = {"isolation_level": isolation_level, "on_corrupt": on_corrupt, "control": control, "check_crc": check_crc}
    chosen = None
    if decoding is not None:
        from pylogseg.values.decoding import Decoding

        chosen = Decoding.of(decoding, **given)
    return TableDataset(
        open_table(
            whole.select(topic), of, partition, columns, chosen, whole, from_log_start=from_log_start,
            limit_bytes=max_decompressed_bytes, **options,
        )
    )  # fmt: skip


def open_table(
    disk: Disk,
    of: str = "records",
    partition: int | Sequence[int] | None = None,
    columns: Sequence[str] | None = None,
    decoding: Decoding | None = None,
    whole: Disk | None = None,
    *,
    from_log_start: bool = True,
    **options: Any,
) -> Table:
    """Open a table of a disk, as `dataset` has it; `options` are those of reading, `whole` is searched for schemas."""
    how = ReadOptions(**options)
    if columns is not None:
        check_columns(columns)
    if decoding is not None and of != "records":
        raise RequestError(f"decoding is for records, not for {of}")
    if of != "records":
        return _other_table(of, disk, partition)
    logs = logs_of(disk.select(partition=partition), from_log_start=from_log_start, with_ends=True)
    names = COLUMNS if columns is None else columns
    scope = ReadScope(logs, (0, OPEN_END), (None, None), None, how)
    if decoding is None:
        return LogScan(scope, names)
    from pylogseg.values.decoding import typed_batches

    looked_at = scope._replace(options=replace(how, gaps=[]))
    return LogScan(scope, names, typed_batches(decoding, whole or disk, topics_of(logs), names, looked_at.chunks))


def _other_table(of: str, disk: Disk, partition: int | Sequence[int] | None) -> Table:
    """Open a table that is not of records; each kind takes long to import."""
    from pylogseg.tables.table_scan import TABLES, table_of

    if of not in TABLES:
        from pylogseg.tables.state_scan import StateScan
        from pylogseg.values.internal.cluster_state import STATE_TABLES

        if of in STATE_TABLES or of == "cluster_partitions":
            return StateScan("partitions" if of == "cluster_partitions" else of, disk)
    return table_of(of, disk, partition)


def openers(
    disk: Disk, partition: Sequence[int] | None, of_topic: TopicOpener | None = None, **options: Any
) -> dict[str, Opener]:
    """Return a function for each table of a disk that opens it; `options` are those of reading records.

    `of_topic` opens the table of a topic in the place of `open_table`, where keys or values are decoded.
    """
    there = tuple(p for p in disk.partitions if partition is None or p.partition in partition)
    chosen = disk.select(partition=partition)
    read = Disk((), tuple(partitions_of(chosen)), chosen.loose, is_named=True)
    found: dict[str, Opener] = {}
    for name in _OF_DISK:
        # Partitions are listed that are not read, such as strays.
        of = Disk((), there, is_named=True) if name == "partitions" else read
        found[name] = functools.partial(open_table, of, name, **(options if name == "records" else {}))
    topics = {topic.lower() for topic in _topics_of(read)}
    for name in state_tables(disk):
        # A topic of that name has its own.
        found[f"cluster_{name}" if name in topics else name] = functools.partial(open_table, disk, name)
    nameless = {*without_table(read)}
    for topic, its in _by_topic(read).items():
        if topic not in nameless:
            open_it = open_table if of_topic is None else functools.partial(of_topic, topic)
            found[topic] = functools.partial(open_it, its, **options)
    return found


def state_tables(disk: Disk) -> list[str]:
    """Return the tables of `pylogseg.cluster_state` whose topic is on the disk."""
    topics = _topics_of(disk)
    return [name for topic, names in STATE.items() if topic in topics for name in names]


def without_table(disk: Disk) -> list[str]:
    """Return the topics that have no table of their own: names that SQL cannot tell from another one."""
    topics = _topics_of(disk)
    count = Counter(topic.lower() for topic in topics)
    return [topic for topic in topics if count[topic.lower()] > 1 or topic.lower() in _OF_DISK]


def _topics_of(disk: Disk) -> list[str]:
    named = [p.topic for p in disk.partitions] + [segment.topic for segment in disk.loose]
    return sorted({topic for topic in named if topic})


def _by_topic(disk: Disk) -> dict[str, Disk]:
    """Return the disk of each topic."""
    partitions: defaultdict[str, list[Partition]] = defaultdict(list)
    loose: defaultdict[str, list[Segment]] = defaultdict(list)
    for each in disk.partitions:
        partitions[each.topic].append(each)
    for segment in disk.loose:
        loose[segment.topic].append(segment)
    # `get`, which adds nothing: most topics have only partitions.
    return {
        topic: Disk((), tuple(partitions.get(topic, ())), tuple(loose.get(topic, ())), is_named=True)
        for topic in _topics_of(disk)
    }
