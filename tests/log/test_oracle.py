"""Tests of format/layout.py. A real Kafka reads what the reference builds, and the other way round."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from helpers.checks import some
from helpers.golden import Decoded
from helpers.kafka_storage import Kafka
from reference import build, control
from reference.batch import Record, batches, records
from reference.compression import CODECS
from reference.kafka_rows import as_kafka, short

NOW = 1_700_000_000_000
ROWS = [
    Record(7, NOW, b"k", b"v", ((b"name", b"value"), ("é".encode(), None), (b"", b""))),
    Record(8, NOW - 70_000, None, b""),
    Record(9, NOW + 9, b"", None),
    Record(19, NOW + 5, b"\x00\xff\x80", bytes(range(256)) * 400),
]
#: The fields of a batch description that are not about its records.
FIELDS: list[dict[str, Any]] = [
    {},
    {"leader_epoch": 7, "producer_id": 9, "producer_epoch": 1, "base_sequence": 3},
    {"leader_epoch": 2**31 - 1, "producer_id": 2**63 - 1, "producer_epoch": 2**15 - 1, "base_sequence": 2**31 - 1},
    {"producer_id": 9, "producer_epoch": 1, "base_sequence": 3, "transactional": True},
]
FORMS = [(magic, codec) for magic in (0, 1, 2) for codec in CODECS if not (magic < 2 and codec == "zstd")]


def text(data: bytes | None) -> str | None:
    return None if data is None else f"hex:{data.hex()}"


def described(rows: list[Record], **fields: Any) -> dict[str, Any]:
    """Return the description of a batch that `kafka.encode` takes."""
    plain = [
        {
            "offset": row.offset,
            "timestamp": row.timestamp,
            "key": text(row.key),
            "value": text(row.value),
            "headers": [[name.decode(), text(value)] for name, value in row.headers],
        }
        for row in rows
    ]
    return {"base_offset": rows[0].offset, "records": plain, **fields}


def bare(row: Record, magic: int) -> Record:
    """Return a record without what its magic cannot hold."""
    return row if magic == 2 else row._replace(headers=(), timestamp=row.timestamp if magic else -1)


def test_kafka_builds_the_same_bytes(kafka: Kafka) -> None:
    legacy = [[bare(row, magic) for row in ROWS] for magic in (0, 1)]
    specs = [described(rows, magic=magic) for magic, rows in enumerate(legacy)]
    expected = [build.legacy(rows, magic) for magic, rows in enumerate(legacy)]
    specs += [described(ROWS, **fields) for fields in FIELDS]
    expected += [build.batch_v2(ROWS, **fields) for fields in FIELDS]
    markers = {"producer_id": 9, "producer_epoch": 1, "coordinator_epoch": 3, "timestamp": 6, "leader_epoch": 7}
    for commit in (True, False):
        specs.append({"control": "commit" if commit else "abort", "base_offset": 12, **markers})
        expected.append(build.end_marker(12, commit=commit, **markers))
    for spec, own, other in zip(specs, expected, kafka.encode(specs), strict=True):
        assert own.hex() == other.hex(), spec


def test_reference_reads_what_kafka_compresses(kafka: Kafka) -> None:
    rows = {magic: [bare(row, magic) for row in ROWS] for magic in (0, 1, 2)}
    specs = [described(rows[magic], magic=magic, compression=codec) for magic, codec in FORMS]
    for (magic, codec), data in zip(FORMS, kafka.encode(specs), strict=True):
        back = list(batches(data))
        assert {(batch.valid, batch.magic, batch.codec) for batch in back} == {(True, magic, codec)}
        assert [record for batch in back for record in records(batch)] == rows[magic]


def test_kafka_reads_what_the_reference_builds(kafka: Kafka, tmp_path: Path) -> None:
    rows = {magic: [bare(row, magic) for row in ROWS] for magic in (0, 1, 2)}
    built = [
        *(build.legacy(rows[magic], magic, codec=codec) for magic, codec in FORMS if magic < 2),
        *(build.legacy(rows[1], 1, codec=codec, log_append_time=NOW) for codec in ("none", "lz4")),
        *(build.batch_v2(ROWS, codec=codec, **fields) for codec in CODECS for fields in FIELDS),
        *(build.batch_v2(ROWS, codec=codec, log_append_time=NOW + 50) for codec in CODECS),
        build.batch_v2(ROWS, delete_horizon=NOW + 1_000_000),
        build.batch_v2([], base_offset=30, last_offset=40, max_timestamp=NOW, producer_id=4, base_sequence=5),
        build.end_marker(50, commit=True, producer_id=9, producer_epoch=1),
    ]
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(b"".join(built))
    own = [as_kafka(batch) for batch in batches(path.read_bytes())]
    *other, end = kafka.decode(path)
    for row in other:
        del row["file"]
        for record in row["records"]:
            for part in ("key", "value"):
                record[part] = None if record[part] is None else short(bytes.fromhex(record[part]))
    assert own == other
    assert end["trailing_bytes"] == 0


def test_reference_reads_kraft_messages(kafka: Kafka) -> None:
    kinds: dict[str, dict[str, Any]] = {
        "leader_change": {"leader_id": 1},
        "snapshot_header": {"last_contained_log_timestamp": 0},
        "snapshot_footer": {},
        "kraft_version": {"kraft_version": 1},
        "kraft_voters": {},
    }
    messages = {}
    built = kafka.encode({"control": kind, "leader_epoch": 3} for kind in kinds)
    for (kind, fields), data in zip(kinds.items(), built, strict=True):
        ((record,),) = map(records, batches(data))
        assert control.control_type(record.key) == kind.upper()
        messages[kind] = control.message(kind.upper(), record.value or b"")
        assert messages[kind].items() >= {"version": 0, **fields}.items()
    (voter,) = messages["kraft_voters"]["voters"]
    assert voter["endpoints"] == [{"name": "CONTROLLER", "host": "localhost", "port": 9093}]


def test_stored_reading_is_kafkas(kafka: Kafka, examples: Path, decoded: Decoded) -> None:
    paths = some(sorted((examples / "txn-a-0").glob("*.log")))
    rows = iter(kafka.decode(*paths))
    for path in paths:
        stored = decoded(path)
        for batch in stored["batches"]:
            row = next(rows)
            assert row.pop("file") == path.name
            assert row == batch
        assert next(rows) == {"file": path.name, **stored["end"]}
