#!/usr/bin/env python3
"""The clients' own suites on `pylogseg.Broker()`, in memory: what passes, and what fails for a reason that is known.

    python tests/kafka/clients/suites.py [NAME...] [--bootstrap HOST:PORT] [--source NAME=URL]... [--work DIR]

Names: aiokafka, confluent-kafka, kafka-python, kgo, librdkafka; by default all. Sources and packages come from where
the clients have them: PyPI, the proxy of Go modules, or git (`--source` names another repository or a checkout). A
suite is skipped, and that is said, where a machine has not its source or its compiler. With --bootstrap they run on
another broker, a Kafka for example. What fails and is not in `KNOWN` is run again, up to three times.

Prints a row for each suite, and below it what failed, and why; exit code 1 if `KNOWN` does not name it. Two to twelve
minutes each.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pylogseg

MINUTE_S = 60
#: So often a test is run again that should not fail: some measure milliseconds.
_TURNS = 3
_ROW = "{:<16}{:<10}{:>6}{:>8}{:>9}{:>19}{:>8}"
_SESSIONS, _KAFKA = "sessions may be as short as 100 ms", "it starts a Kafka of its own, with TLS or users"
#: Tests that fail here, by a part of their names, and why; README.md has what they are about.
KNOWN = {
    "aiokafka": {"test_consumer_invalid_session_timeout": _SESSIONS},
    "confluent-kafka": {
        "sasl_cluster": _KAFKA,
        "test_consume_error_store_offsets": _SESSIONS,
        "test_consumer_upgrade_downgrade": "classic groups and those of the new protocol do not mix",
    },
    "kafka-python": {"TestSSL": _KAFKA},
    "kgo": {},
    "librdkafka": {"0077": "in memory topics are not compacted", "0103": "a topic with three replicas"},
}
#: Partitions of a topic that comes into being by itself, as the suites expect.
_PARTITIONS = {"librdkafka": 4}
#: Tools of Kafka's that tests of librdkafka start.
_TOOLS = {"kafka-topics": "org.apache.kafka.tools.TopicCommand", "kafka-acls": "org.apache.kafka.tools.AclCommand"}
#: Tests of librdkafka from this number on are of share groups.
_SHARE = 170
#: Its tests of admin requests, which are one test there.
_ADMIN = (
    "CreateTopics DeleteTopics CreatePartitions DeleteRecords AlterConfigs IncrementalAlterConfigs DescribeConfigs "
    "DescribeConfigs_groups DescribeTopics DescribeCluster ListConsumerGroups DescribeConsumerGroups DeleteGroups "
    "DeleteConsumerGroupOffsets ListConsumerGroupOffsets AlterConsumerGroupOffsets ListOffsets ElectLeaders "
    "UserScramCredentials CreateAcls DescribeAcls DeleteAcls unclean_destroy"
)
#: aiokafka starts its broker in a container; here it has one.
_CONFTEST = """

@pytest.fixture(scope="session")
def docker():
    return None


@pytest.fixture(scope="session")
def kafka_server():
    host, _, port = os.environ["SUITE_BOOTSTRAP"].rpartition(":")
    return KafkaServer(host, int(port), 0, 0, 0, None)


@pytest.fixture(scope="session")
def ssl_folder():
    return pathlib.Path("tests/ssl_cert")


@pytest.fixture(scope="class")
def acl_manager():
    return None


kafka_config = kerberos_utils = acl_manager
"""


class Skipped(Exception):
    """A suite that cannot run on this machine; the text says why."""


class Outcome(NamedTuple):
    """Names of tests by how they ended."""

    passed: list[str]
    failed: list[str]
    skipped: list[str]


class Suite(NamedTuple):
    """A suite that can run: the client's version, and what runs all tests, or those with some names."""

    version: str
    run: Callable[[Sequence[str]], Outcome]


