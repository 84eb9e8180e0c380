"""Tests of server/skipping.py. Damage that is left out: clients get what `pylogseg cat --on-corrupt skip` prints, to
the end.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import aiokafka
import pytest
from helpers.damaged_logs import change_byte, log_dir_of
from helpers.depth import some_of
from helpers.kafka_clients import PATIENCE_S, RawClient, Row, assigned, row_of
from helpers.shell import run

import pylogseg
from pylogseg.errors import RequestError

confluent_kafka = pytest.importorskip("confluent_kafka")

DATA = Path(__file__).resolve().parents[2] / "examples" / "data"


def ours(path: Path) -> list[Row]:
    return sorted((row_of(each) for each in pylogseg.read(path, on_corrupt="skip")), key=lambda row: row[:3])


def build(folder: Path, seed: int) -> None:
    """A log of one to many segments, in all codecs; closed cleanly or not."""
    drawn = random.Random(seed)
    with pylogseg.open_log(folder / "t-0", segment_bytes=drawn.choice([4000, 20_000, 1 << 20])) as log:
        number = 0
        while number < 400:
            count = drawn.randrange(1, 12)
            records = [(None, b"k%d" % (number + i), b"v%d" % i * drawn.randrange(1, 20)) for i in range(count)]
            log.append(records, compression=drawn.choice(["none", "gzip", "zstd", "lz4", "snappy"]))
            number += count
    if drawn.random() < 0.5:
        (folder / ".kafka_cleanshutdown").write_bytes(b'{"version":0,"brokerEpoch":7}')


def damage(folder: Path, seed: int) -> None:
    """Flip, zero, overwrite, cut out, put in, double, cut off."""
    drawn = random.Random(seed)
    logs = sorted((folder / "t-0").glob("*.log"))
    for _ in range(drawn.randrange(1, 5)):
        path = drawn.choice(logs)
        data = bytearray(path.read_bytes())
        if not data:
            continue
        kind, first = drawn.randrange(7), drawn.randrange(len(data))
        last = min(len(data), first + drawn.randrange(1, 3000))
        if kind == 0:
            data[first] ^= 1 << drawn.randrange(8)
        elif kind == 1:
            data[first:last] = bytes(last - first)
        elif kind == 2:
            data[first:last] = drawn.randbytes(last - first)
        elif kind == 3:
            del data[first:last]
        elif kind == 4:
            data[first:first] = drawn.randbytes(drawn.randrange(1, 200))
        elif kind == 5:
            data[first:first] = data[first:last]
        else:
            del data[first:]
        path.write_bytes(data)


@pytest.mark.parametrize("seed", some_of(range(12), 4))
def test_any_damage_is_stepped_over(tmp_path: Path, seed: int) -> None:
    build(tmp_path, seed)
    damage(tmp_path, seed)
    wanted = ours(tmp_path)
    assert wanted
    with pylogseg.serve(tmp_path, on_corrupt="skip") as server:
        assert assigned(server, "t") == wanted


def test_what_brokers_found_damaged(golden: Path, tmp_path: Path) -> None:
    """The golden cases, of all kinds of damage; an unfinished swap is none, and is completed as by a broker."""
    read = 0
    cases = sorted(path.name for path in (golden / "broker-4.3" / "damage").iterdir())
    for case in (each for each in cases if "swap" not in each):
        folder = log_dir_of(golden, case, tmp_path / case)
        try:
            wanted = ours(folder)
        except RequestError:  # there is no log
            continue
        with pylogseg.serve(folder, on_corrupt="skip") as server:
            if wanted:
                assert assigned(server, "damaged") == wanted, case
                read += 1
    assert read > 10


def damaged_file(folder: Path) -> Path:
    return max(folder.glob("*.log"), key=lambda path: path.stat().st_size)


@pytest.fixture
def flipped(tmp_path: Path) -> Path:
    """The example, with a byte changed inside of a batch in the middle of each of two logs."""
    folder = shutil.copytree(DATA, tmp_path / "data")
    for topic in ("codec-zstd", "codec-snappy"):
        change_byte(damaged_file(folder / f"{topic}-0"), bits=0xFF)
    return folder


@pytest.mark.parametrize("topic", ["codec-zstd", "codec-snappy"])
def test_three_clients_go_on_to_the_end(flipped: Path, topic: str) -> None:
    wanted = ours(flipped / f"{topic}-0")
    whole = len(list(pylogseg.read(DATA / f"{topic}-0")))
    assert 0 < len(wanted) < whole
    with pylogseg.serve(flipped, on_corrupt="skip") as server:
        assert assigned(server, topic) == wanted
        assert [each[:2] for each in by_librdkafka(server, topic)] == [(row[2], row[5]) for row in wanted]
        assert by_aiokafka(server, topic, len(wanted)) == [(row[2], row[5]) for row in wanted]
        assert server.left_out[0] == 1
    with pylogseg.serve(flipped) as server, pytest.raises(confluent_kafka.KafkaException):
        by_librdkafka(server, topic, **{"check.crcs": True})  # as from a broker


def by_librdkafka(server: pylogseg.Server, topic: str, **more: object) -> list[tuple[int, bytes | None]]:
    client = confluent_kafka.Consumer(
        {"bootstrap.servers": server.bootstrap_servers, "group.id": "g", "enable.partition.eof": True, "log_level": 0,
         **more}
    )  # fmt: skip
    client.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    rows: list[tuple[int, bytes | None]] = []
    until = time.monotonic() + PATIENCE_S
    try:
        while time.monotonic() < until:
            message = client.poll(0.2)
            if message is None:
                continue
            if message.error() is None:
                rows.append((message.offset(), message.value()))
            elif message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF:
                return rows
            else:
                raise confluent_kafka.KafkaException(message.error())
        raise AssertionError(f"no progress; {len(rows)} records")
    finally:
        client.close()


def by_aiokafka(server: pylogseg.Server, topic: str, count: int) -> list[tuple[int, bytes | None]]:
    async def read() -> list[tuple[int, bytes | None]]:
        client = aiokafka.AIOKafkaConsumer(bootstrap_servers=server.bootstrap_servers, auto_offset_reset="earliest")
        await client.start()
        try:
            client.assign([aiokafka.TopicPartition(topic, 0)])
            rows: list[tuple[int, bytes | None]] = []
            until = time.monotonic() + PATIENCE_S
            while len(rows) < count:
                assert time.monotonic() < until, f"no progress; {len(rows)} records"
                for records in (await client.getmany(timeout_ms=200)).values():
                    rows += [(each.offset, each.value) for each in records]
            return rows
        finally:
            await client.stop()

    return asyncio.run(read())


def test_it_is_said_once(flipped: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Once for each place, however often it is read; nothing of logs that nobody asks for."""
    with (
        caplog.at_level(logging.WARNING, "pylogseg.server"),
        pylogseg.serve(flipped, on_corrupt="skip") as server,
    ):
        assert server.left_out == (0, 0)
        for _ in range(2):
            assigned(server, "codec-gzip")
            assigned(server, "codec-zstd")
        assert caplog.text.count("left out: ") == 1
        assert "codec-zstd-0" in caplog.text
        path = damaged_file(flipped / "codec-zstd-0")
        (gap,) = [each for each in caplog.messages if str(path) in each and "left out" in each]
        assert "CRC mismatch" in gap
        assert server.left_out[0] == 1
        assert 0 < server.left_out[1] < path.stat().st_size


