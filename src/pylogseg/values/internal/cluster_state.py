"""`pylogseg.cluster_state`: the content of a cluster's own topics, as tables."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pylogseg.disk.disk import Disk
from pylogseg.disk.listing import as_disk
from pylogseg.env.filesystem import LocalFiles, Path
from pylogseg.errors import RequestError
from pylogseg.format.names import METADATA_TOPIC
from pylogseg.reading.arrow.columns import arrow_schema
from pylogseg.reading.seek import end_offset
from pylogseg.values.internal import transactions
from pylogseg.values.internal.cluster_tables import cluster_table
from pylogseg.values.internal.connectors import connector_table
from pylogseg.values.internal.cut_off import AsOf, CutOff
from pylogseg.values.internal.groups import Group, GroupRecords, groups_of, groups_table, members_table
from pylogseg.values.internal.image import Image
from pylogseg.values.internal.lag import Unread, first_unread, newest_timestamp
from pylogseg.values.internal.mapping import map_by_runs, map_offsets
from pylogseg.values.internal.mirror_map import read_map
from pylogseg.values.internal.notes import Notes
from pylogseg.values.internal.offsets import PartitionEnds, offsets_table, topic_names, with_lags
from pylogseg.values.internal.remote import remote_table
from pylogseg.values.internal.shares import share_table
from pylogseg.values.internal.state_columns import CLUSTER_TABLES, MAPPED, SCHEMAS, STATE_COLUMNS, state_table
from pylogseg.values.schemas.topic import TOPIC, SchemaTopic

#: The tables and their columns.
STATE_TABLES: dict[str, pa.Schema] = {name: arrow_schema(columns) for name, columns in STATE_COLUMNS.items()}


class ClusterState:
    """The state of a cluster at a moment, from the files of its internal topics; `pylogseg.cluster_state` makes it.

    Attributes
    ----------
    notes : list of str
        What was left out of the tables: damage, records of unknown types, partitions in two folders.
    """

    def __init__(self, disk: Disk, cut_off: CutOff, show_secrets: bool) -> None:
        self._disk, self._cut_off, self._show_secrets = disk, cut_off, show_secrets
        self.notes = Notes()
        self._makers: dict[str, Callable[[], pa.Table]] = {
            "groups": lambda: groups_table(self._groups, self._offset_counts()),
            "group_members": lambda: members_table(self._groups),
            "group_offsets": lambda: self._group_offsets,
            "group_lags": lambda: with_lags(self._group_offsets, self._ends),
            "share_offsets": lambda: share_table(disk, cut_off, self._image, self._ends, self.notes),
            "transactions": self._transactions,
            "open_transactions": self._open_transactions,
            "producers": lambda: transactions.producers_table(disk, cut_off, self.notes),
            "remote_segments": lambda: remote_table(disk, cut_off, self.notes),
            "connectors": lambda: connector_table(disk, cut_off, self.notes, show_secrets=show_secrets),
            "schemas": lambda: schemas_table(disk, cut_off, self.notes),
        }

    def __reduce__(self) -> tuple[Any, ...]:
        """Return a function that makes it again in another process, which reads only the tables it needs."""
        return type(self), (self._disk, self._cut_off, self._show_secrets)

    def __repr__(self) -> str:
        """Return a short text."""
        return f"<pylogseg.ClusterState of {self._disk!r}>"

    @property
    def tables(self) -> tuple[str, ...]:
        """The names that `table` takes."""
        return tuple(STATE_TABLES)

    def table(self, name: str) -> pa.Table:
        """Return one of the tables.

        Parameters
        ----------
        name : str
            One of `tables`.

        Returns
        -------
        pyarrow.Table
            Without rows if the topic that it comes from is not here.

        Raises
        ------
        RequestError
            For a name that there is not.
        CorruptionError
            If the cluster's metadata is damaged.
        StorageError
            If the disk fails.
        """
        if name in CLUSTER_TABLES:
            return cluster_table(name, self._image or Image(), show_secrets=self._show_secrets)
        if name not in self._makers:
            raise RequestError(f"there is no table {name!r}: tables are {', '.join(self.tables)}")
        return self._makers[name]()

    def rows(self, name: str) -> list[dict[str, Any]]:
        """Return one of the tables as dictionaries, with times in milliseconds since 1970."""
        table = self.table(name)
        for i, field in enumerate(table.schema):
            if pa.types.is_timestamp(field.type):
                table = table.set_column(i, field.name, table.column(i).cast(pa.int64()))
        rows: list[dict[str, Any]] = table.to_pylist()
        return rows

    def ends(self, topic: str, partition: int) -> int | None:
        """Return where a partition ends at the moment; None if its folder is not here."""
        return self._ends.of(topic, partition).end

    def first_unread(self, topic: str, partition: int, offset: int, read: list[int] | None = None) -> Unread:
        """Return the first record that a group with a committed offset has not read; `read` takes the bytes read."""
        log, end = self._ends.log(topic, partition), self.ends(topic, partition)
        if log is None or end is None:
            return Unread(None, "the partition is not in the given directories")
        return first_unread(log, offset, end, read=read)

    def newest_timestamp(self, topic: str, partition: int) -> int | None:
        """Return the timestamp of a partition's last record at the moment; None if unknown."""
        log, end = self._ends.log(topic, partition), self.ends(topic, partition)
        return None if log is None or end is None else newest_timestamp(log, end)

    def map_offsets(self, other: ClusterState | Path, groups: Collection[str] | None = None) -> pa.Table:
        """Find committed offsets on another cluster's copy of the topics, by the records.

        Parameters
        ----------
        other : ClusterState or path
            The other cluster. Its topics have the same names, and records with the same key, value, timestamp and
            headers; offsets may differ, as behind MirrorMaker. Or the path of a map that `diff --by-content` wrote.
        groups : collection of str, optional
            Only these.

        Returns
        -------
        pyarrow.Table
            The columns group, topic, partition, offset, mappedTopic, mappedPartition, mappedOffset and reason: why
            there is none. Damage on either side is in `notes`.

        Raises
        ------
        RequestError
            If the file is no map.
        CorruptionError
            If the cluster's metadata is damaged.
        StorageError
            If a disk fails.
        """
        rows = [row for row in self.rows("group_offsets") if row["offset"] is not None]
        chosen = [row for row in rows if groups is None or row["group"] in groups]
        if isinstance(other, ClusterState):
            mapped, gaps = map_offsets(chosen, self._ends, other._ends)
            self.notes.add_damage(*gaps)
        else:
            mapped = map_by_runs(chosen, read_map(os.fspath(other)))
        return state_table(mapped, MAPPED)

    @cached_property
    def _image(self) -> Image | None:
        """The cluster's metadata, of the folder that goes furthest; None if none is here."""
        folders = [p for p in self._disk.partitions if p.topic == METADATA_TOPIC and not p.state and p.segments]
        if not folders:
            return None
        folder = max(folders, key=lambda partition: end_offset(partition.segments))
        of = folder.path if isinstance(folder.files, LocalFiles) else folder  # that of a broker may have gone on
        image = Image.read(of, self._cut_off.ends.get(f"{METADATA_TOPIC}-0"), self._cut_off.until_ms)
        self.notes.add_damage(*image.notes, *image.damage)
        self.notes.add_left_out(*(f"{folder.path}: {what}, were left out ({n})" for what, n in image.unread().items()))
        return image

    @cached_property
    def _ends(self) -> PartitionEnds:
        return PartitionEnds(self._disk, self._cut_off, self.notes)

    @cached_property
    def _records(self) -> GroupRecords:
        records = GroupRecords.read(self._disk, self._cut_off, self.notes)
        return records

    @cached_property
    def _groups(self) -> dict[str, Group]:
        return groups_of(self._records, topic_names(self._records) | (self._image.topics if self._image else {}))

    def _offset_counts(self) -> Counter[str]:
        totals: Counter[str] = Counter()
        for number in (0, 1):
            if number in self._records.tables:
                counted = pc.value_counts(self._records.tables[number]["group"])
                totals.update({row["values"]: row["counts"] for row in counted.to_pylist()})
        return totals

    @cached_property
    def _group_offsets(self) -> pa.Table:
        return offsets_table(self._records, self._image.topic_ids if self._image else None, self._ends)

    def _transactions(self) -> pa.Table:
        rows = transactions.transaction_rows(self._disk, self._cut_off, self.notes)
        return state_table(rows, STATE_COLUMNS["transactions"])

    def _open_transactions(self) -> pa.Table:
        return transactions.open_transactions_table(self._disk, self._cut_off, self.notes, self._now_ms())

    def _now_ms(self) -> int:
        """The moment, or the clock's time."""
        return time.time_ns() // 1_000_000 if self._cut_off.until_ms is None else self._cut_off.until_ms - 1


