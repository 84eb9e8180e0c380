"""Fixtures of the whole suite: golden data, the corpus, a real Kafka, Hypothesis profiles."""

from __future__ import annotations

import contextlib
import gc
import hashlib
import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.depth import draws
from helpers.golden import GOLDEN, Decoded, unpack
from helpers.kafka_storage import Kafka
from helpers.listings import shuffle
from helpers.scratch import memory
from hypothesis import HealthCheck, settings

from pylogseg._native import _records
from pylogseg.env import filesystem
from pylogseg.env.filesystem import LocalFiles

TESTS = Path(__file__).resolve().parent


# Files of tests are small, many and short-lived: a disk takes half of the time, and each `fsync` waits for it.
if folder := memory():
    os.environ["PYTEST_DEBUG_TEMPROOT"] = folder

# A folder goes when its test has passed, and no other gets its path: what a process knows of one would be wrong there.
_make = pytest.TempPathFactory.mktemp
_made: Counter[str] = Counter()


def make_once(self: pytest.TempPathFactory, basename: str, numbered: bool = True) -> Path:
    """As `TempPathFactory.mktemp`, with a name that no folder of this process had."""
    _made[basename] += 1
    return _make(self, f"{basename}{_made[basename]}_" if numbered else basename, numbered)


pytest.TempPathFactory.mktemp = make_once  # type: ignore[method-assign]

settings.register_profile("dev", deadline=None, max_examples=draws(100), suppress_health_check=[HealthCheck.too_slow])
settings.register_profile(
    "ci", deadline=None, max_examples=draws(150), derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("sanitize", deadline=None, max_examples=30, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("soak", deadline=None, max_examples=100_000, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev"))


if os.environ.get("PYLOGSEG_TEST_MEMORY_MAP"):  # all that reads files maps them, as with `open_dir(memory_map=True)`
    LocalFiles.memory_map = True

_records.use_maps_in_memory(True)  # files of tests are read as those of a disk are,
filesystem.SETTLED_NS = 0  # that were written long ago

if seed := os.environ.get("PYLOGSEG_TEST_LISTINGS"):  # the order of a listing is another one each time
    shuffle(seed)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Return three workers for two processors: tests of clients, browsers and processes wait for a tenth to a third."""
    return max(2, (os.cpu_count() or 1) * 3 // 2)


@pytest.hookimpl(hookwrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect tests without collecting garbage: ten thousand of them stay, and were looked at again and again."""
    gc.disable()
    yield
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test that asks for a Kafka, for Spark or for a browser, so that ``-m "not kafka"`` leaves it out.

    Those with Spark come first: a worker of xdist gets tests that follow each other, so one worker starts one JVM.
    """
    mapped = pytest.mark.skip(reason="files are mapped here, and not read")
    for item in items:
        if item.get_closest_marker("reads") and LocalFiles.memory_map:
            item.add_marker(mapped)
        for name in {"browser", "kafka", "spark"}.intersection(getattr(item, "fixturenames", ())):
            item.add_marker(name)
    items.sort(key=lambda item: item.get_closest_marker("spark") is None)


@pytest.fixture(scope="session")
def golden(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of what a real Kafka wrote: ``replay/NAME`` and ``broker-4.3/NAME``; read only, copy before a change."""
    sums = (GOLDEN / "SHA256SUMS").read_bytes()
    cache = getattr(request.config, "cache", None)
    base = Path(cache.mkdir("golden")) if cache else tmp_path_factory.getbasetemp()
    target = base / hashlib.sha256(sums).hexdigest()[:16]
    if not target.is_dir():
        names = [line.split()[1] for line in sums.decode().splitlines()]
        unpack([GOLDEN / name for name in names if name.endswith(".tar.xz")], target)
    return target


@pytest.fixture(scope="session")
def decoded() -> Decoded:
    """Kafka's reading of golden files, by path: ``decoded(path)``."""
    return Decoded(GOLDEN / "decode.jsonl.xz")


@pytest.fixture(scope="session")
def examples() -> Path:
    """The small broker directory that the README and the documents use."""
    return TESTS.parent / "examples" / "data"


@pytest.fixture(scope="session")
def shop(golden: Path) -> Path:
    """The log directory of a shop's broker, beside a schema registry, with the answers of the registry."""
    return golden / "inside" / "schemas"


@pytest.fixture(scope="session")
def group_disk(golden: Path) -> Path:
    """The log directory of a broker with groups and transactions, with the output of Kafka's tools."""
    return golden / "inside" / "groups"


@pytest.fixture(scope="session")
def corpus() -> Path:
    """Folder of files that other brokers wrote, which is no part of the project; skips where it is absent."""
    path = Path(os.environ.get("PYLOGSEG_CORPUS") or TESTS.parent.parent / "shared" / "corpus")
    if not (path / "expected.json").is_file():
        pytest.skip(f"no corpus: set PYLOGSEG_CORPUS ({path} has no expected.json)")
    return path


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of 3 MB."""
    path = tmp_path / "small"
    path.mkdir()
    if os.name == "nt" or os.geteuid() != 0:
        pytest.skip("only root can mount")
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "none", path], check=False).returncode:
        pytest.skip("no file system can be mounted here")
    yield path
    subprocess.run(["umount", "-l", path], check=True)


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Kafka:
    """A real Kafka; skips without Java and Maven, but fails in CI, where both must be there."""
    missing = [tool for tool in ("bash", "java", "javac", "mvn") if shutil.which(tool) is None]
    if missing:
        reason = f"a real Kafka needs {', '.join(missing)} on the path (Java 17 and Maven)"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    oracle = Kafka(tmp_path_factory.mktemp("kafka"))
    oracle.checked("classpath")  # fetches and compiles once, so that no test pays for it
    return oracle


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A Chromium; skips without one, but fails in CI. A file starts one: beside Playwright no other event loop runs."""
    from helpers.browser import started

    with started() as made:
        yield made


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A Spark session of two cores; skips without Java, but fails in CI."""
    if shutil.which("java") is None:
        reason = "Spark needs Java 17 on the path"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    from helpers.spark_sessions import small_session
    from pyspark.sql import SparkSession

    scratch = tmp_path_factory.mktemp("spark")
    settings = {
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.default.parallelism": "2",
        "spark.sql.shuffle.partitions": "2",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.worker.faulthandler.enabled": "true",
        "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
    }
    session = small_session(SparkSession.builder.master("local[2]").appName("pylogseg"), scratch, settings)
    yield session
    session.stop()


@pytest.fixture
def command(spark: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs a command of the shell on Spark, in the session of the tests."""
    from click.testing import CliRunner

    from pylogseg.cli import shell

    @contextlib.contextmanager
    def session(master: str, settings: dict[str, str]) -> Iterator[Any]:
        yield spark

    monkeypatch.setattr("pylogseg.spark.session.session", session)
    return lambda *words: CliRunner().invoke(shell, [*map(str, words), "--spark", "default"])
