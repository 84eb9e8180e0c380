"""The columns of records, by name."""

from __future__ import annotations

from collections.abc import Sequence

from pylogseg.errors import RequestError

#: Columns of a record, with the names and in the order of Spark's Kafka source.
DEFAULT_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
#: Columns about the batch of a record; only on request.
BATCH_COLUMNS = (
    "batchOffset",
    "leaderEpoch",
    "producerId",
    "producerEpoch",
    "sequence",
    "isTransactional",
    "isControl",
    "segment",
    "position",
)


def check_columns(columns: Sequence[str]) -> None:
    """Raise RequestError for unknown and repeated columns."""
    if isinstance(columns, str):
        raise RequestError(f"columns are a sequence of names, not the string {columns!r}")
    names, allowed = list(columns), (*DEFAULT_COLUMNS, *BATCH_COLUMNS)
    for number, name in enumerate(names):
        if name not in allowed:
            raise RequestError(f"unknown column {name!r}; the columns are {', '.join(allowed)}")
        if name in names[:number]:
            raise RequestError(f"column {name!r} is named twice")
