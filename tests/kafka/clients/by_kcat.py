"""The capabilities by kcat, from what it prints (`answers.py` says how it is called)."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
import threading
import time

from answers import by_topic, main, row, watch

COMMON = ["-X", "max.partition.fetch.bytes=100000", "-X", "fetch.wait.max.ms=50"]


def kcat(bootstrap, *words, check=True, text=True):
    """What kcat prints."""
    command = ["kcat", "-b", bootstrap, "-m", "20", *COMMON, *words]
    done = subprocess.run(command, capture_output=True, timeout=50, check=False)
    if check and done.returncode:
        raise RuntimeError(done.stderr.decode().strip()[-300:])
    return done.stdout.decode() if text else done.stdout


def listed(bootstrap, spec):
    """Topics and their partitions, with leaders and replicas."""
    found = json.loads(kcat(bootstrap, "-L", "-J"))
    return {
        topic["topic"]: sorted(
            [
                each["partition"],
                each["leader"],
                [one["id"] for one in each["replicas"]],
                [one["id"] for one in each["isrs"]],
            ]
            for each in topic["partitions"]
        )
        for topic in found["topics"]
    }


def rows_of(bootstrap, topic, number, *more):
    """All records of a partition."""
    words = ["-C", "-q", "-e", "-t", topic, "-p", str(number), "-o", "beginning", *more]
    # The lengths first, then the bytes, each in a run of its own: kcat has no framing for both.
    lengths = kcat(bootstrap, *words, "-f", "%p %o %T %K %S\\n").splitlines()
    keys = kcat(bootstrap, *words, "-f", "%k", text=False)
    values = kcat(bootstrap, *words, "-f", "%s", text=False)
    headers = kcat(bootstrap, *words, "-f", "%h\\x01", text=False).split(b"\x01")
    rows, key_at, value_at = [], 0, 0
    for index, line in enumerate(lengths):
        partition, offset, stamp, key, value = map(int, line.split(" "))
        said = headers[index] if index < len(headers) else b""
        rows.append(
            [
                *row(
                    partition,
                    offset,
                    stamp,
                    0,
                    None,
                    None if key < 0 else keys[key_at : key_at + key],
                    None if value < 0 else values[value_at : value_at + value],
                    [],
                ),
                base64.b64encode(said).decode(),
            ]
        )
        key_at += max(key, 0)
        value_at += max(value, 0)
    if (key_at, value_at) != (len(keys), len(values)):
        raise RuntimeError(f"{topic}-{number}: the runs differ")
    return rows


def read(bootstrap, topics, *more):
    """All records of some topics."""
    return by_topic(
        (
            (topic, each)
            for topic, numbers in topics.items()
            for number in numbers
            for each in rows_of(bootstrap, topic, number, *more)
        ),
        topics,
    )


def chosen(spec):
    """Some topics of each kind: three runs for each partition take their time."""
    return {
        topic: numbers[:2]
        for topic, numbers in spec["topics"].items()
        if topic
        in ("codec-gzip", "codec-zstd", "codec-lz4", "mixed", "timestamps", "txn-a", "cmp-txn", "del-records", "epochs")
    }


def records(bootstrap, spec):
    """All records, with their headers as kcat prints them."""
    return read(bootstrap, chosen(spec), "-X", "isolation.level=read_uncommitted")


def committed(bootstrap, spec):
    """The same with read_committed."""
    return read(bootstrap, chosen(spec), "-X", "isolation.level=read_committed")


def legacy(bootstrap, spec):
    """Records of formats 0 and 1."""
    return read(bootstrap, spec["legacy"])


def times(bootstrap, spec):
    """Offsets by time, and of the ends."""
    found = {}
    for moment in (*spec["times"], -1, -2):
        asked = [f"{topic}:{number}:{moment}" for topic, numbers in spec["topics"].items() for number in numbers]
        words = [word for each in asked for word in ("-t", each)]
        found[moment] = sorted(kcat(bootstrap, "-Q", *words).splitlines())
    return found


def reset(bootstrap, spec):
    """What it reads from an offset that is not there."""
    topic, number = spec["reset"]
    words = ["-C", "-q", "-e", "-t", topic, "-p", str(number), "-o", "100000", "-f", "%o "]
    return {where: kcat(bootstrap, *words, "-X", f"auto.offset.reset={where}") for where in ("earliest", "latest")}


def group(bootstrap, spec):
    """Join, read all, commit; go on from there."""
    words = [
        "-G",
        "kcat" + spec["suffix"],
        "-q",
        "-e",
        "-f",
        "%p-%o ",
        "-X",
        "auto.offset.reset=earliest",
        spec["group"],
    ]
    return [sorted(kcat(bootstrap, *words).split()) for _ in range(2)]


def produce(bootstrap, spec):
    """The words of a refusal."""
    command = ["kcat", "-b", bootstrap, "-P", "-t", spec["refused"], "-p", "0"]
    return subprocess.run(command, input="x", capture_output=True, timeout=30, check=False, encoding="utf-8").stderr


def sessions(bootstrap, spec):
    """All partitions of a topic."""
    topic, count = spec["many"]
    found = kcat(bootstrap, "-C", "-q", "-e", "-t", topic, "-o", "beginning", "-f", "%p %o %s\\n").splitlines()
    return [len(found) == count, sorted(found)]


def members(bootstrap, spec):
    """Members of one group, each a kcat."""
    asked = spec["members"]
    words = [
        "kcat",
        "-b",
        bootstrap,
        "-G",
        asked["group"],
        "-X",
        "session.timeout.ms=6000",
        "-X",
        "heartbeat.interval.ms=500",
        "-f",
        "",
        asked["topic"],
    ]
    owned = [[] for _ in range(asked["count"])]
    processes = [subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) for _ in owned]

    def listen(number):
        # % Group g rebalanced (memberid m): assigned: topic [0], topic [1]
        for line in processes[number].stderr:
            if ": assigned:" in line:
                owned[number] = [int(each) for each in re.findall(r"\[(\d+)\]", line.split(": assigned:")[1])]
            elif ": revoked" in line:
                owned[number] = []

    for number in range(len(owned)):
        threading.Thread(target=listen, args=(number,), daemon=True).start()

    def close():
        for each in processes:
            each.terminate()
        for each in processes:
            each.wait(20)

    watch(lambda: owned, lambda: time.sleep(0.02), close)


CAPABILITIES = {
    "list": listed,
    "records": records,
    "committed": committed,
    "legacy": legacy,
    "times": times,
    "reset": reset,
    "group": group,
    "produce": produce,
    "sessions": sessions,
}

if __name__ == "__main__":
    main(CAPABILITIES, members) if len(sys.argv) == 3 else sys.exit(__doc__)
