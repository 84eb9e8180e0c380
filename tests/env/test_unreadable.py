"""Tests of env/file_errors.py, env/positions.py and walker/unreadable.py. Dying disks: bytes that cannot be read, files
that cannot be opened, files that are cut while they are read.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from helpers import forked, shell
from helpers.checks import some
from helpers.depth import diagonals
from helpers.shell import environment, expect, run, without_rights

import pylogseg
from pylogseg import encode
from pylogseg._native import _lookup
from pylogseg.env import positions
from pylogseg.env.scheduler import ThreadScheduler
from pylogseg.errors import StorageError
from pylogseg.log.log import Log
from pylogseg.walker.gaps import GapKind

pytestmark = [pytest.mark.reads, pytest.mark.skipif(os.name == "nt", reason="rights and errors are others there")]

BAD = 100_000  # on a page that is lost
PAGE = BAD // 4096 * 4096


def segment_name(base: int) -> str:
    return f"{base:020d}.log"


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Partitions a-0, b-0, c-0, each of 120 records in two segments, the first of some 200 kB, in the folder ``d``."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for topic in "abc":
        folder = tmp_path / "d" / f"{topic}-0"
        folder.mkdir(parents=True)
        for base, end in ((0, 100), (100, 120)):
            records = ((i, [(1_700_000_000_000 + i, b"k%d" % i, b"v" * 2000)]) for i in range(base, end))
            batches = [encode(record, base_offset=i) for i, record in records]
            (folder / segment_name(base)).write_bytes(b"".join(batches))
    return tmp_path


def failing_page(monkeypatch: pytest.MonkeyPatch, *names: str, code: int = errno.EIO) -> None:
    """One page of some files is lost: each call that would read it fails, as of a disk with a bad sector."""

    def is_lost(descriptor: int, position: int, size: int) -> bool:
        if not (position < PAGE + 4096 and position + size > PAGE):
            return False
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        return any(path.endswith(name) for name in names)

    pread, preadv, read_in_file = os.pread, os.preadv, _lookup.read_in_file

    def bad_pread(descriptor: int, size: int, position: int) -> bytes:
        if is_lost(descriptor, position, size):
            raise OSError(code, os.strerror(code))
        return pread(descriptor, size, position)

    def bad_preadv(descriptor: int, buffers: Any, position: int, *flags: int) -> int:
        if is_lost(descriptor, position, sum(map(len, buffers))):
            raise OSError(code, os.strerror(code))
        return preadv(descriptor, buffers, position, *flags)

    def bad_read_in_file(descriptor: int, *what: Any) -> tuple[int, int, int, bytes]:
        found = read_in_file(descriptor, *what)
        if is_lost(descriptor, found[0], len(found[3])):
            raise OSError(code, os.strerror(code))
        return found

    monkeypatch.setattr(os, "pread", bad_pread)
    monkeypatch.setattr(_lookup, "read_in_file", bad_read_in_file)
    # What cannot be read by one compiled call is read by these.
    by_one_call = Mock(fetch=lambda *_: None, offset_for_time=lambda *_: None)
    monkeypatch.setattr(Log, "_reads", property(lambda _: by_one_call, lambda *_: None), raising=False)
    monkeypatch.setattr(positions, "_read_once", bad_pread)
    monkeypatch.setattr(os, "preadv", bad_preadv)


needs_proc = pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="names of descriptors are in /proc")
LOST = f"b-0/{segment_name(0)}"


@needs_proc
@pytest.mark.parametrize("isolation_level", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize("scratch", [True, False])
def test_records_around_lost_bytes_are_read(
    logs: Path, monkeypatch: pytest.MonkeyPatch, scratch: bool, isolation_level: Any
) -> None:
    failing_page(monkeypatch, LOST)
    reader = pylogseg.read("d", "b", on_corrupt="skip", reuse_buffers=scratch, isolation_level=isolation_level)
    offsets = [record.offset for record in reader]
    (gap,) = reader.gaps
    missing = sorted(set(range(120)) - set(offsets))
    assert offsets == sorted(offsets)
    assert 2 <= len(missing) <= 4
    assert missing == list(range(gap.first_offset, gap.next_offset))
    assert gap.kind is GapKind.UNREADABLE
    assert gap.is_damage
    assert gap.position <= PAGE < PAGE + 4096 <= gap.end_position
    assert f"bytes {PAGE} to {PAGE + 4096} cannot be read: Input/output error" in gap.reason


@needs_proc
def test_lost_bytes_are_an_error_with_their_place(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failing_page(monkeypatch, LOST)
    with pytest.raises(StorageError, match=rf"{LOST}.*{PAGE}.*Input/output error"):
        list(pylogseg.read("d", "b"))


@needs_proc
@pytest.mark.parametrize("crc", [True, False])
def test_no_record_is_made_of_bytes_that_were_not_read(logs: Path, monkeypatch: pytest.MonkeyPatch, crc: bool) -> None:
    failing_page(monkeypatch, LOST)
    for record in some(pylogseg.read("d", "b", on_corrupt="skip", check_crc=crc)):
        assert record.value == b"v" * 2000


COMMANDS = {
    "cat": "cat d -j {jobs}",
    "cat-csv": "cat d --csv --fields key -j {jobs}",
    "grep": "grep vv d -c -j {jobs}",
    "latest": "latest d -j {jobs}",
    "export": "export d --out out --to csv --columns offset -j {jobs}",
    "stats": "stats d --by partition --json -j {jobs}",
    "ls": "ls d --json -j {jobs}",
    "ls-l": "ls d -l --json -j {jobs}",
    "diff": "diff d d --json -j {jobs}",
    "verify": "verify d --json -j {jobs}",
    "since": "cat d --since 1700000000010 -j {jobs}",
    "tail": "cat d --offset -10: -j {jobs}",
    "committed": "cat d --isolation-level read_committed -j {jobs}",
    "merged": "cat d --merge time -j {jobs}",
    "export-one": "export d --out out/one.csv --columns offset -j {jobs}",
    "stats-since": "stats d --by partition --json --since 1700000000010 -j {jobs}",
    "stats-tops": "stats d --by partition --json --top-keys 9 --largest 9 -j {jobs}",
}


def found(name: str, done: Any) -> int:
    """How many records a command has seen of all partitions."""
    if name.startswith("stats") or name == "verify":
        return sum(row.get("records", 0) for row in done.rows if row.get("type") != "finding")
    if name == "grep":
        return sum(int(line.rpartition(":")[2]) for line in done.text.splitlines())
    if name.startswith("export"):
        return sum(len(path.read_text().splitlines()) - 1 for path in Path("out").rglob("*.csv"))
    if name == "diff":
        return done.rows[-1]["recordsA"]
    if name.startswith("ls"):
        return sum((row.get("logEndOffset") or row.get("nextOffset") or 0) for row in done.rows)
    return len(done.out.splitlines()) - (name == "cat-csv")


@needs_proc
@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("name", [name for name in COMMANDS if not name.startswith("ls")])
def test_a_lost_page_costs_its_records_alone(logs: Path, monkeypatch: pytest.MonkeyPatch, name: str, jobs: int) -> None:
    good = found(name, run(COMMANDS[name].format(jobs=jobs)))
    for path in Path("out").rglob("*.csv"):
        path.unlink()
    failing_page(monkeypatch, LOST)
    done = run(COMMANDS[name].format(jobs=jobs))
    assert good - 4 <= found(name, done) < good or name == "tail"
    if name != "tail":
        assert done.code == (1 if name == "verify" else 2)
        assert LOST in done.text + done.err
        assert "Input/output error" in done.text + done.err


def unreadable(path: Path, how: str) -> None:
    """Make a file one that cannot be opened."""
    path.unlink()
    if how == "folder":
        path.mkdir()
    elif how == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("nowhere")


@pytest.mark.parametrize(("base", "jobs"), [(0, 2), (100, 1)])
@pytest.mark.parametrize(("name", "how"), diagonals(COMMANDS, ["folder", "pipe", "link"]))
def test_a_file_that_cannot_be_opened_hides_no_other(logs: Path, name: str, jobs: int, base: int, how: str) -> None:
    good = found(name, run(COMMANDS[name].format(jobs=jobs)))
    for path in Path("out").rglob("*.csv"):
        path.unlink()
    path = logs / "d" / "b-0" / segment_name(base)
    unreadable(path, how)
    done = run(COMMANDS[name].format(jobs=jobs))
    if name == "tail" and base == 0:  # of which nothing was asked
        assert (done.code, done.err) == (0, "")
        return
    assert done.code == (1 if name == "verify" else 2), done
    assert str(path.relative_to(logs)) in done.text + done.err
    assert found(name, done) >= good * 2 // 3  # a third of all is in b-0
    exact = ("cat", "grep", "export", "export-one", "stats", "stats-tops", "latest", "committed", "merged")
    if name in exact:
        assert found(name, done) == good - (100 if base == 0 else 20)


@pytest.mark.skipif(not hasattr(os, "geteuid") or not shutil.which("setpriv"), reason="root needs setpriv")
@pytest.mark.parametrize("name", ["cat", "grep", "export", "stats", "ls", "diff"])
def test_a_file_without_rights_hides_no_other(logs: Path, name: str) -> None:
    (logs / "d" / "b-0" / segment_name(0)).chmod(0)
    words = forked.command(*COMMANDS[name].format(jobs=2).split(), before=without_rights())
    done = subprocess.run(words, env=environment(), capture_output=True, text=True, cwd=logs)
    assert done.returncode == 2, done.stderr
    assert "Permission denied" in done.stderr
    assert LOST in done.stderr
    assert len(done.stdout.splitlines()) >= 1


@pytest.mark.skipif(not hasattr(os, "geteuid") or not shutil.which("setpriv"), reason="root needs setpriv")
@pytest.mark.parametrize(
    "words",
    [
        "ls d a", "cat d a", "cat d -t a -p 0", "cat d z-0", "grep -e v d a", "stats d a", "verify d a", "latest d a",
        "export d a --out out", "lake d a delta:out --to-end", "diff d d/one a", "diff d/one d", "diff d d/one",
    ],
)  # fmt: skip
def test_names_do_not_hide_a_log_directory_that_cannot_be_listed(logs: Path, words: str) -> None:
    """Anything may be in it, also more of the topic."""
    for name in ("one", "two"):
        (logs / "d" / name).mkdir()
    for topic in "abc":
        (logs / "d" / f"{topic}-0").rename(logs / "d" / "one" / f"{topic}-0")
    (logs / "d" / "two").chmod(0)
    words_of_fork = forked.command(*words.split(), before=without_rights())
    done = subprocess.run(words_of_fork, env=environment(), capture_output=True, text=True, cwd=logs)
    assert done.returncode == 2, done
    assert re.search("d/two(: cannot list|.*\n.*cannot list|: bytes 0 to 0)", done.stderr + done.stdout), done
    kept = subprocess.run(
        forked.command("cat", "d", "a-0", before=without_rights()), env=environment(), capture_output=True, cwd=logs
    )
    assert (kept.returncode, kept.stderr) == (0, b""), "the partition that was asked for is whole"


def test_skip_goes_on_behind_a_file_that_cannot_be_opened(logs: Path) -> None:
    unreadable(logs / "d" / "b-0" / segment_name(0), "folder")
    done = run("cat d b --on-corrupt skip")
    assert [row["offset"] for row in done.rows] == list(range(100, 120))
    assert done.code == 1
    reader = pylogseg.read("d", "b", on_corrupt="skip")
    assert [record.offset for record in reader] == list(range(100, 120))
    assert [(gap.kind, gap.first_offset, gap.next_offset) for gap in reader.gaps] == [(GapKind.UNREADABLE, 0, 100)]
    with pytest.raises(StorageError, match=segment_name(0)):
        list(pylogseg.read("d", "b"))


CUT = """
import os, pylogseg
from pylogseg import encode
from pylogseg._native import _lookup
folder = {folder!r}
path = folder + "/{name}"
size = os.path.getsize(path)
batches = {how}
next(batches)
os.truncate(path, 4096)
try:
    for _ in batches:
        pass
    print("ended")
