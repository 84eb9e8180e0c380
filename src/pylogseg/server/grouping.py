"""Answers to the requests of classic groups, and of committed offsets."""

from __future__ import annotations

from typing import Any

from pylogseg.format.messages import codes
from pylogseg.format.messages.codes import KafkaError
from pylogseg.format.messages.wire import NO_ID, Values
from pylogseg.server import acls
from pylogseg.server.committed import Committed, Place
from pylogseg.server.consumer_groups import Beat, KnownTopic, check_subscription
from pylogseg.server.groups import Join, check_sizes, size_of
from pylogseg.server.service import Call

GROUP, TRANSACTION = 0, 1
#: First versions: of a join that gets its id first, of one whose leader may skip the assignment.
_NEEDS_ID, _CAN_SKIP = 4, 9
_BY_ID = 10
#: The first version of OffsetFetch that has an error for the whole answer.
_WHOLE_OFFSETS = 2
#: Of OffsetCommit: the first that knows groups of the new protocol.
_NEW_PROTOCOL = 9
_NOT_ASKED = -(2**31)


def find_coordinator(call: Call) -> Values:
    """Answer FindCoordinator: this node, for groups and transactions."""
    known = call.values["keyType"] in (GROUP, TRANSACTION)
    row: dict[str, Any] = {**call.node(), "errorMessage": ""}
    if not known:
        row = {"errorCode": codes.INVALID_REQUEST, "nodeId": -1, "host": "", "port": -1, "errorMessage": "only groups"}
    return {**row, "coordinators": [{"key": key, **row} for key in call.values["coordinatorKeys"]]}


def fail_coordinators(call: Call, code: int, text: str | None) -> Values:
    """Return no node for each key."""
    nowhere = {"nodeId": -1, "host": "", "port": -1}
    keys = call.values["coordinatorKeys"]
    rows = [{"key": key, "errorCode": code, "errorMessage": text, **nowhere} for key in keys]
    return {**nowhere, "coordinators": rows}


def join(call: Call) -> Values:
    """Answer JoinGroup, when all members have joined."""
    values = call.values
    session_s = values["sessionTimeoutMs"] / 1000
    rebalance_ms = values["rebalanceTimeoutMs"]
    asked = Join(
        values["memberId"],
        values["groupInstanceId"],
        call.client_id,
        call.host,
        session_s,
        rebalance_ms / 1000 if rebalance_ms >= 0 else session_s,
        values["protocolType"],
        tuple((each["name"], each["metadata"]) for each in values["protocols"]),
        call.version >= _NEEDS_ID,
        call.version >= _CAN_SKIP,
    )
    try:
        check_sizes(asked.protocols)
        call.service.groups.check_room(size_of(asked.protocols))
        call.service.groups.check_session(session_s)
        is_new = asked.member_id == ""
        found = call.service.groups.waited(
            values["groupId"], lambda group, now: group.join(now, asked), lambda: call.wait(0), make=is_new
        )
    except KafkaError as error:
        found = {"errorCode": error.code, "memberId": asked.member_id}
    # An error comes without the name of a protocol, which below version 7 is written as an empty one.
    return {"protocolName": None, **found}


def sync(call: Call) -> Values:
    """Answer SyncGroup, when the leader has assigned."""
    values = call.values
    assignments = {each["memberId"]: each["assignment"] for each in values["assignments"]}
    try:
        check_sizes(tuple(assignments.items()))
        call.service.groups.check_room(size_of(tuple(assignments.items())))
        return call.service.groups.waited(
            values["groupId"],
            lambda group, now: group.sync(
                now,
                values["memberId"],
                values["groupInstanceId"],
                values["generationId"],
                assignments,
                (values["protocolType"], values["protocolName"]),
            ),
            lambda: call.wait(0),
        )
    except KafkaError as error:
        return {"errorCode": error.code}


def heartbeat(call: Call) -> Values:
    values = call.values
    try:
        call.service.groups.in_group(
            values["groupId"],
            lambda group, now: group.heartbeat(
                now, values["memberId"], values["groupInstanceId"], values["generationId"]
            ),
        )
        return {}
    except KafkaError as error:
        return {"errorCode": error.code}


