"""Pulled plugs on real file systems: on loop devices, whose images are copied while a log is written.

    python tests/crash cuts [KIND ...] [--cuts 200] [--seed 0] [--scratch DIR]
    python tests/crash rates [KIND ...] [--scratch DIR]

Kinds: ext2, ext3, ext4-ordered, ext4-journal, ext4-writeback, xfs, btrfs. Needs Linux, root, loop devices, and the
programs e2fsprogs, xfsprogs and btrfs-progs.

`cuts`: the image of the file system is a file on an xfs; a reflink copy of it is atomic. While a writer works, it is
copied at random instants. Each copy is what the disk would hold if the power went then: all requests that the device
had completed, none that had not. The copy is mounted, which replays the journal; the log is opened and judged as crash
images are (`crash.judge`); then it is unmounted and checked by the file system's own fsck (ext2, which
has no journal, is repaired first: what breaks there is counted, and is no failure). Columns: kind, cuts, flushed
batches that had to be there, cuts that broke a promise, batches lost of those that had been appended and not flushed.
"""

from __future__ import annotations

import contextlib
import fcntl
import multiprocessing
import pickle
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from crash.judge import Broken, judge
from crash.promises import Promise, Written
from crash.rates import measure
from pylogseg.config import LogConfig
from pylogseg.env.storage import LocalStorage
from pylogseg.errors import PylogsegError

_FORK = multiprocessing.get_context("fork")
_FICLONE = 0x40049409
_IMAGE_BYTES = 512 << 20


class Kind(NamedTuple):
    """A file system: how it is made, mounted and checked (after a mount has replayed its journal)."""

    make: list[str]
    type: str
    options: str
    check: list[str]
    repair: list[str] | None = None


_E2FSCK = ["e2fsck", "-fn"]
KINDS = {
    "ext2": Kind(["mkfs.ext2", "-q", "-F"], "ext2", "", _E2FSCK, ["e2fsck", "-fy"]),
    "ext3": Kind(["mkfs.ext3", "-q", "-F"], "ext3", "", _E2FSCK),
    "ext4-ordered": Kind(["mkfs.ext4", "-q", "-F"], "ext4", "data=ordered", _E2FSCK),
    "ext4-journal": Kind(["mkfs.ext4", "-q", "-F"], "ext4", "data=journal", _E2FSCK),
    "ext4-writeback": Kind(["mkfs.ext4", "-q", "-F"], "ext4", "data=writeback", _E2FSCK),
    "xfs": Kind(["mkfs.xfs", "-q", "-f"], "xfs", "nouuid", ["xfs_repair", "-n"]),
    "btrfs": Kind(["mkfs.btrfs", "-q", "-f"], "btrfs", "", ["btrfs", "check", "--readonly"]),
}


