"""Runs of `pylogseg archive` that are killed, and what has to be true of the archive after each.

What a killed run leaves is bound: of each of its workers (``--jobs``) the objects of at most one segment without their
manifest, which is put last. A segment with a manifest is whole, and no later run uploads its offsets again; no object
that was whole at the kill is ever stored a second time. So what is uploaded twice is at most what those objects hold.
"""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from archive.histories import History, Rows, rows_of

import pylogseg
from helpers.object_servers import BUCKET, Fault, ObjectServer, Request
from helpers.shell import command, environment
from helpers.tiers import Key
from pylogseg.archive import list_points, open_archive, prune, read_point, restore_point
from pylogseg.archive.verifying import ArchiveSummary, verify_archive
from pylogseg.disk.stores import store_of
from pylogseg.disk.tier.point import SUFFIXES
from pylogseg.inspect.verify.findings import Level

_PATIENCE_S = 120.0


#: Runs the shell in a process that is killed at a call that has to do with the archive's folder, or a little later.
_HOOKED = """
import os, signal, sys
at, delay, root = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
del sys.argv[1:4]
count = 0
def hook(event, given):
    global count
    if (event == "open" or event.startswith("os.")) and any(root in str(each) for each in given[:2]):
        count += 1
        if count == at and delay:
            signal.setitimer(signal.ITIMER_REAL, delay)
        elif count == at:
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(hook)
from pylogseg.__main__ import main
main()
"""


class Place(Protocol):
    """Where the archive is: what is stored there, by names, with what changes when it is stored again."""

    url: str
    options: dict[str, Any]
    environment: dict[str, str]

    def stored(self) -> dict[str, tuple[int, ...]]: ...
    def killed(self, words: list[str], given: dict[str, str], chance: random.Random) -> tuple[bool, str]: ...


class Folder:
    """A folder of this machine; a run is killed at a call that reads or changes it, or a few milliseconds later."""

    def __init__(self, root: Path) -> None:
        self.url, self.options, self.environment = str(root), dict[str, Any](), dict[str, str]()
        self._root = root

    def stored(self) -> dict[str, tuple[int, ...]]:
        """Sizes, and which file it is."""
        found = {}
        for path in self._root.rglob("*"):
            if path.is_file() and not any(part.startswith(".") for part in path.relative_to(self._root).parts):
                status = path.stat()
                found[path.relative_to(self._root).as_posix()] = status.st_size, status.st_ino, status.st_mtime_ns
        return found

    def killed(self, words: list[str], given: dict[str, str], chance: random.Random) -> tuple[bool, str]:
        """Run, and kill; return whether it came so far, and what was said."""
        at, delay = int(200 ** chance.random()), chance.choice((0, 0, chance.random() / 30))
        start = [sys.executable, "-c", _HOOKED, str(at), str(delay), str(self._root)]
        ran = subprocess.run([*start, *words], env=given, capture_output=True, timeout=_PATIENCE_S, check=False)
        assert ran.returncode in (0, -signal.SIGKILL, -signal.SIGALRM), ran.stderr
        return ran.returncode != 0, ran.stderr.decode()


