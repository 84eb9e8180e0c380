"""The copies of a metadata log on several disks: which one is the longest, and whether a quorum can start from them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations, groupby

from pylogseg.env.executor import Advance
from pylogseg.env.urls import refuse_cluster
from pylogseg.errors import CorruptionError, RequestError, StorageError
from pylogseg.format.columns import TableColumn, declare_columns, line_type
from pylogseg.format.outcome import Outcome, TextTable
from pylogseg.format.words import count_text
from pylogseg.inspect.quorum.copies import MetadataCopy, Voter, read_copies
from pylogseg.inspect.quorum.pairs import CopyPair, NamedChange, compare_copies
from pylogseg.values.internal.image import Image
from pylogseg.walker.gaps import offsets_text

#: Names in a line for people; the rows of JSON have all.
_MOST_NAMES = 40
#: Records by which the nodes are known: most of a log are others.
_OF_NODES = ("RegisterBrokerRecord", "UnregisterBrokerRecord", "RegisterControllerRecord", "UnregisterControllerRecord")
START, RESCUE, NOTHING = "start", "rescue", "nothing"


@declare_columns(
    line_type("quorum"),
    TableColumn("clusterId", "string", "of all disks"),
    TableColumn("verdict", "string", "start: the quorum starts as it is; rescue; nothing: no copy is whole"),
    TableColumn("reasons", "list<string>", "why"),
    TableColumn("best", "string", "log directory of the longest copy", source="best_path"),
    TableColumn("voters", "list<string>", "of the longest copy, or of a static quorum their ids", source="voter_texts"),
    TableColumn("unreadable", "list<string>", "disks whose copy is not whole", source="unreadable_paths"),
    TableColumn("brokersNotGiven", "list<int64>", "registered brokers of which no disk was given"),
    TableColumn("votersNotGiven", "list<int64>", "voters of which no disk was given"),
)
@dataclass
class QuorumLook(Outcome):
    """The copies of several disks, and the verdict if a quorum can start from them."""

    copies: list[MetadataCopy]
    pairs: list[CopyPair] = field(default_factory=list)
    best: MetadataCopy | None = None
    image: Image | None = None  #: Of the best copy; it may have nodes alone.
    cluster_id: str | None = None
    verdict: str = NOTHING
    reasons: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    brokers_not_given: list[int] = field(default_factory=list)
    voters_not_given: list[int] = field(default_factory=list)

    @property
    def whole(self) -> list[MetadataCopy]:
        """Whole copies, the longest first."""
        return sorted((copy for copy in self.copies if copy.is_whole), key=lambda copy: copy.rank, reverse=True)

    @property
    def unreadable(self) -> list[MetadataCopy]:
        """Disks whose copy is not whole: neither longer nor shorter than any other."""
        return [copy for copy in self.copies if not copy.is_whole]

    @property
    def unreadable_paths(self) -> list[str]:
        return [copy.path for copy in self.unreadable]

    @property
    def best_path(self) -> str | None:
        return None if self.best is None else self.best.path

    @property
    def voter_ids(self) -> list[int]:
        """The voters by the longest copy; of a static quorum by quorum-state."""
        if self.best is None:
            return []
        if self.best.voters is not None:
            return [voter.id for voter in self.best.voters]
        return sorted({number for copy in self.copies if copy.state for number in copy.state.voters})

    @property
    def voter_texts(self) -> list[str]:
        if self.best is not None and self.best.voters is not None:
            return [str(voter) for voter in self.best.voters]
        return [str(number) for number in self.voter_ids]

    def is_voter(self, copy: MetadataCopy) -> bool:
        """Check whether a disk has a vote: its node, and in a dynamic quorum this directory of it."""
        if self.best is None or self.best.voters is None:
            return copy.node_id in self.voter_ids
        return (copy.node_id, copy.directory_id) in {(voter.id, voter.directory_id) for voter in self.best.voters}

    def has_both_roles(self, number: int) -> bool:
        """Check whether a node registered as a broker, and is a voter or registered as a controller."""
        image = self.image
        return image is not None and number in image.brokers and number in {*self.voter_ids, *image.controllers}

    def voter(self, number: int) -> Voter | None:
        """Return the voter with an id, by the longest copy."""
        voters = (self.best.voters if self.best else None) or ()
        return next((voter for voter in voters if voter.id == number), None)

    @property
    def exit_code(self) -> int:
        """2 if a disk could not be read, 1 if a registered broker's disk was not given."""
        return 2 if self.unreadable else 1 if self.brokers_not_given else 0

    def parts(self) -> Iterator[MetadataCopy | CopyPair]:
        """Yield the copies, then the pairs."""
        yield from self.copies
        yield from self.pairs

    def warnings(self) -> Iterator[str]:
        """Yield notes about unread disks."""
        for copy in self.unreadable:
            yield f"{copy.path}: its copy is unknown, neither longer nor shorter than another: {copy.error}"
        yield from self.not_given_lines()
        yield from self.notes
        for copy in self.copies:
            yield from copy.notes

    def not_given_lines(self) -> Iterator[str]:
        """Yield a line about brokers whose disks nobody gave."""
        if self.brokers_not_given and self.image is not None:
            numbers = ", ".join(map(str, self.brokers_not_given))
            if not {copy.node_id for copy in self.copies} & self.image.brokers.keys():
                yield (
                    f"no broker's disk was given ({numbers}): each broker has the whole metadata log, and one that has "
                    "more of it than the new controllers stops, and hides topics that they do not know"
                )
            else:
                yield f"not looked at: the disk of broker {numbers}, which may have a longer copy"

    def lines(self) -> Iterator[str | TextTable]:
        """Yield the table of copies, how they differ, and the verdict."""
        yield TextTable.of(self.copies, _HEADINGS, right=("START", "END", "EPOCH", "TORN", "SNAPSHOT"))
        yield ""
        if self.best is not None:
            kind = "dynamic" if self.best.voters is not None else "static, by controller.quorum.voters"
            voters = ", ".join(self.voter_texts) or "not in these files"
            yield f"cluster {self.cluster_id}, kraft.version {self.best.kraft_version}, voters ({kind}): {voters}"
        yield from self._pair_lines()
        yield ""
        if self.best is not None:
            yield f"the longest copy: {self.best.name}, up to offset {self.best.end}, epoch {self.best.epoch}"
        yield _VERDICTS[self.verdict]
        yield from (f"  {reason}" for reason in self.reasons)

    def _pair_lines(self) -> Iterator[str]:
        groups = self.groups()
        for group in groups:
            if len(group) > 1:
                yield f"the same up to offset {group[0].end}: {', '.join(copy.path for copy in group)}"
        firsts = {group[0].path for group in groups}
        for pair in self.pairs:
            if not pair.is_same and {pair.longer, pair.shorter} <= firsts:
                yield from pair_lines(pair)

    def groups(self) -> list[list[MetadataCopy]]:
        """Return the whole copies in groups of equal ones."""
        same = {(pair.longer, pair.shorter) for pair in self.pairs if pair.is_same}
        groups: list[list[MetadataCopy]] = []
        for copy in self.whole:
            for group in groups:
                if (group[0].path, copy.path) in same or (copy.path, group[0].path) in same:
                    group.append(copy)
                    break
            else:
                groups.append([copy])
        return groups


