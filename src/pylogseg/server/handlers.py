"""What a server answers that only reads."""

from __future__ import annotations

import itertools

from pylogseg.server import about, codes, configs, fetching, grouping, offsets
from pylogseg.server.service import Call
from pylogseg.server.table import ApiTable, Handler
from pylogseg.server.wire import Values

#: Of every server.
READING: dict[int, Handler] = {
    1: fetching.fetch,
    2: offsets.list_offsets,
    3: about.metadata,
    8: grouping.commit,
    9: grouping.fetch_offsets,
    10: grouping.find_coordinator,
    11: grouping.join,
    12: grouping.heartbeat,
    13: grouping.leave,
    14: grouping.sync,
    15: grouping.describe_groups,
    16: grouping.list_groups,
    23: offsets.epoch_ends,
    32: configs.describe,
    35: about.log_dirs,
    60: about.cluster,
    61: about.producers,
    68: grouping.consumer_heartbeat,
    69: grouping.describe_consumer_groups,
    75: about.topic_partitions,
}

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
                        "index": each["index"],
                        "errorCode": codes.POLICY_VIOLATION,
                        "baseOffset": -1,
                        "errorMessage": _READ_ONLY,
                    }
                    for each in topic["partitionData"]
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


#: Of a server that only reads.
READ_ONLY = ApiTable({**READING, 0: _refuse_produce, 22: _refuse_producer_id}, FEATURES)
