"""A process is killed at each of its system calls, on a real file system: `merge`, `restore`, `repair --from`, `quorum
rescue`.

    python tests/crash kills [merge restore-tier ...] [--every 1] [--first 0]

A child runs the command and dies by SIGKILL before its k-th call of the system, for each k. What is left must be
nothing or all of a result, the sources must be as they were, and the command, run again, must end with the same bytes
as one that nobody disturbed. Calls that only read are passed over. What a map has been given is not held back by
a kill; `images` has what a disk may lose of it.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import sys
import tempfile
import types
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from helpers.brokers import NAME, Cluster, replicas
from helpers.damaged_logs import change_byte
from helpers.metadata_logs import LOG, MetadataLog
from helpers.tiers import Uploader
from helpers.trees import tree

from crash.judge import Broken, must
from pylogseg import offline
from pylogseg.format.names import FileKind
from pylogseg.format.outcome import Outcome
from pylogseg.inspect.quorum.copies import read_copies
from pylogseg.inspect.quorum.pairs import compare_copies
from pylogseg.offline.result import Result
from pylogseg.transfer.staging import is_left_behind

#: Modules whose builtin functions and methods call the system.
_SYSTEM = frozenset({"posix", "io", "_io", "mmap", "fcntl"})
#: Those that change nothing: a kill before them leaves what one before the next call leaves.
_READING = frozenset(
    {
        *(
            "stat",
            "lstat",
            "fstat",
            "access",
            "readlink",
            "scandir",
            "listdir",
            "is_dir",
            "is_file",
            "getcwd",
            "urandom",
        ),
        *("open_code", "pread", "preadv", "read", "readinto", "readall", "readline", "lseek", "seek", "seekable"),
        *("tell", "fileno", "isatty", "close", "madvise", "posix_fadvise", "fspath", "_path_normpath", "getpid"),
        *("geteuid", "getuid", "uname", "sysconf", "confstr", "sched_getaffinity", "register_at_fork"),
    }
)
#: Ending a listing changes nothing either, and a warm interpreter does not report it.
with os.scandir(".") as _listing:
    _LISTING = type(_listing)


class Case(NamedTuple):
    """A command, and what it works on.

    Attributes
    ----------
    build : callable
        Makes the folders of the sources, and of the target if it is there before, in a folder.
    run : callable
        The command.
    sources : tuple of str
        Folders that nobody may change.
    target : str
    is_in_place : bool
        The target has records before, and keeps them all at any time.
    check : callable, optional
        Looks at the folder in the place of the other rules, after the kill and after a second run.
    """

    build: Callable[[Path], object]
    run: Callable[[Path], Outcome]
    sources: tuple[str, ...]
    target: str
    is_in_place: bool = False
    check: Callable[[Path], None] | None = None


def _damaged_disks(folder: Path) -> None:
    """Three disks with two partitions, a few batches of each damaged, and a segment gone."""
    disks, batches = replicas(folder, 5, segments=3)
    for disk, number in ((0, 2), (0, -3), (1, 4), (2, 6), (1, 8), (2, 8)):
        path = disks[disk] / NAME / f"{batches[number].segment:020d}.log"
        change_byte(path, batches[number].position + 30)
    segments = sorted({batch.segment for batch in batches})
    (disks[1] / NAME / f"{segments[1]:020d}.log").unlink()
    for disk_folder in disks:
        shutil.copytree(disk_folder / NAME, disk_folder / "u-0")


def _with_empty_target(folder: Path) -> None:
    _damaged_disks(folder)
    (folder / "out").mkdir()


def _backup(folder: Path) -> None:
    """A disk, and a log directory that has other records of one of its partitions."""
    disks, _ = replicas(folder / "brokers", 5, segments=3)
    disks[0].rename(folder / "backup")
    shutil.copytree(folder / "backup" / NAME, folder / "backup" / "u-0")
    shutil.rmtree(folder / "brokers")
    cluster = Cluster(folder / "other", random.Random(9), unclean=False)
    cluster.write()
    for broker in cluster.brokers:
        broker.stop()
    cluster.brokers[0].folder.rename(folder / "out")
    shutil.rmtree(folder / "other")


def _tier(folder: Path) -> None:
    """What a broker uploaded of two partitions, and a log directory as for `_backup`."""
    _backup(folder)
    uploader = Uploader(folder / "tier", 512, is_compressed=True)
    for name in (NAME, "u-0"):
        uploader.partition(folder / "backup" / name)
    shutil.rmtree(folder / "backup")


def _merge(folder: Path) -> Result:
    return offline.merge([folder / f"b{number}" for number in (1, 2, 3)], folder / "out")


def _restore(folder: Path) -> Result:
    return offline.restore(folder / "backup", folder / "out", overwrite=True)


def _restore_tier(folder: Path) -> Result:
    return offline.restore(f"aiven+file://{folder / 'tier'}", folder / "out", overwrite=True)


def _repair(folder: Path) -> Result:
    return offline.repair(folder / "b1", other=folder / "b3", keep_behind=True, cluster_metadata="none")


def _controllers(folder: Path) -> None:
    """A survivor with a torn tail, and a broker."""
    log = MetadataLog()
    log.topic("orders")
    log.disk(folder / "c1", 1)
    log.disk(folder / "b11", 11)
    log.disk(folder / "b12", 12)
    log.topic("torn")
    with open(folder / "c1" / LOG / f"{0:020d}.log", "ab") as file:
        file.write(log.batches[-1].data[:99])


def _rescue_into(folder: Path) -> Outcome:
    disks = [str(folder / name) for name in ("b11", "b12")]
    return offline.rescue_quorum(disks, into=[str(folder / "out")], voters=["1@c1:9093"], write=True)


def _rescue_in_place(folder: Path) -> Outcome:
    disks = [str(folder / name) for name in ("c1", "b11", "b12")]
    survivor, keep = disks[0], str(folder / "kept")
    shutil.rmtree(keep, ignore_errors=True)
    return offline.rescue_quorum(disks, in_place=survivor, keep=keep, voters=["1@c1:9093"], write=True, force=True)


def _check_survivor(folder: Path) -> None:
    """It has all batches; its voters are the old ones or the new one, and no epoch but theirs."""
    log = MetadataLog()
    log.topic("orders")
    (copy,) = read_copies(str(folder / "c1"))
    must(copy.is_whole, f"the survivor is not whole: {copy.error}")
    must(compare_copies(copy, read_copies(str(folder / "b11"))[0]).is_prefix, "the survivor has other batches")
    ids = [voter.id for voter in copy.voters or ()]
    is_new = copy.end == log.end + 2
    must((copy.end, ids) in ((log.end, [1, 2, 3]), (log.end + 2, [1])), f"neither old nor new: {copy.end}, {ids}")
    must(copy.epoch == log.epoch + (1000 if is_new else 0), f"the epoch is {copy.epoch}")
    must(
        copy.state is not None and (is_new or copy.state.leader_epoch == log.epoch), "quorum-state is ahead of the log"
    )
    must(not is_new or (folder / "kept" / LOG).is_dir(), "the log as it was is not kept")
    again = shutil.copytree(folder, folder.with_name("again"))
    try:
        must(_rescue_in_place(again).exit_code == 0, "the second run fails")
        must([v.id for v in read_copies(str(again / "c1"))[0].voters or ()] == [1], "the second run has other voters")
    finally:
        shutil.rmtree(again)


CASES = {
    "rescue-into": Case(_controllers, _rescue_into, ("c1", "b11", "b12"), "out"),
    "rescue-in-place": Case(_controllers, _rescue_in_place, ("b11", "b12"), "c1", check=_check_survivor),
    "merge": Case(_damaged_disks, _merge, ("b1", "b2", "b3"), "out"),
    "merge-into-empty": Case(_with_empty_target, _merge, ("b1", "b2", "b3"), "out"),
    "restore-folder": Case(_backup, _restore, ("backup",), "out", is_in_place=True),
    "restore-tier": Case(_tier, _restore_tier, ("tier",), "out", is_in_place=True),
    "repair-from": Case(_damaged_disks, _repair, ("b2", "b3"), "b1", is_in_place=True),
}


def sweep(name: str, every: int = 1, first: int = 0) -> Iterator[str]:
    """Kill the command of a case at every so many-th call; yield what was wrong after each kill, or nothing."""
    case = CASES[name]
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as scratch:
        world, whole = Path(scratch, "world"), Path(scratch, "whole")
        world.mkdir()
        case.build(world)
        shutil.copytree(world, whole, symlinks=True)
        must(case.run(whole).exit_code == 0, f"{name} does not work where nobody disturbs it")
        judge = _Judge(case, world, whole)
        for k in range(first, _calls(case, world, Path(scratch, "count")), every):
            place = shutil.copytree(world, Path(scratch, "killed"))
            try:
                where = _killed(case, place, k)
                try:
                    judge.judge(place)
                    fault = ""
                except (Broken, AssertionError) as error:
                    fault = f"killed before call {k}, {where}: {error}"
                except Exception as error:  # the command itself, when it is run again
                    fault = f"killed before call {k}, {where}: {type(error).__name__}: {error}"
                yield fault
            finally:
                shutil.rmtree(place)


def report(names: Sequence[str], every: int, first: int) -> int:
    """Print what is wrong as it comes, and how often each command was killed; the exit code."""
    wrong = 0
    for name in names:
        faults = []
        for fault in sweep(name, every, first):
            faults.append(bool(fault))
            if fault:
                print(f"{name}: {fault}", flush=True)
        print(f"{name}: killed {len(faults)} times, {sum(faults)} wrong", flush=True)
        wrong += sum(faults)
    return 1 if wrong else 0


class _Judge:
    def __init__(self, case: Case, world: Path, whole: Path) -> None:
        self._case = case
        self._sources = {name: _timed(world / name) for name in case.sources}
        self._before, self._expected = _contents(world / case.target), _contents(whole / case.target)

    def judge(self, place: Path) -> None:
        case, target = self._case, place / self._case.target
        self._check_sources(place, "after the kill")
        if case.check is not None:
            case.check(place)
            return
        left = _contents(target)
        if case.is_in_place:
            self._check_partitions(left)
        else:
            must(not left or left == self._expected, f"half a result: {_difference(left, self._expected)}")
        if left != self._expected or case.is_in_place:
            result = case.run(place)
            must(result.exit_code == 0, f"the second run has exit code {result.exit_code}: {[*result.warnings()]}")
        found = _contents(target)
        must(found == self._expected, f"the second run has another result: {_difference(found, self._expected)}")
        self._check_sources(place, "after the second run")

    def _check_sources(self, place: Path, when: str) -> None:
        for name, before in self._sources.items():
            found = _timed(place / name)
            must(found == before, f"{when}, {name} is not what it was: {_difference(found, before)}")

    def _check_partitions(self, left: dict[str, bytes]) -> None:
        """Each is the old one or the new one; of a repair, that is so of the good batches."""
        if self._case.run is _repair:
            return
        for name in (NAME, "u-0"):
            new, old, found = (_of(files, name) for files in (self._expected, self._before, left))
            must(found in (new, old, {}), f"half a partition {name}: {_difference(found, new)}")


def _of(files: dict[str, bytes], partition: str) -> dict[str, bytes]:
    return {path: data for path, data in files.items() if path.startswith(f"{partition}/")}


def _timed(folder: Path) -> dict[str, tuple[bytes, int]]:
    """All files and folders, with the times of their last change."""
    return {os.path.relpath(path, folder): found for path, found in tree(folder).items()}


def _contents(folder: Path) -> dict[str, bytes]:
    """All files, but for those that a later run, or a broker, removes in its time."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    relative = ((path, path.relative_to(folder)) for path in files)
    return {
        str(name): path.read_bytes()
        for path, name in relative
        if not is_left_behind(name.parts[0]) and name.name != FileKind.LOCK.value
    }


