"""Answers to the requests of classic groups, and of committed offsets."""

from __future__ import annotations

from typing import Any

from pylogseg.format.messages import codes
from pylogseg.format.messages.codes import KafkaError
from pylogseg.format.messages.wire import NO_ID, Values
from pylogseg.format.names import TopicPartition
from pylogseg.server import acls
from pylogseg.server.committed import Committed
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
    is_valid = call.values["keyType"] in (GROUP, TRANSACTION)
    row: dict[str, Any] = {**call.node(), "errorMessage": ""}
    if not is_valid:
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
        tuple((protocol["name"], protocol["metadata"]) for protocol in values["protocols"]),
        call.version >= _NEEDS_ID,
        call.version >= _CAN_SKIP,
    )
    try:
        check_sizes(asked.protocols)
        call.service.groups.check_room(size_of(asked.protocols))
        call.service.groups.check_session(session_s)
        is_new = asked.member_id == ""
        response = call.service.groups.wait_for(
            values["groupId"], lambda group, now: group.join(now, asked), lambda: call.wait(0), make=is_new
        )
    except KafkaError as error:
        response = {"errorCode": error.code, "memberId": asked.member_id}
    # An error comes without the name of a protocol, which below version 7 is written as an empty one.
    return {"protocolName": None, **response}


def sync(call: Call) -> Values:
    """Answer SyncGroup, when the leader has assigned."""
    values = call.values
    assignments = {assignment["memberId"]: assignment["assignment"] for assignment in values["assignments"]}
    try:
        check_sizes(tuple(assignments.items()))
        call.service.groups.check_room(size_of(tuple(assignments.items())))
        return call.service.groups.wait_for(
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
    for member in asked:
        row = {"memberId": member["memberId"], "groupInstanceId": member["groupInstanceId"]}
        try:
            _leave(call, member["memberId"], member["groupInstanceId"])
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
    topics, good, kept = [], dict[TopicPartition, Committed](), list[tuple[TopicPartition, dict[str, Any]]]()
    for topic in values["topics"]:
        target = call.topic(topic["name"], topic["topicId"] if call.version >= _BY_ID else NO_ID)
        missing = codes.UNKNOWN_TOPIC_ID if call.version >= _BY_ID else codes.UNKNOWN_TOPIC_OR_PARTITION
        rows = []
        for partition in topic["partitions"]:
            number = partition["partitionIndex"]
            row = {"partitionIndex": number, "errorCode": missing if target is None else error}
            if target is not None and not 0 <= number < target.count:
                row["errorCode"] = codes.UNKNOWN_TOPIC_OR_PARTITION
            if target is not None and not row["errorCode"]:
                good[target.name, number] = committed_of(partition)
                kept.append(((target.name, number), row))
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
        return {"groups": [{"groupId": group["groupId"], **_offsets_of(call, group)} for group in values["groups"]]}
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
        table = call.service.groups.fetch_offsets(asked["groupId"], asked.get("memberId"), asked.get("memberEpoch", -1))
    except KafkaError as refused:
        return {"errorCode": refused.code}
    if asked["topics"] is None:
        texts = sum(len(entry.metadata) for entry in table.values())
        call.budget.spend_again(asked["groupId"], len(table), texts)
        wanted: dict[str, list[int]] = {}
        for topic, number in sorted(table):
            wanted.setdefault(topic, []).append(number)
        topics = []
        for name, numbers in wanted.items():
            topic_here = call.catalog.topics.get(name)
            if topic_here is not None or call.version < _BY_ID:
                topics.append((name, topic_here.id if topic_here else NO_ID, numbers, codes.NONE))
    else:
        topics = []
        for asked_topic in asked["topics"]:
            topic_here = call.topic(asked_topic["name"], asked_topic["topicId"]) if call.version >= _BY_ID else None
            missing = call.version >= _BY_ID and topic_here is None
            error = codes.UNKNOWN_TOPIC_ID if missing else codes.NONE
            name = topic_here.name if topic_here is not None else asked_topic["name"]
            topics.append((name, asked_topic.get("topicId", NO_ID), asked_topic["partitionIndexes"], error))
    return {
        "topics": [
            {
                "name": name,
                "topicId": topic_id,
                "partitions": [_offset(number, table.get((name, number)), error) for number in numbers],
            }
            for name, topic_id, numbers, error in topics
        ]
    }


def _offset(number: int, committed: Committed | None, error: int) -> dict[str, Any]:
    """Return an offset; where there is none, it is -1, which is no error."""
    shown = Committed(-1) if committed is None or error else committed
    return {
        "partitionIndex": number,
        "committedOffset": shown.offset,
        "committedLeaderEpoch": shown.epoch,
        "metadata": shown.metadata,
        "errorCode": error,
    }


# ---- descriptions ----


def list_groups(call: Call) -> Values:
    states = {word.lower() for word in call.values["statesFilter"]}
    types = {word.lower() for word in call.values["typesFilter"]}
    return {
        "groups": [
            {
                "groupId": group.name,
                "protocolType": group.protocol_type,
                "groupState": group.state,
                "groupType": group.kind,
            }
            for group in call.service.groups.groups()
            if (not states or group.state.lower() in states) and (not types or group.kind in types)
        ]
    }


def _operations(call: Call, row: Values) -> int:
    is_asked = call.values["includeAuthorizedOperations"] and not row.get("errorCode")
    return call.operations(acls.GROUP, row["groupId"]) if is_asked else _NOT_ASKED


def describe_groups(call: Call) -> Values:
    rows = []
    for group_id in call.values["groups"]:
        row = call.service.groups.describe(group_id)
        if row is None:
            row = {"groupId": group_id, "groupState": "Dead"}
            if call.version >= 6:
                row["errorCode"] = codes.GROUP_ID_NOT_FOUND
                row["errorMessage"] = f"Group {group_id} not found."
        members = row.get("members", ())
        texts = sum(len(member["memberMetadata"]) + len(member["memberAssignment"]) for member in members)
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
    return 1 + len(member["subscribedTopicNames"]) + sum(1 + len(topic["partitions"]) // 64 for topic in topics)


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
        None if owned is None else frozenset((topic["topicId"], n) for topic in owned for n in topic["partitions"]),
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