def command(*arguments: str | Path) -> str:
    """Run a program; its output."""
    done = subprocess.run([str(a) for a in arguments], capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        raise OSError(f"{' '.join(map(str, arguments))}: exit code {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout.strip()


@contextlib.contextmanager
def mounted(image: Path, target: Path, kind: Kind) -> Iterator[str]:
    """Mount an image; the loop device, which is there until the end too."""
    device = command("losetup", "--find", "--show", image)
    try:
        if kind.repair is not None and image.name == "cut":
            subprocess.run([*kind.repair, device], capture_output=True, timeout=300, check=False)
        target.mkdir(exist_ok=True)
        command("mount", "-t", kind.type, *(["-o", kind.options] if kind.options else []), device, target)
        try:
            yield device
        finally:
            command("umount", target)
    finally:
        command("losetup", "--detach", device)


@contextlib.contextmanager
def workshop(parent: str | None) -> Iterator[Path]:
    """A folder on an xfs of its own, where copies are reflinks."""
    base = Path(tempfile.mkdtemp(prefix="pylogseg-disks-", dir=parent))
    try:
        image = base / "workshop"
        with image.open("wb") as file:
            file.truncate(8 * _IMAGE_BYTES)
        command(*KINDS["xfs"].make, "-m", "reflink=1", image)
        with mounted(image, base / "room", KINDS["xfs"]):
            yield base / "room"
    finally:
        shutil.rmtree(base)


def new_image(path: Path, kind: Kind) -> Path:
    """Make an empty file system."""
    with path.open("wb") as file:
        file.truncate(_IMAGE_BYTES)
    command(*kind.make, path)
    return path


def clone(source: Path, target: Path) -> None:
    """Copy a file as it is at one instant."""
    with source.open("rb") as old, target.open("wb") as new:
        fcntl.ioctl(new.fileno(), _FICLONE, old.fileno())


class Told:
    """What the writer has told so far."""

    def __init__(self, seed: int, folder: Path) -> None:
        arguments = [sys.executable, str(Path(__file__).parent), "writer", str(folder), str(seed)]
        self.process = subprocess.Popen(arguments, stdout=subprocess.PIPE)
        self.folder, self.config = "", LogConfig()
        self.history: list[Written] = []
        self.promises: list[Promise] = []
        self._heard = 0
        self.lock = threading.Lock()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        with contextlib.suppress(EOFError, pickle.UnpicklingError, ValueError):
            while True:
                what: Any = pickle.load(self.process.stdout)
                with self.lock:
                    self._take(what)

    def _take(self, what: Any) -> None:
        self._heard += 1
        if what[0] == "begin":
            _, self.folder, self.config = what
            self.history, self.promises = [], []
        elif what[0] == "batch":
            self.history.append(what[1])
        elif what[0] == "died":
            self.history[what[1]] = self.history[what[1]]._replace(died=what[2])
        else:
            self.promises.append(what[1])

    def cut(self, image: Path, copy: Path) -> tuple[str, LogConfig, list[Written], Promise, int] | None:
        """Copy the image; what had been promised before and was not taken back until after; batches appended before.

        None if a new log was begun meanwhile.
        """
        with self.lock:
            folder, before, appended = self.folder, len(self.promises), len(self.history) - 1
        clone(image, copy)
        self.process.send_signal(signal.SIGSTOP)
        heard = -1
        while heard != self._heard:  # what it told before that arrives, on a busy machine late
            heard = self._heard
            time.sleep(0.05)
        with self.lock:
            if folder != self.folder or not before:
                return None
            return folder, self.config, list(self.history), weakest(self.promises[before - 1 :]), appended

    def resume(self) -> None:
        """Let the writer go on."""
        self.process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """End the writer."""
        self.process.kill()
        self.process.wait()


def weakest(promises: list[Promise]) -> Promise:
    """What holds through all of these: the cut lies between the first and the last."""
    first, last = promises[0], promises[-1]
    flushed = set(first.flushed)
    for each in promises:
        flushed &= set(each.flushed)
    return Promise(
        tuple(sorted(flushed)),
        min(each.log_start for each in promises),
        max(each.last_start for each in promises),
        min(each.recovery_point for each in promises),
        all(each.clean for each in promises),
        last.now,
        all(each.times for each in promises),
    )


class Result(NamedTuple):
    """What became of the cuts of one file system."""

    kind: str
    cuts: int
    flushed: int
    unflushed: int
    lost_unflushed: int
    broken: list[str]


def cuts(name: str, room: Path, count: int, seed: int) -> Result:
    """Cut `count` times."""
    kind, choose = KINDS[name], random.Random(seed)
    image, copy, broken = new_image(room / "disk", kind), room / "cut", []
    done = flushed = unflushed = lost = 0
    with mounted(image, room / "live", kind):
        writer = Told(seed, room / "live")
        try:
            while done < count:
                time.sleep(choose.uniform(0.01, 0.25))
                found = writer.cut(image, copy)
                if found is not None:
                    folder, config, history, promise, appended = found
                    there, fault = judged(copy, room / "dead", kind, Path(folder).name, config, history, promise)
                    if fault:
                        broken.append(f"cut {done}: {fault}")
                    loose = [n for n, b in enumerate(history[:appended]) if b.died > promise.now]
                    loose = [n for n in loose if n not in promise.flushed and history[n].last >= promise.last_start]
                    flushed, unflushed = flushed + len(promise.flushed), unflushed + len(loose)
                    lost += sum(n not in there for n in loose)
                    done += 1
                    if sys.stderr.isatty():
                        print(f"\r{name}: {done} of {count} cuts, {len(broken)} broken", end="", file=sys.stderr)
                copy.unlink(missing_ok=True)
                if writer.process.poll() is not None:
                    raise OSError(f"the writer ended with exit code {writer.process.returncode}")
                writer.resume()
        finally:
            writer.stop()
    image.unlink()
    return Result(name, done, flushed, unflushed, lost, broken)


def judged(
    copy: Path, target: Path, kind: Kind, log: str, config: LogConfig, history: list[Written], promise: Promise
) -> tuple[set[int], str]:
    """Mount a copy, judge the log in it, unmount it and have it checked; what batches are there, what is wrong."""

    def verdict(out: Connection) -> None:
        try:
            out.send((set(judge(LocalStorage(), promise, history, config, recovery_point=point, folder=folder)), ""))
        except (Broken, PylogsegError) as error:
            out.send((set(), f"{type(error).__name__}: {error}"))

    point, folder = promise.recovery_point, str(target / log)
    with mounted(copy, target, kind):
        # A process of its own holds no file open when it is gone, however a judgement ends.
        told, out = _FORK.Pipe(duplex=False)
        judging = _FORK.Process(target=verdict, args=(out,))
        judging.start()
        out.close()
        try:
            there, fault = told.recv()
        except EOFError:
            there, fault = set(), "the process that opened the log died"
        judging.join()
    try:
        command(*kind.check, copy)
    except OSError as error:
        fault = fault or str(error)
    return there, fault


def report_cuts(kinds: Iterable[str], scratch: str | None, count: int, seed: int) -> int:
    """Print a row for each file system; the exit code, which does not count what a repair may break."""
    failed = False
    with workshop(scratch) as room:
        for name in kinds:
            result = cuts(name, room, count, seed)
            failed |= bool(result.broken) and KINDS[name].repair is None
            print(
                f"| {name} | {result.cuts} | {result.flushed} | {len(result.broken)} |"
                f" {result.lost_unflushed} of {result.unflushed} |",
                flush=True,
            )
            for each in result.broken[:20]:
                print(f"    {each}", flush=True)
    return 1 if failed else 0


def report_rates(kinds: Iterable[str], scratch: str | None) -> None:
    """Print what each file system does in a second; see `crash.rates`."""
    with workshop(scratch) as room:
        for name in kinds:
            image = new_image(room / "disk", KINDS[name])
            with mounted(image, room / "live", KINDS[name]):
                for line in measure(name, room / "live"):
                    print(line, flush=True)
            image.unlink()
