"""Tables of `lake` in an object store, over HTTP: `python tests/soak lake-store [--places N]`.

A server that speaks S3 is started on the loopback (moto). Runs that write a table of Delta, or of Iceberg with its
warehouse there, are killed at a PUT, and started again; several write at once. Each time the table equals the log.
Needs `pip install 'moto[server]' s3fs deltalake 'pyiceberg[sql-sqlite,pyiceberg-core]'`.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import s3fs
from helpers.lake_tables import latest_rows, log_rows, plain
from helpers.typed_logs import write_keyed_orders

import pylogseg
from soak import itself
from soak.object_store import Store

BUCKET = "lake"


def named(kind: str, root: Path, environment: dict[str, str]) -> tuple[str, dict[str, str]]:
    """The name of a table, and its options."""
    endpoint, key, secret = (
        environment[f"AWS_{name}"] for name in ("ENDPOINT_URL", "ACCESS_KEY_ID", "SECRET_ACCESS_KEY")
    )
    if kind == "delta":
        return f"delta:s3://{BUCKET}/{root.name}/orders", {
            "aws_endpoint_url": endpoint, "aws_access_key_id": key, "aws_secret_access_key": secret,
            "aws_region": "us-east-1", "aws_allow_http": "true",
        }  # fmt: skip
    return "iceberg:kafka.orders", {
        "type": "sql", "uri": f"sqlite:///{root}/catalog.db", "warehouse": f"s3://{BUCKET}/{root.name}",
        "s3.endpoint": endpoint, "s3.access-key-id": key, "s3.secret-access-key": secret, "s3.region": "us-east-1",
    }  # fmt: skip


def write(kind: str, root: Path, data: Path, *, latest: bool) -> Any:
    """Bring the table up to date."""
    table, options = named(kind, root, dict(os.environ))
    sizes = {"commit_bytes": 4_000, "file_bytes": 1_000}
    return pylogseg.lake(data, table, "orders", latest=latest, clean=True, table_options=options, **sizes)[0]


def rows(kind: str, root: Path, environment: dict[str, str]) -> list[dict[str, Any]]:
    """What the format's own library finds."""
    table, options = named(kind, root, environment)
    if kind == "delta":
        from deltalake import DeltaTable

        found = DeltaTable(table.removeprefix("delta:"), storage_options=options).to_pyarrow_table()
    else:
        from pyiceberg.catalog import load_catalog

        found = load_catalog("default", **options).load_table(("kafka", "orders")).scan().to_arrow()
    return plain(pa.table(found).sort_by([("partition", "ascending"), ("offset", "ascending")]))


class Killing:
    """Kills a run when it puts an object with a number."""

    def __init__(self) -> None:
        self.puts, self.stop = 0, -1
        self.running: subprocess.Popen[bytes] | None = None

    def __call__(self, path: str) -> bool:
        """Count the PUT; whether it is refused, which no one hears."""
        self.puts += 1
        if self.puts == self.stop and self.running is not None:
            self.running.send_signal(signal.SIGKILL)
        return False


def compared(places: int) -> Iterator[tuple[str, bool]]:
    """Kill, go on, compare."""
    killing = Killing()
    store = Store(killing)
    environment = {**store.environment, "AWS_REGION": "us-east-1", "AWS_ALLOW_HTTP": "true"}
    s3fs.S3FileSystem(**store.options).mkdir(BUCKET)
    with tempfile.TemporaryDirectory(prefix="lake-store-") as folder:
        data = Path(folder, "data")
        for seed in (1, 2):
            write_keyed_orders(data, 100, seed)

        def begun(kind: str, root: Path, latest: bool) -> subprocess.Popen[bytes]:
            words = [*itself(__file__), "--write", kind, str(root), str(data), str(int(latest))]
            path = os.pathsep.join(sys.path)
            return subprocess.Popen(words, env={**os.environ, **environment, "PYTHONPATH": path})

        for kind, latest in (("delta", False), ("iceberg", False), ("delta", True), ("iceberg", True)):
            wanted, what = latest_rows(data) if latest else log_rows(data, "orders"), f"{kind}{' latest' * latest}"
            killing.puts, killing.stop, killed = 0, -1, 0
            root = Path(folder, f"{kind}-{latest:d}")
            root.mkdir()
            whole = begun(kind, root, latest).wait()
            puts = killing.puts
            yield f"{what}: {puts} objects put", whole == 0 and rows(kind, root, environment) == wanted
            for place in range(places):
                root = Path(folder, f"{kind}-{latest:d}-{place}")
                root.mkdir()
                killing.puts, killing.stop = 0, 1 + place * (puts - 1) // places
                killing.running = begun(kind, root, latest)
                killed += killing.running.wait() == -signal.SIGKILL
                killing.running = None
                if begun(kind, root, latest).wait() or rows(kind, root, environment) != wanted:
                    yield f"{what}: killed at PUT {killing.stop}", False
            yield f"{what}: {killed} runs killed and ended by the next", killed > 0
            root = Path(folder, f"{kind}-{latest:d}-together")
            root.mkdir()
            codes = [each.wait() for each in [begun(kind, root, latest) for _ in range(3)]]
            is_same = rows(kind, root, environment) == wanted
            yield f"{what}: three runs at once", codes == [0, 0, 0] and is_same


def main() -> int:
    """Print a line for each step; exit code 1 if something was wrong."""
    if sys.argv[1:2] == ["--write"]:
        kind, root, data, latest = sys.argv[2:]
        write(kind, Path(root), Path(data), latest=latest == "1")
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--places", type=int, default=5, help="at which a run is killed, of each kind of table")
    all_well = True
    for what, is_well in compared(parser.parse_args().places):
        print(f"{what}: {'well' if is_well else 'WRONG'}", flush=True)
        all_well &= is_well
    return 0 if all_well else 1


if __name__ == "__main__":
    sys.exit(main())
