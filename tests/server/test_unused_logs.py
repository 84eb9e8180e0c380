"""Tests of server/overlays.py. Logs that nobody reads any more are closed, beside fetches that go on."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from pathlib import Path
from typing import Any

from helpers.checks import wait_for
from helpers.kafka_clients import PATIENCE_S, RawClient
from helpers.servers import reading

import pylogseg
from pylogseg.server.connection import Limits
from pylogseg.server.server import Server

DATA = Path(__file__).resolve().parents[2] / "examples" / "data"
TOPICS = ("codec-none", "codec-gzip", "txn-a", "levels", "mixed")


def asked(topic: str, number: int, size: int = 1 << 20) -> dict[str, Any]:
    """A fetch of one partition."""
    row = {"partition": number, "partitionMaxBytes": size}
    return {"maxWaitMs": 0, "maxBytes": size, "topics": [{"topic": topic, "partitions": [row]}]}


def served_by(server: Server) -> list[tuple[str, int]]:
    return [(each.topic, each.number) for each in server.catalog.partitions()]


def is_closed_soon(server: Server, within_s: float = PATIENCE_S) -> bool:
    """Whether all logs are closed before a time is over."""
    until = time.monotonic() + within_s
    while any(each.is_open for each in server.catalog.partitions()):
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


def open_files() -> set[tuple[str, str]]:
    """Descriptors of the examples in this process, where the system tells."""
    found = set()
    for path in Path("/proc/self/fd").glob("*"):
        with contextlib.suppress(OSError):  # that of the listing itself
            found.add((path.name, os.readlink(path)))
    return {each for each in found if each[1].startswith(str(DATA))}


def test_they_are_closed_and_opened_again() -> None:
    before = open_files()  # of other tests, which the collector has not come to
    with (
        Server(reading([DATA], TOPICS), limits=Limits(unused_s=0.1)) as server,
        RawClient(server.bootstrap_servers) as client,
    ):
        first = {}
        for each in served_by(server):
            client.send(1, 11, asked(*each))
            first[each] = client.frame()[4:]
        assert is_closed_soon(server)
        assert open_files() <= before, "a descriptor is left"
        for each in served_by(server):
            client.send(1, 11, asked(*each))
            assert client.frame()[4:] == first[each]


def test_not_while_an_answer_is_sent(tmp_path: Path) -> None:
    """A client that takes its answer slowly gets all of it."""
    with pylogseg.open_log(tmp_path / "big-0") as log:
        for _ in range(40):
            log.append([{"value": os.urandom(1 << 18)}])
        whole = bytes(log.engine.fetch(0, 64 << 20).data)
    with (
        Server(reading([tmp_path]), limits=Limits(unused_s=0.1)) as server,
        RawClient(server.bootstrap_servers) as client,
    ):
        client.send(1, 11, asked("big", 0, 64 << 20))
        wait_for(lambda: server.catalog.topics["big"].partitions[0].is_open)
        assert not is_closed_soon(server, 1.0)
        assert client.frame().endswith(whole)
        assert is_closed_soon(server)


def test_beside_many_fetches() -> None:
    """Logs are closed hundreds of times a second, and no fetch notices."""
    wrong: list[Any] = []
    with Server(reading([DATA], TOPICS), limits=Limits(unused_s=0.002)) as server:
        chosen = served_by(server)
        with RawClient(server.bootstrap_servers) as client:
            expected = {}
            for each in chosen:
                client.send(1, 11, asked(*each))
                expected[each] = client.frame()[4:]

        def run(seed: int) -> None:
            with RawClient(server.bootstrap_servers) as client:
                for i in range(150):
                    each = chosen[(i + seed) % len(chosen)]
                    client.send(1, 11, asked(*each))
                    if client.frame()[4:] != expected[each]:
                        wrong.append(each)
                    if i % 10 == seed:
                        time.sleep(0.005)

        threads = [threading.Thread(target=run, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong
