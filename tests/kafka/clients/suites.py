#!/usr/bin/env python3
"""The clients' own suites on `pylogseg.Broker()`, in memory: what passes, and what fails for a reason that is known.

    python tests/kafka/clients/suites.py [NAME...] [--bootstrap HOST:PORT] [--source NAME=URL]... [--work DIR]

Names: aiokafka, kafka-python, kgo, librdkafka; by default all. Sources and packages come from where the clients have
them: PyPI, the proxy of Go modules, or git (`--source` names another repository or a checkout). A suite is skipped, and
that is said, where a machine has not its source or its compiler. With --bootstrap they run on another broker, a Kafka
for example. A line for each suite; exit code 1 if a test failed that `KNOWN` does not name. Two to twelve minutes each.
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
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pylogseg

MINUTE_S = 60
#: Tests that fail here, by a part of their names, and why; docs/serve.md has the reasons at length.
KNOWN = {
    "aiokafka": {"acl": "no ACLs are kept"},
    "kafka-python": {"acl": "no ACLs are kept", "scram": "users are not changed by clients", "quota": "no quotas"},
    "kgo": dict.fromkeys(
        ("Test848RegexBrokerResolves", "TestConsumeRegex"), "in memory there is no __consumer_offsets"
    ),
    "librdkafka": {"0081": "its subtests of ACLs and users of SCRAM"},
}
#: Those of librdkafka that need one plain broker, up to 0169; later ones are of share groups.
_RD = (
    "0001 0002 0003 0005 0007 0008 0011 0012 0013 0014 0017 0018 0019 0021 0022 0026 0029 0030 0033 0034 0038 0039 "
    "0040 0042 0044 0049 0050 0056 0061 0067 0068 0073 0075 0076 0077 0081 0083 0085 0086 0089 0090 0091 0094 0097 "
    "0099 0102 0103 0107 0109 0111 0112 0113 0114 0115 0116 0118 0122 0125 0127 0129 0130 0132 0137 0139"
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
        last = (str(error.stdout or "").strip().splitlines() or [str(error)])[-1]
        raise Skipped(f"{' '.join(command[:3])}: {last[:150]}") from None


def cloned(url: str, where: Path) -> Path:
    """Return a checkout."""
    if not where.exists():
        need(
            [
                "git",
                "clone",
                "-q",
                "--depth",
                "1",
                url if "://" in url else f"file://{Path(url).resolve()}",
                str(where),
            ],
            where.parent,
        )
    return where


def interpreter(where: Path, *packages: str) -> str:
    """Return a Python of its own that has some packages."""
    python = where / "venv" / "bin" / "python"
    if not python.exists():
        need([sys.executable, "-m", "venv", str(where / "venv")], where)
    need([str(python), "-m", "pip", "install", "-q", *packages], where)
    return str(python)


def by_pytest(python: str, where: Path, *arguments: str, **env: str) -> Outcome:
    """Run pytest, and return what its report says."""
    report = where / "report.xml"
    options = [
        "-p",
        "no:cacheprovider",
        "-W",
        "ignore",
        "-o",
        "addopts=",
        "-q",
        f"--junitxml={report}",
        "--timeout=120",
    ]
    said = run([python, "-m", "pytest", *options, *arguments], where, 40, **env)
    (where / "said.txt").write_text(said)
    if not report.exists():
        raise Skipped(f"pytest made no report: {said.strip().splitlines()[-1][:200]}")
    found = Outcome([], [], [])
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        name = f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name')}"
        bad = case.find("failure") is not None or case.find("error") is not None
        (found.failed if bad else found.skipped if case.find("skipped") is not None else found.passed).append(name)
    return found


def aiokafka(where: Path, bootstrap: str, source: str) -> Outcome:
    """The tests that need a broker, without those of TLS and SASL, whose servers are containers."""
    checkout = cloned(source or "https://github.com/aio-libs/aiokafka", where / "checkout")
    python = interpreter(
        where,
        "aiokafka",
        "cramjam",
        "async-timeout",
        "docker",
        "pytest",
        "pytest-asyncio",
        "pytest-mock",
        "pytest-timeout",
    )
    shutil.rmtree(where / "run", ignore_errors=True)
    shutil.copytree(checkout / "tests", where / "run" / "tests")  # apart: what is tested is what is installed
    with (where / "run" / "tests" / "conftest.py").open("a") as file:
        file.write(_CONFTEST)
    names = (
        "admin client conn consumer coordinator fetcher message_accumulator pep492 producer sender "
        "transactional_consumer transactional_producer"
    )
    files = [f"tests/test_{name}.py" for name in names.split()]
    chosen = ["-k", "not ssl and not sasl", "--docker-image", "kafka:none_4.3.0"]
    return by_pytest(python, where / "run", *files, *chosen, SUITE_BOOTSTRAP=bootstrap)


def kafka_python(where: Path, bootstrap: str, source: str) -> Outcome:
    """Its integration tests, with the package beside them."""
    folder = cloned(source or "https://github.com/dpkp/kafka-python", where / "checkout")
    more = ("pytest", "pytest-timeout", "pytest-mock", "python-snappy", "lz4", "zstandard", "crc32c", "xxhash", "mock")
    python = interpreter(where, str(folder), *more)
    shutil.rmtree(where / "run", ignore_errors=True)
    shutil.copytree(folder / "test", where / "run" / "test")
    (where / "run" / "test" / "__init__.py").touch()  # Python has a package of this name, which would be taken else
    (where / "run" / "servers" / "4.3.0" / "kafka-bin").mkdir(parents=True)  # of a broker that it would start itself
    env = {"KAFKA_URI": f"kafka://{bootstrap}", "KAFKA_VERSION": "4.3.0"}
    return by_pytest(python, where / "run", "test/integration", **env)


def kgo(where: Path, bootstrap: str, source: str) -> Outcome:
    """Franz-go's tests of its client, with 50,000 records."""
    if source:
        folder = cloned(source, where / "checkout")
    else:
        need(["go", "mod", "init", "suite"], where) if not (where / "go.mod").exists() else None
        need(["go", "mod", "download", "github.com/twmb/franz-go@latest"], where)
        (at,) = run(["go", "list", "-m", "-f", "{{.Dir}}", "github.com/twmb/franz-go@latest"], where).split()
        folder = where / "checkout"
        if not folder.exists():
            shutil.copytree(at, folder)
            need(["chmod", "-R", "u+w", str(folder)], where)
    package = folder / "pkg" / "kgo"
    need(["go", "test", "-c", "-o", str(where / "kgo.test"), "."], package, 20)
    env = {"KGO_TEST_RF": "1", "KGO_TEST_RECORDS": "50000", "KGO_SEEDS": bootstrap, "KGO_TEST_STABLE_FETCH": "true",
           "KGO_LOG_LEVEL": "none"}  # fmt: skip
    said = run([str(where / "kgo.test"), "-test.v", "-test.timeout", "20m"], package, 22, **env)
    (where / "said.txt").write_text(said)
    rows = re.findall(r"^--- (PASS|FAIL|SKIP): (\S+)", said, re.MULTILINE)
    return Outcome(*([name for how, name in rows if how == word] for word in ("PASS", "FAIL", "SKIP")))


