"""Tests of spark/restoring.py and spark/task.py. Tiered storage on Spark: restored, read and checked as by one machine,
also with a disk whose tier it is.
"""

from __future__ import annotations

import json
import pickle
import shutil
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from helpers import shell
from helpers.counted_reads import count_reads
from helpers.damaged_logs import change_byte
from helpers.spark_logs import needs_sources
from helpers.tiered_logs import write_log
from helpers.tiers import TOPIC_ID, Key, Uploader

import pylogseg
import pylogseg.spark
from pylogseg.env.executor import Workload
from pylogseg.errors import RequestError
from pylogseg.format.columns import to_row
from pylogseg.offline import Until
from pylogseg.spark import jobs
from pylogseg.spark.executor import SparkExecutor
from pylogseg.spark.options import parse
from pylogseg.spark.plan import plan
from pylogseg.spark.task import read_task
from pylogseg.transfer.staging import Staging

NAMES = ["aiven-plain", "aiven-zstd-aesgcm", "kafka-localtieredstorage"]
COLUMNS = ["topic", "partition", "offset", "key", "value", "timestamp"]


def url_of(golden: Path, name: str) -> str:
    return f"{'localtier' if 'local' in name else 'aiven'}+file://{golden / 'tier' / name}"


def keys_of(golden: Path, name: str) -> dict[str, Any] | None:
    return {"tier_keys": golden / "tier" / name / "private.pem"} if "aesgcm" in name else None


def tree(folder: Path) -> dict[str, bytes]:
    """All files, without the marks of commits that another run finished, which stay for a day."""
    files = [path for path in folder.rglob("*") if path.is_file() and ".pylogseg-committed" not in path.name]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def folders(tmp_path: Path, *names: str) -> list[Path]:
    made = [tmp_path / name for name in names]
    for path in made:
        path.mkdir()
    return made


def states(frame: Any) -> dict[str, str]:
    return {f"{row.topic}-{row.partition}": row.state for row in frame.collect()}


def damage(path: Path, place: int = 100) -> None:
    change_byte(path, place, 255)


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYLOGSEG_TIER_KEYS", raising=False)


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two partitions; the records of the second are those of the first."""
    root = tmp_path_factory.mktemp("disk")
    write_log(root / "orders-0", per_epoch=200, segment_bytes=8192)
    shutil.copytree(root / "orders-0", root / "orders-1")
    for folder in root.glob("orders-*"):
        (folder / "partition.metadata").write_text(f"version: 0\ntopic_id: {TOPIC_ID}")
    return root


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("keys")


@pytest.fixture(scope="module")
def uploaded(disk: Path, keys: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tier of the disk, encrypted."""
    root = tmp_path_factory.mktemp("tier")
    uploader = Uploader(root, 3000, True, Key.make("one", keys))
    for number in (0, 1):
        uploader.partition(disk / f"orders-{number}")
    return root


@pytest.fixture
def tier(uploaded: Path, tmp_path: Path) -> Path:
    """The same, to be changed."""
    return Path(shutil.copytree(uploaded, tmp_path / "tier"))


@pytest.fixture
def rest(disk: Path, tmp_path: Path) -> Path:
    """The disk without the first segments."""
    root = Path(shutil.copytree(disk, tmp_path / "rest"))
    for folder in sorted(root.glob("orders-*")):
        for segment in pylogseg.open_dir(folder).partitions[0].segments[:2]:
            (folder / segment.name).unlink()
    return root


# ---- restore ----


