"""Handlers of a read-only server, and handlers that every server shares."""

from __future__ import annotations

import itertools
from typing import Any

from pylogseg.format.messages import codes
from pylogseg.format.messages.wire import API_VERSIONS, Values
from pylogseg.server import about, acls, configs, fetching, grouping, offsets
from pylogseg.server.acls import GROUP, TOPIC, TRANSACTIONAL_ID
from pylogseg.server.service import Call
from pylogseg.server.table import Api, ApiTable, Need, Rows, need_cluster, need_topics

READ_GROUP = Need(acls.READ, GROUP, "groupId")
TOPIC_ROWS = Rows("topics", "topics", ("name",))
_TOPICS_WITH_IDS = Rows("topics", "topics", ("name", "topicId"))
PARTITION_ROWS = Rows("partitions", "partitions", ("partitionIndex",))
#: The first version of FindCoordinator for several keys.
_MANY_COORDINATORS = 4


def _need_coordinators(key_type: int, kind: int) -> tuple[Need, Need]:
    """Return the needs of FindCoordinator for groups or transactions: for one key, and for each of several."""

    def is_meant(asking: Any, _: str) -> bool:
        return bool(asking.call.values["keyType"] == key_type)

    def is_alone(asking: Any, name: str) -> bool:
        return is_meant(asking, name) and asking.call.version < _MANY_COORDINATORS

    several = Need(acls.DESCRIBE, kind, "", "coordinatorKeys", "coordinators", when=is_meant)
    return Need(acls.DESCRIBE, kind, "key", when=is_alone), several


#: Requests that every server answers, by their keys.
READING = {
    api.key: api
    for api in (
        # Of the topics of a session only the fetch itself knows: `Service.check_readable`.
        Api(1, fetching.fetch, failure=fetching.fail_fetch),
        Api(2, offsets.list_offsets, (need_topics(acls.DESCRIBE),), (TOPIC_ROWS, PARTITION_ROWS)),
        Api(3, about.metadata, (need_topics(acls.DESCRIBE),), (_TOPICS_WITH_IDS,), failure=about.fail_metadata),
        Api(8, grouping.commit, (READ_GROUP, need_topics(acls.READ)), (_TOPICS_WITH_IDS, PARTITION_ROWS)),
        Api(9, grouping.fetch_offsets, failure=grouping.fail_offsets),
        Api(10, grouping.find_coordinator,
            (*_need_coordinators(grouping.GROUP, GROUP), *_need_coordinators(grouping.TRANSACTION, TRANSACTIONAL_ID)),
            failure=grouping.fail_coordinators),
        Api(11, grouping.join, (READ_GROUP,)),
        Api(12, grouping.heartbeat, (READ_GROUP,)),
        Api(13, grouping.leave, (READ_GROUP,)),
        Api(14, grouping.sync, (READ_GROUP,)),
        Api(15, grouping.describe_groups, (Need(acls.DESCRIBE, GROUP, "", "groups", "groups"),),
            (Rows("groups", "groups", item="groupId"),)),
        Api(16, grouping.list_groups),
        # What 4.4 adds asks whether this is the right cluster and node.
        Api(API_VERSIONS, about.api_versions, last=4),
        Api(23, offsets.epoch_ends, (need_topics(acls.DESCRIBE, field="topic", enough=acls.CLUSTER_ACTION),),
            (Rows("topics", "topics", ("topic",)), Rows("partitions", "partitions", ("partition",)))),
        Api(32, configs.describe_configs, (Need(acls.DESCRIBE_CONFIGS, 0, "resourceName", "resources", "results"),),
            (Rows("results", "resources", ("resourceType", "resourceName")),)),
        Api(35, about.log_dirs, need_cluster(acls.DESCRIBE), failure=about.fail_log_dirs, fails_first=True),
        Api(60, about.describe_cluster),  # whoever is in may see the brokers
        Api(61, about.producers, (need_topics(acls.READ),),
            (TOPIC_ROWS, Rows("partitions", "partitionIndexes", item="partitionIndex"))),
        Api(68, grouping.consumer_heartbeat, (READ_GROUP, Need(acls.DESCRIBE, TOPIC, "", "subscribedTopicNames"))),
        Api(69, grouping.describe_consumer_groups, (Need(acls.DESCRIBE, GROUP, "", "groupIds", "groups"),),
            (Rows("groups", "groupIds", item="groupId"),)),
        Api(75, about.topic_partitions, (need_topics(acls.DESCRIBE),), (TOPIC_ROWS,)),
    )
}  # fmt: skip

#: The feature that says whether there are groups of the new protocol.
FEATURES = {"group.version": 1}
_READ_ONLY = "this server is read-only: it shows files that nobody may change (pylogseg serve)"
#: Ids for producers that will be refused: a client asks for one before it sends anything.
_ids = itertools.count(1)


def _refuse_produce(call: Call) -> Values | None:
    """Refuse to append; without an answer where the client waits for none."""
    if call.values["acks"] == 0:
        return None
    return {
        "responses": [
            {
                "name": topic["name"],
                "topicId": topic["topicId"],
                "partitionResponses": [
                    {
                        "index": partition["index"],
                        "errorCode": codes.POLICY_VIOLATION,
                        "baseOffset": -1,
                        "errorMessage": _READ_ONLY,
                    }
                    for partition in topic["partitionData"]
                ],
            }
            for topic in call.values["topicData"]
        ]
    }


def _refuse_producer_id(call: Call) -> Values:
    """Give an id to an idempotent producer, whose batches are refused with words; refuse a transactional one."""
    if call.values["transactionalId"] is not None:
        return {"errorCode": codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "producerEpoch": -1}
    return {"producerId": next(_ids), "producerEpoch": 0}


#: Kafka offers the versions of Produce that it has dropped as well: older librdkafka asks for them, and without key 0
#: it never fetches. Version 6 of InitProducerId is not stable.
PRODUCE, INIT_PRODUCER = Api(0, _refuse_produce, first=0), Api(22, _refuse_producer_id, last=5)
#: Of a server that only reads.
READ_ONLY = ApiTable((PRODUCE, INIT_PRODUCER, *READING.values()), FEATURES)
