"""Tests of values/internal/cluster_state.py, values/internal/cluster_tables.py, values/internal/cut_off.py,
values/internal/groups.py, values/internal/keyed_log.py, values/internal/shares.py, values/internal/state_columns.py and
values/internal/transactions.py. Every table equals what the broker answered, at its end and at two earlier moments.
"""

from __future__ import annotations

import datetime
import json
import pickle
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.damaged_logs import change_byte

import pylogseg
from pylogseg import ClusterState
from pylogseg.errors import CorruptionError, RequestError
from pylogseg.format.messages.framing import decode_coordinator

NOW = "."
MOMENTS = (NOW, "phase-1", "phase-0")
_Row = dict[str, Any]


class Answers:
    """What the broker answered at a moment, and the same moment of the files."""

    def __init__(self, golden: Path, moment: str) -> None:
        self.folder = golden / "inside" / "groups"
        self.expected = self.folder / "expected" / moment
        at = self["at"]
        ends = dict(at["internalTopics"], **{"__cluster_metadata-0": at["metadataOffset"]})
        # A topic that was made later has no end at an earlier moment.
        disk = pylogseg.open_dir(self.folder / "data0", self.folder / "data1")
        for partition in disk.partitions:
            if partition.topic.startswith("__"):
                ends.setdefault(f"{partition.topic}-{partition.partition}", 0)
        self.state = pylogseg.cluster_state(disk, ends)

    def __getitem__(self, name: str) -> Any:
        return json.loads((self.expected / f"{name}.json").read_text(encoding="utf-8"))

    def rows(self, table: str) -> list[_Row]:
        found: list[_Row] = self.state.table(table).to_pylist()
        assert self.state.notes == []
        return found


@pytest.fixture(scope="module", params=MOMENTS)
def answers(golden: Path, request: pytest.FixtureRequest) -> Answers:
    return Answers(golden, request.param)


@pytest.fixture(scope="module")
def now(golden: Path) -> Answers:
    return Answers(golden, NOW)


def flat(partitions: list[_Row] | None) -> list[str]:
    return sorted(f"{each['topic']}-{number}" for each in partitions or () for number in each["partitions"])


def ms(time: datetime.datetime | None) -> int | None:
    return None if time is None else round(time.timestamp() * 1000)


def test_another_process_reads_the_same(answers: Answers) -> None:
    there = pickle.loads(pickle.dumps(answers.state))
    assert there.table("groups").equals(answers.state.table("groups"))


# ---- groups ----


def test_groups(answers: Answers) -> None:
    rows, expected = answers.rows("groups"), answers["groups"]
    assert [row["group"] for row in rows] == sorted(expected)
    for row in rows:
        told = expected[row["group"]]
        assert (row["type"], row["state"], row["protocolType"]) == (told["type"], told["state"], told["protocol"])
        assert (row["groupEpoch"], row["assignmentEpoch"]) == (
            told.get("groupEpoch"),
            told.get("targetAssignmentEpoch"),
        )
        assert row["members"] == len(told["members"])
        assert (row["assignor"] or "") == told.get("partitionAssignor", row["assignor"] or "")
        assert row["isSimple"] == told.get("simple", row["isSimple"])


def test_members(answers: Answers) -> None:
    found = {(row["group"], row["memberId"]): row for row in answers.rows("group_members")}
    count = 0
    for group, told in answers["groups"].items():
        for member in told["members"]:
            count += 1
            if isinstance(member, str):  # of a streams group: the client's own text
                member_id = member.split("memberId=")[1].split(",")[0]
                row = found[group, member_id]
                assert f"clientId={row['clientId']}, clientHost={row['host']}, " in member
                assert f"memberEpoch={row['memberEpoch']}, " in member
                tasks = ",".join(f"{each['topic']}_{n}" for each in row["assignment"] for n in each["partitions"])
                assert f" assignment=(activeTasks={tasks}, " in member
                continue
            row = found[group, member["memberId"]]
            assert flat(row["assignment"]) == sorted(member["assignment"])
            if member.get("targetAssignment") is not None:
                assert flat(row["targetAssignment"]) == sorted(member["targetAssignment"])
            assert (row["clientId"], row["host"]) == (member["clientId"], member["host"])
            assert row["instanceId"] == member.get("groupInstanceId")
            assert row["rackId"] == member.get("rackId", row["rackId"])
            assert row["memberEpoch"] == member.get("memberEpoch", row["memberEpoch"])
            if member.get("upgraded") is not None:
                assert row["isClassic"] != member["upgraded"]
    assert count == len(found)


