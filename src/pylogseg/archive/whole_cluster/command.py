"""`restore_cluster`: controllers and brokers from a point of an archive, each in new folders."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pylogseg.archive.at_point import opened_point, point_url
from pylogseg.archive.whole_cluster.assigning import Assignment, ClusterAssignment, assign_partitions, metadata_values
from pylogseg.archive.whole_cluster.writing import copy_metadata, write_cluster
from pylogseg.disk.disk import Disk
from pylogseg.disk.tier.at_point import lacks_of
from pylogseg.disk.tier.point import Point
from pylogseg.env.beside import NewFolder, temporary_folder
from pylogseg.env.storage import LocalStorage
from pylogseg.errors import RequestError
from pylogseg.format.columns import TableColumn, declare_columns, get_columns, line_type
from pylogseg.format.files.status import QuorumState
from pylogseg.format.names import METADATA_TOPIC
from pylogseg.format.outcome import Outcome, TextTable
from pylogseg.format.words import count_text, names_text, size_text
from pylogseg.inspect.quorum.copies import address_text
from pylogseg.inspect.quorum.look import QuorumLook, look_at_quorum
from pylogseg.inspect.verify.findings import Finding
from pylogseg.offline.rescuing.plan import RescuePlan, RescueRequest, make_plan, parse_voter
from pylogseg.offline.rescuing.steps import (
    PROPERTIES,
    START_COMMAND,
    STEPS_COLUMN,
    RescueStep,
    configure_steps,
    look_step,
    voters_line,
)
from pylogseg.offline.restoring.command import restore
from pylogseg.offline.result import Result
from pylogseg.reading.selection import Moment
from pylogseg.values.internal.image import Image

_HEADINGS: Mapping[str, str] = {"NODE": "node", "PARTITIONS": "partitions", "BYTES": "bytes", "FOLDER": "path"}


@declare_columns(
    line_type("folder"),
    TableColumn("node", "int32", "whose log directory it is"),
    TableColumn("role", "string", "broker or controller"),
    TableColumn("path", "string", "the log directory"),
    TableColumn("directoryId", "string", "of its meta.properties", source="directory_id"),
    TableColumn("partitions", "int64", "their number"),
    TableColumn("bytes", "int64", "of their segments", "bytes"),
)
@dataclass
class ClusterFolder:
    """A new log directory."""

    node: int
    role: str
    path: str
    directory_id: str
    partitions: int = 0
    bytes: int = 0


@declare_columns(
    line_type("cluster"),
    TableColumn("point", "string", "its id"),
    TableColumn("clusterId", "string", "as it was"),
    TableColumn("dryRun", "bool", "nothing was written", source="dry_run"),
    TableColumn("folders", "list<struct>", "the log directories", fields=get_columns(ClusterFolder)),
    TableColumn("partitions", "int64", "of the metadata", source=lambda cluster: len(cluster.assignment.partitions)),
    TableColumn("unregistered", "list<int64>", "brokers left out", source=lambda cluster: cluster.assignment.gone),
    TableColumn("fewerReplicas", "list<string>", "partitions", source=lambda cluster: _names(cluster.assignment.fewer)),
    TableColumn("moved", "list<string>", "partitions whose brokers are not given",
                source=lambda cluster: _names(cluster.assignment.moved)),
    TableColumn("empty", "list<string>", "partitions that the point does not have: they begin at offset 0",
                source=lambda cluster: _names(cluster.assignment.lacking)),
    TableColumn("notRestored", "list<string>", "partitions that the point's metadata does not have",
                source=lambda cluster: [part.name for part in cluster.assignment.orphans]),
    TableColumn("changedSettings", "list<string>", "of topics", source="changed_settings"),
    TableColumn("lacking", "list<struct>", "records that the archive lacks", fields=get_columns(Finding)),
    TableColumn("notes", "list<string>", "for people"),
    TableColumn("doubts", "list<string>", "facts that nobody knows"),
    STEPS_COLUMN,
)  # fmt: skip
@dataclass
class RestoredCluster(Outcome):
    """The folders of a whole cluster, and the steps that start it."""

    point: str
    cluster_id: str
    dry_run: bool
    assignment: ClusterAssignment
    plan: RescuePlan
    result: Result
    steps: list[RescueStep]
    notes: list[str] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)
    is_short: bool = False  #: Only the last line is shown.

    @property
    def lacking(self) -> list[Finding]:  # type: ignore[override]
        """Records that the archive lacks."""
        return self.result.lacking

    @property
    def changed_settings(self) -> list[str]:
        """Settings that are other ones than at the point."""
        return [
            f"{topic}: min.insync.replicas is {after}, and was {before}"
            for topic, (before, after) in self.assignment.lowered.items()
        ] + [
            f"{topic}: settings of its tier are left out: {', '.join(names)}"
            for topic, names in self.assignment.local.items()
        ]

    @property
    def folders(self) -> list[ClusterFolder]:
        """All new log directories, first the controllers' ones."""
        folders = [
            ClusterFolder(part.voter.id, "controller", os.path.abspath(part.path), part.voter.directory_id)
            for part in self.plan.controllers
        ]
        sizes = {part.name: part.bytes_after for part in self.result}
        for broker in self.assignment.brokers:
            for i, (path, directory_id) in enumerate(zip(broker.folders, broker.directory_ids, strict=True)):
                names = [part.name for part in self.assignment.partitions if part.directories.get(broker.id) == i]
                size = sum(sizes.get(name, 0) for name in names)
                folders.append(
                    ClusterFolder(broker.id, "broker", os.path.abspath(path), directory_id, len(names), size)
                )
        return folders

    def parts(self) -> Iterator[Any]:
        """Yield the partitions."""
        yield from self.result

    @property
    def exit_code(self) -> int:
        """1 if something of the cluster differs from the point."""
        is_less = self.assignment.lacking or self.assignment.orphans or self.result.failed or self.doubts
        return 1 if is_less or self.lacking or any(part.not_done for part in self.result) else 0

    def warnings(self) -> Iterator[str]:
        """Yield the differences from the old cluster."""
        some = self.assignment
        if some.lacking:
            yield f"the point does not have {_names_text(some.lacking)}: they begin empty, at offset 0"
        for part in some.orphans:
            yield (
                f"{part.name}: not restored: the metadata of the point has no such partition of topic id "
                f"{part.topic_id}: it was deleted before, or made later; `pylogseg restore` without --cluster reads it"
            )
        for result in self.result:
            if result.state == "failed" or result.not_done:
                yield f"{result.name}: {result.reason or '; '.join(result.notes) or result.state}"
        yield from self.doubts

    def lines(self) -> Iterator[str | TextTable]:
        """Yield the folders, all that is another than at the point, and the steps."""
        if not self.is_short:
            yield from self._long_lines()
        size = size_text(sum(folder.bytes for folder in self.folders))
        what = f"{count_text(len(self.folders), 'log directory', 'log directories')}, {size} of records"
        if self.dry_run:
            yield f"dry run, nothing was written: {what} would be"
        else:
            yield f"done: {what}, of point {self.point}"

    def _long_lines(self) -> Iterator[str | TextTable]:
        some = self.assignment
        yield TextTable.of(self.folders, {name: _getter(of) for name, of in _HEADINGS.items()})
        yield ""
        yield (
            f"metadata: up to offset {self.plan.best.end} of the point, and {self.plan.record_count} records behind it "
            f"in epoch {self.plan.epoch}"
        )
        if some.gone:
            yield f"brokers that are unregistered: {', '.join(map(str, some.gone))}"
        if some.moved:
            yield f"on other brokers, since theirs are not given: {_names_text(some.moved)}"
        if some.fewer:
            yield f"with fewer replicas than before: {_names_text(some.fewer)}"
        yield from self.changed_settings
        yield from self.notes
        yield ""
        for number, step in enumerate(self.steps, 1):
            yield from step.lines(number)
        yield ""


