"""The clients: how each is installed, and how its program runs against an address."""

from __future__ import annotations

import hashlib
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
KAFKA = HERE.parent
CACHE = Path(os.environ.get("ORACLE_HOME") or Path.home() / ".cache" / "pylogseg-oracle")
#: A program that prints no answer for so long is killed.
SILENT_S = 300.0
#: Members of a group share all partitions within so many seconds; those of the new protocol are missed after 45.
SHARED_S = 300.0
SPARK = "4.2.0"


class Client(NamedTuple):
    """A client library.

    Attributes
    ----------
    name : str
        A column of the table.
    command : callable
        Installs it if it is not there, and returns the words of its program's command.
    """

    name: str
    command: Callable[[], list[str]]


def in_python(program: str, *requirements: str) -> Callable[[], list[str]]:
    """A program of this folder in an environment of its own."""

    def command() -> list[str]:
        folder = CACHE / f"venv-{hashlib.sha256(repr((sys.version, requirements)).encode()).hexdigest()[:12]}"
        python = folder / "bin" / "python"
        if not (folder / ".complete").exists():
            shutil.rmtree(folder, ignore_errors=True)
            subprocess.run([sys.executable, "-m", "venv", folder], check=True)
            subprocess.run([python, "-m", "pip", "install", "-q", *requirements], check=True)
            (folder / ".complete").touch()
        return [str(python), str(HERE / program)]

    return command


def in_java(version: str) -> Callable[[], list[str]]:
    """`Clients.java`, compiled against a version of Kafka's clients."""

    def command() -> list[str]:
        jars = CACHE / f"clients-jars-{version}"
        if not (jars / ".complete").exists():
            shutil.rmtree(jars, ignore_errors=True)
            pom = [f"-Dkafka.version={version}", f"-DoutputDirectory={jars}", "-f", str(HERE / "pom.xml")]
            subprocess.run(["mvn", "-q", "-B", *pom, "dependency:copy-dependencies"], check=True)
            (jars / ".complete").touch()
        return java_program(version, f"{jars}/*")

    return command


def java_program(version: str, classpath: str) -> list[str]:
    """Compile `Clients.java` if that was not done yet."""
    source = HERE / "Clients.java"
    classes = CACHE / f"clients-{version}-{hashlib.sha256(source.read_bytes()).hexdigest()[:12]}"
    if not classes.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        fresh = tempfile.mkdtemp(prefix="classes.", dir=CACHE)
        subprocess.run(["javac", "-nowarn", "-Xlint:none", "-d", fresh, "-cp", classpath, source], check=True)
        Path(fresh).rename(classes)
    java = ["java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    return [*java, "-cp", f"{classes}:{classpath}", "Clients"]


def in_go(name: str) -> Callable[[], list[str]]:
    """A program below `go`."""

    def command() -> list[str]:
        folder = KAFKA / "go"
        texts = b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())
        program = CACHE / f"go-{name}-{hashlib.sha256(texts).hexdigest()[:12]}"
        if not program.exists():
            subprocess.run(["go", "build", "-o", program, f"./{name}"], check=True, cwd=folder)
        return [str(program)]

    return command


def spark() -> list[str]:
    """Spark's own Kafka source, of the newest version that Maven has."""
    command = in_python("by_spark.py", f"pyspark=={SPARK}")()
    jars = CACHE / f"clients-spark-{SPARK}"
    if not (jars / ".complete").exists():
        pom = [f"-Dspark.version={SPARK}", f"-DoutputDirectory={jars}", "-f", str(KAFKA / "broker" / "spark-pom.xml")]
        subprocess.run(["mvn", "-q", "-B", *pom, "dependency:copy-dependencies"], check=True)
        (jars / ".complete").touch()
    return ["env", f"SPARK_JARS={','.join(map(str, sorted(jars.glob('*.jar'))))}", *command]


def kcat() -> list[str]:
    """Debian's kcat, by a program of this folder that reads what it prints."""
    if shutil.which("kcat") is None:
        raise FileNotFoundError("kcat is not installed (apt install kcat)")
    return [sys.executable, str(HERE / "by_kcat.py")]


CLIENTS = [
    Client("Java 4.4", in_java("4.4.0")),
    Client("Java 4.3", in_java("4.3.0")),
    Client("Java 3.9", in_java("3.9.1")),
    Client("Java 2.8", in_java("2.8.2")),
    Client("confluent-kafka 2.16", in_python("by_confluent.py", "confluent-kafka==2.16.1")),
    Client("kcat 1.7", kcat),
    Client("aiokafka 0.14", in_python("by_aiokafka.py", "aiokafka[lz4,snappy,zstd]==0.14.0")),
    Client("kafka-python 3.0", in_python("by_kafka_python.py", "kafka-python[lz4,snappy,zstd]==3.0.12", "xxhash")),
    Client("kafka-python 2.3", in_python("by_kafka_python.py", "kafka-python[lz4,snappy,zstd]==2.3.0", "xxhash")),
    Client(
        "kafka-python 2.0",
        in_python("by_kafka_python.py", "kafka-python==2.0.2", "python-snappy", "lz4", "zstandard", "xxhash"),
    ),
    Client("franz-go 1.22", in_go("franz")),
    Client("Sarama 1.61", in_go("sarama")),
    Client(f"Spark {SPARK}", spark),
]


