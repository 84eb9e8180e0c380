"""What a hostile network does to `pylogseg serve`: nothing.

    python tests/soak serve-hostile [--seed N] [--rounds N] [PART...]

PART is one of

    frames    each request in each version, built from the schema with random and with sensible values; then cut,
              with bits flipped, lengths forged, tags that nobody knows; random bytes
    many      1,000 connections that are idle, half of them in the middle of a request; the next one is refused
    large     each list of each request in each version (below 10 rounds, in the newest), with 2 MiB of the smallest
              items: the process may take 64 MB and 20 times what it was sent (RLIMIT_AS), and ten seconds for each
    slow      50 clients that take no answer beside one that reads a log again and again
    stop      100 clients wait for records and for their groups: the process ends within a second of SIGTERM

The server is a process of its own. After each step another client is answered, its log has no error of the server,
its memory has not grown without bound, and no thread or descriptor is left. By default all parts, a minute. The seed is
printed; the same one does the same. Exit code 0 if all is well.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import resource
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from helpers.kafka_clients import RawClient
from helpers.large_lists import large_lists
from helpers.wire_draws import drawn

from pylogseg.format.messages import wire
from pylogseg.format.messages.schema import Message, messages
from pylogseg.server.budget import ITEM_BYTES, REQUEST_BYTES
from pylogseg.server.handlers import READ_ONLY
from pylogseg.server.writing.handlers import WRITING
from soak import EXAMPLES

#: Memory of the process may grow by so much over all of a part.
MOST_GROWTH_MB = 40
PATIENCE_S = 20.0
#: Joins wait for others, with a rebalance timeout that may be days; they are cut off after so long.
LOOK_S = 0.3


class Served:
    """The process, and what may be asked about it."""

    def __init__(self, process: subprocess.Popen[str], address: str, log: Path) -> None:
        self.process, self.address, self.log = process, address, log

    def status(self, name: str) -> int:
        """A number of /proc."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(next(line for line in text.splitlines() if line.startswith(name)).split()[1])

    def files(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def check(self, what: str) -> None:
        """Another client is answered at once, and the server has not met an error of its own."""
        with RawClient(self.address, PATIENCE_S) as client:
            assert client.ask(3, 9, {"topics": None})["topics"], what
        said = self.log.read_text(errors="replace")
        wrong = [line for line in said.splitlines() if "error of this server" in line or "Traceback" in line]
        assert not wrong, "\n".join([f"{what}: the server said", *wrong[:20]])

    def settle(self, threads: int, files: int) -> None:
        """All connections are gone, and with them their threads and descriptors."""
        until = time.monotonic() + PATIENCE_S
        while self.status("Threads") > threads or self.files() > files:
            now = f"{self.status('Threads')} threads and {self.files()} files, {threads} and {files} before"
            assert time.monotonic() < until, now
            time.sleep(0.05)


@contextmanager
def served(folder: Path, started: Sequence[str]) -> Iterator[Served]:
    """Start the command."""
    log = folder / "server.log"
    command = [sys.executable, "-m", "pylogseg", *started, "--listen", "127.0.0.1:0"]
    own = {**os.environ, "MALLOC_ARENA_MAX": "1"}  # of which each thread reserves 64 MiB otherwise
    with log.open("w") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, encoding="utf-8", env=own)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        yield Served(process, line.split(" at ")[1].split(",")[0], log)
    finally:
        process.kill()
        process.wait()


# ---- frames ----


def thrown(server: Served, data: bytes) -> None:
    """Send bytes, and take what comes for a moment, at most."""
    with RawClient(server.address, LOOK_S) as client, contextlib.suppress(OSError):
        client.socket.sendall(data)
        client.socket.shutdown(socket.SHUT_WR)
        while client.socket.recv(1 << 16):
            pass


def forged(noise: random.Random, frame: bytes) -> bytes:
    """A frame with some of its bytes changed, and perhaps cut; its size is true or not."""
    found = bytearray(frame)
    for _ in range(noise.randrange(5)):
        at = noise.randrange(4, len(found))
        kind = noise.randrange(4)
        if kind == 0:
            found[at] ^= 1 << noise.randrange(8)
        elif kind == 1:
            found[at : at + 4] = struct.pack(">i", noise.choice([-1, -(2**31), 2**31 - 1, 2**24, 0]))
        elif kind == 2:
            found[at:at] = bytes([noise.choice([255, 254, 128, 127])] * noise.randrange(1, 11))
        else:
            del found[at : at + noise.randrange(1, 9)]
    if noise.random() < 0.3:
        found = found[: noise.randrange(1, len(found) + 1)]
    if noise.random() < 0.8 and len(found) >= 4:
        found[:4] = struct.pack(">i", max(0, len(found) - 4))
    return bytes(found)