def _getter(name: str) -> Callable[[Any], Any]:
    return lambda row: getattr(row, name)


def _names(some: Sequence[Assignment]) -> list[str]:
    return [part.name for part in some]


def _names_text(some: Sequence[Assignment]) -> str:
    return f"{count_text(len(some), 'partition')} ({names_text(_names(some))})"


def restore_cluster(
    archive: str | os.PathLike[str],
    *,
    controllers: Mapping[str, str],
    brokers: Mapping[int, Sequence[str]],
    at: Moment | None = None,
    point: str | None = None,
    force: bool = False,
    listener: str | None = None,
    dry_run: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    on_bytes: Callable[[int], None] | None = None,
    **how: Any,
) -> RestoredCluster:
    """Make a whole cluster of a point of an archive: log directories for its controllers and brokers.

    Controllers get the metadata of the point, with records behind it that name the new voters, the new log directories
    and the brokers of each partition. Each replica gets the log of the point, up to its end. The cluster has the id,
    the topic ids, groups, transactions, settings, ACLs, users and quotas that it had. With fewer brokers, those that
    are there take over the partitions of the other ones.

    Parameters
    ----------
    archive, at, point
        See `open_archive`. Without a time and an id, the newest point.
    controllers : mapping of str to str
        New voters, each as ``ID@HOST:PORT``, with their log directories: one, three or five.
    brokers : mapping of int to sequence of str
        Brokers, by the numbers that they had, with their log directories.
    force : bool
        Restore also from a point that lacks records.
    listener : str, optional
        Name of the controllers' listener; default: from the metadata.
    dry_run : bool
        Only say what would be done: no folder is cluster.
    storage_options : mapping, optional
        Options of fsspec, and ``tier_keys``.
    on_bytes : callable, optional
        Gets the number of bytes read or written since its last call.
    **how
        As of `pylogseg.offline.restore`: ``jobs``, ``on_corrupt``, ``on_result``.

    Returns
    -------
    RestoredCluster
        The folders, what is not as it was at the point, and the steps that start the cluster.

    Raises
    ------
    RequestError
        If there is no such point, it has no metadata, a folder is not empty, or a broker is not one of the cluster.
    IncompleteError
        If the point lacks records, unless `force` is set.
    StorageError
        If the store or a disk fails: no folder of the new cluster exists then.
    """
    url = point_url(archive, at=at, point=point)
    disk, files = opened_point(url, storage_options)
    _check_folders(controllers, brokers)
    advance, storage = on_bytes or (lambda size: None), LocalStorage()
    with temporary_folder("pylogseg-cluster-") as above:
        metadata, nothing = above / "metadata", above / "nothing"
        metadata.mkdir()
        nothing.mkdir()
        copy_metadata(disk, files.point, str(metadata))
        look = _look(str(metadata))
        assert look.image is not None
        sizes = {part.name: part.size for part in disk.partitions}
        ids = [parse_voter(voter)[0] for voter in controllers]
        assignment = assign_partitions(look.image, files.point, brokers, sizes, ids[0] if len(ids) == 1 else None)
        wanted = RescueRequest(list(controllers.values()), None, list(controllers), None, (), listener)
        plan = make_plan(look, wanted, metadata_values(assignment, look.image))
        options = {"storage_options": storage_options, "force": force, "keep_producers": True, **how}
        names = [part.name for part in assignment.partitions if part.archived is not None]
        if not names:
            raise RequestError(f"{url}: the point has none of the partitions that its metadata has")
        if assignment.orphans:
            options["topic"] = names
        with _beside(storage, assignment) as folders:
            if dry_run:
                result = restore(files.url, nothing, dry_run=True, on_bytes=advance, **options)
            else:
                result = write_cluster(plan, assignment, folders, files.url, storage, advance, options)
    cluster = RestoredCluster(
        files.point.id,
        files.point.cluster_id,
        dry_run,
        assignment,
        plan,
        result,
        cluster_steps(plan, assignment, look.image),
    )
    _take_notes(cluster, disk, files.point, look, files.url)
    return cluster


