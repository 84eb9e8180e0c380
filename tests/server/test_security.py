"""Tests of cli/serving.py, server/login.py, server/sasl.py, server/security.py, server/service.py and server/tls.py.
TLS and logins: real clients get in with what is right, and with what is wrong an error, soon.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
import os
import random
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiokafka
import kafka
import pytest
from helpers.certificates import Certificates, expired, make
from helpers.checks import wait_for
from helpers.depth import diagonals
from helpers.kafka_clients import PATIENCE_S, RawClient
from helpers.servers import reading
from helpers.shell import expect, run

import pylogseg
from pylogseg import Security
from pylogseg.errors import RequestError, StorageError
from pylogseg.server.connection import Limits
from pylogseg.server.sasl import ScramCredential, Users, parse_users
from pylogseg.server.server import Server
from pylogseg.server.service import ClientComplaints

confluent_kafka = pytest.importorskip("confluent_kafka")

DATA = Path(__file__).resolve().parents[2] / "examples" / "data"
TOPIC, RECORDS = "codec-zstd", 505
USERS = {"alice": "secret,=x", "bob": "Ünïcode: pass"}
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
HANDSHAKE, AUTHENTICATE, METADATA = 17, 36, 3


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def encrypted(files: Certificates) -> Iterator[pylogseg.Server]:
    with pylogseg.serve(DATA, security=Security(files.server, files.server_key)) as server:
        yield server


@pytest.fixture(scope="module")
def mutual(files: Certificates) -> Iterator[pylogseg.Server]:
    with pylogseg.serve(DATA, security=Security(files.server, files.server_key, files.ca)) as server:
        yield server


@pytest.fixture(scope="module")
def asking() -> Iterator[pylogseg.Server]:
    with pylogseg.serve(DATA, security=Security(users=USERS)) as server:
        yield server


@pytest.fixture(scope="module")
def both(files: Certificates) -> Iterator[pylogseg.Server]:
    with pylogseg.serve(DATA, security=Security(files.server, files.server_key, users=USERS)) as server:
        yield server


# ---- clients: the number of records that they read, or the error that they tell ----


def librdkafka(server: pylogseg.Server, **more: Any) -> int:
    """What librdkafka reads; its first error that is about the connection is raised."""
    said: list[str] = []
    client = confluent_kafka.Consumer(
        {"bootstrap.servers": server.bootstrap_servers, "group.id": "g", "enable.partition.eof": True, "log_level": 0,
         "error_cb": lambda error: said.append(error.str()), **more}
    )  # fmt: skip
    client.assign([confluent_kafka.TopicPartition(TOPIC, 0, 0)])
    until, count = time.monotonic() + PATIENCE_S, 0
    try:
        while time.monotonic() < until:
            message = client.poll(0.1)
            if said:
                raise ConnectionError(said[0])
            if message is not None and message.error():
                return count
            count += message is not None
        raise AssertionError(f"no progress; {count} records")
    finally:
        client.close()


def kafka_python(server: pylogseg.Server, **more: Any) -> int:
    client = kafka.KafkaConsumer(bootstrap_servers=server.bootstrap_servers, auto_offset_reset="earliest", **more)
    partition = kafka.TopicPartition(TOPIC, 0)
    client.assign([partition])
    until, count = time.monotonic() + PATIENCE_S, 0
    while (client.position(partition, timeout_ms=500) or 0) < RECORDS:
        assert time.monotonic() < until, f"no progress; {count} records"
        count += sum(map(len, client.poll(500).values()))
    client.close()
    return count


def aio(server: pylogseg.Server, **more: Any) -> int:
    async def read() -> int:
        client = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=server.bootstrap_servers, auto_offset_reset="earliest", **more
        )
        try:
            await client.start()
            client.assign([aiokafka.TopicPartition(TOPIC, 0)])
            until, count = time.monotonic() + PATIENCE_S, 0
            while count < RECORDS:
                assert time.monotonic() < until, f"no progress; {count} records"
                count += sum(map(len, (await client.getmany(timeout_ms=200)).values()))
            return count
        finally:
            await client.stop()

    return asyncio.run(read())


def settings_of(ca: str, cert: str | None = None, key: str | None = None) -> ssl.SSLContext:
    found = ssl.create_default_context(cafile=ca)
    if cert is not None:
        found.load_cert_chain(cert, key)
    return found


# ---- TLS ----


def test_clients_read_by_tls(encrypted: pylogseg.Server, files: Certificates) -> None:
    assert librdkafka(encrypted, **{"security.protocol": "SSL", "ssl.ca.location": files.ca}) == RECORDS
    assert kafka_python(encrypted, security_protocol="SSL", ssl_cafile=files.ca) == RECORDS
    assert aio(encrypted, security_protocol="SSL", ssl_context=settings_of(files.ca)) == RECORDS


def test_clients_read_with_certificates(mutual: pylogseg.Server, files: Certificates) -> None:
    mine = {"ssl.certificate.location": files.client, "ssl.key.location": files.client_key}
    assert librdkafka(mutual, **{"security.protocol": "SSL", "ssl.ca.location": files.ca, **mine}) == RECORDS
    own = {"ssl_certfile": files.client, "ssl_keyfile": files.client_key}
    assert kafka_python(mutual, security_protocol="SSL", ssl_cafile=files.ca, **own) == RECORDS
    context = settings_of(files.ca, files.client, files.client_key)
    assert aio(mutual, security_protocol="SSL", ssl_context=context) == RECORDS


def test_what_does_not_fit_is_an_error(
    encrypted: pylogseg.Server, mutual: pylogseg.Server, files: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    """Both sides say it: the client in its own words, the server once in its log."""
    with caplog.at_level(logging.WARNING, "pylogseg.server"):
        with pytest.raises(ConnectionError, match="certificate verify failed"):
            librdkafka(encrypted, **{"security.protocol": "SSL", "ssl.ca.location": files.other_ca})
        assert caplog.text.count("the client does not trust the certificate of this server") == 1
        with pytest.raises(ConnectionError, match="certificate required"):
            librdkafka(mutual, **{"security.protocol": "SSL", "ssl.ca.location": files.ca})
        assert "the client has no certificate, and this server wants one (--tls-ca)" in caplog.text
        with pytest.raises(ConnectionError, match="down"):
            librdkafka(encrypted)
        assert "the client does not speak TLS" in caplog.text
        with (
            pylogseg.serve(DATA) as plain,
            pytest.raises(ConnectionError, match="SSL connection closed by peer"),
        ):
            librdkafka(plain, **{"security.protocol": "SSL", "ssl.ca.location": files.ca})
        assert "it speaks TLS, and this server has no certificate" in caplog.text


def test_a_certificate_of_another_ca(mutual: pylogseg.Server, files: Certificates, tmp_path: Path) -> None:
    others = make(tmp_path)
    context = settings_of(files.ca, others.client, others.client_key)
    host, port = mutual.address
    with (
        socket.create_connection((host, port), PATIENCE_S) as bare,
        pytest.raises(ssl.SSLError),
        context.wrap_socket(bare, server_hostname="localhost") as client,
    ):
        client.recv(1)  # with TLS 1.3, the client thinks that it is in until it reads


def test_a_certificate_that_has_expired(
    mutual: pylogseg.Server, files: Certificates, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is signed by the right CA, and the server says what is wrong with it."""
    with caplog.at_level("WARNING", "pylogseg"):
        context = settings_of(files.ca, expired(files, tmp_path), files.client_key)
        with socket.create_connection(mutual.address, PATIENCE_S) as bare:
            _, port = bare.getsockname()
            with pytest.raises(ssl.SSLError), context.wrap_socket(bare, server_hostname="localhost") as client:
                client.recv(1)
        # The server says things about the clients of earlier tests too, as late as it likes.
        wait_for(lambda: any(f":{port}: " in said for said in caplog.messages))
    (said,) = (said for said in caplog.messages if f":{port}: " in said)
    assert "or one that signed it, has expired" in said


