"""Commands and engines that read a range of a partition, and their results as those of `ways_of_reading`."""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.dataset as ds

import pylogseg
from helpers.shell import Done
from helpers.shell import pylogseg as shell
from helpers.ways_of_reading import Offsets, Result, result_of

COLUMNS = ["offset", "key", "value"]
Read = Callable[[Path, Offsets, str, Path], Result]


class Door(NamedTuple):
    """A command or an engine; `read` is given the folder, the range, what to do at damage, and a folder of its own."""

    name: str
    read: Read


def words_of(offsets: Offsets, on_corrupt: str) -> list[str]:
    """Return the options of commands for a range."""
    first, end = ("" if each is None else str(each) for each in offsets)
    return ["--on-corrupt", on_corrupt, *(["--offset", f"{first}:{end}"] if first or end else [])]


def of_command(done: Done, on_corrupt: str, rows: Callable[[], list[tuple[Any, ...]]]) -> Result:
    """Return what a command printed; where damage ends it, rows before may be there. A known loss ends nothing."""
    if done.code == 0:
        return Result(rows(), False)
    assert done.err, "an exit code without a word"
    is_ended = not all(line.startswith(("pylogseg: missing: ", "pylogseg: note: ")) for line in done.err.splitlines())
    return Result(None if on_corrupt == "raise" and is_ended else rows(), True)


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def of_lines(data: bytes) -> list[tuple[Any, ...]]:
    rows = map(json.loads, data.splitlines())
    return [(row["offset"], _bytes(row["key"]), _bytes(row["value"])) for row in rows]


AS_BASE64 = ["--key-as", "base64", "--value-as", "base64"]


def _cat(folder: Path, offsets: Offsets, on_corrupt: str, out: Path) -> Result:
    done = shell("cat", folder, *words_of(offsets, on_corrupt), *AS_BASE64, "--fields", ",".join(COLUMNS))
    return of_command(done, on_corrupt, lambda: of_lines(done.out))


def _grep(folder: Path, offsets: Offsets, on_corrupt: str, out: Path) -> Result:
    words = ["--empty", *words_of(offsets, on_corrupt), *AS_BASE64, "--fields", ",".join(COLUMNS)]
    done = shell("grep", "", folder, *words)
    if done.code == 1 and not done.err:  # nothing is in the range
        return Result([], False)
    return of_command(done, on_corrupt, lambda: of_lines(done.out))


def _export(form: str) -> Read:
    def read(folder: Path, offsets: Offsets, on_corrupt: str, out: Path) -> Result:
        target = out / f"file.{form}"
        target.unlink(missing_ok=True)
        is_text = form in ("csv", "jsonl")
        more = AS_BASE64 if is_text else []
        words = ["--columns", ",".join(COLUMNS), *words_of(offsets, on_corrupt), *more]
        done = shell("export", folder, "--out", target, *words)
        return of_command(done, on_corrupt, lambda: of_lines(_lines_of(target)) if is_text else _of_table(target))

    return read


def _of_table(target: Path) -> list[tuple[Any, ...]]:
    return tuples(ds.dataset(target, format=target.suffix[1:]).to_table())


def _lines_of(target: Path) -> bytes:
    data = target.read_bytes()
    if target.suffix == ".jsonl":
        return data
    rows = [line.split(",") for line in data.decode().splitlines()[1:]]
    return "\n".join(json.dumps({"offset": int(o), "key": k, "value": v}) for o, k, v in rows).encode()


def tuples(table: pa.Table) -> list[tuple[Any, ...]]:
    return list(zip(*(table.column(name).to_pylist() for name in COLUMNS), strict=True))


def _where(offsets: Offsets) -> str:
    first, end = offsets
    parts = [f'"offset" >= {first}'] * (first is not None) + [f'"offset" < {end}'] * (end is not None)
    return f" where {' and '.join(parts)}" if parts else ""


def _sql(folder: Path, offsets: Offsets, on_corrupt: str, out: Path) -> Result:
    query = f'select "offset", base64(key) as key, base64(value) as value from records{_where(offsets)} order by 1'
    done = shell("sql", folder, query, "-O", "json", "--on-corrupt", on_corrupt)
    return of_command(done, on_corrupt, lambda: of_lines(done.out))


def _duckdb(folder: Path, offsets: Offsets, on_corrupt: str, out: Path) -> Result:
    import duckdb

    table: Any = pylogseg.dataset(folder, on_corrupt=on_corrupt)
    query = f'select "offset", key, value from log{_where(offsets)} order by 1'

    def rows() -> list[tuple[Any, ...]]:
        with duckdb.connect() as connection:
            connection.register("log", table)
            return tuples(connection.execute(query).to_arrow_table())

    return result_of(lambda: _damage_of(duckdb.Error, rows), lambda: table.gaps)


def _damage_of(kind: type[Exception], rows: Callable[[], list[tuple[Any, ...]]]) -> list[tuple[Any, ...]]:
    """Return rows; an error of an engine with our error in its text is one of damage."""
    try:
        return rows()
    except kind as error:
        raise pa.ArrowInvalid(str(error)) from error


def _polars(folder: Path, offsets: Offsets, on_corrupt: str, out: Path) -> Result:
    import polars

    how: Any = {"on_corrupt": on_corrupt}
    frame = pylogseg.scan_polars(folder, **how)
    for bound, is_end in zip(offsets, (False, True), strict=True):
        if bound is not None:
            frame = frame.filter(polars.col("offset") < bound if is_end else polars.col("offset") >= bound)
    rows = lambda: frame.select(COLUMNS).collect().rows()  # noqa: E731
    said: list[logging.LogRecord] = []
    handler = logging.Handler(logging.WARNING)  # a frame has no gaps: they are only logged
    handler.emit = said.append  # type: ignore[method-assign]
    logging.getLogger("pylogseg").addHandler(handler)
    try:
        found = result_of(lambda: _damage_of(polars.exceptions.PolarsError, rows), list)
    finally:
        logging.getLogger("pylogseg").removeHandler(handler)
    return Result(found.rows, found.has_loss or bool(said))


def _pandas(folder: Path, offsets: Offsets, on_corrupt: str, out: Path) -> Result:
    how: Any = {"on_corrupt": on_corrupt}
    reader = pylogseg.read(folder, offset=offsets, columns=COLUMNS, **how)
    stream = lambda: pa.RecordBatchReader.from_stream(reader).read_pandas()  # noqa: E731
    return result_of(lambda: [tuple(row) for row in stream().itertuples(index=False)], lambda: reader.gaps)


def doors() -> list[Door]:
    """Return the doors whose rows are to be the same."""
    forms = [Door(f"export to {form}", _export(form)) for form in ("parquet", "arrow", "csv", "jsonl")]
    rest = {"cat": _cat, "grep": _grep, "sql": _sql, "duckdb": _duckdb, "polars": _polars, "pandas": _pandas}
    return [*forms, *(Door(name, read) for name, read in rest.items())]
