"""Batches as the rows that a real Kafka's reading of them is kept in."""

from __future__ import annotations

import hashlib
from typing import Any

from reference.batch import Batch, InvalidRecords, records

TYPE_NAMES = {-1: "NoTimestampType", 0: "CreateTime", 1: "LogAppendTime"}


def short(data: bytes | None) -> Any:
    """Return bytes as `golden/decode.py` writes them."""
    if data is None or len(data) <= 256:
        return None if data is None else data.hex()
    return {"size": len(data), "sha1": hashlib.sha1(data).hexdigest()}


def as_kafka(batch: Batch) -> dict[str, Any]:
    """Return the row that ``kafka.sh decode`` prints of a batch."""
    same = ("position", "size", "magic", "base_offset", "last_offset", "max_timestamp", "producer_id", "producer_epoch")
    row = {name: getattr(batch, name) for name in (*same, "base_sequence", "leader_epoch", "crc", "valid")}
    row |= {"compression": batch.codec, "timestamp_type": TYPE_NAMES[batch.timestamp_type]}
    row |= {"transactional": batch.is_transactional, "control": batch.is_control}
    if batch.delete_horizon is not None:
        row["delete_horizon"] = batch.delete_horizon
    row["records"] = []
    try:
        for record in records(batch):
            headers = [[name.decode(), None if value is None else value.hex()] for name, value in record.headers]
            key, value = short(record.key), short(record.value)
            row["records"].append(
                {"offset": record.offset, "timestamp": record.timestamp, "key": key, "value": value, "headers": headers}
            )
    except InvalidRecords:
        row["error"] = True
    row["count"] = len(row["records"])
    return row
