"""Tests of live/connection.py, live/fetching.py, live/login.py, live/msk.py and live/settings.py. What brokers do to
clients, by a man in the middle.
"""

from __future__ import annotations

import base64
import gc
import multiprocessing
import sys
import time
import urllib.parse
import warnings
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from helpers.between import FETCH, METADATA, Between
from helpers.shell import expect
from helpers.shell import pylogseg as run

import pylogseg
from pylogseg.errors import RequestError, StorageError
from pylogseg.live import cluster as live_cluster
from pylogseg.live import connection, fetching
from pylogseg.live import login as live_login
from pylogseg.live.msk import MskSigner
from pylogseg.live.settings import settings_of

DATA = Path(__file__).resolve().parents[2] / "examples" / "data"
HANDSHAKE, AUTHENTICATE = 17, 36


@pytest.fixture(scope="module")
def served() -> Iterator[str]:
    with pylogseg.serve(DATA) as server:
        yield server.bootstrap_servers


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "PIECE_BYTES", 3000)
    monkeypatch.setattr(live_cluster, "ELECTION_S", 0.2)


def parts_of(answer: dict) -> Iterator[dict]:
    for topic in answer["responses"]:
        yield from topic["partitions"]


def expected(topic: str = "txn-a"):
    return pylogseg.read(DATA, topic).to_arrow()


# ---- a replica in the same rack (KIP-392) ----


class Racks:
    """A leader that sends a client of a rack to node 77, which has an address of its own."""

    def __init__(self, servers: str, follower: Between) -> None:
        self.racks: list[str] = []
        self.follower = follower
        self.leader = Between(servers, self.change)

    def change(self, key: int, values: dict, answer: dict) -> None:
        if key == METADATA:
            answer["brokers"].append({**answer["brokers"][0], "nodeId": 77, "port": self.follower.port})
        if key == FETCH:
            self.racks.append(values["rackId"])
            for part in parts_of(answer) if values["rackId"] == "east" else ():
                part.update(preferredReadReplica=77, records=part["records"][:0].__class__(b""))


def test_a_replica_in_the_rack_is_read(served: str) -> None:
    with Between(served) as follower:
        racks = Racks(served, follower)
        options = {"cluster": {"client.rack": "east"}}
        disk = pylogseg.open_dir(f"kafka://{racks.leader.servers}/txn-a", storage_options=options)
        assert pylogseg.read(disk).to_arrow() == expected()
        assert set(racks.racks) == {"east"}
        assert len(racks.racks) == len(disk.partitions)  # the leader is asked once for each
        assert follower.requests.count(FETCH) > len(disk.partitions)
        racks.leader.close()


@pytest.mark.parametrize("fault", ["out of range", "lags", "gone"])
def test_a_replica_that_lacks_something_sends_back_to_the_leader(served: str, fault: str) -> None:
    fetches: list[int] = []

    def change(key: int, values: dict, answer: dict) -> None:
        if key == FETCH:
            fetches.append(values["topics"][0]["partitions"][0]["fetchOffset"])
            for part in parts_of(answer) if len(fetches) > 2 else ():
                if fault == "out of range":
                    part.update(errorCode=1, records=part["records"].__class__(b""))
                else:
                    part.update(highWatermark=0, records=part["records"].__class__(b""))

    with Between(served, change) as follower:
        if fault == "gone":
            follower.to = ("127.0.0.1", 1)
        racks = Racks(served, follower)
        options = {"cluster": {"client.rack": "east"}}
        disk = pylogseg.open_dir(f"kafka://{racks.leader.servers}/txn-a-0", storage_options=options)
        reading = pylogseg.read(disk)
        assert reading.to_arrow() == pylogseg.read(DATA, "txn-a-0").to_arrow()
        assert not reading.gaps
        assert racks.racks[0] == "east"
        assert racks.racks[-1] == ""
        racks.leader.close()


# ---- quotas ----


