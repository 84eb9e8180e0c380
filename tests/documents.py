"""The examples in the documents: found, run, compared, and on request brought up to date.

``python tests/documents.py [PAGE...]`` runs the commands of all console blocks, writes what they print now below them,
and makes the tables anew that come from the code; look at the difference before you commit it.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import re
import runpy
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from helpers import forked, page_tables
from helpers.golden import GOLDEN, unpack
from helpers.scratch import memory

from pylogseg.archive.looking import NewestPoint
from pylogseg.archive.pruning import Pruned
from pylogseg.archive.whole_cluster.command import RestoredCluster
from pylogseg.archive.writing import ArchiveResult
from pylogseg.disk.columns import STATS, TABLES
from pylogseg.disk.tier.point import PointHead
from pylogseg.format.columns import get_columns, markdown
from pylogseg.inspect.quorum.copies import MetadataCopy
from pylogseg.inspect.quorum.look import QuorumLook
from pylogseg.inspect.quorum.pairs import CopyPair
from pylogseg.inspect.verify.findings import Finding
from pylogseg.lakehouse.audit_result import Audit, AuditRange, PartitionAudit
from pylogseg.lakehouse.lake import LakeTable
from pylogseg.log.recovery_report import Action, LoadReport
from pylogseg.offline.aligned_result import AlignedDifference, AlignedDifferences, AlignedRange
from pylogseg.offline.comparing import Difference, Differences, DifferentRange
from pylogseg.offline.copying.copied import Copied
from pylogseg.offline.copying.partition import PartitionCopy
from pylogseg.offline.merging.report import ALARM, LOST, MISSING, PIECE, REPLICA
from pylogseg.offline.reindexing import REBUILT_FILE
from pylogseg.offline.rescuing.command import QuorumRescue
from pylogseg.offline.restoring.produced import Produced, ProducedLog
from pylogseg.offline.result import PartitionResult, Result
from pylogseg.values.internal.state_columns import LAGS, STATE_COLUMNS
from pylogseg.walker.gaps import Gap

ROOT = Path(__file__).resolve().parents[1]
#: Lines of ``--json`` by the names that their tables have in pages.
LINES: dict[str, type] = {
    "finding": Finding, "gap": Gap, "action": Action, "recovery": LoadReport,
    "offline partition": PartitionResult, "offline summary": Result,
    "produced partition": ProducedLog, "produced summary": Produced,
    "copy partition": PartitionCopy, "copy summary": Copied,
    "diff partition": Difference, "diff summary": Differences, "diff range": DifferentRange,
    "diff aligned partition": AlignedDifference, "diff aligned summary": AlignedDifferences,
    "diff aligned range": AlignedRange,
    "audit partition": PartitionAudit, "audit summary": Audit, "audit range": AuditRange,
    "lake table": LakeTable, "archive run": ArchiveResult, "archive prune": Pruned, "archive point": PointHead,
    "archive status": NewestPoint,
    "quorum copy": MetadataCopy, "quorum pair": CopyPair, "quorum verdict": QuorumLook, "quorum rescue": QuorumRescue,
    "restored cluster": RestoredCluster,
}  # fmt: skip
#: Details of commands on a log directory.
DETAILS = {
    "merged replica": REPLICA, "merged piece": PIECE, "missing offsets": MISSING, "merge alarm": ALARM,
    "lost records": LOST, "rebuilt file": REBUILT_FILE,
}  # fmt: skip
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
#: Its commands run one after the other, section by section, on directories of their own.
RECIPES = ROOT / "docs" / "operators.md"
_FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COLUMNS = re.compile(r"(<!-- columns of ([\w ]+) -->)\n.*?<!-- end -->", re.DOTALL)
_TABLE = re.compile(r"(<!-- table of ([\w ,]+) -->)\n.*?<!-- end -->", re.DOTALL)
_COMMAND = "$ "
_OF_SEGMENTS = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")


class Block(NamedTuple):
    """A fenced block of a page."""

    language: str
    text: str
    line: int
    """Number of its first line behind the fence, from 1."""


class Command(NamedTuple):
    """A line behind ``$`` and what the page shows below it."""

    command: str
    shown: str


def blocks(page: Path, language: str) -> Iterator[Block]:
    """The blocks of a language in a page."""
    text = page.read_text(encoding="utf-8")
    for match in _FENCE.finditer(text):
        if match[1] == language:
            yield Block(language, match[2], text.count("\n", 0, match.start(2)) + 1)


def commands(block: str) -> list[Command]:
    r"""The commands of a console block; a command goes on behind a backslash at the end of its line.

    >>> commands("$ pylogseg ls \\\n    data\na  b\n$ make docs\n")
    [Command(command='pylogseg ls \\\n    data', shown='a  b\n'), Command(command='make docs', shown='')]
    """
    found: list[Command] = []
    lines = iter(block.splitlines(keepends=True))
    for line in lines:
        if line.startswith(_COMMAND):
            command = line.removeprefix(_COMMAND)
            while command.endswith("\\\n"):
                command += next(lines)
            found.append(Command(command.rstrip("\n"), ""))
        else:
            assert found, f"a console block begins with a command, not with {line!r}"
            found[-1] = Command(found[-1].command, found[-1].shown + line)
    return found


def is_ours(command: str) -> bool:
    """Whether a command is run: those of this package are, what installs or builds it is not."""
    return command.split()[0] == "pylogseg"


def workplace(folder: Path) -> Path:
    """A folder that looks like the root of the repository, where examples may write without a trace there."""
    root = folder / "root"
    root.mkdir()
    for path in ROOT.iterdir():
        if not path.name.startswith("."):
            (root / path.name).symlink_to(path)
    (root / "dead").symlink_to(_written("dead_broker").name)
    (root / "shop").symlink_to(_written("typed_shop").name)
    (root / "quorum").symlink_to(_written("lost_quorum").name)
    tools = folder / "bin"
    tools.mkdir()
    if sys.platform != "win32":
        forked.script(tools / "pylogseg")
    return root


@functools.cache
def _written(name: str) -> tempfile.TemporaryDirectory[str]:
    """The disk that a program of the examples writes."""
    scratch = tempfile.TemporaryDirectory(dir=memory())
    runpy.run_path(str(ROOT / "examples" / f"{name}.py"))["write"](Path(scratch.name))
    return scratch


@contextlib.contextmanager
def kitchen(folder: Path) -> Iterator[Path]:
    """A folder for one recipe: log directories that a real Kafka wrote, to be changed at will.

    ``kafka`` is the directory of the other examples; the broker of ``lagging`` has not compacted for a while; in
    ``broken`` a bit of a segment has changed and there was no clean shutdown. ``full`` is a file system without a free
    byte where this program may mount one, with the examples as a broker leaves them that died of it. ``unindexed``,
    ``foreign``, ``twice`` and ``nameless`` have each what their recipe is for, ``replicas`` one partition of three
    brokers, and ``target`` is a directory of another cluster that has the topics, but no record.
    """
    root = workplace(folder)
    shutil.copytree(ROOT / "examples" / "data", root / "kafka")
    golden = Path(_unpacked().name) / "golden" / "broker-4.3"
    shutil.copytree(golden / "compact-2-before" / "data1", root / "lagging")
    shutil.copytree(golden / "damage" / "bit-second" / "in", root / "broken" / "damaged-1")
    for number, (case, size) in enumerate((("intact", 3), ("bit-second", 5), ("intact", 5)), 1):
        part = root / "replicas" / f"broker{number}" / "damaged-1"
        shutil.copytree(golden / "damage" / case / "in", part)
        kept = {path.stem for path in sorted(part.glob("*.log"))[:size]}
        for path in part.iterdir():
            if path.suffix in _OF_SEGMENTS and path.stem not in kept:
                path.unlink()
        owned(part.parent, number)
    owned(root / "broken")
    directory(root / "unindexed", "codec-none-1")
    for path in (root / "unindexed").glob("*/*.index"):
        path.unlink()
    directory(root / "foreign", "codec-lz4-1", "txn-a-0", number=7)
    shutil.copytree(root / "foreign" / "txn-a-0", root / "foreign" / "txn-a-0.bak")
    (root / "foreign" / "lost+found").mkdir()
    for number, names in enumerate((["codec-zstd-0", "txn-a-0"], ["codec-gzip-0", "txn-a-0"]), 1):
        for state in ("twice", "nameless", "jbod"):
            disk = root / state / f"disk{number}"
            directory(disk, *(names if state == "twice" else names[:1]))
            owned(disk, 1, f"disk{number}")
    for path in (root / "twice" / "disk2" / "txn-a-0").glob("00000000000000000119.*"):
        path.unlink()
    register(root, [root / "nameless" / f"disk{number}" for number in (1, 2)])
    (root / "nameless" / "disk2" / "meta.properties").write_bytes(b"")
    directory(root / "target", "codec-zstd-0", "codec-gzip-0", number=7, cluster="anotherClusterOfTests")
    for path in (root / "target").glob("*-?/*"):
        if path.name != "partition.metadata":
            path.unlink()
    for path in (root / "target").glob("*-checkpoint"):
        path.unlink()
    with filled(root / "full"):
        yield root


@functools.cache
def _unpacked() -> tempfile.TemporaryDirectory[str]:
    scratch = tempfile.TemporaryDirectory(dir=memory())
    archives = [GOLDEN / "broker-4.3" / f"{name}.tar.xz" for name in ("compact-2-before", "damage")]
    folders = ("compact-2-before/data1", "damage/intact/in", "damage/bit-second/in")
    unpack(archives, Path(scratch.name) / "golden", tuple(f"broker-4.3/{folder}/" for folder in folders))
    return scratch


def directory(log_dir: Path, *names: str, number: int = 1, cluster: str = "pylogsegOracleBrokerAA") -> None:
    """A log directory with some of the partitions of the examples, of a broker that was stopped."""
    examples = ROOT / "examples" / "data"
    for name in names:
        shutil.copytree(examples / name, log_dir / name)
    for path in examples.glob("*-offset-checkpoint"):
        lines = path.read_text(encoding="ascii").splitlines()[2:]
        kept = [line for line in lines if "-".join(line.split()[:2]) in names]
        (log_dir / path.name).write_text("\n".join(["0", str(len(kept)), *kept]) + "\n", encoding="ascii")
    shutil.copy(examples / ".kafka_cleanshutdown", log_dir)
    owned(log_dir, number, f"disk{number}", cluster)


def owned(log_dir: Path, node: int = 1, disk: str = "disk", cluster: str = "pylogsegOracleBrokerAA") -> None:
    """Give a log directory its `meta.properties`."""
    directory_id = f"node{node}{disk}".ljust(22, "A")
    lines = ["version=1", f"cluster.id={cluster}", f"node.id={node}", f"directory.id={directory_id}"]
    (log_dir / "meta.properties").write_text("\n".join(lines) + "\n", encoding="ascii")


def register(root: Path, log_dirs: list[Path]) -> None:
    """Note what the cluster's metadata has of log directories: their ids, a line each."""
    texts = [(log_dir / "meta.properties").read_text(encoding="ascii") for log_dir in log_dirs]
    ids = [line.partition("=")[2] for text in texts for line in text.splitlines() if line.startswith("directory.id=")]
    (root / "registered").write_text("\n".join(ids) + "\n", encoding="ascii")