def test_old_versions_of_tls_are_refused(encrypted: pylogseg.Server, files: Certificates) -> None:
    context = settings_of(files.ca)
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLS"):
        context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    with socket.create_connection(encrypted.address, PATIENCE_S) as bare, pytest.raises(ssl.SSLError):
        context.wrap_socket(bare, server_hostname="localhost")


def test_large_answers_come_whole(encrypted: pylogseg.Server, files: Certificates, tmp_path: Path) -> None:
    """In pieces of the file, not all in memory; the bytes are those of the file."""
    folder = tmp_path / "large-0"
    with pylogseg.open_log(folder) as log:
        for _ in range(12):
            log.append([(None, None, os.urandom(900_000))])
    (segment,) = folder.glob("*.log")
    with (
        pylogseg.serve(folder, security=Security(files.server, files.server_key)) as server,
        RawClient(server.bootstrap_servers) as client,
    ):
        client.socket = settings_of(files.ca).wrap_socket(client.socket, server_hostname="localhost")
        asked = [{"partition": 0, "fetchOffset": 0, "partitionMaxBytes": 64 << 20, "currentLeaderEpoch": -1}]
        found = client.ask(1, 12, {"maxBytes": 64 << 20, "replicaId": -1, "sessionEpoch": -1,
                                   "topics": [{"topic": "large", "partitions": asked}]})  # fmt: skip
        assert bytes(found["responses"][0]["partitions"][0]["records"]) == segment.read_bytes()