def test_a_quota_is_waited_for_and_told(served: str, monkeypatch: pytest.MonkeyPatch) -> None:
    throttled: list[float] = []

    def change(key: int, values: dict, answer: dict) -> None:
        if key == FETCH:
            throttled.append(time.monotonic())
            answer["throttleTimeMs"] = 60
            if len(throttled) == 2:  # a broker may answer nothing at all
                answer["responses"] = []

    monkeypatch.setattr(fetching, "_LONG_WAIT_MS", 100)
    with Between(served, change) as middle:
        done = run("cat", f"kafka://{middle.servers}/txn-a-0")
    assert done.code == 0, done.err
    assert done.text == run("cat", DATA, "txn-a-0").text
    assert len(throttled) > 2
    assert min(b - a for a, b in pairwise(throttled)) >= 0.06
    assert done.err.count("a quota of the cluster makes this client wait") == 1


def test_a_limit_of_our_own(served: str) -> None:
    size = sum(segment.size for segment in pylogseg.open_dir(DATA).select("txn-a").segments)
    begin = time.monotonic()
    pylogseg.read(f"kafka://{served}/txn-a", max_bytes_per_second=size * 4).to_arrow()
    assert time.monotonic() - begin > 0.2


# ---- connections that nobody uses ----


def test_connections_are_used_again_and_closed(served: str, monkeypatch: pytest.MonkeyPatch) -> None:
    connection.close_idle()
    with Between(served) as middle, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        monkeypatch.setattr(connection, "IDLE_S", 0.3)
        for _ in range(3):
            assert pylogseg.read(f"kafka://{middle.servers}/txn-a").to_arrow() == expected()
        gc.collect()
        assert not [each for each in caught if issubclass(each.category, ResourceWarning)]
        assert 0 < middle.open < 5
        until = time.monotonic() + 5
        while middle.open and time.monotonic() < until:
            time.sleep(0.02)
        assert not middle.open


def test_a_connection_that_the_broker_closed_is_not_taken() -> None:
    with pylogseg.Broker() as broker:
        broker.produce("orders", b"1")
        url = f"kafka://{broker.bootstrap_servers}/orders"
        assert pylogseg.read(url).count() == 1
        kept = [each.link for each in connection._idle if each.link.name in url]
        assert kept
    for link in kept:
        until = time.monotonic() + 5
        while connection._is_quiet(link) and time.monotonic() < until:
            time.sleep(0.01)
        assert not connection._is_quiet(link)
    assert connection.take_idle(next(each.key for each in connection._idle if each.link is kept[0])) not in kept


@pytest.mark.skipif(sys.platform != "linux", reason="forks")
def test_a_forked_process_has_connections_of_its_own(served: str) -> None:
    url = f"kafka://{served}/txn-a"
    assert pylogseg.read(url).to_arrow() == expected()
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply(_count, (url,)) == expected().num_rows
    assert pylogseg.read(url).to_arrow() == expected()


def _count(url: str) -> int:
    return pylogseg.read(url).count()


# ---- logins by a token ----


class TokenBroker:
    """Takes tokens that `is_good` accepts, each login for so many milliseconds."""

    def __init__(self, lifetime_ms: int = 0, good: str | None = None) -> None:
        self.tokens: list[str] = []
        self.mechanisms: set[str] = set()
        self.lifetime_ms, self.good = lifetime_ms, good

    def reply(self, key: int, values: dict) -> dict | None:
        if key == HANDSHAKE:
            self.mechanisms.add(values["mechanism"])
            return {"errorCode": 0, "mechanisms": ["OAUTHBEARER"]}
        if key != AUTHENTICATE:
            return None
        text = bytes(values["authBytes"]).decode()
        assert text.startswith("n,,\x01auth=Bearer ")
        assert text.endswith("\x01\x01")
        token = text[len("n,,\x01auth=Bearer ") : -2]
        self.tokens.append(token)
        is_good = self.good is None or token == self.good
        return {
            "errorCode": 0 if is_good else 58,
            "errorMessage": None if is_good else "token is not good",
            "authBytes": b"",
            "sessionLifetimeMs": self.lifetime_ms,
        }


