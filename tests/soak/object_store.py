"""Segments in an object store, over HTTP: `python tests/soak object-store [--records N]`.

A server that speaks S3 is started on the loopback (moto), gets the committed example and a larger log, and counts what
it sends. Plain Python, the command line and Spark read from it what they read from the disk, with credentials by
options; a hundredth of the offsets, or of the time, is read by ranges, at most 2 % of the bytes. Exports and restores
to the store are killed at a PUT; the next one completes the table or the logs. Needs
`pip install 'moto[server]' s3fs kafka-python pyspark` and Java 17.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import s3fs
from helpers.spark_sessions import small_session
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

import pylogseg
import pylogseg.spark
from pylogseg.disk.stores import store_of
from pylogseg.errors import RequestError
from pylogseg.reading.marks import is_marked, mark_of
from pylogseg.spark.options import parse
from pylogseg.spark.plan import plan
from pylogseg.spark.task import read_task
from pylogseg.tables.export.notes import lock_place, read_state
from soak import EXAMPLES

COLUMNS = ["topic", "partition", "offset", "key", "value"]
TOPICS = ["codec-zstd", "txn-a", "timestamps"]


class Silent(WSGIRequestHandler):
    """Requests are counted, not printed."""

    def log_request(self, *_: Any) -> None:
        """Nothing."""


class Store:
    """A store on the loopback that counts requests, and bytes that it sends of objects.

    Parameters
    ----------
    on_put : function, optional
        Is given the path of each object before it is stored, and returns whether it is refused.

    Attributes
    ----------
    options : dict
        What fsspec has to be given.
    locked : set of str
        Paths of objects that are not deleted, as of a lock.
    sent_bytes, requests, whole : int
        Of GETs of objects since `begin`; `whole` are those without a range.
    """

    def __init__(self, on_put: Callable[[str], bool] | None = None) -> None:
        self._app, self.on_put = DomainDispatcherApplication(create_backend_app), on_put
        self._server = make_server("127.0.0.1", 0, self._count, threaded=True, request_handler=Silent)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        endpoint = f"http://127.0.0.1:{self._server.server_port}"
        self.options = {"key": "id", "secret": "secret", "client_kwargs": {"endpoint_url": endpoint}}
        self.environment = {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_ENDPOINT_URL": endpoint}
        self._lock = threading.Lock()
        self.locked: set[str] = set()
        self.begin()

    def disk(self, url: str) -> pylogseg.Disk:
        """What lies there."""
        return pylogseg.open_dir(url, storage_options=self.options)

    def begin(self) -> None:
        """Count from zero."""
        self.sent_bytes = self.requests = self.whole = 0

    def _count(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        def started(status: str, headers: list[tuple[str, str]], *more: Any) -> Any:
            if environ["REQUEST_METHOD"] == "GET" and environ["PATH_INFO"].endswith((".log", "index", "indexes")):
                with self._lock:
                    self.requests += 1
                    self.whole += environ["PATH_INFO"].endswith(".log") and "HTTP_RANGE" not in environ
                    self.sent_bytes += int(dict(headers).get("Content-Length", 0))
            return start_response(status, headers, *more)

        if environ["REQUEST_METHOD"] == "PUT" and self.on_put is not None and self.on_put(environ["PATH_INFO"]):
            start_response("503 Slow Down", [("Content-Length", "0")])
            return []
        if environ["REQUEST_METHOD"] == "DELETE" and environ["PATH_INFO"] in self.locked:
            denied = b"<Error><Code>AccessDenied</Code><Message>Access Denied: the object is locked</Message></Error>"
            start_response("403 Forbidden", [("Content-Type", "text/xml"), ("Content-Length", str(len(denied)))])
            return [denied]
        found: Iterable[bytes] = self._app(environ, started)
        return found


def fill(folder: Path, records: int) -> int:
    """A log of several segments, one record a millisecond; its bytes."""
    with pylogseg.open_log(folder / "orders-0", segment_bytes=16 << 20, retention_ms=-1) as log:
        for first in range(0, records, 50_000):
            numbers = range(first, min(first + 50_000, records))
            columns = {
                "value": pa.array([b"%0100d" % n for n in numbers]),
                "timestamp": pa.array(numbers, pa.timestamp("ms", "UTC")),
            }
            log.append(pa.table(columns), batch_bytes=16384)
    return sum(path.stat().st_size for path in folder.rglob("*.log"))


def rows(table: pa.Table) -> list[dict[str, Any]]:
    """Rows in one order."""
    order = [(name, "ascending") for name in ("topic", "partition", "offset")]
    found: list[dict[str, Any]] = table.select(COLUMNS).sort_by(order).to_pylist()
    return found


def plain_python(store: Store) -> None:
    """`pylogseg.open_dir` with options, and what reads it."""
    for path in ("s3://bucket/data", "s3://bucket/data/codec-zstd-0"):
        local = EXAMPLES / path.removeprefix("s3://bucket/data").lstrip("/")
        found = pylogseg.read_arrow(store.disk(path), columns=COLUMNS).read_all()
        assert rows(found) == rows(pylogseg.read_arrow(local, columns=COLUMNS).read_all()), path
    try:
        store.disk("s3://bucket/nothing")
    except pylogseg.PylogsegError as error:
        print(f"   {error}")
    else:
        raise AssertionError("nothing was read")


def command_line(store: Store) -> None:
    """`pylogseg`, with the environment that the tools of AWS take."""
    for words in (["cat", "{}", "txn-a"], ["ls", "{}", "--json"], ["stats", "{}", "codec-zstd", "--json"]):
        said = [
            subprocess.run(
                [sys.executable, "-m", "pylogseg", *(word.format(place) for word in words)],
                env={**os.environ, **store.environment}, capture_output=True, check=True, encoding="utf-8", timeout=120,
            ).stdout.replace(place, "PLACE")
            for place in ("s3://bucket/data", str(EXAMPLES))
        ]  # fmt: skip
        assert said[0] == said[1], words


def spark_source(store: Store, scratch: Path) -> None:
    """Both doors, with `storageOptions`; tasks open the store by themselves."""
    from pyspark.sql import SparkSession

    spark = small_session(SparkSession.builder.master("local[2]"), scratch, {})
    try:
        pylogseg.spark.register(spark)
        options = {"subscribe": ",".join(TOPICS), "storageOptions": json.dumps(store.options)}
        expected = rows(pylogseg.read_arrow(EXAMPLES, TOPICS, columns=COLUMNS).read_all())
        assert rows(spark.read.format("pylogseg").options(**options).load("s3://bucket/data").toArrow()) == expected
        assert rows(pylogseg.spark.read_segments(spark, "s3://bucket/data", COLUMNS, **options).toArrow()) == expected
        big = {"storageOptions": store.options, "rangeBytes": "8m"}
        assert pylogseg.spark.read_segments(spark, "s3://bucket/large", ["offset"], **big).count() > 0
    finally:
        spark.stop()


def windows(store: Store, total: int, records: int) -> None:
    """A hundredth in the middle, by offsets and by time: what the planner of Spark and its tasks read."""
    first = records // 2
    last = first + records // 100
    for name, more in {
        "offsets": {"startingOffsets": {"orders": {"0": first}}, "endingOffsets": {"orders": {"0": last}}},
        "time": {"startingTimestamp": first, "endingTimestamp": last},
    }.items():
        store.begin()
        options = parse({**more, "storageOptions": store.options})
        tasks = plan("s3://bucket/large", options)
        found = [batch["offset"].to_pylist() for task in tasks for batch in read_task(task, options, ["offset"])]
        assert [offset for batch in found for offset in batch] == list(range(first, last))
        part = store.sent_bytes / total
        print(f"   1 % by {name}: {store.sent_bytes:,} of {total:,} bytes ({part:.1%}) in {store.requests} requests")
        assert not store.whole, "a segment was fetched whole"
        assert part <= 0.02, "more than a window was read"


def exported(store: Store, system: Any, scratch: Path) -> None:
    """`pylogseg export` to the store, killed by SIGKILL before each PUT in turn; two exports at the same time."""
    url, words = "s3://bucket/lake", [sys.executable, "-m", "pylogseg", "export", str(EXAMPLES), *TOPICS, "--jobs", "1"]
    environment = {**os.environ, **store.environment}
    subprocess.run([*words, "-O", scratch / "lake"], check=True, capture_output=True)
    wanted = {
        path.relative_to(scratch / "lake").as_posix(): path.read_bytes() for path in files_below(scratch / "lake")
    }
    deaths = 0
    for at in range(60):
        process, puts = (
            subprocess.Popen([*words, "--overwrite", "-O", url], env=environment, stdout=subprocess.DEVNULL),
            0,
        )

        def on_put(path: str, process: Any = process, at: int = at) -> bool:
            nonlocal puts
            puts += 1
            if puts > at:
                process.kill()
            return puts > at

        store.on_put = on_put
        code = process.wait(120)
        store.on_put = None
        there = read_state(url, store.options)
        if code == 0:
            assert puts == at
            break
        assert code < 0, f"ended by itself with {code}"
        deaths += 1
        assert there is None or there["state"] == "writing" or table_in(system) == wanted, there
        for name, data in table_in(system).items():
            assert data == wanted[name], "an object is not whole"
    assert (table_in(system), there and there["state"], deaths > 5) == (wanted, "whole", True)
    with lock_place(store_of(url, store.options)):
        found = subprocess.run([*words, "--overwrite", "-O", url], env=environment, capture_output=True, check=False)
        assert (found.returncode, b"another run writes to s3://bucket/lake" in found.stderr) == (2, True), found.stderr
    print(f"   killed {deaths} times; {len(wanted)} objects")


def restored(store: Store, system: Any, scratch: Path) -> None:
    """`pylogseg restore` to the store, killed by SIGKILL now and then; what is not finished is refused."""
    url, words = "s3://bucket/restored", [sys.executable, "-m", "pylogseg", "restore", str(EXAMPLES)]
    environment = {**os.environ, **store.environment}
    (scratch / "restored").mkdir()
    subprocess.run([*words, scratch / "restored", *TOPICS], check=True, capture_output=True)
    wanted = {path.relative_to(scratch / "restored").as_posix() for path in files_below(scratch / "restored")} - {
        ".lock"
    }
    for at in (0, 1, 4, 9, len(wanted), None):
        process, puts = subprocess.Popen([*words, url, *TOPICS], env=environment, stdout=subprocess.DEVNULL), 0

        def on_put(path: str, process: Any = process, at: int | None = at) -> bool:
            nonlocal puts
            puts += 1
            if at is not None and puts > at:
                process.kill()
            return at is not None and puts > at

        store.on_put = on_put
        assert process.wait(120) == (0 if at is None else -9)
        store.on_put = None
        system.invalidate_cache()
        if at is not None and at > 1:  # behind the lock and the sign
            refused = ""
            try:
                store.disk(url)
            except RequestError as error:
                refused = str(error)
            assert "did not finish" in refused, "it was opened"
    system.invalidate_cache()
    assert {name.removeprefix("bucket/restored/") for name in system.find("bucket/restored")} == wanted
    near = pylogseg.read_arrow(scratch / "restored", columns=COLUMNS).read_all()
    assert rows(pylogseg.read_arrow(store.disk(url), columns=COLUMNS).read_all()) == rows(near)


def files_below(folder: Path) -> list[Path]:
    """All files."""
    return [path for path in folder.rglob("*") if path.is_file()]


def table_in(system: Any) -> dict[str, bytes]:
    """The data files of the table in the store."""
    system.invalidate_cache()
    found = system.find("bucket/lake")
    return {name.removeprefix("bucket/lake/"): system.cat_file(name) for name in found if name.endswith(".parquet")}


def marked(store: Store, system: Any) -> None:
    """What tells a segment in the store from another: the tag of its content, not the time of its PUT."""
    path = "bucket/data/codec-zstd-0/00000000000000000000.log"
    (segment,) = [each for each in store.disk("s3://bucket/data/codec-zstd-0").segments if each.path == path]
    mark, data = mark_of(segment), system.cat_file(path)
    time.sleep(1.1)  # the store's times are whole seconds
    system.pipe_file(path, data)
    assert is_marked(segment, mark)
    system.pipe_file(path, data[:-1] + b"?")
    assert not is_marked(segment, mark)
    system.pipe_file(path, data)
    assert is_marked(segment, mark)


def served(store: Store, records: int) -> None:
    """`pylogseg serve`: a client reads both logs, and each window is asked for once."""
    import kafka

    partition = kafka.TopicPartition("orders", 0)
    with pylogseg.serve("s3://bucket/data", "s3://bucket/large/orders-0", storage_options=store.options) as server:
        assert {*TOPICS, "orders"} <= set(server.topics)
        store.begin()
        client = kafka.KafkaConsumer(bootstrap_servers=server.bootstrap_servers, auto_offset_reset="earliest")
        client.assign([partition])
        count, until = 0, time.monotonic() + 120
        while count < records and time.monotonic() < until:
            count += sum(map(len, client.poll(500, max_records=10_000).values()))
        client.close()
        print(f"   {count:,} records by kafka-python: {store.sent_bytes:,} bytes in {store.requests} requests")
        assert count == records


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", help="Names of parts.")
    parser.add_argument("--records", type=int, default=1_000_000, help="of the larger log (%(default)s)")
    asked = parser.parse_args()
    store = Store()
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        total = fill(scratch / "large", asked.records)
        system = s3fs.S3FileSystem(**store.options)
        system.mkdir("bucket")
        system.put(str(EXAMPLES), "bucket/data", recursive=True)
        system.put(str(scratch / "large"), "bucket/large", recursive=True)
        for name, part in {
            "plain Python": lambda: plain_python(store),
            "the command line": lambda: command_line(store),
            "a hundredth": lambda: windows(store, total, asked.records),
            "marks": lambda: marked(store, system),
            "export": lambda: exported(store, system, scratch),
            "restore": lambda: restored(store, system, scratch),
            "pylogseg serve": lambda: served(store, asked.records),
            "Spark": lambda: spark_source(store, scratch),
        }.items():
            if asked.only and name not in asked.only:
                continue
            print(name, flush=True)
            part()
            print("   ok", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
