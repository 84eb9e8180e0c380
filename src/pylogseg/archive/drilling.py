"""`drill`: restore a point into a temporary folder, open it with brokers, consume all of it, and compare.

The drill reads the expected records from the archive itself, past any broker: the number of records that each isolation
gives, and a SHA-256 over them. Each broker gets a restored copy of its own.
"""

from __future__ import annotations

import errno
import functools
import hashlib
import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, get_args

from pylogseg._version import __version__
from pylogseg.archive.at_point import opened_point, point_url
from pylogseg.archive.consuming import DrillClient, Isolation
from pylogseg.archive.kafka_home import START, kafka_over, version_of
from pylogseg.archive.record_digest import RecordDigest
from pylogseg.archive.restoring import restore_point
from pylogseg.archive.trying_transactions import TransactionTrial
from pylogseg.archive.whole_cluster.command import registered_brokers
from pylogseg.archive.whole_cluster.trying import ClusterTrial
from pylogseg.disk.choice import PartitionChoice
from pylogseg.disk.disk import Disk, Partition
from pylogseg.disk.listing import open_dir
from pylogseg.disk.notes import as_notes, note_lines
from pylogseg.disk.tier.at_point import UNSEALED, lacks_of
from pylogseg.disk.tier.point import ArchivedPartition, Point
from pylogseg.disk.tier.points import archive_store
from pylogseg.env.beside import temporary_folder
from pylogseg.env.executor import Advance, Threads, Workload, job_count
from pylogseg.env.file_errors import storage_error
from pylogseg.env.remote import without_login
from pylogseg.errors import MissingKeyError, PylogsegError, RequestError, StorageError
from pylogseg.format.columns import TableColumn, declare_columns, to_row
from pylogseg.format.moments import iso_text
from pylogseg.format.names import METADATA_TOPIC
from pylogseg.format.outcome import Outcome
from pylogseg.format.uuids import format_uuid
from pylogseg.format.words import count_text
from pylogseg.offline.result import Result
from pylogseg.reading.selection import Moment
from pylogseg.server.committed import CommittedByTopic
from pylogseg.server.group_offsets import group_offsets, has_groups
from pylogseg.server.opening import serve
from pylogseg.server.server import Server
from pylogseg.server.writing.bootstrap_checkpoint import FILE, read_kept
from pylogseg.server.writing.broker import Broker
from pylogseg.tables.reader import read

ISOLATIONS: tuple[Isolation, ...] = get_args(Isolation)
_NODE = 1
#: Nothing of the restored copies may go while they are looked at.
_KEPT = {"retention.ms": "-1", "retention.bytes": "-1", "cleanup.policy": "delete"}


@dataclass
class ConsumedPartition:
    """A partition: its ends, and of each isolation the number of records and the SHA-256 over them."""

    name: str
    topic_id: str
    start_offset: int
    end_offset: int
    last_stable_offset: int
    records: dict[str, int] = field(default_factory=dict)
    sha256: dict[str, str] = field(default_factory=dict)

    def add(self, isolation: str, digest: RecordDigest) -> None:
        """Note the result at an isolation level."""
        self.records[isolation], self.sha256[isolation] = digest.records, digest.text()


@dataclass
class BrokerEvidence:
    """The work of one broker with a restored copy.

    `broker` is how it was opened, `group_offsets` the number of committed offsets that were compared,
    `transactional_ids` that of the ids that committed a transaction. `not_run` says why the broker was not tried, or
    not to the end: for a reason of this machine or of the store, not of the archive.
    """

    broker: str
    version: str
    restore_s: float = 0.0
    start_s: float = 0.0
    consume_s: float = 0.0
    partitions: list[ConsumedPartition] = field(default_factory=list)
    group_offsets: int = 0
    transactional_ids: int = 0
    problems: list[str] = field(default_factory=list)
    not_run: str = ""