_VERDICTS = {
    START: "the quorum starts as it is",
    RESCUE: "the quorum does not start by itself, and a rescue makes controllers of these disks",
    NOTHING: "nothing can be done with these disks: no copy is whole",
}
_HEADINGS: dict[str, str | Callable[[MetadataCopy], object]] = {
    "NODE": lambda copy: copy.node_id,
    "DIRECTORY": lambda copy: copy.directory_id,
    "SNAPSHOT": lambda copy: copy.newest and copy.newest.offset,
    "START": lambda copy: copy.start if copy.is_whole else "?",
    "END": lambda copy: copy.end if copy.is_whole else "?",
    "EPOCH": lambda copy: copy.epoch if copy.is_whole else "?",
    "TORN": lambda copy: copy.torn_bytes if copy.is_whole else "?",
    "KRAFT": lambda copy: copy.kraft_version if copy.is_whole else "?",
    "LEADER": lambda copy: copy.leader and f"{copy.leader[1]} in {copy.leader[0]}",
    "VOTE": lambda copy: _vote(copy),
    "PATH": lambda copy: copy.path,
}


def _vote(copy: MetadataCopy) -> str | None:
    if copy.state is None:
        return None
    return f"{copy.state.voted_id if copy.state.voted_id >= 0 else 'none'} in {copy.state.leader_epoch}"


