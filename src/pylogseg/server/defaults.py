"""What the Kafka has as which the server speaks: its settings with their types and defaults, and its errors.

`kafka.json` is made from Kafka's classes (`tests/kafka/server_table.py`); nobody writes in it by hand.
"""

from __future__ import annotations

import functools
import json
import pkgutil
from collections.abc import Mapping
from typing import Any, NamedTuple


class Setting(NamedTuple):
    """A setting: Kafka's name of its type, its default, and whether a running broker can be given another value."""

    type: str
    default: str | None
    is_dynamic: bool


@functools.cache
def _table() -> dict[str, Any]:
    text = pkgutil.get_data("pylogseg.server", "kafka.json")
    assert text is not None
    return dict(json.loads(text))


@functools.cache
def settings(kind: str) -> Mapping[str, Setting]:
    """Return the settings of a kind of resource, as ``"TOPIC"``, ``"BROKER"`` or ``"GROUP"``, by name."""
    return {name: Setting(*row) for name, row in _table()[kind].items()}


def broker_setting(name: str) -> str | None:
    """Return the setting of a broker that is the default of one of a topic."""
    found: str | None = _table()["SYNONYM"].get(name)
    return found


@functools.cache
def errors() -> Mapping[str, int]:
    """Return the numbers of Kafka's errors by their names."""
    return dict(_table()["ERROR"])
