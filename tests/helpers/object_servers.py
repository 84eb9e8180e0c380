"""A server that speaks as much of S3 as fsspec's client needs, on the loopback, and does to requests what stores do.

It keeps objects itself, or hands requests on to another server (moto). A fault is met by the client's own code, with
its patience and its retries: that is what is tested.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import threading
import urllib.parse
from collections import Counter
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal, NamedTuple
from xml.sax.saxutils import escape

#: ``busy``: refused, come again. ``lost``: done, and the connection breaks before the answer. ``broken``: the same, not
#: done. ``late``: done, and answered when nobody waits any more. ``hangs``: not done, and never answered. ``after``: as
#: ``hangs``, but it is done when `ObjectServer.do_after` is called, long after the client has gone.
Fault = Literal["busy", "lost", "broken", "late", "hangs", "after"]
FAULTS: tuple[Fault, ...] = ("busy", "lost", "broken", "late", "hangs", "after")
BUCKET = "bucket"
#: How long a client of `ObjectServer.options` waits for an answer.
PATIENCE_S = 1.0
_BUSY = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"


class Request(NamedTuple):
    """A request: of an object, or of the bucket where the name is empty."""

    method: str
    name: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes
    target: str


class Answer(NamedTuple):
    status: int
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()


class ObjectServer:
    """The server.

    Parameters
    ----------
    behind : str, optional
        Host and port of a server that keeps the objects, in a bucket of the same name.

    Attributes
    ----------
    meets : function
        Returns the fault that a request meets, or None; called by several threads.
    objects : dict of str to bytes
        Those of the bucket, by name, without `behind`.
    puts : Counter
        How often each object was stored.
    options, environment : dict
        What fsspec has to be given, here and in another process.
    """

    def __init__(self, behind: str | None = None) -> None:
        self.meets: Callable[[Request], Fault | None] = lambda request: None
        self.objects: dict[str, bytes] = {}
        self.puts: Counter[str] = Counter()
        self.after: list[Request] = []
        self._behind, self._lock, self._end = behind, threading.Lock(), threading.Event()
        self._doing, self._is_quiet = 0, threading.Condition()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: Any) -> None:
                """Nothing."""

            def handle_one_request(self) -> None:
                with contextlib.suppress(ConnectionError):  # the client was killed, or has lost its patience
                    super().handle_one_request()
                    return
                self.close_connection = True

            def _answer(self) -> None:
                with server._counted():
                    server._meet(self)

            do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = _answer

        class Server(ThreadingHTTPServer):
            daemon_threads, request_queue_size = True, 64

        self._server = Server(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{self._server.server_port}"
        config = {"read_timeout": PATIENCE_S, "connect_timeout": 5, "retries": {"max_attempts": 1}}
        self.options: dict[str, Any] = {
            "key": "id", "secret": "secret", "client_kwargs": {"endpoint_url": url, "region_name": "us-east-1"},
            "config_kwargs": config,
        }  # fmt: skip
        self.environment = {"FSSPEC_S3": json.dumps(self.options)}

    def close(self) -> None:
        """Answer nobody any more."""
        self._end.set()
        self._server.shutdown()
        self._server.server_close()

    def _meet(self, handler: BaseHTTPRequestHandler) -> None:
        parts = urllib.parse.urlsplit(handler.path)
        name = urllib.parse.unquote(parts.path).removeprefix(f"/{BUCKET}").removeprefix("/")
        query = dict(urllib.parse.parse_qsl(parts.query, keep_blank_values=True))
        headers = {key.lower(): value for key, value in handler.headers.items()}
        size = int(headers.get("content-length", 0))
        body = handler.rfile.read(size)
        if len(body) < size:  # whoever sent it was killed
            handler.close_connection = True
            return
        request = Request(handler.command, name, query, headers, body, handler.path)
        fault = self.meets(request)
        if fault == "late":
            handler.close_connection = True
        if fault == "busy":
            answer = Answer(503, _BUSY, (("Content-Type", "text/xml"),))
        elif fault in ("broken", "hangs", "after"):
            if fault == "after":
                self.after.append(request)
            if fault != "broken":
                self._end.wait(2 * PATIENCE_S)
            handler.close_connection = True
            return
        else:
            answer = self._done(request)
            if fault == "lost":
                handler.close_connection = True
                return
            if fault == "late":
                self._end.wait(2 * PATIENCE_S)
        handler.send_response(answer.status)
        for each in answer.headers:
            handler.send_header(*each)
        if not any(key.lower() == "content-length" for key, _ in answer.headers):
            handler.send_header("Content-Length", str(len(answer.body)))
        handler.end_headers()
        if request.method != "HEAD":
            handler.wfile.write(answer.body)

    def do_after(self) -> None:
        """Do what has waited."""
        while self.after:
            self._done(self.after.pop(0))

    def settle(self) -> None:
        """Wait until nothing is done any more of what was asked by a client that is gone."""
        with self._is_quiet:
            self._is_quiet.wait_for(lambda: not self._doing, 60)

    @contextlib.contextmanager
    def _counted(self) -> Iterator[None]:
        with self._is_quiet:
            self._doing += 1
        try:
            yield
        finally:
            with self._is_quiet:
                self._doing -= 1
                self._is_quiet.notify_all()

    def _done(self, request: Request) -> Answer:
        """Do what is asked."""
        if self._behind is not None:
            answer = self._handed_on(request)
        else:
            with self._lock:
                answer = self._kept(request)
        if request.method == "PUT" and request.name and answer.status == 200:
            with self._lock:
                self.puts[request.name] += 1
        return answer

    def _handed_on(self, request: Request) -> Answer:
        connection = http.client.HTTPConnection(str(self._behind), timeout=60)
        try:
            sent = {key: value for key, value in request.headers.items() if key != "expect"}
            connection.request(request.method, request.target, request.body, sent)
            found = connection.getresponse()
            hop = ("connection", "transfer-encoding", "server", "date")
            headers = tuple((key, value) for key, value in found.getheaders() if key.lower() not in hop)
            return Answer(found.status, found.read(), headers)
        finally:
            connection.close()

    def _kept(self, request: Request) -> Answer:
        name, objects = request.name, self.objects
        if not name:
            return _listing(objects, request.query)
        if request.method == "PUT":
            assert "aws-chunked" not in request.headers.get("content-encoding", "")
            if request.headers.get("if-none-match") == "*" and name in objects:
                condition = "<Condition>If-None-Match</Condition>"
                return _error(412, "PreconditionFailed", "At least one of the conditions did not hold", condition)
            objects[name] = request.body
            return Answer(200, b"", (("ETag", _tag(request.body)),))
        if request.method == "DELETE":
            objects.pop(name, None)
            return Answer(204)
        if name not in objects:
            return _error(404, "NoSuchKey", "The specified key does not exist.")
        data = objects[name]
        headers = (("ETag", _tag(data)), ("Last-Modified", _HTTP_TIME), ("Content-Type", "binary/octet-stream"))
        if "range" not in request.headers:
            return Answer(200, data, (*headers, ("Content-Length", str(len(data)))))
        first, _, last = request.headers["range"].removeprefix("bytes=").partition("-")
        part = data[int(first) : int(last) + 1 if last else None]
        place = f"bytes {first}-{int(first) + len(part) - 1}/{len(data)}"
        return Answer(206, part, (*headers, ("Content-Range", place)))


_HTTP_TIME, _XML_TIME = "Sat, 31 Jan 2026 12:00:00 GMT", "2026-01-31T12:00:00.000Z"


def _tag(data: bytes) -> str:
    return f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'


def _error(status: int, code: str, message: str, more: str = "") -> Answer:
    body = f"<Error><Code>{code}</Code><Message>{message}</Message>{more}</Error>".encode()
    return Answer(status, body, (("Content-Type", "text/xml"),))


def _listing(objects: dict[str, bytes], query: dict[str, str]) -> Answer:
    """All objects in one page."""
    prefix, sign = query.get("prefix", ""), query.get("delimiter", "")
    found, folders = [], dict[str, None]()
    for name in sorted(objects):
        if not name.startswith(prefix):
            continue
        inside, cut, _ = name[len(prefix) :].partition(sign) if sign else (name, "", "")
        if cut:
            folders[prefix + inside + cut] = None
            continue
        found.append(
            f"<Contents><Key>{escape(name)}</Key><LastModified>{_XML_TIME}</LastModified>"
            f"<ETag>{escape(_tag(objects[name]))}</ETag><Size>{len(objects[name])}</Size>"
            "<StorageClass>STANDARD</StorageClass></Contents>"
        )
    found += [f"<CommonPrefixes><Prefix>{escape(each)}</Prefix></CommonPrefixes>" for each in folders]
    head = f"<Name>{BUCKET}</Name><Prefix>{escape(prefix)}</Prefix><KeyCount>{len(found)}</KeyCount>"
    space = 'xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'
    text = f"<ListBucketResult {space}>{head}<IsTruncated>false</IsTruncated>{''.join(found)}</ListBucketResult>"
    return Answer(200, text.encode(), (("Content-Type", "application/xml"),))
