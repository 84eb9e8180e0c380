"""Tests of values/schemas/registry.py. Schemas over HTTP, from a server of our own."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import pylogseg
from pylogseg.errors import RequestError
from pylogseg.values.schemas.registry import Registry

ANSWERS = {
    "/schemas/ids/5": {"schema": '"int"', "references": [{"name": "n", "subject": "s:1", "version": 2}]},
    "/schemas/ids/5?subject=%3A.x%3A": {"schema": '"long"'},
    "/subjects/s%3A1/versions/2": {"subject": "s:1", "version": 2, "id": 6, "schema": "{}", "schemaType": "JSON"},
    "/subjects/a/versions/latest": {"subject": "a", "version": 9, "id": 7, "schema": '"int"'},
    "/schemas/guids/g-1": {"schema": '"bytes"', "guid": "g-1", "id": 8},
}


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append((self.path, self.headers.get("Authorization")))
            answer = ANSWERS.get(self.path)
            raw = b"<html>" if self.path == "/schemas/ids/66" else json.dumps(answer or {"error_code": 40403}).encode()
            self.send_response(500 if self.path == "/schemas/ids/50" else 200 if answer or raw[:1] == b"<" else 404)
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, *_: object) -> None:
            pass

    asked: list[tuple[str, str | None]] = []
    made = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.asked = asked  # type: ignore[attr-defined]
    thread = threading.Thread(target=made.serve_forever, daemon=True)
    thread.start()
    yield made
    made.shutdown()
    made.server_close()
    thread.join()


def test_a_registry_is_asked_once(server: ThreadingHTTPServer, tmp_path: Path) -> None:
    url = f"http://us%40er:pass@127.0.0.1:{server.server_port}/"
    schemas = pylogseg.Schemas.open(url, cache=tmp_path)
    found = schemas.by_id(5)
    assert found is not None
    assert (found.text, found.id, found.context) == ('"int"', 5, ".")
    assert schemas.references(found)["n"].id == 6
    other, last, named = schemas.by_id(5, ".x"), schemas.version("a"), schemas.by_guid("g-1")
    assert other is not None
    assert last is not None
    assert named is not None
    assert (other.text, last.version, named.id) == ('"long"', 9, 8)
    assert schemas.by_id(404) is None
    asked = server.asked  # type: ignore[attr-defined]
    assert {login for _, login in asked} == {"Basic dXNAZXI6cGFzcw=="}
    count = len(asked)
    again = pylogseg.Schemas.open(url, cache=tmp_path)
    assert again.by_id(5) == found
    assert len(asked) == count
    assert again.version("a") == last
    assert len(asked) == count + 1
    assert "pass" not in repr(Registry(url, tmp_path))


def test_failures(server: ThreadingHTTPServer, tmp_path: Path) -> None:
    registry = Registry(f"http://127.0.0.1:{server.server_port}", tmp_path)
    with pytest.raises(pylogseg.StorageError, match="HTTP 500"):
        registry.by_id(50, ".")
    with pytest.raises(pylogseg.StorageError, match="not a schema in JSON"):
        registry.by_id(66, ".")
    with pytest.raises(RequestError, match="registry: expected a URL"):
        Registry("ftp://host")
    server.server_close()
    with pytest.raises(pylogseg.StorageError, match="does not answer"):
        Registry(f"http://127.0.0.1:{server.server_port}", tmp_path).by_id(1, ".")
