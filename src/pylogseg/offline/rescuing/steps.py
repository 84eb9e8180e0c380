"""The steps that start a rescued quorum, in their order, with the names of the cluster at hand.

Each step is a sentence for a person, lines for `server.properties` of one node, and lines for a shell in Kafka's folder
on that node. A test follows them word for word.
"""

from __future__ import annotations

import os
import shlex
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from pylogseg.format.columns import TableColumn
from pylogseg.format.words import names_text
from pylogseg.inspect.quorum.copies import address_text
from pylogseg.offline.rescuing.plan import NewController, RescuePlan
from pylogseg.values.internal.cluster import FOLDER

_WIDTH = 100
PROPERTIES = "config/server.properties"
START_COMMAND = f"bin/kafka-server-start.sh -daemon {PROPERTIES}"
STOP_COMMAND = "bin/kafka-server-stop.sh"


STEPS_COLUMN = TableColumn(
    "steps", "list<struct>", "what to do, in this order",
    fields=(
        TableColumn("text", "string", "the step"),
        TableColumn("node", "int32", "where its lines belong", source="node_id"),
        TableColumn("settings", "list<string>", "lines of server.properties"),
        TableColumn("commands", "list<string>", "lines for a shell, in Kafka's folder"),
    ),
)  # fmt: skip


@dataclass
class RescueStep:
    """A step, and the node that its lines are for."""

    text: str
    node_id: int | None = None
    settings: list[str] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)

    def lines(self, number: int) -> Iterator[str]:
        """Yield the step as text: settings are indented, commands begin with ``$``."""
        yield from textwrap.wrap(self.text, _WIDTH, initial_indent=f"{number}. ", subsequent_indent="   ",
                                 break_long_words=False, break_on_hyphens=False)  # fmt: skip
        yield from (f"     {line}" for line in self.settings)
        yield from (f"     $ {line}" for line in self.commands)


def steps_of(plan: RescuePlan) -> list[RescueStep]:
    """Return all steps of a plan."""
    return [
        *_stop(plan),
        *_wipe(plan),
        *configure_steps(plan),
        *(RescueStep(f"Start node {c.voter.id}.", c.voter.id, commands=[START_COMMAND]) for c in plan.controllers),
        look_step(plan),
        *_brokers(plan),
        *_grow(plan),
        RescueStep(
            "Clients see this: requests that timed out while there was no leader may be carried out now, such as "
            "topics that somebody tried to create. Records of the metadata that only a minority had count from now on."
        ),
    ]


# ---- what goes ----


def _old_nodes(plan: RescuePlan) -> list[int]:
    """Return controllers that must not come back as they are: voters before, and no survivor in its place."""
    kept = {controller.voter.id for controller in plan.controllers} if plan.is_in_place else set()
    return [number for number in plan.look.voter_ids if number not in kept]


def _stop(plan: RescuePlan) -> Iterator[RescueStep]:
    stopped = [*(c.voter.id for c in plan.controllers if plan.is_in_place), *_old_nodes(plan)]
    if not plan.look.voter_ids:
        yield RescueStep("Stop every controller that still runs. Brokers go on.", commands=[STOP_COMMAND])
    for number in dict.fromkeys(stopped):
        yield RescueStep(f"Stop controller {_where(plan, number)}, if it still runs.", number, commands=[STOP_COMMAND])


def _wipe(plan: RescuePlan) -> Iterator[RescueStep]:
    why = "two old controllers that find each other first would elect a leader of their own"
    for number in _old_nodes(plan):
        disks = [copy for copy in plan.look.copies if copy.node_id == number]
        both = plan.look.has_both_roles(number)
        names = (FOLDER,) if both else (FOLDER, "meta.properties", "bootstrap.checkpoint")
        if disks:
            paths = " ".join(shlex.quote(f"{os.path.abspath(copy.path)}/{name}") for copy in disks for name in names)
            wiped = (
                f"metadata log of node {number}, and leave its topics" if both else f"old disk of controller {number}"
            )
            yield RescueStep(
                f"Keep a copy elsewhere, then wipe the {wiped}: {why}.", number, commands=[f"rm -rf {paths}"]
            )
        else:
            yield RescueStep(
                f"If the disk of controller {number} comes back, remove {names_text([*names])} from it (in "
                f"metadata.log.dir, else in the first of log.dirs) before the node starts: {why}.",
                number,
            )


# ---- what starts ----


def voters_line(plan: RescuePlan) -> str:
    """Return the line by which a node finds the voters."""
    if plan.best.kraft_version:
        return _bootstrap_line(voter.address for voter in plan.voters)
    return "controller.quorum.voters=" + ",".join(f"{voter.id}@{voter.address}" for voter in plan.voters)


def _bootstrap_line(addresses: Iterable[str]) -> str:
    return f"controller.quorum.bootstrap.servers={','.join(addresses)}"


def configure_steps(plan: RescuePlan) -> Iterator[RescueStep]:
    """Yield the lines of each controller."""
    other = "voters" if plan.best.kraft_version else "bootstrap.servers"
    for controller in plan.controllers:
        number = controller.voter.id
        text = (
            f"On node {number}, set these lines in {PROPERTIES} in the place of those of the same names, and remove "
            f"controller.quorum.{other} if it is there."
        )
        yield RescueStep(text, number, settings=[*_own_lines(plan, controller), voters_line(plan)])


