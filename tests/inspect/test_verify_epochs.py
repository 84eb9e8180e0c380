"""Tests of inspect/verify/epochs.py and inspect/verify/partition.py. `pylogseg verify` proves a
`leader-epoch-checkpoint` from the batches beside it.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from helpers.shell import pylogseg
from reference import build
from reference.batch import Record

from pylogseg.config import LogConfig
from pylogseg.env.environment import Environment
from pylogseg.env.storage import LocalStorage
from pylogseg.log.log import Log
from pylogseg.log.state import Start
from pylogseg.testing.clock import ManualClock, ManualScheduler

NOW_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of six batches with one record each: three of leader epoch 0, three of 2."""
    folder, clock = tmp_path_factory.mktemp("epochs") / "t-0", ManualClock(NOW_MS)
    env = Environment(LocalStorage(), clock, ManualScheduler(clock))
    log = Log.open(env, str(folder), LogConfig(), Start(True, 0, 0))
    for epoch in (0, 0, 0, 2, 2, 2):
        log.append_as_leader(bytes(build.batch_v2([Record(0, NOW_MS, b"k", b"v", [])])), epoch)
    log.close()
    return folder


@pytest.fixture
def folder(healthy: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(healthy, tmp_path / "t-0"))


def write(folder: Path, text: str | None) -> None:
    """Write the leader epochs; None removes the file."""
    path = folder / "leader-epoch-checkpoint"
    path.unlink()
    if text is not None:
        path.write_text(text)


def found(path: Path) -> tuple[int, list[tuple[str, str, str]]]:
    """Exit code, and kind, level and urgency of each finding; that there is no meta.properties is none here."""
    done = pylogseg("verify", "--json", path)
    rows = [row for row in done.rows if row.get("type") == "finding" and row["kind"] != "meta-properties"]
    return done.code, [(row["kind"], row["level"], row["urgency"]) for row in rows]


HARMS = {
    "0 bytes": "",
    "no entries": "0\n0\n",
    "absent": None,
    "the first epoch is gone": "0\n1\n2 3\n",
    "the last epoch is gone": "0\n1\n0 0\n",
    "an epoch begins before its first batch": "0\n2\n0 0\n2 1\n",
    "an epoch begins behind its first batch": "0\n2\n0 0\n2 4\n",
    "an epoch begins among the batches of another": "0\n3\n0 0\n1 2\n2 3\n",
    "an older file": "0\n1\n0 0\n",
    "a file of another log": "0\n2\n5 0\n7 2\n",
}


@pytest.mark.parametrize("harm", HARMS)
def test_a_wrong_file_is_damage(folder: Path, harm: str) -> None:
    """A broker takes the file as it is, and followers truncate by it."""
    assert found(folder) == (0, [])
    write(folder, HARMS[harm])
    code, rows = found(folder)
    assert code == 1
    assert set(rows) == {("leader-epoch", "damage", "mend")}


@pytest.mark.parametrize("text", ["\0" * 8, "0\n5\n0 0\n2 3\n", "1\n2\n0 0\n2 3\n", "0\n2\n0 0\n2 x\n", "{"])
def test_a_file_that_no_broker_can_read_keeps_its_log_directory_offline(folder: Path, text: str) -> None:
    write(folder, text)
    assert found(folder) == (1, [("leader-epoch-file", "damage", "start")])


@pytest.mark.parametrize("text", [*HARMS.values(), "\0" * 8, "0\n9\n"])
def test_the_remedy_makes_the_file_anew(folder: Path, text: str | None) -> None:
    before = (folder / "leader-epoch-checkpoint").read_bytes()
    write(folder, text)
    assert pylogseg("reindex", folder, "--only", "epochs").code == 0
    assert (folder / "leader-epoch-checkpoint").read_bytes() == before
    assert found(folder) == (0, [])


def marked(folder: Path, *, starts: str = "0\n0\n") -> Path:
    """A log directory that was closed in order, with this log."""
    log_dir = folder.parent
    (log_dir / "log-start-offset-checkpoint").write_text(starts)
    for kind in ("recovery-point", "replication"):
        (log_dir / f"{kind}-offset-checkpoint").write_text("0\n1\nt 0 6\n")
    (log_dir / ".kafka_cleanshutdown").touch()
    return log_dir


