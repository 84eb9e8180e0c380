"""Tests of disk/small_files.py. Each small file of a disk, harmed in each way, under each command: what is not known is
never taken for nothing.

There is no traceback. A command that reads the file names it and does not end with 0; a command that ends with 0 and
does not name the file says the same as over the whole disk.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.depth import IS_DEEP
from helpers.shell import Done, pylogseg

HIGH, RECOVERY = "replication-offset-checkpoint", "recovery-point-offset-checkpoint"
STARTS, CLEANED = "log-start-offset-checkpoint", "cleaner-offset-checkpoint"
META, SNAPSHOT, QUORUM = "meta.properties", "__cluster_metadata-0/*.checkpoint", "__cluster_metadata-0/quorum-state"
EPOCHS, TOPIC_ID = "txn-a-0/leader-epoch-checkpoint", "txn-a-0/partition.metadata"
FILES = (HIGH, RECOVERY, STARTS, CLEANED, META, EPOCHS, TOPIC_ID, QUORUM, SNAPSHOT)
CHECKPOINTS = {HIGH, RECOVERY, STARTS, CLEANED}


def _without_last(data: bytes) -> bytes:
    """Leave out the last entry, that of txn-a-0, of an offset checkpoint."""
    version, count, *entries = data.splitlines()
    return b"".join(line + b"\n" for line in (version, b"%d" % (int(count) - 1), *entries[:-1]))


def _moved(by: int) -> Callable[[bytes], bytes]:
    """Move all offsets of a checkpoint, as an older or a newer one has them."""
    return lambda data: re.sub(rb"(?<= )\d+(?=\n)", lambda found: b"%d" % max(int(found[0]) + by, 0), data)


DAMAGE: dict[str, Callable[[bytes], bytes | None]] = {
    "zeros": lambda data: bytes(len(data)),
    "cut": lambda data: data[: len(data) * 3 // 5],
    "garbage": lambda data: b"\xfe garbage" * 6,
}
HARMS: dict[str, Callable[[bytes], bytes | None]] = {
    **DAMAGE,
    "absent": lambda data: None,
    "empty": lambda data: b"",
    "older": _moved(-3),
    "newer": _moved(3),
    "of one partition less": _without_last,
}
_OFFLINE = {*CHECKPOINTS, META, EPOCHS, TOPIC_ID, SNAPSHOT}
#: Which files a command reads. Of `DIR` the place of the disk, of `OUT` a new one.
COMMANDS: dict[str, set[str]] = {
    "ls DIR": {STARTS},
    "cat DIR txn-a-0": {STARTS},
    "stats DIR --by topic --json": {STARTS, CLEANED},
    "sql DIR select+count(*)+from+'txn-a'": {STARTS},
    "grep value DIR txn-a": {STARTS},
    "diff DIR WHOLE": {STARTS},
    "export DIR txn-a --out OUT": {STARTS, HIGH, RECOVERY, TOPIC_ID},
    "report DIR --json --now 1800000000000": {*FILES},
    "verify DIR": {*FILES},
    "groups DIR --offsets": {STARTS, SNAPSHOT},
    "transactions DIR": {STARTS},
    "cluster DIR topics": {SNAPSHOT},
    "cluster DIR configs": {SNAPSHOT},
    "lake DIR txn-a delta:OUT": {STARTS, HIGH, RECOVERY, META, TOPIC_ID},
    "copy DIR OUT": {*CHECKPOINTS, META, EPOCHS, TOPIC_ID, SNAPSHOT},
    "merge DIR --into OUT": {*CHECKPOINTS, EPOCHS, TOPIC_ID, SNAPSHOT},
    "move DIR OTHER txn-a-0": {*CHECKPOINTS, META, EPOCHS, TOPIC_ID, SNAPSHOT},
    "restore WHOLE DIR txn-a-0 --overwrite": {*CHECKPOINTS},
    "restore DIR OTHER txn-a-0": {*CHECKPOINTS, META, EPOCHS, TOPIC_ID},
    "recover DIR": _OFFLINE,
    "recover DIR --full": _OFFLINE,
    "reindex DIR": _OFFLINE,
    "repair DIR": _OFFLINE,
    "retain DIR --bytes 1": _OFFLINE,
    "delete-records DIR txn-a-0 --offset 60 --force": _OFFLINE,
    "compact DIR --include-active": {*CHECKPOINTS, META, SNAPSHOT},
    "recode DIR txn-a-0 --compression zstd": _OFFLINE,
    "redact DIR txn-a-0 --match value": _OFFLINE,
    "truncate DIR txn-a-0 --to 100": _OFFLINE,
}
#: Where a broker has such a file in good order, or another file says the same.
_IN_ORDER = {
    (CLEANED, "empty"),  # so it is made, and it stays so where nothing is cleaned
    (CLEANED, "absent"),  # the cleaner begins again
    (RECOVERY, "empty"),  # in the first minute: logs are recovered whole
    (STARTS, "absent"),  # noted only where records were deleted, and not everybody makes the file
    (QUORUM, "absent"),
    (SNAPSHOT, "absent"),  # the log has all
}
#: Commands that go on, with a note and exit code 0 in these cases, and why.
_MENDED = {
    ("move DIR OTHER txn-a-0", META): "the two directories need not have an owner",
}


@pytest.fixture(scope="module")
def disk(golden: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log directory with two snapshots of metadata, a log start, a cleaned log, and a log of four segments."""
    home = tmp_path_factory.mktemp("whole") / "data0"
    broker = golden / "broker-4.3" / "txn"
    shutil.copytree(broker / "data0", home)
    shutil.copytree(broker / "data1" / "txn-a-0", home / "txn-a-0")
    for name in (HIGH, RECOVERY):
        entries = [*(home / name).read_bytes().splitlines()[2:], b"txn-a 0 148"]
        (home / name).write_bytes(b"".join(line + b"\n" for line in (b"0", b"%d" % len(entries), *entries)))
    assert pylogseg("delete-records", home, "txn-a-0", "--offset", 50, "--force").code == 0
    compacted = ("-c", "cleanup.policy=compact", "-t", "groups-in", "-t", "__consumer_offsets")
    assert pylogseg("compact", home, "--include-active", *compacted).code == 0
    assert pylogseg("recover", home, "--full").code == 0
    for name in (HIGH, RECOVERY):  # the entry that is left out is that of txn-a-0
        lines = sorted((home / name).read_bytes().splitlines()[2:], key=lambda line: line.startswith(b"txn-a 0 "))
        (home / name).write_bytes(b"".join(line + b"\n" for line in (b"0", b"%d" % len(lines), *lines)))
    assert (home / STARTS).read_bytes() == b"0\n1\ntxn-a 0 50\n"
    assert (home / CLEANED).read_bytes().count(b"\n") > 3
    assert pylogseg("verify", home).code == 0
    return home


