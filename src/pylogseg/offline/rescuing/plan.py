"""The plan of a rescue: the copy, the epoch, the voters, and each byte of each file.

Everything in it comes from the disks and the arguments, nothing from the clock or from chance. So a dry run shows what
a run writes, and each new folder gets the same bytes at the same offsets.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pylogseg.env.filesystem import is_same_folder, refuse_inside
from pylogseg.errors import RequestError, StorageError
from pylogseg.format.builder import build, shared_row
from pylogseg.format.control import ControlKind
from pylogseg.format.control_batches import kraft_batch
from pylogseg.format.files.checkpoint import EpochEntry
from pylogseg.format.files.properties import MetaProperties, encode_meta_properties
from pylogseg.format.files.status import PartitionMetadata, QuorumState, encode_partition_metadata, encode_quorum_state
from pylogseg.format.messages.control import encode_control
from pylogseg.format.moments import iso_text
from pylogseg.format.names import FileKind, segment_file_name
from pylogseg.format.record_input import columns_from_records
from pylogseg.format.uuids import format_uuid
from pylogseg.inspect.quorum.copies import NEWEST_KRAFT_VERSION, MetadataCopy, Voter, address_text
from pylogseg.inspect.quorum.look import QuorumLook, pair_lines
from pylogseg.transfer.segment_files import epochs_file
from pylogseg.values.internal.cluster import FOLDER

#: The new epoch is so far above the highest one on any disk: a quorum of controllers that come back does not reach it.
EPOCH_JUMP = 1000
_MOST_EPOCH = 2**31 - 1 - EPOCH_JUMP
_SIZES = (1, 3, 5)
#: Some hundred KB, where Kafka reads up to 8 MiB at once.
_IN_A_BATCH = 1000
#: The id of the topic ``__cluster_metadata``, in each cluster.
_METADATA_TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
_VOTER = re.compile(r"(?P<id>\d{1,10})@(?P<host>\[[^\]]+\]|[^:@\[\]]+):(?P<port>\d{1,5})")
_ADDRESS = re.compile(r"(?:\[[^\]]+\]|[^:@\[\]]+):\d{1,5}")


class WrittenFile(NamedTuple):
    """A file of a folder, and from where its bytes come."""

    name: str  #: Below the folder.
    source: str  #: A file of the best copy; empty where all bytes are new.
    copied: int  #: Bytes of the source, from its first one on.
    added: bytes  #: Behind them.

    def __str__(self) -> str:
        size = self.copied + len(self.added)
        old = f"bytes 0 to {self.copied - 1:,} copied" if self.copied else ""
        new = f"bytes {self.copied:,} to {size - 1:,} new" if self.added else ""
        return f"{self.name}: {', '.join(text for text in (old, new) if text) or 'no bytes'}"


@dataclass
class NewController:
    """A controller of the new quorum, and the log directory that it gets."""

    voter: Voter
    path: str
    files: list[WrittenFile]
    has_both_roles: bool = False


@dataclass
class RescuePlan:
    """All that a rescue writes."""

    look: QuorumLook
    best: MetadataCopy
    epoch: int
    controllers: list[NewController] = field(default_factory=list)
    is_in_place: bool = False
    listener: str = ""
    records: bytes = b""  #: The batch that names the voters, but of a static quorum; and what comes behind it.
    record_count: int = 0

    @property
    def end(self) -> int:
        """The end of the log, with the new records."""
        return (self.best.end or 0) + self.record_count

    @property
    def voters(self) -> tuple[Voter, ...]:
        """The voters of the new quorum."""
        return tuple(controller.voter for controller in self.controllers)


class RescueRequest(NamedTuple):
    """The arguments of a rescue."""

    into: Sequence[str] = ()
    in_place: str | None = None
    voters: Sequence[str] = ()
    rename: Mapping[str, str] | None = None
    without: Sequence[str] = ()
    listener: str | None = None


def make_plan(look: QuorumLook, wanted: RescueRequest, behind: Sequence[bytes] = ()) -> RescuePlan:
    """Choose the best copy, and plan each byte; RequestError names the obstacle to a rescue.

    `behind` has values of records of the metadata that follow those of the rescue.
    """
    best = _best(look, wanted)
    if wanted.in_place is not None:
        best = _in_place(look, best, wanted.in_place)
    listener = wanted.listener or _listener(look)
    addresses = _addresses(look, wanted)
    places = _places(wanted, len(addresses))
    _check_places(look, wanted, places)
    epoch = max(copy.highest_epoch for copy in look.copies)
    if epoch > _MOST_EPOCH:
        raise RequestError(f"leader epoch {epoch} is so high that no other one can follow: {best.path}")
    plan = RescuePlan(look, best, epoch + EPOCH_JUMP, is_in_place=wanted.in_place is not None, listener=listener)
    voters = [_new_voter(plan, number, host, port) for number, host, port in addresses]
    _check_voters(look, voters, wanted)
    if wanted.in_place is not None:
        if best.node_id != voters[0].id:
            raise RequestError(
                f"--in-place {best.path}: its node is {best.node_id}, not {voters[0].id} as --voter says"
            )
        voters = [voters[0]._replace(directory_id=best.directory_id or "")]
    _add_voters(plan, voters)
    _add_behind(plan, behind)
    for voter, place in zip(voters, places, strict=True):
        both = look.has_both_roles(voter.id)
        plan.controllers.append(NewController(voter, place, _files(plan, voter, voters), both))
    return plan


# ---- which copy ----


def _best(look: QuorumLook, wanted: RescueRequest) -> MetadataCopy:
    for path in wanted.without:
        if not any(is_same_folder(copy.path, path) for copy in look.unreadable):
            raise RequestError(f"--without {path}: not one of the disks that cannot be read")
    unread = [copy for copy in look.unreadable if not any(is_same_folder(copy.path, path) for path in wanted.without)]
    if unread:
        reasons = "; ".join(f"{copy.path}: {copy.error}" for copy in unread)
        options = " ".join(f"--without {copy.path}" for copy in unread)
        raise RequestError(
            f"a copy is unknown, neither longer nor shorter than another: {reasons}. Make it readable, or say that the "
            f"rescue goes without it: {options}"
        )
    if look.best is None:
        raise RequestError(f"no copy is whole: {'; '.join(look.reasons)}")
    if look.cluster_id is None or look.best.cluster_id is None:
        raise RequestError(f"{look.best.path}: meta.properties does not say the cluster: {'; '.join(look.best.notes)}")
    if look.best.kraft_version > NEWEST_KRAFT_VERSION:
        raise RequestError(f"{look.best.path}: kraft.version {look.best.kraft_version} is of a newer Kafka")
    _refuse_running(look)
    return look.best


def _refuse_running(look: QuorumLook) -> None:
    """Refuse while a controller has the lock of its disk; a broker may go on, since it has nobody to follow."""
    brokers = look.image.brokers.keys() if look.image is not None else set()
    running = [copy for copy in look.whole if copy.is_running]
    names = [copy.name for copy in running if copy.node_id not in brokers or copy.node_id in look.voter_ids]
    if names:
        raise RequestError(f"a controller runs, {', '.join(names)}: stop it first, since it may still write its log")


def _in_place(look: QuorumLook, best: MetadataCopy, path: str) -> MetadataCopy:
    """Return the copy that is changed in its place: it has to be the best one."""
    chosen = next((copy for copy in look.copies if is_same_folder(copy.path, path)), None)
    if chosen is None:
        raise RequestError(f"--in-place {path}: not one of the disks that were given")
    if not chosen.is_whole:
        raise RequestError(f"--in-place {path}: its copy cannot be read: {chosen.error}")
    pair = next((p for p in look.pairs if {p.longer, p.shorter} == {best.path, chosen.path}), None)
    if chosen is not best and not (pair is not None and pair.is_same):
        lacking = "; ".join(line.strip() for line in pair_lines(pair)) if pair is not None else ""
        raise RequestError(
            f"--in-place {path}: this copy is shorter than the one of {best.name}: {lacking}. A broker stops if it has "
            "more metadata than its controllers. Make new folders of the longest copy: --into FOLDER"
        )
    if not chosen.active_path and chosen.kraft_version:
        raise RequestError(f"--in-place {path}: its log ends below its snapshot: use --into FOLDER")
    if chosen.kraft_version and chosen.directory_id is None:
        raise RequestError(f"--in-place {path}: meta.properties has no directory id: use --into FOLDER")
    return chosen


# ---- which voters ----


def _addresses(look: QuorumLook, wanted: RescueRequest) -> list[tuple[int, str, int]]:
    if bool(wanted.voters) == bool(wanted.rename):
        raise RequestError("name the new voters, by --voter ID@HOST:PORT for each, or all by --rename OLD=NEW")
    if wanted.rename:
        return _at_new_addresses(look, wanted.rename)
    return [parse_voter(text) for text in wanted.voters]


def parse_voter(text: str) -> tuple[int, str, int]:
    """Read ``ID@HOST:PORT``; an address of IPv6 is in brackets.

    >>> parse_voter("1@[::1]:9093")
    (1, '::1', 9093)
    """
    match = _VOTER.fullmatch(text)
    if match is None or int(match["id"]) >= 2**31 or not 0 < int(match["port"]) < 2**16:
        raise RequestError(f"--voter {text}: expected ID@HOST:PORT, such as 1@controller-1.example.com:9093")
    return int(match["id"]), match["host"].strip("[]"), int(match["port"])


def _at_new_addresses(look: QuorumLook, rename: Mapping[str, str]) -> list[tuple[int, str, int]]:
    voters = look.best.voters if look.best is not None else None
    if not voters:
        raise RequestError("--rename: the addresses of a static quorum are not in its log: give --voter for each")
    for text in (*rename, *rename.values()):
        if _ADDRESS.fullmatch(text) is None:
            raise RequestError(f"--rename {text}: expected HOST:PORT=HOST:PORT")
    unused = rename.keys() - {voter.address for voter in voters}
    if unused:
        there = ", ".join(voter.address for voter in voters)
        raise RequestError(f"--rename {', '.join(sorted(unused))}: no voter has this address: they have {there}")
    return [parse_voter(f"{voter.id}@{rename.get(voter.address, voter.address)}") for voter in voters]


def _check_voters(look: QuorumLook, voters: Sequence[Voter], wanted: RescueRequest) -> None:
    if len(voters) not in _SIZES:
        raise RequestError(f"{len(voters)} voters: a quorum has one, three or five: an even number adds no safety")
    ids, addresses = [str(voter.id) for voter in voters], [voter.address for voter in voters]
    for what, values in (("id", ids), ("address", addresses)):
        twice = [value for value in dict.fromkeys(values) if values.count(value) > 1]
        if twice:
            raise RequestError(f"the {what} {', '.join(twice)} stands in several voters")
    for voter in voters:
        if look.image is not None and voter.id in look.image.brokers and not look.has_both_roles(voter.id):
            raise RequestError(f"--voter {voter.id}: this is the id of a broker, and two nodes cannot have one id")


def _new_voter(plan: RescuePlan, number: int, host: str, port: int) -> Voter:
    address = address_text(host, port)
    seed = f"{plan.look.cluster_id} {plan.best.end} {plan.epoch} {number}@{address}"
    return Voter(number, new_directory_id(seed), ((plan.listener, host, port),))


def new_directory_id(seed: str) -> str:
    """Return the id of a new log directory: Kafka's tools take none that begins with a hyphen."""
    count = 0
    while True:
        text = format_uuid(hashlib.sha256(f"{seed} {count}".encode()).digest()[:16])
        if not text.startswith("-"):
            return text
        count += 1


