"""A target of hostile bytes: Kafka's own messages, one by one and in columns, with and without what stands in front."""

from __future__ import annotations

from contextlib import suppress
from random import Random
from typing import Any

import numpy as np

from helpers import hostile_logs, mutations
from helpers.messages import VERSIONS
from pylogseg.errors import CorruptionError
from pylogseg.format.messages.codec import MalformedError, decode_message, encode_message
from pylogseg.format.messages.framing import HOMES, decode_coordinator, decode_framed
from pylogseg.format.messages.program import decode_columns, heads
from pylogseg.format.messages.schema import MessageField, message
from pylogseg.format.uuids import format_uuid
from pylogseg.values.internal.message_arrays import message_arrays


def messages(rng: Random) -> None:
    """What one decoder calls malformed, so does the other; columns are sound whatever the bytes were."""
    name, version = rng.choice(VERSIONS)
    of = message(name)
    values = []
    for _ in range(rng.randrange(1, 5)):
        fields = {field.name: _value(rng, field, version) for field in of.fields if field.is_in(version)}
        raw = encode_message(of, version, fields)
        values.append(mutations.damaged(rng, raw) if raw and rng.random() < 0.8 else raw)
    versions = np.full(len(values), version, np.int16)
    if rng.random() < 0.1:
        versions[rng.randrange(len(values))] = rng.choice((-1, 99, 32767))
    buffer = hostile_logs.exact(b"".join(values))
    size = np.array([len(value) for value in values], np.int32)
    place = np.cumsum(size, dtype=np.int64) - size
    if rng.random() < 0.1:
        place[rng.randrange(len(values))] = rng.choice((1 << 40, 1 << 62, len(buffer)))
    decoded = decode_columns(name, versions, place, size, (buffer,))
    for array in message_arrays(decoded).values():
        array.validate(full=True)
    for i, value in enumerate(values):
        if versions[i] != version or place[i] != size[:i].sum():
            continue
        try:
            _, end = decode_message(of, version, value)
        except MalformedError:
            assert decoded.status[i] != 0, (name, version, value)
        else:
            assert (decoded.status[i], decoded.rest[i]) == (0, len(value) - end), (name, version, value)
    _framed(rng, values, place, size, buffer)


def _framed(rng: Random, values: list[bytes], place: Any, size: Any, buffer: Any) -> None:
    assert (heads(place, size, (buffer,), framed=rng.random() < 0.5).skip <= size).all()
    topic = rng.choice(sorted(HOMES))
    for value in values:
        with suppress(CorruptionError):
            decode_framed(topic, value)
        with suppress(CorruptionError):
            decode_coordinator(
                rng.choice(("__consumer_offsets", "__transaction_state", "__share_group_state")), value, value
            )


def _value(rng: Random, field: MessageField, version: int) -> Any:
    if field.nullable.has(version) and rng.random() < 0.2:
        return None
    return (
        [_item(rng, field, version) for _ in range(rng.randrange(4))] if field.is_list else _item(rng, field, version)
    )


def _item(rng: Random, field: MessageField, version: int) -> Any:
    if field.type == "struct":
        return {inner.name: _value(rng, inner, version) for inner in field.fields if inner.is_in(version)}
    if field.type == "uuid":
        return format_uuid(rng.randbytes(16))
    if field.type in ("bytes", "records"):
        return rng.randbytes(rng.randrange(20))
    simple = {"string": "text" * rng.randrange(4), "bool": rng.random() < 0.5, "float64": rng.random()}
    return simple.get(field.type, rng.randrange(100))