except pylogseg.errors.StorageError as error:
    print(error)
"""


@pytest.mark.parametrize(
    "how",
    [
        "pylogseg.read(folder, on_corrupt='raise').chunks()",
        "pylogseg.read(folder, reuse_buffers=True).chunks()",
        "iter(pylogseg.read_arrow(folder))",
        "iter(pylogseg.read_arrow(folder, views=True))",
        "iter(pylogseg.read(folder))",
    ],
)
def test_a_segment_that_is_cut_while_it_is_read_is_an_error(logs: Path, how: str) -> None:
    """A follower truncates below its active segment."""
    folder = logs / "d" / "a-0"
    path = folder / segment_name(0)
    path.write_bytes(b"".join(encode([(i, b"k", b"v" * 20_000)], base_offset=i) for i in range(1000)))
    (folder / segment_name(100)).rename(folder / segment_name(1000))
    script = CUT.format(folder=str(folder), name=segment_name(0), how=how)
    done = subprocess.run(forked.python(script), env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, (done.returncode, done.stderr)
    assert segment_name(0) in done.stdout
    assert "was cut to" in done.stdout


def test_what_was_read_stays_when_the_file_is_cut(logs: Path) -> None:
    """Views too point at memory of this process, not at pages that another program can take away."""
    script = f"""
