"""Tests of archive/read_notes.py, archive/verifying.py, disk/tier/digest.py and disk/tier/read_once.py. `verify` of an
archive: each object that is gone, cut, rotten or swapped is named; what was read is known later.
"""

from __future__ import annotations

import hashlib
import json
import random
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import fsspec
import pytest
from archive.histories import History
from helpers.pickled_executor import Pickled
from helpers.shell import pylogseg as shell
from helpers.tiers import Key

import pylogseg
from pylogseg import offline
from pylogseg.archive import write
from pylogseg.archive.verifying import ArchiveSummary, verify_archive
from pylogseg.disk.tier.point import MARK, SUFFIXES
from pylogseg.disk.tier.read_once import ReadOnce
from pylogseg.env.executor import Threads
from pylogseg.errors import CorruptionError, RequestError
from pylogseg.inspect.verify.findings import Finding, Level


@pytest.fixture
def archive(history: History, tmp_path: Path) -> Path:
    return Path(shutil.copytree(history.archiver.root, tmp_path / "archive"))


def verified(archive: Path | str, **how: Any) -> tuple[list[Finding], ArchiveSummary]:
    summary = ArchiveSummary(Level.INDEXES)
    return list(verify_archive(str(archive), summary, **how)), summary


def objects_of(history: History) -> list[str]:
    return sorted({key for point in history.archiver.points for key in point.objects})