def test_group_offsets(answers: Answers) -> None:
    found: dict[str, _Row] = {}
    pending: dict[str, list[str]] = {}
    for row in answers.rows("group_offsets"):
        at = f"{row['topic']}-{row['partition']}"
        if row["offset"] is not None:
            found[f"{row['group']} {at}"] = {name: row[name] for name in ("offset", "leaderEpoch", "metadata")}
        if row["pendingOffset"] is not None:
            pending.setdefault(row["group"], []).append(at)
    expected = answers["groups"]
    assert found == {
        f"{group} {at}": {name: offset[name] for name in ("offset", "leaderEpoch", "metadata")}
        for group, told in expected.items()
        if told["type"] != "Share"
        for at, offset in told["offsets"].items()
    }
    unstable = {group: sorted(told["unstable"]) for group, told in expected.items() if told.get("unstable")}
    assert {group: sorted(listed) for group, listed in pending.items()} == unstable


def test_lag(now: Answers) -> None:
    told = {
        (group, at): (offset["endOffset"], offset["lag"])
        for group, row in now["groups"].items()
        for at, offset in row["offsets"].items()
        if "endOffset" in offset
    }
    rows = [row for row in now.rows("group_offsets") if row["offset"] is not None]
    assert {
        (row["group"], f"{row['topic']}-{row['partition']}"): (row["endOffset"], row["lag"]) for row in rows
    } == told
    ahead = next(row for row in rows if row["group"] == "ahead")
    assert (ahead["lag"], ahead["lagFromStart"], ahead["stale"]) == (-999_940, -999_940, False)


def test_pending_offsets(now: Answers) -> None:
    rows = [row for row in now.rows("group_offsets") if row["pendingOffset"] is not None]
    assert {(row["topic"], row["pendingProducerId"]) for row in rows} == {("in", 2003), ("other", 2003)}
    assert {row["topic"]: row["offset"] for row in rows} == {"in": 38, "other": None}


def test_stale_offsets(golden: Path) -> None:
    """Between the deletion of a topic and its tombstones, or on a disk where nobody wrote them, offsets are stale."""
    answers = Answers(golden, NOW)
    image_offset = answers["at"]["metadataOffset"]
    fresh = [row for row in answers.rows("group_offsets") if row["topic"] == "reborn"]
    assert [row["stale"] for row in fresh] == [False]
    # The metadata of now, with the offsets of the first life: before their tombstones.
    topic_id, found = fresh[0]["topicId"], []
    for number in range(3):
        name = f"__consumer_offsets-{number}"
        for record in pylogseg.read(answers.folder, name):
            key, value = decode_coordinator("__consumer_offsets", record.key or b"", record.value)
            if key.number != 1 or not value.fields or not key.fields or key.fields["topic"] != "reborn":
                continue
            if value.fields["topicId"] not in (topic_id, "A" * 22):
                found.append((name, record.offset + 1))
    for name, end in found:
        state = pylogseg.cluster_state(answers.folder, {"__cluster_metadata-0": image_offset, name: end})
        rows = [row for row in state.table("group_offsets").to_pylist() if row["topic"] == "reborn"]
        assert {row["stale"] for row in rows if row["topicId"] != topic_id} == {True}
    assert found


def test_share_offsets(answers: Answers) -> None:
    found = {
        (row["group"], f"{row['topic']}-{row['partition']}"): row
        for row in answers.rows("share_offsets")
        if row["startOffset"] is not None
    }
    told = {
        (group, at): offset
        for group, row in answers["groups"].items()
        if row["type"] == "Share"
        for at, offset in row["offsets"].items()
    }
    shown = {at: row for at, row in found.items() if at in told}
    assert shown.keys() == told.keys()
    for at, offset in told.items():
        assert shown[at]["startOffset"] == offset["startOffset"]
        if answers.expected.name == "expected":
            assert (shown[at]["lag"], shown[at]["leaderEpoch"]) == (offset["lag"], offset["leaderEpoch"])


# ---- transactions ----


def test_transactions(answers: Answers) -> None:
    rows = answers.rows("transactions")
    told = answers["transactions"]
    assert [row["transactionalId"] for row in rows] == sorted(each["transactionalId"] for each in told)
    by_id = {row["transactionalId"]: row for row in rows}
    for each in told:
        row = by_id[each["transactionalId"]]
        assert flat(row["partitions"]) == sorted(each["partitions"])
        assert ms(row["startTime"]) == each["startTimeMs"]
        for name in ("producerId", "producerEpoch", "state", "timeoutMs"):
            assert row[name] == each[name]


