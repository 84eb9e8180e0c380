"""Random values for requests, over the schema, from a seed; for programs that run longer than Hypothesis should."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from typing import Any

from pylogseg.format.messages.schema import WIDTHS, Message, MessageField

_EDGES = (0, 1, -1, 2, 5, 100, 350)


def drawn(of: Message, version: int, noise: random.Random, names: Sequence[str] = ()) -> dict[str, Any]:
    """Return a value for each field that the version has. With `names`, texts are among them, and numbers are small."""
    return {field.name: _value(field, version, noise, names) for field in of.fields if field.is_in(version)}


def _value(field: MessageField, version: int, noise: random.Random, names: Sequence[str]) -> Any:
    if field.nullable.has(version) and noise.random() < 0.2:
        return None
    if field.is_list:
        return [_item(field, version, noise, names) for _ in range(noise.choice((0, 1, 1, 2, 3)))]
    return _item(field, version, noise, names)


def _item(field: MessageField, version: int, noise: random.Random, names: Sequence[str]) -> Any:
    if field.type == "struct":
        return {each.name: _value(each, version, noise, names) for each in field.fields if each.is_in(version)}
    if field.type == "string":
        return (
            noise.choice(names)
            if names
            else "".join(chr(noise.randrange(1, 0xD7FF)) for _ in range(noise.randrange(9)))
        )
    if field.type in ("bytes", "records"):
        return noise.randbytes(noise.randrange(20))
    if field.type == "uuid":
        return noise.randbytes(16) if noise.random() < 0.8 else bytes(16)
    if field.type == "bool":
        return noise.random() < 0.5
    if field.type == "float64":
        return struct.unpack(">d", noise.randbytes(8))[0]
    bits = 8 * WIDTHS[field.type]
    low, high = (0, 2**bits - 1) if field.type.startswith("uint") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    if names or noise.random() < 0.5:
        return max(low, min(high, noise.choice((*_EDGES, low, high) if not names else _EDGES)))
    return noise.randrange(low, high + 1)
