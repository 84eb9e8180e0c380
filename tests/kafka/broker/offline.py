#!/usr/bin/env python3
"""A real broker opens what the offline commands left, and gives its consumers what we say is there.

    offline.py [CASE...]

Each case takes the log directories of a golden broker, runs commands of `pylogseg.offline` on both, and lets a broker
start on them twice: as after an orderly stop, where it must trust the directories without a recovery, and as after a
crash, where it must read every segment again. It may not say a word about the partitions at the level of a warning. A
consumer then reads them, read_uncommitted and read_committed, and every record is compared with what the files say by
our own reader; producers append, and that is read as well. A minute for each case; all of them if none is named. Exit
code 0 if all is well.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

# A neighbour, which is no package:
from one_broker import Broker, check, go_on, read

from pylogseg import offline
from pylogseg.offline.result import Result

HERE = Path(__file__).resolve().parent
#: Behind the golden cleanings, before a tombstone of them has to go.
NOW_MS = 1_795_243_200_000
#: Partitions that records are deleted of: none with a transaction that is open, which a broker aborts when it starts.
CHOSEN = r"(mixed|codec-\w+|txn-(b|zstd)|producers)-\d+"


class Case(NamedTuple):
    """Commands on the directories of a golden broker.

    Attributes
    ----------
    golden : str
        Folder in `broker-4.3`.
    topics : list of str
        Whose records are compared.
    work : callable
        Gets a log directory, and runs the commands.
    """

    golden: str
    topics: list[str]
    work: Callable[[Path], list[Result]]


def metadata(log_dir: Path) -> str:
    """Where the topics' settings are: the first directory of a broker has them for all."""
    return str(log_dir.parent / "data0" / "__cluster_metadata-0")


def compact(log_dir: Path) -> list[Result]:
    return [offline.compact(log_dir, include_active=True, cluster_metadata=metadata(log_dir), now_ms=NOW_MS)]


def compact_in_rounds(log_dir: Path) -> list[Result]:
    names = [name for name in os.listdir(log_dir) if name.startswith("cmp-")]
    return [offline.compact(log_dir, topic=names, map_bytes=6000, cluster_metadata=metadata(log_dir), now_ms=NOW_MS)]


def retain(log_dir: Path) -> list[Result]:
    return [offline.retain(log_dir, max_bytes=10_000, cluster_metadata=metadata(log_dir), now_ms=NOW_MS)]


def retain_nothing(log_dir: Path) -> list[Result]:
    return [offline.retain(log_dir, ms=0, cluster_metadata=metadata(log_dir), now_ms=NOW_MS)]


def delete_records(log_dir: Path) -> list[Result]:
    names = [name for name in os.listdir(log_dir) if re.fullmatch(CHOSEN, name)]
    return [offline.delete_records(log_dir, dict.fromkeys(names, 5), cluster_metadata=metadata(log_dir), now_ms=NOW_MS)]


def into(log_dir: Path) -> list[Result]:
    """A copy in place of the directory; what is not chosen is there as it was."""
    copy = log_dir.with_name("copy")
    result = offline.compact(
        log_dir, into=str(copy), include_active=True, cluster_metadata=metadata(log_dir), now_ms=NOW_MS
    )
    for path in copy.iterdir():
        if path.is_dir():
            shutil.rmtree(log_dir / path.name)
            shutil.move(path, log_dir / path.name)
    points = (copy / "recovery-point-offset-checkpoint").read_text()
    assert points == (log_dir / "recovery-point-offset-checkpoint").read_text() or "__cluster_metadata" not in points
    shutil.rmtree(copy)
    return [result]


COMPACTED = ["cmp-lz4", "cmp-txn", "cmp-idem", "cmp-short"]
CASES = {
    "compact": Case("compact-0-before", COMPACTED, compact),
    "compact-again": Case("compact-2-before", COMPACTED, compact_in_rounds),
    "retain": Case("codecs", ["codec-none", "codec-zstd", "mixed"], retain),
    "retain-nothing": Case("codecs", ["codec-none", "producers"], retain_nothing),
    "delete-records": Case("codecs", ["codec-gzip", "mixed", "producers"], delete_records),
    "delete-records-of-transactions": Case("txn", ["txn-b", "txn-zstd"], delete_records),
    "compact-into": Case("compact-0-before", COMPACTED, into),
}


def check_words(what: str, broker: Broker, topics: list[str], *, is_clean: bool) -> None:
    """No warning about the partitions; a recovery where there has to be one, and none elsewhere."""
    warned, recovered = broker.warned_and_recovered(topics)
    trusted = broker.words("Skipping recovery of")
    if warned or (is_clean and (recovered or len(trusted) != 2)) or (not is_clean and trusted):
        sys.exit("\n".join([f"{what}: the broker said:", *warned[:20], *recovered[:20], *trusted]))
    print(f"{what}: no warning; {len(recovered)} segments recovered, {len(trusted)} directories trusted", flush=True)


def run(name: str, case: Case, golden: Path, folder: Path) -> None:
    """One case, from the commands to the producers."""
    for number in range(2):
        shutil.copytree(golden / "broker-4.3" / case.golden / f"data{number}", folder / f"data{number}")
    log_dirs = sorted(folder.glob("data?"))
    for log_dir in log_dirs:
        for result in case.work(log_dir):
            assert result.exit_code == 0, [each.reason for each in result.failed]
            assert result.is_closed_clean or result.log_dir != str(log_dir)
            done = [each for each in result if each.state == "done"]
            sizes = (
                sum(each.bytes_before for each in done),
                sum(each.bytes_after for each in done),
            )
            print(f"{name}: {log_dir.name}: {len(done)} partitions changed, {sizes[0]} to {sizes[1]} bytes", flush=True)
    truth = {each: read(log_dirs, case.topics, each) for each in ("read_uncommitted", "read_committed")}
    broker = Broker(folder)
    try:
        for is_clean in (True, False):
            how = f"{name}, after {'an orderly stop' if is_clean else 'a crash'}"
            if not is_clean:
                for marker in folder.glob("data?/.kafka_cleanshutdown"):
                    marker.unlink()
                for points in folder.glob("data?/recovery-point-offset-checkpoint"):
                    points.unlink()
            broker.start()
            for isolation_level, expected in truth.items():
                check(f"{how}, {isolation_level}", expected, broker.consumed(case.topics, isolation_level))
            check_words(how, broker, case.topics, is_clean=is_clean)
            if is_clean:
                broker("stop")
        go_on(name, broker, log_dirs, truth["read_uncommitted"], case.topics[0])
    finally:
        broker("stop")


def main(arguments: list[str]) -> int:
    """Run from the command line."""
    if arguments and arguments[0] in ("-h", "--help"):
        print(__doc__)
        return 0
    sys.path.insert(0, str(HERE.parents[1]))
    from helpers.golden import GOLDEN, unpack

    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory(prefix="pylogseg-offline-") as scratch:
        golden = Path(scratch) / "golden"
        cases = {name: CASES[name] for name in arguments or CASES}
        wanted = {case.golden for case in cases.values()}
        archives = [path for path in (GOLDEN / "broker-4.3").glob("*.tar.xz") if path.name.split(".")[0] in wanted]
        unpack(archives or sorted((GOLDEN / "broker-4.3").glob("*.tar.xz")), golden)
        for name, case in cases.items():
            run(name, case, golden, Path(scratch) / name)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
