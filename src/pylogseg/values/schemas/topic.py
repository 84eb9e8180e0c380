"""The topic `_schemas`: its records in order, as a registry loads them.

Keys are equal by what they say, not by their bytes, since registries write the same key in several ways; so a compacted
topic can have several records of one key, and the last one counts.
"""

from __future__ import annotations

import base64
import binascii
import itertools
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, TypeGuard

from pylogseg.disk.disk import Disk
from pylogseg.format import bounded_json
from pylogseg.reading.log_reader import ReadScope
from pylogseg.reading.logs import logs_of
from pylogseg.reading.offset_range import OffsetRange
from pylogseg.reading.record import records_of
from pylogseg.reading.selection import Selection
from pylogseg.reading.state import SKIPPING
from pylogseg.values.schemas.schema import DEFAULT_CONTEXT, Deleted, Reference, Schema, context_of, guid_of

TOPIC = "_schemas"
#: Keys that say nothing of schemas.
_OTHERS = {"CONFIG", "MODE", "CONTEXT", "NOOP", "ASSOC"}
_Version = tuple[str, int]


class SchemaTopic:
    """The schemas that result from the topic's records; `versions` include softly deleted ones.

    `gone` are deleted for good, or written over, and still in the log. `left_out` counts other records, by the reason.
    """

    def __init__(self) -> None:
        self.versions: dict[_Version, Schema] = {}
        self.gone: list[Schema] = []
        self.left_out: Counter[str] = Counter()
        self.damage: list[str] = []
        self._holders: dict[tuple[str, int], set[_Version]] = {}

    @classmethod
    def of_disk(cls, disk: Disk, end: int | None = None, until_ms: int | None = None) -> SchemaTopic | None:
        """Read the topic below an offset and a time, from its longest copy; None if it is absent."""
        folders = [p for p in disk.partitions if p.topic == TOPIC and not p.state and p.segments]
        alone = [Disk((), (folder,), is_named=True) for folder in folders]
        if not alone:
            return None
        furthest = max(alone, key=lambda one: logs_of(one)[0].log_end_offset)
        schemas = cls()
        selection = Selection(offsets=OffsetRange(None, end), until=until_ms)
        scope = ReadScope.of(selection.logs(furthest), selection, SKIPPING)
        for record in itertools.chain.from_iterable(map(records_of, scope.chunks())):
            schemas.add(record.key, record.value)
        gaps = [gap for gap in scope.state.gaps if gap.is_damage]
        schemas.damage += [f"{gap.path}, position {gap.position}: {gap.reason}" for gap in gaps]
        return schemas

    @property
    def notes(self) -> list[str]:
        """The skipped records, damage last."""
        return [f"{TOPIC}: {reason} ({count})" for reason, count in sorted(self.left_out.items())] + self.damage

    def add(self, raw_key: bytes | None, raw_value: bytes | None) -> None:
        key = _object(raw_key)
        if key is None:
            self.left_out["a key that is not a JSON object"] += 1
            return
        kind = key.get("keytype")
        if kind in _OTHERS:
            return
        value = _object(raw_value) if raw_value else None
        if raw_value and value is None:
            self.left_out[f"{kind}: a value that is not a JSON object"] += 1
        elif kind == "SCHEMA":
            self._add_schema(key, value)
        elif kind in ("DELETE_SUBJECT", "CLEAR_SUBJECT"):
            subject = (value or key).get("subject")
            if value is None or not isinstance(subject, str):
                return
            if kind == "CLEAR_SUBJECT":
                self._clear(subject)
            else:
                self._delete(subject, value.get("version"))
        else:
            self.left_out[f"a key of the unknown type {str(kind)[:40]!r}"] += 1

    def _add_schema(self, key: Mapping[str, Any], value: Mapping[str, Any] | None) -> None:
        subject, version = key.get("subject"), key.get("version")
        if not isinstance(subject, str) or not _is_int(version):
            self.left_out["SCHEMA: a key without subject and version"] += 1
            return
        name = subject, version
        if value is None:  # null, or no bytes at all as Karapace has it
            self._drop(name)
            return
        schema = _schema_of(subject, version, value)
        if schema is None:
            self.left_out["SCHEMA: a value without id and text"] += 1
            return
        holders = self._holders.setdefault((schema.context, schema.id or 0), set())
        if any(self.versions[holder].text != schema.text for holder in holders):
            self.left_out[f"SCHEMA: the id {schema.id} was given to another text before"] += 1
            return
        before = self.versions.get(name)
        if before is not None and before.text != schema.text:
            self._drop(name)
        self.versions[name] = schema
        holders.add(name)

    def _drop(self, name: _Version) -> None:
        gone = self.versions.pop(name, None)
        if gone is not None:
            self.gone.append(gone._replace(deleted="hard"))
            self._holders[gone.context, gone.id or 0].discard(name)

    def _delete(self, subject: str, last: Any) -> None:
        for name, schema in self.versions.items():
            if name[0] == subject and (not _is_int(last) or name[1] <= last):
                self.versions[name] = schema._replace(deleted="soft")

    def _clear(self, subject: str) -> None:
        """Softly deleted versions are dropped: of a subject, or of all of a context that is named without a subject."""
        context = context_of(subject)
        is_context = subject == f":{context}:" or (not subject and context == DEFAULT_CONTEXT)
        for name, schema in list(self.versions.items()):
            if schema.deleted == "soft" and (schema.context == context if is_context else name[0] == subject):
                self._drop(name)

    def __iter__(self) -> Iterator[Schema]:
        yield from sorted(self.versions.values(), key=lambda schema: (schema.context, schema.subject, schema.version))


def _is_int(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _object(raw: bytes | None) -> dict[str, Any] | None:
    try:
        value = bounded_json.loads(raw) if raw else None
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _schema_of(subject: str, version: int, value: Mapping[str, Any]) -> Schema | None:
    text, number = value.get("schema"), value.get("id")
    if not isinstance(text, str) or not _is_int(number):
        return None
    references = references_of(value)
    metadata, rules = value.get("metadata"), value.get("ruleSet")
    deleted: Deleted = "soft" if value.get("deleted") is True else "no"
    guid = _digest(value.get("md5")) or guid_of(
        text, references, metadata if isinstance(metadata, dict) else None, rules if isinstance(rules, dict) else None
    )
    kind = str(value.get("schemaType") or "AVRO").upper()
    return Schema(text, kind, number, subject, version, context_of(subject), references, deleted, guid)


def _digest(text: Any) -> str | None:
    try:
        return str(uuid.UUID(bytes=base64.b64decode(text))) if isinstance(text, str) and text else None
    except (ValueError, binascii.Error):
        return None


def references_of(value: Mapping[str, Any]) -> tuple[Reference, ...]:
    """Return the references of a schema from its JSON, without malformed ones."""
    references = []
    listed = value.get("references")
    for entry in listed if isinstance(listed, list) else ():
        if isinstance(entry, dict) and isinstance(entry.get("name"), str) and isinstance(entry.get("subject"), str):
            version = entry.get("version")
            references.append(Reference(entry["name"], entry["subject"], version if _is_int(version) else -1))
    return tuple(references)