@pytest.mark.parametrize("name", NAMES)
def test_restored_bytes_are_those_of_one_machine(spark: Any, golden: Path, tmp_path: Path, name: str) -> None:
    by_spark, alone = folders(tmp_path, "spark", "alone")
    url, storage = url_of(golden, name), keys_of(golden, name)
    assert set(
        states(jobs.restore_tier(spark, url, str(by_spark), storage_options=storage, dry_run=True)).values()
    ) == {"done"}
    assert not list(by_spark.iterdir())
    rows = jobs.restore_tier(spark, url, str(by_spark), storage_options=storage).collect()
    result = pylogseg.offline.restore(url, alone, storage_options=storage)
    expected = [json.loads(json.dumps(to_row(each)).replace(str(alone), str(by_spark))) for each in result]
    assert [json.loads(row.detail) for row in rows] == expected
    assert tree(by_spark) == tree(alone)
    again = jobs.restore_tier(spark, url, str(by_spark), storage_options=storage)
    assert set(states(again).values()) == {"unchanged"}
    assert tree(by_spark) == tree(alone)


def test_parts_of_logs(spark: Any, uploaded: Path, keys: Path, rest: Path, tmp_path: Path) -> None:
    """Names, ends, and a disk that has the rest: as by the local command, and once."""
    url, storage = f"aiven+file://{uploaded}", {"tier_keys": str(keys)}
    given: dict[str, dict[str, Any]] = {
        "offset": {"until": Until(offset=395), "partition": [1]},
        "time": {"until": Until(time_ms=300_000)},
        "joined": {"tier": url},
    }
    for name, options in given.items():
        by_spark, alone = folders(tmp_path, f"{name}-spark", f"{name}-alone")
        source = str(rest) if "tier" in options else url
        first = states(jobs.restore_tier(spark, source, str(by_spark), ["orders"], storage_options=storage, **options))
        result = pylogseg.offline.restore(source, alone, topic=["orders"], storage_options=storage, **options)
        assert first == {each.name: each.state for each in result}
        assert tree(by_spark) == tree(alone)
        assert tree(alone)
        again = jobs.restore_tier(spark, source, str(by_spark), ["orders"], storage_options=storage, **options)
        assert set(states(again).values()) == {"unchanged"}
        assert {each.state for each in pylogseg.offline.restore(source, alone, storage_options=storage, **options)} == {
            "unchanged"
        }


def test_one_that_fails_does_not_keep_the_others(
    spark: Any, command: Any, tier: Path, keys: Path, tmp_path: Path
) -> None:
    """It is a row with the reason, and stays as it was; damage can be left out. The command wants all or none."""
    by_spark, alone, other, none = folders(tmp_path, "spark", "alone", "other", "none")
    victim = sorted((tier / f"orders-{TOPIC_ID}" / "1").glob("*.log"))[1]
    damage(victim)
    url, ring = f"aiven+file://{tier}", ("--keys", keys)
    done = command("restore", url, none, *ring, "--json")
    code = shell.pylogseg("restore", url, alone, *ring).code
    assert (done.exit_code, str(victim) in done.stderr, list(none.iterdir())) == (code, True, [])
    rows = jobs.restore_tier(spark, url, str(by_spark), storage_options={"tier_keys": str(keys)}).collect()
    assert {row.partition: row.state for row in rows} == {0: "done", 1: "failed"}
    assert str(victim) in rows[1].reason
    assert not [path for path in by_spark.iterdir() if path.name != "orders-0" and path.is_dir()]
    assert shell.pylogseg("restore", url, other, "orders-0", *ring).code == 0
    assert tree(by_spark) == tree(other)
    assert done.exit_code == shell.pylogseg("restore", url, alone, "orders-1", *ring).code

    done = command("restore", url, by_spark, *ring, "--on-corrupt", "skip")
    assert "orders-1: left out: " in done.stdout
    assert done.exit_code == shell.pylogseg("restore", url, alone, *ring, "--on-corrupt", "skip").code
    assert tree(by_spark) == tree(alone)

    victim.unlink()
    done = command("restore", url, by_spark, "orders-1", *ring, "--overwrite")
    assert (done.exit_code, "the object is not there" in done.stderr) == (2, True)
    assert tree(by_spark) == tree(alone)