BY_TOKEN = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}


def test_a_login_ends_and_another_one_begins(served: str) -> None:
    """KIP-368: on the same connection, before the broker ends it, with a new token."""
    tokens = iter(f"token-{number}" for number in range(1000))
    broker = TokenBroker(lifetime_ms=100)
    with Between(served, reply=broker.reply) as middle:
        options = {"cluster": BY_TOKEN, "token": lambda: next(tokens)}
        disk = pylogseg.open_dir(f"kafka://{middle.servers}/txn-a", storage_options=options)
        opened, links = len(broker.tokens), middle.open
        view = disk.partitions[0].segments[0].open()
        position = 0
        while data := view.read(position, 1 << 20):
            position += len(data)
            time.sleep(0.05)
        assert position == disk.partitions[0].segments[0].size
        assert middle.open <= links + 1
        assert len(broker.tokens) > opened + 1
        assert len(set(broker.tokens)) == len(broker.tokens)
        view.close()


def test_a_token_that_is_not_good(served: str) -> None:
    with Between(served, reply=TokenBroker(good="right").reply) as middle:
        url = f"kafka://{middle.servers}/txn-a"
        options = {"cluster": BY_TOKEN, "token": lambda: "wrong"}
        with pytest.raises(StorageError, match="token is not good"):
            pylogseg.open_dir(url, storage_options=options)
        command = {**BY_TOKEN, "sasl.oauthbearer.token.command": f"{sys.executable} -c 'print(\"right\")'"}
        assert pylogseg.read(pylogseg.open_dir(url, storage_options={"cluster": command})).to_arrow() == expected()


IAM = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "AWS_MSK_IAM", "aws.region": "eu-west-1"}
MODULE = "software.amazon.msk.auth.iam.IAMLoginModule required"