def registered_brokers(disk: Disk, point: Point) -> list[int]:
    """Return the brokers of a point, by its metadata; RequestError if it has none."""
    with temporary_folder("pylogseg-cluster-") as above:
        copy_metadata(disk, point, str(above))
        image = _look(str(above)).image
    return [] if image is None else sorted(image.brokers)


def _check_folders(controllers: Mapping[str, str], brokers: Mapping[int, Sequence[str]]) -> None:
    if not controllers or not brokers:
        raise RequestError("a cluster has controllers and brokers: name each, with its folder")
    places = [
        os.path.abspath(path) for path in (*controllers.values(), *(p for some in brokers.values() for p in some))
    ]
    for place in places:
        inside = [path for path in places if path == place or path.startswith(place + os.sep)]
        if len(inside) > 1:
            raise RequestError(f"{inside[-1]}: each log directory is a folder of its own, and none lies in another one")


def _look(path: str) -> QuorumLook:
    """Read the metadata as of one disk; RequestError if it is not there or not whole."""
    look = look_at_quorum([path])
    if look.best is None or look.image is None:
        raise RequestError(f"the metadata of the point cannot be read: {'; '.join([*look.reasons, *look.notes])}")
    assert look.best.partition is not None
    look.image = Image.read(look.best.partition, look.best.end)  # all of it, not the nodes alone
    look.notes = [*look.image.notes, *look.image.damage, *(f"{what}: {n}" for what, n in look.image.unread().items())]
    if look.best.voters is None:  # a static quorum: its voters are the controllers that registered
        epoch = look.best.epoch or 0
        look.best.state = QuorumState(0, -1, epoch, -1, None, tuple(sorted(look.image.controllers)))
    return look


