"""What a server answers that is written to."""

from __future__ import annotations

import contextlib

from pylogseg.server import grouping
from pylogseg.server.codes import KafkaError
from pylogseg.server.handlers import FEATURES, READING
from pylogseg.server.service import Call
from pylogseg.server.table import ApiTable
from pylogseg.server.wire import Values
from pylogseg.server.writing import access_answers, admin, altering, one_node, producing, transacting


def _fetch_offsets(call: Call) -> Values:
    return transacting.fetch_offsets(call, grouping.fetch_offsets(call))


def _find_coordinator(call: Call) -> Values:
    """As a broker makes the topic of groups when a client looks for its group's coordinator."""
    if call.values["keyType"] == grouping.GROUP:
        with contextlib.suppress(KafkaError):  # commits will say it
            call.service.groups.place_of("")
    return grouping.find_coordinator(call)


WRITING = ApiTable(
    {
        **READING,
        0: producing.produce,
        3: admin.metadata,
        9: _fetch_offsets,
        10: _find_coordinator,
        19: admin.create_topics,
        20: admin.delete_topics,
        21: admin.delete_records,
        22: transacting.init_producer_id,
        24: transacting.add_partitions,
        25: transacting.add_offsets,
        26: transacting.end,
        28: transacting.commit_offsets,
        29: access_answers.describe_acls,
        30: access_answers.create_acls,
        31: access_answers.delete_acls,
        33: altering.alter,
        34: one_node.alter_log_dirs,
        37: admin.create_partitions,
        42: admin.delete_groups,
        43: one_node.elect_leaders,
        44: altering.alter_in_part,
        45: one_node.alter_reassignments,
        46: one_node.reassignments,
        47: admin.delete_offsets,
        50: access_answers.describe_users,
        51: access_answers.alter_users,
        55: one_node.quorum,
        65: one_node.describe_transactions,
        66: one_node.list_transactions,
        74: one_node.config_resources,
    },
    {**FEATURES, "transaction.version": 2},
)
