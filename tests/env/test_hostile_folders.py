"""Tests of disk/folders.py. Log directories that somebody prepared: links that lead out of them, pipes and holes in the
place of small files.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.depth import diagonals
from helpers.shell import environment, expect, run
from helpers.trees import entries

import pylogseg
from pylogseg import encode

pytestmark = pytest.mark.skipif(os.name == "nt", reason="there are no pipes in folders, and links need rights")

CHECKPOINTS = ("recovery-point", "log-start", "replication", "cleaner")
PRECIOUS = b"precious content of a system file"
ZEROS = "0" * 20
WRITERS = {
    "recover": "recover --no-keep --full d",
    "repair": "repair --no-keep d",
    "keep-behind": "repair --keep-behind --no-keep d",
    "reindex": "reindex d",
    "compact": "compact --force --include-active d",
    "recode": "recode -z zstd d",
    "redact": "redact --key k d",
    "redact-all": "redact --key k --everywhere d",
    "retain": "retain --ms 1 --force d",
    "truncate": "truncate --to 1 d t-0",
    "delete": "delete-records --offset -1 --force d",
    "copy": "copy d k",
    "into": "compact --force d --into k",
    "dry": "recover --dry-run d",
    "verify": "verify d",
}
LINKS = {
    "log": [f"t-0/{4:020d}.log"],
    "old-log": [f"t-0/{0:020d}.log"],
    "index": [f"t-0/{ZEROS}.index", f"t-0/{2:020d}.timeindex"],
    "txnindex": [f"t-0/{ZEROS}.txnindex"],
    "epochs-tmp": ["t-0/leader-epoch-checkpoint.tmp", "t-0/partition.metadata.tmp"],
    "epochs": ["t-0/leader-epoch-checkpoint"],
    "checkpoints-tmp": [f"{name}-offset-checkpoint.tmp" for name in CHECKPOINTS],
    "checkpoints": [f"{name}-offset-checkpoint" for name in CHECKPOINTS],
    "marker": [".kafka_cleanshutdown"],
    "meta": ["meta.properties"],
    "swap": [f"t-0/{ZEROS}.log.swap"],
    "cleaned": [f"t-0/{ZEROS}.log.cleaned"],
    "deleted": [f"t-0/{ZEROS}.log.deleted"],
    "snapshot": [f"t-0/{4:020d}.snapshot", f"t-0/{2:020d}.snapshot"],
    "lock": [".lock"],
}  # fmt: skip
FOLDER_LINKS = ["u-0", f"u-0.{'a' * 32}-delete", f"u-0.{'a' * 32}-future", "logs"]


def batch(offset: int) -> bytes:
    return encode([(1_700_000_000_000, b"k", b"v" * 50)], base_offset=offset)


def make(folder: Path) -> Path:
    """A log directory of one partition with two segments."""
    part = folder / "d" / "t-0"
    part.mkdir(parents=True)
    (part / f"{ZEROS}.log").write_bytes(batch(0) + batch(1))
    (part / f"{2:020d}.log").write_bytes(batch(2) + batch(3))
    return folder / "d"


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A log directory ``d``, and what must stay as it is in ``outside``."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    make(tmp_path)
    outside = tmp_path / "outside"
    (outside / "u-0").mkdir(parents=True)
    (outside / "shadow").write_bytes(PRECIOUS)
    # What a command would change if it took it for a partition: a torn batch, and records that are old.
    (outside / "u-0" / f"{ZEROS}.log").write_bytes(batch(0) + batch(1)[:-5])
    (outside / "u-0" / "notes.txt").write_bytes(PRECIOUS)
    return tmp_path


# ---- links ----


@pytest.mark.parametrize(("name", "link"), diagonals(WRITERS, LINKS))
def test_nothing_is_written_through_a_link(world: Path, name: str, link: str) -> None:
    before = entries(world / "outside")
    for path in LINKS[link]:
        place = world / "d" / path
        place.unlink(missing_ok=True)
        place.symlink_to(world / "outside" / "shadow")
    run(WRITERS[name])
    assert entries(world / "outside") == before


@pytest.mark.parametrize(("name", "link"), diagonals(WRITERS, FOLDER_LINKS, 2))
def test_nothing_is_written_into_a_linked_folder(world: Path, name: str, link: str) -> None:
    before = entries(world / "outside")
    (world / "d" / link).symlink_to(world / "outside" / "u-0")
    run(WRITERS[name])
    assert entries(world / "outside") == before


def test_a_linked_partition_is_refused_and_named_and_the_others_are_done(world: Path) -> None:
    (world / "d" / "a-0").symlink_to(world / "outside" / "u-0")
    for dry in (" --dry-run", ""):
        done = expect(run(f"recover --no-keep --full d{dry}"), 2)
        assert "a-0" in done.text + done.err
        assert "symbolic link" in done.text + done.err
    assert (world / "d" / "t-0" / f"{ZEROS}.index").exists()


def test_links_are_followed_to_read(world: Path) -> None:
    """A partition that was moved to another disk, and a log directory by another name, are common."""
    (world / "d" / "u-0").symlink_to(world / "outside" / "u-0")
    (world / "by-another-name").symlink_to(world / "d")
    assert len(run("cat d").rows) == 5
    assert len(run("cat by-another-name t-0").rows) == 4
    assert run("copy by-another-name k t-0").code == 0
    assert entries(world / "k")[f"t-0/{ZEROS}.log"] == batch(0) + batch(1)


@pytest.mark.parametrize("text", ["copy d k", "compact --force d --into k", "repair --no-keep d --into k"])
@pytest.mark.parametrize("kind", ["link", "dangling", "file", "other"])
def test_what_is_made_beside_its_place_takes_nobodys_folder(world: Path, text: str, kind: str) -> None:
    before, name = entries(world / "outside"), world / ".k.pylogseg-unfinished"
    if kind == "link":
        name.symlink_to(world / "outside")
    elif kind == "dangling":
        name.symlink_to(world / "outside" / "made")
    elif kind == "file":
        name.write_bytes(PRECIOUS)
    elif os.geteuid() != 0:
        pytest.skip("only root can give a folder away")
    else:
        name.mkdir()
        (name / "thesis").write_bytes(PRECIOUS)
        os.chown(name, 12345, -1)
    expect(run(text), 2, ".k.pylogseg-unfinished")
    assert entries(world / "outside") == before
    assert not (world / "k").exists()
    assert kind != "other" or (name / "thesis").read_bytes() == PRECIOUS


def test_what_a_killed_run_left_is_taken_over(world: Path) -> None:
    left = world / ".k.pylogseg-unfinished"
    (left / "t-0").mkdir(parents=True)
    (left / "t-0" / "half").write_bytes(b"x")
    (left / ".lock").write_bytes(b"")
    assert run("copy d k").code == 0
    assert not left.exists()
    assert "t-0/half" not in entries(world / "k")


def test_checkpoints_that_name_folders_outside_move_nothing(world: Path) -> None:
    before = entries(world / "outside")
    for name, text in WRITERS.items():
        shutil.rmtree(world / "d")
        shutil.rmtree(world / "k", ignore_errors=True)
        make(world)
        for kind in CHECKPOINTS:
            lines = f"0\n4\n../outside/u 0 3\n{world}/outside/u 0 1\n. 0 1\nt 0 2\n"
            (world / "d" / f"{kind}-offset-checkpoint").write_text(lines)
        run(text)
        assert entries(world / "outside") == before, name


# ---- pipes, sockets, devices ----

READERS = [
    "ls d",
    "cat d",
    "cat d --isolation-level read_committed",
    "verify d",
    "stats d",
    "grep x d",
    "latest d",
    "export d --out out",
    "diff d d",
    "copy d o",
    "recover --dry-run d",
    "recover --no-keep d",
    "repair --dry-run --no-keep d",
    "repair --no-keep d",
    "reindex --dry-run d",
    "retain --ms 1 --force d",
    "compact --force d --into o",
    "truncate --to 1 d t-0",
    "dump d/{0}",
    "dump --style kafka d/{0}",
    "cat d/{0}",
]
PLACES = [
    "meta.properties",
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "replication-offset-checkpoint",
    "cleaner-offset-checkpoint",
    ".kafka_cleanshutdown",
    ".lock",
    "t-0/leader-epoch-checkpoint",
    "t-0/partition.metadata",
    f"t-0/{ZEROS}.index",
    f"t-0/{ZEROS}.timeindex",
    f"t-0/{ZEROS}.txnindex",
    f"t-0/{ZEROS}.log",
    f"t-0/{2:020d}.log",
    f"t-0/{2:020d}.snapshot",
]


class Waited(Exception):
    pass


@contextlib.contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """A command that waits for the other end of a pipe would wait for ever."""

    def end(*_: object) -> None:
        raise Waited

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def open_and_close(_: str) -> None:
    with contextlib.suppress(pylogseg.PylogsegError):
        pylogseg.open_log("d/t-0").close()


@pytest.mark.parametrize(("text", "place"), diagonals([*READERS, "open_log"], PLACES))
def test_no_command_waits_for_a_pipe(world: Path, text: str, place: str) -> None:
    path = world / "d" / place
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    with at_most(20):
        if text == "open_log":
            open_and_close(place)
        else:
            run(text.format(place))


@pytest.mark.parametrize("text", READERS)
def test_a_socket_and_a_device_are_no_files(world: Path, text: str) -> None:
    place = f"t-0/{ZEROS}.log"
    (world / "d" / place).unlink()
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(Path("d") / place))
    (world / "d" / "meta.properties").symlink_to("/dev/zero")
    with at_most(20):
        run(text.format(place))


# ---- holes ----


#: Files whose size nothing may trust.
SMALL = [
    "t-0/leader-epoch-checkpoint",
    "t-0/partition.metadata",
    f"t-0/{ZEROS}.index",
    f"t-0/{ZEROS}.timeindex",
    f"t-0/{ZEROS}.txnindex",
    f"t-0/{2:020d}.index",
    f"t-0/{2:020d}.snapshot",
    "meta.properties",
    "log-start-offset-checkpoint",
    "recovery-point-offset-checkpoint",
]
#: In a process that may have 1.5 GB of addresses, where one file after the other says that it has 3 GiB.
HUGE = """
import json, os, resource, shutil, sys
import pylogseg.cli
import pyarrow  # of some commands; its arenas are reserved now
resource.setrlimit(resource.RLIMIT_AS, (1_500_000_000, 1_500_000_000))
from helpers.shell import pylogseg as shell
for place in json.loads(sys.argv[1]):
    path = "d/" + place
    before = open(path, "rb").read() if os.path.exists(path) else None
    with open(path, "wb") as file:
        file.truncate(3 << 30)
    for text in ("ls d", "cat d", "verify d", f"dump {path}", "recover --dry-run --full d", "copy d k", "stats d"):
        done = shell(*text.split())
        assert "Traceback" not in done.err, (text, done.err)
        assert "MemoryError" not in done.err + done.text, text
        if text == "verify d":
            assert done.code == 1 and os.path.basename(place) in done.text and str(3 << 30) in done.text, done.text
    shutil.rmtree("k", ignore_errors=True)
    os.unlink(path)
    if before is not None:
        open(path, "wb").write(before)
    print(place)
