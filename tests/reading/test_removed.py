"""A segment that retention removes between the listing and the reading: one rule for all doors, and one notice."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from helpers.shell import pylogseg as shell

import pylogseg
from pylogseg.env.filesystem import LocalFiles
from pylogseg.tables import dataset as datasets
from pylogseg.walker.gaps import Gap, GapKind, add_gaps

RECORDS = 1200
SMALL = 4000  #: Bytes of a part and a task; segments are several times as large.

Said = tuple[list[int], list[tuple[int, int | None]]]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("removed")
    with pylogseg.open_log(folder / "t-0", segment_bytes=20_000, index_interval_bytes=500) as log:
        for first in range(0, RECORDS, 6):
            log.append([(1_000_000 + first, b"k%d" % i, b"%d-" % i * 12) for i in range(6)])
    assert len(segments(folder)) > 2
    return folder


def segments(root: Path) -> list[Path]:
    return sorted((root / "t-0").glob("*.log"))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands cut segments into parts, and scans make several tasks of one."""
    for module in ("pylogseg.cli.workers", "pylogseg.cli.cat"):
        monkeypatch.setattr(f"{module}.PART_BYTES", SMALL)
    for name in ("TASK_BYTES", "FRAGMENT_BYTES"):
        monkeypatch.setattr(f"pylogseg.reading.scan.{name}", SMALL)
        monkeypatch.setattr(datasets, name, SMALL)


@pytest.fixture
def log(made: Path, tmp_path: Path, small: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A log whose first segment is deleted when a reader is about to open it: after the plan was made."""
    root = Path(shutil.copytree(made, tmp_path / "data"))
    doomed, opened = segments(root)[0], LocalFiles.open

    def removing(self: LocalFiles, path: str, *, sealed: bool) -> Any:
        if Path(path).name == doomed.name:
            for each in doomed.parent.glob(f"{doomed.stem}.*"):
                each.unlink(missing_ok=True)
        return opened(self, path, sealed=sealed)

    monkeypatch.setattr(LocalFiles, "open", removing)
    yield root
    assert not doomed.exists(), "no door has opened it: this test shows nothing"


def ranges(gaps: list[Gap]) -> list[tuple[int, int | None]]:
    assert all(gap.kind is GapKind.REMOVED and not gap.is_damage for gap in gaps)
    return [(gap.first_offset, gap.next_offset) for gap in gaps]


def read(root: Path) -> Said:
    reader = pylogseg.read(root)
    return [record.offset for record in reader], ranges(reader.gaps)


def streamed(root: Path) -> Said:
    reader = pylogseg.read(root, columns=["offset"], jobs=3)
    return pa.RecordBatchReader.from_stream(reader).read_all()["offset"].to_pylist(), ranges(reader.gaps)


def filtered(root: Path) -> Said:
    reader = pylogseg.read(root, columns=["offset"], filter=pc.field("value") != b"")
    return pa.RecordBatchReader.from_stream(reader).read_all()["offset"].to_pylist(), ranges(reader.gaps)


def dataset(root: Path) -> Said:
    table = pylogseg.dataset(root)
    return table.to_table(columns=["offset", "key"])["offset"].to_pylist(), ranges(table.gaps)


def header_dataset(root: Path) -> Said:
    table = pylogseg.dataset(root, check_crc=False)
    return table.to_table(columns=["offset"])["offset"].to_pylist(), ranges(table.gaps)


def batches(root: Path) -> Said:
    table = pylogseg.dataset(root, of="batches")
    found = table.to_table(columns=["baseOffset", "problem"])
    good = found.filter(pc.field("problem").is_null())["baseOffset"].to_pylist()
    return [offset for base in good for offset in range(base, base + 6)], ranges(table.gaps)


@pytest.mark.parametrize("door", [read, streamed, filtered, dataset, header_dataset, batches], ids=lambda f: f.__name__)
def test_in_python_it_is_one_gap_and_no_error(log: Path, door: Callable[[Path], Said]) -> None:
    second = int(segments(log)[1].stem)
    assert door(log) == (list(range(second, RECORDS)), [(0, second)])


#: A command, and what it prints for each record, or in all.
COMMANDS = {
    "cat DIR --format '%o\\n'": None,
    "cat DIR --format '%o\\n' --jobs 3": None,
    "cat DIR --format '%o\\n' --jobs 3 --isolation-level read_committed": None,
    "cat DIR --format '%o\\n' --merge time": None,
    "grep k DIR --in key --format '%o\\n'": None,
    "grep k DIR --in key --format '%o\\n' --jobs 3": None,
    "grep k DIR --in key --count --jobs 3": "{count}",
    "stats DIR --json": '"records": {count},',
    "stats DIR --json --jobs 3 --by key": '"records": {sixth},',
    "export DIR --out OUT --json": "{second:020d}.parquet",
    "export DIR --out OUT --json --jobs 3": "{second:020d}.parquet",
    "export DIR --out OUT.csv": "{count} records",
    'sql DIR "select count(key) as n from t" --output json': '"n":{count}',
    'sql DIR "select count(*) as n from t" --output json': '"n":{count}',
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_has_one_notice_and_the_exit_code_shows_it(log: Path, tmp_path: Path, command: str) -> None:
    second = int(segments(log)[1].stem)
    places = {"DIR": str(log), "OUT": str(tmp_path / "out"), "OUT.csv": str(tmp_path / "out.csv")}
    done = shell(*(places.get(word, word) for word in shlex.split(command)))
    (notice,) = [line for line in done.err.splitlines() if "counted by batch headers" not in line]
    assert re.match(
        rf"pylogseg: note: \S*/{0:020d}.log: bytes 0 to \d+ \(removed; offsets 0 to {second - 1}\): ", notice
    )
    assert done.code == (2 if command.startswith("grep") else 1)
    said = COMMANDS[command]
    if said is None:
        assert [int(line) for line in done.text.split()] == list(range(second, RECORDS))
    else:
        count = RECORDS - second
        assert said.format(count=count, sixth=count // 6, second=second) in done.text


def test_a_judgement_of_what_is_there_has_a_notice_alone(log: Path) -> None:
    done = shell("verify", log, "--json")
    assert (done.code, [row["kind"] for row in done.rows if row["type"] == "finding"]) == (
        0,
        ["removed", "meta-properties"],
    )


def test_what_the_cleaner_merged_a_table_reads_where_it_is_now(made: Path, tmp_path: Path, small: None) -> None:
    root = Path(shutil.copytree(made, tmp_path / "data"))
    table = pylogseg.dataset(root)
    list(table.get_fragments())
    table.count_rows()
    first, second, *_ = segments(root)
    first.write_bytes(first.read_bytes() + second.read_bytes())
    for path in second.parent.glob(f"{second.stem}.*"):
        path.unlink()
    found = table.to_table(columns=["offset", "key"])["offset"].to_pylist()
    assert (found, table.gaps) == (list(range(RECORDS)), [])


def test_gaps_of_the_parts_of_a_file_become_one_in_any_order() -> None:
    def gone(first: int, end: int | None, path: str = "a", kind: GapKind = GapKind.REMOVED) -> Gap:
        return Gap(path, kind, 0, 10, first, end, "gone", False)

    noted: list[Gap] = []
    add_gaps(noted, [gone(0, 5), gone(0, 5, "b"), gone(9, None), gone(0, 5, kind=GapKind.ORDER)])
    assert len(noted) == 4
    add_gaps(noted, [gone(5, 9), gone(0, 5)])
    assert noted == [gone(0, None), gone(0, 5, "b"), gone(0, 5, kind=GapKind.ORDER)]