def _listener(look: QuorumLook) -> str:
    """Return the name of the controllers' listener, from the voters' record or from their registrations."""
    voters = (look.best.voters if look.best else None) or ()
    names = [voter.endpoints[0][0] for voter in voters if voter.endpoints]
    if not names and look.image is not None:
        names = [row["name"] for fields in look.image.controllers.values() for row in fields.get("endPoints") or ()]
    return names[0] if names else "CONTROLLER"


# ---- where ----


def _places(wanted: RescueRequest, count: int) -> list[str]:
    if (wanted.in_place is None) == (not wanted.into):
        raise RequestError("say where: --into FOLDER for each voter, or --in-place DIR for a survivor")
    if wanted.in_place is not None:
        if count != 1:
            raise RequestError(f"--in-place makes one controller, and {count} voters are named: use --into for each")
        return [wanted.in_place]
    if len(wanted.into) != count:
        raise RequestError(f"{count} voters and {len(wanted.into)} folders: give --into FOLDER for each voter")
    return list(wanted.into)


def _check_places(look: QuorumLook, wanted: RescueRequest, places: Sequence[str]) -> None:
    if wanted.in_place is not None:
        return
    for i, place in enumerate(places):
        for copy in look.copies:
            refuse_inside(place, copy.path, "the new folder", "a disk that is read")
        if any(
            is_same_folder(place, other) or os.path.abspath(place) == os.path.abspath(other) for other in places[:i]
        ):
            raise RequestError(f"--into {place}: two controllers cannot have one folder")


