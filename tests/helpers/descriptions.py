"""Record batches from their descriptions in the operation language of `tests/kafka/README.md`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pylogseg.errors import RequestError
from pylogseg.format.control_batches import marker_batch
from pylogseg.reading.arrow.encode import encode

#: The fields of each operation, of batches and of records: the oracle reads the same file.
FIELDS: dict[str, list[str]] = json.loads(
    (Path(__file__).parents[1] / "kafka" / "operations.json").read_text(encoding="utf-8")
)


def check_fields(item: Mapping[str, Any], *kinds: str) -> None:
    """Refuse a field that no reader has: an item with a misspelt one would be taken as if it were not there.

    Raises
    ------
    LookupError
        For an unknown field, or a kind that `operations.json` does not have.
    """
    unknown = set(item).difference(*(FIELDS[kind] for kind in kinds))
    if unknown:
        raise LookupError(f"unknown field {min(unknown)!r} of {kinds[0]}: operations.json has all")


def check_batch(spec: Mapping[str, Any]) -> None:
    """Refuse an unknown field of a description, or of one of its records; LookupError names it."""
    check_fields(spec, "every batch")
    for record in spec.get("records", []):
        check_fields(record, "every record")


def described(batches: Iterable[dict[str, Any]]) -> bytes:
    """The bytes of all descriptions, one behind the other.

    Raises
    ------
    RequestError
        For what no encoder writes, and for control records other than markers.
    """
    return b"".join(bytes(_batch(spec)) for spec in batches)


def _batch(spec: dict[str, Any]) -> bytes | bytearray:
    check_batch(spec)
    if "hex" in spec:
        return _placed(bytearray.fromhex(spec["hex"]), spec)
    base, epoch = spec.get("base_offset", 0), spec.get("leader_epoch", -1)
    if "control" in spec:
        if spec["control"] not in ("commit", "abort"):
            raise RequestError(f"control record {spec['control']!r} has no description here")
        return marker_batch(
            spec["control"],
            base_offset=base,
            timestamp_ms=spec.get("timestamp", 0),
            producer_id=spec["producer_id"],
            producer_epoch=spec["producer_epoch"],
            coordinator_epoch=spec.get("coordinator_epoch", 0),
            leader_epoch=epoch,
        )
    magic, records, offset = spec.get("magic", 2), [], base
    for record in spec["records"]:
        offset = record.get("offset", offset)
        headers = [(name, _payload(value)) for name, value in record.get("headers", [])]
        timestamp = record.get("timestamp", 0) if magic else -1
        key, value = _payload(record.get("key")), _payload(record.get("value"))
        records.append({"offset": offset, "timestamp": timestamp, "key": key, "value": value, "headers": headers})
        offset += 1
    append = magic > 0 and spec.get("timestamp_type") == "append"
    return encode(
        records,
        magic=magic,
        compression=spec.get("compression", "none"),
        level=spec.get("level"),
        batch_bytes=2**31 - 1,
        leader_epoch=epoch if magic == 2 else -1,
        timestamp_type="append" if append else "create",
        append_time_ms=spec.get("log_append_time", -1) if append else None,
        producer_id=spec.get("producer_id", -1),
        producer_epoch=spec.get("producer_epoch", -1),
        base_sequence=spec.get("base_sequence", -1),
        transactional=spec.get("transactional", False),
    )


def _placed(data: bytearray, spec: dict[str, Any]) -> bytearray:
    """Put in what a check sum does not cover."""
    for name, at, size in (("base_offset", 0, 8), ("leader_epoch", 12, 4)):
        if name in spec:
            data[at : at + size] = spec[name].to_bytes(size, "big", signed=True)
    return data


def _payload(text: str | None) -> bytes | None:
    if text is None:
        return None
    return bytes.fromhex(text[4:]) if text.startswith("hex:") else text.encode()
