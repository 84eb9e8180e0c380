"""Segments in remote storage, from ``__remote_log_metadata``: their list, and the state of each (KIP-405)."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from pylogseg.disk.disk import Disk
from pylogseg.errors import CorruptionError
from pylogseg.format.messages.framing import decode_framed
from pylogseg.reading.state import LENIENT
from pylogseg.values.internal.cut_off import CutOff
from pylogseg.values.internal.keyed_log import KeyedLog, newest_replicas
from pylogseg.values.internal.notes import Notes
from pylogseg.values.internal.offsets import utc
from pylogseg.values.internal.state_columns import REMOTE_SEGMENTS, state_table

TOPIC = "__remote_log_metadata"
STATES = ("COPY_SEGMENT_STARTED", "COPY_SEGMENT_FINISHED", "DELETE_SEGMENT_STARTED", "DELETE_SEGMENT_FINISHED")
_GONE = 3
#: States that may follow a state; the same one may always.
_FOLLOWS = {0: (1, 2), 1: (2,), 2: (3,)}
_PARTITION_DELETED = 2
_Row = dict[str, Any]


class _Segments:
    """The state of remote segments after the records that were applied."""

    def __init__(self) -> None:
        self.by_id: dict[str, _Row] = {}

    def apply(self, name: str, fields: _Row) -> None:
        """Apply a record; an invalid transition is ignored, as by the broker."""
        if name == "RemotePartitionDeleteMetadataRecord":
            if fields["remotePartitionDeleteState"] == _PARTITION_DELETED:
                at = fields["topicIdPartition"]["id"], fields["topicIdPartition"]["partition"]
                self.by_id = {key: row for key, row in self.by_id.items() if (row["topicId"], row["partition"]) != at}
            return
        segment = fields["remoteLogSegmentId"]
        state, previous = fields["remoteLogSegmentState"], self.by_id.get(segment["id"])
        if name == "RemoteLogSegmentMetadataRecord" and state == 0:
            self.by_id[segment["id"]] = _row(segment, fields)
        elif previous is not None and (state == previous["number"] or state in _FOLLOWS[previous["number"]]):
            previous |= {"number": state, "eventTime": utc(fields["eventTimestampMs"]), "brokerId": fields["brokerId"]}
            if fields["customMetadata"] is not None:
                previous["customMetadata"] = fields["customMetadata"]
            if state == _GONE:
                del self.by_id[segment["id"]]


def _row(segment: _Row, fields: _Row) -> _Row:
    at = segment["topicIdPartition"]
    return {
        "topic": at["name"],
        "partition": at["partition"],
        "startOffset": fields["startOffset"],
        "endOffset": fields["endOffset"],
        "number": fields["remoteLogSegmentState"],
        "size": fields["segmentSizeInBytes"],
        "maxTimestamp": utc(fields["maxTimestampMs"]),
        "eventTime": utc(fields["eventTimestampMs"]),
        "brokerId": fields["brokerId"],
        "leaderEpochs": fields["segmentLeaderEpochs"],
        "customMetadata": fields["customMetadata"],
        "isTxnIndexEmpty": fields["txnIndexEmpty"],
        "topicId": at["id"],
        "segmentId": segment["id"],
    }


def remote_table(disk: Disk, cut_off: CutOff, notes: Notes) -> pa.Table:
    """Return a row for each remote segment that is not deleted; both offsets are in the segment."""
    segments = _Segments()
    for log in newest_replicas(disk, TOPIC, notes):
        keyed, state = KeyedLog(log, cut_off, notes), LENIENT.start()
        unknown = 0
        for columns, segment in keyed.read(state):
            for i, offset in enumerate(columns.offset.tolist()):
                try:
                    part = decode_framed(TOPIC, columns.value(i) or b"", segment.path, offset)
                except CorruptionError as error:
                    notes.add_damage(f"{segment.path}: offset {offset}: {error.reason}")
                    continue
                if part.message is None or part.fields is None:
                    unknown += 1
                elif part.message.name != "RemoteLogSegmentMetadataSnapshotRecord":
                    segments.apply(part.message.name, part.fields)
        if unknown:
            notes.append(f"{log.name}: records of unknown types or versions were left out ({unknown})")
        keyed.note_gaps(state)
    rows = [row | {"state": STATES[row["number"]]} for row in segments.by_id.values()]
    rows.sort(key=lambda row: (row["topic"], row["partition"], row["startOffset"], row["segmentId"]))
    return state_table(rows, REMOTE_SEGMENTS)
