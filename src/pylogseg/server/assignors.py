"""Assignors of the server, for groups of the new protocol: they share out the partitions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

#: The id of a topic, and a number of a partition.
Part = tuple[bytes, int]
Wanted = Mapping[str, set[bytes]]  #: Ids of topics by member.


def uniform(wanted: Wanted, counts: Mapping[bytes, int], before: Mapping[str, set[Part]]) -> dict[str, set[Part]]:
    """Give every member about as many partitions, and leave as many as possible where they were."""
    parts_of: dict[str, set[Part]] = {member: set() for member in wanted}
    taken: set[Part] = set()
    for member in sorted(wanted):
        kept = {part for part in before.get(member, ()) if part[0] in wanted[member] and part[1] < counts[part[0]]}
        parts_of[member] = kept - taken
        taken |= parts_of[member]
    for topic in sorted(set().union(*wanted.values())):
        able = sorted(member for member in wanted if topic in wanted[member])
        for number in range(counts[topic]):
            if (topic, number) not in taken:
                parts_of[min(able, key=lambda member: len(parts_of[member]))].add((topic, number))
    for _ in range(sum(counts.values())):
        if not _moved_one(wanted, parts_of):
            break
    return parts_of


def _moved_one(wanted: Wanted, found: dict[str, set[Part]]) -> bool:
    """Move a partition from a member with many to one with two less or fewer; whether there was one to move."""
    members = sorted(found, key=lambda member: (len(found[member]), member))
    for low in members:
        for high in reversed(members):
            if len(found[high]) < len(found[low]) + 2:
                break
            part = max((part for part in found[high] if part[0] in wanted[low]), default=None)
            if part is not None:
                found[high].discard(part)
                found[low].add(part)
                return True
    return False


def ranges(wanted: Wanted, counts: Mapping[bytes, int]) -> dict[str, set[Part]]:
    """Give every member neighbours of each topic, the same numbers of all topics as far as they go."""
    parts_of: dict[str, set[Part]] = defaultdict(set, {member: set() for member in wanted})
    for topic in sorted(set().union(*wanted.values())):
        able = sorted(member for member in wanted if topic in wanted[member])
        share, more = divmod(counts[topic], len(able))
        start = 0
        for i, member in enumerate(able):
            end = start + share + (i < more)
            parts_of[member] |= {(topic, number) for number in range(start, end)}
            start = end
    return dict(parts_of)
