"""What a disk may hold after the power went: every state that the barriers of a trace allow.

What is assumed of the disk, and nothing more:

1. A byte that no write touched stays as it was. Blocks are not torn inside what was durable.
2. The bytes and the size of a file are durable when `sync` of the file has returned; a sync that has not returned (or
   has failed) promises nothing.
3. Until then any of its writes may be missing, whole or in part: the end of a write from any byte on, its beginning up
   to where a sector of 512 bytes ends, or any of its sectors. Writes may reach the disk in any order, within a file and
   between files.
4. The size of a file changes in order: it is what some prefix of the writes and cuts since the last sync made it. A
   byte below the size whose write is missing is what was there before, or zero. So an appended tail may be zeros.
5. A cut that is missing leaves the old bytes in place.
6. A name (of a new, renamed or removed file or folder) is durable when `sync_folder` of its folder has returned.
   Syncing a file does not make its name durable, nor the other way round: a new name may lead to an empty file.
7. Until then the file system either keeps names in order (`Names.JOURNAL`: what survives is a prefix of all changes of
   names on the disk, and a barrier makes all earlier ones durable) or does not (`Names.FREE`: any of them may be
   missing, and a barrier covers its own folder only).
8. A rename within a folder is there or not, never half; between folders it is two changes for `Names.FREE`.
"""

from __future__ import annotations

import enum
import itertools
import os
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import prod

from crash.torn_writes import Content, contents, outcome_count, random_content
from pylogseg.testing.memory import MemoryStorage
from pylogseg.testing.state import DiskState, Operation, Trace

_FEW_NAMES = 4
_FEW_CONTENTS = 256


class Names(enum.Enum):
    """What a file system promises of names without a barrier: assumption 7."""

    JOURNAL = "journal"
    FREE = "free"


@dataclass(frozen=True)
class CrashImage:
    """One state of the disk after a crash.

    Attributes
    ----------
    point : int
        How many operations of the trace had been started: the last may be a barrier that never returned.
    description : str
        What is missing.
    state : DiskState
        What lies on the disk.
    marks : tuple
        The labels that the workload had left by then (`MemoryStorage.mark`).
    """

    point: int
    description: str
    state: DiskState
    marks: tuple[object, ...]

    def open(self) -> MemoryStorage:
        """A storage that finds this on its disk; each call gives a fresh one."""
        return MemoryStorage(self.state)

    def write_to(self, folder: str | os.PathLike[str]) -> None:
        """Make the same files in a real folder."""
        self.state.write_to(folder)


@dataclass
class Pending:
    """What is durable at one point of a trace, and what is on its way.

    Attributes
    ----------
    point : int
        Operations before this point.
    durable : DiskState
        What no crash takes away.
    writes : dict of int to list of Operation
        For each file what was written since its last sync.
    names : list of Operation
        Changes of names whose folder has not been synced since.
    marks : list
        Labels left so far.
    """

    durable: DiskState
    writes: dict[int, list[Operation]] = field(default_factory=dict)
    names: list[Operation] = field(default_factory=list)
    marks: list[object] = field(default_factory=list)
    point: int = 0

    def step(self, operation: Operation, rule: Names) -> None:
        """Go on by one operation, which returns."""
        self.point += 1
        if operation.kind in ("new_file", "new_folder"):
            # The thing itself comes to be at once; nobody finds it before it has a name.
            self.durable.apply(operation._replace(changes=()))
        if operation.changes:
            self.names.append(operation)
        elif operation.kind in ("write", "size"):
            self.writes.setdefault(operation.node, []).append(operation)
        elif operation.kind == "sync":
            for each in self.writes.pop(operation.node, ()):
                self.durable.apply(each)
        elif operation.kind == "sync_folder":
            self._sync_names(operation.node, rule)
        elif operation.kind == "mark":
            self.marks.append(operation.label)

    def _sync_names(self, folder: int, rule: Names) -> None:
        touching = [i for i, each in enumerate(self.names) if any(c.folder == folder for c in each.changes)]
        settled = touching[-1] + 1 if touching else 0
        later: list[Operation] = []
        for each in self.names[:settled]:
            covered = [change for change in each.changes if rule is Names.JOURNAL or change.folder == folder]
            for change in covered:
                self.durable.rename(change)
            rest = tuple(change for change in each.changes if change not in covered)
            if rest:
                later.append(each._replace(changes=rest))
        self.names = later + self.names[settled:]

    def survivals(self, rule: Names) -> list[tuple[int, ...]]:
        """Which changes of names may be there after a crash, all of them first; for few every subset."""
        count = len(self.names)
        prefixes = [tuple(range(n)) for n in range(count, -1, -1)]
        if rule is Names.JOURNAL:
            return prefixes
        if count <= _FEW_NAMES:
            return [kept for n in range(count, -1, -1) for kept in itertools.combinations(range(count), n)]
        without_one = [tuple(i for i in range(count) if i != gone) for gone in range(count - 1)]
        return prefixes + without_one + [(only,) for only in range(1, count)]

    def some_survival(self, rule: Names, choose: random.Random) -> tuple[int, ...]:
        """One of all survivals."""
        count = len(self.names)
        if rule is Names.JOURNAL:
            return tuple(range(choose.choice((count, choose.randint(0, count)))))
        kept = choose.choice((1.0, 0.8, 0.3))
        return tuple(i for i in range(count) if choose.random() < kept)

    def image(self, survival: tuple[int, ...], chosen: Mapping[int, Content]) -> CrashImage:
        """The disk with these changes of names and these contents of files."""
        state = self.named(survival)
        lost = [f"lost: {each}" for i, each in enumerate(self.names) if i not in survival]
        for node, content in chosen.items():
            state.files[node] = bytearray(content.data)
            lost.append(content.lost)
        text = "; ".join(filter(None, lost)) or "nothing lost"
        return CrashImage(self.point, f"after {self.point} operations: {text}", state, tuple(self.marks))

    def named(self, survival: tuple[int, ...]) -> DiskState:
        """What is durable, with some more changes of names."""
        state = self.durable.copy()
        for i in survival:
            for change in self.names[i].changes:
                state.rename(change)
        return state

    def open_files(self, survival: tuple[int, ...]) -> list[int]:
        """Files that can be reached by these names and have writes on their way."""
        return sorted({node for _, node in self.named(survival).walk()} & self.writes.keys())


