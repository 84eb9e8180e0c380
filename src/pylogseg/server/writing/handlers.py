"""Handlers of a writable server."""

from __future__ import annotations

import contextlib

from pylogseg.format.messages.codes import KafkaError
from pylogseg.format.messages.wire import Values
from pylogseg.server import acls, grouping
from pylogseg.server.acls import CLUSTER, GROUP, TOPIC, TRANSACTIONAL_ID
from pylogseg.server.catalog import INTERNAL
from pylogseg.server.handlers import (
    FEATURES,
    INIT_PRODUCER,
    PARTITION_ROWS,
    PRODUCE,
    READ_GROUP,
    READING,
    TOPIC_ROWS,
)
from pylogseg.server.service import Call
from pylogseg.server.table import Api, ApiTable, Need, Rows, need_cluster, need_topics
from pylogseg.server.writing import access, access_answers, admin, one_node, producing, transacting
from pylogseg.server.writing.access import Asking

#: In a batch: the lower half of its attributes, and the bit of those of a transaction.
_FLAGS_AT, _TRANSACTIONAL = 22, 0x10


def _fetch_offsets(call: Call) -> Values:
    return transacting.mark_undecided(call, grouping.fetch_offsets(call))


def _find_coordinator(call: Call) -> Values:
    """As a broker makes the topic of groups when a client looks for its group's coordinator."""
    if call.values["keyType"] == grouping.GROUP:
        with contextlib.suppress(KafkaError):  # commits will say it
            call.service.groups.place_of("")
    return grouping.find_coordinator(call)


_OF_TRANSACTION = Need(acls.WRITE, TRANSACTIONAL_ID, "transactionalId")
_SETTINGS = (Need(acls.ALTER_CONFIGS, 0, "resourceName", "resources", "responses"),)
_RESOURCES = Rows("responses", "resources", ("resourceType", "resourceName"))


def _has_transactions(asking: Asking, _: str) -> bool:
    """Return whether there are batches of a transaction in a request."""
    batches = (row["records"] for topic in asking.call.values["topicData"] for row in topic["partitionData"])
    return any(data is not None and len(data) > _FLAGS_AT and data[_FLAGS_AT] & _TRANSACTIONAL for data in batches)


def _would_come(asking: Asking, name: str) -> bool:
    """Return whether a topic comes into being by being asked for."""
    catalog = asking.call.catalog
    makes = asking.call.values["allowAutoTopicCreation"] and catalog.defaults.auto_create
    return makes and name not in catalog.topics and name not in INTERNAL


def _is_here(asking: Asking, name: str) -> bool:
    return name in asking.call.catalog.topics


def _has_id(asking: Asking, _: str) -> bool:
    return asking.call.values["transactionalId"] is not None


def _may_write_nowhere(asking: Asking, _: str) -> bool:
    """Return whether a producer without transactions may not write to any topic by ACLs of that topic."""
    return not _has_id(asking, "") and not asking.may_somewhere(acls.WRITE, TOPIC)


def _delete_topics(**names: str) -> tuple[Need, Need]:
    may = need_topics(acls.DESCRIBE, "responses", enough=acls.DELETE, **names)
    return may, may._replace(operation=acls.DELETE, when=_is_here)


