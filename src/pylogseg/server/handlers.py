"""What a server answers that only reads."""

from __future__ import annotations

from pylogseg.server import about, configs, fetching, grouping, offsets, refusals
from pylogseg.server.table import ApiTable, Handler

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
READ_ONLY = ApiTable({**READING, 0: refusals.produce, 22: refusals.init_producer_id}, FEATURES)
