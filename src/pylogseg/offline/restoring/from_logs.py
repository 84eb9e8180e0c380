"""Partitions of a log directory as a source of `restore`: byte for byte, with their entries in its checkpoints."""

from __future__ import annotations

import copy
import os
from collections.abc import Collection, Iterable, Mapping
from itertools import islice

from pylogseg.disk.choice import PartitionChoice
from pylogseg.disk.disk import Disk
from pylogseg.disk.listing import open_dir
from pylogseg.disk.offset_checkpoints import OffsetCheckpoints
from pylogseg.disk.small_files import read_meta_properties, unknown_cluster
from pylogseg.disk.target import Target, chosen_in
from pylogseg.env.filesystem import LocalFiles, is_same_folder, refuse_inside
from pylogseg.env.locks import check_unlocked
from pylogseg.env.storage import LocalStorage
from pylogseg.errors import RequestError, StorageError
from pylogseg.format.files.status import PartitionMetadata, encode_partition_metadata
from pylogseg.format.names import (
    MAX_NAME_LENGTH,
    FileKind,
    parse_file_name,
    parse_partition_folder,
    partition_folder_name,
)
from pylogseg.inspect.small_file_doubts import epoch_findings
from pylogseg.inspect.verify.findings import Finding
from pylogseg.inspect.verify.lacking import UNINDEXED, Look, lacking_in, lacking_of, refuse
from pylogseg.inspect.verify.missing import Around
from pylogseg.log.directory import partition_of
from pylogseg.log.identity import topic_id_of
from pylogseg.log.state import Start
from pylogseg.offline.ending_transactions import transactional_producers
from pylogseg.offline.reindexing import reindex
from pylogseg.offline.restoring.adopting import Arrival, adopt
from pylogseg.offline.restoring.source import RestoreOrder, RestoreSource
from pylogseg.offline.result import PartitionResult
from pylogseg.offline.running import reason_to_skip
from pylogseg.transfer.checkpoints import all_within, by_partition, note_entries, read_checkpoints
from pylogseg.transfer.contents import Content, content_of
from pylogseg.transfer.files import check_batches, copy_folder, finish_swap, first_difference, settle
from pylogseg.transfer.staging import WrittenPart
from pylogseg.values.internal.cluster import ClusterMetadata, cluster_id_of, clusters_of, find_metadata
from pylogseg.values.internal.cut_off import CutOff

#: Partitions that are copied together.
_TOGETHER = 64
#: The states of folders that a broker took out of use.
_SET_ASIDE = ("stray", "delete")