# ---- which bytes ----


def _add_voters(plan: RescuePlan, voters: Sequence[Voter]) -> None:
    """Add the batch that makes these nodes the voters; its time is a time of the log, not of the clock."""
    if not plan.best.kraft_version:
        return
    rows = [
        {
            "voterId": voter.id,
            "voterDirectoryId": voter.directory_id,
            "endpoints": [{"name": name, "host": host, "port": port} for name, host, port in voter.endpoints],
            "kRaftVersionFeature": {"minSupportedVersion": 0, "maxSupportedVersion": NEWEST_KRAFT_VERSION},
        }
        for voter in voters
    ]
    records = [
        encode_control(ControlKind.KRAFT_VERSION, {"version": 0, "kRaftVersion": plan.best.kraft_version}),
        encode_control(ControlKind.KRAFT_VOTERS, {"version": 0, "voters": rows}),
    ]
    where = {"base_offset": plan.end, "timestamp_ms": max(plan.best.time_ms, 0) + 1}
    plan.records += bytes(kraft_batch(records, **where, leader_epoch=plan.epoch))
    plan.record_count += len(records)


def _add_behind(plan: RescuePlan, values: Sequence[bytes]) -> None:
    """Add metadata records, in batches that Kafka reads whole."""
    time_ms = max(plan.best.time_ms, 0) + 1
    for first in range(0, len(values), _IN_A_BATCH):
        rows = [(time_ms, None, value) for value in values[first : first + _IN_A_BATCH]]
        columns = columns_from_records(rows, base_offset=plan.end)
        plan.records += bytes(build(columns, shared_row(leader_epoch=plan.epoch))[0])
        plan.record_count += len(rows)