def answers(command: list[str], bootstrap: str, spec: dict[str, Any]) -> dict[str, Any]:
    """What a client's program answers for each capability, as `{"answer" or "error", "seconds"}`."""
    with running(command, bootstrap, spec) as (_, lines):
        found = {}
        while (line := lines(SILENT_S)) is not None:
            found[line.pop("capability")] = line
        return found


@contextmanager
def running(command: list[str], bootstrap: str, spec: dict[str, Any]) -> Iterator[tuple[Any, Any]]:
    """A program and a function that returns its next line, or None at the end or after some seconds without one."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file, tempfile.TemporaryFile("w+") as complaints:
        json.dump(spec, file)
        file.flush()
        process = subprocess.Popen(
            [*command, bootstrap, file.name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=complaints,
            encoding="utf-8", start_new_session=True,
        )  # fmt: skip
        waiting: queue.Queue[str | None] = queue.Queue()

        def collect() -> None:
            for line in process.stdout:
                waiting.put(line)
            waiting.put(None)

        threading.Thread(target=collect, daemon=True).start()

        def lines(seconds: float) -> Any:
            try:
                line = waiting.get(timeout=max(seconds, 0.01))
            except queue.Empty:
                return None
            return None if line is None else json.loads(line)

        try:
            yield process, lines
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if os.environ.get("CLIENTS_STDERR"):
                complaints.seek(0)
                sys.stderr.write(complaints.read()[-3000:])


# ---- groups of several processes ----


class Unshared(Exception):
    """The members of a group did not share its partitions in time."""


def last_owned(lines: Any, owned: list[list[int]]) -> list[list[int]]:
    """What the members of a process own now."""
    while (line := lines(0)) is not None:
        owned = line["owned"]
    return owned


def until_shared(step: str, programs: list[Any], owned: dict[int, Any], partitions: int, members: int) -> list[int]:
    """Wait until every partition has one owner and every member a partition; how many each member has.

    The new protocol hands partitions over one by one, as members give them up: shares are told once they are even, or
    have not become so in time.
    """
    until = time.monotonic() + SHARED_S
    while True:
        for number, lines in enumerate(programs):
            owned[number] = last_owned(lines, owned.get(number, []))
        all_members = [each for number in range(len(programs)) for each in owned[number]]
        held = sorted(partition for each in all_members for partition in each)
        shares = sorted(map(len, all_members))
        is_over = time.monotonic() > until
        if held == list(range(partitions)) and len(all_members) == members and all(all_members):
            if is_over or shares[-1] - shares[0] <= 1:
                return shares
        elif is_over:
            break
        time.sleep(0.05)
    raise Unshared(f"{step}: {owned}")


def rebalances(command: list[str], bootstrap: str, topic: str, partitions: int, asked: dict[str, Any]) -> Any:
    """Three members, then five; two are killed; one comes, and leaves; each time all is shared again."""
    found = {}

    def program(count: int) -> Any:
        return running(command, bootstrap, {"members": {"topic": topic, "count": count, **asked}})

    owned: dict[int, Any] = {}
    try:
        with program(3) as (_, first):
            found["3 members"] = until_shared("3 members", [first], owned, partitions, 3)
            with program(2) as (second, lines):
                found["5 members"] = until_shared("5 members", [first, lines], owned, partitions, 5)
                os.killpg(second.pid, signal.SIGKILL)
            del owned[1]
            found["2 killed"] = until_shared("2 killed", [first], owned, partitions, 3)
            with program(1) as (second, lines):
                found["1 comes"] = until_shared("1 comes", [first, lines], owned, partitions, 4)
                second.stdin.close()
                second.wait(60)
            del owned[1]
            found["1 leaves"] = until_shared("1 leaves", [first], owned, partitions, 3)
    except (Unshared, subprocess.TimeoutExpired) as error:
        found["error"] = str(error)
    return found


def static_member(command: list[str], bootstrap: str, topic: str, partitions: int, asked: dict[str, Any]) -> Any:
    """A static member is killed and comes again: it has its partitions, and the other one has seen no rebalance."""
    found: dict[str, Any] = {}

    def program(name: str) -> Any:
        return running(command, bootstrap, {"members": {"topic": topic, "count": 1, "static": name, **asked}})

    owned: dict[int, Any] = {}
    try:
        with program("one") as (_, first):
            with program("two") as (second, lines):
                found["shared"] = until_shared("two members", [first, lines], owned, partitions, 2)
                before = owned[1]
                os.killpg(second.pid, signal.SIGKILL)
            with program("two") as (_, lines):
                owned[1] = []
                until_shared("it comes again", [first, lines], owned, partitions, 2)
                found["the same partitions"] = owned[1] == before
                found["rebalances of the other"] = first(2)
    except (Unshared, subprocess.TimeoutExpired) as error:
        found["error"] = str(error)
    return found
