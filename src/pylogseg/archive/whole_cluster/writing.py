"""Writing a whole cluster: each log is read from the archive once, then copied to each of its replicas.

The run makes all folders beside their names. At the end it renames them, controllers last: no broker starts without.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pylogseg.archive.whole_cluster.assigning import Assignment, ClusterAssignment
from pylogseg.disk.disk import Disk, Segment
from pylogseg.disk.tier.point import Point
from pylogseg.env.beside import NewFolder
from pylogseg.env.storage import Storage
from pylogseg.errors import RequestError, StorageError
from pylogseg.format.files.properties import MetaProperties, encode_meta_properties
from pylogseg.format.files.status import encode_clean_shutdown
from pylogseg.format.moments import iso_text
from pylogseg.format.names import METADATA_TOPIC, FileKind
from pylogseg.offline.rescuing.plan import RescuePlan
from pylogseg.offline.rescuing.writing import write_folders
from pylogseg.offline.restoring.command import restore
from pylogseg.offline.result import Result
from pylogseg.transfer.checkpoints import AllEntries, all_entries, note_entries
from pylogseg.transfer.files import copy_folder, first_difference
from pylogseg.values.internal.cluster import FOLDER

_Advance = Callable[[int], None]
_WINDOW = 8 << 20
#: In the first folder: all partitions, until each has its place.
_ALL = ".pylogseg-restored"


def copy_metadata(disk: Disk, point: Point, target: str) -> None:
    """Copy the metadata of a point into a folder, as the disk of a node has it; RequestError if there is none."""
    parts = [part for part in disk.partitions if part.topic == METADATA_TOPIC]
    if not parts or not point.cluster_id:
        raise RequestError(
            f"point {point.id} has no metadata of the cluster: its controllers' disks, or those of brokers with "
            f"{FOLDER}, were not archived. Restore its partitions one by one, into a new cluster"
        )
    (part,) = parts
    folder = os.path.join(target, FOLDER)
    os.mkdir(folder)
    for segment in part.segments:
        _copy_file(segment, folder)
    for other in part.others:
        if other.name.kind is FileKind.KRAFT_SNAPSHOT and other.name.is_live:
            _copy_file(Segment(part.files, other.path, 0, other.size, -1, True), folder)
    meta = MetaProperties(0, point.cluster_id)
    with open(os.path.join(target, FileKind.META_PROPERTIES.value), "wb") as file:
        file.write(encode_meta_properties(meta, iso_text(point.time_ms)))


def _copy_file(segment: Segment, folder: str) -> None:
    name = segment.files.split(segment.path)[1]
    with segment.open() as view, open(os.path.join(folder, name), "wb") as file:
        for position in range(0, view.size, _WINDOW):
            file.write(view.read(position, min(_WINDOW, view.size - position)))


def write_cluster(
    plan: RescuePlan,
    assignment: ClusterAssignment,
    folders: Sequence[NewFolder],
    url: str,
    storage: Storage,
    advance: _Advance,
    options: Mapping[str, Any],
) -> Result:
    """Write all folders, and give them their names when all are complete."""
    with contextlib.ExitStack() as stack:
        for folder in folders:
            stack.enter_context(folder.lock())
        shared = storage.join(folders[0].beside, _ALL)
        storage.make_folder(shared)
        result = restore(url, shared, on_bytes=advance, **options)
        said = all_entries(storage, shared)
        places = [(broker, i) for broker in assignment.brokers for i in range(len(broker.folders))]
        for (broker, i), folder in reversed([*zip(places, folders, strict=True)]):
            own = [part for part in assignment.partitions if part.directories.get(broker.id) == i]
            _place(storage, shared, folder.beside, own, said, advance, moves=folder is folders[0])
            meta = MetaProperties(1, plan.look.cluster_id, broker.id, broker.directory_ids[i])
            text = encode_meta_properties(meta, iso_text(max(plan.best.time_ms, 0)))
            # All batches were checked when they were written: there is nothing to recover.
            storage.write_synced(
                storage.join(folder.beside, FileKind.CLEAN_SHUTDOWN.value), encode_clean_shutdown(broker.epoch)
            )
            storage.write_synced(storage.join(folder.beside, FileKind.META_PROPERTIES.value), text)
        storage.remove_folder(shared)
        for folder in folders:
            storage.sync_folder(folder.beside)
        write_folders(plan, storage, advance, folders)
    for part in result:
        part.path = ""
    return result


def _place(
    storage: Storage,
    shared: str,
    target: str,
    own: Sequence[Assignment],
    said: AllEntries,
    advance: _Advance,
    *,
    moves: bool,
) -> None:
    """Put partitions into a log directory: copies of the restored folders, or in the last step these folders."""
    entries: dict[str, dict[str, int]] = {}
    for part in own:
        source, copy = storage.join(shared, part.name), storage.join(target, part.name)
        if not storage.exists(source):
            if part.archived is not None:
                raise StorageError(source, "place", "the restore has not written this partition")
            continue
        entries[part.name] = said.get((part.topic, part.partition), {})
        if moves:
            storage.rename(source, copy)
            continue
        copy_folder(storage, source, copy, advance)
        if difference := first_difference(storage, source, copy, advance):
            raise StorageError(copy, "copy", f"the copy differs from the restored partition: {difference}")
    note_entries(storage, target, entries)
