"""Tests of cli/losses.py and inspect/verify/lacking.py. What is known to be missing does not leave with exit code 0:
every command beside every sign of a loss.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.depth import diagonals, some_of
from helpers.shell import Done, expect, pylogseg

from pylogseg.disk.listing import open_dir
from pylogseg.format.files.checkpoint import parse_offset_checkpoint
from pylogseg.inspect.verify.lacking import lacking
from pylogseg.log.recovery_report import ActionKind
from pylogseg.owned.opening import open_log

#: Segments of txn-a-0 in the examples, and the end of its log.
BASES, END = (0, 43, 81, 119), 148
PART = "txn-a-0"


def _segment(base: int, *ends: str) -> Callable[[Path], None]:
    def remove(disk: Path) -> None:
        for path in sorted((disk / PART).glob(f"{base:020}.*")):
            if not ends or path.suffix in ends:
                path.unlink()

    return remove


def _emptied(disk: Path) -> None:
    """The last segment, and nothing but its own indexes tells that it had records."""
    _no_checkpoints()(disk)
    (disk / PART / f"{BASES[-1]:020}.log").write_bytes(b"")
    for path in (disk / PART).glob("*.snapshot"):
        path.unlink()


def _checkpoint(name: str, offset: int) -> Callable[[Path], None]:
    def write(disk: Path) -> None:
        path = disk / f"{name}-offset-checkpoint"
        known = dict(parse_offset_checkpoint(path.read_bytes(), str(path))) if path.exists() else {}
        known["txn-a", 0] = offset
        lines = [f"{topic} {number} {value}\n" for (topic, number), value in known.items()]
        path.write_text(f"0\n{len(lines)}\n" + "".join(lines))

    return write


def _epochs(disk: Path) -> None:
    (disk / PART / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n3 170\n")


def _snapshot(disk: Path) -> None:
    shutil.copy(disk / PART / f"{END:020}.snapshot", disk / PART / f"{170:020}.snapshot")


def _folder(disk: Path) -> None:
    shutil.rmtree(disk / PART)


def _no_checkpoints(*base: int) -> Callable[[Path], None]:
    """Only the folder itself tells."""

    def remove(disk: Path) -> None:
        for path in disk.glob("*-offset-checkpoint"):
            path.unlink()
        for each in base:
            _segment(each, ".log")(disk)

    return remove


#: What is done to the disk, and the first and last offset that are named then.
SIGNS: dict[str, tuple[Callable[[Path], None], int, int]] = {
    "first": (_segment(0), 0, 42),
    "middle": (_segment(43), 43, 80),
    "last": (_segment(119), 119, END - 1),
    "orphan-first": (_segment(0, ".log"), 0, 42),
    "orphan-middle": (_segment(81, ".log"), 81, 118),
    "orphan-last": (_segment(119, ".log"), 119, END - 1),
    "orphan-alone": (_no_checkpoints(119), 119, END - 1),
    "emptied-last": (_emptied, 119, END - 1),
    "recovery-point": (_checkpoint("recovery-point", 200), END, 199),
    "high-watermark": (_checkpoint("replication", 200), END, 199),
    "log-start": (_checkpoint("log-start", 200), 0, END - 1),
    "cleaner": (_checkpoint("cleaner", 200), END, 199),
    "epoch": (_epochs, END, 169),
    "snapshot": (_snapshot, END, 169),
}


@pytest.fixture(scope="module")
def backup(examples: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two partitions of a disk that was closed in order."""
    made = tmp_path_factory.mktemp("backup") / "disk"
    assert pylogseg("copy", examples, made, "txn-a").code == 0
    return made


#: The arguments of a command for a disk and a folder; and what it does with a loss: `name` it, `refuse`.
COMMANDS: dict[str, tuple[Callable[[Path, Path], list[object]], str]] = {
    "copy": (lambda disk, out: ["copy", disk, out / "new"], "name"),
    "copy -n": (lambda disk, out: ["copy", disk, out / "new", "-n"], "name"),
    "copy name": (lambda disk, out: ["copy", disk / PART, out / "new"], "name"),
    "restore": (lambda disk, out: ["restore", disk, out], "refuse"),
    "restore -n": (lambda disk, out: ["restore", disk, out, "-n"], "refuse"),
    "restore name": (lambda disk, out: ["restore", disk, out, PART], "refuse"),
    "restore --force": (lambda disk, out: ["restore", disk, out, "--force"], "name"),
    "export": (lambda disk, out: ["export", disk, "--out", out / "lake"], "name"),
    "move": (lambda disk, out: ["move", disk, out, PART], "refuse"),
    "move -n": (lambda disk, out: ["move", disk, out, PART, "-n"], "refuse"),
    "move --force": (lambda disk, out: ["move", disk, out, PART, "--force"], "name"),
}

