"""Tests of cli/cluster.py, cli/cluster_state.py, cli/groups.py, cli/schemas.py, cli/transactions.py,
inspect/dump/kafka_decoders.py, values/internal/cut_off.py, values/internal/groups.py, values/internal/message_text.py
and values/internal/transactions.py. `groups`, `transactions`, `cluster` and the decoders of `dump`, beside the texts of
Kafka's own tools.
"""

from __future__ import annotations

import csv
import gzip
import json
import os
import random
import shutil
import struct
from pathlib import Path

import pytest
from helpers.damaged_logs import change_byte
from helpers.internal_logs import write_log
from helpers.shell import expect, pylogseg

from pylogseg import read
from pylogseg.format.builder import build, shared_row
from pylogseg.format.messages.framing import encode_coordinator
from pylogseg.format.record_input import columns_from_records
from pylogseg.inspect.dump.kafka_decoders import decoder_of
from pylogseg.inspect.dump.kafka_options import KafkaOptions
from pylogseg.values.internal.message_text import coordinator_texts

DECODERS = {
    "__consumer_offsets": "--offsets-decoder",
    "__transaction_state": "--transaction-log-decoder",
    "__cluster_metadata": "--cluster-metadata-decoder",
    "__remote_log_metadata": "--remote-log-metadata-decoder",
    "__share_group_state": "--share-group-state-decoder",
}


def table(text: str, count: int) -> set[tuple[str, ...]]:
    """The first words of each line that is a row, headings and warnings left out."""
    lines = [line.split() for line in text.splitlines()]
    found = [tuple(words[:count]) for words in lines if len(words) >= count]
    return {
        row for row in found if row[0] not in ("GROUP", "Consumer", "Warning:", "Share", "Streams", "TransactionalId")
    }


def told(group_disk: Path, name: str) -> str:
    return (group_disk / "expected" / "cli" / f"{name}.txt").read_text(encoding="utf-8")


# ---- groups ----


def at_the_end(group_disk: Path) -> list[str]:
    """The moment at which Kafka's tools were asked: the stop of the broker appends to the metadata."""
    at = json.loads((group_disk / "expected" / "at.json").read_text())
    return ["--as-of", f"__cluster_metadata-0={at['metadataOffset']}"]


def test_offsets_as_kafka_describes_them(group_disk: Path) -> None:
    done = pylogseg("groups", group_disk, "--offsets", *at_the_end(group_disk))
    assert (done.code, done.err) == (0, "")
    ours, _, shares = done.text.partition("\n\n")
    # kafka-consumer-groups.sh does not list the partitions of streams groups.
    expected = table(told(group_disk, "consumer-groups-offsets"), 10)
    found = {row for row in table(ours, 10) if row[0] != "streams-app"}
    # An offset in an open transaction, of a partition without another: Kafka's tool does not see it.
    assert found - expected == {("txn-group", "other", "0", "-", "-", "14", "-", "-", "-", "-")}
    assert expected <= found
    assert {row for row in table(shares, 6) if row[0] == "share-main" and row[4] != "-"} == table(
        told(group_disk, "share-groups-offsets"), 6
    ) - {("Share", "group", "'share-reset'", "has", "no", "offset")}


def test_damage_shows_in_the_exit_code(group_disk: Path, tmp_path: Path) -> None:
    """What was passed by is named, and the rest is printed: also a group whose tombstone was in it."""
    names = [f"data{number}" for number in (0, 1) if (group_disk / f"data{number}").is_dir()]
    for name in names:
        shutil.copytree(group_disk / name, tmp_path / name)
    assert pylogseg("groups", tmp_path).code == 0
    logs = [path for path in tmp_path.glob("*/__consumer_offsets-*/*.log") if path.stat().st_size > 1000]
    assert logs
    for log in logs:
        whole = log.read_bytes()
        log.write_bytes(whole[:200] + bytes([whole[200] ^ 1]) + whole[201:])
        done = expect(pylogseg("groups", tmp_path), 1, f"{log.parent.name}/{log.name}")
        assert len(done.text.splitlines()) > 1
        log.write_bytes(whole)
    transactions = min(path for path in tmp_path.glob("*/__transaction_state-*/*.log") if path.stat().st_size)
    change_byte(transactions, 100)
    assert pylogseg("transactions", tmp_path).code == 1


@pytest.mark.parametrize(
    ("arguments", "topic"),
    [
        (["groups"], "__consumer_offsets"),
        (["transactions"], "__transaction_state"),
        (["transactions", "--hanging"], "__transaction_state"),
        (["cluster", "topics"], "__cluster_metadata"),
        (["schemas"], "_schemas"),
    ],
)
def test_without_the_topic(tmp_path: Path, examples: Path, arguments: list[str], topic: str) -> None:
    """What was not looked at is not told as empty."""
    shutil.copytree(examples / "txn-a-0", tmp_path / "txn-a-0")
    done = pylogseg(*arguments[:1], tmp_path, *arguments[1:])
    assert (done.code, done.text) == (2, "")
    assert f"{tmp_path}: no {topic} here" in done.err


