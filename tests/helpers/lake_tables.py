"""Tables of lakehouses of three formats, and what readers that are not ours find in them.

As a program it kills runs of `pylogseg.lake` and starts them again, or starts several at once, and compares the table
with the log each time: ``python lake_tables.py FORMAT LOG OUT kill 50``, ``... latest 50``, ``... together 3``. Each
run is a fork of a process that has imported all there is to import, and used nothing of it.
"""

from __future__ import annotations

import base64
import functools
import gzip
import hashlib
import importlib
import json
import os
import shutil
import signal
import sys
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

import pylogseg
from pylogseg.lakehouse.opened_iceberg import catalog_of_folder

FORMATS = ("delta", "iceberg", "ducklake")
_COLUMNS = ["topic", "partition", "offset", "timestamp", "timestampType", "key", "value", "headers"]
_KILLED = ("pylogseg/lakehouse/", "pyiceberg/", "deltalake/", "sqlalchemy/engine/", "pylogseg/env/beside")


@functools.cache
def has_format(kind: str) -> bool:
    """Whether the packages that a format needs are here."""
    if kind != "ducklake":
        return True
    import duckdb

    try:
        with duckdb.connect() as connection:
            connection.load_extension("ducklake")
    except duckdb.Error:
        return False
    return True


def name_of(kind: str, out: Path, topic: str) -> str:
    """The name of a table in a folder."""
    places = {"delta": f"delta:{out}/{topic}", "iceberg": f"iceberg:{out}/kafka.{topic}"}
    return places.get(kind) or f"ducklake:{out}/lake.sqlite/{topic}"


def rows_of(table: str) -> pa.Table:
    """All rows of a table as its own library, or duckdb, reads them; by partition and offset."""
    kind, _, rest = table.partition(":")
    place, _, name = rest.rpartition("/")
    if kind == "delta":
        from deltalake import DeltaTable

        found = DeltaTable(rest).to_pyarrow_table()
    elif kind == "iceberg":
        found = catalog_of(place).load_table(tuple(name.split(".", 1))).scan().to_arrow()
    else:
        import duckdb

        with duckdb.connect() as connection:
            connection.load_extension("ducklake")
            connection.load_extension("sqlite_scanner")
            connection.execute(f"attach 'ducklake:sqlite:{place}' as lake (data_path '{place}.files/')")
            found = connection.execute(f'from lake."{name}"').to_arrow_table()
    return found.sort_by([("partition", "ascending"), ("offset", "ascending")])


def catalog_of(folder: str | Path) -> Any:
    """The catalog that ``iceberg:FOLDER/...`` has in its folder."""
    from pyiceberg.catalog import load_catalog

    _, where = catalog_of_folder(str(folder))
    found = load_catalog("pylogseg", **where)
    weakref.finalize(found, found.engine.dispose)
    return found


def newest_commit(table: str) -> dict[str, Any]:
    """What the newest commit of a Delta table says of itself; deltalake's history needs a plain path."""
    lines = max(Path(table.removeprefix("delta:"), "_delta_log").glob("*.json")).read_text().splitlines()
    return next(action["commitInfo"] for action in map(json.loads, lines) if "commitInfo" in action)


def plain(rows: pa.Table) -> list[dict[str, Any]]:
    """Rows as Python values, with timestamps as numbers: some fit no calendar."""
    times = rows.column("timestamp").cast(pa.int64()).to_pylist()
    found = rows.select([name for name in rows.column_names if name in _COLUMNS and name != "timestamp"]).to_pylist()
    for row, time in zip(found, times, strict=True):
        row["timestamp"] = time
        row["headers"] = row.get("headers") or None  # Iceberg's own scan makes empty lists of nulls
    return found


def log_rows(path: Path, topic: str) -> list[dict[str, Any]]:
    """What the log has of a topic for a consumer with read_committed."""
    found = pylogseg.read_arrow(path, topic, isolation_level="read_committed", columns=_COLUMNS).read_all()
    return plain(found.sort_by([("partition", "ascending"), ("offset", "ascending")]))


def latest_rows(path: Path) -> list[dict[str, Any]]:
    """What the log of `orders` has last of each key, but for tombstones."""
    last = {(row["partition"], row["key"]): row for row in log_rows(path, "orders") if row["key"] is not None}
    found = [row for row in last.values() if row["value"] is not None]
    return sorted(found, key=lambda row: (row["partition"], row["offset"]))


def only_live(kind: str, table: str) -> bool:
    """Whether each file of the newest state has rows, and none of those that were replaced is in it."""
    if kind == "delta":
        from deltalake import DeltaTable

        found = pa.table(DeltaTable(table.removeprefix("delta:")).get_add_actions(flatten=True))
        return min(found.column("num_records").to_pylist()) > 0
    if kind == "iceberg":
        place, _, name = table.partition(":")[2].rpartition("/")
        files = catalog_of(place).load_table(tuple(name.split(".", 1))).inspect.files()
        return min(files.column("record_count").to_pylist()) > 0
    return True


