"""Write the disk that `docs/questions.md` asks questions to: a shop's topics, with what goes wrong in one.

    python examples/dead_broker.py DIR

Times, keys and values are fixed, so that every run gives the same records: 2026-03-01, from 12:00 UTC on.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pylogseg import EmbeddedLog, open_log
from pylogseg.testing.clock import ManualClock

#: 2026-03-01T12:00:00Z
NOON_MS = 1_772_366_400_000


def write(folder: Path) -> None:
    """Write all topics."""
    # Markers of transactions have the time of the clock.
    common = {"clock": ManualClock(NOON_MS + 20 * 60_000), "segment_bytes": 16384}
    for partition in (0, 1):
        with open_log(folder / f"orders-{partition}", **common, compression_type="zstd") as log:
            orders(log, partition)
    with open_log(folder / "profiles-0", **common, cleanup_policy="compact") as log:
        profiles(log)
    with open_log(folder / "web.clicks-v2-0", **common, compression_type="lz4") as log:
        log.append([(NOON_MS + 20 * i, f"session-{i % 97}", b"GET /item/%d" % (i % 31)) for i in range(2000)])


def orders(log: EmbeddedLog, partition: int) -> None:
    """Append orders of two producers: 417 is missing, 96 and 98 came twice, two came late, one batch was aborted."""
    producers = [log.producer(2000 + 2 * partition + i) for i in range(2)]
    for minute in range(20):
        for i, producer in enumerate(producers):
            if i and minute >= 8:  # this one falls silent, the other one does its work
                continue
            first, step = partition + 40 * minute, 4 if minute < 8 else 2
            numbers = range(first + 2 * i, first + 40, step)
            made = [order(number, minute) for number in numbers if number != 417]
            if minute == 5 and partition == 0:
                with producer.transaction():
                    producer.append(made)
            else:
                producer.append(made)
    if partition == 0:
        producers[1].append([order(96, 9), order(98, 9)])
        producers[0].begin()
        producers[0].append([order(9000 + i, 12) for i in range(3)])
        producers[0].abort()
        log.append([order(5001, -900), order(5002, -3)])


def order(number: int, minute: int) -> tuple[int, str, str]:
    """Return an order as a record."""
    value = {"id": number, "item": f"item-{number % 31}", "total": number % 90 + 10}
    if number == 240:
        value["note"] = "please ring twice, " * 40
    return NOON_MS + 60_000 * minute + 50 * (number % 1000), f"user-{number % 23}", json.dumps(value)


def profiles(log: EmbeddedLog) -> None:
    """Append changes of profiles; some users leave, one of them twice."""
    for i in range(60):
        left = i in (17, 40, 41) or i == 57
        user = f"user-{5 if i in (17, 57) else i % 23}"
        value = None if left else json.dumps({"plan": ["free", "plus", "pro"][i % 3], "seq": i})
        log.append([(NOON_MS + 30_000 * i, user, value)])


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    write(Path(sys.argv[1]))