def test_producers(now: Answers) -> None:
    rows = now.state.table("producers").to_pylist()
    told = {(at, each["producerId"]): each for at, listed in now["producers"].items() for each in listed}
    assert {(f"{row['topic']}-{row['partition']}", row["producerId"]) for row in rows} == told.keys()
    for row in rows:
        each = told[f"{row['topic']}-{row['partition']}", row["producerId"]]
        for name in ("producerEpoch", "lastSequence", "lastTimestamp", "coordinatorEpoch"):
            assert row[name] == each[name]
        assert row["openSinceOffset"] == each["currentTransactionStartOffset"]


def test_hanging_transactions(now: Answers) -> None:
    """As ``kafka-transactions.sh find-hanging``, and the others that are open."""
    rows = now.rows("open_transactions")
    (hanging,) = [row for row in rows if row["hanging"]]
    lines = (now.expected / "cli" / "transactions-find-hanging.txt").read_text().splitlines()
    told = dict(zip(lines[0].split("\t"), lines[1].split("\t"), strict=True))
    assert (hanging["topic"], str(hanging["startOffset"])) == (told["Topic"].strip(), told["StartOffset"].strip())
    assert str(hanging["lastTimestamp"]) == told["LastTimestamp"].strip()
    assert hanging["abortCommand"].endswith("abort --topic hang --partition 0 --start-offset 3")
    live = {f"{row['topic']}-{row['partition']}" for row in rows if not row["hanging"]}
    assert live == {"out-0", "out-1", "__consumer_offsets-1"}
    assert {row["transactionalId"] for row in rows if not row["hanging"]} == {"tx-open"}


def test_producers_without_their_snapshots(golden: Path, tmp_path: Path) -> None:
    """The headers alone say the same of open transactions as the snapshots that the broker wrote at its end."""
    for name in ("data0", "data1"):
        shutil.copytree(golden / "inside" / "groups" / name, tmp_path / name)
    dirs = [tmp_path / "data0", tmp_path / "data1"]
    before = pylogseg.cluster_state(dirs).table("producers")
    for path in tmp_path.rglob("*.snapshot"):
        path.unlink()
    after = pylogseg.cluster_state(dirs).table("producers")
    columns = ["topic", "partition", "producerId", "openSinceOffset"]
    opened = [row for row in before.select(columns).to_pylist() if row["openSinceOffset"] is not None]
    assert [row for row in after.select(columns).to_pylist() if row["openSinceOffset"] is not None] == opened
    kept = {(r["topic"], r["partition"], r["producerId"]): r for r in after.to_pylist()}
    for row in before.to_pylist():
        found = kept.get((row["topic"], row["partition"], row["producerId"]))
        if found is not None and not row["topic"].startswith("__"):
            assert (found["producerEpoch"], found["lastSequence"]) == (row["producerEpoch"], row["lastSequence"])


# ---- the cluster ----


def test_topics_and_partitions(answers: Answers) -> None:
    expected = answers["topics"]
    assert {row["topic"]: row["topicId"] for row in answers.rows("topics")} == {
        name: row["topicId"] for name, row in expected.items()
    }
    moving = answers["reassignments"]
    rows = {(row["topic"], row["partition"]): row for row in answers.rows("partitions")}
    assert len(rows) == sum(len(row["partitions"]) for row in expected.values())
    for name, topic in expected.items():
        for told in topic["partitions"]:
            row = rows[name, told["partition"]]
            assert row["leader"] == (-1 if told["leader"] is None else told["leader"])
            assert (row["replicas"], row["isr"]) == (told["replicas"], told["isr"])
            assert (row["elr"], row["lastKnownElr"]) == (told["elr"], told["lastKnownElr"])
            told_moving = moving.get(f"{name}-{told['partition']}", {"adding": [], "removing": []})
            assert (row["adding"], row["removing"]) == (told_moving["adding"], told_moving["removing"])


def test_configs(answers: Answers) -> None:
    found: dict[str, dict[str, dict[str, str]]] = {}
    for row in answers.rows("configs"):
        found.setdefault(row["resourceType"], {}).setdefault(row["resource"], {})[row["name"]] = row["value"]
    expected = {
        kind: {name: settings for name, settings in resources.items() if settings}
        for kind, resources in answers["configs"].items()
    }
    assert found == {kind: resources for kind, resources in expected.items() if resources}


def test_brokers(answers: Answers) -> None:
    told = {each["id"]: each for each in answers["cluster"]["brokers"]}
    rows = {row["brokerId"]: row for row in answers.rows("brokers")}
    assert rows.keys() == told.keys()
    for number, each in told.items():
        assert (rows[number]["fenced"], rows[number]["rack"]) == (each["fenced"], each["rack"])
        assert any(f"://{each['host']}:{each['port']} " in endpoint for endpoint in rows[number]["endpoints"])