def librdkafka(where: Path, bootstrap: str, source: str) -> Outcome:
    """Its tests in C, one after the other, in the short form."""
    checkout = cloned(source or "https://github.com/confluentinc/librdkafka", where / "checkout")
    tests = checkout / "tests"
    if not (tests / "test-runner").exists():
        need(["./configure", "--disable-sasl", "--disable-curl"], checkout)
        need(["make", "-j2", "libs"], checkout, 20)
        need(["make", "-C", "tests", "-j2", "build"], checkout, 20)
    config = where / "test.conf"
    config.write_text(f"metadata.broker.list={bootstrap}\n")
    env = {"RDKAFKA_TEST_CONF": str(config), "TEST_KAFKA_VERSION": "4.3.0", "LD_LIBRARY_PATH": "../src:../src-cpp"}
    found = Outcome([], [], [])
    for number in _RD.split():
        command = ["timeout", "120", "./test-runner", "-Q", "-L", "-p1"]
        done = subprocess.run(
            command, cwd=tests, env={**os.environ, **env, "TESTS": number}, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, errors="replace",
        )  # fmt: skip
        (where / f"{number}.txt").write_text(done.stdout)
        skipped = re.search(rf"\| +{number}\w* .*SKIPPED", done.stdout)
        (found.failed if done.returncode else found.skipped if skipped else found.passed).append(number)
    return found


SUITES: dict[str, Callable[[Path, str, str], Outcome]] = {
    "aiokafka": aiokafka,
    "kafka-python": kafka_python,
    "kgo": kgo,
    "librdkafka": librdkafka,
}


@contextlib.contextmanager
def served(bootstrap: str | None) -> Iterator[str]:
    """Return the address of a broker of one's own, or of the one that is named."""
    if bootstrap is not None:
        yield bootstrap
        return
    with pylogseg.Broker(partitions=2, max_connections=5000) as broker:
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
    print(f"{'suite':<14}{'tests':>6}{'passed':>8}{'skipped':>9}{'failed, known why':>19}{'failed':>8}", flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        for name in options.names or SUITES:
            where = (options.work or Path(scratch)).resolve() / name
            where.mkdir(parents=True, exist_ok=True)
            try:
                with served(options.bootstrap) as bootstrap:
                    found = SUITES[name](where, bootstrap, sources.get(name, ""))
            except (Skipped, subprocess.TimeoutExpired) as error:
                print(f"{name:<14}not run: {error}", flush=True)
                continue
            new = [test for test in found.failed if reason(name, test) is None]
            counts = (
                sum(map(len, found)),
                len(found.passed),
                len(found.skipped),
                len(found.failed) - len(new),
                len(new),
            )
            print(f"{name:<14}{counts[0]:>6}{counts[1]:>8}{counts[2]:>9}{counts[3]:>19}{counts[4]:>8}", flush=True)
            for test in found.failed:
                print(f"    {test}: {reason(name, test) or 'FAILED'}", flush=True)
            unknown += len(new)
    sys.exit(unknown > 0)


if __name__ == "__main__":
    main()
