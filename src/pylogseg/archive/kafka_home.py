"""A real Kafka over a restored log directory, for a drill: it deletes, compacts and aborts nothing while it runs."""

from __future__ import annotations

import glob
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from pylogseg.errors import RequestError, StorageError

_NEVER = 2**31 - 1
#: Nothing is deleted, compacted or aborted.
_QUIET = f"""auto.create.topics.enable=false
log.cleaner.enable=false
log.retention.check.interval.ms={_NEVER}
log.initial.task.delay.ms={_NEVER}
transaction.abort.timed.out.transaction.cleanup.interval.ms={_NEVER}
transaction.remove.expired.transaction.cleanup.interval.ms={_NEVER}
offsets.retention.minutes={_NEVER}
offsets.retention.check.interval.ms={_NEVER}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
"""
_SETTINGS = f"""process.roles=broker,controller
node.id={{node_id}}
listeners=PLAINTEXT://127.0.0.1:{{port}},CONTROLLER://127.0.0.1:{{controller}}
advertised.listeners=PLAINTEXT://127.0.0.1:{{port}}
controller.listener.names=CONTROLLER
controller.quorum.voters={{node_id}}@127.0.0.1:{{controller}}
log.dirs={{log_dir}}
{_QUIET}"""
#: The operation that an error names if a broker does not start.
START = "start Kafka"
_START_S = 180.0
_STOP_S = 60.0
#: What a broker says of a log that was not closed in order, or is not what it should be.
_COMPLAINTS = re.compile(r"\b(WARN|ERROR|FATAL)\b")
_RECOVERY = re.compile(
    r"Recovering (unflushed|unclean|segment)|[Ff]ound (a )?corrupt|Could not find offset index", re.I
)
#: A coordinator's log that it read, or did not read to its end, by the name of the partition and the leader epoch.
_LOADED = re.compile(r"Finished loading of metadata from (\S+) with epoch (\d+)")
_NOT_LOADED = re.compile(r"Failed to load metadata from (\S+) with epoch (\d+)")


class StartedKafka(NamedTuple):
    """A running broker; `log` is its output so far."""

    address: str
    log: str

    def complaints(self, names: list[str]) -> list[str]:
        """Return its lines about a recovery, and its warnings about some partitions.

        A broker leads before it is registered, and again after that: what it read only then is not one.
        """
        with open(self.log, encoding="utf-8", errors="replace") as file:
            lines = file.read().splitlines()
        own = re.compile("|".join(rf"(?<![\w.-]){re.escape(name)}(?![\w-])" for name in names) or "(?!)")
        loaded = {match[1]: int(match[2]) for line in lines if (match := _LOADED.search(line))}
        said = [line for line in lines if _RECOVERY.search(line) or (_COMPLAINTS.search(line) and own.search(line))]
        return [line for line in said if not ((of := _NOT_LOADED.search(line)) and loaded.get(of[1], -1) > int(of[2]))]


def version_of(home: str) -> str:
    """Return the version of Kafka in a folder; RequestError if there is none."""
    for jar in _jars(home):
        match = re.fullmatch(r"kafka-clients-(.+)\.jar", os.path.basename(jar))
        if match:
            return match[1]
    raise RequestError(f"{home}: no Kafka here: expected its folder, with libs/kafka-clients-VERSION.jar")


def _jars(home: str) -> list[str]:
    folder = glob.escape(home)
    return sorted(glob.glob(f"{folder}/libs/*.jar") or glob.glob(f"{folder}/*.jar"))


@contextmanager
def kafka_over(home: str, log_dir: str, folder: str, node_id: int) -> Iterator[StartedKafka]:
    """Start a broker over a log directory; its settings and its log go to a folder. It is stopped in the end."""
    port, controller = free_ports()
    text = _SETTINGS.format(node_id=node_id, port=port, controller=controller, log_dir=log_dir)
    with _run_node(home, text, folder, "server", port) as log:
        yield StartedKafka(f"127.0.0.1:{port}", log)


@contextmanager
def cluster_over(
    home: str, controller: Sequence[str], controller_port: int, broker: Sequence[str], folder: str
) -> Iterator[StartedKafka]:
    """Start a controller and a broker with these lines of `server.properties`; both are stopped in the end."""
    port, _ = free_ports()
    (listener,) = (line.partition("=")[2] for line in broker if line.startswith("controller.listener.names="))
    protocols = f"listener.security.protocol.map={listener}:PLAINTEXT,PLAINTEXT:PLAINTEXT"
    own = f"listeners=PLAINTEXT://127.0.0.1:{port}", f"advertised.listeners=PLAINTEXT://127.0.0.1:{port}"
    first = "\n".join([*controller, protocols, ""])
    second = "\n".join([*broker, *own, protocols, _QUIET])
    with (
        _run_node(home, first, folder, "controller", controller_port),
        _run_node(home, second, folder, "broker", port) as log,
    ):
        yield StartedKafka(f"127.0.0.1:{port}", log)


@contextmanager
def _run_node(home: str, text: str, folder: str, name: str, port: int) -> Iterator[str]:
    """Start a node with such settings, and wait until it listens; yield the path of its log."""
    properties, log = os.path.join(folder, f"{name}.properties"), os.path.join(folder, f"{name}.log")
    with open(properties, "w", encoding="utf-8") as file:
        file.write(text)
    with open(log, "wb") as out:
        process = subprocess.Popen(
            _command(home, properties),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env={"KAFKA_HEAP_OPTS": "-Xmx768m", **os.environ, "LOG_DIR": folder},
            start_new_session=True,  # Ctrl-C is for us: we stop it
        )
    try:
        _wait(process, port, log)
        yield log
    finally:
        process.terminate()
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _command(home: str, properties: str) -> list[str]:
    java = os.path.join(os.environ["JAVA_HOME"], "bin", "java") if os.environ.get("JAVA_HOME") else shutil.which("java")
    if java is None or shutil.which(java) is None:
        raise RequestError("a drill with Kafka needs Java: set JAVA_HOME, or put java on the path")
    script = os.path.join(home, "bin", "kafka-server-start.sh")
    if os.path.exists(script):
        return [script, properties]
    options = os.environ.get("KAFKA_OPTS", "").split()
    return [java, "-Xmx768m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *options, "-cp", ":".join(_jars(home)),
            "kafka.Kafka", properties]  # fmt: skip


def free_ports() -> tuple[int, int]:
    """Return two ports of this machine at which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as two:
        return int(one.getsockname()[1]), int(two.getsockname()[1])


def _wait(process: subprocess.Popen[bytes], port: int, log: str) -> None:
    """Wait until somebody listens at the port."""
    end = time.monotonic() + _START_S
    while process.poll() is None and time.monotonic() < end:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.2)
        else:
            return
    with open(log, encoding="utf-8", errors="replace") as file:
        last = [line for line in file.read().splitlines() if line.strip()][-3:]
    code = process.returncode
    how = f"not in {_START_S:.0f} s" if code is None else f"it ended with exit code {code}"
    raise StorageError(log, START, f"{how}: {' | '.join(last) or 'it said nothing'}")