def test_a_handshake_has_its_time(files: Certificates) -> None:
    """One that sends nothing is closed, and one that sends a byte now and then."""
    limits = Limits(handshake_s=0.3)
    with (
        Server(reading([DATA], security=Security(files.server, files.server_key)), limits=limits) as server,
        socket.create_connection(server.address, PATIENCE_S) as silent,
        socket.create_connection(server.address, PATIENCE_S) as slow,
    ):
        with contextlib.suppress(OSError):
            for byte in b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(400):
                slow.sendall(bytes([byte]))
                time.sleep(0.01)
        assert silent.recv(1) == b""
        wait_for(lambda: not server.connections)


def test_others_are_served_beside_a_handshake_that_waits(files: Certificates) -> None:
    with (
        pylogseg.serve(DATA, security=Security(files.server, files.server_key)) as server,
        socket.create_connection(server.address, PATIENCE_S),
    ):
        assert aio(server, security_protocol="SSL", ssl_context=settings_of(files.ca)) == RECORDS


def test_bytes_that_are_no_tls(files: Certificates) -> None:
    """Whatever comes in place of a handshake: closed, and others are served."""
    drawn = random.Random(1)
    with pylogseg.serve(DATA, security=Security(files.server, files.server_key)) as server:
        for number in range(40):
            data = drawn.randbytes(drawn.randrange(1, 3000))
            with socket.create_connection(server.address, PATIENCE_S) as client, contextlib.suppress(OSError):
                client.sendall(b"\x16\x03\x01" + data if number % 2 else data)
                client.shutdown(socket.SHUT_WR)
                while client.recv(1000):
                    pass
        assert aio(server, security_protocol="SSL", ssl_context=settings_of(files.ca)) == RECORDS


def test_a_stop_while_clients_of_tls_wait(files: Certificates) -> None:
    """Those in the middle of a handshake, idle ones, and one that waits for records."""
    server = pylogseg.serve(DATA, security=Security(files.server, files.server_key))
    context = settings_of(files.ca)
    with contextlib.ExitStack() as stack:
        for _ in range(10):
            stack.enter_context(socket.create_connection(server.address, PATIENCE_S))
            bare = socket.create_connection(server.address, PATIENCE_S)
            stack.enter_context(context.wrap_socket(bare, server_hostname="localhost"))
        client = stack.enter_context(RawClient(server.bootstrap_servers))
        client.socket = context.wrap_socket(client.socket, server_hostname="localhost")
        row = {"partition": 0, "fetchOffset": RECORDS, "partitionMaxBytes": 1, "currentLeaderEpoch": -1}
        client.send(1, 12, {"maxWaitMs": 60_000, "minBytes": 1, "maxBytes": 1, "replicaId": -1, "sessionEpoch": -1,
                            "topics": [{"topic": TOPIC, "partitions": [row]}]})  # fmt: skip
        wait_for(lambda: server.connections == 21)
        server.close()
        assert client.is_closed()
        wait_for(lambda: not server.connections)


