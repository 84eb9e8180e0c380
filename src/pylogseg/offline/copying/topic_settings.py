"""The topics of a copied cluster, with ids and settings: a snapshot of its metadata, where commands look for it.

It has what clients may ask for, so no ACLs and users; and each partition has one replica, since all of a copy is
committed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from pylogseg.env.filesystem import LocalFiles
from pylogseg.env.storage import LocalStorage
from pylogseg.errors import CorruptionError
from pylogseg.format.names import FileKind, parse_file_name, segment_file_name
from pylogseg.server.writing.bootstrap_checkpoint import BootstrapContents, KeptTopic, encode_kept, read_kept
from pylogseg.values.internal.cluster import FOLDER

_NODE, _NO_DIRECTORY = 1, "A" * 22
_SUFFIX = FileKind.KRAFT_SNAPSHOT.value


def keep_topics(storage: LocalStorage, place: str, topics: Mapping[str, KeptTopic]) -> None:
    """Add the topics to the metadata of a copy."""
    folder = os.path.join(place, FOLDER)
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    snapshots = [name for name in names if parse_file_name(name).kind is FileKind.KRAFT_SNAPSHOT]
    before, offset = BootstrapContents(features={}), 0
    if snapshots:
        path = os.path.join(folder, snapshots[-1])
        offset = int(snapshots[-1][:20])
        try:
            before = read_kept(bytes(LocalFiles().read_all(path)), path)
        except CorruptionError as error:
            reason = f"{error.reason}; remove {folder}, and it is made anew"
            raise CorruptionError(path, error.position, reason) from error
    after = BootstrapContents(topics={**before.topics, **topics}, features={})
    if snapshots and after.topics == before.topics:
        return
    storage.make_folder(folder)
    offset += 1
    log, snapshot = segment_file_name(offset, FileKind.LOG), f"{offset:020d}-{0:010d}{_SUFFIX}"
    storage.write_whole(os.path.join(folder, snapshot), encode_kept(after, _NODE, _NO_DIRECTORY))
    storage.open_log(os.path.join(folder, log)).close()
    for name in names:
        if parse_file_name(name).kind in (FileKind.KRAFT_SNAPSHOT, FileKind.LOG):
            storage.remove(os.path.join(folder, name))
    storage.sync_folder(folder)
    storage.sync_folder(place)