def pair_lines(pair: CopyPair) -> Iterator[str]:
    """Yield how a copy differs from a longer one, with names."""
    missing = offsets_text(pair.first_offset, pair.next_offset) if pair.first_offset < pair.next_offset else ""
    if pair.unknown:
        yield f"{pair.shorter} and {pair.longer}: unknown whether one is a prefix of the other: {pair.unknown}"
    elif pair.is_prefix:
        yield f"{pair.shorter} is a prefix of {pair.longer}: it lacks {missing}"
    else:
        yield (
            f"{pair.shorter} differs from {pair.longer} from offset {pair.differs_at} on"
            + (f": it lacks {missing}" if missing else "")
            + (f", and only it has {offsets_text(pair.first_offset, pair.below.end)}"
               if pair.first_offset < (pair.below.end or 0) else "")
        )  # fmt: skip
    yield from _change_lines(pair.lacks, "lacks")
    yield from _change_lines(pair.differs, "alone has")
    if not pair.lacks and not pair.differs and not pair.notes:
        yield "  nothing that has a name: the records say only that a leader was there"
    yield from (f"  {note}" for note in pair.notes)


def _change_lines(changes: Sequence[NamedChange], verb: str) -> Iterator[str]:
    for (kind, how), some in groupby(changes, key=lambda change: (change.kind, change.how)):
        names = [change.name for change in some]
        more = f" and {len(names) - _MOST_NAMES:,} more, in --json" if len(names) > _MOST_NAMES else ""
        label = {"missing": kind, "changed": f"change of {kind}", "removal": f"removal of {kind}"}[how]
        yield f"  {verb} {label}: {', '.join(names[:_MOST_NAMES])}{more}"


def look_at_quorum(paths: Sequence[str], *, names: bool = True, on_bytes: Advance | None = None) -> QuorumLook:
    """Read and compare the copies of the metadata log on disks of one cluster; nothing is written.

    `names` says whether changes are named: both states of each pair that differs are read for it. Raises RequestError
    if the disks are of several clusters, or one is given twice.
    """
    for path in paths:
        refuse_cluster(path)
    copies = [copy for path in paths for copy in read_copies(path, on_bytes)]
    look = QuorumLook(_without_second_directories(copies))
    _refuse_twice(look.copies)
    look.cluster_id = _one_cluster(look.copies)
    if not look.whole:
        look.reasons = [f"{copy.path}: {copy.error}" for copy in look.copies]
        return look
    look.best = look.whole[0]
    _compare(look, names)
    _look_for_nodes(look)
    _judge(look)
    return look


def _without_second_directories(copies: list[MetadataCopy]) -> list[MetadataCopy]:
    """Leave out log directories without metadata of nodes whose metadata log lies in another one."""
    nodes = {copy.node_id for copy in copies if not copy.is_absent}
    return [copy for copy in copies if not copy.is_absent or copy.node_id is None or copy.node_id not in nodes]


def _refuse_twice(copies: Sequence[MetadataCopy]) -> None:
    seen: set[str] = set()
    for copy in copies:
        place = os.path.realpath(copy.folder or copy.path)
        if place in seen:
            raise RequestError(f"{copy.path}: this disk is given twice")
        seen.add(place)