"""


def test_the_size_of_a_small_file_bounds_nothing_but_itself(world: Path) -> None:
    words = [sys.executable, "-c", HUGE, json.dumps(SMALL)]
    done = subprocess.run(words, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "MemoryError" not in done.stdout + done.stderr
    assert done.stdout.splitlines() == SMALL


def test_a_pipe_in_the_place_of_a_segment_is_the_same_in_a_dry_run(world: Path) -> None:
    """And no index is left behind for it."""
    os.mkfifo(world / "d" / "t-0" / f"{5:020}.log")
    for text in ("recover {}d", "repair {}d t-0"):
        dry, done = run(text.format("-n ")), run(text.format(""))
        assert (dry.code, done.code) == (2, 2)
        assert "it is not a file" in dry.text + dry.err
        assert "it is not a file" in done.text + done.err
        assert [path.name for path in (world / "d" / "t-0").glob(f"{5:020}.*")] == [f"{5:020}.log"]


@pytest.mark.parametrize("inside", ["", "passwd"])
def test_a_link_to_what_is_no_partition_is_no_empty_one(world: Path, inside: str) -> None:
    elsewhere = world / "elsewhere-of-it"
    elsewhere.mkdir()
    if inside:
        (elsewhere / inside).write_bytes(PRECIOUS)
    (world / "d" / "etc-0").symlink_to(elsewhere)
    for text, code in (("ls d", 2), ("verify d", 1), ("cat d etc", 2), ("stats d etc", 2), ("export d etc -O k", 2)):
        done = run(text)
        assert (done.code, "a link to a folder without any file of a partition" in done.text + done.err) == (
            code,
            True,
        ), text
    assert len(run("cat d").rows) == 4  # the others are shown
    assert sorted(path.name for path in elsewhere.iterdir()) == [inside] * bool(inside)


@pytest.mark.parametrize("how", ["folder", "pipe", "malformed"])
def test_log_starts_that_cannot_be_read_are_told_and_hide_nothing(world: Path, how: str) -> None:
    """As a broker takes them for none. What would write the checkpoint anew refuses: what it says would be lost."""
    texts = ["ls d", "ls d -l", "cat d", "cat d --tail 3", "cat d -n 9", "cat d --merge time", "grep e d --empty"]
    texts += [
        "latest d",
        "stats d --json",
        "diff d d --json",
        "export d -O k --overwrite",
        "export d -O k.jsonl --overwrite",
    ]
    good = {text: run(text) for text in texts}
    (world / "d" / "replication-offset-checkpoint").write_text("0\n0\n")
    path = world / "d" / "log-start-offset-checkpoint"
    path.unlink(missing_ok=True)
    if how == "folder":
        path.mkdir()
    elif how == "pipe":
        os.mkfifo(path)
    else:
        path.write_text("0\n1\nno offset here\n")
    said = "log-start-offset-checkpoint: " + (
        "at position 4: line 3 is malformed" if how == "malformed" else "cannot read"
    )
    code = 1 if how == "malformed" else 2
    for text in texts:
        done = run(text)
        of_pair = text.startswith(("diff", "grep"))  # 1 has another meaning
        assert (done.code, said in done.err) == (2 if of_pair else code, True), (text, done)
        if text.split()[0] not in ("export", "diff"):
            assert done.text == good[text].text
    assert (run("cat d --on-corrupt skip").code, run("cat d --below-log-start").code) == (1, 0)
    assert run("verify d").code == 1
    before = entries(world / "d" / "t-0")
    for text in ("recover -n d", "repair -n d", "compact -n d", "recover d", "repair d"):
        done = run(text)
        assert said in done.text + done.err, text
        if how != "malformed":  # which is taken for empty here too
            assert (done.code, "if it stays so, remove the file" in done.err) == (2, True), text
    assert how == "malformed" or entries(world / "d" / "t-0") == before


@pytest.mark.parametrize("name", ["meta.properties", f"t-0/{ZEROS}.index"])
def test_a_link_to_what_is_not_there_is_no_missing_file(world: Path, name: str) -> None:
    path = world / "d" / name
    path.unlink(missing_ok=True)
    (world / "d" / "replication-offset-checkpoint").write_text("0\n0\n")
    path.symlink_to("nowhere")
    done = run("verify d --json")
    (found,) = [row for row in done.rows if row.get("kind") == "unreadable"]
    assert (done.code, found["path"], found["level"]) == (1, f"d/{name}", "damage")
    assert "a symbolic link to a file that does not exist" in found["reason"]
    assert [record.offset for record in pylogseg.read("d")] == list(range(4))