def leave(call: Call) -> Values:
    """Answer LeaveGroup, of one member or of several."""
    several = call.version >= 3
    asked = call.values["members"] if several else [{"memberId": call.values["memberId"], "groupInstanceId": None}]
    rows = []
    for each in asked:
        row = {"memberId": each["memberId"], "groupInstanceId": each["groupInstanceId"]}
        try:
            _leave(call, each["memberId"], each["groupInstanceId"])
        except KafkaError as error:
            row["errorCode"] = error.code
        rows.append(row)
    return {"members": rows} if several else {"errorCode": rows[0].get("errorCode", codes.NONE)}


def _leave(call: Call, member_id: str, instance_id: str | None) -> None:
    group_id = call.values["groupId"]
    call.service.groups.in_group(group_id, lambda group, now: group.leave(now, member_id, instance_id))


# ---- offsets ----


def commit(call: Call) -> Values:
    values, groups = call.values, call.service.groups
    group_id = values["groupId"]
    error = codes.NONE
    try:
        groups.check_commit(
            group_id, values["memberId"], values["groupInstanceId"], values["generationIdOrMemberEpoch"]
        )
    except KafkaError as refused:
        error = refused.code
        if error == codes.GROUP_ID_NOT_FOUND and call.version < _NEW_PROTOCOL:
            error = codes.ILLEGAL_GENERATION
    topics, good, kept = [], dict[Place, Committed](), list[tuple[Place, dict[str, Any]]]()
    for topic in values["topics"]:
        known = call.topic(topic["name"], topic["topicId"] if call.version >= _BY_ID else NO_ID)
        missing = codes.UNKNOWN_TOPIC_ID if call.version >= _BY_ID else codes.UNKNOWN_TOPIC_OR_PARTITION
        rows = []
        for each in topic["partitions"]:
            number = each["partitionIndex"]
            row = {"partitionIndex": number, "errorCode": missing if known is None else error}
            if known is not None and not 0 <= number < known.count:
                row["errorCode"] = codes.UNKNOWN_TOPIC_OR_PARTITION
            if known is not None and not row["errorCode"]:
                good[known.name, number] = committed_of(each)
                kept.append(((known.name, number), row))
            rows.append(row)
        topics.append({"name": topic["name"], "topicId": topic["topicId"], "partitions": rows})
    refusals = groups.commit(group_id, good) if good else {}
    for place, row in kept:
        row["errorCode"] = refusals[place].code if place in refusals else codes.NONE
    return {"topics": topics}


def committed_of(asked: dict[str, Any]) -> Committed:
    """Return the offset in a row of a request that commits it."""
    return Committed(asked["committedOffset"], asked["committedLeaderEpoch"], asked["committedMetadata"] or "")


def fetch_offsets(call: Call) -> Values:
    values = call.values
    if call.version >= 8:
        return {"groups": [{"groupId": each["groupId"], **_offsets_of(call, each)} for each in values["groups"]]}
    return _offsets_of(call, values)


def fail_offsets(call: Call, code: int, text: str | None) -> Values:
    """Return the error for each group; version 1 has it in partitions."""
    failure: Values = {"groups": [{"groupId": group["groupId"], "errorCode": code} for group in call.values["groups"]]}
    if call.version < _WHOLE_OFFSETS:
        failure["topics"] = [
            {**topic, "partitions": [_offset(number, None, code) for number in topic["partitionIndexes"]]}
            for topic in call.values["topics"] or ()
        ]
    return failure


def _offsets_of(call: Call, asked: dict[str, Any]) -> Values:
    try:
        found = call.service.groups.committed(asked["groupId"], asked.get("memberId"), asked.get("memberEpoch", -1))
    except KafkaError as refused:
        return {"errorCode": refused.code}
    if asked["topics"] is None:
        texts = sum(len(each.metadata) for each in found.values())
        call.budget.spend_again(asked["groupId"], len(found), texts)
        wanted: dict[str, list[int]] = {}
        for topic, number in sorted(found):
            wanted.setdefault(topic, []).append(number)
        topics = []
        for name, numbers in wanted.items():
            known = call.catalog.topics.get(name)
            if known is not None or call.version < _BY_ID:
                topics.append((name, known.id if known else NO_ID, numbers, codes.NONE))
    else:
        topics = []
        for each in asked["topics"]:
            known = call.topic(each["name"], each["topicId"]) if call.version >= _BY_ID else None
            missing = call.version >= _BY_ID and known is None
            error = codes.UNKNOWN_TOPIC_ID if missing else codes.NONE
            name = known.name if known is not None else each["name"]
            topics.append((name, each.get("topicId", NO_ID), each["partitionIndexes"], error))
    return {
        "topics": [
            {
                "name": name,
                "topicId": topic_id,
                "partitions": [_offset(number, found.get((name, number)), error) for number in numbers],
            }
            for name, topic_id, numbers, error in topics
        ]
    }