def _one_cluster(copies: Sequence[MetadataCopy]) -> str | None:
    clusters = {copy.cluster_id: copy for copy in copies if copy.cluster_id is not None}
    if len(clusters) > 1:
        sides = ", ".join(f"{copy.path} is of {cluster}" for cluster, copy in clusters.items())
        raise RequestError(f"these disks belong to several clusters: {sides}: name the disks of one")
    return next(iter(clusters), None)


def _compare(look: QuorumLook, names: bool) -> None:
    best = look.whole[0]
    by_path = {}
    for copy in look.whole[1:]:
        by_path[copy.path] = compare_copies(best, copy)
        look.pairs.append(by_path[copy.path])
    for one, other in combinations(look.whole[1:], 2):
        sides = by_path[one.path], by_path[other.path]
        if sides[0].is_prefix and sides[1].is_prefix:
            look.pairs.append(CopyPair(one, other, is_prefix=True))
        else:
            look.pairs.append(compare_copies(one, other))
    if not names:
        return
    first = {copy.path: group[0] for group in look.groups() for copy in group}
    named: dict[tuple[str, str], CopyPair] = {}
    images: dict[str, Image] = {}
    for pair in look.pairs:
        key = first[pair.longer].path, first[pair.shorter].path
        if key not in named:
            pair.name_changes(first, images)
            named[key] = pair
        else:
            pair.lacks, pair.differs, pair.notes = named[key].lacks, named[key].differs, named[key].notes
    look.image = images.get(best.path)


def _look_for_nodes(look: QuorumLook) -> None:
    """Note registered nodes of which no disk was given."""
    best = look.best
    if best is None or best.partition is None:
        return
    try:
        look.image = look.image or Image.read(best.partition, best.end, only=_OF_NODES)
    except (CorruptionError, StorageError) as error:
        look.notes.append(f"which brokers there are is unknown: {error}")
        return
    look.notes += [*look.image.notes, *look.image.damage]
    look.notes += [f"{what}: {count}" for what, count in look.image.unread().items()]
    nodes = {copy.node_id for copy in look.copies}
    look.voters_not_given = [number for number in look.voter_ids if number not in nodes]
    look.brokers_not_given = sorted(look.image.brokers.keys() - nodes - set(look.voters_not_given))


def _judge(look: QuorumLook) -> None:
    """Decide if a quorum can start from the disks, and why."""
    best = look.best
    assert best is not None
    here = sorted({copy.node_id for copy in look.whole if look.is_voter(copy) and copy.node_id is not None})
    count, needed = len(look.voter_ids), len(look.voter_ids) // 2 + 1
    have = f"{len(here)} of {count_text(count, 'voter')} {'is' if len(here) == 1 else 'are'} here"
    which = f" ({', '.join(map(str, here))})" if here else ""
    if not count:
        look.verdict = RESCUE
        look.reasons.append(
            "the voters are unknown: they stand in controller.quorum.voters of each node; with a majority of them here "
            "the quorum starts as it is"
        )
    elif len(here) >= needed:
        look.verdict = START
        look.reasons.append(f"{have}{which}: a majority is {needed}")
        voter = max((copy for copy in look.whole if look.is_voter(copy)), key=lambda copy: copy.rank)
        if voter.rank < best.rank:
            look.reasons.append(
                f"{best.name} has more than each of them: nobody committed that, unless one of their disks was "
                "restored from a backup; in that case rescue from the longest copy instead"
            )
    else:
        look.verdict = RESCUE
        look.reasons.append(f"{have}{which}: a majority is {needed}")
    lost = [number for number in look.voter_ids if number not in here]
    unknown = [copy.name for copy in look.unreadable]
    if look.verdict == RESCUE and unknown:
        look.reasons.append(f"unknown, neither longer nor shorter: {', '.join(unknown)}; make them readable first")
    if look.verdict == RESCUE and lost:
        look.reasons.append(f"voters without a whole disk here: {', '.join(map(str, lost))}")
    odd = [copy for copy in look.whole if copy.node_id in look.voter_ids and not look.is_voter(copy)]
    look.reasons += [
        f"{copy.name} is not a voter: its directory id {copy.directory_id} is another one, as after a new format"
        for copy in odd
    ]
