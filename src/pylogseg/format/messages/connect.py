"""Keys of records in Kafka Connect's three topics. The names of the topics are settings."""

from __future__ import annotations

import re
from collections.abc import Sequence

#: What the keys of a topic are, by its kind.
KEYS = {
    "config": re.compile(
        r"(connector|task|commit|target-state|tasks-fencing|restart-connector|logger-cluster)-.+|session-key"
    ),
    "status": re.compile(r"status-(connector|task|topic)-.+"),
    "offset": re.compile(r'\["(\\.|[^"\\])*",.*\]', re.DOTALL),
}
#: Keys of a few records are enough.
LOOKED_AT = 20
_TYPES = (
    "connector", "task", "commit", "target-state", "tasks-fencing", "restart-connector", "logger-cluster",
    "status-connector", "status-task", "status-topic",
)  # fmt: skip


def kind_of_keys(keys: Sequence[str | None]) -> str | None:
    """Return ``config``, ``status`` or ``offset`` if all keys are of such a topic; a key that is no text is None."""
    for kind, pattern in KEYS.items():
        if keys and all(key is not None and pattern.fullmatch(key) for key in keys):
            return kind
    return None


def key_parts(key: str) -> tuple[str, str | None, int | None]:
    """Return type, name and number of a task of a key of a config or status topic.

    >>> key_parts("task-my-sink-3")
    ('task', 'my-sink', 3)
    >>> key_parts("session-key")
    ('session-key', None, None)
    """
    if key == "session-key":
        return key, None, None
    kind = max((name for name in _TYPES if key.startswith(f"{name}-")), key=len, default=None)
    if kind is None:
        raise ValueError(f"{key!r} is not a key of Kafka Connect")
    name = key[len(kind) + 1 :]
    owner, _, number = name.rpartition("-")
    if kind in ("task", "status-task") and owner and number.isdecimal():
        return kind, owner, int(number)
    return kind, name, None