# ---- SASL ----


@pytest.mark.parametrize(("user", "mechanism"), diagonals(sorted(USERS), MECHANISMS, 2))
def test_clients_log_in(
    asking: pylogseg.Server, both: pylogseg.Server, files: Certificates, mechanism: str, user: str
) -> None:
    for server, protocol in ((asking, "SASL_PLAINTEXT"), (both, "SASL_SSL")):
        login = {"security.protocol": protocol, "sasl.mechanism": mechanism, "ssl.ca.location": files.ca}
        assert librdkafka(server, **login, **{"sasl.username": user, "sasl.password": USERS[user]}) == RECORDS
        own = {"security_protocol": protocol, "sasl_mechanism": mechanism,
               "sasl_plain_username": user, "sasl_plain_password": USERS[user]}  # fmt: skip
        assert kafka_python(server, ssl_cafile=files.ca, **own) == RECORDS
        assert aio(server, ssl_context=settings_of(files.ca), **own) == RECORDS


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_wrong_passwords(asking: pylogseg.Server, mechanism: str) -> None:
    for user, password in (("alice", "secret"), ("alice", "Ünïcode: pass"), ("mallory", "secret,=x")):
        with pytest.raises(ConnectionError, match="Authentication failed"):
            librdkafka(
                asking,
                **{"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism,
                   "sasl.username": user, "sasl.password": password},
            )  # fmt: skip


def test_a_client_that_logs_in_where_nobody_has_to() -> None:
    with pylogseg.serve(DATA) as server:
        with pytest.raises(ConnectionError, match="not valid in current SASL state"):
            librdkafka(server, **{"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN",
                                  "sasl.username": "a", "sasl.password": "b"})  # fmt: skip
        with RawClient(server.bootstrap_servers) as client:
            assert client.ask(HANDSHAKE, 1, {"mechanism": "PLAIN"})["errorCode"] == 34
            assert client.ask(METADATA, 9, {"topics": []})["brokers"]


def test_what_is_allowed_before_a_login(asking: pylogseg.Server) -> None:
    with RawClient(asking.bootstrap_servers) as client:
        assert client.ask(18, 3, {"clientSoftwareName": "a", "clientSoftwareVersion": "1"})["errorCode"] == 0
        client.send(METADATA, 9, {"topics": None})
        assert client.is_closed()
    with RawClient(asking.bootstrap_servers) as client:
        assert client.ask(AUTHENTICATE, 2, {"authBytes": b"\0alice\0secret,=x"})["errorCode"] == 34
        assert client.is_closed()
    with RawClient(asking.bootstrap_servers) as client:
        found = client.ask(HANDSHAKE, 1, {"mechanism": "GSSAPI"})
        assert (found["errorCode"], found["mechanisms"]) == (33, MECHANISMS)
        assert client.is_closed()
    with RawClient(asking.bootstrap_servers) as client:
        assert client.ask(HANDSHAKE, 1, {"mechanism": "PLAIN"})["errorCode"] == 0
        client.send(METADATA, 9, {"topics": None})
        assert client.is_closed()
    with RawClient(asking.bootstrap_servers) as client:
        client.socket.sendall((512 * 1024 + 1).to_bytes(4, "big"))
        assert client.is_closed()


