"""Values of Kafka's messages as the wire has them."""

from __future__ import annotations

from typing import Any

from pylogseg.format.messages.schema import MessageField
from pylogseg.format.uuids import parse_uuid


def raw_ids(fields: tuple[MessageField, ...], values: Any) -> Any:
    """The values with UUIDs as bytes."""
    if values is None:
        return None
    found = dict(values)
    for field in fields:
        value = found[field.name]
        if field.type == "struct":
            each = [raw_ids(field.fields, item) for item in value or ()] if field.is_list else None
            found[field.name] = raw_ids(field.fields, value) if each is None else (None if value is None else each)
        elif field.type == "uuid":
            found[field.name] = [parse_uuid(item) for item in value] if field.is_list else parse_uuid(value)
    return found
