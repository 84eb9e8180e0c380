"""`move`: move partitions from one log directory of a broker to another one of the same machine."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Sequence
from glob import has_magic

from pylogseg.disk.choice import PartitionChoice
from pylogseg.disk.folders import classify, is_asked
from pylogseg.disk.target import Target, moving_picture
from pylogseg.env.storage import LocalStorage, Storage, check_no_link
from pylogseg.errors import CorruptionError, IncompleteError, PylogsegError, RequestError, StorageError
from pylogseg.format.files.properties import parse_meta_properties
from pylogseg.format.names import (
    FileKind,
    parse_file_name,
    parse_partition_folder,
    parse_topic_folder,
    partition_folder_name,
)
from pylogseg.inspect.small_file_doubts import carried_doubts
from pylogseg.inspect.verify.findings import Finding
from pylogseg.inspect.verify.lacking import filter_damage, lacking_in
from pylogseg.log.directory import partition_of
from pylogseg.log.identity import topic_id_of
from pylogseg.offline.result import PartitionResult, Result, checkpoint_changes
from pylogseg.offline.running import reason_to_skip, remedy_of_disk
from pylogseg.transfer.checkpoints import all_within, entries_of, note_entries, read_checkpoints
from pylogseg.transfer.files import check_batches, copy_folder, first_difference
from pylogseg.transfer.staging import is_left_behind
from pylogseg.values.internal.cluster import ClusterMetadata, find_metadata

#: Folder for unfinished copies, named like a partition that is pending deletion: readers skip it, a broker removes it.
_ARRIVING = partition_folder_name("pylogseg-arriving", 0, "delete", "0" * 32)
#: A folder in it that is named like no partition, or it would be taken for a log directory.
_INSIDE = "partitions"
_RESTORE = "`pylogseg restore` makes a log of another cluster fit for this one"


def move(
    path: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    topic: str | Sequence[str] | None = None,
    partition: int | Sequence[int] | None = None,
    dry_run: bool = False,
    force: bool = False,
    on_result: Callable[[PartitionResult], None] | None = None,
    on_bytes: Callable[[int], None] | None = None,
    storage: Storage | None = None,
) -> Result:
    """Move partitions to another log directory of the same broker, which does not run.

    One after the other is copied beside its later place, and compared with the original byte for byte; then the copy
    gets its name, and the original goes. Between these two steps the partition is whole in both directories, a broker
    refuses to start, and the same command again removes the original, if it is still the same. The checkpoint entries
    of a partition go with it.

    Parameters
    ----------
    path : path
        The log directory that has the partitions.
    target : path
        The one that gets them; an empty folder becomes one.
    topic : str or sequence of str, optional
        Topics (``orders``), partitions (``orders-3``) or shell patterns; ``*`` for all.
    partition : int or sequence of int, optional
        Only partitions with these numbers.
    dry_run : bool
        Only print the plan, by the listing of the folders.
    force : bool
        Move also partitions that lack records. Without it such a partition fails and stays, with the evidence.
    on_result : callable, optional
        Called with the result of each partition, in the order of names.
    on_bytes : callable, optional
        Gets the bytes that were copied or compared since its last call.
    storage : Storage, optional
        Where both lie; the disks of this machine by default.

    Returns
    -------
    Result
        Its log directory is the target; a partition that lies there already, and not in `path`, is ``"unchanged"``.

    Raises
    ------
    RequestError
        If a name is not there or none is given, or the two are not directories of one broker.
    StorageError
        If a broker or another writer has the lock of one of them, or their checkpoints cannot be written.
    CorruptionError
        If a checkpoint or ``meta.properties`` cannot be read.
    """
    choice = PartitionChoice.of(topic, partition)
    if choice.is_all:
        raise RequestError("nothing is named: say which topics or partitions are to be moved, or '*' for all")
    disk = LocalStorage() if storage is None else storage
    place = Target.find(disk, os.fspath(path))
    if not place.is_whole:
        name = place.names[0]
        raise RequestError(
            f"{path}: the folder of a partition; name the log directory, then it: {place.parent} ... {name}"
        )
    into = os.fspath(target)
    _check_pair(disk, place.parent, into)
    refuse_target(disk, into)
    job = _Move(disk, place, into, on_result or (lambda result: None), on_bytes or (lambda size: None))
    here, arrived = _chosen(place, job.there(), choice)
    if isinstance(disk, LocalStorage):
        job.look(here, choice, force)
        job.compare_ids(here)
    if not here and not arrived:
        job.note(f"{place.parent} has no such partition; matching ones are in {into} already")
    return job.plan(here, arrived, choice.names) if dry_run else job.run(here, arrived, choice.names)


def refuse_target(storage: Storage, path: str) -> None:
    """Refuse a target that is neither a log directory nor an empty folder."""
    if not storage.exists(path) or not storage.stat(path).is_dir:
        raise RequestError(f"{path}: there is no such folder")
    entries = [
        entry
        for entry in storage.list_folder(path)
        if entry.name not in (_ARRIVING, FileKind.LOCK.value) and not is_left_behind(entry.name)
    ]
    found = classify(storage, path, storage.split(path)[1], entries)
    if entries and (not found.is_log_dir or found.is_ambiguous or found.log_dirs):
        raise RequestError(f"{path}: neither a log directory nor an empty folder")


def _check_pair(storage: Storage, source: str, target: str) -> None:
    if isinstance(storage, LocalStorage):
        source, target = os.path.realpath(source), os.path.realpath(target)
    if os.path.commonpath([source, target]) in (source, target):
        raise RequestError(f"{source} and {target} are one folder, or one lies in the other: name two log directories")
    owners = [_owner(storage, log_dir) for log_dir in (source, target)]
    if None not in owners and owners[0] != owners[1]:
        of = " and ".join(f"cluster {owner[0]}, node {owner[1]}" for owner in owners if owner is not None)
        raise RequestError(
            f"{source} and {target} belong to two brokers ({of}): `move` works within one broker; "
            "`pylogseg restore` brings a partition to another broker"
        )


def _owner(storage: Storage, log_dir: str) -> tuple[str | None, int | None] | None:
    path = storage.join(log_dir, FileKind.META_PROPERTIES.value)
    if not storage.exists(path):
        return None
    meta = parse_meta_properties(storage.read_all(path), path)
    return meta.cluster_id, meta.node_id


def _chosen(place: Target, there: Sequence[str], choice: PartitionChoice) -> tuple[list[str], list[str]]:
    """Return the folders to move, and the named ones that lie in the target already."""
    every = Target(place.parent, tuple({*place.names, *there}), None, True).chosen(choice)
    own = set(place.names)
    return [name for name in every if name in own], [n for n in every if n not in own and _is_named(n, choice.names)]


def _is_named(name: str, topics: Sequence[str]) -> bool:
    """Check whether a partition was asked for by its name or its topic's, as opposed to a pattern that fits."""
    return any(not has_magic(asked) and is_asked(name, parse_partition_folder(name), asked) for asked in topics)


