"""The rows of `archive`: beside a bare copy, the bare libraries, one replica, and a tar of the same disks."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import many_segments
from dataset import all_cores
from measure import Clock, in_turn
from rows import Row
from sections import Bench

import pylogseg
from pylogseg.archive import list_points, write
from pylogseg.disk.tier.writing import CHUNK_BYTES
from pylogseg.env import filesystem
from pylogseg.env.beside import flush
from pylogseg.format.files.checkpoint import encode_offset_checkpoint
from pylogseg.format.files.snapshot import encode_snapshot
from pylogseg.format.names import FileKind
from pylogseg.offline import restore
from pylogseg.reading.seek import end_offset

_COMMAND = [sys.executable, "-m", "pylogseg"]
_SEGMENTS = 10_000
_POINTS = 10
_PIECE_BYTES = 8 << 20


def archives(bench: Bench) -> list[Row]:
    """Uploads and restores on the clock of the wall, with all cores; sizes, and an unchanged disk as a command."""
    bench.log("none")
    with tempfile.TemporaryDirectory(dir=bench.folder) as folder:
        root = Path(folder)
        return [*_uploads(bench, root), *_replicas(bench, root), *_stored(root), *_unchanged(bench, root)]


def stopped(disk: Path) -> Path:
    """Give a log directory what a broker leaves behind that was stopped."""
    ends = {(part.topic, part.partition): end_offset(part.segments) for part in pylogseg.open_dir(disk).partitions}
    for kind in (FileKind.HIGH_WATERMARKS, FileKind.RECOVERY_POINTS):
        (disk / kind.value).write_bytes(encode_offset_checkpoint(ends))
    (disk / FileKind.CLEAN_SHUTDOWN.value).touch()
    return disk


def _uploads(bench: Bench, root: Path) -> list[Row]:
    """One segment: to a folder, plain and in both forms, and back."""
    log = bench.log("none")
    disk = root / "disk"
    inside = disk / log.sealed.name
    shutil.copytree(log.sealed, inside, copy_function=os.link)  # a sealed segment, and the active one without a record
    (inside / max(os.listdir(inside))).with_suffix(".snapshot").write_bytes(encode_snapshot([]))
    stopped(disk)
    private, public = root / "ops-private.pem", root / "ops.pem"
    subprocess.run(["openssl", "genrsa", "-out", private, "2048"], check=True, capture_output=True)
    subprocess.run(["openssl", "rsa", "-in", private, "-pubout", "-out", public], check=True, capture_output=True)

    sides = {
        "plain": _anew(root / "plain", lambda target: write(disk, target)),
        "copy": _anew(root / "copy", lambda target: _copied(log.path, target)),
        "both": _anew(root / "both", lambda target: write(disk, target, compress=True, encrypt_to=public)),
        "libraries": _anew(root / "libraries", lambda target: _sealed(log.path, target)),
    }
    with all_cores(bench.cores):
        best = in_turn(sides, min(bench.rounds, 5))
        backs = {
            name: _anew(root / name, lambda target, url=url: _restored(url, target))
            for name, url in (("point", f"aiven+file://{root}/plain#latest"), ("tier", f"aiven+file://{root}/plain"))
        }
        best |= in_turn(backs, min(bench.rounds, 5))
        cores = len(bench.cores) or 1
    mine = {name: log.size_bytes / 1e9 / seconds for name, seconds in best.items()}
    wall = f"{cores} cores (wall)"
    return [
        Row(f"archive of a segment, {wall}", mine["plain"], "GB/s", "read and write", mine["copy"], 0.8,
            "SHA-256 of the object, beside the copy"),
        Row(f"archive, zstd and AES, {wall}", mine["both"], "GB/s", "zstandard, cryptography", mine["libraries"], 0.8,
            "zstd; the check of the batches"),
        Row(f"restore of a point, {wall}", mine["point"], "GB/s", "restore of a tier", mine["tier"], 0.95,
            "the write of the segment"),
    ]  # fmt: skip


def _anew(target: Path, work: Callable[[Path], object]) -> Callable[[], float]:
    """A side that writes to where nothing is, on the clock of the wall."""
    clock = Clock("wall")

    def side() -> float:
        if target.is_dir():
            shutil.rmtree(target)
        target.unlink(missing_ok=True)
        return clock.timed(lambda: work(target))()

    return side


def _copied(source: Path, target: Path) -> None:
    """Read a file and write it to the disk, as a copy to a store has to."""
    memory = memoryview(bytearray(_PIECE_BYTES))
    with source.open("rb", buffering=0) as file, target.open("wb", buffering=0) as into:
        while size := file.readinto(memory):
            into.write(memory[:size])
    flush(target.parent)


def _sealed(source: Path, target: Path) -> None:
    """Compress and encrypt a file by the libraries, in chunks as an archive has them."""
    import zstandard
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    compress, aes = zstandard.ZstdCompressor(level=3).compress, AESGCM(os.urandom(32))
    memory = memoryview(bytearray(CHUNK_BYTES))
    with source.open("rb", buffering=0) as file, target.open("wb", buffering=0) as into:
        while size := file.readinto(memory):
            into.write(aes.encrypt(os.urandom(12), compress(memory[:size]), None))
    flush(target.parent)


def _restored(url: str, target: Path) -> None:
    target.mkdir()
    if restore(url, target).failed:
        raise ValueError(f"{url} was not restored")


def _replicas(bench: Bench, root: Path) -> list[Row]:
    """Three disks with the same log, which end at different offsets above the high watermark."""
    disks, batches = [], bench.records // 100
    for number in range(3):
        disk = root / f"replica-{number}"
        with pylogseg.open_log(disk / "t-0", segment_bytes=16 << 20) as log:
            _append(log, batches + number)
        ends = {("t", 0): batches * 100}
        (disk / FileKind.HIGH_WATERMARKS.value).write_bytes(encode_offset_checkpoint(ends))
        (disk / FileKind.CLEAN_SHUTDOWN.value).touch()
        (disk / "meta.properties").write_text(f"version=1\ncluster.id=3Db5QLSqSZieL3rJBUUegA\nnode.id={number}\n")
        disks.append(disk)

    def archived(of: list[Path], target: Path) -> None:
        done = write(of, target)
        if done.faults:
            raise ValueError(f"{done.faults}")

    names = {"one": disks[:1], "three": disks}
    sides = {name: _anew(root / name, partial(archived, of)) for name, of in names.items()}
    with all_cores(bench.cores):
        best = in_turn(sides, min(bench.rounds, 5))
    one, three = _size(root / "one"), _size(root / "three")
    return [
        Row("archive of three replicas", three, "MB", "of one", one, 1 / 1.1, "one copy of each"),
        Row("the same, its time (wall)", best["three"] * 1000, "ms", "of one", best["one"] * 1000, 1 / 1.1,
            "the headers of three active segments, and three listings"),
    ]  # fmt: skip


def _append(log: Any, batches: int) -> None:
    for number in range(batches):
        log.append([(1_700_000_000_000 + number, b"k%d" % each, b"v" * 90) for each in range(100)])


def _stored(root: Path) -> list[Row]:
    """A log that grows by a tenth between points, and a tar of its disk at each."""
    disk, tars, archive = root / "grows", 0.0, root / "points"
    for _ in range(_POINTS):
        with pylogseg.open_log(disk / "t-0", segment_bytes=1 << 20) as log:
            _append(log, 100)
        write(stopped(disk), archive)
        with tarfile.open(root / "disk.tar", "w") as tar:
            tar.add(disk, "disk")
        tars += (root / "disk.tar").stat().st_size / 1e6
    if len(list_points(archive)) != _POINTS:
        raise ValueError(f"{archive} does not have {_POINTS} points")
    return [Row(f"bytes stored, {_POINTS} points", _size(archive), "MB", f"{_POINTS} tars", tars, 1, "each byte once")]


def _size(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6


def _unchanged(bench: Bench, root: Path) -> list[Row]:
    """A disk of very many segments that is in the archive already, as a whole command that may open none of them."""
    disk, archive = root / "many", root / "of-many"
    many_segments.write(disk, _SEGMENTS)
    time.sleep(filesystem.SETTLED_NS / 1e9)  # until the clock of the disk tells them from later writes
    write(stopped(disk), archive)
    opened: list[str] = []

    def hook(event: str, given: tuple[Any, ...]) -> None:
        if event == "open" and str(given[0]).startswith(str(disk)) and str(given[0]).endswith(".log"):
            opened.append(str(given[0]))

    sys.addaudithook(hook)
    write(disk, archive)
    if opened:
        raise ValueError(f"{opened[0]} was opened")
    command = [*_COMMAND, "archive", str(disk), str(archive)]
    seconds = min(bench.clock.of_process(command) for _ in range(min(bench.rounds, 3)))
    return [
        Row(f"archive of {_SEGMENTS:,} unchanged segments, whole process", seconds * 1000, "ms", "", None, 2000,
            "the listing of the disk; no segment is opened")
    ]  # fmt: skip
