"""The lag of a stream, which Spark does not report for a Python source."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple


class StreamLag(NamedTuple):
    """Offsets that are in the logs and not yet in the query.

    Attributes
    ----------
    total, most, least : int
        The lag of all partitions together, and that of the partitions with the largest and the smallest lag.
    partitions : dict of (str, int) to int
        By topic and partition.
    """

    total: int
    most: int
    least: int
    partitions: dict[tuple[str, int], int]


def lag(progress: Any) -> StreamLag:
    """Return the number of offsets between the end of a streaming query's batch and the ends of the logs.

    Parameters
    ----------
    progress : StreamingQueryProgress or mapping
        ``query.lastProgress``, or ``event.progress`` in a listener.

    Returns
    -------
    StreamLag
        The lag of all sources of this package in the query. All zero before Spark 4.2, which reports no latest offsets.
    """
    lags: dict[tuple[str, int], int] = {}
    report = progress if isinstance(progress, Mapping) else json.loads(progress.json)
    for source in report.get("sources", ()):
        latest, end = _offsets(source.get("latestOffset")), _offsets(source.get("endOffset"))
        for key, offset in latest.items():
            lags[key] = lags.get(key, 0) + max(0, offset - end.get(key, 0))
    return StreamLag(sum(lags.values()), max(lags.values(), default=0), min(lags.values(), default=0), lags)


def _offsets(said: Any) -> dict[tuple[str, int], int]:
    """Parse the offsets of a progress, JSON or already parsed; return none for another source's value."""
    try:
        parsed = json.loads(said) if isinstance(said, str) else said
        return {(topic, int(number)): int(next) for topic, of in parsed.items() for number, next in of.items()}
    except (AttributeError, TypeError, ValueError):
        return {}
