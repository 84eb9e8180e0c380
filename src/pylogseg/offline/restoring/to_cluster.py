"""`restore` into a running cluster: logs are produced again, at the offsets that they had.

A plan comes first, and nothing is written before all partitions have one. The end of a partition says where an earlier
run stopped, after a comparison shows that the records are those of the source. At the end all is fetched and compared,
as consumers with either isolation see it; then topics get their settings, and groups their offsets.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict

import numpy as np

from pylogseg.disk.choice import PartitionChoice
from pylogseg.disk.disk import Disk, Partition
from pylogseg.disk.folders import refuse_archive
from pylogseg.disk.listing import open_dir, open_folder
from pylogseg.env.executor import Advance, Threads, WorkKeywords, Workload, choose_executor
from pylogseg.env.storage import LocalStorage
from pylogseg.errors import PylogsegError, RequestError, StorageError
from pylogseg.format.keywords import split_keywords
from pylogseg.format.messages import codes
from pylogseg.format.names import METADATA_TOPIC
from pylogseg.format.records import RecordColumns
from pylogseg.format.words import check_word
from pylogseg.inspect.verify.lacking import filter_damage, lacking, refuse
from pylogseg.live import administering
from pylogseg.live.administering import CommittedOffset
from pylogseg.live.cluster import Cluster
from pylogseg.live.files import LiveFiles, open_cluster
from pylogseg.live.producing import PartitionProducer, SentBatch
from pylogseg.offline.comparing import Side
from pylogseg.offline.comparing_columns import changes
from pylogseg.offline.ending_transactions import producers_with_transactions
from pylogseg.offline.restoring.offset_plan import OffsetStep
from pylogseg.offline.restoring.planned_log import PlannedLog, chunks_between, is_whole, make_batch, move_back
from pylogseg.offline.restoring.produced import Produced, ProducedLog, encode_map
from pylogseg.reading.logs import logs_of
from pylogseg.reading.state import IsolationLevel
from pylogseg.reading.transaction_markers import marker_rows
from pylogseg.values.internal.cluster import INTERNAL_TOPICS, ClusterMetadata
from pylogseg.values.internal.cluster_state import ClusterState
from pylogseg.values.internal.cut_off import CutOff
from pylogseg.values.internal.groups import TOPIC as GROUPS
from pylogseg.values.internal.transaction_ends import CoordinatorLog, OpenEnd, planned_ends
from pylogseg.values.internal.transactions import TOPIC as TRANSACTIONS
from pylogseg.values.internal.transactions import coordinator_count, coordinator_log

if TYPE_CHECKING:
    from typing_extensions import Unpack

#: Topics that a cluster writes by itself, and that no client may write to.
_OWN_TOPICS = {*INTERNAL_TOPICS, METADATA_TOPIC, "__remote_log_metadata"}
_MOST = str(2**63 - 1)
#: Settings of a topic while it is restored: nothing is removed, and all is taken as it comes.
_MEANWHILE = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "compression.type": "producer",
    "message.timestamp.type": "CreateTime",
    "message.timestamp.after.max.ms": _MOST,
    "message.timestamp.before.max.ms": _MOST,
    "max.message.bytes": str(2**31 - 1),
}
#: Of these, what stays if the settings of the source are not known: else its records could be removed at once.
_UNKNOWN = {key: _MEANWHILE[key] for key in ("retention.ms", "retention.bytes")}
#: What Kafka has where a topic has no setting.
_RETENTION_MS = 7 * 24 * 3600 * 1000
_NEVER = 2**63
#: Longer transactions are worth a note.
_LONG_S = 600
#: A group whose offsets carry a note: which settings a topic had before.
_NOTE_GROUP = "pylogseg-restore"
_LEVELS: tuple[IsolationLevel, ...] = ("read_uncommitted", "read_committed")

OffsetsKind = Literal["keep", "new"]


class _SourceKeywords(TypedDict, total=False):
    storage_options: Mapping[str, Any] | None
    tier: str | None
    cluster_options: Mapping[str, Any] | None
    with_groups: bool


class ToClusterKeywords(WorkKeywords, _SourceKeywords, total=False):
    """Keywords of `restore_to_cluster` about its source, its work and its login."""


def restore_to_cluster(
    path: str | os.PathLike[str],
    cluster: str,
    *,
    topic: str | Sequence[str] | None = None,
    partition: int | Sequence[int] | None = None,
    offsets: OffsetsKind = "keep",
    map_file: str | os.PathLike[str] | None = None,
    replicas: int = -1,
    abort_open_transactions: bool = False,
    force: bool = False,
    dry_run: bool = False,
    **how: Unpack[ToClusterKeywords],
) -> Produced:
    """Put partitions into a running cluster, over Kafka's protocol, with the offsets that they have.

    Topics are made, or are there with empty partitions. Batches without holes go as they are; offsets that no record
    has are taken by markers of empty transactions, which no consumer sees, and those below the first record by records
    that are deleted then. Aborted records are aborted ones again. While it is written, a topic has no retention; at the
    end it gets the settings of the source, or those that it had. All is fetched and compared, as consumers with either
    isolation see it. Then groups get the offsets that they had committed.

    An interrupted run is repeated: it goes on where the partitions end, if they are the beginning of the logs.

    Parameters
    ----------
    path : path or URL
        A log directory, a partition's folder, an archive at a point, a tier.
    cluster : str
        ``kafka://HOST:PORT``.
    topic : str or sequence of str, optional
        Topics (``orders``), partitions (``orders-3``) or shell patterns; all if left out.
    partition : int or sequence of int, optional
        Only partitions with these numbers.
    offsets : {"keep", "new"}
        ``new``: committed records go to wherever the partitions end, and offsets of groups are translated.
    map_file : path, optional
        With new offsets: a table of where the records went, in CSV, or in JSON if its name ends so.
    replicas : int
        Replicas of topics that the command makes; -1 takes the default of the cluster.
    abort_open_transactions : bool
        Abort transactions that are open at the end of a log, by markers behind it, unless the
        coordinators' log tells how they ended. Without this they are an error.
    force : bool
        Restore also from a source that has lost records, and leave out damaged partitions.
    dry_run : bool
        Only make the plan.
    with_groups : bool
        False: do not commit the offsets of groups.
    storage_options, tier
        The storage of the source, as `pylogseg.open_dir` takes it.
    cluster_options : mapping, optional
        ``{"cluster": ...}`` has the properties of a client, or the path of their file.
    jobs : int or None
        Threads, each with a partition: 1 is the caller's own, None one per processor.
    executor : Executor, optional
        Only threads of this machine.
    on_bytes : callable, optional
        Gets the bytes of segments that were read: once for the plan, once to produce, and twice to compare.

    Returns
    -------
    Produced

    Raises
    ------
    IncompleteError
        If the source has lost records, unless `force` is set.
    RequestError
        If a name is not there, a transaction is open, or the cluster has other records in a partition. Nothing was
        written.
    CorruptionError
        If a log is damaged. Nothing was written.
    StorageError
        If the cluster or a disk fails before partitions are written; later `Produced` has it.
    """
    check_word("offsets", offsets, ("keep", "new"))
    work, more = split_keywords(how, WorkKeywords, _SourceKeywords)
    on_bytes = work.pop("on_bytes", None)
    executor = choose_executor(**work)
    if not isinstance(executor, Threads):
        raise RequestError(f"{cluster}: a restore into a running cluster works with threads of this machine")
    login = more.pop("cluster_options", None) or {}
    with_groups = more.pop("with_groups", True)
    files, inside = open_cluster(cluster, login)
    if inside != files.url:
        raise RequestError(f"{cluster}: name topics beside the URL of the cluster, and not in it: {files.url}")
    source = os.fspath(path)
    if os.path.isdir(source):
        refuse_archive(source, os.listdir(source))
    job = _ClusterRestore(
        source,
        open_dir(source, **more),
        PartitionChoice.of(topic, partition),
        files.cluster,
        Produced(source, files.url, offsets, dry_run),
        executor,
        on_bytes,
        map_file=map_file,
        replicas=replicas,
    )
    job.refuse_losses(force)
    job.make_plans(aborts_open=abort_open_transactions, goes_on=force or dry_run)
    job.look_at_target()
    if not dry_run:
        job.run()
    if with_groups:
        job.commit_groups()
    return job.result


class _ClusterRestore:
    """Partitions on their way into a cluster."""

    def __init__(
        self,
        source: str,
        disk: Disk,
        choice: PartitionChoice,
        cluster: Cluster,
        result: Produced,
        threads: Threads,
        on_bytes: Callable[[int], None] | None,
        *,
        map_file: str | os.PathLike[str] | None,
        replicas: int,
    ) -> None:
        self.result = result
        self._disk, self._choice, self._cluster = disk, choice, cluster
        self._threads, self._on_bytes = threads, on_bytes
        self._keeps, self._map_file, self._replicas = result.offsets == "keep", map_file, replicas
        if map_file is not None and self._keeps:
            raise RequestError("a map of offsets is for new offsets: this restore keeps the offsets of the source")
        chosen = disk.select(*choice.arguments)
        self._chosen = [part for part in chosen.partitions if part.topic and not part.state]
        self._logs = {log.path: log for log in logs_of(chosen)}
        self._planned: list[PlannedLog] = []
        self._metadata = _metadata_of(disk)

    # ---- before anything is written ----

    def refuse_losses(self, force: bool) -> None:
        """Raise IncompleteError if the source has lost records: markers would take their offsets."""
        parts = [part for part in self._chosen if part.topic not in _OWN_TOPICS]
        findings = filter_damage(lacking(self._disk, parts, self._choice))
        if not force:
            refuse(findings)
        self.result.lacking += findings

    def make_plans(self, *, aborts_open: bool, goes_on: bool) -> None:
        """Read the headers of all logs, and plan each offset; a log without a plan is an error, or is left out."""
        is_named = not self._choice.is_all
        parts = []
        for part in self._chosen:
            if part.topic in _OWN_TOPICS:
                row = ProducedLog(part.name)
                row.skip(
                    "the cluster writes this topic by itself", not_done=is_named and part.topic in self._choice.names
                )
                self.result.partitions.append(row)
            else:
                parts.append(part)
        if not parts:
            raise RequestError(f"{self.result.source}: nothing to restore was chosen")
        load = Workload("pylogseg restore", [part.size for part in parts], self._on_bytes)
        self._planned = list(self._threads.map(self._read_headers, parts, load))
        self._end_transactions(aborts=aborts_open)
        list(self._threads.map(self._count, [planned for planned in self._planned if planned.row.state != "failed"]))
        failed = [planned.row.error for planned in self._planned if planned.row.error is not None]
        if failed and (not goes_on or len(failed) == len(parts)):
            raise failed[0]
        self.result.partitions += [planned.row for planned in self._planned]
        self.result.partitions.sort(key=lambda row: row.name)

    def _read_headers(self, part: Partition, advance: Advance) -> PlannedLog:
        row = ProducedLog(part.name, bytes=part.size)
        log = self._logs[part.path]
        planned = PlannedLog(row, log)
        try:
            if part.error is not None:
                raise part.error
            planned.end, oldest = log.log_end_offset, _NEVER
            for window in planned.batches(advance):
                rows = window.batches[window.batches.last_offset >= log.log_start_offset]
                oldest = min([oldest, *rows.max_timestamp[rows.max_timestamp >= 0].tolist()])
                planned.outcomes.add(rows, list(marker_rows(rows[rows.is_transactional & rows.is_control], window)))
                planned.end = max([planned.end, *(rows.last_offset + 1)[-1:].tolist()])
            self._note_retention(row, oldest)
        except PylogsegError as error:
            row.fail(str(error), error=error)
        return planned

    def _end_transactions(self, *, aborts: bool) -> None:
        """Decide how transactions end that are open at the end of logs: as the log of their coordinators says."""
        opened = [planned for planned in self._planned if planned.outcomes.open_first and planned.row.state != "failed"]
        if not opened:
            return
        doubts = self.result.doubts
        facts = {
            planned.row.place: producers_with_transactions(planned.log, doubts, name=planned.log.name)
            for planned in opened
        }
        coordinator = CoordinatorLog(lacks=f"{TRANSACTIONS} is not here")
        if any(part.topic == TRANSACTIONS for part in self._disk.partitions):
            ids = {producer for planned in opened for producer in planned.outcomes.open_first}
            coordinator = coordinator_log(self._disk, CutOff(), ids, coordinator_count(self._disk))
        ends = planned_ends(coordinator, facts, facts, aborts=aborts).ends
        for planned in opened:
            self._end_open(planned, {row.producer_id: end for row, end in ends.get(planned.row.place, ())}, aborts)

    def _end_open(self, planned: PlannedLog, ends: Mapping[int, OpenEnd], aborts: bool) -> None:
        opened, row = planned.outcomes.open_first, planned.row
        planned.has_open = True
        for producer, first in sorted(opened.items(), key=lambda item: item[1]):
            end = ends.get(producer)
            if (end is None or end.action == "leave") and not aborts:
                why = "" if end is None else f" ({end.why})"
                error = RequestError(
                    f"{row.name}: the transaction of producer {producer} is open from offset {first} on, and nobody in "
                    f"the cluster would end it{why}: --abort-open-transactions aborts it, with a marker behind the log"
                )
                row.fail(str(error), error=error)
                return
            is_committed = end is not None and end.action == "commit"
            why = "as was asked for" if end is None else end.why
            row.notes.append(
                f"the transaction of producer {producer} is open from offset {first} on, and is "
                f"{'committed' if is_committed else 'aborted'}: {why}"
            )
            if is_committed:
                del opened[producer]
        planned.end = planned.outcomes.abort_open(planned.end)

    def _count(self, planned: PlannedLog, _: Advance) -> None:
        row, plan = planned.row, planned.plan
        first: int | None = None
        for step, window in planned.steps(plan, lambda size: None):
            length = step.next_offset - step.first_offset
            if step.kind == "records":
                assert window is not None
                first = step.first_offset if first is None else first
                row.records += length
                row.batches += 1
                row.encoded += not is_whole(step, window)
            elif step.kind == "burn":
                row.burned = length
            elif step.kind == "holes":
                row.markers += length
            else:
                row.aborted += 1
        planned.slots = plan.slots
        planned.first_offset = planned.end if first is None else first
        row.log_start, row.log_end = max(planned.first_offset, planned.log.log_start_offset), planned.end
        if not self._keeps:
            row.burned = row.markers = 0
        elif row.log_start > planned.log.log_start_offset:
            row.notes.append(
                f"the log starts at offset {row.log_start}, and not at {planned.log.log_start_offset}: no record lies "
                "between"
            )
        spans = [last - begun for ranges in planned.outcomes.aborted.values() for begun, last in ranges]
        seconds = row.seconds * max(spans, default=0) / max(planned.end, 1)
        if self._keeps and seconds > _LONG_S:
            row.notes.append(
                f"an aborted transaction stays open for about {seconds:.0f} s, and brokers end one after 15 minutes: "
                "if they do, the partition fails there"
            )

    def _note_retention(self, row: ProducedLog, oldest: int) -> None:
        settings = self._settings_of(row.place[0])
        if settings is not None and "delete" in settings.get("cleanup.policy", "delete"):
            retention = int(settings.get("retention.ms", _RETENTION_MS))
            if retention >= 0 and oldest < time.time() * 1000 - retention:
                row.notes.append(
                    f"it has records that are older than retention.ms={retention}: the cluster removes them when the "
                    "restore has ended; to keep them, make the topic first, with another value"
                )

    def look_at_target(self) -> None:
        """Refuse topics and partitions of the cluster that are in the way; find where an earlier run stopped."""
        there = self._cluster.topics(sorted({planned.row.place[0] for planned in self._planned}))
        for planned in self._planned:
            topic, number = planned.row.place
            if topic in there and number not in there[topic].leaders:
                raise RequestError(
                    f"{self.result.target}/{topic}: the topic has {len(there[topic].leaders)} partitions, and none "
                    f"with number {number}: add partitions, or delete the topic"
                )
        some = [planned for planned in self._planned if planned.row.place[0] in there and planned.row.state != "failed"]
        if self._keeps:
            list(self._threads.map(self._look_at_partition, some))

    def _look_at_partition(self, planned: PlannedLog, _: Advance) -> None:
        producer = PartitionProducer(self._cluster, *planned.row.place)
        try:
            end = producer.settle(planned.slots)
            if not end:
                return
            planned.row.resumed_at = end
            remedy = "restore into an empty topic, or with new offsets (--offsets new)"
            if end > planned.end:
                raise RequestError(
                    f"{producer.path}: it ends at offset {end}, and the log in the source at {planned.end}: {remedy}"
                )
            if reason := self._other_beginning(planned, producer.start(), end):
                raise RequestError(f"{producer.path}: it is not empty, and not as the log begins: {reason}: {remedy}")
        finally:
            producer.close()

    def _other_beginning(self, planned: PlannedLog, start: int, end: int) -> str:
        """Return why no earlier run can have left these records in the cluster; empty if one can."""
        burned = min(planned.first_offset, end)
        if start < burned:
            for columns in self._fetch_records(planned.row, start, burned, "read_uncommitted"):
                is_filler = (columns.key_size < 0) & (columns.value_size < 0) & (columns.header_count == 0)
                if not is_filler.all():
                    return f"it has a record at offset {int(columns.offset[~is_filler][0])}, and the log has none there"
        elif start > max(planned.first_offset, planned.log.log_start_offset):
            return f"it starts at offset {start}, and the log at {planned.row.log_start}"
        first = max(start, planned.row.log_start)
        if end <= first:
            return ""
        return self._difference(planned, first, end, "read_uncommitted", lambda size: None)

    # ---- the run ----

    def run(self) -> None:
        """Make the topics, produce the logs, and compare them."""
        topics: dict[str, list[PlannedLog]] = {}
        for planned in self._planned:
            if planned.row.state != "failed":
                topics.setdefault(planned.row.place[0], []).append(planned)
        before = {name: self._make_topic(name, some) for name, some in topics.items()}
        try:
            work = [planned for some in topics.values() for planned in some]
            load = Workload("pylogseg restore", [planned.row.bytes for planned in work], self._on_bytes)
            list(self._threads.map(self._restore, work, load))
        finally:
            if self._map_file is not None:
                is_json = os.fspath(self._map_file).endswith(".json")
                text = encode_map(self.result.partitions, as_json=is_json)
                LocalStorage().write_whole(os.fspath(self._map_file), text.encode())
        for name, some in topics.items():
            self._end_topic(name, before[name], is_whole=all(planned.row.state != "failed" for planned in some))

    def _make_topic(self, name: str, some: Sequence[PlannedLog]) -> Mapping[str, str] | None:
        """Create a topic if it does not exist, and set the settings that the restore needs.

        Returns the settings that it gets at the end; None if it keeps those that it has.
        """
        cluster = self._cluster
        is_new = name not in cluster.topics([name])
        if is_new:
            count = max(self._count_of(name), *(planned.row.place[1] + 1 for planned in some))
            administering.create_topic(cluster, name, count, self._replicas)
        elif not self._keeps:
            return None
        own, names = administering.read_topic_settings(cluster, name)
        place = name, min(planned.row.place[1] for planned in some)
        noted = administering.read_group_offsets(cluster, _NOTE_GROUP, [place]).get(place)
        if noted is None:
            final = self._settings_of(name) if is_new else own
            if final is None:
                final = _UNKNOWN
            text = json.dumps({key: value for key, value in final.items() if is_new or key in _MEANWHILE})
            refused = administering.commit_group_offsets(cluster, _NOTE_GROUP, {place: CommittedOffset(0, text)})
            if refused:
                reason = f"group {_NOTE_GROUP}: {codes.name_of(refused[place])}"
                raise StorageError(f"{cluster.url}/{name}", "note its settings", reason)
        else:
            final = json.loads(noted.metadata)
        administering.alter_settings(cluster, name, {key: _MEANWHILE[key] for key in _MEANWHILE if key in names})
        return final

    def _settings_of(self, topic: str) -> dict[str, str] | None:
        """Return the settings of a topic in the source; None if it does not tell."""
        metadata = self._metadata
        return None if metadata is None or topic not in metadata.topic_ids else metadata.of_topic(topic)

    def _count_of(self, topic: str) -> int:
        if self._metadata is None:
            return 0
        topic_id = self._metadata.topic_ids.get(topic)
        return sum(of == topic_id for of, _ in self._metadata.replicas)

    def _end_topic(self, name: str, final: Mapping[str, str] | None, *, is_whole: bool) -> None:
        if final is None:
            return
        cluster = self._cluster
        if not is_whole:
            self.result.notes.append(
                f"{name}: it keeps the settings of the restore, without retention, until all of it is there: "
                "run the command again"
            )
            return
        removed = [key for key in administering.read_topic_settings(cluster, name)[0] if key in _MEANWHILE]
        removed = [key for key in removed if key not in final]
        try:
            administering.alter_settings(cluster, name, final, removed)
        except StorageError:
            administering.alter_settings(cluster, name, {}, removed)
            for key, value in final.items():
                try:
                    administering.alter_settings(cluster, name, {key: value})
                except StorageError as error:
                    self.result.doubts.append(f"{name}: {key}={value} was not set: {error.reason}")
        if final == _UNKNOWN:
            self.result.notes.append(
                f"{name}: retention is off (retention.ms and retention.bytes are -1), since the source does not tell "
                "the topic's settings"
            )
        places = [row.place for row in self.result if row.place[0] == name]
        administering.delete_group_offsets(cluster, _NOTE_GROUP, places)

    def _restore(self, planned: PlannedLog, advance: Advance) -> None:
        row = planned.row
        producer = PartitionProducer(self._cluster, *row.place, self._note_moved(row))
        try:
            if self._keeps and row.resumed_at == planned.end:
                self._end_log(planned, producer)
            elif self._keeps:
                self._produce(planned, producer, advance)
            else:
                self._produce_new(planned, producer, advance)
            reasons = [self._difference(planned, row.log_start, row.log_end, level, advance) for level in self._levels]
            if reason := next(filter(None, reasons), ""):
                row.fail(f"fetched again, it is not the same: {reason}", "delete the topic, and restore it again")
            elif self._keeps and row.resumed_at == planned.end:
                row.state = "unchanged"
        except PylogsegError as error:
            row.fail(str(error), "run the command again: it goes on there, or says why not", error)
        finally:
            producer.close()

    @property
    def _levels(self) -> Sequence[IsolationLevel]:
        return _LEVELS if self._keeps else _LEVELS[1:]

    def _produce(self, planned: PlannedLog, producer: PartitionProducer, advance: Advance) -> None:
        """Carry out the steps of a plan, from the end of the partition on."""
        there = producer.next = planned.row.resumed_at or 0
        if (end := producer.end()) != there:  # or what an earlier run sent came late
            raise RequestError(
                f"{producer.path}: its end moved from offset {there} to {end} during the restore: stop "
                "other producers, and run again"
            )
        for step, window in planned.steps(planned.plan, advance):
            if step.next_offset <= there:
                continue
            step = step._replace(first_offset=max(step.first_offset, there))
            length = step.next_offset - step.first_offset
            if step.kind == "records":
                assert window is not None
                self._delete_burned(planned, producer, step)
                slot = step.slot if step.slot >= 0 else None
                producer.produce(make_batch(step, window), length, slot)
            elif step.kind == "burn":
                producer.burn(length)
            elif step.kind == "holes":
                producer.fill(length)
            else:
                producer.abort(step.slot)
        producer.drain()
        self._end_log(planned, producer)

    def _delete_burned(self, planned: PlannedLog, producer: PartitionProducer, step: OffsetStep) -> None:
        if planned.first_offset and step.first_offset == planned.first_offset:
            producer.delete_below(planned.first_offset)

    def _end_log(self, planned: PlannedLog, producer: PartitionProducer) -> None:
        """Give the log its start: a batch may begin below it, and an empty log has no record at all."""
        if planned.row.log_start and producer.start() < planned.row.log_start:
            producer.delete_below(planned.row.log_start)

    def _note_moved(self, row: ProducedLog) -> Callable[[SentBatch, int], None]:
        def note(sent: SentBatch, offset: int) -> None:
            if sent.note is not None:
                first, following = sent.note
                row.add_moved(first, following, offset)
                row.log_end = offset + following - first

        return note

    def _produce_new(self, planned: PlannedLog, producer: PartitionProducer, advance: Advance) -> None:
        """Produce the committed records behind the present end of the partition."""
        planned.row.log_start, planned.row.log_end = 0, producer.end()
        for step, window in planned.steps(planned.plan, advance):
            if step.kind == "records" and step.slot < 0:
                assert window is not None
                step = step._replace(first_offset=max(step.first_offset, planned.log.log_start_offset))
                range_of = step.first_offset, step.next_offset
                producer.produce(make_batch(step, window), range_of[1] - range_of[0], note=range_of)
        producer.drain()
        planned.row.records = sum(moved.next_offset - moved.first_offset for moved in planned.row.map)

    # ---- reading ----

    def _fetch_records(self, row: ProducedLog, first: int, end: int, level: IsolationLevel) -> Iterator[RecordColumns]:
        """Yield the records of a range of the partition in the cluster."""
        files = LiveFiles(self._cluster.settings, [row.place[0]])
        files.cluster = self._cluster
        (log,) = logs_of(open_folder(files, f"{files.url}/{row.name}"))
        yield from chunks_between(log, first, end, level, lambda size: None)

    def _difference(self, planned: PlannedLog, first: int, end: int, level: IsolationLevel, advance: Advance) -> str:
        """Return the first difference between source and cluster in a range of offsets; empty if there is none."""
        row = planned.row
        if self._keeps:
            mine = planned.records(first, end, level, advance)
            theirs = self._fetch_records(row, first, end, level)
        elif row.map:
            mine = planned.records(planned.log.log_start_offset, planned.end, level, advance)
            theirs = move_back(self._fetch_records(row, row.map[0].target_offset, row.log_end, level), row)
        else:
            return ""
        sides = Side(mine), Side(theirs)
        while (limit := min((side.last_offset for side in sides if side.fill()), default=None)) is not None:
            a, b = (side.take(limit) for side in sides)
            if a is None or b is None or not np.array_equal(a.offset, b.offset):
                offsets = [set() if some is None else set(some.offset.tolist()) for some in (a, b)]
                offset = min(offsets[0] ^ offsets[1])
                place = "not in the cluster" if offset in offsets[0] else "only in the cluster"
                return f"with {level}, the record at offset {offset} is {place}"
            if (differs := changes(a, b)).any():
                return f"with {level}, the record at offset {int(a.offset[differs != 0][0])} is another one"
        return ""

    # ---- groups ----

    def commit_groups(self) -> None:
        """Commit the source's group offsets for restored partitions."""
        rows = {row.place: row for row in self.result if row.state in ("done", "unchanged")}
        disk = self._disk
        if not any(part.topic == GROUPS for part in disk.partitions):
            self.result.notes.append(f"the source has no {GROUPS}: offsets of groups are not known")
            return
        state = ClusterState(disk, CutOff(), False)
        groups: dict[str, dict[tuple[str, int], CommittedOffset]] = {}
        for line in state.rows("group_offsets"):
            row = rows.get((line["topic"], line["partition"]))
            if row is None or line["offset"] is None or line["stale"]:
                continue
            offset, before = self._offset_for(row, line["offset"]), line["offset"]
            if self._keeps and offset != before:
                row.notes.append(f"group {line['group']} had {before}, and gets {offset}: no record lies between")
            wanted = CommittedOffset(offset, line["metadata"] or "")
            groups.setdefault(line["group"], {})[row.place] = wanted
        self.result.doubts += state.notes.damage
        count = self._count_of(GROUPS)
        have = len({part.partition for part in disk.partitions if part.topic == GROUPS and not part.state})
        if have < count:
            self.result.doubts.append(
                f"offsets of groups in {count - have} of {count} partitions of {GROUPS}, which the source does not have"
            )
        for group, offsets in groups.items():
            if not self.result.dry_run:
                offsets = self._commit(group, offsets)
            self.result.groups += len(offsets)

    def _offset_for(self, row: ProducedLog, offset: int) -> int:
        if not self._keeps:
            return row.target_of(offset)
        source_start = next(planned.log.log_start_offset for planned in self._planned if planned.row is row)
        return row.log_start if source_start <= offset < row.log_start else offset

    def _commit(
        self, group: str, offsets: Mapping[tuple[str, int], CommittedOffset]
    ) -> dict[tuple[str, int], CommittedOffset]:
        """Commit offsets of a group; return its offsets afterwards."""
        try:
            refused = administering.commit_group_offsets(self._cluster, group, offsets)
            there = administering.read_group_offsets(self._cluster, group, offsets)
        except StorageError as error:
            self.result.groups_failed.append(f"group {group}: {error.reason}")
            return {}
        for (topic, number), code in refused.items():
            reason = codes.name_of(code)
            if code in (codes.UNKNOWN_MEMBER_ID, codes.ILLEGAL_GENERATION, codes.REBALANCE_IN_PROGRESS):
                reason += ": it has members; stop them, and run the command again"
            self.result.groups_failed.append(f"group {group}: {topic}-{number} was not committed: {reason}")
        for place, wanted in offsets.items():
            if place not in refused and there.get(place) != wanted:
                self.result.groups_failed.append(f"group {group}: {place[0]}-{place[1]} has {there.get(place)}")
        return {place: wanted for place, wanted in offsets.items() if there.get(place) == wanted}


def _metadata_of(disk: Disk) -> ClusterMetadata | None:
    """Return the content of the metadata log on a disk; None without one."""
    for part in disk.partitions:
        if part.topic == METADATA_TOPIC and not part.state and part.segments:
            return ClusterMetadata.read(part)
    return None