#: Requests of a server that is written to. Versions from 4 on of AddPartitionsToTxn are for brokers; later ones of
#: TxnOffsetCommit and DeleteGroups are of 4.4: ids of topics, words for an error.
WRITING = ApiTable(
    (
        *READING.values(),
        PRODUCE._replace(
            handler=producing.produce,
            needs=(_OF_TRANSACTION._replace(when=_has_transactions),
                   need_topics(acls.WRITE, "responses", rows="topicData")),
            rows=(Rows("responses", "topicData", ("name", "topicId")),
                  Rows("partitionResponses", "partitionData", ("index",)))),
        READING[3]._replace(
            handler=admin.answer_metadata, show=access.show_topics,
            needs=(need_topics(acls.DESCRIBE), need_topics(acls.CREATE, enough=acls.CREATE, when=_would_come))),
        READING[9]._replace(handler=_fetch_offsets, answer_allowed=access.fetch_allowed_offsets),
        READING[10]._replace(handler=_find_coordinator),
        READING[16]._replace(show=access.show_groups),
        Api(19, admin.create_topics, (need_topics(acls.CREATE, enough=acls.CREATE),), (TOPIC_ROWS,),
            show=access.show_settings),
        Api(20, admin.delete_topics, (*_delete_topics(), *_delete_topics(field="", rows="topicNames")),
            (Rows("responses", "topics", ("name", "topicId")),),
            older_rows=(Rows("responses", "topicNames", item="name"), 6)),
        Api(21, admin.answer_delete_records, (need_topics(acls.DELETE),), (TOPIC_ROWS, PARTITION_ROWS)),
        INIT_PRODUCER._replace(
            handler=transacting.init_producer_id,
            needs=(_OF_TRANSACTION._replace(when=_has_id),
                   Need(acls.IDEMPOTENT_WRITE, CLUSTER, when=_may_write_nowhere))),
        Api(24, transacting.add_partitions,
            (_OF_TRANSACTION._replace(field="v3AndBelowTransactionalId"),
             need_topics(acls.WRITE, "resultsByTopicV3AndBelow", rows="v3AndBelowTopics")),
            (Rows("resultsByTopicV3AndBelow", "v3AndBelowTopics", ("name",)),
             Rows("resultsByPartition", "partitions", item="partitionIndex", error="partitionErrorCode")),
            is_atomic=True, last=3),
        Api(25, transacting.add_offsets, (_OF_TRANSACTION, READ_GROUP)),
        Api(26, transacting.end, (_OF_TRANSACTION,)),
        Api(28, transacting.commit_offsets, (_OF_TRANSACTION, READ_GROUP, need_topics(acls.READ)),
            (TOPIC_ROWS, PARTITION_ROWS), last=5),
        Api(29, access_answers.describe_acls, need_cluster(acls.DESCRIBE)),
        Api(30, access_answers.create_acls, need_cluster(acls.ALTER), (Rows("results", "creations"),)),
        Api(31, access_answers.delete_acls, need_cluster(acls.ALTER), (Rows("filterResults", "filters"),)),
        Api(33, admin.alter_configs, _SETTINGS, (_RESOURCES,)),
        Api(34, one_node.alter_log_dirs, need_cluster(acls.ALTER), failure=one_node.fail_moves),
        Api(37, admin.create_partitions, (need_topics(acls.ALTER, "results"),),
            (Rows("results", "topics", ("name",)),)),
        Api(42, admin.delete_groups, (Need(acls.DELETE, GROUP, "", "groupsNames", "results"),),
            (Rows("results", "groupsNames", item="groupId"),), last=2),
        Api(43, one_node.elect_leaders, need_cluster(acls.ALTER),
            (Rows("replicaElectionResults", "topicPartitions", ("topic",)),
             Rows("partitionResult", "partitions", item="partitionId"))),
        Api(44, admin.alter_configs_in_part, _SETTINGS, (_RESOURCES,)),
        Api(45, one_node.alter_reassignments, need_cluster(acls.ALTER),
            (Rows("responses", "topics", ("name",)), PARTITION_ROWS)),
        Api(46, one_node.reassignments, need_cluster(acls.DESCRIBE)),
        Api(47, admin.delete_offsets, (Need(acls.DELETE, GROUP, "groupId"), need_topics(acls.READ)),
            (TOPIC_ROWS, PARTITION_ROWS), fails_first=True),
        Api(50, access_answers.describe_users, need_cluster(acls.DESCRIBE), failure=access_answers.fail_descriptions),
        Api(51, access_answers.alter_users, need_cluster(acls.ALTER), failure=access_answers.fail_changes),
        Api(55, one_node.quorum, need_cluster(acls.DESCRIBE)),
        Api(65, one_node.describe_transactions,
            (Need(acls.DESCRIBE, TRANSACTIONAL_ID, "", "transactionalIds", "transactionStates"),),
            (Rows("transactionStates", "transactionalIds", item="transactionalId"),),
            show=access.show_topics_of_transactions),
        Api(66, one_node.list_transactions, show=access.show_transactions),
        READING[69]._replace(show=access.show_members),
        Api(74, one_node.config_resources, need_cluster(acls.DESCRIBE_CONFIGS)),
        READING[75]._replace(answer_allowed=access.describe_all_partitions),
    ),
    {**FEATURES, "transaction.version": 2},
)  # fmt: skip