@contextlib.contextmanager
def _beside(storage: LocalStorage, assignment: ClusterAssignment) -> Iterator[list[NewFolder]]:
    """Yield a folder beside the name of each log directory of the brokers; remove folders without a name at the end."""
    folders = [NewFolder(storage, path) for broker in assignment.brokers for path in broker.folders]
    try:
        yield folders
    finally:
        for folder in folders:
            folder.discard()


def _take_notes(cluster: RestoredCluster, disk: Disk, point: Point, look: QuorumLook, url: str) -> None:
    image: Image | None = look.image
    cluster.notes += [note for note in disk.notes if note not in cluster.notes]
    cluster.notes += cluster.result.clients
    cluster.doubts += [f"{METADATA_TOPIC}-0: {note}" for note in look.notes]
    cluster.doubts += cluster.result.doubts
    cluster.doubts += [note.text for note in lacks_of(point) if note.topic != METADATA_TOPIC]
    cluster.notes += [
        f"group {part.group}: its offset {part.offset} of {part.topic}-{part.partition} is above the end, "
        f"{part.end_offset}: records above it are not in the point"
        for part in point.above_end
    ]
    if image is not None and image.tokens:
        cluster.notes.append(f"{count_text(len(image.tokens), 'delegation token')} came along: they expire as before")


# ---- the steps that start a restored cluster ----


def cluster_steps(plan: RescuePlan, assignment: ClusterAssignment, image: Image) -> list[RescueStep]:
    """Return all steps."""
    starts = [RescueStep(f"Start node {c.voter.id}.", c.voter.id, commands=[START_COMMAND])
              for c in plan.controllers if not c.has_both_roles]  # fmt: skip
    return [
        RescueStep(
            "See that no node of the old cluster runs, or can reach the new ones: both have the same cluster id. Copy "
            "each folder to the machine of its node, with the owner that Kafka runs as, or change the lines below."
        ),
        *configure_steps(plan),
        *_configure_brokers(plan, assignment, image),
        *starts,
        *([look_step(plan)] if starts else []),
        *_start_brokers(assignment),
        *([] if starts else [look_step(plan)]),
        _look_at_partitions(),
        RescueStep(
            "Clients see this: all records, groups and transactions as they were at the point. What was produced or "
            "committed later is gone, and its offsets are given again: a consumer that had read further begins where "
            "its group stood then."
        ),
    ]


def _configure_brokers(plan: RescuePlan, assignment: ClusterAssignment, image: Image) -> Iterator[RescueStep]:
    both = {controller.voter.id for controller in plan.controllers if controller.has_both_roles}
    other = "voters" if plan.best.kraft_version else "bootstrap.servers"
    for broker in assignment.brokers:
        roles = "broker,controller" if broker.id in both else "broker"
        settings = [
            f"process.roles={roles}",
            f"node.id={broker.id}",
            f"log.dirs={','.join(os.path.abspath(path) for path in broker.folders)}",
            f"controller.listener.names={plan.listener}",
            voters_line(plan),
        ]
        before = ", ".join(
            f"{endpoint['name']}://{address_text(endpoint['host'], endpoint['port'])}"
            for endpoint in image.brokers[broker.id].get("endPoints") or ()
        )
        text = (
            f"On node {broker.id}, set these lines in {PROPERTIES}, and remove controller.quorum.{other} if it is "
            f"there. All other settings stay as the broker had them{f'; it had {before}' if before else ''}."
        )
        yield RescueStep(text, broker.id, settings=settings)


def _start_brokers(assignment: ClusterAssignment) -> Iterator[RescueStep]:
    """Yield the starts in their order: the broker with the coordinators of transactions is the last one."""
    for broker in sorted(assignment.brokers, key=lambda broker: (broker.id == assignment.last, broker.id)):
        text = f"Start node {broker.id}."
        if broker.id == assignment.last and len(assignment.brokers) > 1:
            text = (
                f"When all other brokers have started, start node {broker.id}. It has the coordinators of "
                "transactions, and they would leave out partitions that have no leader yet."
            )
        yield RescueStep(text, broker.id, commands=[START_COMMAND])


def _look_at_partitions() -> RescueStep:
    text = (
        "Start all brokers before you judge: until the last one is there, some partitions have no leader. Then these "
        "two lines print nothing. Kafka spreads the leaders over the brokers within minutes."
    )
    command = "bin/kafka-topics.sh --bootstrap-server HOST:PORT --describe"
    return RescueStep(
        text, commands=[f"{command} --unavailable-partitions", f"{command} --under-replicated-partitions"]
    )
