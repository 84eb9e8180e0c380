"""Tests of reading/arrow/encode.py. Both ways with the Python clients: the same records out of a broker's files, and
each other's batches.
"""

import hashlib
from random import Random

import pytest
from aiokafka.record import MemoryRecords as AioRecords
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AioBuilder
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder as AioLegacyBuilder
from helpers.hostile_logs import records_of
from kafka.record import MemoryRecords as PythonRecords
from kafka.record.default_records import DefaultRecordBatchBuilder as PythonBuilder
from kafka.record.legacy_records import LegacyRecordBatchBuilder as PythonLegacyBuilder
from reference.batch import Record

import pylogseg
from pylogseg.errors import Ending, Verdict
from pylogseg.format.batches import scan
from pylogseg.format.codecs import CODEC_NAMES
from pylogseg.format.names import parse_file_name
from pylogseg.format.records import decode
from pylogseg.reading.arrow.encode import encode

READERS = {"aiokafka": AioRecords, "kafka-python": PythonRecords}
BUILDERS = {"aiokafka": (AioBuilder, AioLegacyBuilder), "kafka-python": (PythonBuilder, PythonLegacyBuilder)}
PRODUCERS = [
    {},
    {"producer_id": 1 << 40, "producer_epoch": 3, "base_sequence": 17},
    {"producer_id": 5, "producer_epoch": 32767, "base_sequence": 2**31 - 1, "transactional": True},
]
#: aiokafka refuses lz4 in magic 0, which has a wrong checksum in its header (KAFKA-3160); nothing has zstd below 2.
PAIRS = [
    (client, magic, codec)
    for client in READERS
    for magic in (0, 1, 2)
    for codec in CODEC_NAMES
    if not (magic < 2 and codec == "zstd") and (client, magic, codec) != ("aiokafka", 0, "lz4")
]


def ours(data):
    """Records of a whole file of good batches, as the slow reader's."""
    found = scan(data)
    assert found.ending is Ending.COMPLETE
    assert (found.batches.verdict == Verdict.GOOD).all()
    columns, damage = decode(found.batches, data)
    assert not damage
    return records_of(columns)


def theirs(reader, data):
    """Records as a client's reader gives them."""
    batches, out = reader(data), []
    while batches.has_next():
        batch = batches.next_batch()
        assert batch.validate_crc()
        for record in batch:
            timestamp = -1 if record.timestamp is None else record.timestamp
            headers = tuple((name.encode(), value) for name, value in record.headers or ())
            out.append(Record(record.offset, timestamp, record.key, record.value, headers))
    return out


def clients_can_read(data):
    """Whether a file is whole, and has no header name that is not UTF-8, which both clients refuse."""
    found = scan(data)
    if found.ending is not Ending.COMPLETE or not len(found.batches) or (found.batches.verdict != Verdict.GOOD).any():
        return False
    try:
        return all(name.decode("utf-8") is not None for record in ours(data) for name, _ in record.headers)
    except UnicodeDecodeError:
        return False


@pytest.fixture(scope="module")
def files(golden):
    """Every distinct whole log and snapshot of the golden folders, but for the large ones."""
    found = {}
    for path in sorted(golden.rglob("*")):
        if path.is_file() and parse_file_name(path.name).kind.holds_batches and path.stat().st_size < 200_000:
            data = path.read_bytes()
            found.setdefault(hashlib.sha256(data).digest(), (path, data))
    return [(path, data) for path, data in found.values() if clients_can_read(data)]


@pytest.mark.parametrize("client", READERS)
def test_a_brokers_files(files, client):
    codecs, magics = set(), set()
    for path, data in files:
        table = scan(data).batches
        if client == "aiokafka":
            table = table[(table.magic > 0) | (table.codec != CODEC_NAMES.index("lz4"))]
        # Batch by batch: behind one of magic 0, aiokafka takes relative offsets for absolute ones.
        for position, size in zip(table.position.tolist(), table.size.tolist(), strict=True):
            batch = data[position : position + size]
            assert theirs(READERS[client], batch) == ours(batch), (path, position)
        codecs |= set(table.codec.tolist())
        magics |= set(table.magic.tolist())
    assert len(files) > 300
    assert codecs == set(range(5))
    assert magics == {0, 1, 2}


def some_records(rng, magic, count):
    """Records that follow one another."""

    def payload():
        return None if rng.random() < 0.2 else rng.choice((b"", b"abc" * rng.randrange(60), rng.randbytes(20)))

    start = rng.choice((0, 1_700_000_000_000))
    return [
        Record(
            i,
            -1 if magic == 0 else start + rng.randrange(100_000),
            payload(),
            payload(),
            tuple((b"h%d" % k, rng.choice((None, b"", b"x"))) for k in range(rng.choice((0, 0, 1, 3)))) * (magic == 2),
        )
        for i in range(count)
    ]