@contextlib.contextmanager
def filled(folder: Path) -> Iterator[None]:
    """The examples after an unclean stop, on a file system of their size: that takes rights, else it is a folder."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(folder)]
    mounted = sys.platform == "linux" and os.geteuid() == 0 and not subprocess.run(mount, check=False).returncode
    try:
        shutil.copytree(ROOT / "examples" / "data", folder / "kafka")
        for path in [folder / "kafka" / ".kafka_cleanshutdown", *folder.rglob("*.deleted")]:
            path.unlink()
        if mounted:
            resize(folder, os.statvfs(folder))
            assert os.statvfs(folder).f_bavail == 0
        yield
    finally:
        if mounted:
            subprocess.run(["umount", str(folder)], check=True)


def resize(folder: Path, info: os.statvfs_result) -> None:
    """Let a mounted file system have no more blocks than are in use."""
    size = (info.f_blocks - info.f_bfree) * info.f_frsize
    subprocess.run(["mount", "-o", f"remount,size={size}", str(folder)], check=True)


def with_tables(text: str) -> str:
    """The text of a page with its tables made from the code; those of columns without where each row is from."""
    lines = {name: get_columns(kind) for name, kind in LINES.items()}
    state = {f"state {name}": columns for name, columns in STATE_COLUMNS.items()}
    declared = TABLES | state | {"lags": LAGS, "stats": STATS} | lines | DETAILS
    place = {*TABLES["batches"]} & {*TABLES["segments"]} & {*TABLES["indexes"]}

    def table(match: re.Match[str]) -> str:
        shown = [each for each in declared[match[2]] if each not in place]
        return f"{match[1]}\n\n{markdown(shown)}\n<!-- end -->"

    text = _COLUMNS.sub(table, text)
    return _TABLE.sub(lambda match: f"{match[1]}\n\n{page_tables.TABLES[match[2]]()}\n<!-- end -->", text)


def recipes() -> Iterator[tuple[str, list[Command]]]:
    """The sections of the operator's guide that have commands: heading, commands."""
    text = RECIPES.read_text(encoding="utf-8")
    for section in re.split(r"^###? ", text, flags=re.MULTILINE)[1:]:
        consoles = [match[2] for match in _FENCE.finditer(section) if match[1] == "console"]
        found = [command for block in consoles for command in commands(block)]
        if found:
            yield section.partition("\n")[0], found


