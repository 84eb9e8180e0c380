"""Settings of Kafka 4.3, the version that the server reports, with their types, defaults and checks."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import NamedTuple

from pylogseg._setting_text import parse_double, parse_integer, split_list, trim
from pylogseg.format.kafka_table import kafka_table

_BITS = {"SHORT": 16, "INT": 32, "LONG": 64}
_RANGE = re.compile(r"\[(-?\d+),\.\.\.(?:,(-?\d+))?\](?: or (-?\d+))?")


class Setting(NamedTuple):
    """A setting: Kafka's name of its type, its default, whether it can be changed while a broker runs, and its check.

    That is a range, as ``[0,...]`` or ``[1,...,9] or -1``, or the words that are allowed: ``[compact, delete]``.
    """

    type: str
    default: str | None
    is_dynamic: bool
    check: str


@functools.cache
def settings(kind: str) -> Mapping[str, Setting]:
    """Return the settings of a kind of resource, as ``"TOPIC"``, ``"BROKER"`` or ``"GROUP"``, by name."""
    return {name: Setting(*row) for name, row in kafka_table()[kind].items()}


def broker_setting(name: str) -> str | None:
    """Return the setting of a broker that is the default of one of a topic."""
    setting: str | None = kafka_table()["SYNONYM"].get(name)
    return setting


def settings_of_topics(broker: Mapping[str, str]) -> dict[str, str]:
    """Return a broker's settings as settings of topics."""
    names = {of: name for name, of in kafka_table()["SYNONYM"].items()}
    return {names[name]: value for name, value in broker.items() if name in names}


def why_invalid(name: str, setting: Setting, value: str) -> str:
    """Return in Kafka's words why a setting cannot have a value; empty if it can, or if there is no check here."""
    text, shown = trim(value), value
    why = ""
    if setting.type in _BITS or setting.type == "DOUBLE":
        number = _number(setting.type, text)
        why = f"Not a number of type {setting.type}" if number is None else _why_out(setting.check, number)
        shown = value if number is None else str(number)
    elif setting.type == "BOOLEAN":
        why = "" if text.lower() in ("true", "false") else "Expected value to be either true or false"
    elif setting.check.startswith("[") and ":" not in setting.check:
        words = setting.check.strip("[]").split(", ")
        items = split_list(text) if setting.type == "LIST" else (text,)
        other = next((item for item in items if item not in words), None)
        why, shown = ("", value) if other is None else (f"String must be one of: {', '.join(words)}", other)
    return why and f"Invalid value {shown} for configuration {name}: {why}"


def _number(kind: str, text: str) -> float | int | None:
    try:
        number = parse_integer(text) if kind in _BITS else parse_double(text)
    except ValueError:
        return None
    fits = kind not in _BITS or 0 <= number + 2 ** (_BITS[kind] - 1) < 2 ** _BITS[kind]
    return number if fits else None


def _why_out(check: str, number: float) -> str:
    match = _RANGE.fullmatch(check)
    if match is None:
        return ""
    least, most, also = int(match[1]), int(match[2]) if match[2] else None, match[3]
    if also is not None:
        is_good = number == int(also) or (least <= number and (most is None or number <= most))
        return "" if is_good else f"Value must be between {least} and {most} or equal to {also}"
    if number < least:
        return f"Value must be at least {least}"
    return "" if most is None or number <= most else f"Value must be no more than {most}"
