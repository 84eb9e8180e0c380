"""Tests of values/schemas/registry.py. A registry is a stranger: whatever it answers, there is a schema or an error of
ours, in time, without a password.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import pylogseg
from pylogseg.errors import RequestError
from pylogseg.values.schemas import registry as registry_module
from pylogseg.values.schemas.registry import Registry
from pylogseg.values.schemas.schema import Reference, Schema

OK = b"HTTP/1.1 200 OK\r\n"
GOOD = json.dumps({"schema": '"int"', "id": 1}).encode()
#: Answers that are none; of the head, and of the body.
HEADS = [
    b"", b"garbage\r\n\r\n", OK + b"Content-Length: 100\r\n\r\n{}", OK + b"A: b\r\n" * 200 + b"\r\n",
    OK + b"A: " + b"x" * 70000 + b"\r\n\r\n", OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    OK + b"Content-Length: -5\r\n\r\n", b"HTTP/1.1 500 \x1b[31m\r\n\r\n", b"HTTP/1.1 204 No\r\n\r\n",
    b"HTTP/1.1 999 \r\n\r\n", b"HTTP/1.1 401 No\r\n\r\n", b"HTTP/9.9 abc\r\n\r\n", OK + b"\r\n" + b" " * 70000,
]  # fmt: skip
BODIES = [
    "[" * 200_000, '{"a":' * 200_000, "9" * 5000, "null", "[]", "1", "<html>", "{}", '{"schema": 1}',
    '{"schema": null}',
    '{"schema": "\\ud800"}', '{"schema": "x", "schemaType": [1]}', '{"schema": "x", "id": "y"}', "\xff",
    '{"schema": "x", "id": true}', '{"schema": "x", "guid": 5}', '{"schema": "x", "metadata": 5}',
    '{"schema": "x", "ruleSet": [[]]}', '{"schema": "x", "ruleSet": {"domainRules": [1]}}',
    '{"schema": "x", "metadata": {"tags": 7}}', '{"schema": {"type": "int"}}',
]  # fmt: skip
#: Those are put up with: what is none is passed by.
ODD = [
    '{"schema": "x", "references": [[1]]}', '{"schema": "x", "references": 5}', '{"schema": "x", "version": 3}',
    '{"schema": "x", "references": [{"name": 1}]}', '{"schema": "x", "more": {}}',
]  # fmt: skip


class Server:
    """Answers with bytes as they are; keeps what it was asked."""

    def __init__(self) -> None:
        self.answer = b""
        self.drip: bytes = b""
        self.asked: list[bytes] = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self.ended = threading.Event()
        threading.Thread(target=self._serve, daemon=True).start()

    def url(self, login: str = "") -> str:
        return f"http://{login}127.0.0.1:{self.port}"

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._socket.accept()
            except OSError:
                return
            with client:
                client.settimeout(60)
                try:
                    self.asked.append(client.recv(65536))
                    client.sendall(self.answer)
                    while self.drip:
                        client.sendall(self.drip)
                        time.sleep(0.02)
                    client.shutdown(socket.SHUT_WR)
                except OSError:
                    self.ended.set()

    def close(self) -> None:
        self.drip = b""
        self._socket.close()


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


def test_every_answer_is_a_schema_or_an_error_of_ours(server: Server, tmp_path: Path) -> None:
    registry = Registry(server.url("us:s3cret@"), tmp_path)
    answers = HEADS + [OK + b"\r\n" + body.encode("latin-1") for body in BODIES]
    for server.answer in answers:
        for ask in (lambda: registry.by_id(1, "."), lambda: registry.by_guid("g/1"), lambda: registry.version("a", 3)):
            with pytest.raises(pylogseg.StorageError) as failed:
                ask()
            assert str(failed.value).isprintable()
            assert "s3cret" not in str(failed.value)
    assert len(server.asked) == 3 * len(answers)  # nothing of it was kept
    for number, body in enumerate(ODD):
        server.answer = OK + b"\r\n" + body.encode()
        found = registry.by_id(number, ".")
        assert found is not None
        assert (found.text, found.id, found.references) == ("x", number, ())
    assert not any(b"g/1" in asked for asked in server.asked)


def test_only_schemas_are_kept(server: Server, tmp_path: Path) -> None:
    registry = Registry(server.url(), tmp_path)
    server.answer = OK + b"\r\n" + GOOD
    first = registry.by_id(1, ".")
    assert registry.by_id(1, ".") == first
    assert len(server.asked) == 1
    (kept,) = [path for path in tmp_path.rglob("*") if path.is_file()]
    for bogus in (b"", b"{}", b"[" * 100_000, b"\xff", b'{"schema": 1}'):
        kept.write_bytes(bogus)
        assert registry.by_id(1, ".") == first
        assert kept.read_bytes() == GOOD
    assert len(server.asked) == 6


def test_the_answer_is_of_what_was_asked_for(server: Server, tmp_path: Path) -> None:
    registry = Registry(server.url(), tmp_path)
    server.answer = OK + b"\r\n" + json.dumps({"schema": '"int"', "id": 2, "version": 2}).encode()
    for ask in (lambda: registry.by_id(1, "."), lambda: registry.version("a", 3)):
        with pytest.raises(pylogseg.StorageError):
            ask()
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_redirects_are_not_followed(server: Server, tmp_path: Path, code: int) -> None:
    other = Server()
    for target in (other.url() + "/schemas/ids/1", "file:///etc/passwd", "ftp://127.0.0.1/", "http://[::1", "/", ""):
        server.answer = f"HTTP/1.1 {code} Found\r\nLocation: {target}\r\n\r\n".encode()
        with pytest.raises(pylogseg.StorageError, match=f"HTTP {code}: redirects are not followed"):
            Registry(server.url("us:s3cret@"), tmp_path).by_id(1, ".")
    assert b"Authorization: Basic" in server.asked[0]
    assert not other.asked
    other.close()


@pytest.mark.parametrize(
    ("head", "drip"),
    [(b"", b""), (b"H", b"T"), (OK, b"A"), (OK + b"Content-Length: 1000000\r\n\r\n", b" "), (OK + b"\r\n", b"[")],
)
def test_a_registry_that_drips_is_left(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, head: bytes, drip: bytes
) -> None:
    """One time for the whole request; the connection is ended, and with it the thread that reads it."""
    monkeypatch.setattr(registry_module, "TIMEOUT_S", 0.2)
    server.answer, server.drip = head, drip
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = server.port if drip else silent.getsockname()[1]
        with pytest.raises(pylogseg.StorageError, match=r"has not answered within 0.2 s|does not answer"):
            Registry(f"http://127.0.0.1:{port}", tmp_path).by_id(1, ".")
    if drip:
        assert server.ended.wait(10)
    for thread in threading.enumerate():
        if thread.name == "pylogseg-registry":
            thread.join(10)
            assert not thread.is_alive()


def test_a_huge_answer_is_refused(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_module, "_MOST_BYTES", 1000)
    server.answer = OK + b"\r\n" + GOOD + b" " * 2000
    with pytest.raises(pylogseg.StorageError, match="more than 1000 bytes"):
        Registry(server.url(), tmp_path).by_id(1, ".")


def test_references_without_end_are_refused(server: Server, tmp_path: Path) -> None:
    """A registry may name two more schemas in each."""
    registry = Registry(server.url(), tmp_path)
    schemas = pylogseg.Schemas(registry=registry)
    refs = [{"name": f"n{i}", "subject": f"s{i}", "version": -1} for i in range(1100)]
    server.answer = OK + b"\r\n" + json.dumps({"schema": '"int"', "references": refs}).encode()
    with pytest.raises(RequestError, match="refers to more than 1000 schemas"):
        schemas.references(Schema('"int"', references=(Reference("first", "first", -1),)))


@pytest.mark.parametrize(
    "url",
    ["us:s3cret@127.0.0.1:8081", "ftp://us:s3cret@h", "http://[::1", "http://us:s3cret@h:1x", "http://us:s3/cret@h:80",
     "http://us:1/s3cret@h", "http://", "http://us:s3cret@", "//us:s3cret@h", "http://us:s3cret@[::1", "http://h:0"],
)  # fmt: skip
def test_urls_that_are_none(url: str, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="registry: expected a URL as") as failed:
        pylogseg.Schemas.open(url, cache=tmp_path)
    assert "cret" not in str(failed.value)


@pytest.mark.parametrize(
    "host", ["a..b", "a" * 300, "\u202e", "us:p%zz@127.0.0.1:1", "127.0.0.1:1/a b", "127.0.0.1:1/\n"]
)
def test_hosts_that_are_none(host: str, tmp_path: Path) -> None:
    with pytest.raises(pylogseg.PylogsegError):
        Registry(f"http://{host}", tmp_path).by_id(1, ".")
