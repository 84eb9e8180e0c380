"""Tests of format/codecs.py and format/control_batches.py. What we encode against a real Kafka: its bytes where there
is no codec, its reader for every codec.
"""

from __future__ import annotations

import random

import pytest

from pylogseg.format.codecs import CODEC_NAMES
from pylogseg.format.control import ControlKind
from pylogseg.format.control_batches import control_batch, marker_batch
from pylogseg.format.messages.control import encode_control
from pylogseg.reading.arrow.encode import encode

LEGACY_CODECS = ("none", "gzip", "snappy", "lz4")


def hexed(data: bytes | None) -> str | None:
    return None if data is None else "hex:" + data.hex()


def random_spec(
    rng: random.Random, magic: int, codec: str
) -> tuple[dict[str, object], list[dict[str, object]], dict[str, object]]:
    """A batch in the oracle's words, and the same as records and options of ours."""

    def payload() -> bytes | None:
        return None if rng.random() < 0.2 else rng.randbytes(rng.choice((0, 1, 10, 63, 64, 200)))

    base, now = rng.choice((0, 1, 1000, 2**40)), rng.choice((0, 1_700_000_000_000))
    records, offset = [], base
    for _ in range(rng.randint(1, 12)):
        headers = [(f"h{rng.randint(0, 9)}", payload()) for _ in range(rng.choice((0, 0, 1, 3)))] if magic == 2 else []
        timestamp = rng.choice((-1, now, now + rng.randint(0, 300_000)))
        records.append(
            {"offset": offset, "timestamp": timestamp, "key": payload(), "value": payload(), "headers": headers}
        )
        offset += rng.choice((1, 1, 2, 70, 9000))
    options: dict[str, object] = {"magic": magic, "compression": codec}
    spec: dict[str, object] = {**options, "base_offset": base}
    if magic == 2 and rng.random() < 0.5:
        producer = {
            "producer_id": rng.randint(0, 2**62),
            "producer_epoch": rng.randint(0, 9),
            "base_sequence": rng.randint(0, 99),
        }
        options |= producer | {"transactional": rng.random() < 0.5, "leader_epoch": rng.randint(0, 5)}
        spec |= options
    if magic and rng.random() < 0.3:
        options |= {"timestamp_type": "append", "append_time_ms": now + 5}
        spec |= {"timestamp_type": "append", "log_append_time": now + 5}
    spec["records"] = [
        record
        | {
            "key": hexed(record["key"]),
            "value": hexed(record["value"]),
            "headers": [(k, hexed(v)) for k, v in record["headers"]],
        }
        for record in records
    ]
    return spec, records, options


@pytest.mark.kafka
def test_uncompressed_batches_have_kafkas_bytes(kafka) -> None:
    rng = random.Random(20)
    cases = [random_spec(rng, magic, "none") for magic in (0, 1, 2, 2) for _ in range(100)]
    for (spec, records, options), expected in zip(cases, kafka.encode(spec for spec, _, _ in cases), strict=True):
        assert encode(records, batch_bytes=1 << 30, **options).hex() == expected.hex(), spec


@pytest.mark.kafka
def test_control_batches_have_kafkas_bytes(kafka) -> None:
    common = {"base_offset": 12, "timestamp": 6, "leader_epoch": 7}
    marker = {"producer_id": 9, "producer_epoch": 1, "coordinator_epoch": 3}
    specs = [{"control": kind, **common, **marker} for kind in ("commit", "abort")]
    specs += [
        {"control": kind, **common}
        for kind in ("leader_change", "snapshot_header", "snapshot_footer", "kraft_version", "kraft_voters")
    ]
    endpoint = {"name": "CONTROLLER", "host": "localhost", "port": 9093}
    voter = {
        "voterId": 1,
        "voterDirectoryId": "AAAAAAAAAAEAAAAAAAAAAg",
        "endpoints": [endpoint],
        "kRaftVersionFeature": {"minSupportedVersion": 0, "maxSupportedVersion": 1},
    }
    fields = {
        ControlKind.LEADER_CHANGE: {"leaderId": 1, "voters": [{"voterId": 1}, {"voterId": 2}], "grantingVoters": []},
        ControlKind.SNAPSHOT_HEADER: {"lastContainedLogTimestamp": 0},
        ControlKind.SNAPSHOT_FOOTER: {},
        ControlKind.KRAFT_VERSION: {"kRaftVersion": 1},
        ControlKind.KRAFT_VOTERS: {"voters": [voter]},
    }
    place = {"base_offset": 12, "timestamp_ms": 6, "leader_epoch": 7}
    ours = [marker_batch(kind, **place, **marker) for kind in ("commit", "abort")]
    ours += [control_batch(*encode_control(kind, values), **place) for kind, values in fields.items()]
    for spec, expected, got in zip(specs, kafka.encode(specs), ours, strict=True):
        assert got.hex() == expected.hex(), spec


@pytest.mark.kafka
def test_kafka_reads_every_codec_and_magic(kafka, tmp_path) -> None:
    rng, written = random.Random(21), []
    for magic in (0, 1, 2):
        for codec in CODEC_NAMES if magic == 2 else LEGACY_CODECS:
            expected, data = [], bytearray()
            for _ in range(20):
                _, records, options = random_spec(rng, magic, codec)
                expected.append((records, options))
                data += encode(records, batch_bytes=1 << 30, **options)
            path = tmp_path / f"{magic}-{codec}" / "00000000000000000000.log"
            path.parent.mkdir()
            path.write_bytes(data)
            written.append((path, expected, magic))
    rows = kafka.decode(*(path for path, _, _ in written))  # one start of Kafka for all
    ends = [i + 1 for i, row in enumerate(rows) if "trailing_bytes" in row]
    for begin, end, (_, expected, magic) in zip([0, *ends], ends, written, strict=False):
        check_reading(rows[begin:end], expected, magic)
    assert len(ends) == len(written)


def check_reading(
    rows: list[dict[str, object]], expected: list[tuple[list[dict[str, object]], dict[str, object]]], magic: int
) -> None:
    *batches, end = rows
    assert end.get("trailing_bytes") == 0, end
    assert all(batch["valid"] and "error" not in batch for batch in batches)
    got = [record for batch in batches for record in batch["records"]]
    wanted = []
    for records, options in expected:
        for record in records:
            timestamp = -1 if magic == 0 else options.get("append_time_ms", record["timestamp"])
            headers = [[name, None if value is None else value.hex()] for name, value in record["headers"]]
            wanted.append({"offset": record["offset"], "timestamp": timestamp, "headers": headers})
            wanted[-1] |= {part: None if record[part] is None else record[part].hex() for part in ("key", "value")}
    assert got == wanted
