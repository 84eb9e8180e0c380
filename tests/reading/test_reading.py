"""Tests of env/remote.py and reading/log_reader.py. Reading whole directories: what Kafka's consumer reads, and what
Kafka's own reader says of every file.
"""

import base64
import gzip
import hashlib
import json
import shutil
import threading
import time
from collections import defaultdict

import pytest
from helpers.depth import diagonals
from helpers.golden_brokers import BROKERS
from reference.kafka_rows import short

import pylogseg
from pylogseg import _codec
from pylogseg.format.names import parse_file_name

TYPES = {"NoTimestampType": -1, "CreateTime": 0, "LogAppendTime": 1}


def payload(data):
    """As in expected.jsonl.gz: base64, or length and hash where it is long."""
    if data is None:
        return None
    if len(data) > 200:
        return {"len": len(data), "sha1": hashlib.sha1(data).hexdigest()}
    return base64.b64encode(data).decode()


def as_expected(record):
    return {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "timestampType": record.timestamp_type,
        "key": payload(record.key),
        "value": payload(record.value),
        "headers": [[name, payload(value)] for name, value in record.headers],
    }


def expectations(folder):
    """Rows of a consumer, by partition."""
    rows = defaultdict(list)
    with gzip.open(folder / "expected.jsonl.gz", "rt", encoding="utf-8") as lines:
        for row in map(json.loads, lines):
            rows[row.pop("topic"), row.pop("partition")].append(row)
    return rows


def simplified(row):
    headers = [list(pair.values()) if isinstance(pair, dict) else list(pair) for pair in row["headers"]]
    names = ("offset", "timestamp", "key", "value")
    return {**{name: row[name] for name in names}, "timestampType": TYPES[row["timestampType"]], "headers": headers}


@pytest.mark.parametrize(("name", "isolation_level"), diagonals(BROKERS, ["read_uncommitted", "read_committed"], 2))
def test_as_kafkas_consumer(golden, name, isolation_level):
    folder = golden / name
    expected = expectations(folder)
    disk = pylogseg.open_dir(sorted(folder.glob("data[01]")))
    found = defaultdict(list)
    # Some of the crashed broker's logs end torn; that is news, and its consumer read up to there.
    for record in pylogseg.read(disk, isolation_level=isolation_level):
        if record.topic != "__cluster_metadata":  # no consumer reads it
            found[record.topic, record.partition].append(as_expected(record))
    committed = isolation_level == "read_committed"
    wanted = {
        partition: [simplified(row) for row in rows if row["committed"] or not committed]
        for partition, rows in expected.items()
    }
    wanted = {partition: rows for partition, rows in wanted.items() if rows}
    assert found.keys() == wanted.keys()
    for partition, rows in wanted.items():
        assert found[partition] == rows, partition


def decoded_row(record):
    return {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": short(record.key),
        "value": short(record.value),
        "headers": [[name, None if value is None else value.hex()] for name, value in record.headers],
    }


def test_every_golden_log_as_kafkas_reader(golden, decoded):
    """Batches, records and where they end, file by file, control records among them."""
    count = 0
    for path in sorted(golden.rglob("*")):
        if not path.is_file() or not parse_file_name(path.name).kind.holds_batches:
            continue
        try:
            kafka = decoded(path)
        except KeyError:
            continue
        count += 1
        reader = pylogseg.read(path, control=True, on_corrupt="stop", from_log_start=False)
        found = [decoded_row(record) for record in reader]
        wanted, broken = [], False
        for batch in kafka["batches"]:
            # Kafka's reader of files takes any magic above 2 for 2, and its consumers fail on it; here it is damage.
            if not batch["valid"] or batch["magic"] > 2:
                broken = True
                break
            wanted += batch["records"]
        names = ("offset", "timestamp", "key", "value", "headers")
        base = (parse_file_name(path.name).offset or 0) if path.suffix == ".log" else 0
        if wanted and wanted[0]["offset"] < base:  # misnamed
            assert (found, len(reader.gaps)) == ([], 1), path
            continue
        offsets = [row["offset"] for row in wanted]
        repeated = next((i for i in range(1, len(offsets)) if offsets[i] <= offsets[i - 1]), None)
        if repeated is not None:  # as a consumer, which has had these
            assert ([row["offset"] for row in found], len(reader.gaps)) == (offsets[:repeated], 1), path
            continue
        assert found == [{name: row[name] for name in names} for row in wanted], path
        assert broken <= any(gap.is_damage for gap in reader.gaps), path
        if not broken and "error" not in kafka["end"] and not kafka["end"].get("trailing_bytes"):
            assert not reader.gaps, path
    assert count > 500


def test_listing_while_a_segment_replaces_others(examples, tmp_path):
    """Between two renames neither the new segment nor the old ones have their names: a reader waits for them."""
    folder = shutil.copytree(examples / "codec-none-1", tmp_path / "codec-none-1")
    path, deleted, swap = (folder / f"{0:020}.log{suffix}" for suffix in ("", ".deleted", ".swap"))
    expected = len(list(pylogseg.read(folder)))
    done = threading.Event()

    def replace():
        while not done.is_set():
            shutil.copyfile(path, swap)
            path.rename(deleted)
            time.sleep(0.02)
            swap.rename(path)
            time.sleep(0.005)

    writer = threading.Thread(target=replace)
    writer.start()
    try:
        found = [pylogseg.open_dir(folder).partitions[0].segments for _ in range(30)]
    finally:
        done.set()
        writer.join()
    assert all(segments and segments[0].base_offset == 0 for segments in found)
    assert len(list(pylogseg.read(folder))) == expected


def test_a_range_holds_where_offsets_go_down(tmp_path):
    """A batch whose header says that it ends late, behind one of higher offsets: it has none in the range."""
    late = bytearray(pylogseg.encode([(1, b"k", b"%d" % i) for i in range(3)], base_offset=10))
    late[23:27] = (5000).to_bytes(4, "big")
    late[17:21] = _codec.crc32c(late[21:]).to_bytes(4, "big")
    first = pylogseg.encode([(1, b"k", b"v")], base_offset=1000)
    (tmp_path / "00000000000000000000.log").write_bytes(first + late)
    for scratch in (False, True):
        read = pylogseg.read(tmp_path, offset=(900, None), on_corrupt="skip", reuse_buffers=scratch)
        assert [offset for chunk in read.chunks() for offset in chunk.columns.offset.tolist()] == []
    damaged = pylogseg.read(tmp_path, on_corrupt="skip")
    assert [record.offset for record in damaged] == [10, 11, 12]
    assert damaged.gaps
