"""`rescue_quorum`: controllers for a cluster whose quorum lost its majority, from the best copy of its metadata."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pylogseg.env.beside import check_free
from pylogseg.env.filesystem import refuse_inside
from pylogseg.env.storage import LocalStorage, Storage
from pylogseg.errors import RequestError
from pylogseg.format.columns import TableColumn, declare_columns, line_type
from pylogseg.format.outcome import Outcome, TextTable
from pylogseg.inspect.quorum.copies import MetadataCopy
from pylogseg.inspect.quorum.look import START, QuorumLook, look_at_quorum
from pylogseg.offline.rescuing.plan import RescuePlan, RescueRequest, make_plan
from pylogseg.offline.rescuing.steps import STEPS_COLUMN, RescueStep, steps_of
from pylogseg.offline.rescuing.writing import write_folders, write_in_place


@declare_columns(
    line_type("rescue"),
    TableColumn("written", "bool", "false: a dry run", source="is_written"),
    TableColumn("clusterId", "string", "of all disks", source=lambda rescue: rescue.look.cluster_id),
    TableColumn("from", "string", "log directory of the copy that is taken", source=lambda rescue: rescue.best.path),
    TableColumn("inPlace", "bool", "the survivor's own log changes", source=lambda rescue: rescue.plan.is_in_place),
    TableColumn("endOffset", "int64", "of the log that is taken", source=lambda rescue: rescue.best.end),
    TableColumn("newEndOffset", "int64", "with the new records", source=lambda rescue: rescue.plan.end),
    TableColumn("epoch", "int32", "of the new records, and of quorum-state", source=lambda rescue: rescue.plan.epoch),
    TableColumn("voters", "list<string>", "the new voters"),
    TableColumn("folders", "list<string>", "a log directory for each voter"),
    TableColumn("kept", "string", "folder with the metadata log as it was before", source="keep", is_optional=True),
    TableColumn("without", "list<string>", "disks that were left out, since they cannot be read"),
    TableColumn("brokersNotGiven", "list<int64>", "registered brokers of which no disk was given"),
    STEPS_COLUMN,
)  # fmt: skip
@dataclass
class QuorumRescue(Outcome):
    """The files that a rescue wrote, or would write, and the steps that follow."""

    plan: RescuePlan
    steps: list[RescueStep]
    is_written: bool = False
    keep: str | None = None
    without: list[str] = field(default_factory=list)

    @property
    def best(self) -> MetadataCopy:
        """The copy that is taken."""
        return self.plan.best

    @property
    def voters(self) -> list[str]:
        """The new voters."""
        return [*map(str, self.plan.voters)]

    @property
    def folders(self) -> list[str]:
        """Their log directories."""
        return [controller.path for controller in self.plan.controllers]

    @property
    def brokers_not_given(self) -> list[int]:
        """Registered brokers of which no disk was given."""
        return self.look.brokers_not_given

    @property
    def look(self) -> QuorumLook:
        """The disks as they were before."""
        return self.plan.look

    @property
    def exit_code(self) -> int:
        """1 if a registered broker's disk was not given, or one that was given was left out."""
        return 1 if self.look.brokers_not_given or self.without else 0

    def warnings(self) -> Iterator[str]:
        """Yield the disks that nobody looked at, and doubts about the choice of the copy."""
        yield from self.look.not_given_lines()
        for copy in self.look.unreadable:
            yield f"{copy.path}: left out; it may have more than all that were read: {copy.error}"
        yield from self.look.notes
        if self.look.verdict == START:
            yield f"a majority of the old controllers is here: {'; '.join(self.look.reasons)}"

    def lines(self) -> Iterator[str | TextTable]:
        """Yield the files and their bytes, and the steps."""
        plan, best = self.plan, self.plan.best
        yield from (line for line in self.look.lines() if isinstance(line, TextTable))
        yield f"taken: {best.folder}, up to offset {best.end}, epoch {best.epoch}; new epoch {plan.epoch}"
        for controller in plan.controllers:
            yield f"{'wrote' if self.is_written else 'would write'} {controller.path}, for voter {controller.voter}"
            yield from (f"  {file}" for file in controller.files)
        if plan.is_in_place and best.torn_bytes and plan.records:
            yield f"  {best.active_path}: {best.torn_bytes:,} torn bytes behind its last batch are cut off"
        if self.keep is not None:
            yield f"{'kept' if self.is_written else 'would keep'} the metadata log as it was in {self.keep}"
        yield ""
        for number, step in enumerate(self.steps, 1):
            yield from step.lines(number)
        yield ""
        if self.is_written:
            yield f"done: {len(plan.controllers)} of {len(plan.controllers)} folders written, read again and compared"
        else:
            yield "dry run, nothing was written: the same command with --write does it"