def test_producers_without_their_coordinator(tmp_path: Path, examples: Path) -> None:
    """Ids of producers are in the partitions; only their names are missing."""
    shutil.copytree(examples / "txn-a-0", tmp_path / "txn-a-0")
    done = expect(pylogseg("transactions", tmp_path, "--producers"), 0, "no __transaction_state here")
    assert len(done.text.splitlines()) > 1


def test_members_as_kafka_describes_them(group_disk: Path) -> None:
    done = pylogseg("groups", group_disk, "--members", "--json", *at_the_end(group_disk))
    found = {row["memberId"]: row for row in map(json.loads, done.text.splitlines())}
    for line in told(group_disk, "consumer-groups-members").splitlines():
        words = line.split()
        member = found.get(words[1]) if len(words) > 1 else None
        if member is None:
            continue
        assert words[0] == member["group"]
        assert member["host"] in words
        assert member["clientId"] in words
        partitions = sum(len(each["partitions"]) for each in member["assignment"])
        assert str(partitions) in words


def test_topics_that_the_metadata_does_not_have(group_disk: Path) -> None:
    """As deleted ones: committed offsets say their names, so each partition is there once."""
    rows = pylogseg("groups", group_disk / "data1", "--lag", "--json").rows
    keys = [(row["group"], row["topic"], row["partition"]) for row in rows if row["group"] == "upgraded"]
    assert keys == [("upgraded", "in", n) for n in range(4)] + [("upgraded", "in2", n) for n in range(2)]
    members = pylogseg("groups", group_disk / "data1", "upgraded", "--members", "--json").rows
    assert {each["topic"] for row in members for each in row["assignment"]} == {"in", "in2"}


def test_groups_as_kafka_lists_them(group_disk: Path) -> None:
    done = pylogseg("groups", group_disk, "--json")
    listed = {(row["group"], row["type"], row["state"]) for row in map(json.loads, done.text.splitlines())}
    expected = table(told(group_disk, "consumer-groups-list"), 3)
    assert {row for row in listed if row[1] in ("Classic", "Consumer")} - {("connect-cluster", "Classic", "Empty")} == {
        row for row in expected if row[1] in ("Classic", "Consumer") and row[0] != "connect-cluster"
    }


def test_one_group(group_disk: Path) -> None:
    done = pylogseg("groups", group_disk, "mixed", "--offsets")
    assert [line.split()[:3] for line in done.text.splitlines()[1:]] == [
        ["mixed", topic, partition]
        for topic, partition in (("in", "0"), ("in", "1"), ("in", "2"), ("in", "3"), ("in2", "1"))
    ]
    done = pylogseg("groups", group_disk, "txn-group", "--offsets")
    assert "38 pending" not in done.text
    assert "pending in a transaction of producer 2003" in done.text
    done = expect(pylogseg("groups", group_disk, "nobody"), 2)
    assert done.err.startswith("pylogseg: there is no group nobody here: there are ")
    assert "there is no group txn-grup here: did you mean txn-group" in pylogseg("groups", group_disk, "txn-grup").err


def test_export(group_disk: Path, tmp_path: Path) -> None:
    done = pylogseg("groups", group_disk, "mixed", "--export", tmp_path / "one.csv")
    assert done.text == f"{tmp_path}/one.csv: 5 offsets\n"
    assert (tmp_path / "one.csv").read_text() == "in,0,2000\nin,1,1001\nin,2,50\nin,3,6\nin2,1,71\n"
    done = pylogseg("groups", group_disk, "--export", tmp_path / "all.csv")
    with open(tmp_path / "all.csv", encoding="utf-8", newline="") as file:
        listed = list(csv.reader(file))
    assert ["mixed", "in", "0", "2000"] in listed
    groups = json.loads((group_disk / "expected" / "groups.json").read_text())
    assert len(listed) == sum(len(each["offsets"]) for each in groups.values() if each["type"] != "Share")


