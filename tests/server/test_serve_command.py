"""Tests of cli/broker.py, cli/serve.py, cli/serving.py and server/view.py. The command: what it prints, its refusals,
and its end by a signal.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from helpers.kafka_clients import PATIENCE_S, RawClient
from helpers.shell import expect, run

import pylogseg
from pylogseg.errors import RequestError
from pylogseg.format.messages import codes

DATA = Path(__file__).resolve().parents[2] / "examples" / "data"


@contextmanager
def served(*arguments: str, command: str = "serve") -> Iterator[tuple[Any, str]]:
    """Start the command on a free port; gives the process, and its first line."""
    command_line = [sys.executable, "-m", "pylogseg", command, *arguments]
    process = subprocess.Popen(command_line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8")
    try:
        assert process.stdout is not None
        yield process, process.stdout.readline()
    finally:
        process.kill()
        process.wait()


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_until_it_is_stopped(number: signal.Signals) -> None:
    with served(str(DATA), "--listen", "127.0.0.1:0", "--topic", "codec-*", "--trace") as (process, line):
        found = re.fullmatch(r"serving 5 topics, 5 partitions, .* of .* at (\S+), read-only; Ctrl-C stops\n", line)
        assert found, line
        with RawClient(found[1]) as client:
            assert len(client.ask(3, 9, {"topics": None})["topics"]) == 5
            os.kill(process.pid, number)
            out, err = process.communicate(timeout=PATIENCE_S)
            assert client.is_closed()
        assert process.returncode == 0
        assert out == "stopped\n"
        assert "raw Metadata v9" in err
        assert "Traceback" not in err


def test_an_own_broker_with_a_number_and_acls(tmp_path: Path) -> None:
    own, options = [str(tmp_path / "own"), "--listen", "127.0.0.1:0"], ["--acls", "--super-user", "User:root"]
    for more in (["--node-id", "7"], []):  # it stays
        with (
            served(*own, *more, *options, command="broker") as (_, line),
            RawClient(line.split(" at ")[1].split(",")[0]) as client,
        ):
            assert client.ask(60, 0, {})["brokers"][0]["brokerId"] == 7
            (made,) = client.ask(19, 5, {"topics": [{"name": "one"}], "timeoutMs": 1000})["topics"]
            assert made["errorCode"] == codes.TOPIC_AUTHORIZATION_FAILED
    expect(run(" ".join(("broker", *own, "--node-id", "8"))), 2, "is of node 7, not of 8")
    expect(run(" ".join(("broker", *own, "--acls"))), 2, "--super-user")


def test_a_warning_where_others_can_read() -> None:
    with served(str(DATA), "--listen", "0.0.0.0:0", "--topic", "legacy") as (process, line):
        assert "serving 1 topic, 1 partition," in line
        process.kill()
        assert "can read without a password: legacy" in process.stderr.read()


def test_refusals(tmp_path: Path) -> None:
    for arguments, said in (
        ((str(tmp_path / "nothing"),), "nothing"),
        ((str(DATA), "--topic", "orders"), "no topic or partition 'orders'"),
        ((str(DATA), "--listen", "nowhere"), "is not an address"),
        ((str(DATA), "--advertise", "host:99999"), "is not an address"),
        ((str(DATA / "legacy-0"), "--group-offsets"), "no partition of __consumer_offsets"),
    ):
        done = run(" ".join(("serve", *arguments)))
        assert done.code == 2, arguments
        assert said in done.err
    with socket.create_server(("127.0.0.1", 0)) as taken:
        expect(run(f"serve {DATA} --listen 127.0.0.1:{taken.getsockname()[1]}"), 2, "cannot listen on")


def test_an_advertised_address() -> None:
    with pylogseg.serve(DATA, topic="legacy", advertise="broker.example:19092") as server:
        host, port = server.address
        with RawClient(f"{host}:{port}") as client:
            (broker,) = client.ask(3, 9, {"topics": None})["brokers"]
            assert (broker["host"], broker["port"]) == ("broker.example", 19092)
            (found,) = client.ask(10, 4, {"coordinatorKeys": ["g"]})["coordinators"]
            assert (found["host"], found["port"]) == ("broker.example", 19092)


def test_groups_go_on_where_the_copy_was_made() -> None:
    """Offsets are those of `pylogseg.cluster_state`; without the option no group has any."""
    rows = pylogseg.cluster_state(DATA).table("group_offsets").to_pylist()
    wanted: dict[str, dict[tuple[str, int], tuple[int, str]]] = {}
    for row in rows:
        if row["offset"] is not None:
            wanted.setdefault(row["group"], {})[row["topic"], row["partition"]] = (row["offset"], row["metadata"])
    assert wanted
    with pylogseg.serve(DATA, group_offsets=True) as server, RawClient(server.bootstrap_servers) as client:
        listed = client.ask(16, 4, {})["groups"]
        assert {each["groupId"] for each in listed} == set(wanted)
        assert {each["groupState"] for each in listed} == {"Empty"}
        asked = [{"groupId": group, "topics": None} for group in wanted]
        for group in client.ask(9, 8, {"groups": asked})["groups"]:
            found = {
                (topic["name"], each["partitionIndex"]): (each["committedOffset"], each["metadata"])
                for topic in group["topics"]
                for each in topic["partitions"]
            }
            assert found == wanted[group["groupId"]]
    with pylogseg.serve(DATA) as server, RawClient(server.bootstrap_servers) as client:
        assert client.ask(16, 4, {})["groups"] == []
    with pytest.raises(RequestError, match="no partition of __consumer_offsets"):
        pylogseg.serve(DATA / "legacy-0", group_offsets=True)


def test_topics_are_listed_without_numpy(tmp_path: Path) -> None:
    """Its import takes a third of the time until the first answer; only a log needs it, or the cluster's metadata."""
    shutil.copytree(DATA / "codec-gzip-0", tmp_path / "codec-gzip-0")
    code = (
        "import sys, kafka, pylogseg; server = pylogseg.serve(sys.argv[1]);"
        "client = kafka.KafkaConsumer(bootstrap_servers=server.bootstrap_servers);"
        "assert client.topics() == {'codec-gzip'};"
        "import pylogseg.cli.serve; print([name for name in ('numpy', 'pyarrow') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, encoding="utf-8", check=True
    )
    assert done.stdout.strip() == "[]"