import os, pylogseg
kept = list(pylogseg.read_arrow("d", "a", views=True))
os.truncate("d/a-0/{segment_name(0)}", 0)
assert sum(len(value.as_py()) for batch in kept for value in batch["value"]) == 240_000
"""
    done = subprocess.run(forked.python(script), env=environment(), capture_output=True, text=True, cwd=logs)
    assert done.returncode == 0, (done.returncode, done.stderr)


OFFLINE = [
    "recover --full --no-keep d",
    "recover --full --dry-run d",
    "repair --no-keep d",
    "repair --no-keep --keep-behind d",
    "repair --no-keep --dry-run d",
    "reindex d",
    "compact --force d",
    "redact --key k3 --everywhere d",
    "recode -z zstd d",
]


@needs_proc
@pytest.mark.parametrize("text", OFFLINE)
def test_nothing_is_cut_off_because_the_disk_cannot_read_it(
    logs: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    before = [path.read_bytes() for path in sorted((logs / "d" / "b-0").glob("*.log"))]
    with monkeypatch.context() as failing:
        failing_page(failing, LOST)
        done = run(text)
    assert done.code == 2
    assert "b-0" in done.text + done.err
    assert "Input/output error" in done.text + done.err
    assert [path.read_bytes() for path in sorted((logs / "d" / "b-0").glob("*.log"))] == before
    assert [record.offset for record in pylogseg.read("d", "b")] == list(range(120))


@pytest.mark.parametrize("how", ["pipe", "link"])
def test_a_copy_leaves_out_what_cannot_be_read_and_says_so(logs: Path, how: str) -> None:
    unreadable(logs / "d" / "b-0" / segment_name(0), how)
    done = expect(run("copy d k --json"), 2)
    assert [(row["partition"], row["state"]) for row in done.rows[:-1]] == [
        ("a-0", "copied"), ("b-0", "failed"), ("c-0", "copied"),
    ]  # fmt: skip
    assert done.rows[-1]["failed"] == 1
    assert "b-0 is not in the copy" in done.err
    assert sorted(os.listdir("k")) == ["a-0", "c-0"]
    assert len(run("cat k").rows) == 240


def test_a_copy_of_what_cannot_be_read_alone_leaves_nothing(logs: Path) -> None:
    unreadable(logs / "d" / "b-0" / segment_name(0), "pipe")
    assert run("copy d k b").code == 2
    assert sorted(os.listdir()) == ["d"]


@pytest.mark.parametrize("into", [False, True])
@pytest.mark.parametrize("name", ["partition.metadata", "leader-epoch-checkpoint", f"{120:020}.snapshot", "SWAP"])
def test_a_small_file_of_a_partition_that_is_none_is_told(logs: Path, name: str, into: bool) -> None:
    """Not left out in silence. A copy has the other partitions; what is made anew appears whole or not at all."""
    if name == "SWAP":
        name = f"{0:020}.log.swap"
        os.mkfifo(logs / "d" / "b-0" / name)
    else:
        (logs / "d" / "b-0" / name).mkdir()
    expect(run("compact --force d --into k" if into else "copy d k"), 2, f"b-0/{name}: cannot", "it is not a file")
    assert os.path.isdir("k") != into
    assert into or sorted(os.listdir("k")) == ["a-0", "c-0"]


@pytest.mark.parametrize(
    "name",
    [
        "recovery-point-offset-checkpoint",
        "log-start-offset-checkpoint",
        "meta.properties",
        "bootstrap.checkpoint",
        ".kafka_cleanshutdown",
    ],
)
def test_a_small_file_that_cannot_be_read_keeps_no_partition_out_of_a_copy(logs: Path, name: str) -> None:
    (logs / "d" / ".kafka_cleanshutdown").write_text("")
    (logs / "d" / "replication-offset-checkpoint").write_text("0\n1\na 0 7\n")
    (logs / "d" / name).unlink(missing_ok=True)
    (logs / "d" / name).mkdir()
    done = expect(run("copy d k --json"), 2)
    assert done.rows[-1]["copied"] == 3
    (unread,) = done.rows[-1]["unread"]
    assert f"{name}: cannot" in unread
    assert f"{unread}; it is not in the copy" in done.err
    assert sorted(os.listdir("k")) == ["a-0", "b-0", "c-0", "replication-offset-checkpoint"]  # no broker trusts it
    assert len(run("cat k").rows) == 360


@needs_proc
@pytest.mark.parametrize("more", ["", "--json", "--records", "--json --records"])
def test_dump_writes_the_batches_around_lost_bytes(logs: Path, monkeypatch: pytest.MonkeyPatch, more: str) -> None:
    names = f"d/b-0/{segment_name(0)} d/b-0/{segment_name(100)}"
    good = run(f"dump {names} {more}")
    failing_page(monkeypatch, LOST)
    done = run(f"dump {names} {more}")
    assert (good.code, done.code) == (0, 2)
    assert 0 <= len(good.text.splitlines()) - len(done.text.splitlines()) <= 8
    assert f"bytes {PAGE} to {PAGE + 4096} cannot be read: Input/output error" in done.text
    assert LOST in done.err
    assert "Input/output error" in done.err


@pytest.mark.parametrize("how", ["folder", "pipe", "link"])
@pytest.mark.parametrize("kind", ["log", "index", "snapshot"])
def test_dump_goes_on_behind_a_file_that_cannot_be_opened(logs: Path, how: str, kind: str) -> None:
    bad = logs / "d" / "b-0" / f"{0:020d}.{kind}"
    bad.touch()
    unreadable(bad, how)
    if how == "folder":  # then it is one that is dumped, and has nothing of Kafka's
        (bad / segment_name(0)).symlink_to("nowhere")
    done = expect(run(f"dump {bad} d/b-0/{segment_name(100)} --json"), 2)
    assert sum(row["type"] == "batch" for row in done.rows) == 20
    assert f"{bad.name}" in done.err
    assert (
        "cannot" in done.err
        or f"{segment_name(0) if how == 'folder' else bad.name}: no such file or folder" in done.err
    )


def test_a_failed_task_is_a_line_and_no_traceback(caplog: pytest.LogCaptureFixture) -> None:
    done = threading.Event()

    def fail() -> None:
        raise StorageError("/x/0.log", "sync", "No space left on device")

    scheduler = ThreadScheduler()
    scheduler.schedule("flush", fail)
    scheduler.schedule("after", done.set, 1)
    assert done.wait(60)
    scheduler.shutdown()
    (record,) = caplog.records
    assert "No space left on device" in record.getMessage()
    assert record.exc_info is None


LOOKS = {"fetch": lambda log: log.engine.fetch(BAD // 2100, 10_000), "read": lambda log: list(log.read(offset=0))}


@needs_proc
@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_a_log_that_is_open_says_what_its_disk_has_lost(
    logs: Path, monkeypatch: pytest.MonkeyPatch, look: Callable[[Any], object]
) -> None:
    """Of what was there when it was opened; like a broker's log it is offline then."""
    log = pylogseg.open_log("d/b-0", retention_ms=-1)
    log.append([(None, b"k", b"new")])
    failing_page(monkeypatch, LOST)
    assert [record.value for record in log.read(offset=120)] == [b"new"]
    assert len(log.engine.fetch(0, 10_000).data) == 10_000
    with pytest.raises(StorageError, match=rf"{LOST}.*Input/output error"):
        look(log)
    with pytest.raises(StorageError, match=rf"offline since .*{LOST}"):
        log.close()