def test_a_file_has_more_than_the_batches_where_leaders_wrote_nothing(folder: Path) -> None:
    write(folder, "0\n4\n0 0\n2 3\n4 6\n5 6\n")
    assert found(folder) == (0, [])
    write(folder, "0\n3\n0 0\n2 3\n4 6\n")
    assert found(marked(folder)) == (0, [])


def test_deleted_records_take_their_epochs_along(folder: Path) -> None:
    """The file begins at the log start offset, although older batches lie below it in the same segment."""
    write(folder, "0\n1\n2 3\n")
    log_dir = marked(folder, starts="0\n1\nt 0 3\n")
    assert found(log_dir) == (0, [])
    write(folder, "0\n2\n0 2\n2 3\n")
    marked(folder, starts="0\n1\nt 0 2\n")
    assert found(log_dir) == (0, [])
    write(folder, "")
    marked(folder, starts="0\n1\nt 0 6\n")  # all of them
    assert found(log_dir) == (0, [])


def test_a_crash_may_have_lost_the_log_start_offset(folder: Path) -> None:
    """A broker writes it every minute: then it is not known what is lost, and no damage."""
    write(folder, "0\n1\n2 3\n")
    log_dir = marked(folder)
    assert found(log_dir) == (1, [("leader-epoch", "damage", "mend")])
    (log_dir / ".kafka_cleanshutdown").unlink()
    assert found(log_dir) == (0, [("leader-epoch", "notice", "mend")])


def test_a_cleaner_removes_batches_and_not_their_epochs(folder: Path) -> None:
    """Without the batches of 1 and 2, epoch 1 may have begun at 1, and is not where a batch of epoch 0 lies."""
    path = folder / f"{0:020}.log"
    data, size = path.read_bytes(), path.stat().st_size // 6
    path.write_bytes(data[:size] + data[3 * size :])
    for kind in ("index", "timeindex"):
        (folder / f"{0:020}.{kind}").unlink()
    (folder.parent / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 6\n")
    for text, kinds in (
        ("0\n3\n0 0\n1 1\n2 3\n", set()),
        ("0\n2\n0 0\n2 2\n", set()),
        ("0\n2\n0 0\n2 4\n", {"leader-epoch"}),
    ):
        write(folder, text)
        assert {kind for kind, level, _ in found(folder)[1] if level == "damage"} == kinds


def legacy(offset: int) -> bytes:
    return build.legacy([Record(offset, NOW_MS, b"k", b"v", [])], 1)


def test_batches_of_old_formats_have_no_epoch(folder: Path) -> None:
    """A topic that went back to an old format has no file, or one that begins behind it."""
    path = folder / f"{0:020}.log"
    data, size = path.read_bytes(), path.stat().st_size // 6
    for kind in ("index", "timeindex"):
        (folder / f"{0:020}.{kind}").unlink()
    path.write_bytes(data[: 3 * size] + legacy(3) + data[4 * size :])
    write(folder, "0\n1\n2 4\n")
    assert not [row for row in found(folder)[1] if row[1] == "damage"]
    path.write_bytes(data[: 5 * size] + legacy(5))
    for text in ("", None):
        if text is None:
            (folder / "leader-epoch-checkpoint").unlink()
        else:
            write(folder, text)
        assert not [row for row in found(folder)[1] if row[1] == "damage"]


def test_segments_alone_need_no_file(folder: Path) -> None:
    for path in folder.iterdir():
        if path.suffix != ".log":
            path.unlink()
    assert pylogseg("verify", folder).code == 0


def test_a_copy_without_indexes_is_one_in_part(folder: Path) -> None:
    """A broker gives each segment its indexes: where they lack too, somebody left files out."""
    for path in folder.iterdir():
        if path.suffix not in (".log", ".snapshot"):
            path.unlink()
    (folder / f"{6:020}.snapshot").write_bytes(bytes.fromhex("0001 48674bc7 00000000"))  # of no producer
    code, rows = found(folder)
    assert code == 0
    assert ("leader-epoch", "notice", "mend") in rows
