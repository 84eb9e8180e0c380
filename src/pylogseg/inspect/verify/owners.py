"""The broker whose log directory it is, by `meta.properties`."""

from __future__ import annotations

from typing import NamedTuple

from pylogseg.disk.disk import LogDir
from pylogseg.disk.small_files import SmallFile, read_meta_properties
from pylogseg.format.files.properties import MetaProperties
from pylogseg.format.names import METADATA_TOPIC, FileKind


class LogDirOwner(NamedTuple):
    """The broker that owns a log directory, as far as `meta.properties` says."""

    log_dir: LogDir
    file: SmallFile[MetaProperties]

    @property
    def path(self) -> str:
        return self.file.path

    @property
    def meta(self) -> MetaProperties | None:
        return self.file.value

    @property
    def broker(self) -> tuple[str | None, int | None]:
        """Cluster and node."""
        return (self.meta.cluster_id, self.meta.node_id) if self.meta else (None, None)

    @property
    def has_metadata(self) -> bool:
        """True if the metadata log is in this directory: each broker of a KRaft cluster has one such directory.

        A copy of a running cluster has a snapshot in its place, and is no broker's.
        """
        return any(
            part.size or any(other.name.kind is FileKind.QUORUM_STATE for other in part.others)
            for part in self.log_dir.partitions
            if part.topic == METADATA_TOPIC
        )

    @property
    def is_kraft(self) -> bool:
        """True if its files show that a broker of a KRaft cluster owns the directory."""
        return self.has_metadata or (self.meta is not None and self.meta.version == 1)


def owner_of(log_dir: LogDir) -> LogDirOwner:
    """Read `meta.properties` of a log directory."""
    return LogDirOwner(log_dir, read_meta_properties(log_dir.files, log_dir.path))
