"""What the Python programs of this folder have in common: they print an answer in JSON for each capability.

    PROGRAM BOOTSTRAP SPEC.json     a line for each capability of the specification that the client has
    PROGRAM BOOTSTRAP SPEC.json, with "members" in it: a line whenever the members of this process own other partitions,
                                    until standard input ends

README.md has the fields of a specification and of the answers. Every Python runs this, also old ones.
"""

from __future__ import annotations

import base64
import hashlib
import json
import signal
import sys
import time
from pathlib import Path

#: Longer keys and values are told by their length and SHA-1, as in `tests/golden/broker-4.3/*/expected.jsonl.gz`.
LONGEST = 200
#: A client that gets nothing for so long, although it is not at the end, stalls.
PATIENCE_S = 20.0
#: Of one capability.
LONGEST_S = 60.0


class Stalled(Exception):
    """Nothing came for a while."""


class Patience:
    """Raises `Stalled` where nothing comes for too long."""

    def __init__(self, seconds=PATIENCE_S):
        self.seconds = seconds
        self._until = time.monotonic() + seconds

    def progress(self):
        """Something has come."""
        self._until = time.monotonic() + self.seconds

    def check(self, where):
        """Raise unless something came in time."""
        if time.monotonic() > self._until:
            raise Stalled(f"nothing for {self.seconds:.0f} s: {where}")


def data(value):
    """Bytes as JSON."""
    if value is None:
        return None
    value = bytes(value)
    if len(value) <= LONGEST:
        return base64.b64encode(value).decode()
    return {"len": len(value), "sha1": hashlib.sha1(value).hexdigest()}


def row(partition, offset, timestamp, kind, epoch, key, value, headers):
    """One record: its kind of timestamp is 0 (of the producer), 1 (of the append) or None (format 0 has none)."""
    timestamp = None if kind is None or timestamp is None or timestamp < 0 else timestamp
    headers = [[name, data(value)] for name, value in headers or ()]
    return [
        partition,
        offset,
        timestamp,
        kind if timestamp is not None else None,
        epoch,
        data(key),
        data(value),
        headers,
    ]


def by_topic(rows, topics):
    """Rows of (topic, row), sorted, for each topic."""
    found = {topic: [] for topic in topics}
    for topic, each in rows:
        found[topic].append(each)
    return {topic: sorted(each, key=lambda one: one[:2]) for topic, each in found.items()}


def overdue(signum, frame):
    """End a call of a client that does not come back."""
    raise Stalled(f"not back after {LONGEST_S:.0f} s")


def main(capabilities, members):
    """Answer what the specification asks."""
    bootstrap, path = sys.argv[1:]
    spec = json.loads(Path(path).read_text())
    if "members" in spec:
        members(bootstrap, spec)
        return
    signal.signal(signal.SIGALRM, overdue)
    for name in spec["capabilities"]:
        if name not in capabilities:
            continue
        began = time.monotonic()
        signal.setitimer(signal.ITIMER_REAL, LONGEST_S, 5)  # again, if it is caught and waited on
        try:
            line = {"capability": name, "answer": capabilities[name](bootstrap, spec)}
        except Exception as error:
            line = {"capability": name, "error": f"{type(error).__name__}: {error}"}
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        line["seconds"] = round(time.monotonic() - began, 2)
        print(json.dumps(line), flush=True)


def watch(owned, poll, close):
    """Poll until standard input ends; print what the members own whenever that changes.

    `poll` waits for a tenth of a second at most.
    """
    import threading

    over = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
    before = None
    while not over.is_set():
        poll()
        now = [sorted(each) for each in owned()]
        if now != before:
            print(json.dumps({"owned": now}), flush=True)
            before = now
    close()