def test_an_offset_above_the_end_is_noted(tmp_path: Path) -> None:
    """A log that was made again ends below what its groups have committed: a consumer is reset there."""
    key = b"\0\1" + b"\0\2g1" + b"\0\6orders" + bytes(4)
    value = struct.pack(">hqi", 3, 50, -1) + bytes(2) + bytes(8)
    write_log(tmp_path / "d" / "__consumer_offsets-0", [(key, value)])
    write_log(tmp_path / "d" / "orders-0", [(b"k", b"v")] * 6)
    above = "the offset is above the end of the log"
    for option in ("--offsets", "--lag"):
        done = expect(pylogseg("groups", tmp_path / "d", option), 0)
        assert done.text.rstrip().endswith(f"{above}: a consumer is reset")
    done = pylogseg("groups", tmp_path / "d", "--export", tmp_path / "o.csv")
    assert done.code == 0
    assert f"g1, orders-0, 50: {above}, 6: a consumer is reset" in done.err
    report = pylogseg("report", tmp_path / "d", "--json", "-o", tmp_path / "r.html").rows[0]
    assert [each["whyNotKnown"] for each in report["groupOffsets"]] == [above]


def test_as_of(group_disk: Path) -> None:
    ends = json.loads((group_disk / "expected" / "phase-1" / "at.json").read_text())["internalTopics"]
    moment = ",".join(f"{name}={offset}" for name, offset in ends.items() if name.startswith("__consumer"))
    done = pylogseg("groups", group_disk, "--json", "--as-of", moment)
    expected = json.loads((group_disk / "expected" / "phase-1" / "groups.json").read_text())
    assert {row["group"] for row in map(json.loads, done.text.splitlines())} == set(expected)
    assert pylogseg("groups", group_disk, "--json", "--as-of", "1").text == ""
    for wrong in ("__consumer_offsets=5", "a-1=x", "yesterday", "2026-01-01T00:00:00"):
        assert pylogseg("groups", group_disk, "--as-of", wrong).code == 2


@pytest.mark.parametrize("command", ["groups", "transactions"])
def test_one_view_at_a_time(group_disk: Path, command: str) -> None:
    views = {"groups": ["--offsets", "--members"], "transactions": ["--open", "--hanging"]}[command]
    done = pylogseg(command, group_disk, *views)
    assert (done.code, "choose one of" in done.err) == (2, True)


# ---- transactions ----


def test_transactions_as_kafka_lists_them(group_disk: Path) -> None:
    done = pylogseg("transactions", group_disk)
    found = {(row[0], row[1], row[3]) for row in table(done.text, 4)}
    assert found == {(row[0], row[2], row[3]) for row in table(told(group_disk, "transactions-list"), 4)}


def test_hanging_transactions(group_disk: Path) -> None:
    done = pylogseg("transactions", group_disk, "--hanging")
    head, row, command = done.text.splitlines()
    line = told(group_disk, "transactions-find-hanging").splitlines()[1].split()
    assert row.split()[:7] == line[:7]  # the rest is its age
    assert head.split()[:7] == told(group_disk, "transactions-find-hanging").split()[:7]
    assert command == (
        "kafka-transactions.sh --bootstrap-server HOST:PORT abort --topic hang --partition 0 --start-offset 3"
    )


@pytest.mark.parametrize("name", ["hang", "out"])
def test_producers_as_kafka_describes_them(group_disk: Path, name: str) -> None:
    done = pylogseg("transactions", group_disk, "--producers")
    lines = [line.split() for line in told(group_disk, f"transactions-describe-producers-{name}").splitlines()]
    expected = {tuple(words) for words in lines if words and words[0].isdigit()}
    found = {tuple(words[2:]) for words in map(str.split, done.text.splitlines()) if words[0] == name}
    assert expected
    assert expected <= found


# ---- cluster ----


def test_cluster(group_disk: Path) -> None:
    done = expect(pylogseg("cluster", group_disk), 0)
    assert [line.split()[0] for line in done.text.splitlines()] == [
        "TABLE", "topics", "partitions", "configs", "brokers", "acls", "quotas", "users", "features",
    ]  # fmt: skip
    done = pylogseg("cluster", group_disk, "users")
    assert done.text.count("********") == 6
    assert "********" not in pylogseg("cluster", group_disk, "users", "--show-secrets").text
    done = pylogseg("cluster", group_disk, "groups")
    assert (done.code, done.err.startswith("pylogseg: there is no table groups: tables are topics, ")) == (2, True)


def test_two_tables(group_disk: Path) -> None:
    done = pylogseg("cluster", group_disk, "features", "brokers", "--json")
    found = [json.loads(line) for line in done.text.splitlines()]
    assert [row.get("feature") for row in found].count(None) == 2
    assert "\n\nBROKERID" in pylogseg("cluster", group_disk, "features", "brokers").text


# ---- dump ----


