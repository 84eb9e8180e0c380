"""Members of JSON that somebody else may have written, each checked when it is taken."""

from __future__ import annotations

import re
from typing import Any

from pylogseg.errors import CorruptionError, RequestError
from pylogseg.format.names import check_topic
from pylogseg.format.uuids import parse_uuid

_MOST_TEXT = 64 << 10
_INT64 = 2**63 - 1


class JsonFields:
    """An object or array of JSON that somebody else may have written: members by name or number, checked.

    `where` names it in errors, as in ``partitions[3].segments[0]``.
    """

    def __init__(self, value: Any, at: str, where: str, kind: type[dict[Any, Any]] | type[list[Any]] = dict) -> None:
        if not isinstance(value, kind):
            raise CorruptionError(at, 0, f"{where or 'it'} is {show_value(value)}: expected {_KINDS[kind]}")
        self.value: Any = value
        self.at, self.where = at, where

    def fault(self, name: str | int, expected: str) -> CorruptionError:
        """Return the error for a member with an unexpected value."""
        return CorruptionError(self.at, 0, f"{self._name(name)} is {show_value(self._get(name))}: expected {expected}")

    def _get(self, name: Any) -> Any:
        if isinstance(self.value, dict):
            return self.value.get(name)
        return self.value[name] if name < len(self.value) else None

    def _name(self, name: str | int) -> str:
        return f"{self.where}[{name}]" if isinstance(name, int) else f"{self.where}.{name}".lstrip(".")

    def number(self, name: str | int, most: int = _INT64, least: int = 0) -> int:
        """Return a whole number within bounds."""
        value = self._get(name)
        if type(value) is not int or not least <= value <= most:
            raise self.fault(name, f"a number from {least} to {most}")
        return value

    def text(self, name: str | int, form: re.Pattern[str] | None = None) -> str:
        value = self._get(name)
        if not isinstance(value, str) or len(value) > _MOST_TEXT or (form and not form.fullmatch(value)):
            expected = f"text of the form {form.pattern}" if form else f"text of at most {_MOST_TEXT} characters"
            raise self.fault(name, expected)
        return value

    def uuid(self, name: str | int) -> str:
        """Return a UUID in Kafka's form."""
        value = self.text(name)
        try:
            parse_uuid(value)
        except RequestError:
            raise self.fault(name, "a UUID of 22 characters") from None
        return value

    def topic(self, name: str | int) -> str:
        value = self.text(name)
        try:
            check_topic(value)
        except RequestError:
            raise self.fault(name, "the name of a topic") from None
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        inside = JsonFields(self._get(name), self.at, self._name(name), list)
        return tuple(inside.text(number) for number in range(len(inside.value)))

    def objects(self, name: str) -> list[JsonFields]:
        values = JsonFields(self._get(name), self.at, self._name(name), list).value
        return [JsonFields(value, self.at, f"{self._name(name)}[{i}]") for i, value in enumerate(values)]

    def arrays(self, name: str) -> list[JsonFields]:
        values = JsonFields(self._get(name), self.at, self._name(name), list).value
        return [JsonFields(value, self.at, f"{self._name(name)}[{i}]", list) for i, value in enumerate(values)]

    def array(self, name: str) -> JsonFields:
        return JsonFields(self._get(name), self.at, self._name(name), list)

    def members(self, name: str) -> dict[str, Any]:
        """Return the members of an object, which are not checked yet."""
        return dict(JsonFields(self._get(name), self.at, self._name(name)).value)


_KINDS = {dict: "a JSON object", list: "a JSON array"}


def show_value(value: Any) -> str:
    text = "missing" if value is None else repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."