def frames(server: Served, noise: random.Random, rounds: int) -> int:
    """Each request in each version."""
    count = 0
    chosen = [
        (of, version)
        for of in messages().values()
        if of.kind == "request" and of.number is not None
        for version in range(of.versions.first, of.versions.last + 1)
        if READ_ONLY.is_served(of.number, version)
    ]
    for _ in range(rounds):
        for of, version in chosen:
            for make in (lambda: drawn(of, version, noise), lambda: drawn(of, version, noise, NAMES)):  # noqa: B023
                frame = framed(of, version, make())
                for data in (frame, forged(noise, frame)):
                    thrown(server, data)
                    count += 1
        server.check("frames")
    for _ in range(50 * rounds):
        thrown(server, noise.randbytes(noise.choice([1, 3, 4, 5, 64, 4096, 65536])))
        count += 1
    return count


#: Texts that lead further into the server than random ones.
NAMES = ("txn-a", "codec-gzip", "levels", "__consumer_offsets", "group", "consumer", "range", "uniform")


def framed(of: Message, version: int, values: dict[str, Any]) -> bytes:
    """The frame of a request that waits for nobody."""
    for name, most in (("maxWaitMs", 20), ("timeoutMs", 20), ("sessionTimeoutMs", 6000), ("rebalanceTimeoutMs", 50)):
        if name in values:
            values[name] = min(values[name], most)
    assert of.number is not None
    return wire.request(of.number, version, 1, "hostile", values)


# ---- large lists ----

LARGE_BYTES, LARGE_S = 2 << 20, 10.0


