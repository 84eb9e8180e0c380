"""Open tables of a disk: one as a `pylogseg.dataset`, or all by their names, as in SQL."""

from __future__ import annotations

import functools
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pylogseg.disk.disk import Disk, Partition, Segment
from pylogseg.disk.listing import as_disk
from pylogseg.env.filesystem import Path
from pylogseg.errors import RequestError
from pylogseg.format.names import METADATA_TOPIC
from pylogseg.reading.logs import partitions_of
from pylogseg.reading.scan import Table
from pylogseg.tables.dataset import TableDataset
from pylogseg.tables.reader import ReadKeywords, Source, read
from pylogseg.tables.short_forms import with_decoding

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from pylogseg.values.decoding import Decoding, OnUndecoded, SchemaChoice
    from pylogseg.values.schemas.store import Schemas

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


def dataset(
    path: Source,
    topic: str | Sequence[str] | None = None,
    partition: int | Sequence[int] | None = None,
    *,
    of: str = "records",
    decoding: str | Sequence[str] | Decoding | None = None,
    schema: SchemaChoice | Mapping[str, SchemaChoice] | None = None,
    registry: Path | Schemas | None = None,
    on_undecoded: OnUndecoded | None = None,
    **how: Unpack[ReadKeywords],
) -> TableDataset:
    """Return logs as a dataset, for duckdb, polars, DataFusion, pandas and pyarrow: ``read(...).dataset()``.

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
    **how
        For records, as for `pylogseg.read`; `TableDataset.gaps` has the gaps. ``columns`` are by default all: those of
        `read_arrow`, and those about batches. ``latest`` is refused.
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
    if of == "records":
        filter = how.pop("filter", None)
        reader = read(path, topic, partition, **how)
        return with_decoding(reader, decoding, schema, registry, on_undecoded, filter).dataset()
    if decoding is not None:
        raise RequestError(f"decoding is for records, not for {of}")
    return TableDataset(_other_table(of, as_disk(path).select(topic), partition))


def open_disk_table(
    disk: Disk,
    of: str = "records",
    partition: int | Sequence[int] | None = None,
    decoding: Decoding | None = None,
    whole: Disk | None = None,
    **how: Unpack[ReadKeywords],
) -> Table:
    """Open a table of a disk, as `dataset` has it; `whole` is searched for schemas."""
    if of != "records":
        return _other_table(of, disk, partition)
    reader = read(disk, None, partition, **how)
    reader = reader if decoding is None else reader.decode(decoding, disk=whole)
    return reader.scan(reader.columns)


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
    """Return a function for each table of a disk that opens it; `options` are options of reading records.

    `of_topic` opens the table of a topic in the place of `open_disk_table`, where keys or values are decoded.
    """
    there = tuple(p for p in disk.partitions if partition is None or p.partition in partition)
    chosen = disk.select(partition=partition)
    read = Disk((), tuple(partitions_of(chosen)), chosen.loose, is_named=True)
    openers_by_name: dict[str, Opener] = {}
    for name in _OF_DISK:
        # Partitions are listed that are not read, such as strays.
        of = Disk((), there, is_named=True) if name == "partitions" else read
        openers_by_name[name] = functools.partial(open_disk_table, of, name, **(options if name == "records" else {}))
    topics = {topic.lower() for topic in _topics_of(read)}
    for name in state_tables(disk):
        # A topic of that name has its own.
        openers_by_name[f"cluster_{name}" if name in topics else name] = functools.partial(open_disk_table, disk, name)
    nameless = {*without_table(read)}
    for topic, its in _by_topic(read).items():
        if topic not in nameless:
            open_it = open_disk_table if of_topic is None else functools.partial(of_topic, topic)
            openers_by_name[topic] = functools.partial(open_it, its, **options)
    return openers_by_name


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
    partitions: defaultdict[str, list[Partition]] = defaultdict(list)
    loose: defaultdict[str, list[Segment]] = defaultdict(list)
    for partition in disk.partitions:
        partitions[partition.topic].append(partition)
    for segment in disk.loose:
        loose[segment.topic].append(segment)
    # `get`, which adds nothing: most topics have only partitions.
    return {
        topic: Disk((), tuple(partitions.get(topic, ())), tuple(loose.get(topic, ())), is_named=True)
        for topic in _topics_of(disk)
    }
