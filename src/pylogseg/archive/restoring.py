"""`restore_point`: partitions as they were at a point, in a log directory, or as a new cluster of one broker."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from pylogseg.archive.at_point import opened_point, point_url
from pylogseg.archive.one_broker import NewCluster, check_counts, check_new, check_node_id, found_cluster
from pylogseg.disk.choice import PartitionChoice
from pylogseg.env.locks import check_unlocked
from pylogseg.errors import RequestError
from pylogseg.format.names import METADATA_TOPIC, partition_folder_name
from pylogseg.offline.restoring.command import checked_target, restore
from pylogseg.offline.result import PartitionResult, Result
from pylogseg.reading.selection import Moment
from pylogseg.transfer.staging import finish_commits

_NO_SETTINGS: Mapping[str, str] = {}


def restore_point(
    archive: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    at: Moment | None = None,
    point: str | None = None,
    node_id: int | None = None,
    settings: Mapping[str, str] = _NO_SETTINGS,
    storage_options: Mapping[str, Any] | None = None,
    **how: Any,
) -> Result:
    """Restore partitions as they were at a point of an archive, for a broker that opens them without a recovery.

    Into a log directory that a cluster has, as `restore` does: of the same cluster they come byte for byte, of another
    one with other producers and leader epochs. With `node_id`, an empty folder becomes the log directory of a new
    cluster with this one broker, which has the topics with their ids and settings, and groups, transactions, ACLs,
    users, quotas and the id of the cluster as they were: nothing has to be made before.

    Parameters
    ----------
    archive, at, point
        See `open_archive`. Without a time and an id, the newest point.
    target : path
        The log directory.
    node_id : int, optional
        The number of the broker whose folder this becomes.
    settings : mapping, optional
        With `node_id`: settings that all topics get instead of their own.
    storage_options : mapping, optional
        Options of fsspec, and ``tier_keys``.
    **how
        As of `pylogseg.offline.restore`: ``topic``, ``partition``, ``overwrite``, ``dry_run``, ``jobs`` and others.

    Returns
    -------
    Result
        As of `pylogseg.offline.restore`.

    Raises
    ------
    RequestError
        If there is no such point, or, with `node_id`, the folder is not empty.
    IncompleteError
        If the point lacks records, unless ``force`` is set.
    StorageError
        If the store or the disk fails, or a broker has the lock.
    """
    url = point_url(archive, at=at, point=point)
    disk, files = opened_point(url, storage_options)
    if settings and node_id is None:
        raise RequestError("settings are those of a new cluster: give node_id too")
    if node_id is None:
        return restore(files.url, target, storage_options=storage_options, **how)
    into = checked_target(target)
    check_node_id(node_id)
    if not how.get("dry_run") and (placed := _finish_commits_in(into)):
        note = "a restore that was killed had all of it ready, and now it is in place: this run read nothing"
        return Result(placed, log_dir=into, notes=[note], node_id=node_id, is_closed_clean=True)
    check_new(into, node_id)
    choice, highest = PartitionChoice.of(how.get("topic"), how.get("partition")), dict[str, int]()
    for part in files.point.partitions:
        if choice.takes(part.topic, part.partition):
            highest[part.topic] = max(part.partition, highest.get(part.topic, 0))
    check_counts(files.url, highest)
    clusters = list[NewCluster]()

    def make_files(result: Result) -> Mapping[str, bytes]:
        clusters.append(found_cluster(disk, files.point, into, node_id, result, settings))
        return clusters[0].files

    result = restore(files.url, into, storage_options=storage_options, files=make_files, **how)
    if result.dry_run:
        return result
    _, notes, lacking, unread = clusters[0]
    result.notes = [
        *disk.select(how.get("topic"), how.get("partition")).notes,
        *notes,
    ]  # those of `restore` say that no cluster is known here
    result.node_id, result.is_closed_clean = node_id, True
    for topic in lacking:
        more = f", nor {topic.partitions - 1:,} more of topic {topic.topic}: they begin empty"
        result.partitions.append(PartitionResult(topic.first, ""))
        result.partitions[-1].skip(
            f"the archive does not have it at this point{': it begins empty' if topic.partitions == 1 else more}",
            not_done=True,
        )
    if unread:
        name = partition_folder_name(METADATA_TOPIC, 0)
        metadata = next((each for each in result if each.name == name), None)
        if metadata is None:
            result.partitions.append(metadata := PartitionResult(name, ""))
        metadata.skip("; ".join(unread), not_done=True)
    return result


def _finish_commits_in(into: str) -> list[PartitionResult]:
    """Finish the commit of a restore that was killed in it; return the partitions that it brought."""
    if not os.path.isdir(into):
        return []
    check_unlocked(into)
    return [PartitionResult(name, os.path.join(into, name)) for name in finish_commits(into)]