@declare_columns(
    TableColumn("verdict", "string", "in a sentence"),
    TableColumn("exitCode", "int64", "0 the same, 1 a difference, 2 not all could be looked at"),
    TableColumn("notRun", "list<string>", "brokers that were not tried to the end"),
    TableColumn("problems", "list<string>", "differences of the archive, then of the brokers", source="all_problems"),
    with_fields=True,
)
@dataclass
class DrillResult(Outcome):
    """The evidence of a drill.

    Attributes
    ----------
    archive, point, point_time, point_sha256 : str
        The restored point; `point_sha256` is the hash of its file, in which stand the hashes of all objects.
    started, ended : str
        Times, in UTC.
    versions : dict of str to str
    expected : list of ConsumedPartition
        The records by the point, and by the archive's log.
    brokers : list of BrokerEvidence
    problems : list of str
        Faults of the archive or of a broker.
    not_checked : list of str
        Checks that were left out.
    is_incomplete : bool
        True if the point does not have all partitions, or a key is missing.
    """

    archive: str
    point: str
    point_time: str
    point_sha256: str
    started: str
    ended: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    expected: list[ConsumedPartition] = field(default_factory=list)
    brokers: list[BrokerEvidence] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    not_checked: list[str] = field(default_factory=list)
    is_incomplete: bool = False

    @property
    def all_problems(self) -> list[str]:
        """The archive's problems, then the brokers'."""
        return [*self.problems, *(f"{run.broker}: {text}" for run in self.brokers for text in run.problems)]

    @property
    def exit_code(self) -> int:
        """0 if all is as it was at the point, 1 if something differs, 2 if not all could be looked at."""
        return 1 if self.all_problems else 2 if self.is_incomplete or self.not_run else 0

    def parts(self) -> Iterator[dict[str, Any]]:
        """Yield the lines of JSON: one for the drill, then one for each partition of the archive and of each broker."""
        row = to_row(self)
        expected, brokers = row.pop("expected"), row.pop("brokers")
        yield {"type": "drill", **row}
        yield from ({"type": "partition", "of": "archive", **part} for part in expected)
        for broker in brokers:
            partitions = broker.pop("partitions")
            yield {"type": "broker", **broker}
            yield from ({"type": "partition", "of": broker["broker"], **part} for part in partitions)

    def lines(self) -> Iterator[str]:
        """Yield differences, brokers, omitted checks, then the verdict."""
        notes = as_notes(self.problems), *(as_notes(broker.problems, broker.broker) for broker in self.brokers)
        yield from (f"DIFFERS  {text}" for text in note_lines(chain.from_iterable(notes), ignores_paths=True))
        yield from (f"NOT RUN  {text}" for text in self.not_run)
        for broker in self.brokers:
            records = sum(row.records.get("read_uncommitted", 0) for row in broker.partitions)
            yield (
                f"{broker.broker} {broker.version}: restored in {broker.restore_s:.1f} s; "
                f"{count_text(len(broker.partitions), 'partition')}, {count_text(records, 'record')}, "
                f"{count_text(broker.group_offsets, 'offset')} of groups compared; "
                f"{count_text(len(broker.problems), 'difference')}"
            )
        for text in note_lines(as_notes(self.not_checked), ignores_paths=True):
            yield f"not checked: {text}"
        yield f"point {self.point}, of {self.point_time}: {self.verdict}"

    @property
    def not_run(self) -> list[str]:
        """Which brokers were not tried to the end, and why."""
        return [f"{run.broker} {run.version}: {run.not_run}" for run in self.brokers if run.not_run]

    @property
    def verdict(self) -> str:
        """The findings, in a sentence."""
        if self.all_problems:
            count = len(self.all_problems)
            return f"{count:,} {'difference' if count == 1 else 'differences'}"
        if not any(run.partitions for run in self.brokers):
            return "not run" if self.not_run else "nothing could be compared"
        if self.not_run:
            return "all that was compared is as it was at the point; a broker was not run"
        return "all is as it was at the point" + (", as far as the point has it" if self.is_incomplete else "")