class Bucket:
    """A bucket on the loopback; a run is killed at a request, before or after it is done."""

    def __init__(self, server: ObjectServer) -> None:
        self.url, self.options, self.environment = f"s3://{BUCKET}/archive", server.options, server.environment
        self._server, self._requests = server, 120

    def stored(self) -> dict[str, tuple[int, ...]]:
        """Sizes, and how often each was stored."""
        found = store_of(self.url, self.options).list()
        return {name: (each.size, self._server.puts[f"archive/{name}"]) for name, each in found.items()}

    def killed(self, words: list[str], given: dict[str, str], chance: random.Random) -> tuple[bool, str]:
        """Run, and kill; return whether it came so far, and what was said."""
        at, is_done, count, lock = chance.randint(1, self._requests), chance.random() < 0.5, 0, threading.Lock()
        running = subprocess.Popen(command(*words), env=given, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

        def meets(request: Request) -> Fault | None:
            nonlocal count
            with lock:
                count += 1
                if count < at:
                    return None
            running.kill()
            return "lost" if is_done else "broken"

        self._server.meets = meets
        _, said = running.communicate(timeout=_PATIENCE_S)
        self._server.settle()
        self._server.meets = lambda request: None
        assert running.returncode in (0, -signal.SIGKILL), said
        if running.returncode == 0:
            self._requests = max(2 * count, 20)
        return running.returncode != 0, said.decode()


class KilledRuns:
    """An archive of a disk that changes, by runs of which many are killed."""

    def __init__(self, root: Path, place: Place, chance: random.Random) -> None:
        self.place, self.chance, self.root = place, chance, root
        self.history = History(root)
        # The broker may be stopped within its first cleaning: without an entry, nobody knows that there was one.
        (self.history.home / "cleaner-offset-checkpoint").write_text("0\n1\nstate 0 0\n")
        Key.make("ops", root / "keys")
        (root / "keys" / "ops.public").rename(root / "ops.pem")
        (root / "tmp").mkdir()
        self.options = {**place.options, "tier_keys": root / "keys"}
        self._environment = {**environment(), **place.environment, "TMPDIR": str(root / "tmp")}
        self.rows: dict[str, Rows] = {}
        self.count: Counter[str] = Counter()
        #: Segments that killed runs had begun, and whole ones that no point needs: the names of objects, no suffix.
        self.left, self.idle = set[str](), set[str]()

    def change(self) -> None:
        """Let something happen on the disk."""
        history, chance = self.history, self.chance
        steps: list[tuple[Callable[[], None], float]] = [
            (lambda: history.write(chance.randint(5, 60)), 5), (self._large, 3), (history.compact, 1),
            (history.recreate, 0.3), (lambda: history.delete_records(chance.randint(0, 20)), 0.5),
        ]  # fmt: skip
        chance.choices([step for step, _ in steps], [weight for _, weight in steps])[0]()

    def _large(self) -> None:
        """A megabyte or more behind the end of an active segment."""
        with pylogseg.Broker(self.history.home) as broker:
            for _ in range(self.chance.randint(10, 40)):
                broker.produce("again", self.chance.randbytes(100_000), partition=0)

    def round(self) -> None:
        """Change the disk; kill some runs; let one end."""
        self.change()
        now = rows_of(self.history.home)
        for _ in range(self.chance.choice((1, 1, 1, 2, 3))):
            self._killed(now)
        is_same = self.chance.random() < 0.6
        if not is_same:
            self.change()
            now = rows_of(self.history.home)
        self._whole(now, is_same=is_same)

    def _words(self, jobs: int) -> list[str]:
        words = ["archive", str(self.history.home), self.place.url, "--jobs", str(jobs), "--json"]
        words += ["--encrypt-to", str(self.root / "ops.pem")] if self.chance.random() < 0.4 else []
        return words + (["--compress", "zstd"] if self.chance.random() < 0.4 else [])

    def _killed(self, now: Rows) -> None:
        before, jobs = self.place.stored(), self.chance.randint(1, 4)
        words = self._words(jobs)
        is_killed, _ = self.place.killed(words, self._environment, self.chance)
        after = self.place.stored()
        self._once(before, after)
        begun = _begun(after) - _begun(before)
        partitions = {stem.rpartition("/")[0] for stem in begun}
        assert len(begun) == len(partitions) <= jobs, (words, begun)
        new = after.keys() - before.keys()
        what = "killed before the first segment" if is_killed else "ended before"
        if is_killed and any(name.startswith("points/") for name in new):
            what = "killed after the point"
        elif is_killed and any(name.endswith(SUFFIXES) for name in new):
            what = "killed within a segment" if begun else "killed between segments"
        self.count[what] += 1
        self.left |= begun
        self.count["bytes of segments without a manifest"] += sum(
            size[0] for name, size in after.items() if name.rpartition(".")[0] in begun
        )
        self._check(now)

    def _whole(self, now: Rows, *, is_same: bool) -> None:
        before = self.place.stored()
        words = command(*self._words(self.chance.randint(1, 4)))
        ran = subprocess.run(words, env=self._environment, capture_output=True, timeout=_PATIENCE_S, check=False)
        assert ran.returncode == 0, ran.stderr
        row, after = json.loads(ran.stdout), self.place.stored()
        self._once(before, after)
        self.count["whole runs"] += 1
        self.count["segments adopted"] += row["adopted"]
        self._check(now)
        url, options = self.place.url, self.place.options
        points = [read_point(url, name, options) for name in list_points(url, options)]
        assert points[-1].id == row["point"]
        needed = {key for point in points for key in point.objects}
        idle = {name.rpartition(".")[0] for name in after if name.endswith(SUFFIXES) and name not in needed}
        begun = _begun(after)
        assert begun <= self.left
        assert not is_same or idle - begun <= self.idle, "segments of a killed run are whole, and were uploaded again"
        self.idle = idle - begun
        assert not [name for name in after if name.startswith("_pylogseg/lock-")]
        if self.chance.random() < 0.1:
            prune(url, keep_last=self.chance.randint(1, 3), storage_options=options)
            assert not _begun(self.place.stored())
            self.left, self.idle, self.count["pruned"] = set(), set(), self.count["pruned"] + 1
            self._check(now)

    def _once(self, before: Mapping[str, tuple[int, ...]], after: Mapping[str, tuple[int, ...]]) -> None:
        """What was whole is not stored again, and does not go, but for the locks."""
        kept = {name: each for name, each in before.items() if not name.startswith("_pylogseg/")}
        changed = [name for name, each in kept.items() if after.get(name) != each]
        assert changed == [], "stored a second time, or gone"

    def _check(self, now: Rows) -> None:
        """The newest point is what the disk was, it is restored as that, and nothing in the archive is wrong."""
        names = [each.id for each in list_points(self.place.url, self.place.options)]
        for name in names:
            self.rows.setdefault(name, now)
        if not names:
            return
        wanted = self.rows[names[-1]]
        assert rows_of(open_archive(self.place.url, storage_options=self.options)) == wanted
        self.count["restored"] += 1
        target = self.root / f"restored-{self.count['restored']}"
        target.mkdir()
        restore_point(self.place.url, target, node_id=1, storage_options=self.options)
        assert rows_of(target) == wanted
        shutil.rmtree(target)
        summary = ArchiveSummary(Level.INDEXES)
        found = list(verify_archive(self.place.url, summary, read="all", storage_options=self.options))
        assert [each for each in found if each.is_damage] == []
        assert summary.exit_code == 0


def _begun(stored: Mapping[str, Any]) -> set[str]:
    """Segments without a manifest."""
    stems = {name.rpartition(".")[0] for name in stored if name.endswith((".log", ".indexes"))}
    return {stem for stem in stems if f"{stem}.rsm-manifest" not in stored}
