#!/usr/bin/env python3
"""Each Kafka client, on a real broker and on `pylogseg serve`, over the same files: a table of what is equal.

    matrix.py GOLDEN [--client NAME]... [--capability NAME]... [--out FILE] [--record FILE]

GOLDEN is the folder `broker-4.3` of unpacked golden data. A broker adopts partitions of many kinds (`corpus.py`); it
starts on one copy, `pylogseg serve` on another, under strace and on a read-only mount where the system lets us.
Every client's program asks both for the same (`runs.py`), at the same time, and each answer is compared: records
with all their fields, positions, offsets, errors. A client that gets nothing for 20 seconds has stalled, which is an
answer too, and no equal one.
The table is printed at the end and goes to FILE in Markdown; what differs is printed as it is found. Requests that
clients sent to the broker, with its answers, go to the file of --record (`replays.py` asks them again).
Exit code 0 if all is equal and the files that were served are what they were.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "broker")]

import consoles  # noqa: E402
import runs  # noqa: E402  (neighbours, which are no package)
from corpus import ADOPTED, EACH_EPOCH, MANY, MANY_SMALL, SMALL, corpus  # noqa: E402
from one_broker import Broker  # noqa: E402
from readonly import Watched, digest, readonly  # noqa: E402
from recorder import Recorder  # noqa: E402
from replays import Recorded, recorded, replay, save  # noqa: E402
from runs import CLIENTS, Client  # noqa: E402

TOPICS = {
    **{topic: list(range(count)) for topics in ADOPTED.values() for topic, count in topics.items()},
    **{f"cmp-{name}": [0] for name in ("long", "short", "txn", "idem", "delete", "zstd")},
    "epochs": [0],
}
SPEC: dict[str, Any] = {
    "topics": TOPICS,
    "legacy": {"legacy": [0]},
    "times": [0, 1_700_000_006_021, 1_700_000_500_000, 1_795_242_037_207, 4_000_000_000_002, 9_000_000_000_000],
    "reset": ["codec-zstd", 0],
    "group": "groups-in",
    "refused": "codec-zstd",
    "many": ["many", MANY],
    #: Behind the end of the first epoch of this topic: who was there has read what is no more.
    "truncated": ["epochs", 0, EACH_EPOCH + 5, 0],
}
#: A broker that has noted no leader epoch for so long has begun all of them.
SETTLE_S = 3.0
REBALANCED = "Name.with_dots-and-2"
#: Rows of the table: capability of a program, or the members of a group, and what it means.
CAPABILITIES = {
    "list": "list topics",
    "describe": "describe topics",
    "records": "assign, all records",
    "committed": "read_committed",
    "legacy": "formats 0 and 1",
    "times": "by time, earliest, latest, max",
    "reset": "out of range, reset both ways",
    "group": "group: join, commit, resume",
    "members": "group: 3 to 5 members, 2 killed, one comes and leaves",
    "static": "group: static member comes again",
    "truncated": "truncation is seen",
    "new group": "KIP-848: join, commit, resume",
    "new members": "KIP-848: 3 to 5 members, 2 killed, one comes and leaves",
    "sessions": f"{MANY} partitions",
    "stream": "Spark: a stream with AvailableNow",
    "produce": "produce is refused, text seen",
}
#: How the groups of several processes are asked for.
GROUPS = {
    "members": (runs.rebalances, {}),
    "static": (runs.static_member, {}),
    "new members": (runs.rebalances, {"protocol": "consumer"}),
}


def cell(capability: str, theirs: Any, ours: Any) -> tuple[str, str]:
    """What stands in the table, and what is printed of a difference."""
    if theirs is None and ours is None:
        return "–", ""
    if capability == "produce":
        text = json.dumps(ours)
        if "read-only" in text:
            return "words", ""
        return ("code", "") if re.search("policy", text, re.IGNORECASE) else ("DIFFERENT", text[:600])
    one, other = (clean(each) for each in (theirs, ours))
    if one == other:
        if (
            "stalled" in str(one).lower()
            or "Unshared" in str(one)
            or (isinstance(one, dict) and "error" in one and not one.get("answer"))
        ):
            return ("same error", str(one)[:300])
        return "equal", ""
    return "DIFFERENT", "\n".join(
        f"    {who}: {str(each)[:700]}" for who, each in zip(("kafka", "ours "), parted(one, other), strict=True)
    )


def clean(answer: Any) -> Any:
    """An answer without addresses and times."""
    if isinstance(answer, dict):
        answer = {name: value for name, value in answer.items() if name != "seconds"}
    return json.loads(re.sub(r"127\.0\.0\.1:\d+|localhost:\d+", "ADDRESS", json.dumps(answer)))


def parted(theirs: Any, ours: Any, where: str = "") -> tuple[Any, Any]:
    """The first parts that differ, of values that may be large."""
    if isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        index = next(index for index, one in enumerate(theirs) if one != ours[index])
        return parted(theirs[index], ours[index], f"{where}[{index}]")
    if isinstance(theirs, dict) and isinstance(ours, dict) and theirs.keys() == ours.keys():
        key = next(key for key in theirs if theirs[key] != ours[key])
        return parted(theirs[key], ours[key], f"{where}.{key}")
    return f"{where} {json.dumps(theirs)}", f"{where} {json.dumps(ours)}"


#: What is asked of the files whose recording is kept.
SMALL_SPEC = {
    **SPEC,
    "topics": {
        **{topic: list(range(count)) for topics in SMALL.values() for topic, count in topics.items()},
        "epochs": [0],
    },
    "many": ["many", MANY_SMALL],
}


def ask(
    client: Client, capabilities: list[str], recorder: Recorder, addresses: tuple[str, str], of: dict[str, Any]
) -> dict[str, Any]:
    """Cells of one column: capability to (Kafka's answer, ours)."""
    recorder.client = client.name
    command = client.command()
    found: dict[str, Any] = {}
    spec = {
        **of,
        "capabilities": [each for each in capabilities if each not in GROUPS],
        "suffix": "-" + re.sub(r"\W+", "-", f"{client.name} {os.getpid()}"),
    }
    with ThreadPoolExecutor(2) as pool:
        # A server that anybody may write to would take this record: only ours is asked.
        asked = [{**spec, "capabilities": [each for each in spec["capabilities"] if each != "produce"]}, spec]
        both = list(pool.map(lambda one: runs.answers(command, *one), zip(addresses, asked, strict=True)))
        for mine, other, address in zip(both, both[::-1], addresses, strict=True):
            again = [name for name in mine if "Stalled" in str(mine[name]) and "Stalled" not in str(other.get(name))]
            if again:  # kafka-python stalls by itself now and then: twice is a difference
                print(f"{client.name}: stalled on {address}, once more: {again}", flush=True)
                more = {**spec, "capabilities": again, "suffix": f"{spec['suffix']}-more"}
                mine.update(runs.answers(command, address, more))
        theirs, ours = both
        for name in spec["capabilities"]:
            found[name] = theirs.get(name), ours.get(name)
        recorder.client = ""  # the requests of groups of several processes cannot be asked again one by one
        for name in (each for each in capabilities if each in GROUPS):
            if not has(client, name):
                found[name] = None, None
                continue
            run, more = GROUPS[name]
            group = {**more, "group": re.sub(r"\W+", "-", f"{client.name} {name} {os.getpid()}")}
            size = len(TOPICS[REBALANCED])
            asking = [pool.submit(run, command, one, REBALANCED, size, group) for one in addresses]
            found[name] = tuple(each.result() for each in asking)
    return found


def has(client: Client, name: str) -> bool:
    """Whether a client has groups, static members, or the new group protocol."""
    if client.name.startswith("Spark"):
        return False
    if name == "static":
        return client.name not in ("kafka-python 2.0", "kafka-python 2.3", "kcat 1.7")
    return name != "new members" or client.name.startswith(("Java 4", "Java 3", "confluent", "franz"))


def table(cells: dict[str, dict[str, str]]) -> str:
    """Markdown."""
    columns = list(cells)
    rows = [name for name in CAPABILITIES if any(name in of for of in cells.values())]
    lines = [["capability", *columns], ["---"] * (len(columns) + 1)]
    lines += [[CAPABILITIES[name], *(cells[column].get(name, "") for column in columns)] for name in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def asked_again(recorder: Recorder, servers: dict[str, str]) -> tuple[list[Recorded], int]:
    """Ask the requests of each client again, of both servers; all that was recorded, and how much of ours differs."""
    kept = list(recorded(list(recorder.exchanges)))
    wrong = 0
    for client in dict.fromkeys(each.client for each in kept):
        mine = [each for each in kept if each.client == client]
        for who, address in servers.items():
            compared, differences = replay(mine, address, suffix="-again")
            kinds = sorted({(key, version) for _, key, version in compared})
            print(f"{client}: {sum(compared.values())} requests again, {who}: {len(differences)} fields differ", kinds)
            for each in differences[:5]:
                print(f"    {each}"[:400])
            wrong += len(differences) if who == "pylogseg" else 0
    return kept, wrong


def settle(folder: Path) -> None:
    """Wait until a broker that has started has begun the leader epoch of each partition."""
    before, since = None, time.monotonic()
    while time.monotonic() < since + SETTLE_S:
        time.sleep(0.2)
        now = {path: path.read_text() for path in folder.glob("data?/*/leader-epoch-checkpoint")}
        if now != before:
            before, since = now, time.monotonic()


def pack(folders: list[Path], archive: Path) -> None:
    """Keep the files that are served."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive, "w:xz", preset=9) as tar:
        for folder in folders:
            tar.add(folder, folder.name)


@contextmanager
def servers(
    golden: Path, folder: Path, recorder: Recorder, *, small: bool
) -> Iterator[tuple[tuple[str, str], Watched, list[Path]]]:
    """A broker behind the recorder, and `pylogseg serve`, on copies of the same files."""
    files = corpus(golden, small=small)
    served = [folder / "served" / name for name in ("data0", "data1")]
    for name in ("data0", "data1"):
        shutil.copytree(files / name, folder / "kafka" / name)
    broker = Broker(folder / "kafka")
    broker("start", "log.cleaner.enable=false", "log.retention.check.interval.ms=86400000",
           f"advertised.listeners=PLAINTEXT://{recorder.address}", "group.consumer.min.session.timeout.ms=6000",
           "broker.session.timeout.ms=60000")  # fmt: skip
    settle(folder / "kafka")
    for name in ("data0", "data1"):  # with the leader epochs that the broker has begun; as a copy of a running broker
        shutil.copytree(folder / "kafka" / name, folder / "served" / name, ignore=shutil.ignore_patterns(".lock"))
    recorder.target = ("127.0.0.1", int((folder / "kafka" / "run" / "port").read_text()))
    try:
        with readonly(folder / "served") as where, Watched([where / path.name for path in served], folder) as ours:
            yield (recorder.address, ours.address), ours, served
    finally:
        broker("stop")
        recorder.close()


def main(arguments: list[str]) -> int:
    """Fill the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("golden", type=Path)
    parser.add_argument("--client", action="append", help="part of a client's name")
    parser.add_argument("--capability", action="append", choices=CAPABILITIES)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--record", type=Path, help="a folder for requests, answers and files; small files are served")
    given = parser.parse_args(arguments)
    chosen = [each for each in CLIENTS if any(part.lower() in each.name.lower() for part in given.client or [""])]
    folder = Path(tempfile.mkdtemp(prefix="pylogseg-clients-"))
    recorder = Recorder()
    cells: dict[str, dict[str, str]] = {}
    wrong = 0
    try:
        with servers(given.golden.resolve(), folder, recorder, small=bool(given.record)) as (addresses, ours, served):
            before = digest(served)
            if given.record:
                pack(served, given.record / "served.tar.xz")
            for client in chosen:
                began = time.monotonic()
                cells[client.name] = {}
                try:
                    spec = SMALL_SPEC if given.record else SPEC
                    found = ask(client, given.capability or list(CAPABILITIES), recorder, addresses, spec)
                except (OSError, subprocess.CalledProcessError) as error:
                    print(f"{client.name}: not installed: {error}", flush=True)
                    cells[client.name] = dict.fromkeys(CAPABILITIES, "not run")
                    wrong += 1
                    continue
                for name, (theirs, mine) in found.items():
                    word, why = cell(name, theirs, mine)
                    cells[client.name][name] = word
                    wrong += word == "DIFFERENT"
                    seconds = [each.get("seconds") if isinstance(each, dict) else None for each in (theirs, mine)]
                    print(f"{client.name}: {name}: {word} {seconds}", *([why] if why else []), sep="\n", flush=True)
                print(f"{client.name}: {time.monotonic() - began:.0f} s", flush=True)
            broker = f"127.0.0.1:{recorder.target[1]}"
            if not given.client or "console" in given.client:
                count, differing = consoles.compare(
                    (SMALL_SPEC if given.record else SPEC)["topics"], broker, addresses[1]
                )
                print(
                    f"requests of consoles: {count}, {len(differing)} fields differ",
                    *differing[:20],
                    sep="\n",
                    flush=True,
                )
                wrong += len(differing)
            kept, differences = asked_again(recorder, {"kafka, again": broker, "pylogseg": addresses[1]})
            wrong += differences
            changed = digest(served) != before
        writes = ours.writes()
        print(f"served files: {'CHANGED' if changed else 'as before'}; {writes.text}")
        wrong += changed + bool(writes.calls)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if given.record:
        save(given.record / "requests.jsonl.xz", kept)
    text = table(cells)
    print(text)
    if given.out:
        given.out.write_text(text + "\n")
    print("all equal" if not wrong else f"{wrong} differences")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