def as_mappings(records):
    return [
        {**record._asdict(), "headers": [(name.decode(), value) for name, value in record.headers]}
        for record in records
    ]


@pytest.mark.parametrize(("client", "magic", "codec"), PAIRS)
def test_what_we_encode_they_read(client, magic, codec):
    rng = Random(magic)
    for count in (1, 7, 300):
        for producer in PRODUCERS if magic == 2 else [{}]:
            records = some_records(rng, magic, count)
            data = bytes(encode(as_mappings(records), magic=magic, compression=codec, batch_bytes=4000, **producer))
            assert ours(data) == records
            assert theirs(READERS[client], data) == records
            if magic == 2:
                first = READERS[client](data).next_batch()
                assert first.producer_id == producer.get("producer_id", -1)
                assert first.is_transactional == producer.get("transactional", False)


@pytest.mark.parametrize(("client", "magic", "codec"), PAIRS)
def test_what_they_encode_we_read(client, magic, codec):
    rng = Random(magic + 10)
    number = CODEC_NAMES.index(codec)
    modern, legacy = BUILDERS[client]
    for count in (1, 7, 300):
        for producer in PRODUCERS if magic == 2 else [{}]:
            records = some_records(rng, magic, count)
            options = {"magic": magic, "compression_type": number, "batch_size": 1 << 20}
            if magic == 2:
                options |= {name: producer.get(name, -1) for name in ("producer_id", "producer_epoch", "base_sequence")}
                options["is_transactional"] = int(producer.get("transactional", False))
            builder = (modern if magic == 2 else legacy)(**options)
            for record in as_mappings(records):
                moment = None if magic == 0 else record["timestamp"]
                built = (record["offset"], moment, record["key"], record["value"])
                assert builder.append(*built, record["headers"]) if magic == 2 else builder.append(*built)
            data = bytes(builder.build())
            assert ours(data) == records
            table = scan(data).batches
            # kafka-python leaves a batch as it is that does not become smaller.
            assert set(table.codec.tolist()) == {number} or (client == "kafka-python" and count < 300)
            if magic == 2:
                assert table.producer_id.tolist() == [producer.get("producer_id", -1)]
                assert table.producer_epoch.tolist() == [producer.get("producer_epoch", -1)]
                assert table.base_sequence.tolist() == [producer.get("base_sequence", -1)]
                assert table.is_transactional.tolist() == [producer.get("transactional", False)]


@pytest.mark.kafka
def test_what_the_clients_encode_is_to_kafka_what_it_is_to_us(kafka, tmp_path):
    """One more reader of the same batches, so that a shared mistake does not pass."""
    rng, paths = Random(3), []
    for client, (modern, _) in BUILDERS.items():
        for number, codec in enumerate(CODEC_NAMES):
            builder = modern(2, number, 1, 9, 1, 0, 1 << 20)
            for record in as_mappings(some_records(rng, 2, 50)):
                builder.append(record["offset"], record["timestamp"], record["key"], record["value"], record["headers"])
            paths.append(tmp_path / f"{client}-{codec}.log")
            paths[-1].write_bytes(bytes(builder.build()))
    rows = [row for row in kafka.decode(*paths) if "records" in row]
    assert len(rows) == len(paths)
    for path, row in zip(paths, rows, strict=True):
        assert row["valid"]
        assert [(r.offset, r.timestamp, r.key, r.value) for r in ours(path.read_bytes())] == [
            (
                record["offset"],
                record["timestamp"],
                *(None if record[name] is None else bytes.fromhex(record[name]) for name in ("key", "value")),
            )
            for record in row["records"]
        ]


@pytest.mark.parametrize("client", READERS)
def test_segments_of_ours(client, tmp_path):
    rng = Random(7)
    with pylogseg.open_log(tmp_path / "orders-0", segment_bytes=20_000) as log:
        for codec in CODEC_NAMES * 8:
            log.append(as_mappings(some_records(rng, 2, rng.randrange(1, 60))), compression=codec)
    segments = sorted((tmp_path / "orders-0").glob("*.log"))
    assert len(segments) > 3
    offset, codecs = 0, set()
    for path in segments:
        records = theirs(READERS[client], path.read_bytes())
        assert records == ours(path.read_bytes())
        assert [record.offset for record in records] == list(range(offset, offset + len(records)))
        offset += len(records)
        codecs |= set(scan(path.read_bytes()).batches.codec.tolist())
    assert codecs == set(range(5))