def test_decoders_line_by_line(group_disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every line that Kafka's tool prints of these files with the decoder of their topic."""
    monkeypatch.chdir(group_disk)
    lines = 0
    for path in sorted((group_disk / "expected" / "decoders").rglob("*.txt.gz")):
        name = path.relative_to(group_disk / "expected" / "decoders").as_posix().removesuffix(".txt.gz")
        short = name.endswith(".short")
        file = name.removesuffix(".short")
        topic = "__cluster_metadata" if file.endswith(".checkpoint") else Path(file).parent.name.rpartition("-")[0]
        with gzip.open(path, "rt", encoding="utf-8") as text:
            expected = text.read()
        options = ["--skip-record-metadata"] if short else []
        done = pylogseg("dump", "--style", "kafka", DECODERS[topic], *options, file)
        assert (done.code, done.text.splitlines()) == (0, expected.splitlines()), file
        lines += len(expected.splitlines())
    assert lines == 5028


def test_what_a_decoder_does_not_know(group_disk: Path, tmp_path: Path) -> None:
    """Records of other topics: a type that there is not, a key that there is not."""

    def dumped(records: list[tuple[int, bytes | None, bytes | None]], option: str) -> tuple[str, str]:
        path = tmp_path / "00000000000000000000.log"
        path.write_bytes(build(columns_from_records(records, base_offset=0), shared_row())[0])
        done = pylogseg("dump", "--style", "kafka", option, "--skip-record-metadata", os.fspath(path))
        return "\n".join(done.text.splitlines()[3:]), done.err

    text, _ = dumped([(0, b"\x00\x63", b"\x00\x00"), (0, b"\x00", None)], "--offsets-decoder")
    first, second = text.splitlines()
    assert first == "| key: Unknown record type 99 at offset 0, skipping."
    assert second.startswith("| key: Error at offset 1, skipping. ")
    text, err = dumped([(0, None, b"value")], "--transaction-log-decoder")
    assert "message had a missing key" in err
    text, _ = dumped([(0, None, b"\x02"), (0, None, b"\x01\x63\x00"), (0, None, None)], "--cluster-metadata-decoder")
    assert [line.split(",")[0] for line in text.splitlines()] == [
        f"| payload: Error at {offset}" for offset in range(3)
    ]
    text, _ = dumped([(0, None, b"\x01\x18\x00\x00!")], "--cluster-metadata-decoder")
    assert text == "| payload: Error at 0, skipping. Found 1 byte(s) of garbage after EndTransactionRecord"


def test_open_transactions(group_disk: Path) -> None:
    done = pylogseg("transactions", group_disk, "--open", "--json")
    rows = [json.loads(line) for line in done.text.splitlines()]
    assert {row["topic"] for row in rows} == {"hang", "out", "__consumer_offsets"}
    assert {(row["topic"], row["coordinatorState"], row["isHeld"]) for row in rows} == {
        ("hang", "Empty", False),
        ("out", "Ongoing", True),
        ("__consumer_offsets", "Ongoing", True),
    }
    lines = pylogseg("transactions", group_disk, "--open").text.splitlines()
    assert [line.endswith("Empty, not of this one") for line in lines if line.startswith("hang")] == [True]


def test_texts_made_many_at_a_time(tmp_path: Path) -> None:
    """Escapes, nulls, absent fields, versions and tombstones: the same as record by record."""
    rng = random.Random(3)
    texts = ["", "plain", 'quote " and \\', "line\nfeed", "\x1f", "käse", "\u2028"]
    records: list[tuple[bytes | None, bytes | None]] = []
    for i in range(300):
        key = {"group": f"g{i % 7}", "topic": rng.choice(texts), "partition": i}
        version = rng.randrange(5)
        fields: dict[str, object] = {"offset": rng.randrange(2**60), "metadata": rng.choice(texts)}
        if version == 4 and rng.random() < 0.5:
            fields["topicId"] = "9tPmCkRHTp-zCgChmGY-mw"
        value = None if rng.random() < 0.1 else fields
        raw, encoded = encode_coordinator("OffsetCommit", key, version, value)
        if rng.random() < 0.1:
            raw = raw.replace(b"g", b"\xff")
        if encoded is not None and rng.random() < 0.1:
            encoded = rng.choice([encoded[: rng.randrange(len(encoded))], b"\0\x09" + encoded[2:], encoded + b"more"])
        records.append((raw, encoded))
    path = write_log(tmp_path / "__consumer_offsets-0", records)
    lines = pylogseg("dump", "--style", "kafka", "--offsets-decoder", path).out.split(b"\n")
    decoder = decoder_of(KafkaOptions(offsets_decoder=True))
    assert decoder is not None
    made = [decoder(key, value, i).encode() for i, (key, value) in enumerate(records)]
    assert [line[line.index(b" key: ") :] for line in lines if line.startswith(b"| offset: ")] == made
    (chunk,) = read(path).chunks()
    assert 60 < coordinator_texts("__consumer_offsets", chunk.columns).done.sum() < 300
