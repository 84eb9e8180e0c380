"""Tests of live/connection.py and live/settings.py. Tests of live/settings.py, live/login.py and live/connection.py:
addresses, TLS, logins, and what fails.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.certificates import Certificates, make
from helpers.shell import expect
from helpers.shell import pylogseg as run

import pylogseg
from pylogseg import Security
from pylogseg.errors import RequestError, StorageError
from pylogseg.live import connection as live_connection
from pylogseg.live.settings import settings_of

DATA = Path(__file__).resolve().parents[2] / "examples" / "data"
USER, PASSWORD = "a=l,ice", "secret,=x Ü"
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def server(certificates: Certificates) -> Iterator[pylogseg.Server]:
    security = Security(certificates.server, certificates.server_key, users={USER: PASSWORD})
    with pylogseg.serve(DATA, security=security) as server:
        yield server


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pylogseg.live.cluster.PATIENCE_S", 0.3)
    monkeypatch.setattr("pylogseg.live.cluster.ELECTION_S", 0.3)


def properties(certificates: Certificates, mechanism: str, password: str = PASSWORD) -> dict[str, str]:
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": mechanism,
        "sasl.username": USER,
        "sasl.password": password,
        "ssl.truststore.location": str(certificates.ca),
        "ssl.truststore.type": "PEM",
    }


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_who_may_log_in_reads(server: pylogseg.Server, certificates: Certificates, mechanism: str) -> None:
    url = f"kafka://{server.bootstrap_servers}/txn-a"
    options = {"cluster": properties(certificates, mechanism)}
    disk = pylogseg.open_dir(url, storage_options=options)
    assert pylogseg.read(disk).to_arrow() == pylogseg.read(DATA, "txn-a").to_arrow()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_is_said_and_not_shown(
    server: pylogseg.Server, certificates: Certificates, mechanism: str
) -> None:
    options = {"cluster": properties(certificates, mechanism, "wrong-one")}
    with pytest.raises(StorageError, match="cannot log in: Authentication failed") as caught:
        pylogseg.open_dir(f"kafka://{server.bootstrap_servers}", storage_options=options)
    assert "wrong-one" not in str(caught.value)
    assert PASSWORD not in repr(settings_of("h:1", options))
    assert "wrong-one" not in repr(settings_of("h:1", options))


def test_a_file_of_java(
    server: pylogseg.Server, certificates: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shell takes a properties file; the password is in the environment, or in JAAS as Java has it."""
    jaas = (
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="{USER}" password="${{env:KAFKA_PASSWORD}}";\n'
    )
    lines = [f"{name}={value}\n" for name, value in properties(certificates, "SCRAM-SHA-512").items()]
    file = tmp_path / "client.properties"
    text = "".join(line for line in lines if "username" not in line and "sasl.password" not in line) + jaas
    file.write_text(text + f"bootstrap.servers={server.bootstrap_servers}\n", encoding="utf-8")
    monkeypatch.setenv("KAFKA_PASSWORD", PASSWORD)
    monkeypatch.setenv("PYLOGSEG_CLUSTER", str(file))
    expect(run("cat", "kafka:///txn-a", "--limit", "1"), 0, out='"c0"')
    monkeypatch.delenv("KAFKA_PASSWORD")
    expect(run("--cluster", file, "ls", "kafka:///txn-a"), 2, "the environment has no KAFKA_PASSWORD")


def test_a_mechanism_that_the_broker_does_not_have(certificates: Certificates) -> None:
    security = Security(certificates.server, certificates.server_key, users={USER: PASSWORD}, mechanisms=["PLAIN"])
    with pylogseg.serve(DATA, security=security) as server:
        options = {"cluster": properties(certificates, "SCRAM-SHA-256")}
        with pytest.raises(StorageError, match="the broker has no SCRAM-SHA-256; it has PLAIN"):
            pylogseg.open_dir(f"kafka://{server.bootstrap_servers}", storage_options=options)


def test_a_certificate_that_is_not_trusted(server: pylogseg.Server, certificates: Certificates) -> None:
    options = {"cluster": {**properties(certificates, "PLAIN"), "ssl.truststore.location": ""}}
    with pytest.raises(StorageError, match="its certificate: "):
        pylogseg.open_dir(f"kafka://{server.bootstrap_servers}", storage_options=options)


def test_plain_text_to_a_port_of_tls(server: pylogseg.Server) -> None:
    with pytest.raises(StorageError, match="is this a port of Kafka"):
        pylogseg.open_dir(f"kafka://{server.bootstrap_servers}")


def test_tokens() -> None:
    options = {"cluster": {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}}
    assert settings_of("h:1", {**options, "token": lambda: "abc"}).read_token() == "abc"
    options["cluster"]["sasl.oauthbearer.token.command"] = f"{sys.executable} -c 'print(42)'"
    assert settings_of("h:1", options).read_token() == "42"
    options["cluster"]["sasl.oauthbearer.token.command"] = "/nowhere/tool"
    with pytest.raises(RequestError, match="/nowhere/tool: no token"):
        settings_of("h:1", options).read_token()


@pytest.mark.parametrize(
    ("host", "options", "text"),
    [
        ("", {}, "no address"),
        ("alice:secret@h:1", {}, "a URL holds no user or password"),
        ("h:0", {}, "not of the form HOST:PORT"),
        ("h:1", {"security.protocol": "KERBEROS"}, "choose among PLAINTEXT"),
        ("h:1", {"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"}, "choose among PLAIN,"),
        ("h:1", {"security.protocol": "SASL_SSL"}, "PLAIN needs sasl.username and sasl.password"),
        ("h:1", {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}, "token.command"),
        ("h:1", {"security.protocol": "SSL", "ssl.truststore.location": "a.jks"}, "only PEM is read"),
    ],
)
def test_settings_that_are_refused(host: str, options: dict[str, str], text: str) -> None:
    with pytest.raises(RequestError, match=text) as caught:
        settings_of(host, {"cluster": options})
    assert "secret" not in str(caught.value)


def test_addresses() -> None:
    servers = settings_of("PLAINTEXT://a:1,b,[::1]:7", {}).servers
    assert servers == (("a", 1), ("b", 9092), ("::1", 7))
    assert settings_of("a:1,[::1]:7", {}).address == "a:1,[::1]:7"


def test_a_large_answer_is_refused_before_it_is_allocated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_connection, "_MOST_BYTES", 100)
    with pylogseg.serve(DATA) as server, pytest.raises(StorageError, match="is this a port of Kafka"):
        pylogseg.open_dir(f"kafka://{server.bootstrap_servers}")


def test_secrets_stay_out_of_a_repr() -> None:
    given = {"security.protocol": "SASL_SSL", "sasl.username": "u", "sasl.password": "hidden"}
    settings = settings_of("h:1", {"cluster": given})
    assert "hidden" not in repr(settings)
    assert dataclasses.replace(settings, user="v").password == "hidden"
