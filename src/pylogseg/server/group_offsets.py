"""Where groups stood at the time of the copy, from its ``__consumer_offsets``."""

from __future__ import annotations

import logging

from pylogseg.disk.disk import Disk
from pylogseg.errors import RequestError
from pylogseg.format.escape import printable
from pylogseg.server.committed import Committed, CommittedByTopic
from pylogseg.values.internal.cut_off import CutOff
from pylogseg.values.internal.groups import TOPIC, GroupRecords
from pylogseg.values.internal.notes import Notes

_log = logging.getLogger(__name__)

#: Types of records of committed offsets: the old form, and the one of today.
_TYPES = (0, 1)


def has_groups(disk: Disk) -> bool:
    """Return whether a disk has a partition of the topic of groups."""
    return any(partition.topic == TOPIC and partition.is_live for partition in disk.partitions)


def check_groups(disk: Disk) -> None:
    if not has_groups(disk):
        where = ", ".join(log_dir.path for log_dir in disk.log_dirs) or "the given folders"
        raise RequestError(f"group_offsets: {where}: there is no partition of {TOPIC} here")


def group_offsets(disk: Disk) -> CommittedByTopic:
    """Return the committed offsets of all groups on a disk; unreadable logs are reported as warnings."""
    notes = Notes()
    records = GroupRecords.read(disk, CutOff(), notes)
    for note in notes:
        _log.warning("%s", printable(note))
    newest: dict[tuple[str, str, int], int] = {}
    offsets: CommittedByTopic = {}
    for _, row in records.rows(_TYPES):
        key = row["group"], row["topic"], row["partition"]
        if row["recordOffset"] >= newest.get(key, -1):
            newest[key] = row["recordOffset"]
            committed = Committed(row["offset"], row.get("leaderEpoch", -1), row["metadata"])
            offsets.setdefault(row["group"], {})[row["topic"], row["partition"]] = committed
    return offsets