def cluster_state(
    path: Path | Sequence[Path] | Disk, as_of: AsOf | None = None, *, show_secrets: bool = False
) -> ClusterState:
    """Read the state of a cluster from its internal topics: groups, offsets, transactions, topics, settings.

    Parameters
    ----------
    path : path, URL, list of them, or Disk
        Log directories, of one broker or of several.
    as_of : int (ms), datetime, or dict of str to int, optional
        The state at a time, or below given offsets: ``{"__cluster_metadata-0": 331, "__consumer_offsets-1": 568}``;
        partitions that are not named are read to their end. A datetime must have a zone.
    show_secrets : bool
        True if passwords, and keys of SCRAM users, are shown instead of masked.

    Returns
    -------
    ClusterState
        Nothing is read before a table is asked for.

    Raises
    ------
    RequestError
        For an invalid moment, or a path without Kafka files.
    StorageError
        If a path cannot be listed.

    Examples
    --------
    >>> import pylogseg
    >>> state = pylogseg.cluster_state("examples/data")
    >>> state.table("groups")["group"].to_pylist()
    ['g-consumer', 'g-live-classic', 'g-live-consumer', 'g-static']
    """
    return ClusterState(as_disk(path), CutOff.of(as_of), show_secrets)


__all__: list[Any] = ["ClusterState", "cluster_state"]


def schemas_table(disk: Disk, cut_off: CutOff, notes: Notes) -> pa.Table:
    """Return the schemas of a disk; permanently deleted ones, whose text the log still has, come last."""
    topic = SchemaTopic.of_disk(disk, cut_off.ends.get(f"{TOPIC}-0"), cut_off.until_ms)
    if topic is None:
        return state_table((), SCHEMAS)
    notes += [note for note in topic.notes if note not in notes]
    notes.add_damage(*topic.damage)
    notes.has_left_out = notes.has_left_out or bool(topic.left_out)
    rows = [
        {
            "context": schema.context,
            "subject": schema.subject,
            "version": schema.version,
            "id": schema.id,
            "type": schema.type,
            "deleted": schema.deleted,
            "references": [reference._asdict() for reference in schema.references],
            "guid": schema.guid,
            "schema": schema.text,
        }
        for schema in (*topic, *topic.gone)
    ]
    return state_table(rows, SCHEMAS)