class FromLogs(RestoreSource):
    """Partitions of a log directory, byte for byte."""

    def __init__(self, path: str, choice: PartitionChoice, force: bool, cluster_metadata: str | None = None) -> None:
        self._storage, self._path = LocalStorage(), path
        self._places: dict[str, Target] = {}
        self._set_aside: dict[str, str] = {}  #: Of partitions that a broker took out of use: the folder's name.
        self.partitions: list[PartitionResult] = []
        self.asked = asked = not choice.is_all
        chosen = chosen_in(Target.find_all(self._storage, path), choice)
        for place, names in chosen:
            if place.error is not None:
                raise place.error
            for folder in names:
                name = folder
                if choice.names or not place.is_whole:  # a folder that is out of use has to be named
                    name = _partition_name(place, folder, cluster_metadata)
                if name in self._places:
                    raise RequestError(f"{folder}: another folder that is named becomes {name} too: name one of them")
                self._places[name] = place
                if name != folder:
                    self._set_aside[name] = folder
                self.partitions.append(self._new_result(place, name, asked))
        self.partitions.sort(key=lambda result: result.name)
        self.folders = [place.parent for place, _ in chosen]
        whole = [place.log_dir for place, _ in chosen if place.log_dir is not None]
        self.doubts = [why for log_dir in whole if (why := unknown_cluster(self._storage, log_dir))]
        for log_dir in whole:
            read_checkpoints(self._storage, log_dir, self.doubts)
        self._doubt_high_watermarks()
        left = {result.name for result in self.partitions if result.state == "skipped"}
        kept = [(place, [name for name in names if name not in left]) for place, names in chosen]
        found = lacking_in(kept, choice, how=Look.CARRIED)
        found += [finding for name in self._set_aside for finding in self._lacking_in_set_aside(name)]
        self.lacking = [finding for finding in found if finding.kind != UNINDEXED]
        self._unindexed = {os.path.basename(os.path.dirname(each.path)) for each in found if each.kind == UNINDEXED}
        if not force:
            refuse(self.lacking)

    def _lacking_in_set_aside(self, name: str) -> list[Finding]:
        place = self._places[name]
        disk = open_dir(place.log_dir or self._folder(name))
        around = Around(disk, clusters_of(disk)[0])
        parts = [part for part in disk.partitions if part.name == self._set_aside[name]]
        return [finding for part in parts for finding in lacking_of(part, around, Look.CARRIED)]

    def _doubt_high_watermarks(self) -> None:
        """Name the partitions without an entry in a file that has entries of other partitions."""
        checkpoints = {
            place.log_dir: OffsetCheckpoints(self._storage, place.log_dir)
            for place in self._places.values()
            if place.log_dir is not None
        }
        for result in self.partitions:
            noted = checkpoints.get(self._places[result.name].log_dir or "")
            if noted is None or result.state == "skipped" or result.name in self._set_aside:
                continue
            if noted.harm(FileKind.HIGH_WATERMARKS):
                continue
            if why := noted.why_no_high_watermark(*partition_of(result.name)):
                result.doubts.append(f"{why}: which of its records were committed is not known")

    @property
    def is_marked(self) -> bool:
        if self.lacking or self._set_aside:  # a broker keeps no indexes of what it took out of use
            return False
        marker = FileKind.CLEAN_SHUTDOWN.value
        parents = {place.parent for place in self._places.values()}
        return all(os.path.exists(os.path.join(parent, marker)) for parent in parents)

    def _new_result(self, place: Target, name: str, asked: bool) -> PartitionResult:
        result = PartitionResult(name, "")
        if reason := reason_to_skip(place, name) or ("" if parse_partition_folder(name) else "no partition's name"):
            folder = parse_partition_folder(name)
            is_named = folder is not None and folder.state in _SET_ASIDE
            result.skip(reason, "by its whole name it becomes a partition again" * is_named, not_done=asked)
            return result
        if name in self._set_aside:
            result.doubts.append(
                f"from {self._set_aside[name]}, which a broker took out of use: no checkpoint says where its log "
                "started, or which of its records were committed"
            )
        files = [(parse_file_name(e.name), e.size) for e in self._storage.list_folder(self._folder(name))]
        sizes = [size for file, size in files if file.kind is FileKind.LOG and file.is_live]
        result.bytes_after, result.segments_after = sum(sizes), len(sizes)
        return result

    def refuse_inside(self, target: str) -> None:
        """Raise RequestError if a log directory lies in the source."""
        for name, place in self._places.items():
            source = place.parent if place.is_whole else self._folder(name)
            if not is_same_folder(target, source):
                refuse_inside(target, source, "read", "a log directory")
                self._refuse_second_copy(name, target)

    def _refuse_second_copy(self, name: str, target: str) -> None:
        """Refuse to bring a partition back beside its log directory, where it lives on."""
        parent = self._places[name].parent
        one, other = (read_meta_properties(LocalFiles(), folder).value for folder in (parent, target))
        is_same_broker = one is not None and other is not None and one[1:3] == other[1:3]
        if name in self._set_aside and is_same_broker and os.path.isdir(os.path.join(parent, name)):
            raise RequestError(
                f"{name} is also in {parent}, another log directory of the same broker, which does not start with two "
                f"copies: restore {self._set_aside[name]} into {parent}"
            )

    def _folder(self, name: str) -> str:
        return os.path.join(self._places[name].parent, self._set_aside.get(name, name))

    def groups(self, names: Iterable[str]) -> list[list[str]]:
        """Return groups of many: for each the checkpoints are read."""
        rest = iter(names)
        return list(iter(lambda: list(islice(rest, _TOGETHER)), []))

    def only(self, names: Collection[str]) -> FromLogs:
        some = copy.copy(self)
        some._places = {name: self._places[name] for name in names}
        some._set_aside = {name: folder for name, folder in self._set_aside.items() if name in some._places}
        some.partitions, some.lacking = [PartitionResult(name, "") for name in names], []
        return some

    def size(self, names: Iterable[str]) -> int:
        sizes = {result.name: result.bytes_after for result in self.partitions}
        return sum(sizes[name] for name in names)

    def contents(self, names: Iterable[str], arrivals: Mapping[str, Arrival]) -> dict[str, Content]:
        parts = {name: open_dir(self._folder(name)).partitions for name in names}
        return {
            name: content_of(found, arrivals[name].ids, changed=arrivals[name].changes(name))
            for name, (found,) in parts.items()
        }

    def coordinators(self) -> tuple[Disk, CutOff] | None:
        return open_dir(self._path), CutOff()

    def topic_id(self, name: str) -> str | None:
        return topic_id_of(LocalStorage(), self._folder(name))

    def cluster_id(self, name: str) -> str | None:
        place = self._places[name]
        return None if place.log_dir is None else cluster_id_of(place.log_dir)

    def write(self, order: RestoreOrder) -> list[WrittenPart]:
        """Copy partitions; compare each copy with the original, and read its batches."""
        places = {name: self._places[name] for name in order.names}
        for parent in {place.parent for place in places.values()}:
            check_unlocked(parent)
        above = order.staging.attempt_folder("restore")
        known = {
            log_dir: by_partition(read_checkpoints(self._storage, log_dir))
            for log_dir in {place.log_dir for place in places.values()}
            if log_dir
        }
        said = {
            name: known[place.log_dir].get(partition_of(name), {})
            if place.log_dir and name not in self._set_aside  # the entries are those of the log in its place
            else {}
            for name, place in places.items()
        }
        written = []
        for name in order.names:
            written.append(self._copy(above, name, said[name], order))
            said[name] = all_within(said[name], written[-1].end_offset)
        note_entries(self._storage, above, said)
        return written

    def _copy(self, above: str, name: str, entries: dict[str, int], order: RestoreOrder) -> WrittenPart:
        storage, source, copy = self._storage, self._folder(name), os.path.join(above, name)
        copy_folder(storage, source, copy, order.on_bytes)
        difference = first_difference(storage, source, copy, order.on_bytes)
        if difference:
            raise StorageError(copy, "copy", f"the copy differs from its source: {difference}")
        finish_swap(storage, copy)
        start, end = check_batches(storage, copy, source)
        topic, number = partition_of(name)
        if topic in order.ids:
            metadata = encode_partition_metadata(PartitionMetadata(order.ids[topic]))
            storage.write_synced(os.path.join(copy, FileKind.PARTITION_METADATA.value), metadata)
        (result,) = (each for each in self.partitions if each.name == name)
        result.notes += settle(storage, copy, end)
        if os.path.basename(source) in self._unindexed:
            _index_aborted(copy, result)
        if name in self._set_aside and any(finding.is_damage for finding in epoch_findings(storage, copy)):
            reindex(copy, ("epochs",))  # which a broker empties before it deletes a folder
            result.notes.append("leader epochs are made from the log")
        entries = all_within(entries, end)
        marker = os.path.join(self._places[name].parent, FileKind.CLEAN_SHUTDOWN.value)
        clean = name not in self._set_aside and os.path.exists(marker)
        points = [
            entries.get(kind.value, 0)
            for kind in (FileKind.LOG_STARTS, FileKind.RECOVERY_POINTS, FileKind.HIGH_WATERMARKS)
        ]
        adopt(storage, copy, order.arrivals[name], result, order.on_bytes)
        sizes = [e.size for e in storage.list_folder(copy) if e.name.endswith(".log")]
        start = max(start, entries.get(FileKind.LOG_STARTS.value, 0))
        opening, producers = Start(clean, *points), tuple(transactional_producers(copy, result.doubts))
        return WrittenPart(topic, number, copy, start, end, -1, len(sizes), sum(sizes), -1, opening, producers)