def crash_points(trace: Trace, rule: Names, *, every: bool = False) -> Iterator[Pending]:
    """What is durable and what is on its way where a crash may come: before each barrier and at the end.

    A crash between two barriers leaves nothing that one before the next barrier does not leave: all that was started
    meanwhile may be missing. With `every` those points are given too. The object is the same each time, one step on.
    """
    pending = Pending(trace.initial.copy())
    for operation in trace.operations:
        if every or operation.kind in ("sync", "sync_folder"):
            yield pending
        pending.step(operation, rule)
    yield pending


def crash_images(
    trace: Trace, limit: int = 2000, seed: int = 0, rules: Iterable[Names] = tuple(Names)
) -> Iterator[CrashImage]:
    """States of the disk that a crash may leave.

    Parameters
    ----------
    trace : Trace
        What the workload did: `MemoryStorage.trace`.
    limit : int
        If `count_images` is not above it, all those images come. Otherwise so many are drawn, of a wider choice:
        single sectors, several damaged writes in a file, any combination of files.
    seed : int
        For drawing.
    rules : iterable of Names
        The kinds of file systems.

    Yields
    ------
    CrashImage
        In order of the trace, kind by kind. The same state comes again only with more marks: more was promised then.
    """
    rules = tuple(rules)
    seen: set[tuple[bytes, int]] = set()
    few = count_images(trace, rules, limit) <= limit
    for image in _all_images(trace, rules) if few else _drawn_images(trace, rules, limit, random.Random(seed)):
        key = (image.state.fingerprint(), len(image.marks))
        if key not in seen:
            seen.add(key)
            yield image


def count_images(trace: Trace, rules: Iterable[Names] = tuple(Names), enough: int | None = None) -> int:
    """An upper bound of how many images there are if all are wanted; counting stops above `enough`."""
    total = 0
    for rule in rules:
        for pending in crash_points(trace, rule):
            for survival in pending.survivals(rule):
                total += _combination_count([outcome_count(pending.writes[n]) for n in pending.open_files(survival)])
                if enough is not None and total > enough:
                    return total
    return total


def _all_images(trace: Trace, rules: Iterable[Names]) -> Iterator[CrashImage]:
    for rule in rules:
        for pending in crash_points(trace, rule):
            possible = {
                node: contents(bytes(pending.durable.files[node]), writes) for node, writes in pending.writes.items()
            }
            for survival in pending.survivals(rule):
                nodes = pending.open_files(survival)
                for chosen in _combinations([possible[node] for node in nodes]):
                    yield pending.image(survival, dict(zip(nodes, chosen, strict=True)))


def _combination_count(counts: list[int]) -> int:
    return prod(counts) if prod(counts) <= _FEW_CONTENTS else sum(counts) * 2 ** (len(counts) - 1)


def _combinations(possible: list[list[Content]]) -> Iterator[tuple[Content, ...]]:
    """All combinations if they are few; else all contents of each file, with the others whole or as last synced."""
    if prod(map(len, possible)) <= _FEW_CONTENTS:
        yield from itertools.product(*possible)
        return
    for place, each in enumerate(possible):
        yield from itertools.product(*[each if i == place else [o[0], o[-1]] for i, o in enumerate(possible)])


def _drawn_images(trace: Trace, rules: tuple[Names, ...], limit: int, choose: random.Random) -> Iterator[CrashImage]:
    ends = len(trace.operations)
    drawn = Counter((choose.choice(rules), choose.randint(0, ends)) for _ in range(limit))
    for rule in rules:
        for pending in crash_points(trace, rule, every=True):
            for _ in range(drawn[rule, pending.point]):
                survival = pending.some_survival(rule, choose)
                chosen = {
                    node: random_content(bytes(pending.durable.files[node]), pending.writes[node], choose)
                    for node in pending.open_files(survival)
                }
                yield pending.image(survival, chosen)
