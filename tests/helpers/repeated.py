"""Requests that name one thing again and again, for each list of each request: a partition, a group, a resource."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from helpers.large_lists import _EMPTY, _lists
from pylogseg.format.messages import wire
from pylogseg.format.messages.schema import Message, MessageField, messages
from pylogseg.server.table import ApiTable

#: What fields are, by the names of things that are there.
Known = Mapping[str, Any]


class Repeated(NamedTuple):
    """A request, one of its lists, and what fields are."""

    of: Message
    version: int
    path: tuple[MessageField, ...]
    known: Known

    def __str__(self) -> str:
        return f"{self.of.name} v{self.version} {'.'.join(field.name for field in self.path)}"

    def frame(self, count: int) -> bytes:
        """A frame with so many items, all the same."""
        values = self._full(self.of.fields)
        at: Any = values
        for field in self.path[:-1]:
            inner = self._full(field.fields)
            at[field.name] = [inner] if field.is_list else inner
            at = inner
        at[self.path[-1].name] = [self._item(self.path[-1])] * count
        assert self.of.number is not None
        return wire.request(self.of.number, self.version, 1, "repeated", values)

    def _full(self, fields: tuple[MessageField, ...]) -> dict[str, Any]:
        return {field.name: [self._item(field)] if field.is_list else self._item(field) for field in fields}

    def _item(self, field: MessageField) -> Any:
        if field.type == "struct":
            return self._full(field.fields)
        for key in (f"{self.of.name}.{field.name}", field.name, field.entity):
            if key in self.known:
                return self.known[key]
        return "t" if field.type == "string" else _EMPTY.get(field.type, 0)


def repeated(table: ApiTable, known: Known) -> Iterator[Repeated]:
    """Yield each list of each request that a table answers, in the newest version."""
    for of in messages().values():
        if of.kind == "request" and of.number is not None and of.number in table.offered:
            last = max(v for v in range(of.versions.first, of.versions.last + 1) if table.is_served(of.number, v))
            for path in _lists(of.fields, last):
                yield Repeated(of, last, path, known)