def _own_lines(plan: RescuePlan, controller: NewController) -> list[str]:
    voter, folder = controller.voter, os.path.abspath(controller.path)
    before = plan.look.voter(voter.id)
    moved = before is None or before.address != voter.address
    if controller.has_both_roles:
        lines = [] if plan.is_in_place else [f"metadata.log.dir={folder}"]
        return lines
    listener = f"{plan.listener}://{voter.address}"
    lines = ["process.roles=controller", f"node.id={voter.id}", f"controller.listener.names={plan.listener}"]
    if not plan.is_in_place or moved:
        lines += [f"listeners={listener}", f"advertised.listeners={listener}"]
    if not plan.is_in_place:
        lines += [f"log.dirs={folder}", f"metadata.log.dir={folder}"]
    return lines


def look_step(plan: RescuePlan) -> RescueStep:
    """Return the step that looks at the quorum."""
    text = (
        f"Look at the quorum: LeaderId is {_numbers(voter.id for voter in plan.voters)}, LeaderEpoch is above "
        f"{plan.epoch}, HighWatermark is {plan.end} or more, and CurrentVoters are these: "
        f"{', '.join(f'{voter.id} at {voter.address}' for voter in plan.voters)}."
    )
    return RescueStep(text, plan.voters[0].id, commands=[f"{_describe(plan)} describe --status"])


def _describe(plan: RescuePlan) -> str:
    return f"bin/kafka-metadata-quorum.sh --bootstrap-controller {plan.voters[0].address}"


def _brokers(plan: RescuePlan) -> Iterator[RescueStep]:
    image = plan.look.image
    numbers = sorted(image.brokers.keys() - {voter.id for voter in plan.voters}) if image is not None else []
    before = {voter.address for voter in plan.best.voters or ()}
    stays = bool(plan.best.kraft_version) and {voter.address for voter in plan.voters} <= before
    if not plan.best.kraft_version and plan.is_in_place:
        stays = True  # they have the survivor in their list, and ask it
    when = (
        "A broker that runs finds the new leader by itself within seconds; the line is for its next start."
        if stays
        else "A broker finds the new leader when it has started again with it."
    )
    for number in numbers:
        if not plan.best.kraft_version and plan.look.has_both_roles(number):
            yield RescueStep(
                f"Leave node {_where(plan, number)} stopped: it has both roles, and in a static quorum no controller "
                "starts that is not a voter. It becomes one when the quorum grows.",
                number,
            )
            continue
        commands = [] if stays else [STOP_COMMAND, START_COMMAND]
        text = f"On broker {_where(plan, number)}, set this line in {PROPERTIES}. {when}"
        yield RescueStep(text, number, settings=[voters_line(plan)], commands=commands)


# ---- how it grows ----


def _grow(plan: RescuePlan) -> Iterator[RescueStep]:
    if len(plan.voters) > 1:
        return
    leader = plan.voters[0]
    new = [number for number in plan.look.voter_ids if number != leader.id]
    if not plan.best.kraft_version:
        yield RescueStep(
            f"To have three controllers again: stop node {leader.id}, run `pylogseg quorum rescue` on its disk with "
            "three --voter and three --into, and follow the steps. A static quorum cannot grow while it runs."
        )
        return
    for number in new:
        line = voters_line(plan)
        if not plan.look.has_both_roles(number):
            form = (
                f"bin/kafka-storage.sh format --cluster-id {plan.look.cluster_id} --no-initial-controllers "
                f"--config {PROPERTIES}"
            )
            text = f"When the quorum has a leader, format controller {_where(plan, number)} anew, and start it."
            yield RescueStep(text, number, settings=[line], commands=[form, START_COMMAND])
        else:
            text = f"When the quorum has a leader, start node {_where(plan, number)}."
            yield RescueStep(text, number, settings=[line], commands=[START_COMMAND])
        join = f"{_describe(plan)} --command-config {PROPERTIES} add-controller"
        text = (
            f"When `describe --replication` shows node {number} with little Lag, make it a voter. If this times out, "
            "repeat it."
        )
        yield RescueStep(text, number, commands=[join])
    addresses = [leader.address, *(voter.address for number in new if (voter := plan.look.voter(number)))]
    if len(addresses) > 1:
        yield RescueStep(
            f"When all are voters, set this line in {PROPERTIES} on every controller and broker, for its next start: a "
            f"node whose line names {leader.id} alone does not find the quorum while that one is down. Start node "
            f"{leader.id} again before anybody removes it from the voters.",
            settings=[_bootstrap_line(addresses)],
        )


def _where(plan: RescuePlan, number: int) -> str:
    """Return a node with its address, where the metadata says it."""
    voter, image = plan.look.voter(number), plan.look.image
    if voter is not None:
        return f"{number} ({voter.address})"
    nodes = [] if image is None else [image.controllers.get(number), image.brokers.get(number)]
    for fields in nodes:
        for endpoint in (fields or {}).get("endPoints") or ():
            return f"{number} ({address_text(endpoint['host'], endpoint['port'])})"
    return str(number)


def _numbers(numbers: Iterable[int]) -> str:
    return " or ".join(map(str, numbers))
