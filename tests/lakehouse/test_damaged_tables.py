"""Tests of lakehouse/library_errors.py. Tables whose metadata or files are damaged: each command says so in an error of
ours, and touches nothing else.
"""

from __future__ import annotations

import contextlib
import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.depth import IS_DEEP
from helpers.lake_tables import name_of
from helpers.shell import expect
from helpers.shell import pylogseg as shell

import pylogseg
from pylogseg.errors import PylogsegError, StorageError
from pylogseg.lakehouse.library_errors import library_errors

deltalake = pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")

_SEEDS = 8 if IS_DEEP else 2
_EACH = 25


def append(data: Path, count: int) -> None:
    with pylogseg.open_log(data / "orders-0") as log:
        log.append([{"key": b"k", "value": b"%d" % n} for n in range(count)])


def nasty(canary: Path) -> list[Any]:
    """Values that a field of metadata has not."""
    numbers = [None, True, 0, -1, 1, 2**31, 2**63 - 1, 2**63, 10**30, -(2**63), 1.5]
    paths = ["../../canary/x.parquet", str(canary), f"file://{canary}", "%2e%2e/x", "s3://127.0.0.1:1/x", "/dev/zero"]
    texts = ["", "x", "a\x00b", "\x1b[31mZ\n", "2026-99-99", "x" * 10_000, "null", "{}", "[]", "\ud800"]
    return [*numbers, *paths, *texts, [], {}, [1], {"a": 1}, {"format": 2}, ..., ...]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value[:5]) if isinstance(value, list) else ()
    for key, below in inner:
        yield from places(below, (*path, key))


def put(value: Any, path: tuple[Any, ...], other: Any) -> Any:
    """Put a value in place of a part of another one; an ellipsis takes the part away."""
    if not path:
        return None if other is ... else other
    above = value
    for key in path[:-1]:
        above = above[key]
    if other is ...:
        del above[path[-1]]
    else:
        above[path[-1]] = other
    return value


def damaged_json(line: bytes, draw: random.Random, values: list[Any]) -> bytes:
    value = json.loads(line)
    path = draw.choice(list(places(value)))
    part = value
    for key in path:
        part = part[key]
    other = draw.choice(values)
    if isinstance(part, str) and part.startswith("{") and draw.random() < 0.8:  # JSON in JSON, as a ledger is
        inner = json.loads(part)
        other = json.dumps(put(inner, draw.choice(list(places(inner))), None if other is ... else other))
    return json.dumps(put(value, path, other)).encode("utf-8", "surrogatepass")


def damaged_bytes(data: bytes, draw: random.Random) -> bytes:
    for _ in range(draw.randrange(1, 5)):
        at, how = draw.randrange(len(data)), draw.randrange(4)
        new = (bytes([data[at] ^ 1 << draw.randrange(8)]), b"\xff" * 5, b"", b"\xff\xff\xff\x7f")[how]
        data = data[:at] + new + data[at + (1, 0, draw.randrange(1, 20), 4)[how] :]
        if not data:
            break
    return data


def damage(path: Path, draw: random.Random, values: list[Any]) -> None:
    data = path.read_bytes()
    if path.suffix == ".json" and draw.random() < 0.9:
        lines = data.strip().split(b"\n") if path.parent.name == "_delta_log" else [data]
        number = draw.randrange(len(lines))
        lines[number] = damaged_json(lines[number], draw, values) if draw.random() < 0.95 else b"[" * 100_000
        path.write_bytes(b"\n".join(lines))
    else:
        path.write_bytes(damaged_bytes(data, draw))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", range(_SEEDS))
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_any_damage_is_an_error_of_ours(tmp_path: Path, kind: str, seed: int) -> None:
    data, live, whole, canary = (tmp_path / name for name in ("data", "live", "whole", "canary"))
    canary.mkdir()
    (canary / "x.parquet").write_text("no")
    table = name_of(kind, live, "orders")
    for _ in range(3):
        append(data, 10)
        pylogseg.lake(data, table)
    shutil.copytree(live, whole)
    draw, values = random.Random(seed), nasty(canary / "x.parquet")
    weights = {".json": 4, ".avro": 2, ".parquet": 1}
    for _ in range(_EACH):
        shutil.rmtree(live)
        shutil.copytree(whole, live)
        files = sorted(path for path in live.rglob("*") if path.suffix in weights)
        damage(draw.choices(files, [weights[path.suffix] for path in files])[0], draw, values)
        for command in (
            lambda: pylogseg.audit(data, table),
            lambda: pylogseg.audit(data, table, quick=True),
            lambda: pylogseg.lake(data, table, clean=True),
        ):
            with contextlib.suppress(PylogsegError):
                command()
        assert [path.name for path in canary.iterdir()] == ["x.parquet"]


def test_frames_of_a_stack_are_left_out(tmp_path: Path) -> None:
    """The first sentence of a library in Rust says it all."""
    (tmp_path / "_delta_log").mkdir()
    (tmp_path / "_delta_log" / f"{0:020d}.json").write_text('{"commitInfo": ')
    with pytest.raises(StorageError) as caught, library_errors("table", "read"):
        deltalake.DeltaTable(tmp_path)
    assert "Truncated record" in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_a_panic_of_a_library_is_an_error_of_ours() -> None:
    """Of Rust, it is no `Exception`; an interrupt is none either, and stays what it is."""
    panic = type("PanicException", (BaseException,), {})
    with pytest.raises(PylogsegError, match="t: cannot read: PanicException: gave up"), library_errors("t", "read"):
        raise panic("gave up")
    with pytest.raises(KeyboardInterrupt), library_errors("t", "read"):
        raise KeyboardInterrupt


def without_application(table: Path) -> None:
    (path,) = table.rglob("*1.json")
    path.write_bytes(path.read_bytes().replace(b'"txn":{"appId"', b'"txn":{"app"'))


def with_a_control_character(table: Path) -> None:
    (path,) = table.rglob("*0.json")
    path.write_bytes(path.read_bytes().replace(b"operation", b"oper\x01tion"))


def with_another_byte(table: Path, pattern: str, at: int) -> None:
    for path in table.rglob(pattern):
        data = bytearray(path.read_bytes())
        data[at : at + 3] = b"\xff\xff\xff"
        path.write_bytes(data)


@pytest.mark.parametrize(
    ("kind", "harm"),
    [
        ("delta", without_application),
        ("delta", with_a_control_character),
        ("iceberg", lambda table: with_another_byte(table, "*-m0.avro", 200)),
        ("iceberg", lambda table: with_another_byte(table, "snap-*.avro", 200)),
        ("iceberg", lambda table: with_another_byte(table, "*.metadata.json", 2)),
        ("iceberg", lambda table: with_another_byte(table, "catalog.db", 20)),
        ("delta", lambda table: with_another_byte(table, "*.parquet", -4)),
        ("iceberg", lambda table: with_another_byte(table, "*.parquet", -3)),
        ("delta", lambda table: [path.unlink() for path in table.rglob("*.parquet")]),
    ],
)
def test_a_table_that_cannot_be_read_is_not_wrong(tmp_path: Path, kind: str, harm: Any) -> None:
    """Exit code 1 is for rows that are double, changed, lost or foreign; here nobody could look."""
    append(tmp_path / "data", 10)
    table = name_of(kind, tmp_path / "out", "orders")
    pylogseg.lake(tmp_path / "data", table)
    harm(tmp_path / "out")
    for options in ((), ("--quick",)):
        done = expect(shell("audit", tmp_path / "data", table, *options), 2)
        assert "orders" in done.err + done.text
        assert " lost" not in done.text
