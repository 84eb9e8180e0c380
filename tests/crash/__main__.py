"""Look at more crashes than the test suite does, and for longer: `python tests/crash --help`."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from crash import kills, readers, real_disks, sweeps, writer
from crash.judge import Broken


def images(given: argparse.Namespace) -> int:
    """Judge crash images of all workloads, and of random ones until there are enough."""
    logging.disable(logging.CRITICAL)  # a torn snapshot is news, in each image anew
    return sweeps.report(sweeps.many_images(given.count, given.seed), given.count)


def faults(given: argparse.Namespace) -> int:
    """Let each operation fail, with EIO, ENOSPC, a short write, a failed sync."""
    logging.disable(logging.CRITICAL)
    return sweeps.report(sweeps.many_faults(given.seed), None)


def read(given: argparse.Namespace) -> int:
    """Read a log in threads and processes while it is written."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
        try:
            seen = readers.crowd(Path(folder), given.seconds, given.threads, given.processes, given.seed)
        except Broken as error:
            print(error)
            return 1
    print("{} steps of the writer, {} batches read by threads, {} records by processes".format(*seen))
    return 0


def kill(given: argparse.Namespace) -> int:
    """Kill `merge`, `restore` and `repair --from` at each of their system calls."""
    logging.disable(logging.CRITICAL)
    return kills.report(given.cases or list(kills.CASES), given.every, given.first)


def cuts(given: argparse.Namespace) -> int:
    """Pull the plug of real file systems (root, loop devices)."""
    return real_disks.report_cuts(given.kinds or real_disks.KINDS, given.scratch, given.cuts, given.seed)


def rates(given: argparse.Namespace) -> int:
    """Measure what real file systems do in a second (root, loop devices)."""
    real_disks.report_rates(given.kinds or real_disks.KINDS, given.scratch)
    return 0


def write(given: argparse.Namespace) -> int:
    """Write logs until killed, and tell what was promised: the writer of cuts."""
    writer.run_for_ever(given.folder, given.seed, given.steps, sys.stdout.buffer)
    return 0


def kind(name: str) -> str:
    """A file system that `cuts` and `rates` know."""
    if name not in real_disks.KINDS:
        raise argparse.ArgumentTypeError(f"unknown file system {name!r}; expected {', '.join(real_disks.KINDS)}")
    return name


def parser() -> argparse.ArgumentParser:
    """The commands and their options."""
    outer = argparse.ArgumentParser(prog="python tests/crash", description=(__doc__ or "").partition(":")[0])
    commands = outer.add_subparsers(required=True, metavar="COMMAND")
    made = {}
    works = {
        "images": images,
        "faults": faults,
        "readers": read,
        "kills": kill,
        "cuts": cuts,
        "rates": rates,
        "writer": write,
    }
    for name, work in works.items():
        made[name] = commands.add_parser(name, help=work.__doc__, description=work.__doc__)
        made[name].set_defaults(work=work)
    made["images"].add_argument("--count", type=int, default=100_000, help="images to judge (100000)")
    for name in ("images", "faults", "readers", "cuts"):
        made[name].add_argument("--seed", type=int, default=0)
    made["readers"].add_argument("--seconds", type=float, default=60)
    made["readers"].add_argument("--threads", type=int, default=2)
    made["readers"].add_argument("--processes", type=int, default=2)
    made["kills"].add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(kills.CASES)} (all)")
    made["kills"].add_argument("--every", type=int, default=1, help="kill at every so many-th call (1)")
    made["kills"].add_argument("--first", type=int, default=0, help="the first call to kill at (0)")
    for name in ("cuts", "rates"):
        which = f"of {', '.join(real_disks.KINDS)} (all)"
        made[name].add_argument("kinds", nargs="*", type=kind, metavar="KIND", help=which)
        made[name].add_argument("--scratch", help="folder for the images, about 1 GiB; a tmpfs is quick")
    made["cuts"].add_argument("--cuts", type=int, default=200, help="cuts of each file system (200)")
    made["writer"].add_argument("folder")
    made["writer"].add_argument("seed", type=int)
    made["writer"].add_argument("steps", type=int, nargs="?", default=200)
    return outer


def main(arguments: list[str]) -> int:
    """Run from the command line."""
    given = parser().parse_args(arguments)
    return int(given.work(given))


if __name__ == "__main__":
    os.umask(0o077)
    sys.exit(main(sys.argv[1:]))