def _offset(number: int, committed: Committed | None, error: int) -> dict[str, Any]:
    """Return an offset; where there is none, it is -1, which is no error."""
    found = Committed(-1) if committed is None or error else committed
    return {
        "partitionIndex": number,
        "committedOffset": found.offset,
        "committedLeaderEpoch": found.epoch,
        "metadata": found.metadata,
        "errorCode": error,
    }


# ---- descriptions ----


def list_groups(call: Call) -> Values:
    states = {each.lower() for each in call.values["statesFilter"]}
    types = {each.lower() for each in call.values["typesFilter"]}
    return {
        "groups": [
            {
                "groupId": each.name,
                "protocolType": each.protocol_type,
                "groupState": each.state,
                "groupType": each.kind,
            }
            for each in call.service.groups.groups()
            if (not states or each.state.lower() in states) and (not types or each.kind in types)
        ]
    }


def _operations(call: Call, row: Values) -> int:
    is_asked = call.values["includeAuthorizedOperations"] and not row.get("errorCode")
    return call.operations(acls.GROUP, row["groupId"]) if is_asked else _NOT_ASKED


def describe_groups(call: Call) -> Values:
    rows = []
    for group_id in call.values["groups"]:
        row = call.service.groups.described(group_id)
        if row is None:
            row = {"groupId": group_id, "groupState": "Dead"}
            if call.version >= 6:
                row["errorCode"] = codes.GROUP_ID_NOT_FOUND
                row["errorMessage"] = f"Group {group_id} not found."
        members = row.get("members", ())
        texts = sum(len(each["memberMetadata"]) + len(each["memberAssignment"]) for each in members)
        call.budget.spend_again(group_id, len(members), texts)
        rows.append({**row, "authorizedOperations": _operations(call, row)})
    return {"groups": rows}


def describe_consumer_groups(call: Call) -> Values:
    """Answer ConsumerGroupDescribe; of a classic group it is an error, on which clients go on to DescribeGroups."""
    rows = []
    for group_id in call.values["groupIds"]:
        row = call.service.groups.described_consumers(group_id)
        if row is None:
            row = {
                "errorCode": codes.GROUP_ID_NOT_FOUND,
                "errorMessage": f"Group {group_id} is not a consumer group.",
                "groupId": group_id,
                "assignmentEpoch": 0,
                "groupEpoch": 0,
            }
        call.budget.spend_again(group_id, sum(map(_rows_of, row.get("members", ()))))
        rows.append({**row, "authorizedOperations": _operations(call, row)})
    return {"groups": rows}


def _rows_of(member: dict[str, Any]) -> int:
    """Return how many rows describe a member of a group of the new protocol."""
    topics = [*member["assignment"]["topicPartitions"], *member["targetAssignment"]["topicPartitions"]]
    return 1 + len(member["subscribedTopicNames"]) + sum(1 + len(each["partitions"]) // 64 for each in topics)


def consumer_heartbeat(call: Call) -> Values:
    values = call.values
    owned, timeout_ms = values["topicPartitions"], values["rebalanceTimeoutMs"]
    beat = Beat(
        values["memberId"],
        values["memberEpoch"],
        values["instanceId"],
        values["rackId"],
        timeout_ms / 1000 if timeout_ms >= 0 else None,
        None if values["subscribedTopicNames"] is None else tuple(values["subscribedTopicNames"]),
        values["subscribedTopicRegex"],
        values["serverAssignor"],
        None if owned is None else frozenset((each["topicId"], n) for each in owned for n in each["partitions"]),
        call.client_id,
        call.host,
    )
    if call.service.rights is not None:
        beat = beat._replace(may_see=call.service.rights.topics_that_may_be_described(call))
    catalog = call.catalog
    try:
        check_subscription(beat)
        if beat.is_full:
            call.service.groups.check_room(sum(map(len, beat.topics or ())))
        return call.service.groups.beat(
            values["groupId"],
            beat,
            lambda: {name: KnownTopic(topic.id, topic.count) for name, topic in catalog.topics.items()},
        )
    except KafkaError as error:
        return {"errorCode": error.code, "errorMessage": error.text}