def test_whole(history: History, archive: Path) -> None:
    found, summary = verified(archive)
    assert (found, summary.exit_code, summary.points) == ([], 0, len(history.archiver.points))
    assert summary.objects == len(objects_of(history))
    assert any("never read" in text for text in summary.not_checked)
    found, summary = verified(archive, read="all")
    assert ([each for each in found if each.is_damage], summary.exit_code) == ([], 0)
    assert (summary.objects_read, summary.objects_read_before) == (summary.objects, 0)
    assert summary.segments == len([key for key in objects_of(history) if key.endswith(".log")])
    assert summary.bytes_read == sum(path.stat().st_size for path in map(archive.joinpath, objects_of(history)))


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How many bytes of each object come from a store in memory, whoever asks for them."""
    memory = type(fsspec.filesystem("memory"))
    real, found = memory.cat_file, Counter[str]()

    def cat_file(self: Any, path: str, start: int | None = None, end: int | None = None, **named: Any) -> bytes:
        data = bytes(real(self, path, start=start, end=end, **named))
        found[path.lstrip("/").partition("/")[2]] += len(data)
        return data

    monkeypatch.setattr(memory, "cat_file", cat_file)
    return found


@pytest.mark.parametrize(("executor", "form"), [("threads", {}), ("pickled", {}), ("threads", {"compress": True})])
def test_each_object_is_read_once(history: History, fetched: Counter[str], executor: str, form: Any) -> None:
    """What is hashed is what is decoded."""
    url = f"memory://once-{executor}-{len(form)}"
    point = write(history.home, url, **form).point
    fetched.clear()
    found, summary = verified(url, read="all", executor=Threads(3) if executor == "threads" else Pickled())
    assert ([each for each in found if each.is_damage], summary.exit_code) == ([], 0)
    sizes = {key: stored.size for key, stored in point.objects.items() if stored.size}
    assert {key: size for key, size in fetched.items() if key in point.objects} == sizes
    assert summary.objects_read == len(point.objects)


@pytest.mark.parametrize("size", [0, 1000, 20 << 20])
def test_the_sum_of_what_is_read_in_any_order(fetched: Counter[str], size: int) -> None:
    """As threads fetch it ahead; what was read twice or never counts once."""
    data, chance = random.Random(size).randbytes(size), random.Random(1)
    fsspec.filesystem("memory").pipe_file("sums/object", data)
    objects = ReadOnce("memory://sums", {})
    (stored,) = objects.find()
    moved: list[int] = []
    for wanted in (1.0, 0.6):
        places = [each for each in range(0, size, 1 << 20) if chance.random() < wanted]
        fetched.clear()
        with objects.sum_objects([stored], moved.append):
            for at in chance.sample(places, len(places)):
                with objects.open(stored) as view:
                    assert view.read(at, 1 << 20) == data[at : at + (1 << 20)]
            assert objects.sha256(stored) == hashlib.sha256(data).hexdigest()
        assert sum(moved) == size
        assert wanted < 1 or fetched["object"] == size
        moved.clear()


def test_what_is_new(history: History, archive: Path) -> None:
    """The points of the past were read before; an object that comes with a later one is read."""
    last = history.archiver.points[-1]
    kept = {key for point in history.archiver.points[:-1] for key in point.objects}
    aside = archive.parent / "point"
    (archive / last.name.key).rename(aside)
    assert verified(archive, read="new")[1].objects_read == len(kept)
    aside.rename(archive / last.name.key)
    found, summary = verified(archive)
    assert (found, summary.objects_read_before) == ([], len(kept))
    found, summary = verified(archive, read="new")
    assert summary.objects_read == len(objects_of(history)) - len(kept) > 0
    assert (summary.objects_read_before, summary.exit_code) == (len(kept), 0)
    assert verified(archive, read="new")[1].objects_read == 0
    for noted in (archive / "verified").iterdir():
        noted.write_text("{}")
    assert verified(archive, read="new")[1].objects_read > 0


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("harm", ["gone", "cut", "flipped", "swapped"])
def test_harms(history: History, archive: Path, suffix: str, harm: str) -> None:
    """The list of objects tells what is gone or cut; what has the same size shows when it is read."""
    sizes: dict[int, list[Path]] = {}
    for key in objects_of(history):
        if key.endswith(suffix):
            sizes.setdefault((archive / key).stat().st_size, []).append(archive / key)
    _, (one, other, *_) = max((size, paths) for size, paths in sizes.items() if len(paths) > 1)
    named = {str(each) for each in harmed(one, other, harm)}
    if harm in ("gone", "cut"):
        found, summary = verified(archive)
        assert ({each.path for each in found}, summary.exit_code) == (named, 1)
    found, summary = verified(archive, read="all")
    assert {each.path for each in found if each.kind == "archive-object"} == named
    assert summary.exit_code == 1
    assert {each.path for each in verified(archive)[0]} == named  # nor does it say less the next time


def harmed(one: Path, other: Path, harm: str) -> list[Path]:
    """Do something to an object, or to two; those that are not what they were."""
    data, more = one.read_bytes(), other.read_bytes()
    assert data != more
    if harm == "gone":
        one.unlink()
    elif harm == "cut":
        one.write_bytes(data[: len(data) // 2])
    elif harm == "flipped":
        one.write_bytes(flipped(data, len(data) // 2))
    else:
        one.write_bytes(more)
        other.write_bytes(data)
        return [one, other]
    return [one]


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.fixture(scope="module")
def with_files(golden: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Archives whose points need objects of `files/`, by what these end with."""
    root = tmp_path_factory.mktemp("files")
    history = History(root)
    for _ in range(2):
        history.write(5)
        assert not offline.retain(history.home, topic="orders", ms=0).failed  # empty logs, with what producers did
        assert write(history.home, root / "empty").faults == []
    assert write([golden / "inside" / "groups" / name for name in ("data0", "data1")], root / "metadata").faults == []
    return {".snapshot": root / "empty", ".checkpoint": root / "metadata"}


@pytest.mark.parametrize("suffix", [".snapshot", ".checkpoint"])
@pytest.mark.parametrize("harm", ["gone", "cut", "flipped", "swapped"])
def test_harms_of_other_files(with_files: dict[str, Path], tmp_path: Path, suffix: str, harm: str) -> None:
    """As of segments: also where another object of its kind, or of any other, is there instead."""
    archive = Path(shutil.copytree(with_files[suffix], tmp_path / "archive"))
    assert verified(archive, read="all")[1].exit_code == 0
    shutil.rmtree(archive / "verified")
    one, *others = sorted(archive.glob(f"files/**/*{suffix}"))
    other = next((each for each in others if each.read_bytes() != one.read_bytes()), None)
    other = other or max(archive.glob("**/*.log"), key=lambda path: path.stat().st_size)
    named = {str(each) for each in harmed(one, other, harm)}
    found, summary = verified(archive, read="all")
    assert {each.path for each in found if each.kind == "archive-object"} == named
    assert summary.exit_code == 1