def test_a_login_in_both_ways(asking: pylogseg.Server) -> None:
    """By requests, and by tokens without a header as after version 0 of the handshake."""
    with RawClient(asking.bootstrap_servers) as client:
        assert client.ask(HANDSHAKE, 1, {"mechanism": "PLAIN"}) == {"errorCode": 0, "mechanisms": MECHANISMS}
        found = client.ask(AUTHENTICATE, 2, {"authBytes": b"\0alice\0secret,=x"})
        assert (found["errorCode"], found["sessionLifetimeMs"]) == (0, 0)
        assert client.ask(METADATA, 9, {"topics": []})["brokers"]
        assert client.ask(HANDSHAKE, 1, {"mechanism": "PLAIN"})["errorCode"] == 34
    for token, is_right in ((b"alice\0alice\0secret,=x", True), (b"\0alice\0wrong", False), (b"no token", False),
                            (b"bob\0alice\0secret,=x", False), (b"\0alice\0", False)):  # fmt: skip
        with RawClient(asking.bootstrap_servers) as client:
            assert client.ask(HANDSHAKE, 0, {"mechanism": "PLAIN"})["errorCode"] == 0
            client.socket.sendall(len(token).to_bytes(4, "big") + token)
            if is_right:
                assert client.socket.recv(4) == bytes(4)
                assert client.ask(METADATA, 9, {"topics": []})["brokers"]
            else:
                assert client.is_closed()


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"n,,",
        b"n,,n=alice",
        b"p=tls,,n=alice,r=x",
        b"n,a=bob,n=alice,r=x",
        b"n,,n=al=ice,r=x",
        b"n,,m=1,n=alice,r=x",
    ],
)
def test_scram_that_is_malformed(asking: pylogseg.Server, first: bytes) -> None:
    with RawClient(asking.bootstrap_servers) as client:
        client.ask(HANDSHAKE, 1, {"mechanism": "SCRAM-SHA-256"})
        assert client.ask(AUTHENTICATE, 2, {"authBytes": first})["errorCode"] == 58
        assert client.is_closed()


@pytest.mark.parametrize("last", [b"", b"c=biws,r=x,p=AAAA", b"c=biws,r={},p=!", b"c=biws,r={},p=" + b"A" * 43 + b"="])
def test_a_proof_that_is_none(asking: pylogseg.Server, last: bytes) -> None:
    with RawClient(asking.bootstrap_servers) as client:
        client.ask(HANDSHAKE, 1, {"mechanism": "SCRAM-SHA-256"})
        said = client.ask(AUTHENTICATE, 2, {"authBytes": b"n,,n=alice,r=x"})["authBytes"]
        nonce = said.split(b",")[0][2:]
        assert nonce.startswith(b"x")
        assert client.ask(AUTHENTICATE, 2, {"authBytes": last.replace(b"{}", nonce)})["errorCode"] == 58
        assert client.is_closed()


def test_a_name_that_is_not_here_looks_like_one_that_is(asking: pylogseg.Server) -> None:
    for name in (b"alice", b"mallory"):
        salts = set()
        for _ in range(2):
            with RawClient(asking.bootstrap_servers) as client:
                client.ask(HANDSHAKE, 1, {"mechanism": "SCRAM-SHA-512"})
                said = client.ask(AUTHENTICATE, 2, {"authBytes": b"n,,n=" + name + b",r=x"})["authBytes"]
                salts.add(said.split(b",")[1])
                assert said.endswith(b",i=4096")
        assert len(salts) == 1


def stored(mechanism: str, password: str) -> str:
    """What kafka-configs.sh shows for a user."""
    kept = ScramCredential.of(mechanism, password.encode(), b"some salt", 8192)
    salt, key, server_key = (base64.b64encode(each).decode() for each in kept[:3])
    return f"{mechanism}=salt={salt},stored_key={key},server_key={server_key},iterations=8192"


def test_names_look_alike_beside_stored_passwords() -> None:
    """Who has a stored password, who has a plain one, and who is not here: none stands out by salt or iterations."""
    users = Users({"alice": stored("SCRAM-SHA-512", "secret"), "bob": "secret"})
    forms = {}
    for name in ("alice", "bob", *(f"nobody-{number}" for number in range(30))):
        said = [users.begin("SCRAM-SHA-512").step(b"n,,n=" + name.encode() + b",r=x") for _ in range(2)]
        salts = {each.split(b",")[1] for each in said}
        assert len(salts) == 1, "it is the same again"
        forms[name] = len(base64.b64decode(salts.pop()[2:])), said[0].split(b",")[2]
    others = {form for name, form in forms.items() if name.startswith("nobody")}
    assert others == {forms["alice"], forms["bob"]} == {(9, b"i=8192"), (16, b"i=4096")}


