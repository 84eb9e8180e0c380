"""A schema as a registry keeps it, with its names: id, subject and version, GUID."""

from __future__ import annotations

import hashlib
import re
import struct
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

#: Of a schema that is in no context of its own.
DEFAULT_CONTEXT = "."
_IN_CONTEXT = re.compile(r":(\.[^:]*):")

Deleted = Literal["no", "soft", "hard"]


def context_of(subject: str) -> str:
    """Return the context that a subject is in: ``:.staging:orders-value`` is in ``.staging``."""
    match = _IN_CONTEXT.match(subject)
    return match[1] if match else DEFAULT_CONTEXT


def in_context(subject: str, context: str) -> str:
    """Return the subject of a reference; without a context of its own, it has its parent's context."""
    if context == DEFAULT_CONTEXT or subject.startswith(":"):
        return subject
    return f":{context}:{subject}"


class Reference(NamedTuple):
    """Another schema that a schema's text uses.

    Attributes
    ----------
    name : str
        What the text calls it: a full name (Avro), an import (Protobuf), a URI (JSON Schema).
    subject : str
    version : int
        -1 the latest.
    """

    name: str
    subject: str
    version: int


class Schema(NamedTuple):
    """One version of a subject, or a schema from a file.

    Attributes
    ----------
    text : str
    type : str
        ``AVRO``, ``PROTOBUF`` or ``JSON``.
    id : int or None
        Of its context; several subjects can have one schema.
    subject : str or None
    version : int or None
    context : str
        ``.`` unless the subject names one.
    references : tuple of Reference
    deleted : {"no", "soft", "hard"}
        A softly deleted schema still decodes; one that is deleted for good is only in the log any more.
    guid : str
        The registry's name of the content, the same in every registry.
    """

    text: str
    type: str = "AVRO"
    id: int | None = None
    subject: str | None = None
    version: int | None = None
    context: str = DEFAULT_CONTEXT
    references: tuple[Reference, ...] = ()
    deleted: Deleted = "no"
    guid: str = ""

    @property
    def title(self) -> str:
        """Its name in a message."""
        named = f"{self.subject} version {self.version}" if self.subject else f"a schema of type {self.type}"
        return named if self.id is None else f"{named} (id {self.id})"


def guid_of(
    text: str,
    references: Sequence[Reference] = (),
    metadata: Mapping[str, Any] | None = None,
    rules: Mapping[str, Any] | None = None,
) -> str:
    """Return the GUID by Confluent's registry: a digest of text, references, metadata and rules."""
    parts = [text.encode("utf-8", "surrogatepass")]
    for name, subject, version in references:
        parts += [_utf8(name), _utf8(subject), struct.pack(">i", version)]
    if metadata is not None:
        parts += [b"\1", *_metadata_parts(metadata)]
    if rules is not None:
        parts.append(b"\1")
        for kind in ("migrationRules", "domainRules", "encodingRules"):
            for rule in rules.get(kind) or ():
                parts += _rule_parts(rule)
        parts.append(_utf8(rules.get("enableAt")))
    return str(uuid.UUID(bytes=hashlib.md5(b"".join(parts), usedforsecurity=False).digest()))


def _utf8(text: Any) -> bytes:
    return b"" if text is None else str(text).encode("utf-8", "surrogatepass")


def _metadata_parts(metadata: Mapping[str, Any]) -> list[bytes]:
    tags, properties = metadata.get("tags") or {}, metadata.get("properties") or {}
    parts = []
    for name in sorted(tags):
        parts += [_utf8(name), *map(_utf8, sorted(tags[name] or ()))]
    for name in sorted(properties):
        parts += [_utf8(name), _utf8(properties[name])]
    return parts + [_utf8(name) for name in sorted(metadata.get("sensitive") or ())]


def _rule_parts(rule: Mapping[str, Any]) -> list[bytes]:
    parameters = rule.get("params") or {}
    parts = [_utf8(rule.get(name)) for name in ("name", "doc", "kind", "mode", "type")]
    parts += [_utf8(tag) for tag in sorted(rule.get("tags") or ())]
    parts += [_utf8(name) + _utf8(parameters[name]) for name in sorted(parameters)]
    parts += [_utf8(rule.get(name)) for name in ("expr", "onSuccess", "onFailure")]
    return [*parts, b"\1" if rule.get("disabled") else b""]