def rescue_quorum(
    paths: Sequence[str],
    *,
    voters: Sequence[str] = (),
    rename: Mapping[str, str] | None = None,
    into: Sequence[str] = (),
    in_place: str | None = None,
    keep: str | None = None,
    without: Sequence[str] = (),
    listener: str | None = None,
    write: bool = False,
    force: bool = False,
    storage: Storage | None = None,
    on_bytes: Callable[[int], None] | None = None,
) -> QuorumRescue:
    """Make controllers of the best copy of a cluster's metadata log, where its quorum lost the majority.

    Parameters
    ----------
    paths : sequence of str
        Disks of controllers and of brokers: each has a copy of the metadata log, and the longest one is taken.
    voters : sequence of str
        The new voters, ``ID@HOST:PORT``: one, three or five.
    rename : mapping of str to str, optional
        In their place: the old voters, at new addresses, each ``HOST:PORT``.
    into : sequence of str
        A new log directory for each voter, in their order: empty, or a path that does not exist.
    in_place : str, optional
        In its place: one of `paths`, a survivor, whose log gets the new records.
    keep : str
        With `in_place`: a new folder that gets the survivor's metadata log as it is.
    without : sequence of str
        Disks among `paths` that cannot be read: the rescue leaves them out.
    listener : str, optional
        Name of the controllers' listener; default: from the metadata.
    write : bool
        False for a dry run: nothing is written.
    force : bool
        True if also where the quorum starts as it is; addresses that moved need none.
    storage : Storage, optional
        Where the folders are written; default: the disks of this machine.
    on_bytes : callable, optional
        Gets the number of bytes read or written since its last call.

    Returns
    -------
    QuorumRescue
        Files with their bytes, and the steps that start the quorum.

    Raises
    ------
    RequestError
        If something forbids a rescue: a copy that cannot be read, a controller that runs, one in place that is shorter
        than another copy, disks of two clusters, a folder that is not empty. Nothing was written.
    StorageError
        If a file cannot be read or written. New folders do not exist then.
    """
    look = look_at_quorum(paths, on_bytes=on_bytes)
    plan = make_plan(look, RescueRequest(into, in_place, voters, rename, without, listener))
    if look.verdict == START and not force and not _is_moved(plan):
        raise RequestError(f"the quorum starts without a rescue: {'; '.join(look.reasons)}: force says that you know")
    disks = storage or LocalStorage()
    if in_place is not None and keep is None:
        raise RequestError("in place: name a folder that keeps the metadata log as it is now, by keep")
    for copy in look.copies if keep else ():  # a broker does not start with a folder there that is not a partition
        refuse_inside(keep or "", copy.path, "a disk of a node")
    for path in [controller.path for controller in plan.controllers if not plan.is_in_place] + [keep or ""]:
        if path:
            check_free(disks, os.path.abspath(path))
    rescue = QuorumRescue(plan, steps_of(plan), keep=keep if plan.is_in_place else None, without=[*without])
    if write:
        advance = on_bytes or (lambda size: None)
        if plan.is_in_place:
            write_in_place(plan, disks, keep or "", advance)
        else:
            write_folders(plan, disks, advance)
        rescue.is_written = True
    return rescue


def _is_moved(plan: RescuePlan) -> bool:
    """Check whether a voter gets an address that it did not have: no quorum starts by itself then."""
    before = {(voter.id, voter.address) for voter in plan.best.voters or ()}
    return any((voter.id, voter.address) not in before for voter in plan.voters)
