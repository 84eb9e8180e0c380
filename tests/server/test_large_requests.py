"""Tests of server/budget.py. What bytes unfold to is bounded: any list of any request, however large, in a process that
has little memory.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from helpers.kafka_clients import RawClient
from helpers.large_lists import large_lists

from pylogseg.server.budget import ITEM_BYTES, Budget, Pool, TooMuch
from pylogseg.server.writing.handlers import WRITING

#: Unfolded without a bound, a request of so many bytes takes a hundred MB.
SIZE, MEMORY_BYTES = 64 << 10, 12 << 20
SERVER = """
import sys, threading
threading.stack_size(512 << 10)
from pylogseg.disk.disk import Disk
from pylogseg.server.connection import Limits
from pylogseg.server.server import Server
from pylogseg.server.catalog import Catalog
from pylogseg.server.writing.broker import broker_service
from pylogseg.server.writing.memory import MemoryLogs
from pylogseg.server.writing.topics import Topics
store = MemoryLogs()
topics = Topics(Catalog(Disk((), ()), logs=store), store)
topics.make("t", 8)
with Server(broker_service(topics), limits=Limits(unfolded_bytes=512 << 10)) as server:
    print(server.bootstrap_servers, flush=True)
    sys.stdin.read()
"""


class Child(NamedTuple):
    """A server that has little memory more than it needs."""

    process: subprocess.Popen[str]
    address: str
    log: Path


@pytest.fixture
def child(tmp_path: Path) -> Iterator[Child]:
    log = tmp_path / "log"
    with log.open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-c", SERVER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            encoding="utf-8",
            env={"MALLOC_ARENA_MAX": "1", "PYTHONPATH": ":".join(sys.path)},
        )
    assert process.stdout is not None
    assert process.stdin is not None
    yield Child(process, process.stdout.readline().strip(), log)
    process.stdin.close()
    process.wait()


@pytest.mark.skipif(sys.platform != "linux", reason="the limits of another process are set so only here")
def test_no_list_of_any_request_takes_much_memory(child: Child) -> None:
    join = {"groupId": "t", "sessionTimeoutMs": 600_000, "rebalanceTimeoutMs": 1, "protocolType": "consumer",
            "protocols": [{"name": "t", "metadata": bytes(1000)}]}  # fmt: skip
    with RawClient(child.address) as client:  # what the lists ask about, and the engine
        client.ask(11, 2, join)
        client.ask(2, 1, {"topics": [{"name": "t", "partitions": [{"partitionIndex": 0, "timestamp": -1}]}]})
        client.ask(19, 5, {"topics": [{"name": "u", "numPartitions": 1, "replicationFactor": 1}], "validateOnly": True})
        client.ask(32, 1, {"resources": [{"resourceType": 2, "resourceName": "t"}]})
    status = Path(f"/proc/{child.process.pid}/status").read_text()
    used = next(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmSize"))
    resource.prlimit(child.process.pid, resource.RLIMIT_AS, (used + MEMORY_BYTES, resource.RLIM_INFINITY))
    closed = 0
    for case in large_lists(WRITING, newest=True):
        if case.of.number in (11, 14):  # a join that is served waits for others
            continue
        with RawClient(child.address) as client:
            client.socket.sendall(case.frame(SIZE))
            closed += client.frame() == b""
        said = child.log.read_text()
        assert "MemoryError" not in said, f"{case}\n{said}"
        assert "error of this server" not in said, f"{case}\n{said}"
    assert closed > 20
    assert "a request that unfolds to" in child.log.read_text()


def test_what_all_requests_unfold_to() -> None:
    pool = Pool(4 << 20)
    first, second = Budget(8 << 20, pool), Budget(8 << 20, pool)
    first.spend(2000)
    with pytest.raises(TooMuch, match="of 4 MiB all together"):
        second.spend(2000)
    first.close()
    Budget(8 << 20, pool).spend(2000)
    with pytest.raises(TooMuch, match="8192 are allowed"):
        Budget(8 << 20).spend((8 << 20) // ITEM_BYTES + 1)


def test_what_is_asked_for_twice_is_counted() -> None:
    budget = Budget(1 << 20)
    budget.spend_again("group", 1 << 20)
    assert budget.spent == 0
    with pytest.raises(TooMuch):
        budget.spend_again("group", 1 << 20)
