"""Keys and values of topics that Kafka, Connect and a schema registry write for themselves, as columns.

A key or value of a topic with several types of records is a struct of its type, its version and a member for each type,
of which one has a value.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pylogseg._native import _messages
from pylogseg.format import bounded_json
from pylogseg.format.messages.connect import LOOKED_AT, key_parts, kind_of_keys
from pylogseg.format.messages.framing import COORDINATOR_TOPICS, HOMES
from pylogseg.format.messages.program import Heads, decode_columns, heads
from pylogseg.format.messages.schema import Message, by_number
from pylogseg.format.messages.secrets import CONFIG, MASK, SCRAM, SCRAM_SECRETS, is_secret, is_secret_of_connector
from pylogseg.values.forms import Form, in_form, with_type
from pylogseg.values.internal.message_arrays import binary_spans, message_arrays, message_type
from pylogseg.values.schemas.topic import TOPIC


class MessageColumn:
    """Decodes keys or values of a topic that a broker or controller writes; `decode` also takes the columns in `needs`.

    With `counts_rest`, bytes and fields that a newer Kafka wrote behind the known ones make an error.
    """

    def __init__(self, topic: str, which: str, show_secrets: bool, counts_rest: bool, form: Form | None = None) -> None:
        self._made = (topic, which, show_secrets, counts_rest, form)
        self._is_framed = topic not in COORDINATOR_TOPICS
        self._is_key, self._show_secrets, self._counts_rest = which == "key", show_secrets, counts_rest
        self._messages = by_number(HOMES[topic], "metadata" if self._is_framed else f"coordinator-{which}")
        self.needs = () if self._is_framed or self._is_key else ("key",)
        self._heads = [pa.field("type", pa.string())] if self._is_framed or self._is_key else []
        self._heads += [] if self._is_key else [pa.field("version", pa.int16())]
        # A message without fields, as NoOpRecord, is only a type: Parquet has no struct without members.
        those = [message for _, message in sorted(self._messages.items()) if message.fields]
        members = [pa.field(self._name(message), message_type(message.name)) for message in those]
        self._type = pa.struct([*self._heads, *members])
        self.type = self._type if form is None else in_form(self._type, form)
        self._nulls: dict[str, pa.Array] = {}

    def __reduce__(self) -> Any:
        return MessageColumn, self._made

    def _name(self, message: Message) -> str:
        return message.name if self._is_framed else message.name.removesuffix("Key").removesuffix("Value")

    def decode(self, column: pa.Array, key: pa.Array | None = None) -> tuple[pa.Array, dict[int, str]]:
        """Decode a binary array; null where a value is null or does not decode, and why, by row."""
        place, size, source = binary_spans(column)
        head = heads(place, size, (source,), framed=self._is_framed)
        number, version = head.number, head.version
        if not self._is_framed:
            version = np.zeros(len(size), np.int32) if self._is_key else head.number
        if key is not None:
            key_place, key_size, key_source = binary_spans(key)
            number = heads(key_place, key_size, (key_source,), framed=False).number
        errors: dict[int, str] = {}
        members: dict[str, pa.Array] = {}
        good = np.zeros(len(size), np.bool_)
        names: list[tuple[str, npt.NDArray[np.intp]]] = []
        there = size >= 0
        for code in np.unique(number[there]).tolist():
            rows = np.flatnonzero(there & (number == code))
            message = self._messages.get(code)
            if message is None:
                why = f"type {code} is not known" if code >= 0 else "nothing says its type"
                errors |= dict.fromkeys(rows.tolist(), why)
                continue
            structs = self._decode_messages(message, rows, version, (place, size, source), head, errors)
            good[rows] = structs.is_valid().to_numpy(zero_copy_only=False)
            members[self._name(message)] = _scatter(structs, rows, len(size))
            names.append((self._name(message), rows))
        return self._struct(members, names, version, good), dict(sorted(errors.items()))

    def _decode_messages(
        self, message: Message, rows: npt.NDArray[np.intp], version: npt.NDArray[np.int32],
        values: tuple[Any, Any, Any], head: Heads, errors: dict[int, str],
    ) -> pa.StructArray:  # fmt: skip
        place, size, source = values
        mine, skip = version.astype(np.int16), head.skip
        if len(rows) < len(size):
            place, size, skip, mine = place[rows], size[rows], skip[rows], mine[rows]
        batch = decode_columns(message.name, mine, place + skip, size - skip, (source,))
        for at in np.flatnonzero(batch.status).tolist():
            is_unknown = batch.status[at] == _messages.UNKNOWN
            why = f"version {mine[at]} is not known" if is_unknown else _messages.REASONS[batch.status[at]]
            errors[int(rows[at])] = f"{message.name}: {why}"
        if self._counts_rest:
            for at in np.flatnonzero((batch.status == 0) & ((batch.rest > 0) | (batch.unknown_tags > 0))).tolist():
                errors[int(rows[at])] = f"{message.name}: unknown bytes or tagged fields behind the known ones"
        arrays = message_arrays(batch)
        if not self._show_secrets:
            _mask(message, arrays)
        mask = pa.array(batch.status != 0)
        if not arrays:
            return pa.array([{}] * len(rows), pa.struct([]), mask=batch.status != 0)
        return pa.StructArray.from_arrays(list(arrays.values()), fields=list(message_type(message.name)), mask=mask)

    def _struct(
        self, members: dict[str, pa.Array], names: Sequence[tuple[str, npt.NDArray[np.intp]]],
        version: npt.NDArray[np.int32], good: npt.NDArray[np.bool_],
    ) -> pa.Array:  # fmt: skip
        count = len(good)
        kinds, named = np.zeros(count, np.int32), [name for name, _ in names]
        for number, (_, rows) in enumerate(names):
            kinds[rows] = number
        columns: dict[str, pa.Array] = {
            "type": pa.array(named, pa.string()).take(pa.array(kinds, mask=~good)),
            "version": pa.array(version.astype(np.int16), mask=~good),
        }
        columns |= members
        arrays = [columns[field.name] if field.name in columns else self._absent(field, count) for field in self._type]
        struct = pa.StructArray.from_arrays(arrays, fields=list(self._type), mask=pa.array(~good))
        return with_type(struct, self.type)

    def _absent(self, field: pa.Field, count: int) -> pa.Array:
        """A member without a value: most of them, in every batch."""
        nulls = self._nulls.get(field.name)
        if nulls is None or len(nulls) < count:
            nulls = self._nulls[field.name] = pa.nulls(count, field.type)
        return nulls.slice(0, count)


def _scatter(array: pa.Array, rows: npt.NDArray[np.intp], count: int) -> pa.Array:
    """Put the items of an array into their rows; all other rows are null."""
    if len(rows) == count:
        return array
    places = np.full(count, -1)
    places[rows] = np.arange(len(rows))
    return array.take(pa.array(places, mask=places < 0))


def _mask(message: Message, arrays: dict[str, pa.Array]) -> None:
    """Take the secrets of users and settings out."""
    if message.name == SCRAM:
        for name in SCRAM_SECRETS:
            arrays[name] = pa.array([b""] * len(arrays[name]), arrays[name].type)
    elif message.name == CONFIG:
        of = zip(*(arrays[name].to_pylist() for name in ("resourceType", "name", "value")), strict=True)
        shown = [MASK if value is not None and is_secret(kind, name) else value for kind, name, value in of]
        arrays["value"] = pa.array(shown, pa.string())


_TOPIC_STATUS = pa.struct([("name", pa.string()), ("connector", pa.string()), ("task", pa.int32()),
                           ("discoverTimestamp", pa.int64())])  # fmt: skip
_REFERENCE = pa.struct([("name", pa.string()), ("subject", pa.string()), ("version", pa.int32())])
_CONNECT_KEY = pa.struct([("type", pa.string()), ("name", pa.string()), ("task", pa.int32())])
_KEYS = {
    "config": _CONNECT_KEY,
    "status": _CONNECT_KEY,
    "offset": pa.struct([("connector", pa.string()), ("partition", pa.string())]),
    "registry": pa.struct([("keytype", pa.string()), ("subject", pa.string()), ("version", pa.int32()),
                           ("magic", pa.int32()), ("others", pa.string())]),
}  # fmt: skip
_VALUES = {
    "config": pa.struct([("properties", pa.map_(pa.string(), pa.string())), ("tasks", pa.int32()),
                         ("state", pa.string()), ("state.v2", pa.string()), ("others", pa.string())]),
    "status": pa.struct([("state", pa.string()), ("trace", pa.string()), ("worker_id", pa.string()),
                         ("generation", pa.int32()), ("version", pa.string()), ("topic", _TOPIC_STATUS),
                         ("others", pa.string())]),
    "offset": pa.string(),
    "registry": pa.struct([("subject", pa.string()), ("version", pa.int32()), ("id", pa.int32()),
                           ("schemaType", pa.string()), ("schema", pa.string()), ("references", pa.list_(_REFERENCE)),
                           ("deleted", pa.bool_()), ("compatibilityLevel", pa.string()), ("mode", pa.string()),
                           ("others", pa.string())]),
}  # fmt: skip


class JsonColumn:
    """Decodes keys or values of one of Kafka Connect's topics or of a registry's, which have few records.

    Members have the names that their writers use; all further members are JSON in ``others``. A source's partition and
    offset are JSON.
    """

    needs: tuple[str, ...] = ()

    def __init__(self, kind: str, which: str, show_secrets: bool, form: Form | None = None) -> None:
        self._made = (kind, which, show_secrets, form)
        self._kind, self._show_secrets = kind, show_secrets
        self._type = (_KEYS if which == "key" else _VALUES)[kind]
        is_connects = which == "key" and kind != "registry"
        self._read: Callable[[bytes], Any] = self._key if is_connects else self._value
        self.type = self._type if form is None else in_form(self._type, form)

    def __reduce__(self) -> Any:
        return JsonColumn, self._made

    def decode(self, column: pa.Array, *_: Any) -> tuple[pa.Array, dict[int, str]]:
        """Decode a binary array; null where a value is null or does not decode, and why, by row."""
        values: list[Any] = []
        errors: dict[int, str] = {}
        for row, raw in enumerate(column.to_pylist()):
            try:
                values.append(None if raw is None else self._read(raw))
                pa.array(values[-1:], self._type)
            except (ValueError, TypeError, pa.ArrowException) as error:
                values[row:] = [None]
                of = "a registry" if self._kind == "registry" else "Kafka Connect"
                errors[row] = f"no record of {of}: {error}"
        return with_type(pa.array(values, self._type), self.type), errors

    def _key(self, raw: bytes) -> dict[str, Any]:
        text = raw.decode()
        if self._kind == "offset":
            connector, partition = bounded_json.loads(text)
            return {"connector": connector, "partition": json.dumps(partition)}
        return dict(zip(("type", "name", "task"), key_parts(text), strict=True))

    def _value(self, raw: bytes) -> Any:
        if self._kind == "offset":
            bounded_json.loads(raw)
            return raw.decode()
        value = bounded_json.loads(raw)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise TypeError(f"{raw[:40]!r} is not an object")
        names = {field.name for field in self._type} - {"others"}
        others = {name: part for name, part in value.items() if name not in names}
        if self._kind == "config" and "key" in others and not self._show_secrets:
            others["key"] = MASK  # by it workers sign what they tell each other
        connector = {name: part for name, part in value.items() if name in names}
        properties = connector.get("properties")
        if properties is not None:
            connector["properties"] = [(name, self._mask_secret(name, value)) for name, value in properties.items()]
        return connector | {"others": json.dumps(others) if others else None}

    def _mask_secret(self, name: str, value: Any) -> str | None:
        text = None if value is None else str(value)
        is_hidden = text is not None and not self._show_secrets and is_secret_of_connector(name, text)
        return MASK if is_hidden else text


def is_own(topic: str) -> bool:
    """True if a topic is written by brokers, controllers or a registry, by its name."""
    return topic in HOMES or topic == TOPIC


def connect_kind(keys: Iterable[pa.Array]) -> str | None:
    """Return which of Kafka Connect's topics has these first keys; None for another one."""
    kinds: list[str | None] = []
    for column in keys:
        for raw in column.slice(0, LOOKED_AT - len(kinds)).to_pylist():
            try:
                kinds.append(None if raw is None else raw.decode())
            except UnicodeDecodeError:
                kinds.append(None)
        if len(kinds) >= LOOKED_AT:
            break
    return kind_of_keys(kinds)


def own_columns(
    topic: str, which: Sequence[str], peek: Callable[[str], Iterable[pa.RecordBatch]], *,
    show_secrets: bool, counts_rest: bool, form: Form | None,
) -> dict[str, MessageColumn | JsonColumn]:  # fmt: skip
    """Return the decoder of a topic that Kafka or Connect writes for itself; None for any other topic."""
    if topic in HOMES:
        has_keys = topic in COORDINATOR_TOPICS
        return {
            name: MessageColumn(topic, name, show_secrets, counts_rest, form)
            for name in which
            if name == "value" or has_keys
        }
    kind = "registry" if topic == TOPIC else None
    if kind is None and not topic.startswith("__"):
        kind = connect_kind(batch.column("key") for batch in peek("key"))
    return {} if kind is None else {name: JsonColumn(kind, name, show_secrets, form) for name in which}
