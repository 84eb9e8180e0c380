"""The tables of a disk by their names in SQL: those of the whole disk, and one for each topic."""

from __future__ import annotations

import functools
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as pads

from pylogseg.disk.disk import Disk, Partition, Segment
from pylogseg.format.names import METADATA_TOPIC
from pylogseg.reading.log_reader import partitions_of
from pylogseg.tables.opening import dataset

if TYPE_CHECKING:
    from pylogseg.tables.sql.typed import TypedTables

Opener = Callable[[], pads.Dataset]

#: Tables of `pylogseg.inside` by the topic that they come from.
STATE = {
    "__consumer_offsets": ("groups", "group_members", "group_offsets", "group_lags"),
    "__share_group_state": ("share_offsets",),
    "__transaction_state": ("transactions", "open_transactions", "producers"),
    "_schemas": ("schemas",),
    "__remote_log_metadata": ("remote_segments",),
    METADATA_TOPIC: ("topics", "cluster_partitions", "configs", "brokers", "acls", "quotas", "users", "features"),
}
#: Tables of the whole disk.
TABLES = ("records", "batches", "segments", "partitions", "indexes")


def openers(
    disk: Disk, partition: Sequence[int] | None, by_name: bool, typed: TypedTables | None = None, **options: Any
) -> dict[str, Opener]:
    """Return a function for each table that opens it.

    Parameters
    ----------
    disk : Disk
        What is selected of a disk.
    partition : sequence of int or None
        Only partitions with these numbers.
    by_name : bool
        Whether the partitions were named: then those with a state are read too.
    typed : TypedTables, optional
        Opens the tables of topics, where their keys or values are decoded.
    **options
        Of `pylogseg.dataset`, for records.
    """
    numbers = None if partition is None else {*partition}
    loose = tuple(segment for segment in disk.loose if numbers is None or segment.partition in numbers)
    there = tuple(p for p in disk.partitions if numbers is None or p.partition in numbers)
    read = Disk((), tuple(partitions_of(disk, partition, by_name=by_name)), loose, is_named=True)
    found: dict[str, Opener] = {}
    for name in TABLES:
        # Partitions are listed that are not read, such as strays.
        of = Disk((), there, is_named=True) if name == "partitions" else read
        found[name] = functools.partial(dataset, of, of=name, **(options if name == "records" else {}))
    topics = {topic.lower() for topic in _topics_of(read)}
    for name in state_tables(disk):
        # A topic of that name has its own.
        found[f"inside_{name}" if name in topics else name] = functools.partial(dataset, disk, of=name)
    nameless = {*without_table(read)}
    for topic, its in _by_topic(read).items():
        if topic not in nameless:
            open_it = dataset if typed is None else functools.partial(typed.open, topic)
            found[topic] = functools.partial(open_it, its, **options)
    return found


def state_tables(disk: Disk) -> list[str]:
    """Return the tables of `pylogseg.inside` whose topic is on the disk."""
    topics = _topics_of(disk)
    return [name for topic, names in STATE.items() if topic in topics for name in names]


def without_table(disk: Disk) -> list[str]:
    """Return the topics that have no table of their own: names that SQL cannot tell from another one."""
    topics = _topics_of(disk)
    count = Counter(topic.lower() for topic in topics)
    return [topic for topic in topics if count[topic.lower()] > 1 or topic.lower() in TABLES]


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