def drill(
    archive: str | os.PathLike[str],
    *,
    at: Moment | None = None,
    point: str | None = None,
    topic: str | Sequence[str] | None = None,
    partition: int | Sequence[int] | None = None,
    kafka_home: str | os.PathLike[str] | None = None,
    folder: str | os.PathLike[str] | None = None,
    cluster: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    jobs: int | None = 1,
    on_bytes: Callable[[int], None] | None = None,
) -> DrillResult:
    """Try a restore: a broker opens a restored copy, and its records are compared with the point and the archive's log.

    Parameters
    ----------
    archive, at, point
        See `open_archive`. Without a time and an id, the newest point.
    topic, partition
        Some topics and partitions, as `Disk.select` takes them.
    kafka_home : path, optional
        The folder of a real Kafka, of the cluster's version, which is started over a copy too.
    folder : path, optional
        Where copies are made, one at a time, each as large as the point; by default the system's temporary folder.
    cluster : bool
        Try the folders of `restore_cluster` too, with the Kafka of `kafka_home`: a controller, and one broker that
        takes over all partitions.
    storage_options : mapping, optional
        Options of fsspec, and ``tier_keys``.
    jobs : int or None
        Threads: 1 is the caller's own, None one per processor.
    on_bytes : callable, optional
        Gets the bytes that were read of the archive since its last call.

    Returns
    -------
    DrillResult

    Raises
    ------
    RequestError
        If there is no such point, or no Kafka in `kafka_home`, or `cluster` is set without it, or with names.
    StorageError
        If the store or the disk fails.
    """
    url, choice = point_url(archive, at=at, point=point), PartitionChoice.of(topic, partition)
    if cluster and (kafka_home is None or not choice.is_all):
        raise RequestError("cluster: a whole cluster is tried with a Kafka (--kafka-home), and with all partitions")
    disk, files = opened_point(url, storage_options)
    chosen = disk.select(*choice.arguments)
    result = _begin(files.url, files.point, storage_options)
    if kafka_home is None:
        result.not_checked.append("whether a real Kafka opens it (--kafka-home, or KAFKA_HOME)")
    else:
        result.versions["kafka"] = version_of(os.fspath(kafka_home))
    _note_incomplete(result, files.point, choice)
    parts = {part.name: part for part in chosen.partitions if part.topic != METADATA_TOPIC}
    wanted = [each for each in files.point.by_name.values() if each.name in parts]
    _read_archive(result, wanted, parts, job_count(jobs), on_bytes)
    offsets = _group_offsets(chosen)
    how = functools.partial(
        _try_broker, result, wanted, files.url, offsets, folder, storage_options=storage_options, topic=topic,
        partition=partition, jobs=jobs,
    )  # fmt: skip
    how(_ours, f"pylogseg serve {__version__}")
    if kafka_home is not None:
        how(functools.partial(_kafkas, os.fspath(kafka_home)), f"Kafka {result.versions['kafka']}")
    if kafka_home is not None and cluster:

        def try_cluster(broker: BrokerEvidence, above: str) -> None:
            trial = ClusterTrial(os.fspath(kafka_home or ""), files.url, registered_brokers(disk, files.point), above)
            options = {"storage_options": storage_options, "jobs": jobs}
            _try_cluster(trial, broker, wanted, result, offsets, options)

        _note_evidence(result, f"Kafka cluster {result.versions['kafka']}", folder, try_cluster)
    result.ended = iso_text(time.time_ns() // 1_000_000)
    return result


def _begin(url: str, point: Point, storage_options: Mapping[str, Any] | None) -> DrillResult:
    store = archive_store(url.rpartition("#")[0], storage_options)
    digest = hashlib.sha256(store.read(point.name.key) or b"").hexdigest()
    started = iso_text(time.time_ns() // 1_000_000)
    result = DrillResult(without_login(url), point.id, iso_text(point.time_ms), digest, started)
    result.versions = {"pylogseg": __version__, "python": platform.python_version(), "system": platform.platform(),
                       "archived by": point.writer}  # fmt: skip
    return result


def _note_incomplete(result: DrillResult, point: Point, choice: PartitionChoice) -> None:
    if not point.is_sealed:
        result.not_checked.append(UNSEALED)
    lacking = [note.text for note in lacks_of(point)]
    if point.not_seen is None:
        lacking.append("which partitions the cluster has: its metadata is not in the archive")
    lacking += [
        f"group {each.group}: its offset {each.offset} of {each.topic}-{each.partition} is above the end, "
        f"{each.end_offset}"
        for each in point.above_end
    ]
    result.not_checked += lacking
    result.is_incomplete |= bool(lacking)
    if not choice.is_all:
        result.not_checked.append("partitions that were not asked for")
    result.not_checked.append("settings of topics, users, ACLs and quotas of the copies")


def _read_archive(
    result: DrillResult,
    wanted: list[ArchivedPartition],
    parts: Mapping[str, Partition],
    jobs: int,
    on_bytes: Callable[[int], None] | None,
) -> None:
    """Read the expected records directly from the archive, without a broker."""
    load = Workload("pylogseg drill", [parts[each.name].size for each in wanted], on_bytes)
    for archived, (found, error) in zip(
        wanted, Threads(jobs).map(_digest_records, [parts[each.name] for each in wanted], load), strict=True
    ):
        row = _row(archived)
        result.expected.append(row)
        if error is not None and (isinstance(error, MissingKeyError) or not _is_of_data(error)):
            result.not_checked.append(f"{archived.name}: {error}")
            result.is_incomplete = True
            continue
        if error is not None:
            result.problems.append(f"{archived.name}: it cannot be read from the archive: {error}")
            continue
        for isolation, digest in found.items():
            row.add(isolation, digest)


def _row(archived: ArchivedPartition) -> ConsumedPartition:
    ends = archived.start_offset, archived.end_offset, archived.last_stable_offset
    return ConsumedPartition(archived.name, archived.topic_id, *ends)


def _digest_records(part: Partition, advance: Advance) -> tuple[dict[str, RecordDigest], PylogsegError | None]:
    found: dict[str, RecordDigest] = {}
    for isolation in ISOLATIONS:
        digest = RecordDigest()
        try:
            for chunk in read(part, isolation_level=isolation).chunks():
                digest.add(chunk.columns)
        except PylogsegError as error:
            return {}, error
        found[isolation] = digest
        advance(part.size)
    return found, None


def _group_offsets(disk: Disk) -> CommittedByTopic:
    return group_offsets(disk) if has_groups(disk) else {}


# ---- brokers ----


def _try_broker(
    result: DrillResult,
    wanted: list[ArchivedPartition],
    url: str,
    offsets: CommittedByTopic,
    folder: str | os.PathLike[str] | None,
    check: Callable[[BrokerEvidence, str, str, Callable[[DrillClient, float], None], TransactionTrial], None],
    name: str,
    **how: Any,
) -> None:
    """Restore a copy, let a broker open it, and compare the consumed records."""

    def work(broker: BrokerEvidence, above: str) -> None:
        target, beside = os.path.join(above, "data"), os.path.join(above, "broker")
        for path in (target, beside):
            os.mkdir(path)
        started = time.monotonic()
        restored = restore_point(url, target, node_id=_NODE, settings=_KEPT, **how)
        broker.restore_s = round(time.monotonic() - started, 3)
        lacking = _compare_restored(broker, restored, wanted, target)
        result.not_checked += [each for each in lacking if each not in result.not_checked]
        result.is_incomplete |= bool(lacking)
        trial = TransactionTrial.read(target, [(each.topic, each.partition) for each in wanted])
        check(broker, target, beside, _consumer(result, broker, wanted, offsets, trial), trial)

    _note_evidence(result, name, folder, work)


def _consumer(
    result: DrillResult,
    broker: BrokerEvidence,
    wanted: list[ArchivedPartition],
    offsets: CommittedByTopic,
    trial: TransactionTrial,
) -> Callable[[DrillClient, float], None]:
    """Return the function that consumes all records from a started broker, and compares them."""
    broker.transactional_ids, started = len(trial.places), time.monotonic()

    def consume(client: DrillClient, start_s: float) -> None:
        broker.start_s = round(start_s - started, 3)
        _compare(broker, client, wanted, {row.name: row for row in result.expected}, offsets)
        broker.consume_s = round(time.monotonic() - start_s, 3)

    return consume


def _try_cluster(
    trial: ClusterTrial,
    broker: BrokerEvidence,
    wanted: list[ArchivedPartition],
    result: DrillResult,
    offsets: CommittedByTopic,
    how: Mapping[str, Any],
) -> None:
    """Restore a whole cluster, start it by the printed commands, and compare the consumed records."""
    started = time.monotonic()
    restored = trial.restore(**how)
    broker.restore_s = round(time.monotonic() - started, 3)
    result.not_checked += [doubt for doubt in restored.doubts if doubt not in result.not_checked]
    undone = [part for part in restored.result if part.not_done]
    broker.problems += [f"{part.name}: {part.reason or part.state}" for part in undone]
    places = [(part.topic, part.partition) for part in wanted]
    transactions = TransactionTrial.read(trial.log_dir, places)
    consume = _consumer(result, broker, wanted, offsets, transactions)
    with trial.run(restored) as kafka:
        with DrillClient(kafka.address) as client:
            consume(client, time.monotonic())
        broker.problems += [f"it says: {line}" for line in kafka.complaints([row.name for row in broker.partitions])]
        broker.problems += list(transactions.problems(kafka.address))


def _note_evidence(
    result: DrillResult,
    name: str,
    folder: str | os.PathLike[str] | None,
    work: Callable[[BrokerEvidence, str], None],
) -> None:
    """Do the work of a broker in a folder for its copy; errors are noted in its evidence."""
    program, _, version = name.rpartition(" ")
    broker = BrokerEvidence(program, version)
    result.brokers.append(broker)
    try:
        with temporary_folder("pylogseg-drill-", folder) as above:
            work(broker, str(above))
    except MissingKeyError as error:
        result.not_checked.append(f"{name}: {error}")
        result.is_incomplete = True
    except PylogsegError as error:
        if _is_of_data(error):
            broker.problems.append(str(error))
        else:
            broker.not_run = str(error)
    except OSError as error:
        broker.not_run = str(storage_error(folder or "the temporary folder", "write", error))


def _is_of_data(error: PylogsegError) -> bool:
    """Check whether an error is about the archive's data: damage, an absent object, a broker that ends."""
    if isinstance(error, StorageError):
        number = error.errno or getattr(error.__cause__, "errno", None)
        return number in (None, errno.ENOENT, errno.ENXIO) or error.operation == START
    return not isinstance(error, RequestError)


def _ours(
    broker: BrokerEvidence,
    target: str,
    beside: str,
    consume: Callable[[DrillClient, float], None],
    trial: TransactionTrial,
) -> None:
    with serve(target, group_offsets=has_groups(open_dir(target))) as server:
        with DrillClient(server.bootstrap_servers) as client:
            consume(client, time.monotonic())
        broker.problems += list(_list_recoveries(server))
    if trial.places:
        with Broker(target, node_id=_NODE) as writing:
            broker.problems += list(trial.problems(writing.bootstrap_servers))


def _list_recoveries(server: Server) -> Iterator[str]:
    """Yield the recoveries that opening the logs needed."""
    for served in server.catalog.partitions():
        for action in served.log().report.actions:
            yield f"{served}: {action.kind.value}: {action.reason}"


def _kafkas(
    home: str,
    broker: BrokerEvidence,
    target: str,
    beside: str,
    consume: Callable[[DrillClient, float], None],
    trial: TransactionTrial,
) -> None:
    with kafka_over(home, target, beside, _NODE) as kafka:
        with DrillClient(kafka.address) as client:
            consume(client, time.monotonic())
        names = [row.name for row in broker.partitions]
        broker.problems += [f"it says: {line}" for line in kafka.complaints(names)]
        broker.problems += list(trial.problems(kafka.address))


def _compare_restored(
    broker: BrokerEvidence, restored: Result, wanted: list[ArchivedPartition], target: str
) -> list[str]:
    """Compare the result of the restore, and the topics it wrote; return the gaps of the point."""
    names = {each.name for each in wanted}
    undone = [(each.name, f"{each.name}: {each.reason or each.state}") for each in restored if each.not_done]
    broker.problems += [text for name, text in undone if name in names]
    path = os.path.join(target, FILE)
    with open(path, "rb") as file:
        kept = read_kept(file.read(), path)
    for part in wanted:
        topic = kept.topics.get(part.topic)
        if topic is None or topic.topic_id != part.topic_id or topic.count <= part.partition:
            broker.problems.append(f"{part.name}: the restored cluster has another topic, or no such partition")
    return [text for name, text in undone if name not in names]


def _compare(
    broker: BrokerEvidence,
    client: DrillClient,
    wanted: list[ArchivedPartition],
    expected: Mapping[str, ConsumedPartition],
    offsets: CommittedByTopic,
) -> None:
    ids = client.topic_ids({(each.topic, each.partition) for each in wanted})
    for archived in wanted:
        found, should = _row(archived), expected[archived.name]
        broker.partitions.append(found)
        try:
            found.topic_id = format_uuid(ids[archived.topic])
            ends = client.ends(archived.topic, archived.partition)
            found.start_offset, found.end_offset, found.last_stable_offset = ends
            for isolation in ISOLATIONS:
                digest = RecordDigest()
                limit = archived.end_offset if isolation == "read_uncommitted" else archived.last_stable_offset
                how = archived.topic, archived.partition, isolation, limit
                for columns in client.records(*how, lacks_end=bool(archived.fault)):
                    digest.add(columns)
                found.add(isolation, digest)
        except PylogsegError as error:
            broker.problems.append(f"{archived.name}: {error}")
            continue
        broker.problems += list(_differences(found, should))
    here = {(each.topic, each.partition) for each in wanted}
    for group, committed in sorted(offsets.items()):
        there = client.fetch_committed(group)
        for place, each in sorted(committed.items()):
            if place not in here:
                continue
            broker.group_offsets += 1
            if there.get(place) != each.offset:
                stands = f"group {group} stands at {there.get(place)} in {place[0]}-{place[1]}"
                broker.problems.append(f"{stands}, and stood at {each.offset}")


def _differences(found: ConsumedPartition, should: ConsumedPartition) -> Iterator[str]:
    name = found.name
    if found.topic_id != should.topic_id:
        yield f"{name}: its topic has the id {found.topic_id}, and had {should.topic_id}"
    if found.start_offset != should.start_offset:
        yield f"{name}: it starts at offset {found.start_offset}, and did at {should.start_offset}"
    for what, there, was in (
        ("ends", found.end_offset, should.end_offset),
        ("is stable up to", found.last_stable_offset, should.last_stable_offset),
    ):
        if there < was:  # a broker may append: to its own topics, and ends of transactions
            yield f"{name}: it {what} offset {there}, and {'was' if 'stable' in what else 'did'} at {was}"
    for isolation, digest in should.sha256.items():
        if (found.records.get(isolation), found.sha256.get(isolation)) != (should.records[isolation], digest):
            yield (
                f"{name}: {isolation} gives {found.records.get(isolation):,} records with SHA-256 "
                f"{found.sha256.get(isolation)}, and the archive has {should.records[isolation]:,} with {digest}"
            )
