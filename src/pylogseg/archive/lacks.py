"""Offsets that a disk lacks, or may lack. A run looks before it decides what the next point needs.

The checks are those of `verify`. A partition is looked at where something about it is new: it is in no point yet, its
start moved, a sealed segment has other bytes than before, or the newest point has a fault of it.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Collection, Iterator
from dataclasses import replace

from pylogseg.archive.seen import Key, Lack, SeenCluster, SeenCopy
from pylogseg.disk.listing import open_dir
from pylogseg.errors import RequestError, StorageError
from pylogseg.inspect.verify.findings import PERHAPS_COMPACTED, Finding
from pylogseg.inspect.verify.lacking import Look, lacking_of
from pylogseg.inspect.verify.missing import Around, absolute, check_partitions

#: Kinds of findings about offsets that are not there.
_LACKS = ("missing", "gap", "orphan-lost", PERHAPS_COMPACTED)


def look_for_lacks(copy: SeenCopy, seen: SeenCluster, around: Around, how: Look) -> None:
    """Note in a copy the offsets that its disk lacks. While a broker runs, a second look has to confirm the first one.

    `around` has the checkpoints, which many partitions share.
    """
    findings = lacking_of(copy.partition, around, how)
    if findings and seen.is_running:
        try:
            (now,) = open_dir(copy.partition.path).partitions
        except (RequestError, StorageError):  # a broker removed it
            return
        now = replace(now, log_start_offset=max(now.log_start_offset, copy.partition.log_start_offset))
        again = {(finding.kind, *finding.offsets) for finding in lacking_of(now, Around(seen.disk, seen.clusters), how)}
        findings = [finding for finding in findings if (finding.kind, *finding.offsets) in again]
    copy.lacks = [_lack(row) for row in findings if row.kind in _LACKS and row.last_offset is not None]


def _lack(finding: Finding) -> Lack:
    return Lack(*finding.offsets, finding.is_damage, f"{finding.path}: {finding.reason}")


def find_lost_folders(seen: SeenCluster, there: Collection[Key]) -> Iterator[tuple[str, str]]:
    """Yield the partitions that checkpoints of a disk have, and no disk, with a fault: not if deleted, or moved."""
    around, metadata, names = Around(seen.disk, seen.clusters), seen.metadata, {(key[0], key[2]) for key in there}

    def may_be_lost(node: int, topic: str, partition: int) -> bool:
        if (topic, partition) in names:
            return False
        topic_id = None if metadata is None else metadata.topic_ids.get(topic)
        if metadata is None or topic_id is None:
            return metadata is None or topic not in metadata.removed_topics
        replicas = metadata.replicas.get((topic_id, partition))
        return replicas is not None and (node < 0 or node in replicas)

    places = {(p.topic, p.partition): d.path for d in seen.disk.log_dirs for p in d.partitions if not p.state}
    for number, log_dir in enumerate(seen.disk.log_dirs):
        node = seen.disks[number].node_id
        checkpoints = around.checkpoints(log_dir.files, absolute(log_dir.files, log_dir.path))
        for finding in check_partitions(log_dir, checkpoints, places, functools.partial(may_be_lost, node)):
            if finding.is_damage:
                remedy = f"{finding.remedy}; if it was deleted, a broker that starts here takes its offsets out"
                yield os.path.basename(finding.path), f"{finding.path}: {finding.reason}; {remedy}"
