"""The steps that start a restored cluster, in their order."""

from __future__ import annotations

import os
from collections.abc import Iterator

from pylogseg.archive.whole_cluster.assigning import ClusterAssignment
from pylogseg.inspect.quorum.copies import address_text
from pylogseg.offline.rescuing.plan import RescuePlan
from pylogseg.offline.rescuing.steps import (
    PROPERTIES,
    START_COMMAND,
    RescueStep,
    configure_steps,
    look_step,
    voters_line,
)
from pylogseg.values.internal.image import Image


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
            f"there. All other settings are to be those that the broker had{f'; it had {before}' if before else ''}."
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
