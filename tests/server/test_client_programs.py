"""Tests of server/opening.py. The programs of `tests/kafka/clients`: each client reads what a broker's consumer got
from the same files.

The whole table, beside a live broker and with clients that are not installed here, is printed by `matrix.py` there.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from clients import runs

import pylogseg

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(sys.platform == "win32", reason="the programs use signals and process groups"),
]
PROGRAMS = Path(runs.__file__).resolve().parent
#: Folders of golden brokers, with the topics that are served, and their partitions.
SERVED: dict[str, dict[str, list[int]]] = {
    "codecs": {"codec-none": [0], "codec-gzip": [0, 1], "codec-snappy": [0], "codec-zstd": [0, 1], "mixed": [0],
               "timestamps": [0], "large": [0], "append-time-zstd": [0, 1], "empty": [0],
               "Name.with_dots-and-2": list(range(12))},
    "txn": {"txn-a": [0, 1, 2], "txn-b": [0, 1], "txn-zstd": [0], "groups-in": [0, 1]},
    "retention": {"del-records": [0, 1], "ret-bytes": [0], "ret-time": [0]},
    "compact-3-cleaned": {"cmp-long": [0], "cmp-short": [0], "cmp-txn": [0], "cmp-zstd": [0]},
}  # fmt: skip
TOPICS = {topic: numbers for topics in SERVED.values() for topic, numbers in topics.items()}
MANY = 500
#: Of these, aiokafka and kafka-python need libraries that the tests do not have.
NO_LZ4 = {topic: numbers for topic, numbers in TOPICS.items() if topic != "mixed"}
KINDS = {"CreateTime": 0, "LogAppendTime": 1}
#: `cmp-long` has a second epoch from 985 on: who was behind that in the first one has read what is no more.
TRUNCATED = ["cmp-long", 0, 1000, 0]
SPEC: dict[str, Any] = {
    "capabilities": ["list", "describe", "records", "committed", "times", "reset", "group", "new group", "produce",
                     "truncated", "sessions"],
    "topics": TOPICS,
    "times": [0, 1_700_000_006_021, 9_000_000_000_000],
    "reset": ["codec-zstd", 0],
    "group": "groups-in",
    "refused": "codec-zstd",
    "many": ["many", MANY],
    "truncated": TRUNCATED,
    "suffix": "",
}  # fmt: skip
CLIENTS = ["kafka-python", "confluent-kafka", "aiokafka", "Java"]


@pytest.fixture(scope="module")
def server(golden: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[pylogseg.Server]:
    folder = tmp_path_factory.mktemp("served")
    for scenario, topics in SERVED.items():
        for topic, numbers in topics.items():
            for number in numbers:
                (source,) = (golden / "broker-4.3" / scenario).glob(f"data?/{topic}-{number}")
                shutil.copytree(source, folder / source.name)
        starts = folder / "log-start-offset-checkpoint"
        lines = starts.read_text().splitlines()[2:] if starts.exists() else []
        for path in (golden / "broker-4.3" / scenario).glob("data?/log-start-offset-checkpoint"):
            lines += [line for line in path.read_text().splitlines()[2:] if line.split(" ")[0] in topics]
        starts.write_text("\n".join(["0", str(len(lines)), *lines, ""]))
    for number in range(MANY):
        shutil.copytree(folder / "Name.with_dots-and-2-0", folder / f"many-{number}")
        (folder / f"many-{number}" / "partition.metadata").unlink()
    with pylogseg.serve(folder) as found:
        yield found


@pytest.fixture(scope="module")
def rows(golden: Path) -> dict[str, list[dict[str, Any]]]:
    """What a broker's consumer got, by topic."""
    found: dict[str, list[dict[str, Any]]] = {topic: [] for topic in TOPICS}
    for scenario, topics in SERVED.items():
        with gzip.open(golden / "broker-4.3" / scenario / "expected.jsonl.gz", "rt") as lines:
            for line in lines:
                row = json.loads(line)
                if row["partition"] in topics.get(row["topic"], ()):
                    found[row["topic"]].append(row)
    return {topic: sorted(each, key=lambda row: (row["partition"], row["offset"])) for topic, each in found.items()}


class Started(NamedTuple):
    """The programs of a client, which run while others are looked at: most of their time they wait."""

    answers: Future[dict[str, Any]]
    members: Future[dict[str, Any]]


@pytest.fixture(scope="module")
def programs(server: pylogseg.Server, request: pytest.FixtureRequest) -> Iterator[dict[str, Started]]:
    found = {}
    with ThreadPoolExecutor(2 * len(CLIENTS)) as threads:
        for name in CLIENTS:
            if name == "Java":
                try:
                    classpath = request.getfixturevalue("kafka").checked("classpath").strip()
                except (pytest.skip.Exception, pytest.fail.Exception) as outcome:
                    found[name] = Started(Future(), Future())
                    for each in found[name]:
                        each.set_exception(outcome)
                    continue
                command = runs.java_program("4.3.0", classpath.partition(":")[2])
            else:
                command = [sys.executable, str(PROGRAMS / f"by_{name.partition('-kafka')[0].replace('-', '_')}.py")]
            found[name] = Started(
                threads.submit(answers_of, name, command, server), threads.submit(members_of, name, command, server)
            )
        yield found


@pytest.fixture(params=CLIENTS)
def client(request: pytest.FixtureRequest) -> str:
    if request.param == "confluent-kafka":
        pytest.importorskip("confluent_kafka")
    return request.param


