"""Tests of tables/reader.py. A log that is wrong, read by commands and engines: the rows of one reading in Python, or
all say that it is damaged.

In an ordinary run each door and each harm is there, in a deep one each pair.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from helpers.depth import IS_DEEP, some_of
from helpers.doors_of_reading import AS_BASE64, COLUMNS, doors, of_command, of_lines, tuples, words_of
from helpers.harmed_batches import RANGES, RECORDS, WIDTH, Files, Harm, files_of, harms, put, write_log
from helpers.lake_tables import name_of
from helpers.shell import pylogseg as shell
from helpers.ways_of_reading import Offsets, Result, Way, by_records, result_of

import pylogseg

pytest.importorskip("duckdb")
pytest.importorskip("polars")
pytest.importorskip("pandas")
PARTS = 6
Row = tuple[int, bytes, bytes]


@pytest.fixture(scope="module", params=["producer", "zstd"])
def sound(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_log(tmp_path_factory.mktemp("sound #%ü") / "t-0", request.param)


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(logging.getLogger("pylogseg"), "propagate", False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def some_harms(files: Files, part: int, count: int = 54) -> Iterator[tuple[int, Harm, Offsets]]:
    for number, harm in list(enumerate(some_of(harms(files), count)))[part::PARTS]:
        yield number, harm, RANGES[number // PARTS % len(RANGES)]


def some_ways(ways: list[Any], number: int) -> list[Any]:
    """Return all ways in a deep run, else one, another one for each harm."""
    return ways if IS_DEEP else [ways[number % len(ways)]]


def told(result: Result) -> str:
    rows = "an error" if result.rows is None else f"{len(result.rows)} rows"
    return f"{rows}{', with a loss' if result.has_loss else ''}"


@pytest.mark.parametrize("on_corrupt", ["raise", "skip"])
@pytest.mark.parametrize("part", range(PARTS))
def test_all_doors_agree(sound: Path, tmp_path: Path, on_corrupt: str, part: int) -> None:
    """Files of four formats, two commands that print, SQL, duckdb, polars and pandas; the exit code too."""
    wrong = []
    for number, harm, offsets in some_harms(files_of(sound), part):
        folder = put(harm.files, tmp_path / "t-0")
        whole = by_records(folder, offsets, on_corrupt)
        for door in some_ways(doors(), number // PARTS + part):
            result = door.read(folder, offsets, on_corrupt, tmp_path)
            if result != whole:
                wrong.append(f"{harm.name}, {offsets}: {door.name}: {told(result)}, and in Python {told(whole)}")
    assert not wrong, "\n".join(wrong)


def views(folder: Path, offsets: Offsets, on_corrupt: Any, rows: list[Row]) -> list[tuple[Way, list[Row]]]:
    """Return ways to read a part of the rows, with that part: the latest of each key, and those with one key."""
    latest = sorted({row[1]: row for row in rows}.values())
    of_key = [row for row in rows if row[1] == b"k3"]
    is_key = pc.field("key") == pa.scalar(b"k3", pa.binary())

    def python(**how: Any) -> Result:
        reader = pylogseg.read(folder, offset=offsets, on_corrupt=on_corrupt, **how)
        return result_of(lambda: [(r.offset, r.key, r.value) for r in reader], lambda: reader.gaps)

    def arrow(**how: Any) -> Result:
        reader = pylogseg.read(folder, offset=offsets, on_corrupt=on_corrupt, columns=COLUMNS, **how)
        return result_of(lambda: tuples(pa.RecordBatchReader.from_stream(reader).read_all()), lambda: reader.gaps)

    def command(*words: str) -> Result:
        more = [*words_of(offsets, on_corrupt), *AS_BASE64, "--fields", ",".join(COLUMNS)]
        done = shell(words[0], folder, *words[1:], *more)
        return of_command(done, on_corrupt, lambda: of_lines(done.out))

    every = (0, 1, 2)
    return [
        (Way("the latest in Python", every, lambda: python(latest=True)), latest),
        (Way("the latest in Arrow", every, lambda: arrow(latest=True)), latest),
        (Way("latest", every, lambda: command("latest")), latest),
        (Way("a filter in Python", every, lambda: python(filter=is_key)), of_key),
        (Way("a filter with three jobs", every, lambda: arrow(filter=is_key, jobs=3)), of_key),
        (Way("cat --key", every, lambda: command("cat", "--key", "azM=")), of_key),
    ]


@pytest.mark.parametrize("on_corrupt", ["raise", "skip"])
@pytest.mark.parametrize("part", range(PARTS))
def test_views_are_parts_of_the_rows(sound: Path, tmp_path: Path, on_corrupt: str, part: int) -> None:
    wrong = []
    for number, harm, offsets in some_harms(files_of(sound), part):
        folder = put(harm.files, tmp_path / "t-0")
        whole = by_records(folder, offsets, on_corrupt)
        for way, rows in some_ways(views(folder, offsets, on_corrupt, whole.rows or []), number // PARTS + part):
            result, wanted = way.read(), whole if whole.rows is None else Result(rows, whole.has_loss)
            if result != wanted:
                wrong.append(f"{harm.name}, {offsets}: {way.name}: {told(result)}, and not {told(wanted)}")
    assert not wrong, "\n".join(wrong)


FIRST = 1_000_000  #: Of batches, each a millisecond later.
TIMES = [(5, 20), (12, None), (None, 9), (20, 21), (29, None), (40, None), (None, 0)]
Times = tuple[int | None, int | None]


def ways_by_time(folder: Path, times: Times, on_corrupt: Any, out: Path) -> list[Way]:
    """Return ways to read a range of times."""
    since, until = times
    words = ["--on-corrupt", on_corrupt] + ["--since", str(since)] * (since is not None)
    words += ["--until", str(until)] * (until is not None)
    conditions = [f"epoch_ms(timestamp) >= {since}"] * (since is not None)
    conditions += [f"epoch_ms(timestamp) < {until}"] * (until is not None)

    def arrow(jobs: int) -> Result:
        reader = pylogseg.read(folder, timestamp=times, on_corrupt=on_corrupt, columns=COLUMNS, jobs=jobs)
        return result_of(lambda: tuples(pa.RecordBatchReader.from_stream(reader).read_all()), lambda: reader.gaps)

    def dataset() -> Result:
        table = pylogseg.dataset(folder, on_corrupt=on_corrupt)
        at = [None if ms is None else pa.scalar(ms * 1000, pa.timestamp("us", "UTC")) for ms in times]
        parts = [pc.field("timestamp") >= at[0]] * (since is not None) + [pc.field("timestamp") < at[1]] * (
            until is not None
        )
        wanted = parts[0] & parts[-1]
        return result_of(lambda: tuples(table.to_table(columns=COLUMNS, filter=wanted)), lambda: table.gaps)

    def cat() -> Result:
        done = shell("cat", folder, *words, *AS_BASE64, "--fields", ",".join(COLUMNS))
        return of_command(done, on_corrupt, lambda: of_lines(done.out))

    def export() -> Result:
        target = out / "times.jsonl"
        target.unlink(missing_ok=True)
        done = shell("export", folder, "--out", target, *words, *AS_BASE64, "--columns", ",".join(COLUMNS))
        return of_command(done, on_corrupt, lambda: of_lines(target.read_bytes()))

    def sql() -> Result:
        query = 'select "offset", base64(key) as key, base64(value) as value from records where '
        query += f"{' and '.join(conditions)} order by 1"
        done = shell("sql", folder, query, "-O", "json", "--on-corrupt", on_corrupt)
        return of_command(done, on_corrupt, lambda: of_lines(done.out))

    every = (0, 1, 2)
    jobs = [Way(f"{count} jobs", every, lambda count=count: arrow(count)) for count in (1, 3)]
    rest = {"a dataset": dataset, "cat": cat, "export": export, "sql": sql}
    return [*jobs, *(Way(name, every, read) for name, read in rest.items())]


@pytest.mark.parametrize("on_corrupt", ["raise", "skip"])
@pytest.mark.parametrize("part", range(PARTS))
def test_a_range_of_times_has_its_rows_or_says_that_it_lacks_some(
    sound: Path, tmp_path: Path, on_corrupt: str, part: int
) -> None:
    """What lies outside of the times may be read or not; so damage there may be said, but changes no rows."""
    wrong, truth = [], by_records(sound, (None, None), "raise").rows
    assert truth is not None
    for number, harm, _ in some_harms(files_of(sound), part):
        since, until = TIMES[number % len(TIMES)]
        inside = slice(WIDTH * (since or 0), RECORDS if until is None else WIDTH * until)
        times = (None if since is None else FIRST + since, None if until is None else FIRST + until)
        folder = put(harm.files, tmp_path / "t-0")
        whole = by_records(folder, (None, None), "skip")
        rows = [row for row in whole.rows or [] if row in truth[inside]]
        for way in some_ways(ways_by_time(folder, times, on_corrupt, tmp_path), number // PARTS + part):
            result = way.read()
            is_silent = result.rows is not None and not result.has_loss
            fits = result.rows is None or [row for row in result.rows if row in truth] == rows
            if not fits or (is_silent and result.rows != truth[inside] and not harm.is_hidden):
                wrong.append(f"{harm.name}, {times}: {way.name}: {told(result)} of {len(truth[inside])}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("part", range(PARTS))
def test_what_compares_says_the_same(sound: Path, tmp_path: Path, part: int) -> None:
    """`diff` with the sound log, `audit` of its table, and a table that is fed from the damaged log."""
    truth = by_records(sound, (None, None), "raise").rows
    assert truth is not None
    wrong, table = [], name_of("delta", tmp_path, "t")
    assert shell("lake", sound.parent, "t", table, "--to-end").code == 0
    for number, harm, offsets in some_harms(files_of(sound), part, 36):
        folder = put(harm.files, tmp_path / "log" / "t-0")
        whole = by_records(folder, offsets, "skip")
        first, end = offsets[0] or 0, RECORDS if offsets[1] is None else offsets[1]
        assert whole.rows is not None
        done = shell("diff", sound, folder, "--json", *words_of(offsets, "skip"))
        lost = [row for row in truth[first:end] if row not in whole.rows]
        code = 2 if whole.has_loss else int(whole.rows != truth[first:end])
        (total,) = (row for row in done.rows if row["type"] == "summary")
        if (done.code, total["recordsB"]) != (code, len(whole.rows)) or total["missing"] + total["changed"] < len(lost):
            wrong.append(f"{harm.name}, {offsets}: diff: {total}, exit code {done.code}, and not {code}")
        whole = by_records(folder, (None, None), "skip")
        is_whole = not whole.has_loss and whole.rows == truth
        done = shell("audit", folder.parent, "t", table, "--complete")
        if (done.code == 0) != is_whole and not harm.is_hidden:
            wrong.append(f"{harm.name}: audit: exit code {done.code}, {told(whole)}")
        done = shell("lake", folder.parent, "t", name_of("delta", tmp_path, f"t{number}"), "--to-end")
        if (done.code == 0) != is_whole and not harm.is_hidden:
            wrong.append(f"{harm.name}: lake: exit code {done.code}, {told(whole)}")
    assert not wrong, "\n".join(wrong)
