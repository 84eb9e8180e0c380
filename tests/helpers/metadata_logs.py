"""Small metadata logs of KRaft, a batch at a time, and disks of nodes that have them up to some batch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pylogseg.format.builder import build, shared_row
from pylogseg.format.control import ControlKind
from pylogseg.format.control_batches import control_batch, kraft_batch
from pylogseg.format.files.properties import MetaProperties, encode_meta_properties
from pylogseg.format.files.status import QuorumState, encode_quorum_state
from pylogseg.format.messages.control import encode_control
from pylogseg.format.messages.framing import encode_framed
from pylogseg.format.record_input import columns_from_records
from pylogseg.format.uuids import format_uuid

CLUSTER = "pylogsegMetadataLogsAA"
LOG = "__cluster_metadata-0"
#: Directory ids of controllers 1 to 5.
DIRECTORIES = {number: format_uuid(bytes([number] * 16)) for number in range(1, 14)}
Message = tuple[str, int, dict[str, Any]]


class Batch(NamedTuple):
    """A batch, and where it lies."""

    data: bytes
    offset: int
    next_offset: int
    epoch: int


class MetadataLog:
    """A metadata log that grows; disks have a part of it."""

    def __init__(self, voters: Sequence[int] = (1, 2, 3), *, static: bool = False) -> None:
        self.voters, self.static, self.epoch = list(voters), static, 1
        self.batches: list[Batch] = []
        self.time_ms = 1_700_000_000_000
        if not static:
            self.add_voters(self.voters)
        self.leader(self.voters[0])
        for broker in (11, 12):
            fields: dict[str, Any] = {
                "brokerId": broker, "incarnationId": DIRECTORIES[broker], "brokerEpoch": 1, "endPoints": [],
                "features": [], "rack": None, "fenced": False,
            }  # fmt: skip
            self.add(("RegisterBrokerRecord", 3, fields))

    @property
    def end(self) -> int:
        return self.batches[-1].next_offset if self.batches else 0

    def _append(self, data: bytes | bytearray, count: int) -> None:
        self.batches.append(Batch(bytes(data), self.end, self.end + count, self.epoch))

    def _where(self) -> dict[str, Any]:
        self.time_ms += 10
        return {"base_offset": self.end, "timestamp_ms": self.time_ms, "leader_epoch": self.epoch}

    def add_voters(self, numbers: Sequence[int]) -> None:
        rows = [
            {"voterId": number, "voterDirectoryId": DIRECTORIES[number],
             "endpoints": [{"name": "CONTROLLER", "host": f"c{number}", "port": 9093}],
             "kRaftVersionFeature": {"minSupportedVersion": 0, "maxSupportedVersion": 1}}
            for number in numbers
        ]  # fmt: skip
        records = [
            encode_control(ControlKind.KRAFT_VERSION, {"version": 0, "kRaftVersion": 1}),
            encode_control(ControlKind.KRAFT_VOTERS, {"version": 0, "voters": rows}),
        ]
        self._append(kraft_batch(records, **self._where()), 2)

    def leader(self, number: int, epoch: int | None = None) -> None:
        """A leader begins, by default in the next epoch."""
        self.epoch = self.epoch + 1 if epoch is None else epoch
        voters = [{"voterId": each, "voterDirectoryId": DIRECTORIES[each]} for each in self.voters]
        fields = {"version": 1, "leaderId": number, "voters": voters, "grantingVoters": voters}
        key, value = encode_control(ControlKind.LEADER_CHANGE, fields)
        self._append(control_batch(key, value, **self._where()), 1)

    def add(self, *messages: Message) -> None:
        """Append one batch of records."""
        where = self._where()
        rows = [(where["timestamp_ms"], None, encode_framed(*message)) for message in messages]
        raw, _ = build(
            columns_from_records(rows, base_offset=where["base_offset"]), shared_row(leader_epoch=self.epoch)
        )
        self._append(raw, len(messages))

    def topic(self, name: str, partitions: int = 1) -> str:
        """Make a topic; return its id."""
        topic_id = format_uuid(f"{name:-<16}".encode()[:16])
        rows: list[Message] = [("TopicRecord", 0, {"name": name, "topicId": topic_id})]
        for number in range(partitions):
            fields = {"partitionId": number, "topicId": topic_id, "replicas": [11, 12], "isr": [11, 12], "leader": 11,
                      "leaderEpoch": 0, "partitionEpoch": 0, "removingReplicas": [], "addingReplicas": []}  # fmt: skip
            rows.append(("PartitionRecord", 0, fields))
        self.add(*rows)
        return topic_id

    def both_roles(self, *numbers: int) -> None:
        """Nodes register as brokers, and as controllers."""
        for number in numbers:
            common = {"incarnationId": DIRECTORIES[number], "endPoints": [], "features": []}
            broker = {**common, "brokerId": number, "brokerEpoch": 1, "rack": None, "fenced": False}
            self.add(
                ("RegisterBrokerRecord", 3, broker),
                ("RegisterControllerRecord", 0, {**common, "controllerId": number, "zkMigrationReady": False}),
            )

    def fork(self) -> MetadataLog:
        """A log with the same batches, which goes its own way."""
        other = MetadataLog.__new__(MetadataLog)
        other.__dict__ = {**self.__dict__, "batches": [*self.batches], "voters": [*self.voters]}
        return other

    def disk(
        self,
        path: Path,
        node: int,
        *,
        end: int | None = None,
        start: int = 0,
        roll: Sequence[int] = (),
        directory: str | None = None,
        state: QuorumState | None = None,
    ) -> Path:
        """Write a node's log directory with the batches of some offsets; a segment begins at each offset of `roll`."""
        folder = path / LOG
        folder.mkdir(parents=True)
        chosen = [
            batch for batch in self.batches if start <= batch.offset and (end is None or batch.next_offset <= end)
        ]
        files: dict[int, bytes] = {}
        for batch in chosen:
            if not files or batch.offset in roll:
                files[batch.offset] = b""
            files[max(files)] += batch.data
        for base, data in (files or {start: b""}).items():
            (folder / f"{base:020d}.log").write_bytes(data)
        meta = MetaProperties(1, CLUSTER, node, directory or DIRECTORIES[node])
        (path / "meta.properties").write_bytes(encode_meta_properties(meta, "test"))
        epoch = chosen[-1].epoch if chosen else 0
        ids = tuple(self.voters) if self.static else ()
        known = state or QuorumState(0 if self.static or node > 10 else 1, self.voters[0], epoch, -1, None, ids)
        (folder / "quorum-state").write_bytes(encode_quorum_state(known))
        return path

    def snapshot(self, path: Path, end: int) -> Path:
        """Write a snapshot of the state below an offset: its records are those of the log."""
        (epoch,) = [batch.epoch for batch in self.batches if batch.next_offset == end]
        head = encode_control(ControlKind.SNAPSHOT_HEADER, {"version": 0, "lastContainedLogTimestamp": self.time_ms})
        parts = [bytes(control_batch(*head, base_offset=0, timestamp_ms=self.time_ms, leader_epoch=epoch))]
        parts += [  # each one offset later, since the header is the first record
            (batch.offset + 1).to_bytes(8, "big") + batch.data[8:] for batch in self.batches if batch.next_offset <= end
        ]
        foot = encode_control(ControlKind.SNAPSHOT_FOOTER, {"version": 0})
        parts.append(bytes(control_batch(*foot, base_offset=end + 1, timestamp_ms=self.time_ms, leader_epoch=epoch)))
        name = path / LOG / f"{end:020d}-{epoch:010d}.checkpoint"
        name.write_bytes(b"".join(parts))
        return name
