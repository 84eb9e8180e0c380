#!/usr/bin/env python3
"""What the server's process spends on fetches: CPU per request, and bytes per second of CPU.

    serve_rates.py [FOLDER]

Writes a log of 400 MB into FOLDER (default: a temporary one), serves it by `pylogseg serve`, and fetches it over one
connection with three sizes. Wall clock is printed too; it depends on what else the machine does.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from helpers.kafka_clients import RawClient

import pylogseg
from pylogseg.server import wire

#: Bytes of a fetch, and how many are sent.
FETCHES = ((64 << 10, 4000), (1 << 20, 1500), (10 << 20, 150))
RECORDS, RECORD_BYTES = 400_000, 1000


def write(folder: Path) -> None:
    """Write the log, unless it is there."""
    if not (folder / "big-0").exists():
        with pylogseg.open_log(folder / "big-0") as log:
            while log.log_end_offset < RECORDS:
                log.append([{"value": os.urandom(RECORD_BYTES)} for _ in range(64)])


def cpu_seconds(process: int) -> float:
    """User and system time of a process."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def fetch(client: RawClient, size: int, offset: int, into: memoryview) -> int:
    """Fetch once; how many bytes came."""
    row = {"partition": 0, "fetchOffset": offset, "partitionMaxBytes": size}
    asked = {"maxWaitMs": 0, "minBytes": 1, "maxBytes": size, "topics": [{"topic": "big", "partitions": [row]}]}
    client.socket.sendall(wire.request(1, 12, 1, "rates", asked))
    length = int.from_bytes(client.socket.recv(4, socket.MSG_WAITALL), "big")
    got = 0
    while got < length:
        got += client.socket.recv_into(into[got:length])
    return length


def main(arguments: list[str]) -> int:
    """Print a line for each size."""
    folder = Path(arguments[0] if arguments else tempfile.mkdtemp(prefix="pylogseg-rates-"))
    write(folder)
    started = time.perf_counter()
    command = [sys.executable, "-m", "pylogseg", "serve", str(folder), "--listen", "127.0.0.1:0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, encoding="utf-8")
    assert process.stdout is not None
    address = process.stdout.readline().split(" at ")[1].split(",")[0]
    memory = memoryview(bytearray(16 << 20))
    with RawClient(address) as client:
        client.ask(3, 12, {"topics": None})
        print(f"process to first answer: {(time.perf_counter() - started) * 1000:.0f} ms")
        for size, count in FETCHES:
            before, began, total = cpu_seconds(process.pid), time.perf_counter(), 0
            for i in range(count):
                total += fetch(client, size, i * (size // 1100) % (RECORDS * 9 // 10), memory)
            spent, wall = cpu_seconds(process.pid) - before, time.perf_counter() - began
            rates = f"{total / spent / 1e9:4.1f} GB per CPU second, {total / wall / 1e9:4.1f} GB/s"
            print(f"{size >> 10:6} KiB: {spent / count * 1e6:5.0f} us CPU a request, {rates}")
    process.terminate()
    process.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