#: Commands that change the log where it lies, or a copy of it: they name the loss, since its signs may go with it.
CHANGES: dict[str, list[object]] = {
    "compact": [PART, "--force", "--config", "cleanup.policy=compact"],
    "delete-records": [PART, "--force", "--offset", "100"],
    "recode": [PART, "--compression", "gzip"],
    "redact": [PART, "--key", "nobody"],
    "reindex": [PART],
    "repair": [PART],
    "retain": [PART, "--force", "--before-offset", 100],
    "truncate": [PART, "--to", 110],
}


def ran(command: str, disk: Path, out: Path) -> Done:
    out.mkdir()
    return pylogseg(*COMMANDS[command][0](disk, out))


def checkpoints_of(folder: Path) -> dict[str, int]:
    """What the checkpoints of a log directory say of the partition."""
    found = {}
    for path in folder.glob("*-offset-checkpoint"):
        entry = parse_offset_checkpoint(path.read_bytes(), str(path)).get(("txn-a", 0))
        if entry is not None:
            found[path.name] = entry
    return found


@pytest.mark.parametrize("sign", some_of(SIGNS, 7))
def test_a_loss_is_named(sign: str, backup: Path, tmp_path: Path) -> None:
    harm, first, last = SIGNS[sign]
    for number, (command, (_, how)) in enumerate(COMMANDS.items()):
        disk, out = Path(shutil.copytree(backup, tmp_path / str(number) / "disk")), tmp_path / str(number) / "out"
        harm(disk)
        before = {path: path.stat().st_size for path in disk.rglob("*")}
        done = ran(command, disk, out)
        said = done.err + done.text
        assert done.code == 1, (command, said)
        assert f"offsets {first} to {last}" in said, (command, said)
        assert "trusts it" not in said
        written = list(out.rglob(PART)) + list(out.rglob("*.parquet"))
        is_known = sign != "middle"  # without a sign of it, the cleaner of a leader may have been there
        assert ("perhaps missing: " in said) == (not is_known), (command, said)
        if (how == "refuse" and is_known) or "-n" in command:
            assert not written, command
            assert {path: path.stat().st_size for path in disk.rglob("*")} == before
            continue
        assert written, command
        if command == "export":
            continue
        (folder,) = written
        (part,) = open_dir(folder).partitions
        end = BASES[-1] if sign in ("last", "orphan-last", "orphan-alone", "emptied-last") else END
        assert max(checkpoints_of(folder.parent).values(), default=0) <= end, command
        if command in ("move", "move --force"):  # byte for byte: the evidence stays
            continue
        assert not (folder.parent / ".kafka_cleanshutdown").exists()
        bases = {segment.base_offset for segment in part.segments}
        assert {int(path.stem) for path in folder.glob("*.*index")} <= bases, command
        # What a hole leaves stays known; what was above the end is no sign any more.
        left = {finding.kind for finding in lacking(open_dir(folder.parent))}
        assert left <= {"gap", "perhaps-compacted"} if sign.endswith("middle") else left <= {"missing"}, (command, left)
        assert not left or first < BASES[-1], (command, left)


WAYS = ("in place", "dry", "copied")


@pytest.mark.parametrize("sign", some_of(SIGNS, 7))
def test_a_loss_is_named_by_what_changes_the_log(sign: str, backup: Path, tmp_path: Path) -> None:
    harm, first, last = SIGNS[sign]
    turn = list(SIGNS).index(sign) % 3  # another way for each sign
    for command, way in diagonals(CHANGES, WAYS[turn:] + WAYS[:turn]):
        how = {"in place": [], "dry": ["-n"], "copied": ["--into", tmp_path / f"{command} copy"]}[way]
        disk = Path(shutil.copytree(backup, tmp_path / f"{command}{len(how)}" / "disk"))
        harm(disk)
        done = pylogseg(command, disk, *CHANGES[command], *how)
        assert (done.code, f"offsets {first} to {last}" in done.err) == (1, True), (command, how, done.err, done.out)
        shutil.rmtree(disk)


@pytest.mark.parametrize("command", CHANGES)
def test_nothing_is_said_of_a_whole_log(command: str, backup: Path, tmp_path: Path) -> None:
    disk = Path(shutil.copytree(backup, tmp_path / "disk"))
    done = pylogseg(command, disk, *CHANGES[command])
    assert (done.code, done.err) == (0, "")


@pytest.mark.parametrize("command", COMMANDS)
def test_nothing_is_said_of_whole_data(command: str, examples: Path, backup: Path, tmp_path: Path) -> None:
    """Not of a whole disk either, with retention, deleted records, compaction, legacy formats, its own metadata."""
    for number, disk in enumerate([backup, examples] if "move" not in command and "name" not in command else [backup]):
        place = Path(shutil.copytree(disk, tmp_path / str(number) / "disk"))
        done = ran(command, place, tmp_path / str(number) / "out")
        assert (done.code, done.err) == (0, ""), command