class _Move:
    def __init__(
        self,
        storage: Storage,
        place: Target,
        target: str,
        on_result: Callable[[PartitionResult], None],
        on_bytes: Callable[[int], None],
    ) -> None:
        self._storage, self._place, self._source, self._target = storage, place, place.parent, target
        self._on_result, self._advance = on_result, on_bytes
        self._arriving = storage.join(target, _ARRIVING)
        self._result = Result(log_dir=target)
        self._lacking: dict[str, list[Finding]] = {}
        self._foreign: dict[str, str] = {}
        self._force = False

    def note(self, text: str) -> None:
        """Something about the two directories."""
        self._result.notes.append(text)

    def look(self, names: Sequence[str], choice: PartitionChoice, force: bool) -> None:
        """Look up the missing records of the partitions to move, and the named partitions that are gone."""
        moved, found = self.there(), lacking_in([(self._place, names)], choice)
        doubts, notes = carried_doubts(self._storage, self._source, names)
        self._result.doubts += doubts
        self._result.notes += notes
        self._result.lacking += [finding for finding in found if not finding.is_damage]
        for finding in filter_damage(found):
            above, last = self._storage.split(finding.path)
            name = last if last in names else self._storage.split(above)[1]
            if name in names:
                self._lacking.setdefault(name, []).append(finding)
            elif last not in moved and finding.offset is not None:  # the metadata may not know of an earlier move
                self._result.lacking.append(finding)
        self._force = force

    def compare_ids(self, names: Sequence[str]) -> None:
        """Note signs that logs come from another cluster: producer ids of two clusters mean different producers.

        A broker sets such a folder aside, unless somebody changes the id in it.
        """
        if _owner(self._storage, self._source) is None is not _owner(self._storage, self._target):
            self.note(
                f"{self._source} has no meta.properties, and so says of no cluster that these are its logs: {_RESTORE}"
            )
        folder = find_metadata([self._target, self._source])
        try:
            known = {} if folder is None else ClusterMetadata.read(folder).topic_ids
        except (CorruptionError, StorageError):  # a disk that has to go may have just that
            return
        for name in filter(parse_topic_folder, names):
            topic, own = partition_of(name)[0], topic_id_of(self._storage, self._storage.join(self._source, name))
            if own is not None and known.get(topic, own) != own:
                self._foreign[name] = (
                    f"the topic has another id in this cluster ({known[topic]}, not {own}): {_RESTORE}"
                )

    def there(self) -> list[str]:
        """Live partitions of the target."""
        return self._live(self._target)

    def _live(self, log_dir: str) -> list[str]:
        names = [entry.name for entry in self._storage.list_folder(log_dir) if entry.is_dir]
        return [name for name in names if (folder := parse_topic_folder(name)) is not None and not folder.state]

    def plan(self, here: Sequence[str], arrived: Sequence[str], topics: Sequence[str]) -> Result:
        result = self._result
        result.dry_run = True
        for name in sorted([*here, *arrived]):
            part_result = self._new_result(name, topics, is_here=name in here)
            self._add(part_result)
        result.is_closed_clean = self._is_marked(self._target)
        if isinstance(self._storage, LocalStorage):
            result.notes += [*moving_picture(self._source), *moving_picture(self._target)]
        if any(part_result.state == "done" for part_result in result):
            result.notes.append("no segment was read: damage, or a disk without room, shows when they are moved")
        return result

    def run(self, here: Sequence[str], arrived: Sequence[str], topics: Sequence[str]) -> Result:
        storage, result = self._storage, self._result
        with contextlib.ExitStack() as held:
            for log_dir in (self._source, self._target):
                held.callback(storage.lock(log_dir).release)
            places = (self._source, self._target)
            before = {log_dir: read_checkpoints(storage, log_dir, result.doubts) for log_dir in places}
            is_first = not self.there()
            storage.remove_folder(self._arriving)
            try:
                for name in arrived:
                    self._forget(name)
                for name in sorted([*here, *arrived]):
                    part_result = self._new_result(name, topics, is_here=name in here)
                    if part_result.state == "done":
                        self._try(name, part_result)
                    self._add(part_result)
            finally:
                with contextlib.suppress(StorageError):
                    storage.remove_folder(self._arriving)
            if is_first and self._is_marked(self._source) and not result.failed:
                self._write_marker()
            result.is_closed_clean = self._is_marked(self._target)
            if here and not self._live(self._source):
                result.notes.append(
                    f"{self._source} has no partition any more: start the broker once with both directories before it "
                    "leaves log.dirs"
                )
            for log_dir, entries in before.items():
                changes = checkpoint_changes(entries, read_checkpoints(storage, log_dir))
                result.checkpoints += [c._replace(file=storage.join(log_dir, c.file)) for c in changes]
        return result

    def _add(self, result: PartitionResult) -> None:
        self._result.partitions.append(result)
        self._on_result(result)

    # ---- one partition ----

    def _new_result(self, name: str, topics: Sequence[str], *, is_here: bool) -> PartitionResult:
        """Return the result for a partition before it is moved; ``"done"`` if it will be."""
        storage = self._storage
        result = PartitionResult(name, storage.join(self._target, name))
        if not is_here:
            result.state, result.notes = "unchanged", [f"it is in {self._target} already"]
            result.bytes_before, result.segments_before = self._sizes(result.path)
        else:
            source = storage.join(self._source, name)
            if reason := reason_to_skip(self._place, name):
                result.skip(reason, not_done=_is_named(name, topics))
            elif future := self._future(name):
                result.skip(
                    f"a broker has begun to move it itself: {future}",
                    "let the broker end that, or remove this folder, which is a copy",
                    not_done=True,
                )
            elif lacking := self._lacking.get(name):
                if self._force:
                    self._result.lacking += lacking
                else:
                    result.state, result.reason = "failed", "; ".join(finding.reason for finding in lacking)
                    result.remedy = f"{lacking[-1].remedy}; to move what there is, force it (--force)"
                    result.error = IncompleteError(source, result.reason, lacking[0].offset)
            if name in self._foreign and result.state == "done":
                result.notes.append(self._foreign[name])
            result.bytes_before, result.segments_before = self._sizes(source)
        result.bytes_after, result.segments_after = result.bytes_before, result.segments_before
        return result

    def _future(self, name: str) -> str:
        moved = parse_partition_folder(name)
        for log_dir in (self._source, self._target):
            for entry in self._storage.list_folder(log_dir):
                folder = parse_partition_folder(entry.name)
                if folder is not None and moved is not None and folder.state == "future" and folder[:2] == moved[:2]:
                    return self._storage.join(log_dir, entry.name)
        return ""

    def _sizes(self, folder: str) -> tuple[int, int]:
        entries = [(parse_file_name(entry.name), entry.size) for entry in self._storage.list_folder(folder)]
        sizes = [size for name, size in entries if name.kind is FileKind.LOG and name.is_live]
        return sum(sizes), len(sizes)

    def _try(self, name: str, result: PartitionResult) -> None:
        try:
            self._move(name, result)
        except PylogsegError as error:
            result.state, result.reason, result.error = "failed", str(error), error
            if isinstance(error, CorruptionError):
                result.remedy = "repair it with `pylogseg repair`, or take it from another replica; then move it"
            elif isinstance(error, StorageError):
                result.remedy = remedy_of_disk(error)

    def _move(self, name: str, result: PartitionResult) -> None:
        storage = self._storage
        source, target = storage.join(self._source, name), result.path
        if isinstance(storage, LocalStorage):
            check_no_link(source)
            check_no_link(target)
        self._place.check(storage, name)
        self._match_markers()
        if storage.exists(target):
            self._check_same(source, target)
            result.notes.append("it was there already, byte for byte; the original was removed")
        else:
            self._copy(name, source, target, result)
        self._remove(name, source)

    def _check_same(self, source: str, target: str) -> None:
        """Raise unless the target is the complete copy of an interrupted move."""
        difference = first_difference(self._storage, source, target, self._advance)
        if difference:
            raise RequestError(
                f"{target} is there already, and is not the same as {source}: {difference}. `pylogseg diff` "
                "shows which one has all records; move the other one out of its log directory"
            )

    def _copy(self, name: str, source: str, target: str, result: PartitionResult) -> None:
        storage = self._storage
        if folders := [entry.name for entry in storage.list_folder(source) if entry.is_dir]:
            raise RequestError(f"{source}: there is a folder in it, {folders[0]}, which belongs to no partition")
        above, pending = storage.join(self._arriving, _INSIDE), self._pending(self._target, name)
        copy = storage.join(above, name)
        storage.make_folder(above)
        storage.remove_folder(pending)  # of a move that died
        try:
            copy_folder(storage, source, copy, self._advance)
            difference = first_difference(storage, source, copy, self._advance)
            if difference:
                raise StorageError(target, "copy", f"the copy differs from its source: {difference}")
            result.log_start, result.log_end = check_batches(storage, copy, source)
            entries = all_within(entries_of(storage, self._source, name), result.log_end)
            result.log_start = max(result.log_start, entries.get(FileKind.LOG_STARTS.value, 0))
            note_entries(storage, self._target, {name: entries})
            # A crash may leave what goes from one folder to another in both; inside one folder it does not.
            storage.rename(copy, pending)
            storage.sync_folder(self._target)
            storage.sync_folder(above)
            storage.rename(pending, target)
            storage.sync_folder(self._target)
        except BaseException:
            with contextlib.suppress(StorageError):  # it may be what fills the disk
                storage.remove_folder(self._arriving)
                storage.remove_folder(pending)
            raise

    def _remove(self, name: str, source: str) -> None:
        """The partition is gone in one step, before its files go one by one."""
        storage, pending = self._storage, self._pending(self._source, name)
        storage.remove_folder(pending)  # of an earlier move of the same partition, which has come back since
        storage.rename(source, pending)
        storage.sync_folder(self._source)
        self._forget(name)

    def _forget(self, name: str) -> None:
        """Remove the rest of a partition that is in the target."""
        note_entries(self._storage, self._source, {name: {}})
        self._storage.remove_folder(self._pending(self._source, name))

    def _pending(self, log_dir: str, name: str) -> str:
        """Return the folder name of a partition that is pending deletion."""
        topic, number = partition_of(name)
        unique = hashlib.sha256(name.encode()).hexdigest()[:32]  # a long topic is cut off in it
        return self._storage.join(log_dir, partition_folder_name(topic, number, "delete", unique))

    # ---- clean shutdown marker ----

    def _marker(self, log_dir: str) -> str:
        return self._storage.join(log_dir, FileKind.CLEAN_SHUTDOWN.value)

    def _is_marked(self, log_dir: str) -> bool:
        return self._storage.exists(self._marker(log_dir))

    def _match_markers(self) -> None:
        """Remove the target's marker, which vouches for all partitions, if some come from a directory without one."""
        storage = self._storage
        if not self._is_marked(self._source) and self._is_marked(self._target):
            storage.remove(self._marker(self._target))
            storage.sync_folder(self._target)
            self._result.notes.append(
                f"{self._source} has no clean shutdown, so {self._target} has none any more: a broker recovers both"
            )

    def _write_marker(self) -> None:
        """The target had no partition, so it is as trustworthy as the source."""
        storage = self._storage
        storage.write_whole(self._marker(self._target), storage.read_all(self._marker(self._source)))
