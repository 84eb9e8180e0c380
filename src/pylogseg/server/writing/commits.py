"""Commits of groups in a directory of their own, from one run of a server that reads to the next."""

from __future__ import annotations

import logging
import os

from pylogseg.disk.listing import open_dir
from pylogseg.errors import RequestError, StorageError
from pylogseg.format.escape import printable
from pylogseg.server.catalog import Catalog
from pylogseg.server.committed import CommittedByTopic, CommittedOffsets
from pylogseg.server.group_coordinator import GroupCoordinator
from pylogseg.server.writing.directory import directory_topics
from pylogseg.server.writing.journal import OFFSETS, OffsetsJournal

_log = logging.getLogger(__name__)

#: Who starts reads all of it: closed segments are compacted.
_SMALL = {"segment.bytes": str(4 << 20)}


def lasting_groups(path: str | os.PathLike[str], catalog: Catalog, copied: CommittedByTopic) -> GroupCoordinator:
    """Return groups that go on where they stood, as in a broker that is started again; else with copied offsets.

    Raises RequestError for a place where nothing may be written, StorageError if the disk fails or another server has
    it, CorruptionError if it is damaged.
    """
    home = os.path.realpath(path)
    _check(home, catalog)
    topics = directory_topics(home, internal_settings=_SMALL)
    try:
        for note in topics.catalog.notes:
            _log.warning("%s", printable(note))
        journal = OffsetsJournal(topics, catalog)
        loaded = journal.load()
        merged = {
            group: {**copied.get(group, {}), **loaded.offsets.get(group, {})} for group in {**copied, **loaded.offsets}
        }
        groups = GroupCoordinator(CommittedOffsets(lambda: merged), journal)
        groups.resume(loaded.groups)
        return groups
    except BaseException:
        topics.catalog.close()
        raise


def _check(home: str, catalog: Catalog) -> None:
    for folder in catalog.local_folders():
        real = os.path.realpath(folder)
        if home == real or home.startswith(os.path.join(real, "")):
            raise RequestError(f"{home}: commits may not lie in {folder}, which is served: nothing is written there")
    if os.path.isfile(home):
        raise RequestError(f"{home} is a file: commits are kept in a directory, as by a broker; give another name")
    if not os.path.isdir(os.path.dirname(home)):
        raise StorageError(home, "make", "its parent folder does not exist")
    others = {partition.topic for partition in open_dir(home).partitions} - {OFFSETS} if os.path.isdir(home) else set()
    if others:
        raise RequestError(f"{home} has the topic {min(others)}: commits need a directory of their own")
