"""Tests of format/words.py and offline/result.py. What a command says of the whole: a line for each partition that
changes, and one for all together.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from helpers.damaged_logs import change_byte
from helpers.shell import Done, pylogseg
from helpers.trees import tree

from pylogseg import open_dir
from pylogseg.format.words import size_text
from pylogseg.log.recovery_report import Action, ActionKind
from pylogseg.offline.result import done_text

INTERVAL = ("-c", "index.interval.bytes=512", "-c", "segment.index.bytes=4096")
#: Commands that change something in the examples, and what their totals count besides.
COMMANDS: dict[str, tuple[tuple[str, ...], str]] = {
    "retain": (("ret-bytes", "txn-a", "--bytes", "5000"), "177 offsets removed, 4 segments deleted"),
    "compact": (("txn-b", "codec-none", "--include-active", "-c", "cleanup.policy=compact"), "records removed"),
    "recode": (("codec-*", "--compression", "none"), "segments rewritten"),
    "redact": (("codec-*", "--key", "k91"), "records deleted"),
    "delete-records": (("--offset", "txn-a-0=100"), "100 offsets removed, 2 segments deleted"),
    "truncate": (("txn-a-0", "--to", "100"), "48 offsets removed"),
    "reindex": (("codec-zstd", "-c", "index.interval.bytes=4096"), "4 files written"),
    "repair": ((), "TOTAL"),
}


def in_words(name: str, log_dir: Path, *more: str) -> Done:
    words, _ = COMMANDS[name]
    interval = () if any("interval" in word for word in words) else INTERVAL
    keep = ("--no-keep",) if name == "repair" else ()
    return pylogseg(name, log_dir, *words, *interval, *keep, *more)


@pytest.fixture
def log_dir(examples: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(examples, tmp_path / "kafka"))


def broken(log_dir: Path) -> None:
    """A batch in the first half of a log does not hold."""
    change_byte(min((log_dir / "txn-a-0").glob("*.log")), bits=0x5A)


def total_of(done: Done) -> str:
    (line,) = [line for line in done.text.splitlines() if line.startswith("TOTAL")]
    assert done.text.splitlines()[-1] == line
    return line


def losses(done: Done) -> list[str]:
    return re.findall(r"^DAMAGE .*|^ {8}.*|^lost in .*", done.text, re.M)


def test_each_kind_of_action_has_words() -> None:
    for kind in ActionKind:
        assert done_text([Action(kind, "t-0", "")]).startswith("1 ")


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_a_line_for_each_partition_and_one_for_all(log_dir: Path, name: str) -> None:
    if name == "repair":
        broken(log_dir)
    before = tree(log_dir)
    plain, long, quiet = (in_words(name, log_dir, "--dry-run", *more) for more in ((), ("--verbose",), ("--quiet",)))
    rows = in_words(name, log_dir, "--dry-run", "--json").rows
    assert tree(log_dir) == before
    every = [row for row in rows if row["type"] == "partition"]
    parts = [row for row in every if row["state"] in ("done", "unchanged")]
    done = [row["partition"] for row in parts if row["state"] == "done"]
    assert done
    # By partition: those that change, one line each; by file only if it is asked for.
    assert re.findall(r"^(\S+) +done ", plain.text, re.M) == done
    assert not re.search(r"^\S+ +unchanged ", plain.text, re.M)
    assert not re.search(r"would (create|change|remove) ", plain.text)
    files = [change["path"] for row in parts for change in row.get("changes", ())]
    path = rf": would (?:create|change|remove) ({re.escape(str(log_dir))}\S*?),? "
    assert sorted(re.findall(path, long.text)) == sorted(files)
    assert re.findall(r"^(\S+) +(?:done|unchanged) ", long.text, re.M) == [row["partition"] for row in parts]
    assert f"{len(files):,} file{'s' * (len(files) != 1)} would differ" in plain.text
    # The total is the sum of the rows.
    total = total_of(plain)
    assert COMMANDS[name][1] in total
    sums = [sum(row[key] for row in parts) for key in ("bytesBefore", "bytesAfter")]
    assert f"{len(done)} of {len(every)} partition" in total
    assert f"segments {size_text(sums[0])} to {size_text(sums[1])}, {size_text(abs(sums[0] - sums[1]))}" in total
    assert quiet.text.splitlines() == [*losses(plain), total]
    assert bool(losses(plain)) == (name == "repair")
    assert rows[-1]["changed"] == len(done)
    # What is done is what was foretold.
    assert total_of(in_words(name, log_dir)) == total.replace("would be ", "")


def test_what_is_the_same_of_many_is_said_once(log_dir: Path) -> None:
    """Each of many partitions has the same note: one line, and one of each only if that is asked for."""
    words = ("retain", log_dir, "codec-*", "-c", "cleanup.policy=delete", "-c", "retention.bytes=1", "--dry-run")
    words = (*words, "--cluster-metadata", "none")
    plain, long = pylogseg(*words).text, pylogseg(*words, "-v").text
    names = "codec-gzip-0, codec-lz4-1, codec-none-1, codec-snappy-0, codec-zstd-0"
    assert f"5 partitions, {names}: retention.ms is not known, so nothing goes by its age" in plain
    assert len(re.findall(r"^codec-\S+: retention.ms is not known", long, re.M)) == 5


def test_recovery(log_dir: Path) -> None:
    """The same: partitions with something to mend, the rest as a number; quiet tells losses and the total."""
    broken(log_dir)
    words = ("recover", log_dir, "--no-keep", "--full", *INTERVAL)
    plain, long, quiet = (pylogseg(*words, "--dry-run", *more) for more in ((), ("-v",), ("-q",)))
    rows = pylogseg(*words, "--dry-run", "--json").rows
    parts = [row for row in rows if row["type"] == "partition"]
    mended = [row["partition"] for row in parts if row["recovery"]["actions"]]
    assert "txn-a-0" in mended
    assert len(mended) < len(parts) - 3
    assert re.findall(r"^(\S+) +done ", plain.text, re.M) == mended
    assert not re.search(r"^\S+ +unchanged ", plain.text, re.M)
    assert re.findall(r"^(\S+) +(?:done|unchanged) ", long.text, re.M) == [
        row["partition"] for row in parts if row["state"] != "skipped"
    ]
    assert not re.search(r"would (create|change|remove) ", plain.text)
    assert re.search(r"would (create|change|remove) ", long.text)
    lost = [line for line in plain.text.splitlines() if line.startswith("DAMAGE")]
    assert lost
    assert [line for line in quiet.text.splitlines() if line.startswith("DAMAGE")] == lost
    assert "notice" not in quiet.text
    total = total_of(plain)
    assert total == total_of(quiet) == total_of(long)
    sums: dict[str, Any] = rows[-1]
    assert f"{sums['done']} of {len(parts)} partitions would be changed" in total
    assert sums["skipped"] == len(parts) - sums["done"] - sums["unchanged"]
    assert f"{sums['cutBytes']:,} bytes cut off" in total
    assert total_of(pylogseg(*words)) == total.replace("would be ", "")


def test_nothing_was_out_of_order(log_dir: Path) -> None:
    assert pylogseg("recover", log_dir, "--no-keep", *INTERVAL).code == 0
    again = pylogseg("recover", log_dir, *INTERVAL)
    assert "nothing to repair" in again.text.splitlines()
    assert total_of(again).startswith("TOTAL: 0 of ")
    broken(log_dir)
    assert "out of order" not in pylogseg("recover", log_dir, "--no-keep", "--full", *INTERVAL).text


def test_lists_end_with_their_total(examples: Path) -> None:
    disk = open_dir(examples)
    segments = [segment for part in disk.partitions for segment in part.segments]
    size = size_text(sum(segment.size for segment in segments))
    for words, first in (((), len(disk)), (("-l",), len(segments))):
        total = pylogseg("ls", examples, *words).text.splitlines()[-1]
        assert total.split()[:3] == ["TOTAL", "of", str(first)]
        assert size in total
    assert str(len(segments)) in pylogseg("ls", examples).text.splitlines()[-1].split()
    assert "TOTAL" not in pylogseg("ls", examples, "txn-b").text
    for by in ("topic", "partition"):
        *lines, total = pylogseg("stats", examples, "--by", by).text.split("\n\n")[0].splitlines()
        (whole,) = pylogseg("stats", examples, "--json").rows
        assert total.split()[:3] == ["TOTAL", str(whole["records"]), str(whole["batches"])]
        assert str(whole["distinctKeys"]) in total.split()
        assert sum(int(line.split()[1]) for line in lines[1:]) == whole["records"]