def run(command: list[str], where: Path, minutes: int = 10, **env: str) -> str:
    """Run a command; return what it printed, whatever its exit code."""
    found = subprocess.run(
        command, cwd=where, env={**os.environ, **env}, timeout=minutes * MINUTE_S, text=True, errors="replace",
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    return found.stdout


def need(command: list[str], where: Path, minutes: int = 10, **env: str) -> None:
    """Run a command that has to work for a suite."""
    try:
        subprocess.run(
            command, cwd=where, env={**os.environ, **env}, timeout=minutes * MINUTE_S, check=True, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
    except FileNotFoundError:
        raise Skipped(f"there is no {command[0]}") from None
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        lines = str(error.stdout or "").strip().splitlines() or [str(error)]
        last = next((line for line in lines if "fatal" in line), lines[-1])
        raise Skipped(f"{' '.join(command[:3])}: {last[:150]}") from None


def cloned(url: str, where: Path) -> Path:
    """Return a checkout."""
    if not where.exists():
        url = url if "://" in url else f"file://{Path(url).resolve()}"
        need(["git", "clone", "-q", "--depth", "1", url, str(where)], where.parent)
    return where


def interpreter(where: Path, *packages: str) -> str:
    """Return a Python of its own that has some packages."""
    python = where / "venv" / "bin" / "python"
    if not python.exists():
        need([sys.executable, "-m", "venv", str(where / "venv")], where)
    need([str(python), "-m", "pip", "install", "-q", *packages], where)
    return str(python)


def version_of(python: str, package: str, where: Path) -> str:
    """Return the version of an installed package."""
    return run([python, "-c", f"import importlib.metadata as m; print(m.version('{package}'))"], where).strip()


def copied(folder: Path, where: Path) -> Path:
    """Return a fresh folder with a copy of tests: what they test is what is installed."""
    fresh = where / "run"
    shutil.rmtree(fresh, ignore_errors=True)
    shutil.copytree(folder, fresh / folder.name)
    return fresh


def by_pytest(python: str, where: Path, *arguments: str, **env: str) -> Callable[[Sequence[str]], Outcome]:
    """Return what runs pytest, and says what its report says."""
    report = where / "report.xml"
    options = ["-W", "ignore", "-o", "addopts=", "-q", f"--junitxml={report}", "--timeout=120"]

    def tests(names: Sequence[str]) -> Outcome:
        report.unlink(missing_ok=True)
        again = ["--last-failed"] if names else []
        said = run([python, "-m", "pytest", *options, *again, *arguments], where, 60, **env)
        (where / "said.txt").write_text(said)
        if not report.exists():
            raise Skipped(f"pytest made no report: {(said.strip().splitlines() or [''])[-1][:200]}")
        return _reported(report)

    return tests


def _reported(report: Path) -> Outcome:
    found = Outcome([], [], [])
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        name = f"{(case.get('classname') or '').rpartition('.')[2]}::{case.get('name')}"
        bad = case.find("failure") is not None or case.find("error") is not None
        (found.failed if bad else found.skipped if case.find("skipped") is not None else found.passed).append(name)
    return found


def aiokafka(where: Path, bootstrap: str, source: str) -> Suite:
    """The tests that need a broker, without those of TLS and SASL, whose servers are containers."""
    checkout = cloned(source or "https://github.com/aio-libs/aiokafka", where / "checkout")
    more = ("cramjam", "async-timeout", "docker", "pytest", "pytest-asyncio", "pytest-mock", "pytest-timeout")
    python = interpreter(where, "aiokafka", *more)
    folder = copied(checkout / "tests", where)
    with (folder / "tests" / "conftest.py").open("a") as file:
        file.write(_CONFTEST)
    names = (
        "admin client conn consumer coordinator fetcher message_accumulator pep492 producer sender "
        "transactional_consumer transactional_producer"
    )
    files = [f"tests/test_{name}.py" for name in names.split()]
    chosen = ["-k", "not ssl and not sasl", "--docker-image", "kafka:none_4.3.0"]
    tests = by_pytest(python, folder, *files, *chosen, SUITE_BOOTSTRAP=bootstrap)
    return Suite(version_of(python, "aiokafka", where), tests)


def confluent_kafka(where: Path, bootstrap: str, source: str) -> Suite:
    """Its integration tests with both protocols of groups; without share groups, and a registry of schemas."""
    checkout = cloned(source or "https://github.com/confluentinc/confluent-kafka-python", where / "checkout")
    starter = next(map(str, (checkout / "tests" / "trivup").glob("*.tar.gz")), "trivup")  # of a Kafka, not used
    more = ("pytest", "pytest-timeout", "pytest-asyncio", "requests-mock", "respx", "async-timeout")
    python = interpreter(where, "confluent-kafka[avro,json,protobuf,schemaregistry]", starter, *more)
    folders = [f"tests/integration/{name}" for name in ("admin", "consumer", "producer", "serialization")]
    runs = {}
    for protocol in ("classic", "consumer"):
        folder = copied(checkout / "tests", where / protocol)
        env = {"BROKERS": bootstrap, "TEST_CONSUMER_GROUP_PROTOCOL": protocol}
        runs[protocol] = by_pytest(python, folder, *folders, **env)

    def tests(names: Sequence[str]) -> Outcome:
        found = Outcome([], [], [])
        for protocol, run_all in runs.items():
            own = [name for name in names if name.endswith(f" ({protocol})")]
            if own or not names:
                for rows, more in zip(found, run_all(own), strict=True):
                    rows += [f"{each} ({protocol})" for each in more]
        return found

    return Suite(version_of(python, "confluent-kafka", where), tests)


def kafka_python(where: Path, bootstrap: str, source: str) -> Suite:
    """Its integration tests, with the package beside them."""
    checkout = cloned(source or "https://github.com/dpkp/kafka-python", where / "checkout")
    more = ("pytest", "pytest-timeout", "pytest-mock", "python-snappy", "lz4", "zstandard", "crc32c", "xxhash", "mock")
    python = interpreter(where, str(checkout), *more)
    folder = copied(checkout / "test", where)
    (folder / "test" / "__init__.py").touch()  # Python has a package of this name, which would be taken else
    (folder / "servers" / "4.3.0" / "kafka-bin").mkdir(parents=True)  # of a broker that it would start itself
    env = {"KAFKA_URI": f"kafka://{bootstrap}", "KAFKA_VERSION": "4.3.0"}
    return Suite(version_of(python, "kafka-python", where), by_pytest(python, folder, "test/integration", **env))


def kgo(where: Path, bootstrap: str, source: str) -> Suite:
    """Franz-go's tests of its client, with 50,000 records."""
    version = "source"
    if source:
        folder = cloned(source, where / "checkout")
    else:
        need(["go", "mod", "init", "suite"], where) if not (where / "go.mod").exists() else None
        need(["go", "mod", "download", "github.com/twmb/franz-go@latest"], where)
        shown = ["go", "list", "-m", "-f", "{{.Dir}} {{.Version}}", "github.com/twmb/franz-go@latest"]
        at, version = run(shown, where).split()
        folder = where / "checkout"
        if not folder.exists():
            shutil.copytree(at, folder)
            need(["chmod", "-R", "u+w", str(folder)], where)
    package = folder / "pkg" / "kgo"
    need(["go", "test", "-c", "-o", str(where / "kgo.test"), "."], package, 60)
    env = {"KGO_TEST_RF": "1", "KGO_TEST_RECORDS": "50000", "KGO_SEEDS": bootstrap, "KGO_TEST_STABLE_FETCH": "true",
           "KGO_LOG_LEVEL": "none"}  # fmt: skip

    def tests(names: Sequence[str]) -> Outcome:
        chosen = ["-test.run", f"^({'|'.join(names)})$"] if names else []
        said = run([str(where / "kgo.test"), "-test.v", "-test.timeout", "40m", *chosen], package, 45, **env)
        (where / "said.txt").write_text(said)
        rows = re.findall(r"^--- (PASS|FAIL|SKIP): (\S+)", said, re.MULTILINE)
        return Outcome(*([name for how, name in rows if how == word] for word in ("PASS", "FAIL", "SKIP")))

    return Suite(version.removeprefix("v"), tests)


def librdkafka(where: Path, bootstrap: str, source: str) -> Suite:
    """Its tests in C that need a plain broker, one after the other, in the short form."""
    checkout = cloned(source or "https://github.com/confluentinc/librdkafka", where / "checkout")
    folder = checkout / "tests"
    if not (folder / "test-runner").exists():
        need(["./configure", "--disable-sasl", "--disable-curl"], checkout)
        need(["make", "-j2", "libs"], checkout, 60)
        need(["make", "-C", "tests", "-j2", "build"], checkout, 60)
    (where / "test.conf").write_text(f"metadata.broker.list={bootstrap}\ntest.timeout.multiplier=3\n")
    env = {
        **os.environ, "RDKAFKA_TEST_CONF": str(where / "test.conf"), "TEST_KAFKA_VERSION": "4.3.0",
        "LD_LIBRARY_PATH": "../src:../src-cpp", "BROKERS": bootstrap, "KAFKA_PATH": str(tools(where)),
    }  # fmt: skip
    everything = [*_numbers((folder / "test.c").read_text()), *(f"0081/do_test_{each}" for each in _ADMIN.split())]

    def tests(names: Sequence[str]) -> Outcome:
        found = Outcome([], [], [])
        for name in names or everything:
            number, _, part = name.partition("/")
            chosen = {"TESTS": number, **({"SUBTESTS": part} if part else {})}
            done = subprocess.run(
                ["timeout", "600", "./test-runner", "-Q", "-L", "-p1"], cwd=folder, env={**env, **chosen},
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
            )  # fmt: skip
            (where / f"{name.replace('/', '-')}.txt").write_text(done.stdout)
            ran = re.search(rf" {number}\w* +\|.*PASSED", done.stdout)
            (found.failed if done.returncode else found.passed if ran else found.skipped).append(name)
        return found

    version = re.search(r"RD_KAFKA_VERSION +0x(..)(..)(..)", (checkout / "src" / "rdkafka.h").read_text())
    return Suite(".".join(str(int(each, 16)) for each in version.groups()) if version else "source", tests)


def tools(where: Path) -> Path:
    """Return a folder with Kafka's tools, which need Java and Maven."""
    folder = where / "kafka" / "bin"
    folder.mkdir(parents=True, exist_ok=True)
    jars = Path(__file__).resolve().parent.parent / "kafka.sh"
    for name, program in _TOOLS.items():
        script = folder / f"{name}.sh"
        script.write_text(f'#!/bin/sh\nexec java -cp "$({jars} tools)" {program} "$@"\n')
        script.chmod(0o755)
    return folder.parent


def _numbers(text: str) -> list[str]:
    """Return the numbers of tests that need a broker, without what is run in parts."""
    rows = re.findall(r"_TEST\((\d{4})\w*,\s*([^,)]+)", text)
    local = ("LOCAL", "MANUAL", "KNOWN_ISSUE")
    found = {number for number, flags in rows if not any(each in flags for each in local)}
    return sorted(number for number in found - {"0081"} if int(number) < _SHARE)


SUITES: dict[str, Callable[[Path, str, str], Suite]] = {
    "aiokafka": aiokafka,
    "confluent-kafka": confluent_kafka,
    "kafka-python": kafka_python,
    "kgo": kgo,
    "librdkafka": librdkafka,
}


@contextlib.contextmanager
def served(bootstrap: str | None, partitions: int) -> Iterator[str]:
    """Return the address of a broker of one's own, or of the one that is named; the suites know a node 0."""
    if bootstrap is not None:
        yield bootstrap
        return
    security = pylogseg.Security(acls=True, allow_everyone_if_no_acl_found=True)
    with pylogseg.Broker(partitions=partitions, node_id=0, max_connections=5000, security=security) as broker:
        yield broker.bootstrap_servers


def reason(suite: str, test: str) -> str | None:
    """Return why a test may fail; None if nobody knows."""
    return next((why for part, why in KNOWN[suite].items() if part.lower() in test.lower()), None)


def main() -> None:
    """Run the suites, and print what came out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", choices=[*SUITES, []], default=[])
    parser.add_argument("--bootstrap", metavar="HOST:PORT")
    parser.add_argument("--source", action="append", default=[], metavar="NAME=URL")
    parser.add_argument("--work", type=Path, help="where sources are kept from one run to the next")
    options = parser.parse_args()
    sources: Mapping[str, str] = dict(each.split("=", 1) for each in options.source)
    unknown = 0
    print(_ROW.format("suite", "version", "tests", "passed", "skipped", "failed, known why", "failed"), flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        for name in options.names or SUITES:
            where = (options.work or Path(scratch)).resolve() / name
            where.mkdir(parents=True, exist_ok=True)
            try:
                with served(options.bootstrap, _PARTITIONS.get(name, 2)) as bootstrap:
                    unknown += shown(name, SUITES[name](where, bootstrap, sources.get(name, "")))
            except (Skipped, subprocess.TimeoutExpired) as error:
                print(f"{name:<16}skipped: {error}", flush=True)
    sys.exit(unknown > 0)


def shown(name: str, suite: Suite) -> int:
    """Run a suite, and print what came out; return how many tests failed that should not."""
    found, again = suite.run(()), []
    for _ in range(_TURNS):
        if not (new := [test for test in found.failed if reason(name, test) is None]):
            break
        passed = set(suite.run(new).passed).intersection(new)
        again += passed
        left = [test for test in found.failed if test not in passed]
        found = found._replace(passed=[*found.passed, *passed], failed=left)
    new = [test for test in found.failed if reason(name, test) is None]
    known = len(found.failed) - len(new)
    counts = (sum(map(len, found)), len(found.passed), len(found.skipped), known, len(new))
    print(_ROW.format(name, suite.version, *counts), flush=True)
    for test in again:
        print(f"    {test}: passed when it was run again", flush=True)
    for test in found.failed:
        print(f"    {test}: {reason(name, test) or 'FAILED'}", flush=True)
    return len(new)


if __name__ == "__main__":
    main()