def test_msk_by_its_signer(served: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The token is a signed URL of the region with the key of the environment; the broker sees OAUTHBEARER."""
    pytest.importorskip("aws_msk_iam_sasl_signer")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hidden-key")
    monkeypatch.delenv("AWS_SESSION_TOKEN", raising=False)
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    broker = TokenBroker()
    with Between(served, reply=broker.reply) as middle:
        url = f"kafka://{middle.servers}/txn-a"
        for given in (IAM, {**IAM, "sasl.mechanism": "", "sasl.jaas.config": f"{MODULE};"}):
            disk = pylogseg.open_dir(url, storage_options={"cluster": given})
            assert pylogseg.read(disk).to_arrow() == expected()
            connection.close_idle()
    assert broker.mechanisms == {"OAUTHBEARER"}
    for token in broker.tokens:
        signed = urllib.parse.urlsplit(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode())
        query = urllib.parse.parse_qs(signed.query)
        assert signed.netloc == "kafka.eu-west-1.amazonaws.com"
        assert query["Action"] == ["kafka-cluster:Connect"]
        assert query["X-Amz-Credential"][0].startswith("AKIDEXAMPLE/")
        assert "hidden-key" not in signed.query


def test_the_region_of_msk(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    given = {name: value for name, value in IAM.items() if name != "aws.region"}
    host = "b-1.demo.abc.c2.kafka.ap-southeast-2.amazonaws.com:9098"
    assert settings_of(host, {"cluster": given}).token == MskSigner("ap-southeast-2")
    with pytest.raises(RequestError, match="AWS_MSK_IAM needs a region"):
        settings_of("h:9098", {"cluster": given})
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    jaas = f'{MODULE} awsProfileName="prod" awsRoleArn="arn:aws:iam::1:role/r";'
    named = settings_of("h:9098", {"cluster": {**given, "sasl.jaas.config": jaas}}).token
    assert named == MskSigner("us-east-1", "prod", "arn:aws:iam::1:role/r")


def test_msk_without_its_package_or_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", None)
    with pytest.raises(RequestError, match="pip install 'aws-msk-iam-sasl-signer-python"):
        MskSigner("us-east-1")()
    settings = settings_of("h:1", {"cluster": IAM})
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", type("Signer", (), {"MSKAuthTokenProvider": None}))
    with pytest.raises(RequestError, match="no token for region"):
        next(live_login.tokens(settings))


# ---- the rest of what brokers do ----


def test_a_leader_epoch_is_sent_and_an_unclean_election_ends_a_reading(served: str) -> None:
    """A newer leader whose log ends below what was read was not in sync."""
    epochs: list[int] = []

    def change(key: int, values: dict, answer: dict) -> None:
        if key == METADATA and epochs:
            for topic in answer["topics"]:
                for part in topic["partitions"]:
                    part["leaderEpoch"] += 100
        if key == FETCH:
            epochs.append(values["topics"][0]["partitions"][0]["currentLeaderEpoch"])
            if len(epochs) == 3:
                for part in parts_of(answer):
                    part.update(errorCode=74, records=part["records"].__class__(b""))
        if key == 23:  # OffsetForLeaderEpoch
            for topic in answer["topics"]:
                for part in topic["partitions"]:
                    part.update(errorCode=0, endOffset=1)

    with Between(served, change) as middle:
        disk = pylogseg.open_dir(f"kafka://{middle.servers}/txn-a-0")
        with pytest.raises(StorageError, match="the log was cut at offset 1 by an unclean election"):
            pylogseg.read(disk, on_corrupt="raise").to_arrow()
    assert epochs[0] >= 0


def test_each_request_has_one_partition(served: str) -> None:
    """A broker serves one tiered partition of a request; and none starves behind another's large batches."""
    asked: list[int] = []

    def change(key: int, values: dict, answer: dict) -> None:
        if key == FETCH:
            asked.append(sum(len(topic["partitions"]) for topic in values["topics"]))
            assert (values["sessionId"], values["sessionEpoch"]) == (0, -1)

    with Between(served, change) as middle:
        table = pylogseg.read(f"kafka://{middle.servers}/txn-a", jobs=2).to_arrow()
    assert table == expected()
    assert set(asked) == {1}


def test_groups_that_may_not_be_read() -> None:
    with pylogseg.Broker() as broker:
        broker.produce("orders", b"1")
        done = run("groups", f"kafka://{broker.bootstrap_servers}/orders")
    expect(done, 2, "does not show it to this user, who needs Describe and Read")


@pytest.mark.parametrize("command", ["groups", "copy"])
def test_groups_that_may_be_listed_and_not_read(command: str, tmp_path: Path) -> None:
    """A state that is missing is named, and the exit code is not 0."""
    with pylogseg.Broker() as broker:
        commit(broker)

        def change(key: int, values: dict, answer: dict) -> None:
            if key == FETCH:
                for part in parts_of(answer):
                    part.update(errorCode=29, records=part["records"].__class__(b""))

        with Between(broker.bootstrap_servers, change) as middle:
            url = f"kafka://{middle.servers}"
            target = [str(tmp_path / "copy"), "__consumer_offsets"] if command == "copy" else []
            done = run(command, url, *target)
    assert done.code in (1, 2)
    assert "__consumer_offsets-" in done.err + done.text
    assert "TOPIC_AUTHORIZATION_FAILED" in done.err + done.text


def commit(broker: pylogseg.Broker) -> None:
    from confluent_kafka import Consumer, TopicPartition

    broker.produce("orders", b"1")
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"})
    consumer.commit(offsets=[TopicPartition("orders", 0, 1)], asynchronous=False)
    consumer.close()


def test_bytes_that_somebody_holds_stay_as_they_are(served: str) -> None:
    """Each answer has memory of its own, however many come after it."""
    disk = pylogseg.open_dir(f"kafka://{served}/txn-a-0")
    held, position = [], 0
    with disk.partitions[0].segments[0].open() as view:
        while data := view.read(position, 1 << 20):
            held.append(data)
            position += len(data)
    segments = pylogseg.open_dir(DATA).select("txn-a-0").segments
    assert len(held) > 2
    assert b"".join(held) == b"".join(Path(segment.path).read_bytes() for segment in segments)