def run(command: str, root: Path) -> str:
    """What a command prints, errors among it, in a `workplace`; an exit code other than 0 is shown as a last line."""
    tools = root.parent / "bin"
    environment = {**os.environ, "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}", "COLUMNS": "100", "TZ": "UTC"}
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=root,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        timeout=120,
        check=False,
    )
    code = f"(exit code {done.returncode})\n" if done.returncode else ""
    return done.stdout + code


def refreshed(text: str, root: Path, *, all_of_them: bool = False) -> str:
    """A text with what its commands print now; those of this package, or all."""

    def refresh(match: re.Match[str]) -> str:
        if match[1] != "console":
            return match[0]
        runs = [(c, all_of_them or is_ours(c.command)) for c in commands(match[2])]
        parts = [(c, run(c.command, root) if is_run else c.shown) for c, is_run in runs]
        return "```console\n" + "".join(f"{_COMMAND}{c.command}\n{shown}" for c, shown in parts) + "```"

    return _FENCE.sub(refresh, text)


def cooked() -> str:
    """The operator's guide with what its commands print now."""
    head, *sections = re.split(r"^(?=###? )", RECIPES.read_text(encoding="utf-8"), flags=re.MULTILINE)
    for section in sections:
        with tempfile.TemporaryDirectory(dir=memory()) as folder, kitchen(Path(folder)) as root:
            head += refreshed(section, root, all_of_them=True)
    return head


def main() -> None:
    """Bring pages up to date."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="PAGE", help="such as cli or README; default: all")
    names = parser.parse_args().names
    if unknown := {*names} - {page.stem for page in PAGES}:
        parser.error(f"no such page: {', '.join(sorted(unknown))}")
    with tempfile.TemporaryDirectory(dir=memory()) as folder:
        root = workplace(Path(folder))
        for page in (page for page in PAGES if not names or page.stem in names):
            text = cooked() if page == RECIPES else refreshed(with_tables(page.read_text(encoding="utf-8")), root)
            if text != page.read_text(encoding="utf-8"):
                page.write_text(text, encoding="utf-8")
                print(f"changed: {page.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
