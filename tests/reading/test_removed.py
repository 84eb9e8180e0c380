"""Tests of reading/removed_segments.py and walker/gaps.py. A segment that a broker removes or replaces between the
listing and the reading: one rule for all doors.
"""

from __future__ import annotations

import dataclasses
import re
import shlex
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from helpers.depth import diagonals
from helpers.shell import expect
from helpers.shell import pylogseg as shell

import pylogseg
from pylogseg.env.filesystem import LocalFiles
from pylogseg.inspect.stats.segment import segment_stats
from pylogseg.log.cleaner import Cleaner
from pylogseg.log.cleaner_range import Cleanable
from pylogseg.log.offset_map import OffsetMap
from pylogseg.spark.options import parse
from pylogseg.spark.plan import plan
from pylogseg.spark.task import read_task
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
    for name in ("TASK_BYTES", "ALONE_BYTES", "FRAGMENT_BYTES"):
        monkeypatch.setattr(f"pylogseg.reading.scan.{name}", SMALL)
        monkeypatch.setattr(datasets, name, SMALL)


def of_segment(path: Path) -> list[Path]:
    return sorted(path.parent.glob(f"{path.stem}.*"))


def delete(path: Path) -> None:
    for each in of_segment(path):
        each.unlink()


def rename(path: Path) -> None:
    """As a broker does for a minute."""
    for each in of_segment(path):
        each.rename(f"{each}.deleted")


def merge(path: Path) -> None:
    """As the cleaner: what the second segment had lies in the first one, whose indexes are new."""
    first, second, *_ = segments(path.parent.parent)
    new = first.with_name(first.name + ".swap")
    new.write_bytes(first.read_bytes() + second.read_bytes())
    for kind in ("index", "timeindex"):
        first.with_suffix(f".{kind}").write_bytes(b"")
    delete(second)
    new.replace(first)


def merge_and_rename(path: Path) -> None:
    """The same, as long as the old files are pending deletion."""
    first, second, *_ = segments(path.parent.parent)
    new = first.with_name(first.name + ".swap")
    new.write_bytes(first.read_bytes() + second.read_bytes())
    rename(second)
    new.replace(first)


def swap(path: Path) -> None:
    """Replaced by a cleaned segment, which gets its name a little later."""
    new = path.with_name(path.name + ".swap")
    new.write_bytes(path.read_bytes())
    path.unlink()
    threading.Timer(0.03, lambda: new.rename(path)).start()


class Harm(NamedTuple):
    """What happens to a segment, by its number, when a reader is about to open it: after the plan was made."""

    do: Callable[[Path], None]
    number: int = 0
    loses: bool = False


HARMS = {
    "deleted": Harm(delete, loses=True),
    "renamed": Harm(rename),
    "renamed-in-the-middle": Harm(rename, 1),
    "merged": Harm(merge),
    "merged-after-its-first": Harm(merge, 1),
    "merged-and-renamed": Harm(merge_and_rename, 1),
    "swapped": Harm(swap),
}


@pytest.fixture
def log(
    request: pytest.FixtureRequest, made: Path, tmp_path: Path, small: None, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """A log of which a broker removes or replaces a segment; the parameter says how."""
    harm: Harm = HARMS[request.param]
    root, opened, done = Path(shutil.copytree(made, tmp_path / "data")), LocalFiles.open, threading.Event()
    doomed, mutex = segments(root)[harm.number], threading.Lock()

    def removing(self: LocalFiles, path: str, *, sealed: bool) -> Any:
        with mutex:
            if Path(path).name == doomed.name and not done.is_set():
                done.set()
                harm.do(doomed)
        return opened(self, path, sealed=sealed)

    monkeypatch.setattr(LocalFiles, "open", removing)
    yield root
    assert done.is_set(), "no door has opened it: this test shows nothing"


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


def spark_task(root: Path) -> Said:
    """A task of Spark, without it."""
    options = parse({"failOnDataLoss": "false", "rangeBytes": str(SMALL)})
    gaps: list[Gap] = []
    with mock.patch("pylogseg.spark.task.on_loss", return_value=lambda part, gap: add_gaps(gaps, [gap])):
        tasks = plan([str(root)], options)
        found = [row for task in tasks for batch in read_task(task, options, ["offset"]) for row in batch.to_pylist()]
    return [row["offset"] for row in found], ranges(gaps)


def statistics(root: Path) -> Said:
    """All offsets that were counted, if none twice."""
    found = [segment_stats(segment) for segment in pylogseg.open_dir(root).partitions[0].segments]
    gaps = [gap for each in found for gap in each.gaps]
    there = [offset for each in found if each.records for offset in range(each.first_offset, each.end_offset)]
    assert sum(each.records for each in found) == len(there)
    return there, ranges(gaps)


DOORS = [read, streamed, filtered, dataset, header_dataset, batches, spark_task, statistics]


@pytest.mark.parametrize("log", HARMS, indirect=True)
@pytest.mark.parametrize("door", DOORS, ids=lambda f: f.__name__)
def test_in_python_each_record_is_there_once_or_there_is_one_gap(
    request: pytest.FixtureRequest, log: Path, made: Path, door: Callable[[Path], Said]
) -> None:
    second = int(segments(made)[1].stem)
    loses = HARMS[request.node.callspec.params["log"]].loses
    assert door(log) == ((list(range(second, RECORDS)), [(0, second)]) if loses else (list(range(RECORDS)), []))


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
    "export DIR --out OUT.csv": "{count:,} records",
    'sql DIR "select count(key) as n from t" --output json': '"n":{count}',
    'sql DIR "select count(*) as n from t" --output json': '"n":{count}',
}


