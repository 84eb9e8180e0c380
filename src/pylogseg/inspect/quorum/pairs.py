"""Two copies of a metadata log: a check that one is a prefix of the other, and the missing changes of the shorter one
by name.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pylogseg.errors import CorruptionError, StorageError
from pylogseg.format.columns import TableColumn, declare_columns, line_type
from pylogseg.inspect.differing_offset import differing_offset
from pylogseg.inspect.quorum.copies import MetadataCopy
from pylogseg.values.internal.image import ALL_BUT_CHANGES, Image

_MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
_RESOURCES = {1: "default", 2: "topic", 4: "broker", 8: "broker logger", 16: "client metrics", 32: "group"}
_PATTERNS = {3: "", 4: "*"}
_ACL_RESOURCES = {2: "topic", 3: "group", 4: "cluster", 5: "transactional id", 6: "delegation token", 7: "user"}


class NamedChange(NamedTuple):
    """Something of a cluster that one copy of its metadata has, and another one does not have."""

    kind: str  #: ``"topic"``, ``"partition"``, ``"setting"``, ``"acl"``, ``"user"``, ...
    name: str
    how: str  #: ``"missing"``, ``"changed"``, or ``"removal"``: the other copy has it still.


@declare_columns(
    line_type("pair"),
    TableColumn("longer", "string", "log directory of the copy with the higher epoch, or of one epoch the longer one"),
    TableColumn("shorter", "string", "log directory of the other copy"),
    TableColumn("same", "bool", "both end at one offset, with the same batches", source="is_same"),
    TableColumn("prefix", "bool", "the shorter one is a prefix of the longer one; null: unknown", source="is_prefix"),
    TableColumn("differsAt", "int64", "first offset at which their batches differ; null: none"),
    TableColumn("unknown", "string", "why it is unknown", is_optional=True),
    TableColumn("firstOffset", "int64", "first offset that the shorter one lacks"),
    TableColumn("nextOffset", "int64", "end of the longer one"),
    TableColumn(
        "lacks", "list<struct>", "changes that the shorter one lacks, by name",
        fields=(
            TableColumn("kind", "string", "topic, partition, setting, acl, user, ..."),
            TableColumn("name", "string", "its name"),
            TableColumn("how", "string", "missing, changed or removal"),
        ),
    ),
    TableColumn(
        "differs", "list<struct>", "changes that only the shorter one has, by name",
        fields=(
            TableColumn("kind", "string", "topic, partition, setting, acl, user, ..."),
            TableColumn("name", "string", "its name"),
            TableColumn("how", "string", "missing, changed or removal"),
        ),
    ),
    TableColumn("notes", "list<string>", "records that were left out of the names"),
)  # fmt: skip
@dataclass
class CopyPair:
    """Two whole copies, the one with the higher rank first."""

    above: MetadataCopy
    below: MetadataCopy
    is_prefix: bool | None = None
    differs_at: int | None = None
    unknown: str = ""
    lacks: list[NamedChange] = field(default_factory=list)
    differs: list[NamedChange] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def longer(self) -> str:
        return self.above.path

    @property
    def shorter(self) -> str:
        return self.below.path

    @property
    def is_same(self) -> bool:
        """True if both have the same batches up to one end."""
        return self.is_prefix is True and self.above.end == self.below.end

    @property
    def first_offset(self) -> int:
        """The first offset that the shorter one lacks."""
        return self.below.end or 0 if self.differs_at is None else self.differs_at

    @property
    def next_offset(self) -> int:
        return self.above.end or 0

    def name_changes(self, first: Mapping[str, MetadataCopy], images: dict[str, Image]) -> None:
        """Name the changes that one of both lacks.

        `images` keeps the states that were read, each of the `first` of the copies that are the same.
        """
        if self.is_same:
            return
        copies = first[self.above.path], first[self.below.path]
        try:
            above, below = _from_common_state(*copies, self.first_offset) or (_image(copy, images) for copy in copies)
        except (CorruptionError, StorageError) as error:
            self.notes.append(f"the names are unknown: {error}")
            return
        self.lacks = list(changes_between(below, above))
        if not self.is_prefix:  # a removal may be a thing that only the other copy made
            self.lacks = [change for change in self.lacks if change.how != "removal"]
            self.differs = [change for change in changes_between(above, below) if change.how == "missing"]
        for image in (above, below):
            self.notes += [*image.notes, *image.damage, *(f"{name}: {n}" for name, n in image.unread().items())]


def _image(copy: MetadataCopy, images: dict[str, Image]) -> Image:
    if copy.path not in images:
        if copy.partition is None:
            raise StorageError(copy.path, "read", copy.error)
        images[copy.path] = Image.read(copy.partition, copy.end)
    return images[copy.path]


def _from_common_state(above: MetadataCopy, below: MetadataCopy, start: int) -> tuple[Image, Image] | None:
    """Return the states of two copies with the same batches up to an offset, but for changes of partitions below it.

    Each change of a partition raises its epoch, so the same names differ. None where that does not hold, or where the
    state at that offset is in no copy.
    """
    one, other = above.partition, below.partition
    if one is None or other is None:
        return None
    tails = [Image(offset=start), Image(offset=start)]
    for tail, copy in zip(tails, (above, below), strict=True):
        if copy.partition is not None and start < (copy.end or 0):
            tail.go_on(copy.partition, copy.end)
    if any(tail.clears_elr for tail in tails) or tails[0].partitions.keys() & tails[1].partitions.keys():
        return None
    try:
        base = Image.read(other, start, only=ALL_BUT_CHANGES)
    except CorruptionError:
        return None
    if base.offset != start or base.is_in_transaction:
        return None
    longer: Image = pickle.loads(pickle.dumps(base))
    longer.go_on(one, above.end)
    if start < (below.end or 0):
        base.go_on(other, below.end)
    return longer, base


def compare_copies(one: MetadataCopy, other: MetadataCopy) -> CopyPair:
    """Compare the headers and CRCs of two whole copies in the offsets that both have."""
    above, below = (one, other) if one.rank >= other.rank else (other, one)
    pair = CopyPair(above, below)
    start = max(above.start or 0, below.start or 0)
    end = min(above.end or 0, below.end or 0)
    if start >= end and not (above.rank == below.rank and above.segments == below.segments == ()):
        pair.unknown = f"they have no offset in common: one begins at {start}, the other one ends at {end}"
        return pair
    try:
        pair.differs_at = differing_offset(above.segments, below.segments, start, end)
    except (CorruptionError, StorageError) as error:
        pair.unknown = f"they cannot be read again: {error}"
        return pair
    if pair.differs_at is None and (below.end or 0) > (above.end or 0):
        pair.differs_at = above.end  # the higher epoch counts, and the other one goes on without it
    pair.is_prefix = pair.differs_at is None
    return pair


# ---- names ----


def changes_between(less: Image, more: Image) -> Iterator[NamedChange]:
    """Yield by name the changes from an earlier state of a cluster to a later one."""
    changes = _Changes(less, more)
    yield from changes.of("topic", lambda image: image.topics, lambda key, image: f"{image.topics[key]} ({key})")
    yield from _partition_changes(less, more)
    yield from changes.of("setting", _settings, lambda key, _: f"{key[2]} of {_resource(key)}")
    yield from changes.of("acl", lambda image: image.acls, lambda key, image: _acl(image.acls[key]))
    yield from changes.of(
        "user", lambda image: image.users, lambda key, _: f"{key[0]} ({_MECHANISMS.get(key[1], key[1])})"
    )
    yield from changes.of("quota", _quotas, lambda key, _: f"{key[1]} of {_entity(key[0])}")
    yield from changes.of("token", lambda image: image.tokens)
    yield from changes.of("feature", lambda image: image.features)
    yield from changes.of("broker", lambda image: image.brokers)
    yield from changes.of("controller", lambda image: image.controllers)
    if less.next_producer_id != more.next_producer_id:
        yield NamedChange("producer ids", f"up to {more.next_producer_id}", "missing")


class _Changes(NamedTuple):
    less: Image
    more: Image

    def of(
        self,
        kind: str,
        things: Callable[[Image], Mapping[Any, Any]],
        name: Callable[[Any, Image], str] = lambda key, _: str(key),
    ) -> Iterator[NamedChange]:
        """Yield the changes of one kind of things, each a key and a value."""
        less, more = things(self.less), things(self.more)
        for key in _in_order(more.keys() - less.keys()):
            yield NamedChange(kind, name(key, self.more), "missing")
        for key in _in_order(key for key in more.keys() & less.keys() if more[key] != less[key]):
            yield NamedChange(kind, name(key, self.more), "changed")
        for key in _in_order(less.keys() - more.keys()):
            yield NamedChange(kind, name(key, self.less), "removal")


def _settings(image: Image) -> dict[Any, str]:
    return {(*resource, name): value for resource, pairs in image.configs.items() for name, value in pairs.items()}


def _quotas(image: Image) -> dict[Any, float]:
    return {(entity, name): value for entity, values in image.quotas.items() for name, value in values.items()}


def _in_order(keys: Iterable[Hashable]) -> list[Any]:
    return sorted(keys, key=str)


def _partition_changes(less: Image, more: Image) -> Iterator[NamedChange]:
    """Yield changes of partitions, without partitions of removed topics."""
    before, after = less.partitions, more.partitions
    gone = {key for key in before.keys() - after.keys() if key[0] in more.topics}
    for how, keys in (
        ("missing", after.keys() - before.keys()),
        ("changed", {key for key in after.keys() & before.keys() if after[key] != before[key]}),
        ("removal", gone),
    ):
        names = [(more.topics.get(topic_id, topic_id), number) for topic_id, number in keys]
        for topic, number in sorted(names):
            yield NamedChange("partition", f"{topic}-{number}", how)


def _resource(key: tuple[Any, ...]) -> str:
    kind, name = _RESOURCES.get(key[0], f"resource of type {key[0]}"), key[1]
    return f"{kind} {name}" if name else f"all {kind}s"


def _entity(entity: frozenset[tuple[str, str | None]]) -> str:
    return ", ".join(f"{kind} {'<default>' if name is None else name}" for kind, name in sorted(entity, key=str))


def _acl(fields: dict[str, Any]) -> str:
    kind = _ACL_RESOURCES.get(fields["resourceType"], f"resource of type {fields['resourceType']}")
    name = fields["resourceName"] + _PATTERNS.get(fields["patternType"], "")
    return f"{fields['principal']} on {kind} {name} from {fields['host']} ({fields['id']})"