@needs_proc
def test_an_index_that_the_disk_has_lost_is_an_error_before_it_is_mapped(
    logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"b-0/{0:020d}.index"
    pylogseg.open_log("d/b-0", retention_ms=-1, index_interval_bytes=1).close()
    log = pylogseg.open_log("d/b-0", retention_ms=-1)
    assert (Path("d") / name).stat().st_size > 8
    monkeypatch.setattr(sys.modules[__name__], "PAGE", 0)
    failing_page(monkeypatch, name)
    with pytest.raises(StorageError, match=rf"{name}.*Input/output error"):
        log.engine.fetch(50, 100)
    with pytest.raises(StorageError, match="offline since"):
        log.close()


CUT_BENEATH = """
import os, pylogseg
log = pylogseg.open_log("d/a-0", retention_ms=-1)
assert log.engine.fetch(99, 100).data
os.truncate("d/a-0/{name}", 4096)
try:
    print({look})
except pylogseg.PylogsegError as error:
    print(error)
"""


@pytest.mark.parametrize("look", ["log.engine.fetch(99, 100).data", "sum(1 for _ in log.read(offset=0))"])
def test_a_segment_that_is_cut_beneath_an_open_log_is_an_error(logs: Path, look: str) -> None:
    script = CUT_BENEATH.format(name=segment_name(0), look=look)
    done = subprocess.run(forked.python(script), env=environment(), capture_output=True, text=True, cwd=logs)
    assert done.returncode == 0, (done.returncode, done.stderr)
    assert f"{segment_name(0)}: cannot read: it was cut to 4096 bytes by another program" in done.stdout


@pytest.mark.parametrize("how", ["folder", "pipe", "link"])
@pytest.mark.parametrize("base", [0, 100])
@pytest.mark.parametrize("is_alone", [False, True])
def test_no_table_passes_over_a_file_that_cannot_be_opened(logs: Path, base: int, how: str, is_alone: bool) -> None:
    """Such a file is listed with no byte, as an empty segment is; amid a log, at its end, or as all of it."""
    pytest.importorskip("duckdb"), pytest.importorskip("polars")
    folder = logs / "d" / "b-0"
    unreadable(folder / segment_name(base), how)
    if is_alone:
        (folder / segment_name(100 - base)).unlink()
    scans = (
        lambda: list(pylogseg.read_arrow("d", topic="b")),
        lambda: pylogseg.dataset("d", topic="b").to_table(),
        lambda: pylogseg.dataset("d", topic="b").count_rows(),
        lambda: pylogseg.dataset("d", topic="b").to_table(columns=["offset"]),
        lambda: pylogseg.scan_polars("d", topic="b").collect(),
    )
    for scan in scans:
        with pytest.raises(Exception, match=segment_name(base)):
            scan()
    for query in ("select count(*) from b", "select max(offset) from b", "select value from b"):
        done = shell.pylogseg("sql", "d", "b", query)
        assert done.code == 2, (query, done)
        assert segment_name(base) in done.err


def test_an_empty_segment_is_no_damage(logs: Path) -> None:
    """A broker rolls, or begins, with an empty file."""
    (logs / "d" / "b-0" / segment_name(120)).touch()
    assert pylogseg.dataset("d", topic="b").count_rows() == 120
    assert run("cat d b").code == 0


@pytest.mark.parametrize(
    "reads",
    [
        "from pylogseg.lakehouse.stores import FolderFiles; list(FolderFiles().walk(path))",
        "from pylogseg.lakehouse.foreign import open_parquet; open_parquet(path)",
        "from pylogseg.offline.restoring.tables import Tables; Tables(path)",
        "from pylogseg.values.schemas.store import Schemas; Schemas.open(path + '/b')",
        "from pylogseg.archive import write; write(path + '/b', path + '/../archive')",
    ],
)
def test_a_folder_that_cannot_be_listed_is_not_empty(tmp_path: Path, reads: str) -> None:
    """A table or an export would be taken for a whole one without it; files in it would count as nobody's."""
    pa, pq = (pytest.importorskip(name) for name in ("pyarrow", "pyarrow.parquet"))
    for name in "ab":
        folder = tmp_path / "table" / name
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"offset": [1], "value": [b"x"]}), folder / "1.parquet")
    (tmp_path / "table" / "b").chmod(0)
    text = f"import sys; path = sys.argv[1]\n{reads}"
    words = [*without_rights(), sys.executable, "-c", text, str(tmp_path / "table")]
    done = subprocess.run(words, capture_output=True, text=True, env=environment())
    (tmp_path / "table" / "b").chmod(0o755)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert "StorageError" in last
    assert f"{tmp_path / 'table' / 'b'}: cannot list: Permission denied" in last