def test_a_missing_manifest_is_a_hole(spark: Any, tier: Path, keys: Path, tmp_path: Path) -> None:
    (target,) = folders(tmp_path, "target")
    sorted((tier / f"orders-{TOPIC_ID}" / "0").glob("*.rsm-manifest"))[1].unlink()
    found = jobs.restore_tier(spark, f"aiven+file://{tier}", str(target), storage_options={"tier_keys": keys})
    assert states(found) == {"orders-0": "failed", "orders-1": "done"}
    assert "are in no upload" in found.first().reason


def test_tasks_that_run_twice_leave_one_result(
    spark: Any, uploaded: Path, keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by speculation, or after an executor was lost: both attempts write, one counts, nothing else stays."""
    by_spark, alone = folders(tmp_path, "spark", "alone")
    attempts: list[int] = []
    commit, run = Staging.commit, SparkExecutor.map

    def counted(self: Staging, *arguments: Any, **more: Any) -> Any:
        attempts.append(len(list(Path(self.folder).iterdir())))
        return commit(self, *arguments, **more)

    def twice(self: Any, work: Any, items: Any, load: Workload) -> Any:
        twofold = load._replace(sizes=[*load.sizes, *load.sizes])
        return islice(run(self, work, [*items, *items], twofold), len(items), None)

    monkeypatch.setattr(Staging, "commit", counted)
    monkeypatch.setattr(SparkExecutor, "map", twice)
    url, storage = f"aiven+file://{uploaded}", {"tier_keys": str(keys)}
    assert states(jobs.restore_tier(spark, url, str(by_spark), storage_options=storage)) == dict.fromkeys(
        ("orders-0", "orders-1"), "done"
    )
    assert attempts == [5]  # two attempts of two tasks, and the mark of the process
    pylogseg.offline.restore(url, alone, storage_options=storage)
    assert tree(by_spark) == tree(alone)
    assert not list(by_spark.glob("*-delete"))


@pytest.mark.parametrize("death", ["_finish", "note_entries"])
def test_a_driver_that_died_around_its_commit(
    spark: Any, uploaded: Path, keys: Path, tmp_path: Path, death: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next run finishes what was begun, and finds nothing left to do."""
    by_spark, alone = folders(tmp_path, "spark", "alone")
    url, storage = f"aiven+file://{uploaded}", {"tier_keys": str(keys)}

    def die(*args: Any, **more: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(f"pylogseg.transfer.staging.{death}", die)
        with pytest.raises(KeyboardInterrupt):
            jobs.restore_tier(spark, url, str(by_spark), storage_options=storage)
    assert set(states(jobs.restore_tier(spark, url, str(by_spark), storage_options=storage)).values()) == {"unchanged"}
    pylogseg.offline.restore(url, alone, storage_options=storage)
    assert tree(by_spark) == tree(alone)


def test_interrupted_while_tasks_run(
    spark: Any, uploaded: Path, keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (target,) = folders(tmp_path, "target")
    run = SparkExecutor.map

    def interrupted(self: Any, work: Any, items: Any, load: Workload) -> Any:
        list(run(self, work, items, load))
        if not items:  # nothing is there that could be the same
            return []
        assert list(target.glob("*-delete/*/orders-*"))
        raise KeyboardInterrupt

    monkeypatch.setattr(SparkExecutor, "map", interrupted)
    with pytest.raises(KeyboardInterrupt):
        jobs.restore_tier(spark, f"aiven+file://{uploaded}", str(target), storage_options={"tier_keys": str(keys)})
    assert not list(target.iterdir())


def test_refused(command: Any, examples: Path, uploaded: Path, keys: Path, tmp_path: Path) -> None:
    """Nothing is written: what does not belong together, and what would be lost."""
    (target,) = folders(tmp_path, "target")
    shutil.copytree(examples / "codec-zstd-0", target / "orders-0")
    before = tree(target)
    url = f"aiven+file://{uploaded}"
    wrong: dict[tuple[Any, ...], str] = {
        (url, target, "--keys", keys): "it already exists with other records",
        (url, target, "nobody"): "nobody",
        (url, "s3://bucket/x"): "works on one machine",
        (url, tmp_path / "none"): "no such folder: make it first",
        (url, target, "--committed"): "options of tables do not apply",
        (examples, target, "--to", 3): "only what comes from tiered storage",
    }
    for words, reason in wrong.items():
        done = command("restore", *words)
        assert (done.exit_code, reason in done.stderr) == (2, True), (words, done.stderr)
    assert tree(target) == before
    with pytest.raises(RequestError, match="topic is empty"):
        jobs.restore_tier(None, url, str(target), [])
    with pytest.raises(RequestError, match="not the URL of a tier"):
        jobs.restore_tier(None, str(examples), str(target))


# ---- read and check ----


def sorted_rows(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found = [{name: row[name] for name in COLUMNS if name != "timestamp"} for row in rows]
    return sorted(found, key=lambda row: (row["topic"], row["partition"], row["offset"]))


@needs_sources
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_rows_are_those_of_the_reader(spark: Any, golden: Path, name: str, isolation: Any) -> None:
    url, storage = url_of(golden, name), keys_of(golden, name)
    options = {"isolationLevel": isolation, "columns": ",".join(COLUMNS), "rangeBytes": "20k"}
    if storage:
        options["storageOptions"] = json.dumps({"tier_keys": str(storage["tier_keys"])})
    frame = spark.read.format("pylogseg").options(**options).load(url)
    found = [{**row.asDict(), "key": row.key and bytes(row.key), "value": bytes(row.value)} for row in frame.collect()]
    plain = pylogseg.read_arrow(
        pylogseg.open_dir(url, storage_options=storage), isolation_level=isolation, columns=COLUMNS
    )
    assert sorted_rows(found) == sorted_rows(plain.read_all().to_pylist())
    assert found


def test_a_disk_and_its_tier_are_read_as_one(spark: Any, disk: Path, uploaded: Path, keys: Path, rest: Path) -> None:
    url, storage = f"aiven+file://{uploaded}", {"tier_keys": str(keys)}
    joined: dict[str, Any] = {"tier": url, "storageOptions": storage}
    for isolation in ("read_uncommitted", "read_committed"):
        options = {**joined, "isolationLevel": isolation, "rangeBytes": "4k"}
        found = pylogseg.spark.read_segments(spark, rest, COLUMNS, **options)
        rows = [{**row.asDict(), "key": bytes(row.key), "value": bytes(row.value)} for row in found.collect()]
        assert sorted_rows(rows) == sorted_rows(pylogseg.read_arrow(disk, columns=COLUMNS).read_all().to_pylist())
    count = sum(len(part.segments) for part in pylogseg.open_dir(disk))
    assert pylogseg.spark.segments(spark, rest, **joined).count() == count
    assert pylogseg.spark.batches(spark, rest, **joined).count() == pylogseg.spark.batches(spark, disk).count()
    assert jobs.grep(spark, rest, "value 7 ", **joined).count() == jobs.grep(spark, disk, "value 7 ").count() > 0
    with pytest.raises(RequestError, match="not the URL of a tier"):
        pylogseg.spark.segments(spark, rest, tier="s3://bucket")


def test_keys_of_the_driver_s_environment(
    spark: Any, golden: Path, disk: Path, uploaded: Path, keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Executors may have another environment: they are told the path."""
    url = f"aiven+file://{uploaded}"
    with pytest.raises(Exception, match="'one' is not in the key ring, which has none"):
        pylogseg.spark.read_segments(spark, url, ["offset"]).count()
    monkeypatch.setenv("PYLOGSEG_TIER_KEYS", str(keys))
    tiered = pylogseg.read_arrow(pylogseg.open_tier(url)).read_all().num_rows
    assert pylogseg.spark.read_segments(spark, url, ["offset"]).count() == tiered > 0
    assert jobs.stats(spark, url, ["orders-0"], by="key").count() > 0


@pytest.mark.reads
def test_a_short_time_is_read_by_few_bytes(disk: Path, keys: Path, tmp_path: Path, monkeypatch: Any) -> None:
    folder = write_log(tmp_path / "orders-0", epochs=1, per_epoch=20_000, segment_bytes=256 << 10)
    Uploader(tmp_path / "tier", 8192, False, Key.make("two", tmp_path / "keys")).partition(folder, active=True)
    stored = sum(path.stat().st_size for path in (tmp_path / "tier").rglob("*.log"))
    since = 9_000_000
    options = parse({
        "startingTimestamp": since, "endingTimestamp": since + 200_000, "path": f"aiven+file://{tmp_path / 'tier'}",
        "storageOptions": {"tier_keys": str(tmp_path / "keys")},
    })  # fmt: skip
    bytes_read = count_reads(monkeypatch)
    found = [
        row["offset"]
        for task in plan(f"aiven+file://{tmp_path / 'tier'}", options)
        for batch in read_task(task, options, ["offset"])
        for row in batch.to_pylist()
    ]
    assert found == list(range(since // 1000, since // 1000 + 200))
    assert 0 < bytes_read["log"] < 256 << 10 < stored / 5  # less than one segment of many


@pytest.mark.parametrize("joined", [False, True])
def test_jobs_say_what_the_commands_say(
    command: Any, tier: Path, keys: Path, rest: Path, tmp_path: Path, joined: bool
) -> None:
    """Of a tier, and of a disk and its tier, with damage."""
    damage(sorted((tier / f"orders-{TOPIC_ID}" / "1").glob("*.log"))[1])
    sorted((tier / f"orders-{TOPIC_ID}" / "0").glob("*.indexes"))[0].unlink()
    url = f"aiven+file://{tier}"
    place = (rest, "--tier", url, "--keys", keys) if joined else (url, "--keys", keys)
    got = [json.loads(line) for line in command("verify", *place, "--json").stdout.splitlines()]
    assert got == shell.pylogseg("verify", *place, "--json").rows
    assert len(got) > 2
    words = ("stats", *place, "--json", "--by", "partition")
    assert [json.loads(line) for line in command(*words).stdout.splitlines()] == shell.pylogseg(*words).rows
    done = command("export", *place[:1], "orders-0", *place[1:], "--out", tmp_path / "table")
    assert done.exit_code == 0, done.output
    done = command("report", *place, "-o", tmp_path / "report.html")
    alone_report = shell.pylogseg("report", *place, "-o", tmp_path / "alone.html")
    assert (done.exit_code, done.stdout.splitlines()[0]) == (alone_report.code, alone_report.text.splitlines()[0])


def test_diff_of_tiers(spark: Any, golden: Path) -> None:
    name = "aiven-zstd-aesgcm"
    url, storage = url_of(golden, name), keys_of(golden, name)
    found = jobs.diff(spark, url, url, storage_options=storage).collect()
    assert [(row.partition, row.same, row.recordsA) for row in found] == [(0, True, 2880), (1, True, 2807)]


def test_what_is_sent_has_no_key(golden: Path, uploaded: Path, keys: Path) -> None:
    """A segment is sent with the names of the keys alone, and without what else lies in the tier."""
    found = pylogseg.open_tier(f"aiven+file://{uploaded}", keys)
    rows = pylogseg.read_arrow(found).read_all()  # all keys are loaded
    (part,) = found.select("orders-0").partitions
    ring = part.files.tier.by_partition["orders", 0, TOPIC_ID][0].shared.keys  # type: ignore[attr-defined]
    held = [
        *ring._unwrapped.values(),
        *(prime.to_bytes(128, "little") for prime in (int(ring._keys["one"]._cipher._key.p),)),
    ]
    sent = [pickle.dumps(each) for each in (part, part.segments[0], found)]
    pem = (keys / "one.pem").read_bytes().splitlines()[1]
    assert not [1 for data in sent for secret in (*held, pem) if secret in data]
    assert len(held) > 2
    assert len(sent[1]) < len(sent[0]) < len(sent[2])
    assert pylogseg.read_arrow(pickle.loads(sent[2])).read_all().equals(rows)