def _cut(base: int, size: int) -> Callable[[Path], None]:
    return lambda disk: os.truncate(disk / PART / f"{base:020}.log", size)


def _zeros(base: int, first: int) -> Callable[[Path], None]:
    def write(disk: Path) -> None:
        path = disk / PART / f"{base:020}.log"
        data = path.read_bytes()
        path.write_bytes(data[:first] + bytes(len(data) - first))

    return write


def _misnamed(disk: Path) -> None:
    for path in (disk / PART).glob(f"{43:020}.*"):
        path.rename(path.with_name(f"{44:020}{path.suffix}"))


#: What is done to a disk that was closed in order, and a word of what is said of it.
DAMAGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "torn-middle": (_cut(43, 1000), "is cut off after"),
    "zeros-middle": (_zeros(43, 0), "zero bytes follow"),
    "misnamed": (_misnamed, "base offset 43 is below 44"),
    "unindexed": (_segment(43, ".txnindex"), "ends of aborted transactions"),
    "torn-end": (_cut(119, 700), "closed in order"),
    "zeros-end": (_zeros(119, 0), "closed in order"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_not_carried_along_in_silence(damage: str, backup: Path, tmp_path: Path) -> None:
    disk = Path(shutil.copytree(backup, tmp_path / "disk"))
    assert (disk / ".kafka_cleanshutdown").exists()
    DAMAGES[damage][0](disk)
    found = expect(pylogseg("verify", disk, "-q"), 1)
    is_end = damage.endswith("end")
    assert "remedy: none" not in found.text
    assert ("remove .kafka_cleanshutdown" in found.text) is is_end
    for command in ("copy", "restore", "restore --force", *(["export", "move"] if is_end else [])):
        out = tmp_path / command
        done = ran(command, disk, out)
        said = done.err + done.text
        if damage == "unindexed" and "restore" in command:
            assert (done.code, f"{43:020}.txnindex" in said) == (0, True)
            assert pylogseg("verify", out).code == 0
            continue
        assert done.code == 1, (command, said)
        assert DAMAGES[damage][1] in said, (command, said)
        assert "trusts it" not in said
        assert not list(out.rglob(".kafka_cleanshutdown")), command
        if command in ("restore", "move"):
            assert not list(out.rglob(PART)), command


def test_a_file_in_place_of_a_folder(backup: Path, tmp_path: Path) -> None:
    disk = Path(shutil.copytree(backup, tmp_path / "disk"))
    shutil.rmtree(disk / PART)
    (disk / PART).write_bytes(b"")
    for command in ("copy", "restore", "export"):
        done = ran(command, disk, tmp_path / command)
        assert (done.code, "a file lies in its place" in done.err) == (1, True), command
    assert pylogseg("verify", disk).code == 1


def test_a_partition_that_is_not_there(examples: Path, backup: Path, tmp_path: Path) -> None:
    """By a checkpoint, or by the metadata of the cluster, which says what a broker's disk should have."""
    by_checkpoint = Path(shutil.copytree(backup, tmp_path / "by_checkpoint"))
    shutil.rmtree(by_checkpoint / PART)
    by_metadata = Path(shutil.copytree(examples, tmp_path / "by_metadata"))
    # That directory has some of the topics that the metadata in the examples knows.
    text = (by_metadata / "meta.properties").read_text()
    (by_metadata / "meta.properties").write_text(text.replace("sSDgKM8EQUu-7Nh-ktoepQ", "PnF15ATXRc-iW5ONb3kHUQ"))
    for number, (disk, name) in enumerate(((by_checkpoint, PART), (by_metadata, "meta-2-0"))):
        for command in ("copy", "copy -n", "restore", "restore -n", "restore --force", "export"):
            done = ran(command, disk, tmp_path / f"{command} {number}")
            assert done.code == 1, (command, done.err)
            assert str(disk / name) in done.err
            assert "missing" in done.err
        # Who asks for another one is not told.
        assert pylogseg("copy", disk, tmp_path / f"other {number}", "txn-a-1").code == 0


def test_only_what_is_exported_counts(backup: Path, tmp_path: Path) -> None:
    disk = Path(shutil.copytree(backup, tmp_path / "disk"))
    SIGNS["orphan-last"][0](disk)
    for number, (offsets, code) in enumerate({"0:119": 0, "100:119": 0, "100:": 1, "100:130": 1}.items()):
        done = pylogseg("export", disk, PART, "--out", tmp_path / f"{number}.jsonl", "--offset", offsets)
        assert (done.code, "offsets 119 to 147" in done.err) == (code, bool(code)), offsets


def test_json_has_it(backup: Path, tmp_path: Path) -> None:
    disk = Path(shutil.copytree(backup, tmp_path / "disk"))
    SIGNS["last"][0](disk)
    (tmp_path / "new").mkdir()
    for arguments in (["copy", disk, tmp_path / "copy"], ["restore", disk, tmp_path / "new", "--force"]):
        done = pylogseg(*arguments, "--json")
        (found,) = json.loads(done.out.splitlines()[-1])["lacking"]
        assert (found["offset"], found["lastOffset"], bool(found["remedy"])) == (119, 147, True)


@pytest.mark.parametrize("sign", SIGNS)
def test_a_merge_of_one_disk_is_not_done(sign: str, backup: Path, tmp_path: Path) -> None:
    """It has its own proofs, of several disks: one is no exception."""
    disk = Path(shutil.copytree(backup, tmp_path / "disk"))
    SIGNS[sign][0](disk)
    done = pylogseg("merge", disk, "--into", tmp_path / "new")
    assert done.code == 1, (done.out, done.err)


def test_a_table_knows_its_files(backup: Path, tmp_path: Path) -> None:
    """A file, a partition and a topic that are gone, wherever they stood; also what an export could not read."""
    lake = tmp_path / "lake"
    assert pylogseg("export", backup, "--out", lake).code == 0

    def restored(*names: str) -> Done:
        target = tmp_path / f"new {len(list(tmp_path.iterdir()))}"
        target.mkdir()
        return pylogseg("restore", lake, target, *names, "--committed")

    assert restored().code == 0
    for path in sorted(lake.rglob("*.parquet")):
        held = path.rename(tmp_path / "held")
        done = restored()
        assert (done.code, str(path) in done.err) == (1, True), path
        held.rename(path)
    held = (lake / "topic=txn-a" / "partition=1").rename(tmp_path / "held")
    assert restored().code == 1
    assert restored(PART).code == 0
    held.rename(lake / "topic=txn-a" / "partition=1")

    disk = Path(shutil.copytree(backup, tmp_path / "disk"))
    log = disk / PART / f"{BASES[1]:020}.log"
    log.write_bytes(log.read_bytes()[:100] + b"x" + log.read_bytes()[101:])
    for options in ([], ["--on-corrupt", "skip"]):
        shutil.rmtree(lake)
        assert pylogseg("export", disk, "--out", lake, *options).code == 1
        done = restored()
        assert (done.code, "did not end" in done.err if not options else "not all could be" in done.err) == (1, True)
    assert pylogseg("export", backup, "--out", lake, "--overwrite").code == 0
    assert restored().code == 0


def test_recover_names_what_is_short_or_gone(backup: Path, tmp_path: Path) -> None:
    """It changes nothing that a broker would leave; but what it puts in order is not whole."""
    for sign in ("last", "high-watermark", "recovery-point"):
        disk = Path(shutil.copytree(backup, tmp_path / sign))
        SIGNS[sign][0](disk)
        _, first, last = SIGNS[sign]
        dry = pylogseg("recover", disk, "-n")
        done = pylogseg("recover", disk, "--no-keep")
        assert (dry.code, done.code) == (1, 1), sign
        assert f"{PART}, offsets {first} to {last}" in done.text
        assert f"{PART}, offsets {first} to {last}" in dry.text
    gone = Path(shutil.copytree(backup, tmp_path / "gone"))
    shutil.rmtree(gone / PART)
    done = pylogseg("recover", gone, "--no-keep")
    assert (done.code, f"{gone / PART}: the folder of this partition is missing" in done.err) == (1, True)
    whole = Path(shutil.copytree(backup, tmp_path / "whole"))
    (whole / ".kafka_cleanshutdown").unlink()
    assert pylogseg("recover", whole, "--no-keep").code == 0


def test_move_of_all_names_a_folder_that_is_gone(backup: Path, tmp_path: Path) -> None:
    for number, (asked, code) in enumerate({"*": 1, "txn-a": 1, "txn-a-1": 0}.items()):
        disk = Path(shutil.copytree(backup, tmp_path / f"{number}"))
        shutil.rmtree(disk / PART)
        (tmp_path / f"to {number}").mkdir()
        done = pylogseg("move", disk, tmp_path / f"to {number}", asked)
        assert (done.code, f"{disk / PART}: the folder of this partition is missing" in done.err) == (code, bool(code))
        assert (tmp_path / f"to {number}" / "txn-a-1").is_dir()


def test_a_log_that_is_opened_short_is_named(backup: Path, tmp_path: Path) -> None:
    disk = Path(shutil.copytree(backup, tmp_path / "disk"))
    SIGNS["last"][0](disk)
    with open_log(disk / PART) as log:
        (found,) = (action for action in log.report.actions if action.is_damage)
    assert (found.kind, found.first_offset, found.next_offset) == (ActionKind.SHORT, BASES[-1], END)
