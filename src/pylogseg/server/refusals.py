"""What a server that only reads refuses, in words that clients show."""

from __future__ import annotations

import itertools

from pylogseg.server import codes
from pylogseg.server.service import Call
from pylogseg.server.wire import Values

READ_ONLY = "this server is read-only: it shows files that nobody may change (pylogseg serve)"
#: Ids for producers that will be refused: a client asks for one before it sends anything.
_ids = itertools.count(1)


def produce(call: Call) -> Values | None:
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
                        "errorMessage": READ_ONLY,
                    }
                    for each in topic["partitionData"]
                ],
            }
            for topic in call.values["topicData"]
        ]
    }


def init_producer_id(call: Call) -> Values:
    """Give an id to an idempotent producer, whose batches are refused with words; refuse a transactional one."""
    if call.values["transactionalId"] is not None:
        return {"errorCode": codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "producerEpoch": -1}
    return {"producerId": next(_ids), "producerEpoch": 0}
