"""A schema registry over HTTP, with its answers kept on the disk: an id never gets another schema."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import http.client
import os
import re
import socket
import threading
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from pylogseg.env.beside import whole
from pylogseg.errors import RequestError, StorageError
from pylogseg.format import bounded_json
from pylogseg.values.schemas.schema import DEFAULT_CONTEXT, Schema, context_of, guid_of
from pylogseg.values.schemas.topic import references_of

#: Of a whole request, from the look-up of the name to the last byte.
TIMEOUT_S = 10.0
#: A registry answers with more only if it is none.
_MOST_BYTES = 16 << 20
_NO_REGISTRY = "the answer is not a schema in JSON: is this a schema registry?"
_ACCEPT = "application/vnd.schemaregistry.v1+json, application/json"
_keeping = threading.Lock()


def default_cache() -> Path:
    """Return the folder that answers are kept in unless another is named."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base, "pylogseg", "schemas")


class Registry:
    """Confluent's interface, which Karapace, Redpanda and Apicurio (``/apis/ccompat/v7``) have too.

    A user and password in the URL go into the header of each request, and are not shown.
    """

    def __init__(self, url: str, cache: str | os.PathLike[str] | None = None) -> None:
        try:
            parts = urllib.parse.urlsplit(url)
            is_sound = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:  # brackets, or a port that is no number
            is_sound = False
        if not is_sound or "@" in parts.path:
            shown = url.rpartition("@")[2]  # without a password
            raise RequestError(
                f"registry: expected a URL as https://host:8081, not {shown!r}; a password has %2F for /, %40 for @"
            )
        host = parts.netloc.rpartition("@")[2]
        self.url = urllib.parse.urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))
        self._login = None
        if parts.username is not None:
            pair = f"{urllib.parse.unquote(parts.username)}:{urllib.parse.unquote(parts.password or '')}"
            raw = pair.encode("utf-8", "surrogateescape")
            self._login = "Basic " + base64.b64encode(raw).decode("ascii")
        folder = Path(cache) if cache is not None else default_cache()
        self._cache = folder / hashlib.sha256(self.url.encode()).hexdigest()[:16]

    def __repr__(self) -> str:
        """Return a short text, without the password."""
        return f"<Registry {self.url}>"

    def by_id(self, number: int, context: str) -> Schema | None:
        subject = "" if context == DEFAULT_CONTEXT else "?subject=" + urllib.parse.quote(f":{context}:", safe="")
        return self._ask(f"/schemas/ids/{number}{subject}", is_final=True, id=number, context=context)

    def by_guid(self, guid: str) -> Schema | None:
        return self._ask(f"/schemas/guids/{urllib.parse.quote(guid, safe='')}", is_final=True)

    def version(self, subject: str, version: int | None) -> Schema | None:
        """Ask for a version of a subject; None is the latest."""
        is_final = version is not None and version >= 0
        which = str(version) if is_final else "latest"
        path = f"/subjects/{urllib.parse.quote(subject, safe='')}/versions/{which}"
        names: dict[str, Any] = {"subject": subject, "context": context_of(subject)}
        return self._ask(path, is_final=is_final, **names, **({"version": version} if is_final else {}))

    def _ask(self, path: str, *, is_final: bool, **names: Any) -> Schema | None:
        """Return the cached answer, or ask; only a schema is cached."""
        kept = self._cache / (re.sub(r"[^\w.-]", "_", path)[:80] + "-" + hashlib.sha256(path.encode()).hexdigest()[:8])
        if is_final:
            with contextlib.suppress(OSError):
                schema = _schema(kept.read_bytes(), names)
                if schema is not None:
                    return schema
        raw = self._fetch(path)
        if raw is None:
            return None
        schema = _schema(raw, names)
        if schema is None:
            raise StorageError(self.url + path, "read", _NO_REGISTRY)
        if is_final:
            _keep(kept, raw)
        return schema

    def _fetch(self, path: str) -> bytes | None:
        """Return the answer; None for 404. It ends in time, also if the registry never answers."""
        request = urllib.request.Request(self.url + path, headers={"Accept": _ACCEPT})
        if self._login is not None:
            request.add_unredirected_header("Authorization", self._login)
        sockets: list[socket.socket] = []
        answers: list[tuple[int, bytes]] = []
        errors: list[Exception] = []

        def work() -> None:
            try:
                with _opener(sockets).open(request, timeout=TIMEOUT_S) as answer:
                    answers.append((answer.status, answer.read(_MOST_BYTES + 1)))
            except urllib.error.HTTPError as error:
                error.close()
                answers.append((error.code, b""))
            except (OSError, ValueError, http.client.HTTPException) as error:
                errors.append(error)

        # A limit of the socket counts anew with each byte, and none counts while a name is looked up.
        thread = threading.Thread(target=work, name="pylogseg-registry", daemon=True)
        thread.start()
        thread.join(TIMEOUT_S)
        if thread.is_alive():
            for sock in sockets:
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)
            raise StorageError(self.url + path, "read", f"the registry has not answered within {TIMEOUT_S:g} s")
        if errors:
            reason = getattr(errors[0], "reason", None) or errors[0]
            text = str(reason) or type(reason).__name__
            raise StorageError(self.url + path, "read", f"the registry does not answer: {ascii(text[:200])[1:-1]}")
        status, raw = answers[0]
        if status == 404:
            return None
        if 300 <= status < 400:
            remedy = "redirects are not followed, so that a password goes nowhere else: give the URL that it leads to"
            raise StorageError(self.url + path, "read", f"HTTP {status}: {remedy}")
        if status != 200:
            words = http.client.responses.get(status, "")
            raise StorageError(self.url + path, "read", f"HTTP {status} {words}".rstrip())
        if len(raw) > _MOST_BYTES:
            raise StorageError(self.url + path, "read", f"the answer has more than {_MOST_BYTES} bytes")
        return raw