def _partition_name(place: Target, name: str, cluster_metadata: str | None) -> str:
    """Return the partition's name of a folder; a `-stray` or `-delete` folder gets its name back."""
    folder = parse_partition_folder(name)
    if folder is None or folder.state not in _SET_ASIDE:
        return name
    topic = folder.topic
    if len(name) == MAX_NAME_LENGTH:  # the topic may be cut off
        metadata = find_metadata([place.parent], cluster_metadata)
        topic_id = topic_id_of(LocalStorage(), os.path.join(place.parent, name))
        ids = {} if metadata is None else ClusterMetadata.read(metadata).topic_ids
        topic = next((topic for topic, number in ids.items() if number == topic_id), "")
        if not topic:
            raise RequestError(
                f"{name}: the name of its topic is cut off, and no metadata of the cluster has its topic id, "
                f"{topic_id}: name a folder that has it, by cluster_metadata (--cluster-metadata)"
            )
    return partition_folder_name(topic, folder.partition)


def _index_aborted(copy: str, result: PartitionResult) -> None:
    """Make the transaction indexes of a copy, which no broker does, from its log."""
    (done,) = reindex(copy, ("txn",))
    names = [os.path.basename(row["path"]) for row in done.rows if row["action"] == "written"]
    if names:
        result.notes.append(f"missing beside aborted transactions, and made from the log: {', '.join(names)}")
    else:
        result.not_done = True
        result.notes.append(
            f"transaction indexes are missing, and were not made: {done.reason or 'no abort was found'}"
        )