def test_harms_of_the_mark(history: History, archive: Path, tmp_path: Path) -> None:
    """What says of which cluster an archive is: no run goes on without it, and each byte of it matters."""
    mark, whole = archive / MARK, (archive / MARK).read_bytes()
    segment = max(archive.glob("**/*.log"), key=lambda path: path.stat().st_size)
    with pylogseg.Broker(tmp_path / "other"):
        pass
    write(tmp_path / "other", tmp_path / "others")
    harms: list[bytes | None] = [None, whole[: len(whole) // 2], b"", segment.read_bytes()]
    harms += [(tmp_path / "others" / MARK).read_bytes(), *(flipped(whole, at) for at in range(len(whole)))]
    for harm in harms:
        mark.unlink() if harm is None else mark.write_bytes(harm)
        found, summary = verified(archive)
        assert {(each.kind, each.path) for each in found} == {("archive-mark", str(mark))}, harm
        assert summary.exit_code == 1
        with pytest.raises((RequestError, CorruptionError)) as caught:
            write(history.home, archive)
        assert harm is not None or all(text in str(caught.value) for text in (str(mark), whole.decode()))
        mark.write_bytes(whole)
    assert verified(archive)[1].exit_code == 0
    point = archive / history.archiver.points[0].name.key
    harmed(mark, point, "swapped")
    named = {("archive-point", str(point)), ("archive-mark", str(mark))}
    assert {(each.kind, each.path) for each in verified(archive)[0]} == named


def test_a_point_is_damaged(history: History, archive: Path) -> None:
    """It is named, and the others are checked."""
    path = archive / history.archiver.points[1].name.key
    path.write_text(path.read_text()[:-9])
    found, summary = verified(archive, read="all")
    assert [(each.kind, each.path) for each in found if each.is_damage] == [("archive-point", str(path))]
    assert (summary.points, summary.exit_code) == (len(history.archiver.points) - 1, 1)


def test_executors_agree(history: History, archive: Path) -> None:
    path = archive / next(key for key in objects_of(history) if key.endswith(".log"))
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    found = [verified(archive, read="all", executor=each)[0] for each in (Pickled(), Pickled())]
    assert found == [verified(archive, read="all")[0]] * 2
    assert any(each.is_damage for each in found[0])


def test_without_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is encrypted is compared with its SHA-256; that its batches were not looked at is said."""
    history = History(tmp_path, key=Key.make("k", tmp_path / "keys"))
    history.write()
    history.point()
    found, summary = verified(history.archiver.root, read="all")
    assert ({each.level for each in found}, summary.exit_code) == ({"unread"}, 2)
    monkeypatch.setenv("PYLOGSEG_TIER_KEYS", str(tmp_path / "keys"))
    assert verified(history.archiver.root, read="all")[1].exit_code == 0


def test_command(history: History, archive: Path) -> None:
    done = shell("verify", archive)
    assert (done.code, "6 points" in done.text) == (0, True)
    done = shell("verify", f"aiven+file://{archive}", "orders", "--read-all", "--json")
    row = json.loads(done.text.splitlines()[-1])
    assert (done.code, row["type"], row["damaged"], row["partitions"]) == (0, "summary", 0, 2)
    assert shell("verify", history.home, "--read-all").code == 2


# ---- damage that a run found ----


def statuses(archive: Path) -> list[int]:
    """The exit codes of the commands by which somebody looks after an archive."""
    commands = ("verify", archive), ("verify", archive, "orders"), ("archive", "status", archive)
    return [shell(*command).code for command in commands]


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("after", ["mended", "mended, of one topic", "pruned", "without its text"])
def test_damage_is_not_forgotten(history: History, tmp_path: Path, suffix: str, after: str) -> None:
    """A run that reads nothing, or only what is new, says what another found, until the object is good or gone."""
    archive, home = tmp_path / "archive", Path(shutil.copytree(history.home, tmp_path / "home"))
    assert write(home, archive).faults == []
    assert shell("verify", archive, "--read-all").code == 0
    (one, *_) = sorted(archive.glob(f"orders-*/**/*{suffix}"))
    data = one.read_bytes()
    one.write_bytes(flipped(data, len(data) // 2))
    assert statuses(archive) == [0, 0, 0]  # no run has read it since
    assert shell("verify", archive, "--read-all").code == 1
    for _ in range(2):
        assert statuses(archive) == [1, 1, 1]
        done = shell("verify", archive, "--json")
        assert {row["path"] for row in done.rows if row.get("level") == "damage"} == {str(one)}
        found, summary = verified(archive, read="new")
        assert {each.path for each in found if each.kind == "archive-object"} == {str(one)}
        assert (summary.exit_code, summary.objects_read) == (1, 1)
    if after == "without its text":
        for note in archive.glob("verified/damaged/**/*.json"):
            note.write_bytes(b"")
        assert statuses(archive) == [1, 1, 1]
    one.write_bytes(data)
    assert statuses(archive) == [1, 1, 1]  # nobody has read it yet
    assert shell("verify", archive, "--read-new", "--level", "headers").code == 0
    if after == "pruned":
        for folder in home.glob("orders-*"):
            shutil.rmtree(folder)
        assert shell("archive", home, archive, "--forget", "orders").code == 0
        assert shell("archive", "prune", archive, "--keep-last", 1).code == 0
    else:
        names = ["orders"] if after == "mended, of one topic" else []
        assert shell("verify", archive, *names, "--read-new").code == 0
    assert [shell(*words).code for words in (("verify", archive), ("archive", "status", archive))] == [0, 0]
    assert not [path for path in archive.glob("verified/damaged/**/*") if path.is_file()]


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("on_disk", [True, False])
def test_what_verify_found_is_uploaded_again(history: History, tmp_path: Path, suffix: str, on_disk: bool) -> None:
    """A run repairs what a disk still has, and names what none has; then nothing is damaged, nor uploaded once more."""
    archive, home = tmp_path / "archive", Path(shutil.copytree(history.home, tmp_path / "home"))
    assert write(home, archive).faults == []
    (_, one, *_) = sorted(archive.glob(f"orders-*/0/*{suffix}"))
    data = one.read_bytes()
    one.write_bytes(flipped(data, len(data) // 2))
    assert shell("verify", archive, "--read-all").code == 1
    if not on_disk:
        for path in (home / "orders-0").glob(f"{one.name[:20]}*"):
            path.unlink()
    done = shell("archive", home, archive)
    assert (done.code, str(one) in done.text + done.err) == (0 if on_disk else 1, True), done.text + done.err
    if on_disk:
        assert "uploaded again" in done.text + done.err
        assert one.read_bytes() == data
        assert statuses(archive) == [0, 0, 0]
        assert shell("verify", archive, "--read-all").code == 0
        again = shell("archive", home, archive)
        assert (again.code, "0 segments" in again.text, str(one) in again.text + again.err) == (0, True, False)
    else:
        assert "no disk has what was in it" in done.text + done.err
        assert statuses(archive) == [1, 1, 1]


def test_damage_beside_an_object_that_is_gone(history: History, archive: Path) -> None:
    """The list of objects shows that one; the others of its segment are good when it is back."""
    one = archive / next(key for key in objects_of(history) if key.endswith(".indexes"))
    data = one.read_bytes()
    one.unlink()
    assert shell("verify", archive, "--read-all").code == 1
    one.write_bytes(data)
    assert shell("verify", archive).code == 0
    assert "1 were never read" not in shell("verify", archive).text


# ---- points that are gone ----


@pytest.mark.parametrize("harm", ["points", "newest point", "note"])
def test_points_that_are_gone(history: History, tmp_path: Path, harm: str) -> None:
    """`points`, `status` and `verify` say it, and none of them says that there is no damage."""
    archive = tmp_path / "archive"
    for _ in range(2):
        write(history.home, archive)
    points, note = sorted((archive / "points").iterdir()), archive / "_pylogseg" / "points.json"
    if harm == "points":
        shutil.rmtree(archive / "points")
    elif harm == "newest point":
        points[-1].unlink()
    else:
        note.write_bytes(b"\0" * 30)
    named = note if harm == "note" else points[-1]
    for command in (("verify", archive), ("verify", f"aiven+file://{archive}"), ("archive", "status", archive),
                    ("archive", "points", archive)):  # fmt: skip
        done = shell(*command)
        assert (done.code, str(named) in done.text + done.err) == (1, True), command
        assert "prune` removes" not in done.text