class _Connections(urllib.request.HTTPSHandler, urllib.request.HTTPHandler):
    """Opens connections, and remembers their sockets."""

    def __init__(self, opened: list[socket.socket]) -> None:
        super().__init__()
        self._opened = opened

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(self._remember_sockets(http.client.HTTPConnection), req)

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(self._remember_sockets(http.client.HTTPSConnection), req)

    def _remember_sockets(self, kind: Any) -> Any:
        opened = self._opened

        class Connection(kind):  # type: ignore[misc]
            def connect(self) -> None:
                super().connect()
                opened.append(self.sock)

        return Connection


def _opener(opened: list[socket.socket]) -> urllib.request.OpenerDirector:
    """Return urllib's opener with proxies, but without redirects, files and FTP."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        _Connections(opened),
        urllib.request.HTTPErrorProcessor(),
        urllib.request.HTTPDefaultErrorHandler(),
    ):
        opener.add_handler(handler)
    return opener


def _schema(raw: bytes, names: dict[str, Any]) -> Schema | None:
    """A field that the answer repeats from the question; None if it is no schema."""
    try:
        reply = bounded_json.loads(raw)
        text, kind = reply["schema"], reply.get("schemaType") or "AVRO"
        text.encode()
        references = references_of(reply)
        guid = reply.get("guid") or guid_of(text, references, reply.get("metadata"), reply.get("ruleSet"))
        said = {name: value for name in ("id", "version") if (value := reply.get(name)) is not None}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    if not all(isinstance(text_value, str) for text_value in (text, kind, guid)):
        return None
    if not all(isinstance(number, int) and not isinstance(number, bool) for number in said.values()):
        return None
    if "subject" not in names:
        said.pop("version", None)  # of nothing
    if any(names.get(name, number) != number for name, number in said.items()):  # of another one than was asked for
        return None
    return Schema(text, kind.upper(), references=references, guid=guid, **said | names)


def _keep(path: Path, raw: bytes) -> None:
    """Write a file of the cache; a failure does not stop the program."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _keeping, whole(path) as file:
            if hasattr(os, "fchmod"):
                os.fchmod(file.fileno(), 0o600)
            file.write(raw)
    except OSError:
        return