def run(command: str, home: Path, whole: Path) -> Done:
    """Run a command over a disk; without places and times in its output."""
    out, other = home.parent / "out", home.parent / "other"
    other.mkdir()
    shutil.copy(whole / META, other)
    places = {"DIR": home, "WHOLE": whole, "OUT": out, "delta:OUT": f"delta:{out}", "OTHER": other}
    done = pylogseg(*(places.get(word, word.replace("+", " ").replace("'", '"')) for word in command.split()))
    assert "Traceback" not in done.err
    assert done.code in (0, 1, 2)

    def without(text: str) -> str:
        return re.sub(r"[\d.]+ k?B|\d{4}-\d\d-\d\dT[\d:.]+Z", "", text.replace(str(home.parent), "HOME"))

    return Done(done.code, without(done.text).encode(), without(done.err))


@pytest.fixture(scope="module")
def usual(disk: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Done]:
    """What a command says over the whole disk."""
    said: dict[str, Done] = {}

    def of(command: str) -> Done:
        if command not in said:
            home = shutil.copytree(disk, tmp_path_factory.mktemp("usual") / "data0")
            said[command] = run(command, home, disk)
            shutil.rmtree(home.parent)
        return said[command]

    return of


def harmed(home: Path, file: str, harm: str) -> Path:
    path = sorted(home.glob(file))[-1]
    data = HARMS[harm](path.read_bytes())
    if data is None:
        path.unlink()
    else:
        path.write_bytes(data)
    return path


def cases() -> list[tuple[str, str, str]]:
    every = [
        (command, file, harm)
        for command in COMMANDS
        for file in FILES
        for harm in HARMS
        if file in CHECKPOINTS or harm in DAMAGE or harm in ("absent", "empty")
    ]
    return every if IS_DEEP else every[::11]


@pytest.mark.parametrize(("command", "file", "harm"), cases())
def test_not_known_is_not_nothing(
    command: str, file: str, harm: str, disk: Path, usual: Callable[[str], Done], tmp_path: Path
) -> None:
    before, home = usual(command), tmp_path / "data0"
    shutil.copytree(disk, home)
    path = harmed(home, file, harm)
    done = run(command, home, disk)
    is_named = path.name in done.text + done.err
    is_needed = file in COMMANDS[command] and (harm in DAMAGE or harm in ("absent", "empty"))
    if is_needed and (file, harm) not in _IN_ORDER and (command, file) not in _MENDED:
        assert is_named, (done.text + done.err)[-600:]
        assert done.code != 0, (done.text + done.err)[-600:]
    elif not is_needed and not command.startswith("report") and (harm in DAMAGE or harm in ("absent", "empty")):
        assert (done.code, done.out) == (before.code, before.out) or is_named or done.code != 0