def consumed(folder: Path) -> Iterator[dict[str, Any]]:
    """The records that a consumer of a real Kafka got with read_committed, as `told` has them."""
    with gzip.open(folder / "expected.jsonl.gz", "rt", encoding="utf-8") as lines:
        for row in map(json.loads, lines):
            if row.pop("committed"):
                row.pop("leaderEpoch")
                yield row


def told(row: dict[str, Any]) -> dict[str, Any]:
    """A row of a table as the golden data has records."""
    return {
        **row,
        "timestamp": row["timestamp"] // 1000,
        "timestampType": ["CreateTime", "LogAppendTime"][row["timestampType"]] if row["timestampType"] >= 0 else None,
        "key": _told(row["key"]),
        "value": _told(row["value"]),
        "headers": [[each["key"], _told(each["value"])] for each in row["headers"] or ()],
    }


def _told(value: bytes | None) -> Any:
    if value is None or len(value) <= 256 - 16:
        return None if value is None else base64.b64encode(value).decode()
    return {"len": len(value), "sha1": hashlib.sha1(value).hexdigest()}


# ---- runs that are killed, and runs at the same time ----


def _forked(work: Callable[[], None]) -> int:
    """The process id of a fork that does some work, and ends with 1 if it raises."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        work()
        code = 0
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
    finally:
        sys.stderr.flush()
        os._exit(code)


def _ended(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _counting(stop: int, report: int | None = None) -> Callable[[Any, str, Any], None]:
    """A profile function that kills this process at the event with a number."""
    seen = 0
    counts: dict[Any, bool] = {}

    def count(frame: Any, event: str, _: Any) -> None:
        nonlocal seen
        code = frame.f_code
        if code not in counts:
            counts[code] = any(part in code.co_filename for part in _KILLED)
        if counts[code]:
            seen += 1
            if seen == stop:
                os.kill(os.getpid(), signal.SIGKILL)
            if report is not None:
                os.pwrite(report, b"%012d" % seen, 0)

    return count


def _write(log: Path, table: str) -> None:
    pylogseg.lake(
        log, table, "orders", decoding="value", registry=log / "schemas", commit_bytes=2_500, file_bytes=1_000
    )


def check(log: Path, table: str) -> None:
    """Compare a table of orders, and that of what does not decode, with the log."""
    expected = log_rows(log, "orders")
    dead = plain(rows_of(f"{table}~dlq"))
    bad = {row["offset"] for row in dead}
    assert dead == [row for row in expected if row["value"] == b"what?"]
    rows = plain(rows_of(table))
    assert [row["offset"] for row in rows] == [row["offset"] for row in expected if row["offset"] not in bad]


def _settled(log: Path, table: str) -> None:
    _write(log, table)
    check(log, table)
    assert pylogseg.lake(log, table, "orders", decoding="value", registry=log / "schemas")[0].commits == 0


def _write_latest(log: Path, table: str) -> None:
    pylogseg.lake(log, table, "orders", latest=True, commit_bytes=4_000, file_bytes=1_000)


def _settled_latest(log: Path, table: str) -> None:
    _write_latest(log, table)
    assert plain(rows_of(table)) == latest_rows(log)
    assert pylogseg.lake(log, table, "orders", latest=True)[0].commits == 0


def main() -> None:
    kind, log, out, what, number = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4], int(sys.argv[5])
    table = name_of(kind, out, "orders")
    write, settled = (_write_latest, _settled_latest) if what == "latest" else (_write, _settled)
    if what == "together":
        children = [_forked(lambda: _write(log, table)) for _ in range(number)]
        codes = [_ended(child) for child in children]
        assert codes == [0] * number, codes
        assert _ended(_forked(lambda: _settled(log, table))) == 0
        print(f"{number} runs at once")
        return
    out.mkdir(parents=True)
    counter = os.open(out.parent / "events", os.O_RDWR | os.O_CREAT)

    def run(stop: int, report: int | None = None) -> None:
        sys.setprofile(_counting(stop, report))
        write(log, table)

    assert _ended(_forked(lambda: run(-1, counter))) == 0
    events = int(os.pread(counter, 12, 0))
    for place in range(number):
        shutil.rmtree(out)
        stop = 1 + place * (events - 1) // number
        code = _ended(_forked(lambda stop=stop: run(stop)))
        assert code in (0, -signal.SIGKILL), f"event {stop}: exit code {code}"
        assert _ended(_forked(lambda: settled(log, table))) == 0, f"after a kill at event {stop} of {events}"
    print(f"{number} of {events} places")


if __name__ == "__main__":
    for name in (
        "pyarrow.dataset", "pyiceberg.catalog.sql", "sqlalchemy.dialects.sqlite", "pylogseg.lakehouse.delta",
        "pylogseg.lakehouse.iceberg", "pylogseg.lakehouse.lake",
    ):  # fmt: skip
        importlib.import_module(name)
    main()
