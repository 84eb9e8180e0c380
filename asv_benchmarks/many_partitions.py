"""Disks and tiers of many partitions: what `merge`, `restore`, `verify` and `archive` need of them, each in a process.

    python asv_benchmarks/many_partitions.py [--partitions N ...] [--only REGEX] [--folder DIR]

Each partition has three small segments, on the disks of three brokers and, but for the last one, in a tier. One line a
command: seconds, those of the processors (which other work on the machine does not change), the largest memory, and how
many files were open at once. Twice the partitions should take twice the seconds.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[1] / "tests"))
from helpers.tiers import copy_locally

import pylogseg
from pylogseg.format.files.checkpoint import encode_offset_checkpoint
from pylogseg.format.files.status import PartitionMetadata, encode_partition_metadata
from pylogseg.format.uuids import format_uuid

#: Partitions of a topic.
_A_TOPIC = 50
_META = "version=1\ncluster.id=3Db5QLSqSZieL3rJBUUegA\nnode.id={}\n"
_CHECKPOINTS = ("recovery-point-offset-checkpoint", "replication-offset-checkpoint")


def write(root: Path, count: int) -> None:
    """Make three disks, and a tier of what the first one has; files that are alike are links to one."""
    one, tier = root / "one" / "t-0", root / "one-tier"
    with pylogseg.open_log(one, segment_bytes=2000, leader_epoch=3) as log:
        while len(log.engine.segments) < 3:
            log.append([{"key": b"k", "value": b"v" * 80}] * 5)
        end = log.log_end_offset
    (one / "partition.metadata").unlink(missing_ok=True)
    copy_locally(tier, one)
    (uploaded,) = tier.iterdir()
    for name in ("b1", "b2", "b3"):
        write_disk(root / name, count, one, end, os.link, int(name[1:]))
    for topic, partition in _partitions(count):
        _link(uploaded, root / "tier" / f"{topic}-{partition}-{_topic_id(topic)}")


def write_disk(
    disk: Path, count: int, log: Path, end: int, copy_function: Callable[..., object], node_id: int = 1
) -> None:
    """Make the disk of a broker whose partitions all have the files of one log, which ends at an offset."""
    disk.mkdir()
    (disk / "meta.properties").write_text(_META.format(node_id))
    partitions = _partitions(count)
    for name in _CHECKPOINTS:
        (disk / name).write_bytes(encode_offset_checkpoint(dict.fromkeys(partitions, end)))
    for topic, partition in partitions:
        folder = disk / f"{topic}-{partition}"
        shutil.copytree(log, folder, copy_function=copy_function)
        (folder / "partition.metadata").unlink(missing_ok=True)
        (folder / "partition.metadata").write_bytes(encode_partition_metadata(PartitionMetadata(_topic_id(topic))))


def _partitions(count: int) -> list[tuple[str, int]]:
    return [(f"topic-{number // _A_TOPIC}", number % _A_TOPIC) for number in range(count)]


def _topic_id(topic: str) -> str:
    return format_uuid(int(topic.rpartition("-")[2]).to_bytes(15, "big") + b"\7")


def _link(source: Path, target: Path) -> None:
    shutil.copytree(source, target, copy_function=os.link)


def measured(command: list[str], folder: Path) -> str:
    """Run a command of the shell; what it took."""
    before, files = time.perf_counter(), 0
    with (folder / "output").open("wb") as output:
        words = [sys.executable, "-m", "pylogseg", *command]
        process = subprocess.Popen(words, cwd=folder, stdout=output, stderr=subprocess.STDOUT)
        while True:
            pid, status, used = os.wait4(process.pid, os.WNOHANG)
            if pid:
                break
            with contextlib.suppress(OSError):
                files = max(files, len(os.listdir(f"/proc/{process.pid}/fd")))
            time.sleep(0.02)
    process.returncode = os.waitstatus_to_exitcode(status)
    seconds, processor = time.perf_counter() - before, used.ru_utime + used.ru_stime
    return (
        f"{seconds:7.1f} s, {processor:6.1f} s of processors, {used.ru_maxrss >> 10:5} MB, {files:4} files, "
        f"exit code {process.returncode}"
    )


def main() -> None:
    """Print a line for each command and number of partitions."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, nargs="+", default=[1000, 2000, 4000])
    parser.add_argument("--only", default="", metavar="REGEX", help="only commands that match")
    parser.add_argument("--folder", type=Path, help="where the files are made")
    asked = parser.parse_args()
    commands = [
        ["merge", "b1", "b2", "b3", "--into", "planned", "-n", "-q"],
        ["merge", "b1", "b2", "b3", "--into", "merged", "-q"],
        ["merge", "b1", "b2", "b3", "--into", "merged-by-two", "-q", "--jobs", "2"],
        ["restore", "localtier+file://{}/tier", "restored", "-q"],
        ["restore", "b1", "copied", "-q"],
        ["repair", "b3", "--from", "b1", "-q"],
        ["verify", "localtier+file://{}/tier", "-q"],
        ["verify", "b1", "--tier", "localtier+file://{}/tier", "-q"],
        ["ls", "localtier+file://{}/tier"],
        ["diff", "b1", "b2"],
        ["archive", "b1", "archive"],
        ["archive", "b1", "archive"],  # nothing is new
    ]
    for count in asked.partitions:
        with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
            root = Path(folder)
            write(root, count)
            for words in commands:
                command = [word.format(folder) for word in words]
                if not re.search(asked.only, shown := " ".join(words)):
                    continue
                if words[0] == "restore":
                    (root / words[2]).mkdir()
                print(f"{count:6} partitions  {measured(command, root)}  {shown}", flush=True)


if __name__ == "__main__":
    main()
