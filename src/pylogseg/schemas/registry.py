"""A schema registry over HTTP, with what it said kept on the disk: an id never gets another schema."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from pylogseg.errors import RequestError, StorageError
from pylogseg.schemas.schema import DEFAULT_CONTEXT, Schema, context_of, guid_of
from pylogseg.schemas.topic import references_of

TIMEOUT_S = 10.0
#: A registry answers with more only if it is none.
_MOST_BYTES = 64 << 20
_ACCEPT = "application/vnd.schemaregistry.v1+json, application/json"


def default_cache() -> Path:
    """Return the folder that answers are kept in unless another is named."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base, "pylogseg", "schemas")


class Registry:
    """Confluent's interface, which Karapace, Redpanda and Apicurio (``/apis/ccompat/v7``) have too.

    Parameters
    ----------
    url : str
        ``https://user:password@host:port/path``; a user and password go into the header of each request.
    cache : path, optional
        A folder; `default_cache` by default.
    """

    def __init__(self, url: str, cache: str | os.PathLike[str] | None = None) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise RequestError(f"a registry is a URL as https://host:8081, not {url!r}")
        host = parts.netloc.rpartition("@")[2]
        self.url = urllib.parse.urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))
        self._login = None
        if parts.username is not None:
            pair = f"{urllib.parse.unquote(parts.username)}:{urllib.parse.unquote(parts.password or '')}"
            self._login = "Basic " + base64.b64encode(pair.encode()).decode("ascii")
        folder = Path(cache) if cache is not None else default_cache()
        self._cache = folder / hashlib.sha256(self.url.encode()).hexdigest()[:16]

    def __repr__(self) -> str:
        """Return a short text, without the password."""
        return f"<Registry {self.url}>"

    def by_id(self, number: int, context: str) -> Schema | None:
        """Ask for the schema with an id."""
        subject = "" if context == DEFAULT_CONTEXT else "?subject=" + urllib.parse.quote(f":{context}:", safe="")
        found = self._ask(f"/schemas/ids/{number}{subject}", is_final=True)
        return None if found is None else self._schema(found, id=number, context=context)

    def by_guid(self, guid: str) -> Schema | None:
        """Ask for the schema with a GUID."""
        found = self._ask(f"/schemas/guids/{guid}", is_final=True)
        return None if found is None else self._schema(found, id=found.get("id"))

    def version(self, subject: str, version: int | None) -> Schema | None:
        """Ask for a version of a subject; None is the latest."""
        which = "latest" if version is None or version < 0 else str(version)
        path = f"/subjects/{urllib.parse.quote(subject, safe='')}/versions/{which}"
        found = self._ask(path, is_final=which != "latest")
        if found is None:
            return None
        context = context_of(subject)
        return self._schema(found, id=found.get("id"), subject=subject, version=found.get("version"), context=context)

    @staticmethod
    def _schema(found: dict[str, Any], **names: Any) -> Schema | None:
        text = found.get("schema")
        if not isinstance(text, str):
            return None
        references = references_of(found)
        guid = found.get("guid") or guid_of(text, references, found.get("metadata"), found.get("ruleSet"))
        kind = str(found.get("schemaType") or "AVRO").upper()
        return Schema(text, kind, references=references, guid=guid, **names)

    def _ask(self, path: str, *, is_final: bool) -> dict[str, Any] | None:
        kept = self._cache / (re.sub(r"[^\w.-]", "_", path)[:80] + "-" + hashlib.sha256(path.encode()).hexdigest()[:8])
        if is_final:
            try:
                found = json.loads(kept.read_bytes())
                if isinstance(found, dict):
                    return found
            except (OSError, ValueError):
                pass
        raw = self._fetch(path)
        if raw is None:
            return None
        try:
            found = json.loads(raw)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise StorageError(self.url + path, "read", "the answer is no JSON object: is this a schema registry?")
        if is_final:
            _keep(kept, raw)
        return found

    def _fetch(self, path: str) -> bytes | None:
        request = urllib.request.Request(self.url + path, headers={"Accept": _ACCEPT})
        if self._login is not None:
            request.add_header("Authorization", self._login)
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:  # the scheme was checked
                raw: bytes = answer.read(_MOST_BYTES + 1)
        except urllib.error.HTTPError as error:
            with error:
                if error.code == 404:
                    return None
                raise StorageError(self.url + path, "read", f"HTTP {error.code} {error.reason}") from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", None) or error
            raise StorageError(self.url + path, "read", f"the registry does not answer: {reason}") from None
        if len(raw) > _MOST_BYTES:
            raise StorageError(self.url + path, "read", f"the answer has more than {_MOST_BYTES} bytes")
        return raw


def _keep(path: Path, raw: bytes) -> None:
    """Write a file of the cache; one that cannot be written is no reason to stop."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        number, name = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(number, "wb") as file:
            file.write(raw)
        os.replace(name, path)
    except OSError:
        return
