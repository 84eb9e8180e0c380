"""A log directory goes from a running Kafka broker to `open_log` and back, in order and after kills. Takes a minute.

    python tests/soak handover

It needs Java 17, as `tests/kafka/broker/README.md` says, and prints what was compared; the exit code tells.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from helpers.embedded_logs import SETTINGS, fill

from pylogseg import EmbeddedLog, open_log
from pylogseg.errors import StorageError
from soak import BROKER

RECOVERED = "LogLoader partition=orders-0, dir={}] Recovering unflushed segment"


class Broker:
    """A real broker with its data in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, command: str, *arguments: str) -> str:
        call = ["bash", BROKER, command, self.folder, *arguments]
        done = subprocess.run(call, capture_output=True, text=True, timeout=900, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    def offsets(self, isolation_level: str) -> list[int]:
        """Of the records that a consumer gets."""
        rows = self("consume", "orders", "--partition", "0", "--isolation", isolation_level)
        return [json.loads(row)["offset"] for row in rows.splitlines()]

    def recovered(self, partition: Path) -> bool:
        """Whether it did not believe, at its last start, that the partition was closed in order."""
        return RECOVERED.format(partition.parent) in (self.folder / "run" / "server.log").read_text()


def more(log: EmbeddedLog) -> None:
    """Decide what was open, and append."""
    for producer_id in log.open_transactions():
        log.producer(producer_id).commit()
    log.append([(None, None, b"more")] * 100)


def turn(
    broker: Broker, partition: Path, work: Callable[[EmbeddedLog], None], close: Callable[[EmbeddedLog], None]
) -> None:
    """Our turn, then the broker's; it must give its consumers what we saw."""
    log = open_log(partition, **SETTINGS)
    recovered = log.report.recovered_segments > 0
    work(log)
    isolations = ("read_uncommitted", "read_committed")
    want = {
        isolation_level: [r.offset for r in log.read(isolation_level=isolation_level)] for isolation_level in isolations
    }  # type: ignore[arg-type]
    close(log)
    broker("start")
    found = {isolation_level: broker.offsets(isolation_level) for isolation_level in isolations}
    assert found == want
    assert broker.recovered(partition) == (close is EmbeddedLog.close_handles)
    counts = ", ".join(f"{len(offsets)} {isolation_level}" for isolation_level, offsets in found.items())
    print(f"we recovered: {recovered}; the broker recovered: {broker.recovered(partition)}; it consumes {counts}")


def main() -> None:
    """The whole way."""
    with tempfile.TemporaryDirectory(prefix="pylogseg-") as folder:
        broker = Broker(Path(folder))
        try:
            broker("start")
            broker("client", "create-topic", "orders", "1")
            while not (found := list(Path(folder).glob("data*/orders-0"))):  # the broker makes it soon
                time.sleep(0.05)
            partition = found[0]
            try:
                open_log(partition)
                raise AssertionError("the lock of a running broker was not seen")
            except StorageError as error:
                print(error)
            broker("stop")
            before = sorted(path.name for path in partition.parent.iterdir())
            turn(broker, partition, fill, EmbeddedLog.close)
            broker("stop")
            turn(broker, partition, more, EmbeddedLog.close)
            broker("kill")
            turn(broker, partition, more, EmbeddedLog.close_handles)
            broker("stop")
            assert sorted(path.name for path in partition.parent.iterdir()) == before
        finally:
            broker("stop")


if __name__ == "__main__":
    sys.exit(main())