def _difference(found: dict[str, Any], expected: dict[str, Any]) -> str:
    names = sorted(name for name in {*found, *expected} if found.get(name) != expected.get(name))
    return ", ".join(
        f"{name} {'is missing' if name not in found else 'is new' if name not in expected else 'differs'}"
        for name in names[:5]
    )


# ---- the child ----


def _calls(case: Case, world: Path, place: Path) -> int:
    """How many calls of the system the command makes."""
    shutil.copytree(world, place)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        with _ending():
            calls = _Calls(None, writer)
            calls.run(case, place)
            os.write(writer, b"%d" % calls.count)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        count = pipe.read()
    os.waitpid(child, 0)
    must(count.isdigit(), "the command that was counted did not end")
    return int(count)


def _killed(case: Case, place: Path, k: int) -> str:
    """Run it in a child that is killed before its k-th call; what that was."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        with _ending():
            _Calls(k, writer).run(case, place)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        what = pipe.read().decode()
    _, status = os.waitpid(child, 0)
    must(os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, f"it was not killed before call {k}")
    return what


@contextlib.contextmanager
def _ending() -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        os.write(2, f"{type(error).__name__}: {error}\n".encode())
        os._exit(1)
    os._exit(0)


class _Calls:
    """Counts calls of the system, and kills the process before one of them."""

    def __init__(self, last: int | None, pipe: int) -> None:
        self.count, self._last, self._pipe = 0, last, pipe

    def run(self, case: Case, place: Path) -> None:
        sys.setprofile(self._seen)
        try:
            case.run(place)
        finally:
            sys.setprofile(None)

    def _seen(self, frame: types.FrameType, event: str, function: Any) -> None:
        if event != "c_call":
            return
        owner = getattr(function, "__self__", None)
        module = owner.__name__ if isinstance(owner, types.ModuleType) else type(owner).__module__
        if module not in _SYSTEM or function.__name__ in _READING or isinstance(owner, _LISTING):
            return
        if self.count == self._last:
            sys.setprofile(None)
            os.write(self._pipe, f"{function.__name__} in {frame.f_code.co_name}".encode())
            os.kill(os.getpid(), signal.SIGKILL)
        self.count += 1
