"""Write the disks of `docs/lost-quorum.md`: one of three controllers, which had been down for a while, and two brokers.

    python examples/lost_quorum.py DIR

The controllers 2 and 3 are lost with their disks. The metadata logs are small, and have the form that Kafka writes.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pylogseg
from pylogseg.format.control import ControlKind
from pylogseg.format.control_batches import control_batch, kraft_batch
from pylogseg.format.files.properties import MetaProperties, encode_meta_properties
from pylogseg.format.files.status import QuorumState, encode_quorum_state
from pylogseg.format.messages.control import encode_control
from pylogseg.format.messages.framing import encode_framed
from pylogseg.format.uuids import format_uuid

#: 2026-03-01T12:00:00Z
NOON_MS = 1_772_366_400_000
CLUSTER = "hT2mWQ3lQ5mZ0k1sDq7x9A"
#: Directory ids of the nodes.
IDS = {number: format_uuid(bytes([16 + number] * 16)) for number in (1, 2, 3, 11, 12)}


def write(folder: Path) -> None:
    """Write the three disks: the controller lacks what happened while it was down."""
    log = [*birth(), *topic("orders", 3, 1)]
    downtime = [*topic("payments", 2, 2), user("billing"), setting("orders", "retention.ms", "604800000")]
    epochs = [1] * len(log) + [2] * (1 + len(downtime))
    log += [leader(2), *downtime]
    data, end = [], 0
    for batch, epoch in zip(log, epochs, strict=True):
        raw = batch(end, epoch)
        data.append(raw)
        end = pylogseg.scan(raw).batches.summary().last_offset + 1
    disk(folder / "c1", 1, data[:3], 1)
    disk(folder / "b11", 11, data, 2)
    disk(folder / "b12", 12, data, 2)


def disk(folder: Path, node: int, batches: list[bytes], epoch: int) -> None:
    """Write a node's log directory."""
    log = folder / "__cluster_metadata-0"
    log.mkdir(parents=True)
    (log / f"{0:020d}.log").write_bytes(b"".join(batches))
    state = QuorumState(1, 1, 1, -1) if node < 10 else QuorumState(0, 2, epoch, -1)
    (log / "quorum-state").write_bytes(encode_quorum_state(state))
    meta = MetaProperties(1, CLUSTER, node, IDS[node])
    (folder / "meta.properties").write_bytes(encode_meta_properties(meta, "Sun Mar 01 12:00:00 UTC 2026"))


def birth() -> list[Any]:
    """The voters, the first leader, the brokers."""
    voters = [
        {
            "voterId": number,
            "voterDirectoryId": IDS[number],
            "endpoints": [{"name": "CONTROLLER", "host": f"c{number}.example.com", "port": 9093}],
            "kRaftVersionFeature": {"minSupportedVersion": 0, "maxSupportedVersion": 1},
        }
        for number in (1, 2, 3)
    ]
    version = encode_control(ControlKind.KRAFT_VERSION, {"version": 0, "kRaftVersion": 1})
    record = encode_control(ControlKind.KRAFT_VOTERS, {"version": 0, "voters": voters})

    def first(offset: int, epoch: int) -> bytes:
        return bytes(kraft_batch([version, record], base_offset=offset, timestamp_ms=NOON_MS, leader_epoch=epoch))

    brokers = [
        ("RegisterBrokerRecord", 3, {"brokerId": number, "incarnationId": IDS[number], "brokerEpoch": 3, "features": [],
         "endPoints": [{"name": "PLAINTEXT", "host": f"b{number}.example.com", "port": 9092, "securityProtocol": 0}]})
        for number in (11, 12)
    ]  # fmt: skip
    return [first, records(*brokers)]


def leader(number: int) -> Any:
    """A leader begins."""
    key, value = encode_control(ControlKind.LEADER_CHANGE, {"version": 1, "leaderId": number})
    return lambda offset, epoch: bytes(
        control_batch(key, value, base_offset=offset, timestamp_ms=NOON_MS + offset, leader_epoch=epoch)
    )


def topic(name: str, partitions: int, number: int) -> list[Any]:
    """A topic is made, in one batch."""
    topic_id = format_uuid(bytes([64 + number] * 16))
    rows: list[Any] = [("TopicRecord", 0, {"name": name, "topicId": topic_id})]
    for partition in range(partitions):
        fields = {"partitionId": partition, "topicId": topic_id, "replicas": [11, 12], "isr": [11, 12], "leader": 11}
        rows.append(("PartitionRecord", 0, fields))
    return [records(*rows)]


def user(name: str) -> Any:
    """A user gets a password."""
    fields = {
        "name": name,
        "mechanism": 2,
        "salt": b"salt",
        "storedKey": b"key",
        "serverKey": b"key",
        "iterations": 4096,
    }
    return records(("UserScramCredentialRecord", 0, fields))


def setting(name: str, key: str, value: str) -> Any:
    """A topic gets a setting."""
    fields = {"resourceType": 2, "resourceName": name, "name": key, "value": value}
    return records(("ConfigRecord", 0, fields))


def records(*messages: Any) -> Any:
    """Return what makes a batch of records at an offset."""
    values = [encode_framed(*message) for message in messages]

    def batch(offset: int, epoch: int) -> bytes:
        rows = [(NOON_MS + offset, None, value) for value in values]
        return bytes(pylogseg.encode(rows, base_offset=offset, leader_epoch=epoch))

    return batch


if __name__ == "__main__":
    write(Path(sys.argv[1]))