def large(server: Served, noise: random.Random, rounds: int) -> int:
    """Lists that unfold to much."""
    join = {"groupId": "t", "sessionTimeoutMs": 600_000, "rebalanceTimeoutMs": 1, "protocolType": "consumer",
            "protocols": [{"name": "t", "metadata": bytes(1000)}]}  # fmt: skip
    with RawClient(server.address, PATIENCE_S) as client:
        client.ask(11, 2, join)
        client.ask(3, 9, {"topics": [{"name": "t"}], "allowAutoTopicCreation": True})
        client.ask(2, 1, {"topics": [{"name": "t", "partitions": [{"partitionIndex": 0, "timestamp": -1}]}]})
    most = (server.status("VmSize") << 10) + 20 * LARGE_BYTES + (64 << 20)
    resource.prlimit(server.process.pid, resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))
    count, worst = 0, (0.0, "")
    for case in large_lists(WRITING, newest=rounds < 10):
        if case.of.number in (11, 14):  # they wait for others
            continue
        for most in (2**31, REQUEST_BYTES // ITEM_BYTES, 20_000):  # more than is allowed, and nearly as much
            began = time.monotonic()
            with RawClient(server.address, PATIENCE_S) as client, contextlib.suppress(OSError):
                client.socket.sendall(case.frame(LARGE_BYTES, most))
                client.frame()
            assert time.monotonic() - began < LARGE_S, case
            worst, count = max(worst, (time.monotonic() - began, str(case))), count + 1
            assert server.process.poll() is None, case
            assert "MemoryError" not in server.log.read_text(errors="replace"), case
    print(f"    {server.status('VmHWM') / 1000:.0f} MB at the most; the longest took {worst[0]:.1f} s: {worst[1]}")
    server.check("large")
    return count


# ---- connections ----


def many(server: Served, noise: random.Random, rounds: int) -> int:
    """As many connections as are allowed."""
    clients = [RawClient(server.address, PATIENCE_S) for _ in range(999)]
    for client in clients[::2]:
        client.socket.sendall(struct.pack(">ih", 1000, 3))
    with RawClient(server.address, PATIENCE_S) as last:
        assert last.ask(3, 9, {"topics": None})["topics"]
        with RawClient(server.address, PATIENCE_S) as more:
            assert more.is_closed(), "there is no bound on connections"
        for client in clients[1::2]:
            assert client.ask(3, 9, {"topics": None})["topics"]
    print(f"    {server.status('VmRSS') / 1000:.0f} MB with {len(clients) + 1} connections")
    for client in clients:
        client.socket.close()
    return len(clients)


def slow(server: Served, noise: random.Random, rounds: int) -> int:
    """Clients that take nothing, beside one that is quick."""
    asked = {"topic": "codec-gzip", "partitions": [{"partition": 0, "partitionMaxBytes": 1 << 20}]}
    fetch = {"maxWaitMs": 0, "maxBytes": 1 << 20, "topics": [asked]}
    clients = [RawClient(server.address, PATIENCE_S) for _ in range(50)]
    stop = threading.Event()

    def ask_on(client: RawClient) -> None:
        with contextlib.suppress(OSError):
            while not stop.is_set():
                client.send(1, 11, fetch)

    askers = [threading.Thread(target=ask_on, args=(client,), daemon=True) for client in clients]
    for asker in askers:
        asker.start()
    count, worst = 0, 0.0
    with RawClient(server.address, PATIENCE_S) as quick:
        until = time.monotonic() + 5.0
        while time.monotonic() < until:
            began = time.monotonic()
            assert quick.ask(1, 11, fetch)["responses"][0]["partitions"][0]["records"]
            worst, count = max(worst, time.monotonic() - began), count + 1
    print(f"    {count} fetches of the quick one, the longest took {worst * 1000:.0f} ms")
    stop.set()
    for client in clients:
        with contextlib.suppress(OSError):
            client.socket.shutdown(socket.SHUT_RDWR)
        client.socket.close()
    return count


def stop(server: Served, noise: random.Random, rounds: int) -> int:
    """The end, while everybody waits."""
    asked = {"topic": "levels", "partitions": [{"partition": 0, "fetchOffset": 350, "partitionMaxBytes": 1 << 20}]}
    clients = [RawClient(server.address, PATIENCE_S) for _ in range(100)]
    join = {"groupId": "waits", "sessionTimeoutMs": 6000, "rebalanceTimeoutMs": 600_000, "protocolType": "consumer",
            "protocols": [{"name": "range", "metadata": b""}]}  # fmt: skip
    clients[0].ask(11, 2, join)
    for i, client in enumerate(clients[1:]):
        if i % 2:
            client.send(11, 2, join)
        else:
            client.send(1, 11, {"maxWaitMs": 600_000, "minBytes": 1, "maxBytes": 1 << 20, "topics": [asked]})
    time.sleep(0.5)
    began = time.monotonic()
    server.process.send_signal(signal.SIGTERM)
    server.process.wait(PATIENCE_S)
    took = time.monotonic() - began
    print(f"    stopped in {took * 1000:.0f} ms")
    assert took < 1.0
    assert server.process.returncode == 0
    for client in clients:
        client.socket.close()
    return len(clients)


PARTS: dict[str, Callable[[Served, random.Random, int], int]] = {
    "frames": frames,
    "large": large,
    "many": many,
    "slow": slow,
    "stop": stop,
}


#: Of the command.
COMMANDS = {"large": ("broker", "--above", str(EXAMPLES))}
#: Of the growth at its peak in MB, where it is another one.
GROWTHS_MB = {"large": 64 + (20 * LARGE_BYTES >> 20)}


def main(arguments: list[str]) -> int:
    """Run the parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--rounds", type=int, default=10)
    chosen = parser.parse_args(arguments)
    for name in chosen.parts or PARTS:
        if name not in PARTS:
            parser.error(f"no part {name}")
        noise = random.Random(chosen.seed)
        with (
            tempfile.TemporaryDirectory() as folder,
            served(Path(folder), COMMANDS.get(name, ("serve", str(EXAMPLES), "--group-offsets"))) as server,
        ):
            server.check("before")
            server.settle(server.status("Threads"), server.files())
            if name == "frames":  # the engine is imported with the first of them
                frames(server, noise, 1)
            before, threads, files = server.status("VmRSS") / 1000, server.status("Threads"), server.files()
            began = time.monotonic()
            count = PARTS[name](server, noise, chosen.rounds)
            took = time.monotonic() - began
            if server.process.poll() is None:
                server.check(name)
                # Descriptors of logs that were opened meanwhile may stay.
                server.settle(threads, files + 128)
                growth = server.status("VmHWM") / 1000 - before
                assert growth < GROWTHS_MB.get(name, MOST_GROWTH_MB), f"{name}: {growth:.0f} MB more at its peak"
                print(f"    {growth:.0f} MB more at its peak than before")
            print(f"{name}: {count} in {took:.0f} s, all well (seed {chosen.seed})", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