def test_acls(answers: Answers) -> None:
    names = ("host", "operation", "patternType", "permission", "principal", "resourceType")
    found = Counter((row["resource"], *(row[name] for name in names)) for row in answers.rows("acls"))
    assert found == Counter((each["name"], *(each[name] for name in names)) for each in answers["acls"])


def test_quotas(answers: Answers) -> None:
    found: dict[tuple[Any, ...], dict[str, float]] = {}
    for row in answers.rows("quotas"):
        found.setdefault((row["user"], row["clientId"], row["ip"]), {})[row["key"]] = row["value"]
    kinds = ("user", "client-id", "ip")

    def entity(each: _Row) -> Iterator[str | None]:
        for kind in kinds:
            yield (each["entity"][kind] or "<default>") if kind in each["entity"] else None

    assert found == {tuple(entity(each)): each["quotas"] for each in answers["quotas"]}


def test_users_and_features(answers: Answers) -> None:
    found: dict[str, list[_Row]] = {}
    for row in answers.rows("users"):
        found.setdefault(row["user"], []).append({"iterations": row["iterations"], "mechanism": row["mechanism"]})
        assert (row["salt"], row["storedKey"], row["serverKey"]) == ("********",) * 3
    assert found == answers["scram"]
    assert {row["feature"]: row["level"] for row in answers.rows("features")} == answers["features"]["finalized"]


def test_secrets_are_shown_on_request(golden: Path) -> None:
    folder = golden / "inside" / "groups"
    rows = pylogseg.cluster_state(folder, show_secrets=True).table("users").to_pylist()
    assert all(len(bytes.fromhex(row["storedKey"])) == 32 for row in rows)


# ---- moments and requests ----


def test_as_of_a_time(golden: Path) -> None:
    """At a time there are the groups whose records are not newer, and the topics that there were then."""
    folder = golden / "inside" / "groups"
    whole = pylogseg.cluster_state(folder)
    ends = Answers(golden, "phase-1")["at"]
    last = 0
    for chunk in pylogseg.read(folder, ["__consumer_offsets-1"]).chunks():
        below = chunk.columns.offset < ends["internalTopics"]["__consumer_offsets-1"]
        last = max(last, int(chunk.columns.timestamp[below].max(initial=0)))
    for moment in (last, datetime.datetime.fromtimestamp(last / 1000, datetime.timezone.utc)):
        then = pylogseg.cluster_state(folder, moment)
        names = {row["group"] for row in then.table("groups").to_pylist()}
        assert names >= {"mixed", "k848-old", "connect-cluster"}
        assert not names & {"classic-live", "k848-regex", "streams-app"}
        assert then.table("topics").num_rows < whole.table("topics").num_rows
    assert pylogseg.cluster_state(folder, 1).table("topics").num_rows == 0


@pytest.mark.parametrize("moment", [datetime.datetime(2026, 1, 1), "now", {"__consumer_offsets-0": -1}, 1.5])
def test_moments_that_are_none(golden: Path, moment: Any) -> None:
    with pytest.raises(RequestError):
        pylogseg.cluster_state(golden / "inside" / "groups", moment)


def test_unknown_table(golden: Path) -> None:
    state = pylogseg.cluster_state(golden / "inside" / "groups")
    assert isinstance(state, ClusterState)
    with pytest.raises(RequestError, match="there is no table 'group': tables are groups, "):
        state.table("group")


def test_nothing_there(examples: Path) -> None:
    """On a disk without internal topics every table is there, without rows but for producers."""
    state = pylogseg.cluster_state(pylogseg.open_dir(examples)["txn-a"])
    for name in state.tables:
        assert state.table(name).num_rows == 0 or name in ("producers", "open_transactions"), name


def test_a_log_that_does_not_meet_its_snapshot(golden: Path, tmp_path: Path) -> None:
    source = golden / "inside" / "groups" / "data0" / "__cluster_metadata-0"
    shutil.copytree(source, tmp_path / source.name)
    for path in tmp_path.rglob("*"):
        if path.suffix == ".checkpoint" or path.name.startswith("00000000000000000000."):
            path.unlink()
    with pytest.raises(CorruptionError, match="the records between them are missing"):
        pylogseg.cluster_state(tmp_path).table("topics")


def test_damage_is_noted(golden: Path, tmp_path: Path) -> None:
    """A damaged batch loses what is in it, and a note says so."""
    source = golden / "inside" / "groups" / "data0" / "__consumer_offsets-1"
    shutil.copytree(source, tmp_path / source.name)
    (path, *_) = sorted((tmp_path / source.name).glob("*.log"))
    change_byte(path, bits=255)
    state = pylogseg.cluster_state(tmp_path)
    assert state.table("groups").num_rows > 0
    assert len(state.notes) == 1
    assert path.name in state.notes[0]
