"""A classic group as fields of Kafka's record of it, and what its members say in Kafka's formats."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pylogseg.server.groups import ClassicGroup, GroupState, Join, Member


def standing_of(group: ClassicGroup) -> tuple[object, ...]:
    """Return what changes whenever the record of a group does."""
    return group.generation, group.state, *group.members


def fields_of(group: ClassicGroup) -> dict[str, Any]:
    """Return the fields of the record of a group."""
    protocol = group.protocol or ""
    return {
        "protocolType": group.protocol_type or "",
        "generation": group.generation,
        "protocol": group.protocol,
        "leader": group.leader,
        "members": [
            {
                "memberId": each.id,
                "groupInstanceId": each.asked.instance_id,
                "clientId": each.asked.client_id,
                "clientHost": f"/{each.asked.host}",
                "rebalanceTimeout": round(each.asked.rebalance_s * 1000),
                "sessionTimeout": round(each.asked.session_s * 1000),
                "subscription": each.metadata(protocol),
                "assignment": each.assignment,
            }
            for each in group.members.values()
        ],
    }


def group_of(group_id: str, fields: Mapping[str, Any], now: float) -> ClassicGroup:
    """Return a group by its record; members have a session's time to send the next heartbeat."""
    kind, protocol = fields["protocolType"], fields["protocol"]
    group = ClassicGroup(
        group_id,
        state=GroupState.STABLE if fields["members"] else GroupState.EMPTY,
        generation=fields["generation"],
        protocol_type=kind or None,
        protocol=protocol,
        leader=fields["leader"],
    )
    for each in fields["members"]:
        session_s = each["sessionTimeout"] / 1000
        rebalance_s = max(each.get("rebalanceTimeout", -1) / 1000, session_s)
        asked = Join(
            each["memberId"],
            each.get("groupInstanceId"),
            each["clientId"],
            each["clientHost"].removeprefix("/"),
            session_s,
            rebalance_s,
            kind,
            ((protocol or "", each["subscription"]),),
        )
        group.members[asked.member_id] = Member(asked.member_id, asked, now + session_s, each["assignment"])
    return group


def topics_of(metadata: bytes) -> list[str]:
    """Return the topics in a subscription of a consumer, which is the beginning of ConsumerProtocolSubscription."""
    count, at, found = int.from_bytes(metadata[2:6], "big", signed=True), 6, []
    for _ in range(max(0, count)):
        size = int.from_bytes(metadata[at : at + 2], "big")
        if at + 2 + size > len(metadata):
            break
        found.append(metadata[at + 2 : at + 2 + size].decode("utf-8", "replace"))
        at += 2 + size
    return found
