"""Tests of values/internal/image.py and values/internal/partition_changes.py. A metadata log applied in bulk and record
by record: the same state.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.internal_logs import write_log

from pylogseg.format.messages.framing import decode_framed, encode_framed
from pylogseg.format.uuids import format_uuid
from pylogseg.values.internal import partition_changes
from pylogseg.values.internal.image import Image

_Step = tuple[str, int, dict[str, Any]]


def random_steps(rng: random.Random, count: int, more: tuple[str, ...]) -> list[_Step]:
    """Records about a few topics; also of topics and partitions that were never made, or were removed."""
    ids = [format_uuid(rng.randbytes(16)) for _ in range(4)]
    uuids = [format_uuid(rng.randbytes(16)) for _ in range(3)]
    made: list[str] = []
    steps: list[_Step] = []
    for i in range(count):
        kind = rng.choice(("Topic", "Partition", "Change", "Change", "Change", "Change", "NoOp", "Config", *more))
        topic_id, partition = rng.choice(ids), rng.randrange(3)
        brokers = [rng.randrange(5) for _ in range(rng.randrange(4))]
        if kind == "Topic":
            made.append(f"t{i}")
            steps.append(("TopicRecord", 0, {"name": f"t{i}", "topicId": topic_id}))
        elif kind == "Remove":
            steps.append(("RemoveTopicRecord", 0, {"topicId": topic_id}))
            ids[ids.index(topic_id)] = format_uuid(rng.randbytes(16))  # no id is given again
        elif kind == "Partition":
            fields = {"partitionId": partition, "topicId": topic_id, "replicas": brokers, "isr": brokers[:1],
                      "leader": rng.randrange(5), "leaderEpoch": rng.randrange(9), "partitionEpoch": rng.randrange(9),
                      "directories": rng.sample(uuids, rng.randrange(3))}  # fmt: skip
            if rng.random() < 0.5:
                fields["eligibleLeaderReplicas"] = brokers
            steps.append(("PartitionRecord", 2, fields))
        elif kind == "Change":
            some = {"isr": brokers, "leader": rng.randrange(-1, 5), "replicas": brokers, "removingReplicas": brokers,
                    "addingReplicas": brokers, "leaderRecoveryState": rng.randrange(2), "lastKnownElr": brokers,
                    "eligibleLeaderReplicas": brokers, "directories": rng.sample(uuids, rng.randrange(3))}  # fmt: skip
            fields = {name: some[name] for name in rng.sample(sorted(some), rng.randrange(4))}
            steps.append(("PartitionChangeRecord", 2, {"partitionId": partition, "topicId": topic_id} | fields))
        elif kind == "NoOp":
            steps.append(("NoOpRecord", 0, {}))
        elif kind == "Config":
            steps.append(("ConfigRecord", 0, {"resourceType": 2, "resourceName": "t", "name": "n", "value": str(i)}))
        elif kind == "ClearElr":
            steps.append(("ClearElrRecord", 0, {"topicName": rng.choice(["", *made])}))
        elif kind in ("Begin", "End", "Abort"):
            steps.append((f"{kind}TransactionRecord", 0, {}))
    return steps


@pytest.mark.parametrize("more", [(), ("Remove",), ("Remove", "ClearElr"), ("Begin", "End", "Abort", "Remove")])
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("mix", [partition_changes.MIX, np.uint64(0)], ids=["spread", "all keys with one number"])
def test_bulk_equals_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mix: np.uint64, seed: int, more: tuple[str, ...]
) -> None:
    monkeypatch.setattr(partition_changes, "MIX", mix)
    rng = random.Random(f"{seed} {more}")
    values = [encode_framed(*step) for step in random_steps(rng, 200, more)]
    folder, at = tmp_path / "__cluster_metadata-0", 0
    while at < len(values):  # a segment is a chunk
        some = values[at : at + rng.randrange(1, 80)]
        write_log(folder, [(None, value) for value in some], base_offset=at)
        at += len(some)
    bulk, slow = Image.read(str(folder)), Image()
    for value in values:
        slow.apply(decode_framed("__cluster_metadata", value))
    assert bulk.partitions == slow.partitions
    assert (bulk.topics, bulk.topic_ids, bulk.configs) == (slow.topics, slow.topic_ids, slow.configs)
    assert bulk.partitions or not seed
    assert bulk.offset == len(values)
