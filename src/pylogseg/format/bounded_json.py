"""JSON that somebody else wrote: four bytes of it may take 140 as objects of Python."""

from __future__ import annotations

import json
from typing import Any

#: What it becomes is counted from here on: below it, no JSON takes more than 64 MB beside 20 times its bytes.
_SMALL_BYTES = 2 << 20
_TIMES = 20
# Bytes of what JSON becomes, each with its place in a list: an object of up to five members, each member beyond
# these, a list, a text, and any value.
_OBJECT, _MEMBER, _LIST, _TEXT, _VALUE = 200, 160, 97, 60, 33


def loads(raw: bytes | str) -> Any:
    """Return the parsed JSON; ValueError if it is invalid, or would take over 64 MB and 20 times its size."""
    if len(raw) > _SMALL_BYTES:
        data = raw if isinstance(raw, bytes) else raw.encode("utf-8", "replace")
        if _estimate_bytes(data) > _TIMES * len(data):
            raise ValueError(
                f"{len(raw)} bytes of JSON, of small lists and objects, would take over {_TIMES} times as much memory"
            )
    return json.loads(raw)


def _estimate_bytes(raw: bytes) -> int:
    """Return how many bytes JSON takes as objects of Python, rather too many; names of members are kept once."""
    objects, members = raw.count(b"{"), raw.count(b'":')
    return (
        objects * _OBJECT
        + max(0, members - 5 * objects) * _MEMBER
        + raw.count(b"[") * _LIST
        + max(0, raw.count(b'"') // 2 - members) * _TEXT
        + raw.count(b",") * _VALUE
    )
