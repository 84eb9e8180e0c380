"""Tests of reading/filters.py and reading/selection.py. Which partitions paths, names and numbers mean: the same in
every command, and in Python.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.shell import expect, pylogseg

import pylogseg as package
from pylogseg import offline
from pylogseg.disk.listing import open_dir
from pylogseg.errors import RequestError

#: Commands that read what paths and names choose, and how each is told to be about all records.
READERS: dict[str, tuple[str, ...]] = {
    "ls": (),
    "cat": (),
    "latest": (),
    "grep": ("-c", "--empty", ""),
    "stats": ("--by", "partition"),
    "verify": (),
    "export": ("--to", "jsonl"),
}


def run(command: str, *arguments: object, out: Path) -> Any:
    """A reading command on some arguments."""
    words = [*READERS[command], *arguments]
    return pylogseg(command, *words, *(("--out", out, "--overwrite") if command == "export" else ()))


# ---- a name that is a partition's and a topic's ----


@pytest.fixture
def alike(examples: Path, tmp_path: Path) -> Path:
    """Partition 0 of topic t, and partition 1 of topic t-0."""
    for source, name in (("txn-b-0", "t-0"), ("txn-a-1", "t-0-1")):
        shutil.copytree(examples / source, tmp_path / "logs" / name)
    (tmp_path / "logs" / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    return tmp_path / "logs"


@pytest.mark.parametrize(
    "words", [("retain", "--bytes", "0"), ("delete-records", "--offset", "3"), ("redact", "--match", "c"), ("repair",)]
)
def test_nothing_is_changed_by_a_name_with_two_meanings(words: tuple[str, ...], alike: Path) -> None:
    before = {path: path.read_bytes() for path in alike.rglob("*") if path.is_file()}
    done = pylogseg(words[0], alike, "t-0", *words[1:])
    assert (done.code, done.out) == (2, b"")
    assert "is a partition, and a topic with t-0-1" in done.err
    assert {path: path.read_bytes() for path in alike.rglob("*") if path.is_file()} == before
    for meant, other in ((["t-0-*"], "t-0/"), ([], "t-0-1")):  # as the message says
        done = pylogseg(words[0], *((alike, *meant) if meant else (alike / "t-0",)), *words[1:], "--dry-run", "-v")
        assert done.code == 0
        assert other not in done.out.decode().replace(str(alike), "")  # pytest's own folders have such names, too


# ---- a partition in two directories ----


@pytest.fixture
def twice(examples: Path, tmp_path: Path) -> Path:
    """Two log directories with the same partition, of which one has lost its last segment."""
    for number, names in enumerate((("txn-a-0", "txn-b-0"), ("txn-a-0", "codec-none-1"))):
        for name in names:
            shutil.copytree(examples / name, tmp_path / "jb" / f"data-{number}" / name)
    max((tmp_path / "jb" / "data-1" / "txn-a-0").glob("*.log")).unlink()
    return tmp_path / "jb"


@pytest.mark.parametrize("command", sorted(set(READERS) - {"ls", "verify"}))
def test_a_partition_in_two_folders_is_refused(command: str, twice: Path, tmp_path: Path) -> None:
    for arguments in [(twice,), (twice, "txn-a"), (twice, "txn-a-0"), (twice / "data-0", twice / "data-1")]:
        done = run(command, *arguments, out=tmp_path / "out")
        assert (done.code, done.out) == (2, b"")
        assert "txn-a-0 lies in two folders" in done.err
        assert f"{twice}/data-0/txn-a-0 and {twice}/data-1/txn-a-0" in done.err
    for arguments in [(twice, "txn-b"), (twice, "codec-none"), (twice, "*b-0")]:
        assert run(command, *arguments, out=tmp_path / "out").code == 0
    lacking = run(command, twice / "data-1", "txn-a", out=tmp_path / "out")
    assert lacking.code == (1 if command == "export" else 0)  # the records of its last segment are known to be missing


def test_ls_shows_where_each_of_the_two_lies(twice: Path) -> None:
    assert pylogseg("ls", twice, "txn-a").text.count("txn-a") == 2
    paths = [row["path"] for row in pylogseg("ls", twice, "txn-a", "--json").rows]
    assert paths == [f"{twice}/data-0/txn-a-0", f"{twice}/data-1/txn-a-0"]


def test_python_refuses_it_too(twice: Path) -> None:
    for path in (twice, open_dir(twice), [twice / "data-0", twice / "data-1"]):
        for read in (package.read, package.read_arrow):
            with pytest.raises(RequestError, match="txn-a-0 lies in two folders"):
                read(path)
            with pytest.raises(RequestError, match="txn-a-0 lies in two folders"):
                read(path, "txn-a", 0)
    assert len(list(package.read(twice, "txn-b"))) == len(list(package.read(twice / "data-0" / "txn-b-0")))
    for sides in [(twice, twice / "data-0"), (twice / "data-0", twice)]:
        with pytest.raises(RequestError, match="txn-a-0 lies in two folders"):
            list(offline.diff(*sides))


def test_the_same_folder_by_two_names_is_there_once(twice: Path) -> None:
    once = pylogseg("cat", twice / "data-0", "txn-a").out
    assert pylogseg("cat", twice / "data-0", twice / "data-0" / "txn-a-0", "txn-a").out == once != b""


def test_a_replica_that_is_moved_is_no_second_one(examples: Path, tmp_path: Path) -> None:
    shutil.copytree(examples / "txn-a-0", tmp_path / "a" / "txn-a-0")
    shutil.copytree(examples / "txn-a-0", tmp_path / "b" / f"txn-a-0.{'0' * 32}-future")
    assert pylogseg("cat", tmp_path).out == pylogseg("cat", tmp_path / "a").out != b""


# ---- paths and names ----


@pytest.mark.parametrize("command", READERS)
def test_a_word_after_the_path_is_a_name(
    command: str, examples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = {word: run(command, examples, word, out=tmp_path / "out") for word in ("txn-a-0", "txn-a", "txn-*")}
    monkeypatch.chdir(examples)  # where each of these is a folder, or matches some
    for word, wanted in expected.items():
        for here in (".", "./", f"{examples}"):
            done = expect(run(command, here, word, out=tmp_path / "out"), wanted.code)
            assert done.out.replace(b'"./', b'"').count(b"\n") == wanted.out.count(b"\n")


def test_a_folder_of_that_name_elsewhere_changes_nothing(
    examples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "txn-a").mkdir()
    (tmp_path / "txn-a" / "notes").touch()
    monkeypatch.chdir(tmp_path)
    done = pylogseg("cat", examples, "txn-a")
    assert done.out == pylogseg("cat", examples, "-t", "txn-a").out != b""
    assert "txn-a is read as a name; for the path write ./txn-a" in done.err
    assert pylogseg("cat", examples, "./txn-a").code == 2


def test_files_and_folders_that_the_shell_names(examples: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(examples / "txn-a-0")
    names = sorted(path.name for path in Path().glob("*.log"))
    assert pylogseg("cat", *names).out == pylogseg("cat", ".").out != b""
    monkeypatch.chdir(examples)
    words = sorted(path.name for path in Path().glob("txn-*"))
    done = pylogseg("cat", *words)
    assert done.out == pylogseg("cat", ".", *words).out != b""
    assert f"{words[1]} is read as a path" in done.err


# ---- names that are not there ----


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (
            "txn",
            "no topic or partition 'txn' here (did you mean txn-a, txn-b, cmp-txn?); there are: __cluster_metadata",
        ),
        ("TXN-A", "(did you mean txn-a, txn-b?)"),
        ("ret-byte", "(did you mean ret-bytes?)"),
        ("tmestamps", "(did you mean timestamps?)"),
        ("txn-a-7", "no topic or partition 'txn-a-7' here; txn-a has 0, 1"),
        ("zzzz", "no topic or partition 'zzzz' here; there are: __cluster_metadata"),
    ],
)
@pytest.mark.parametrize("command", ["cat", "verify", "reindex"])
def test_what_was_probably_meant(command: str, asked: str, said: str, examples: Path, tmp_path: Path) -> None:
    target = examples
    if command == "reindex":
        target = shutil.copytree(examples, tmp_path / "data")
    done = pylogseg(command, target, asked)
    assert done.code == 2
    assert said.replace(" here", f" in {target}" if command == "reindex" else " here") in done.err


@pytest.mark.parametrize("command", READERS)
@pytest.mark.parametrize("numbers", [("77",), ("0", "77")])
def test_a_number_that_no_partition_has(command: str, numbers: tuple[str, ...], examples: Path, tmp_path: Path) -> None:
    words = [word for number in numbers for word in ("-p", number)]
    expect(run(command, examples, "txn-a", *words, out=tmp_path / "out"), 2, "no partition 77 among those selected")


def test_diff_compares_each_name_that_either_side_has(examples: Path, tmp_path: Path) -> None:
    shutil.copytree(examples / "txn-a-0", tmp_path / "b" / "txn-a-0")
    rows = {row.name: row.is_same for row in offline.diff(examples, tmp_path / "b", ["txn-a-0", "txn-b-0"])}
    assert rows == {"txn-a-0": True, "txn-b-0": False}
    rows = {row.name: row.is_same for row in offline.diff(examples, tmp_path / "b", "txn-a", [0, 1])}
    assert rows == {"txn-a-0": True, "txn-a-1": False}
    for arguments in [("nothing",), ("txn-a", "nothing"), ("-p", 77), ("-p", 0, "-p", 77)]:
        assert pylogseg("diff", examples, tmp_path / "b", *arguments).code == 2


# ---- nothing asked for is nothing ----


def test_a_file_is_asked_for_by_its_folder(examples: Path) -> None:
    file = next((examples / "txn-a-0").glob("*.log"))
    records = list(package.read(file))
    assert list(package.read(file, "txn-a")) == list(package.read(file, "txn-a", 0)) == records != []
    for wrong in ({"topic": "txn-b"}, {"partition": 1}):
        with pytest.raises(RequestError):
            package.read(file, **wrong)


# ---- in Python ----


def test_partitions_are_read_as_they_are(examples: Path) -> None:
    disk = open_dir(examples)
    expected = list(package.read(examples, "txn-a"))
    partitions = disk.topics["txn-a"]
    assert list(package.read(partitions)) == list(package.read(disk["txn-a"])) == expected
    assert list(package.read(partitions[0])) + list(package.read(partitions[1])) == expected
    assert package.read_arrow(partitions[0]).read_all().num_rows == len(list(package.read(partitions[0])))
    assert all(row.is_same for row in offline.diff(partitions[0], partitions[0].path))


def test_a_disk_is_a_collection_of_partitions(examples: Path) -> None:
    disk = open_dir(examples)
    assert list(disk) == list(disk.partitions)
    assert len(disk) == len(disk.partitions)
    assert [p.name for p in disk.select("codec-*")] == [p.name for p in disk["codec-*"]]
    assert {p.topic for p in disk["codec-*"]} == {name for name in disk.topics if name.startswith("codec-")}
    assert all(p.is_live for p in disk)


#: What takes the arguments topic and partition, and the names of the partitions that it then means.
DOORS: dict[str, Callable[..., Any]] = {
    "read": lambda path, **choice: [f"{r.topic}-{r.partition}" for r in package.read(path, **choice)],
    "read_arrow": lambda path, **choice: _of_rows(package.read_arrow(path, **choice).read_all()),
    "dataset": lambda path, **choice: _of_rows(package.dataset(path, **choice).to_table()),
    "dataset of segments": lambda path, **choice: _of_rows(package.dataset(path, of="segments", **choice).to_table()),
    "dataset of partitions": lambda path, **choice: _of_rows(
        package.dataset(path, of="partitions", **choice).to_table()
    ),
    "scan_polars": lambda path, **choice: _of_rows(package.scan_polars(path, **choice).collect().to_arrow()),
    "select": lambda path, **choice: [p.name for p in open_dir(path).select(**choice)],
    "report": lambda path, **choice: [p.name for p in package.report(path, **choice).facts.partitions],
    "serve": lambda path, **choice: _served(path, **choice),
    "diff": lambda path, **choice: [found.name for found in offline.diff(path, path, **choice)],
    "retain": lambda path, **choice: [
        each.name for each in offline.retain(path, max_bytes=1, force=True, dry_run=True, **choice)
    ],
    "copy": lambda path, **choice: [each.name for each in offline.copy(path, "nowhere", dry_run=True, **choice)],
    "merge": lambda path, **choice: [each.name for each in offline.merge([path], "nowhere", dry_run=True, **choice)],
    "move": lambda path, **choice: _into(offline.move, path, **choice),
    "restore": lambda path, **choice: _into(offline.restore, path, **choice),
}


def _of_rows(table: Any) -> list[str]:
    return [f"{row['topic']}-{row['partition']}" for row in table.select(["topic", "partition"]).to_pylist()]


def _served(path: Path, **choice: Any) -> list[str]:
    with package.serve(path, **choice) as server:
        return [each.found.name for each in server.catalog.partitions()]


def _into(command: Callable[..., Any], path: Path, **choice: Any) -> list[str]:
    with tempfile.TemporaryDirectory() as target:
        return [each.name for each in command(path, target, dry_run=True, **choice)]


_NAMES = ("txn-a-0", "txn-a-1", "txn-b-0", "codec-none-1")


@pytest.fixture(scope="module")
def stopped(examples: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log directory of a broker that does not run."""
    folder = tmp_path_factory.mktemp("chosen") / "logs"
    for name in _NAMES:
        shutil.copytree(examples / name, folder / name)
    shutil.copy(examples / "meta.properties", folder)
    (folder / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    return folder


@pytest.mark.parametrize("door", DOORS)
def test_topic_and_partition_mean_the_same_everywhere(door: str, stopped: Path) -> None:
    """Topics, partitions, patterns, several of them; numbers; both. What is not there is refused, and an empty list."""
    choices: list[tuple[dict[str, Any], set[str]]] = [
        ({"topic": "txn-a"}, {"txn-a-0", "txn-a-1"}),
        ({"topic": "txn-a-1"}, {"txn-a-1"}),
        ({"topic": ["txn-a-1", "txn-b-0"]}, {"txn-a-1", "txn-b-0"}),
        ({"topic": ("txn-*",), "partition": 0}, {"txn-a-0", "txn-b-0"}),
        ({"topic": "txn-a", "partition": [1]}, {"txn-a-1"}),
    ]
    choices += [({"partition": 1}, {"txn-a-1", "codec-none-1"}), ({"partition": (0, 1)}, set(_NAMES))]
    choices += [] if door == "move" else [({"topic": None, "partition": None}, set(_NAMES))]
    for choice, names in choices:
        assert {*DOORS[door](stopped, **choice)} == names, choice
    refused: list[tuple[dict[str, Any], str]] = [
        ({"topic": "nobody"}, "no topic or partition 'nobody'"),
        ({"topic": ["txn-a", "txn-b-7"]}, "no topic or partition 'txn-b-7'.*txn-b has 0"),
        ({"topic": "txn-b", "partition": 1}, "no partition 1 among those selected"),
        ({"partition": [0, 7]}, "no partition 7 among those selected"),
        ({"topic": []}, r"topic is empty: leave it out \(or None\) to select all"),
        ({"partition": ()}, r"partition is empty: leave it out \(or None\) to select all"),
        ({"topic": ""}, "topic: a name is empty"),
        ({"topic": ["txn-a", 3]}, "topic: expected the name of a topic or partition, or a pattern, not 3"),
        ({"partition": "1"}, "partition must be a whole number, not '1'"),
    ]
    for choice, words in refused:
        with pytest.raises(RequestError, match=words):
            DOORS[door](stopped, **choice)


@pytest.mark.parametrize("jobs", [0, -1, True, "2"])
def test_a_number_of_threads_that_is_none(jobs: Any, examples: Path, tmp_path: Path) -> None:
    """It is refused before anything is read or written; None is a number, one per processor."""
    into, restored = tmp_path / "into", tmp_path / "restored"
    restored.mkdir()
    works: list[Callable[[Any], object]] = [
        lambda jobs: package.read(examples, "txn-a", jobs=jobs),
        lambda jobs: package.read_arrow(examples, "txn-a", jobs=jobs),
        lambda jobs: package.report(examples, "txn-a", jobs=jobs),
        lambda jobs: offline.retain(examples, max_bytes=1, dry_run=True, jobs=jobs),
        lambda jobs: list(offline.diff(examples, examples, topic="txn-b", jobs=jobs)),
        lambda jobs: offline.copy(examples, into, topic="txn-b", jobs=jobs),
        lambda jobs: offline.merge([examples], tmp_path / "merged", topic="txn-b", jobs=jobs),
        lambda jobs: offline.restore(examples, restored, topic="txn-b", dry_run=True, jobs=jobs),
    ]
    for work in works:
        with pytest.raises(RequestError, match="jobs must be 1 or more, or None for one per processor, not"):
            work(jobs)
    assert list(tmp_path.rglob("*")) == [restored]
    if jobs == 0:
        for work in works:
            work(None)


def test_an_empty_path_is_no_folder() -> None:
    for work in (
        lambda: offline.retain("", max_bytes=1, force=True, dry_run=True),
        lambda: offline.recover(""),
    ):
        with pytest.raises(RequestError, match="the path is empty"):
            work()


def test_what_is_shown_is_short(examples: Path) -> None:
    disk = open_dir(examples)
    for shown in (disk, disk.partitions[0], package.read(disk), disk["txn-a"]):
        assert len(repr(shown)) < 200
        assert "0x" not in repr(shown)
    assert "19 partitions" in repr(disk)
    assert "txn-b-0" in repr(disk["txn-b"].partitions[0])
    assert not {"Any", "TYPE_CHECKING", "offered", "annotations"} & set(dir(package))
    assert set(package.__all__) <= set(dir(package))


@pytest.mark.parametrize(
    ("word", "offset"),
    [("-3", -3), ("-3:-1", (-3, -1)), (":-140", (None, -140)), ("-100000", -100000), ("5:-5", (5, -5))],
)
def test_negative_offsets_count_from_the_end(word: str, offset: Any, examples: Path) -> None:
    shown = pylogseg("cat", examples, "codec-none", "-o", word).rows
    read = package.read(examples, "codec-none", offset=offset)
    assert [record.offset for record in read] == [row["offset"] for row in shown]
    table = package.read_arrow(examples, "codec-none", offset=offset).read_all()
    assert table["offset"].to_pylist() == [row["offset"] for row in shown]
    assert bool(shown)


def test_negative_offsets_of_an_open_log(tmp_path: Path) -> None:
    with package.open_log(tmp_path / "t-0") as log:
        log.append([(None, None, str(i).encode()) for i in range(10)])
        assert [record.offset for record in log.read(offset=-3)] == [7, 8, 9]


def test_a_range_that_ends_before_it_begins(examples: Path) -> None:
    for word, offset in (("3:1", (3, 1)), ("-1:-3", (-1, -3))):
        assert pylogseg("cat", examples, "codec-none", "-o", word).code == 2
        with pytest.raises(RequestError, match="ends before it begins"):
            package.read(examples, "codec-none", offset=offset)


def test_ls_says_what_is_no_segment(tmp_path: Path) -> None:
    path = tmp_path / "logs.tgz"
    path.write_bytes(b"\x1f\x8b\x08\0" + bytes(100))
    done = pylogseg("ls", path)
    assert (done.code, done.out) == (2, b"")
    assert "logs.tgz is a gzip file" in done.err
