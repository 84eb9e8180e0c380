"""Settings and errors of Kafka 4.3, as its classes have them.

`kafka.json` is made from these classes (`tests/kafka/server_table.py`); nobody writes in it by hand.
"""

from __future__ import annotations

import functools
import json
import pkgutil
from collections.abc import Mapping
from typing import Any


@functools.cache
def kafka_table() -> dict[str, Any]:
    """Return the table by kind: ``TOPIC``, ``BROKER``, ``GROUP``, ``SYNONYM``, ``ERROR``."""
    text = pkgutil.get_data("pylogseg.format", "kafka.json")
    assert text is not None
    return dict(json.loads(text))


@functools.cache
def errors() -> Mapping[str, int]:
    return dict(kafka_table()["ERROR"])