@pytest.mark.skipif(os.name == "nt", reason="modes of POSIX")
def test_passwords_that_others_can_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "users"
    path.write_text("alice:secret")
    for mode, said in ((0o644, True), (0o600, False)):
        path.chmod(mode)
        caplog.clear()
        with caplog.at_level(logging.WARNING, "pylogseg.server"):
            pylogseg.serve(DATA, security=Security(users=path)).close()
        assert ("others on this machine can read the passwords: chmod 600" in caplog.text) == said
        assert "secret" not in caplog.text


def test_stored_passwords(tmp_path: Path) -> None:
    """Nothing of the password is in the file, and clients may still use PLAIN."""
    path = tmp_path / "users"
    path.write_text(f"carol:{stored('SCRAM-SHA-512', 'open sesame')}\n\n# staff\n", encoding="utf-8-sig")
    path.chmod(0o600)
    with pylogseg.serve(DATA, security=Security(users=path)) as server:
        for mechanism in ("PLAIN", "SCRAM-SHA-512"):
            login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism, "sasl.username": "carol"}
            assert librdkafka(server, **login, **{"sasl.password": "open sesame"}) == RECORDS
            with pytest.raises(ConnectionError, match="Authentication failed"):
                librdkafka(server, **login, **{"sasl.password": "close sesame"})
        with RawClient(server.bootstrap_servers) as client:
            assert client.ask(HANDSHAKE, 1, {"mechanism": "SCRAM-SHA-256"})["mechanisms"] == ["PLAIN", "SCRAM-SHA-512"]


# ---- settings ----


def test_files_that_do_not_fit(files: Certificates, tmp_path: Path) -> None:
    locked = tmp_path / "locked.key"
    assert os.system(f"openssl pkey -in {files.server_key} -aes256 -passout pass:hunter2 -out {locked}") == 0
    for security, said in (
        (Security(files.server, files.client_key), "the key does not belong to the certificate"),
        (Security(files.server), "not usable in TLS"),
        (Security(files.server, str(locked)), "the key is encrypted"),
        (Security(files.server, files.server_key, files.server_key), "no certificate in PEM"),
        (Security(tls_key=files.server_key), "needs a certificate too"),
        (Security(tls_ca=files.ca), "needs a certificate too"),
        (Security(mechanisms=["PLAIN"]), "need users"),
        (Security(users={}), "there is no user"),
        (Security(users={"a": "b"}, mechanisms=["GSSAPI"]), "choose among PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"),
        (Security(users={"a": stored("SCRAM-SHA-512", "b")}, mechanisms=["SCRAM-SHA-256"]), "no user can use it"),
        (Security(users={"a": "SCRAM-SHA-256=salt=AAAA"}), "a: SCRAM-SHA-256 needs salt="),
    ):
        with pytest.raises(RequestError, match=said.replace("(", r"\(")):
            pylogseg.serve(DATA, security=security)
    for security in (Security("nothing.pem"), Security(files.server, "nothing.pem"), Security(users="nothing")):
        with pytest.raises(StorageError, match="nothing"):
            pylogseg.serve(DATA, security=security)


def test_lines_of_users() -> None:
    assert parse_users("# x\n\na:b:c\nd: e \n", "f") == {"a": "b:c", "d": " e "}
    for text, said in (
        ("a", "f: line 1 is not of the form"),
        ("a:b\n:c", "line 2"),
        ("a:b\na:c", "a user 'a' already"),
    ):
        with pytest.raises(RequestError, match=said):
            parse_users(text, "f")


def test_passwords_are_in_no_text(asking: pylogseg.Server) -> None:
    for each in (
        Security(users=USERS),
        Users(USERS),
        ScramCredential.of("SCRAM-SHA-256", b"secret", b"salt"),
        asking._service.guard,
    ):
        assert "secret" not in repr(each)
        assert "stored_key" not in repr(each)


def test_warnings(files: Certificates) -> None:
    """Of what other machines can read: who may, and what crosses the network in the clear."""
    for security, listen, said in (
        (Security(), "127.0.0.1:0", []),
        (Security(), "0.0.0.0:0", ["can read without a password: legacy"]),
        (Security(files.server, files.server_key), "0.0.0.0:0", ["can read without a password: legacy"]),
        (Security(files.server, files.server_key, files.ca), "0.0.0.0:0", []),
        (Security(files.server, files.server_key, users=USERS), "0.0.0.0:0", []),
        (Security(users=USERS), "0.0.0.0:0", ["passwords of PLAIN"]),
        (Security(users=USERS, mechanisms=["SCRAM-SHA-512"]), "0.0.0.0:0", ["all records cross the network"]),
        (Security(users=USERS), "127.0.0.1:0", []),
    ):
        with pylogseg.serve(DATA, topic="legacy", listen=listen, security=security) as server:
            found = list(server.warnings())
            assert len(found) == len(said), found
            assert all(part in text for part, text in zip(said, found, strict=True))


