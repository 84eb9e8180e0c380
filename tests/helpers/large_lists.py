"""Requests that are one large list of the smallest items, for each list of each request in the table of messages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from pylogseg._codec import encode_uvarint
from pylogseg.format.messages import wire
from pylogseg.format.messages.codec import is_flexible
from pylogseg.format.messages.schema import Message, MessageField, messages
from pylogseg.server.table import ApiTable

_EMPTY = {"uuid": wire.NO_ID, "bytes": b"", "records": b"", "bool": False, "float64": 0.0}
_Path = tuple[MessageField, ...]


class Large(NamedTuple):
    """A request in a version, and one of its lists."""

    of: Message
    version: int
    path: _Path
    #: What texts in it are; a nested list is empty, or has one item in each of the others.
    text: str
    is_nested: bool

    def __str__(self) -> str:
        where = ".".join(field.name for field in self.path)
        return f"{self.of.name} v{self.version} {where} of {self.text!r}{', nested' if self.is_nested else ''}"

    def frame(self, size: int, most: int = 2**31) -> bytes:
        """A frame of so many bytes, nearly, and of so many items at most."""
        none, one, two = (self._encoded(count) for count in range(3))
        at = next(i for i, (a, b) in enumerate(zip(none, two, strict=False)) if a != b)  # the end of the count
        item = one[at + 1 : at + 1 + len(one) - len(none)]
        count = max(1, min(most, (size - len(none)) // len(item)))
        head, tail = none[: at + 1], none[at + 1 :]
        if is_flexible(self.path[-1], self.version, self.of.flexible):
            head = head[:-1] + encode_uvarint(count + 1)
        else:
            head = head[:-4] + count.to_bytes(4, "big")
        body = head + item * count + tail
        return len(body).to_bytes(4, "big") + body

    def _encoded(self, count: int) -> bytes:
        values = {**_full(self.of.fields, self.text, self.is_nested), "acks": 1}  # without one there is no answer
        at: Any = values
        for field in self.path[:-1]:
            inner = _full(field.fields, self.text, self.is_nested)
            at[field.name] = [inner] if field.is_list else inner
            at = inner
        at[self.path[-1].name] = [_item(self.path[-1], self.text, self.is_nested)] * count
        assert self.of.number is not None
        return wire.request(self.of.number, self.version, 1, "large", values)[4:]


def _item(field: MessageField, text: str, is_nested: bool) -> Any:
    if field.type == "struct":
        return _full(field.fields, text, is_nested)
    return text if field.type == "string" else _EMPTY.get(field.type, 0)


def _full(fields: tuple[MessageField, ...], text: str, is_nested: bool) -> dict[str, Any]:
    found = {}
    for field in fields:
        if field.is_list:
            found[field.name] = [_item(field, text, False)] if is_nested else []
        else:
            found[field.name] = _item(field, text, False)
    return found


def large_lists(table: ApiTable, *, newest: bool = False) -> Iterator[Large]:
    """Yield each list of each request that a table answers, in each version or in the newest."""
    for of in messages().values():
        if of.kind != "request" or of.number is None or of.number not in table.offered:
            continue
        versions = [each for each in range(of.versions.first, of.versions.last + 1) if table.is_served(of.number, each)]
        for version in versions[-1:] if newest else versions:
            for path in _lists(of.fields, version):
                assert not any(field.tagged.has(version) for field in path), "its size stands before its count"
                for text in ("", "t"):
                    yield Large(of, version, path, text, False)
                if any(field.is_list for field in path[-1].fields):
                    yield Large(of, version, path, "t", True)


def _lists(fields: tuple[MessageField, ...], version: int, path: _Path = ()) -> Iterator[_Path]:
    for field in fields:
        if not field.versions.has(version):
            continue
        if field.is_list:
            yield (*path, field)
        if field.type == "struct":
            yield from _lists(field.fields, version, (*path, field))