@pytest.mark.parametrize("log", ["deleted"], indirect=True)
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


@pytest.mark.parametrize(
    ("command", "log"), diagonals(COMMANDS, [name for name, harm in HARMS.items() if not harm.loses]), indirect=["log"]
)
def test_a_command_reads_what_is_elsewhere(log: Path, made: Path, tmp_path: Path, command: str) -> None:
    places = {"DIR": str(log), "OUT": str(tmp_path / "out"), "OUT.csv": str(tmp_path / "out.csv")}
    done = shell(*(places.get(word, word) for word in shlex.split(command)))
    assert (done.code, [line for line in done.err.splitlines() if "counted by batch headers" not in line]) == (0, [])
    said = COMMANDS[command]
    if said is None:
        assert [int(line) for line in done.text.split()] == list(range(RECORDS))
    else:
        second = int(segments(made)[1].stem)
        assert said.format(count=RECORDS, sixth=RECORDS // 6, second=second) in done.text


@pytest.mark.parametrize("log", HARMS, indirect=True)
@pytest.mark.parametrize("words", [["verify"], ["report", "--json"], ["report", "--json", "--full"]], ids=" ".join)
def test_a_judgement_of_what_is_there_has_a_notice_alone(
    request: pytest.FixtureRequest, log: Path, words: list[str]
) -> None:
    done = expect(shell(*words, log, *(["--json"] if words == ["verify"] else [])), 0)
    loses = HARMS[request.node.callspec.params["log"]].loses
    if words == ["verify"]:
        kinds = [row["kind"] for row in done.rows if row["type"] == "finding"]
        assert kinds == [*(["removed"] if loses else []), "meta-properties"]


@pytest.mark.parametrize("door", [read, streamed, dataset, spark_task, statistics], ids=lambda f: f.__name__)
@pytest.mark.parametrize("delay_ms", [0, 60_000], ids=["gone", "pending"])
def test_what_the_engines_cleaner_merged(
    tmp_path: Path, small: None, monkeypatch: pytest.MonkeyPatch, door: Callable[[Path], Said], delay_ms: int
) -> None:
    """Each record once, all of which are the last of their keys, whichever segment is read when the cleaner comes."""
    options: dict[str, Any] = {"cleanup_policy": "compact", "file_delete_delay_ms": delay_ms, "segment_bytes": 3000}
    with pylogseg.open_log(tmp_path / "data" / "t-0", **options) as log:
        for first in range(0, 300, 6):
            log.append([(1_000_000 + i, b"%d" % i, b"v" * 40) for i in range(first, first + 6)])
        doomed = [Path(segment.path) for segment in log.engine.segments]
        assert len(doomed) > 5
        opened, done = LocalFiles.open, threading.Event()

        def cleaning(self: LocalFiles, path: str, *, sealed: bool) -> Any:
            if Path(path).name == doomed[2].name and not done.is_set():
                done.set()
                log.engine.update_config(dataclasses.replace(log.engine.config, segment_bytes=9000))
                Cleaner(OffsetMap(1 << 16)).clean(log.engine, Cleanable(0, log.log_end_offset, False))
            return opened(self, path, sealed=sealed)

        monkeypatch.setattr(LocalFiles, "open", cleaning)
        assert door(tmp_path / "data") == (list(range(300)), [])
        assert len(log.engine.segments) < len(doomed)


def test_gaps_of_the_parts_of_a_file_become_one_in_any_order() -> None:
    def gone(first: int, end: int | None, path: str = "a", kind: GapKind = GapKind.REMOVED) -> Gap:
        return Gap(path, kind, 0, 10, first, end, "gone", False)

    noted: list[Gap] = []
    add_gaps(noted, [gone(0, 5), gone(0, 5, "b"), gone(9, None), gone(0, 5, kind=GapKind.ORDER)])
    assert len(noted) == 4
    add_gaps(noted, [gone(5, 9), gone(0, 5)])
    assert noted == [gone(0, None), gone(0, 5, "b"), gone(0, 5, kind=GapKind.ORDER)]
