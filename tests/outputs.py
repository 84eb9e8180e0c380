"""A golden of answers: the exit code and the JSON of each command, over whole and damaged disks, a line each.

`python tests/outputs.py` writes `outputs.txt` anew, and `python tests/outputs.py FOLDER` writes each answer into a file
of FOLDER: two such folders of two versions show what changed. `test_golden_answers.py` compares.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from helpers.damaged_logs import change_byte
from helpers.shell import pylogseg

ROOT = Path(__file__).parents[1]
FILE = Path(__file__).with_name("outputs.txt")

#: Commands that only read. `DISK` is the directory, `LOG` a partition of it, `WHOLE` the same directory without damage.
READING = (
    "ls DISK --json", "ls DISK --segments --json", "ls DISK LOG --segments --json",
    "cat DISK LOG", "cat DISK --on-corrupt skip --limit 400", "cat DISK LOG --tail 3 --format csv",
    "cat DISK LOG --isolation-level read_committed", "latest DISK LOG", "grep a DISK LOG",
    "sql DISK SQL --output json", "stats DISK --json", "verify DISK --json", "verify DISK LOG --json",
    "groups DISK --json", "transactions DISK --json", "report DISK --json",
    "cluster DISK topics --json", "cluster DISK partitions --json", "cluster DISK configs --json",
    "cluster DISK brokers --json", "diff DISK WHOLE --json", "diff DISK/LOG WHOLE/LOG --json",
    "export DISK LOG --out OUT --json", "export DISK LOG --out OUT --json --on-corrupt skip",
)  # fmt: skip
#: Commands that change a directory, each on a copy of its own.
CHANGING = (
    "recover DISK --no-keep --json", "repair DISK --no-keep --json", "reindex DISK --json",
    "reindex DISK --only epochs --json", "compact DISK LOG --json", "compact DISK LOG -c cleanup.policy=compact --json",
    "retain DISK LOG --before-offset 5 --json --force", "delete-records DISK --offset LOG=3 --json --force",
    "truncate DISK LOG --to 5 --json", "recode DISK codec-gzip-0 --compression none --json",
    "redact DISK LOG --key nobody --json", "copy DISK OUT --json", "copy DISK/LOG OUT --json",
    "move DISK EMPTY LOG --json", "merge DISK --into OUT --json", "lake DISK LOG delta:OUT --json",
)  # fmt: skip
LOG = "txn-a-0"
SEGMENT = f"{0:020}.log"
QUERY = 'SELECT topic, partition, count(*) AS n, max("offset") AS last FROM "txn-a" GROUP BY ALL ORDER BY ALL'
#: All files get this time, as a checkout gives them another one on each machine.
_MODIFIED = 1_790_000_000


def _flip(folder: Path) -> None:
    change_byte(folder / LOG / SEGMENT)


def _cut(folder: Path) -> None:
    path = folder / LOG / SEGMENT
    os.truncate(path, path.stat().st_size - 7)


def _zero(folder: Path) -> None:
    path = folder / LOG / SEGMENT
    size = path.stat().st_size
    os.truncate(path, size - 100)
    os.truncate(path, size)


def _snapshots(folder: Path) -> None:
    for path in (folder / "__cluster_metadata-0").glob("*.checkpoint"):
        path.write_bytes(b"?" * path.stat().st_size)


#: What is wrong with a disk, by name.
HARMS: dict[str, Callable[[Path], object]] = {
    "whole": lambda folder: None,
    "bit": _flip,
    "cut": _cut,
    "zeros": _zero,
    "no segment": lambda folder: (folder / LOG / SEGMENT).unlink(),
    "no folder": lambda folder: shutil.rmtree(folder / LOG),
    "no high watermarks": lambda folder: (folder / "replication-offset-checkpoint").unlink(),
    "empty log starts": lambda folder: (folder / "log-start-offset-checkpoint").write_bytes(b""),
    "epochs": lambda folder: (folder / LOG / "leader-epoch-checkpoint").write_bytes(b"?"),
    "topic id": lambda folder: (folder / LOG / "partition.metadata").write_bytes(b"?"),
    "meta.properties": lambda folder: (folder / "meta.properties").write_bytes(b"?"),
    "snapshots": _snapshots,
}


class Answer(NamedTuple):
    """An answer of a command, with what differs from run to run taken out."""

    harm: str
    words: str
    code: int
    text: str

    def __str__(self) -> str:
        digest = hashlib.sha256(self.text.encode()).hexdigest()[:16]
        return f"{self.harm}: {self.words}: {self.code} {len(self.text.splitlines())} {digest}"


def answers(harm: str, folder: Path) -> Iterator[Answer]:
    """Run each command on a disk with a harm; `folder` is an empty folder for the disks."""
    whole = _disk(folder / "whole", "whole")
    disk = whole if harm == "whole" else _disk(folder / "disk", harm)
    for number, words in enumerate((*READING, *CHANGING)):
        target = _disk(folder / f"disk-{number}", harm) if words in CHANGING else disk
        out = folder / f"out-{number}"
        names: dict[str, object] = {"DISK": target, "WHOLE": whole, "OUT": out, "SQL": QUERY, "LOG": LOG}
        if "EMPTY" in words:
            out.mkdir()
            names["EMPTY"] = out
        done = pylogseg(*(_argument(word, names) for word in words.split()))
        text = _plain(done.out.decode(), folder)
        if words.startswith("lake"):  # the size of Parquet differs by the version of pyarrow
            text = re.sub(r'"size": \d+', '"size": ...', text)
        yield Answer(harm, words, done.code, text)
        if words in CHANGING:
            shutil.rmtree(target)


def _argument(word: str, names: dict[str, object]) -> str:
    return re.sub("|".join(names), lambda match: str(names[match[0]]), word)


def _disk(path: Path, harm: str) -> Path:
    shutil.copytree(ROOT / "examples" / "data", path)
    HARMS[harm](path)
    for each in (path, *path.rglob("*")):
        os.utime(each, (_MODIFIED, _MODIFIED))
    return path


def _plain(text: str, folder: Path) -> str:
    text = re.sub(r"(disk|out)-\d+", r"\1", text.replace(str(folder), "FOLDER"))
    return re.sub(r'"(madeMs|tookMs|pylogseg|freeBytes|totalBytes|ageMs)": [^,]+', r'"\1": ...', text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", help="write each answer into a file of this folder")
    target = parser.parse_args().folder
    lines = []
    for harm in HARMS:
        with tempfile.TemporaryDirectory() as scratch:
            for number, answer in enumerate(answers(harm, Path(scratch))):
                lines.append(f"{answer}\n")
                if target is not None:
                    path = target / harm.replace(" ", "-") / f"{number:02} {answer.words.replace('/', '_')}.txt"
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_text(f"exit code {answer.code}\n{answer.text}", encoding="utf-8")
    if target is None:
        FILE.write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
