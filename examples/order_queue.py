"""A queue in a program: lines of a file become orders, a worker makes results of them, each exactly once.

    python examples/order_queue.py DIR FILE

Kill it at any moment (kill -9) and start it again: it goes on where it was, and loses and doubles nothing. The two
producers need no notes for that. Each knows from its log how many of its records are there: for the one that means how
many lines of the file are done, for the other how many orders, since every order makes one result.
"""

from __future__ import annotations

import sys
import threading
from itertools import islice
from pathlib import Path

from pylogseg import EmbeddedLog, open_log

FEEDER, WORKER = 1, 2


def feed(orders: EmbeddedLog, file: Path) -> None:
    """Append the lines that are not in the log yet."""
    producer = orders.producer(FEEDER)
    with file.open(encoding="utf-8") as lines:
        waiting = islice(lines, producer.next_sequence, None)
        while group := list(islice(waiting, 100)):
            producer.append([(None, None, line.rstrip("\n")) for line in group])


def work(orders: EmbeddedLog, results: EmbeddedLog, count: int) -> None:
    """Take orders from the first that has no result, wait for more of them, and stop behind the last."""
    producer = results.producer(WORKER)
    done = producer.next_sequence
    if done < count:
        for order in islice(orders.follow(done), count - done):
            producer.append([(order.timestamp, None, (order.value or b"").upper())])


def main(folder: str, file: str) -> None:
    """Run both sides until every line has its result."""
    with open(file, encoding="utf-8") as lines:
        count = sum(1 for _ in lines)
    # For ever: else a producer is forgotten a day after its last record, and begins at 0 again.
    settings = {"segment_bytes": 1 << 20, "flush_ms": 200, "producer_id_expiration_ms": 2**62}
    with open_log(f"{folder}/orders-0", **settings) as orders, open_log(f"{folder}/results-0", **settings) as results:
        for log in (orders, results):
            print(f"{log}, {len(log.report.actions)} repairs", flush=True)
        feeder = threading.Thread(target=feed, args=(orders, Path(file)))
        feeder.start()
        work(orders, results, count)
        feeder.join()
        print(f"{results.high_watermark} results; the last flush took {results.metrics().flush_seconds:.3f} s in all")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