def test_a_complaint_comes_once(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    complaints = ClientComplaints(logging.getLogger("pylogseg.server.test"), lambda: now)
    with caplog.at_level(logging.WARNING, "pylogseg.server.test"):
        for at in (0.0, 1.0, 59.0, 61.0, 62.0):
            now = at
            complaints.add("1.2.3.4", f"1.2.3.4:{at:g}", "closed: it is rude")
        assert [each.getMessage() for each in caplog.records] == [
            "1.2.3.4:0: closed: it is rude",
            "1.2.3.4:61: closed: it is rude (and 2 times more since the last word of it)",
        ]


def test_words_of_clients_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    complaints = ClientComplaints(logging.getLogger("pylogseg.server.test"), lambda: now)
    with caplog.at_level(logging.WARNING, "pylogseg.server.test"):
        for at in (0.0, 61.0):
            now = at
            for number in range(100):
                complaints.add("1.2.3.4", "x" * 10_000, f"{number} " + "y" * 10_000)
    said = [each.getMessage() for each in caplog.records]
    assert len(said) == 2 * 11
    assert max(map(len, said)) < 700
    assert "is not said one by one (and 89 times more" in said[-1]


def test_who_does_not_log_in_makes_room() -> None:
    """All places are taken by clients that say nothing; one that logs in gets the place of the oldest."""
    limits = Limits(connections=5)
    with Server(reading([DATA], security=Security(users=USERS)), limits=limits) as server:
        silent = [socket.create_connection(server.address, PATIENCE_S) for _ in range(5)]
        wait_for(lambda: server.connections == 5)
        with RawClient(server.bootstrap_servers) as client:
            client.ask(HANDSHAKE, 1, {"mechanism": "PLAIN"})
            assert silent[0].recv(1) == b"", "the oldest has gone"
            assert client.ask(AUTHENTICATE, 2, {"authBytes": b"\0alice\0secret,=x"})["errorCode"] == 0
            more = [socket.create_connection(server.address, PATIENCE_S) for _ in range(10)]
            for each in (*silent[1:], *more[:6]):
                assert each.recv(1) == b""
            client.ask(3, 9, {"topics": None})  # who has logged in keeps its place
        for each in (*silent, *more):
            each.close()


def test_a_request_that_comes_byte_by_byte() -> None:
    limits = Limits(stalled_s=0.3)
    with Server(reading([DATA]), limits=limits) as server, RawClient(server.bootstrap_servers) as client:
        try:
            for byte in (1000).to_bytes(4, "big") + bytes(900):
                client.socket.sendall(bytes([byte]))
                time.sleep(0.03)
        except OSError:
            return
        raise AssertionError("it went on for half a minute")


def test_before_its_login_a_client_is_not_idle_for_long() -> None:
    limits = Limits(stalled_s=0.3)
    security = Security(users=USERS)
    with (
        Server(reading([DATA], security=security), limits=limits) as server,
        RawClient(server.bootstrap_servers) as client,
    ):
        assert client.is_closed()


def test_the_command(files: Certificates, tmp_path: Path) -> None:
    expect(run(f"serve {DATA} --tls-key {files.server_key}"), 2, "--tls-cert")
    (tmp_path / "users").write_text("alice secret")
    done = run(f"serve {DATA} --users {tmp_path / 'users'}")
    expect(done, 2, "line 1 is not of the form NAME:PASSWORD")
    assert "secret" not in done.err


def test_users_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYLOGSEG_USERS", "alice:secret\nbob")
    expect(run(f"serve {DATA}"), 2, "PYLOGSEG_USERS: line 2 is not of the form NAME:PASSWORD")