@pytest.fixture
def answers(client: str, programs: dict[str, Started]) -> dict[str, Any]:
    return programs[client].answers.result()


def answers_of(name: str, command: list[str], server: pylogseg.Server) -> dict[str, Any]:
    """All answers of a client; one that stalls by itself is asked again."""
    spec = {**SPEC, "topics": TOPICS if name in ("Java", "confluent-kafka") else NO_LZ4}
    found = runs.answers(command, server.bootstrap_servers, spec)
    again = [each for each in found if "Stalled" in str(found[each])]
    if again and name == "kafka-python":  # docs/serve.md: it stays in a join, on a broker too
        found.update(runs.answers(command, server.bootstrap_servers, {**spec, "capabilities": again, "suffix": "-2"}))
    return {**found, "name": name}


def members_of(name: str, command: list[str], server: pylogseg.Server) -> dict[str, Any]:
    """How many members shared a topic, step by step."""
    if name == "kafka-python":
        return {}
    asked = {"group": f"members-{name}-{os.getpid()}"}
    return runs.rebalances(command, server.bootstrap_servers, "Name.with_dots-and-2", 12, asked)


def of(answers: dict[str, Any], capability: str) -> Any:
    """An answer; skips where the client has no such thing."""
    if capability not in answers:
        pytest.skip("this client has no such thing")
    if answers["name"] == "kafka-python" and "Stalled" in str(answers[capability]):
        pytest.skip("it stays in a join now and then, on a broker too (docs/serve.md)")
    assert "answer" in answers[capability], answers[capability]
    return answers[capability]["answer"]


def test_topics(answers: dict[str, Any], server: pylogseg.Server) -> None:
    assert {*TOPICS, "many"} <= set(of(answers, "list"))
    assert set(of(answers, "describe")) - {"cluster"} <= set(TOPICS)


@pytest.mark.parametrize("isolation", ["records", "committed"])
def test_records(answers: dict[str, Any], rows: dict[str, list[dict[str, Any]]], isolation: str) -> None:
    """All fields, in all codecs, with gaps, without what was aborted or is open."""
    found = of(answers, isolation)["rows"]
    assert len(found) >= len(NO_LZ4)
    for topic, each in found.items():
        wanted = [
            [row["partition"], row["offset"], row["timestamp"], KINDS[row["timestampType"]], row["leaderEpoch"],
             row["key"], row["value"], row["headers"]]
            for row in rows[topic]
            if row["committed"] or isolation == "records"
        ]  # fmt: skip
        has_epochs = any(row[4] is not None for row in each)
        assert each == [[*row[:4], row[4] if has_epochs else None, *row[5:]] for row in wanted], topic


def test_times(answers: dict[str, Any], rows: dict[str, list[dict[str, Any]]]) -> None:
    found = of(answers, "times")
    looked = 0
    for topic in NO_LZ4:
        if topic.startswith("cmp-"):
            continue  # a cleaner's time index may have a time that no record has
        for number in TOPICS[topic]:
            for moment in SPEC["times"][:2]:
                later = [row["offset"] for row in rows[topic]
                         if row["partition"] == number and row["timestamp"] >= moment]  # fmt: skip
                if later:
                    assert found[f"{topic}-{number} {moment}"][0] == later[0], (topic, number, moment)
                    looked += 1
    assert looked > 20


def test_reset(answers: dict[str, Any]) -> None:
    """From an offset that is not there, to the start and to the end."""
    found = of(answers, "reset")
    assert [505 in found["earliest"], 0 in found["earliest"] or [0] in found["earliest"]] == [True, True]
    assert 0 in found["latest"]


@pytest.mark.parametrize("protocol", ["group", "new group"])
def test_group(answers: dict[str, Any], rows: dict[str, list[dict[str, Any]]], protocol: str) -> None:
    """It reads all, goes on behind that, and then from an earlier commit."""
    offsets = [[row["partition"], row["offset"]] for row in rows["groups-in"]]
    first, second, third = (turn[0] for turn in of(answers, protocol))
    assert (first, second, third) == (offsets, [], [each for each in offsets if each[1] >= 2])


def test_produce_is_refused(answers: dict[str, Any]) -> None:
    text = json.dumps(of(answers, "produce"))
    assert "read-only" in text or "Policy" in text, text


def test_truncation_is_seen(client: str, answers: dict[str, Any], rows: dict[str, list[dict[str, Any]]]) -> None:
    if client == "kafka-python":
        pytest.skip("it looks after the leader changes, and not when it begins")
    found = of(answers, "truncated")
    first = next(row["offset"] for row in rows["cmp-long"] if row["offset"] >= 985)
    assert str(first) in json.dumps(found), found


def test_many_partitions(answers: dict[str, Any]) -> None:
    found = of(answers, "sessions")
    found = found[0] if len(found) == 3 else found
    assert found == [[number, 0, "0"] for number in range(MANY)]


def test_members_come_and_are_killed(client: str, programs: dict[str, Started]) -> None:
    """Three members, five, two are killed, one comes, and leaves: each time all partitions are shared again."""
    if client == "kafka-python":
        pytest.skip("it stays in a join now and then, on a broker too (docs/serve.md)")
    found = programs[client].members.result()
    assert "error" not in found, found
    assert {step: len(sizes) for step, sizes in found.items()} == {
        "3 members": 3, "5 members": 5, "2 killed": 3, "1 comes": 4, "1 leaves": 3}  # fmt: skip