def quorum_state(plan: RescuePlan, voters: Sequence[Voter]) -> bytes:
    """Return the text of quorum-state: the new epoch, without a leader and without a vote."""
    version = 1 if plan.best.kraft_version else 0
    ids = () if version else tuple(voter.id for voter in voters)
    return encode_quorum_state(QuorumState(version, -1, plan.epoch, -1, None, ids))


def _files(plan: RescuePlan, voter: Voter, voters: Sequence[Voter]) -> list[WrittenFile]:
    best, state = plan.best, WrittenFile(f"{FOLDER}/{FileKind.QUORUM_STATE.value}", "", 0, quorum_state(plan, voters))
    if plan.is_in_place:
        name = f"{FOLDER}/{os.path.basename(best.active_path)}"
        active = [WrittenFile(name, best.active_path, best.active_bytes, plan.records)] if plan.records else []
        return [*active, state]
    files = [WrittenFile(f"{FOLDER}/{os.path.basename(s.path)}", s.path, s.size, b"") for s in best.snapshots]
    for segment in best.segments:
        is_active = segment.path == best.active_path
        name = f"{FOLDER}/{os.path.basename(segment.path)}"
        size = best.active_bytes if is_active else segment.size
        files.append(WrittenFile(name, segment.path, size, plan.records if is_active else b""))
    if not best.segments:
        files.append(WrittenFile(f"{FOLDER}/{segment_file_name(best.end or 0, FileKind.LOG)}", "", 0, plan.records))
    epochs = [*best.epochs, *([EpochEntry(plan.epoch, best.end or 0)] if plan.records else [])]
    files.append(WrittenFile(f"{FOLDER}/{FileKind.LEADER_EPOCHS.value}", "", 0, epochs_file(epochs)))
    topic = encode_partition_metadata(PartitionMetadata(_METADATA_TOPIC_ID))
    files.append(WrittenFile(f"{FOLDER}/{FileKind.PARTITION_METADATA.value}", "", 0, topic))
    meta = MetaProperties(1, plan.look.cluster_id, voter.id, voter.directory_id)
    text = encode_meta_properties(meta, iso_text(max(best.time_ms, 0)))
    return [*files, state, WrittenFile(FileKind.META_PROPERTIES.value, "", 0, text)]


def check_unchanged(copy: MetadataCopy, again: MetadataCopy) -> None:
    """Refuse a copy that grew or shrank since it was read: somebody writes to it."""
    before = copy.rank, copy.active_path, copy.active_bytes
    after = again.rank, again.active_path, again.active_bytes
    if again.error or before != after:
        reason = f"its log changed while it was read: a leader writes to it; {again.error or 'stop all controllers'}"
        raise StorageError(copy.folder, "copy", reason)