def test_what_was_verified_is_remembered(flipped: Path) -> None:
    """A log that is opened again is not verified again: damage that came meanwhile is not seen."""
    path = damaged_file(flipped / "codec-zstd-0")
    with pylogseg.serve(flipped, on_corrupt="skip") as server:
        served = server.catalog.topics["codec-zstd"].partitions[0]
        served.log()
        served.close()
        change_byte(path, 200, 0xFF)
        served.log()
        assert server.left_out[0] == 1
    with pylogseg.serve(flipped, on_corrupt="skip") as server:
        server.catalog.topics["codec-zstd"].partitions[0].log()
        assert server.left_out[0] == 2


def test_what_is_in_the_middle_of_damage(flipped: Path) -> None:
    """An offset inside of what is left out gives the next batch, and times are found behind it."""
    wanted = ours(flipped / "codec-zstd-0")
    offsets = [row[2] for row in wanted]
    hole = next(a + 1 for a, b in itertools.pairwise(offsets) if b > a + 1)
    with pylogseg.serve(flipped, on_corrupt="skip") as server, RawClient(server.bootstrap_servers) as client:
        asked = [{"partition": 0, "fetchOffset": hole, "partitionMaxBytes": 1 << 20, "currentLeaderEpoch": -1}]
        fetch = {"maxBytes": 1 << 20, "replicaId": -1, "sessionEpoch": -1,
                 "topics": [{"topic": "codec-zstd", "partitions": asked}]}  # fmt: skip
        (row,) = client.ask(1, 12, fetch)["responses"][0]["partitions"]
        assert row["errorCode"] == 0
        assert int.from_bytes(bytes(row["records"][:8]), "big") == offsets[offsets.index(hole - 1) + 1]
        last = wanted[-1]
        times = [{"name": "codec-zstd", "partitions": [
            {"partitionIndex": 0, "currentLeaderEpoch": -1, "timestamp": last[3]}]}]  # fmt: skip
        (row,) = client.ask(2, 7, {"replicaId": -1, "topics": times})["topics"][0]["partitions"]
        assert row["offset"] == next(each[2] for each in wanted if (each[3] or 0) >= (last[3] or 0))


def test_a_setting_that_is_none() -> None:
    with pytest.raises(RequestError, match="on_corrupt='stop': must be one of 'raise', 'skip'"):
        pylogseg.serve(DATA, on_corrupt="stop")  # type: ignore[arg-type]
    assert run(f"serve {DATA} --on-corrupt stop").code == 2


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_the_command_counts_at_its_end(flipped: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "pylogseg",
        "serve",
        str(flipped),
        "--listen",
        "127.0.0.1:0",
        "--on-corrupt",
        "skip",
    ]
    for topic, code in (("codec-zstd", 1), ("codec-gzip", 0)):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8")
        try:
            assert process.stdout is not None
            address = process.stdout.readline().split(" at ")[1].split(",")[0]
            with RawClient(address) as client:
                times = [{"partitionIndex": 0, "currentLeaderEpoch": -1, "timestamp": -1}]
                client.ask(2, 7, {"replicaId": -1, "topics": [{"name": topic, "partitions": times}]})
            os.kill(process.pid, signal.SIGINT)
            out, err = process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
            process.wait()
        assert process.returncode == code
        assert ("bytes in 1 place were left out" in out) == bool(code)
        assert ("left out: " in err) == bool(code)
