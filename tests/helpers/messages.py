"""Values for Kafka's messages, as Hypothesis makes them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from pylogseg.format.messages.codec import default_of
from pylogseg.format.messages.schema import Message, MessageField, messages
from pylogseg.format.uuids import format_uuid

#: Every message in every version.
VERSIONS = [
    (name, version)
    for name, of in sorted(messages().items())
    for version in range(of.versions.first, of.versions.last + 1)
]

_SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "int8": st.integers(-(2**7), 2**7 - 1),
    "int16": st.integers(-(2**15), 2**15 - 1),
    "uint16": st.integers(0, 2**16 - 1),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "uint32": st.integers(0, 2**32 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "float64": st.floats(),
    "uuid": st.binary(min_size=16, max_size=16).map(format_uuid),
    "string": st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
    "bytes": st.binary(max_size=12),
    "records": st.binary(max_size=12),
}


def lying(data: st.DataObject, raw: bytes) -> bytes:
    """Change some bytes of a message, and cut it off."""
    changed = bytearray(raw)
    for _ in range(data.draw(st.integers(0, 3)) if changed else 0):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.sampled_from([0, 1, 2, 127, 128, 254, 255]))
    return bytes(changed[: data.draw(st.integers(0, len(changed)))])


def fields_of(of: Message, version: int) -> st.SearchStrategy[dict[str, Any]]:
    """All fields of a message; those that the version does not have have their defaults."""
    return _struct(of.fields, version)


def _struct(fields: tuple[MessageField, ...], version: int) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {f.name: _value(f, version) if f.is_in(version) else st.just(default_of(f)) for f in fields}
    )


def _value(field: MessageField, version: int) -> st.SearchStrategy[Any]:
    item = _struct(field.fields, version) if field.type == "struct" else _SCALARS[field.type]
    value = st.lists(item, max_size=3) if field.is_list else item
    return st.none() | value if field.nullable.has(version) else value
