"""Tests of archive/whole_cluster/assigning.py, archive/whole_cluster/command.py, archive/whole_cluster/trying.py and
archive/whole_cluster/writing.py. `restore --cluster`: a point of three brokers becomes new folders for controllers and
brokers, or nothing at all.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from helpers.metadata_logs import CLUSTER, DIRECTORIES, LOG, MetadataLog
from helpers.shell import Done, expect
from helpers.shell import pylogseg as shell

import pylogseg
from pylogseg.archive import restore_cluster
from pylogseg.disk.folders import readable_topic_id
from pylogseg.env.storage import LocalStorage
from pylogseg.errors import RequestError, StorageError
from pylogseg.format.files.properties import MetaProperties, encode_meta_properties, parse_properties
from pylogseg.format.files.status import parse_clean_shutdown
from pylogseg.inspect.quorum.copies import read_copies
from pylogseg.values.internal.image import Image

#: Topics: partitions, and replicas of each.
TOPICS = {"orders": (3, (11, 12, 13)), "users": (2, (11, 12)), "far": (1, (13,))}
CONTROLLER = "1@c1.example.com:9093"


class World:
    """An archive, and what the cluster had."""

    def __init__(self, root: Path, *, static: bool = False, level: int = 30) -> None:
        self.root, self.archive = root, root / "archive"
        self.log, self.records = MetadataLog((1, 2, 3), static=static), dict[str, list[Any]]()
        with pylogseg.Broker(root / "made") as broker:
            for topic, (count, _) in TOPICS.items():
                broker.create_topic(topic, count)
                for number in range(40):
                    broker.produce(topic, b"%d" % number, partition=number % count)
        self.made = pylogseg.open_dir(root / "made")
        self._metadata(level)
        for node in (11, 12, 13):
            self._disk(node)
        self.log.disk(root / "c1", 1)
        disks = [root / "c1", *(root / f"b{node}" for node in (11, 12, 13))]
        done = shell("archive", *disks, self.archive)
        assert done.code == 0, done

    def _metadata(self, level: int) -> None:
        fields = {"brokerId": 13, "incarnationId": DIRECTORIES[13], "brokerEpoch": 44, "features": [], "rack": None,
                  "fenced": False, "endPoints": [{"name": "PLAINTEXT", "host": "b13", "port": 9092,
                                                  "securityProtocol": 0}]}  # fmt: skip
        self.log.add(("RegisterBrokerRecord", 3, fields),
                     ("FeatureLevelRecord", 0, {"name": "metadata.version", "featureLevel": level}),
                     ("ProducerIdsRecord", 0, {"brokerId": 11, "brokerEpoch": 1, "nextProducerId": 5000}))  # fmt: skip
        version = (level >= 17) + (level >= 23)
        for topic, (count, replicas) in TOPICS.items():
            topic_id = self.topic_id(topic)
            rows: list[Any] = [("TopicRecord", 0, {"name": topic, "topicId": topic_id})]
            for number in range(count):
                row = {"partitionId": number, "topicId": topic_id, "replicas": [*replicas], "isr": [replicas[0]],
                       "leader": replicas[0], "leaderEpoch": 7, "partitionEpoch": 9, "removingReplicas": [],
                       "addingReplicas": []}  # fmt: skip
                if version:
                    row["directories"] = [DIRECTORIES[each] for each in replicas]
                rows.append(("PartitionRecord", version, row))
            self.log.add(*rows)
        self.log.add(("ConfigRecord", 0, {"resourceType": 2, "resourceName": "orders", "name": "min.insync.replicas",
                                          "value": "2"}))  # fmt: skip

    def topic_id(self, topic: str) -> str:
        return next(str(readable_topic_id(p.files, p.path)) for p in self.made.partitions if p.topic == topic)

    def _disk(self, node: int) -> None:
        disk = self.root / f"b{node}"
        disk.mkdir()
        for part in self.made.partitions:
            if part.topic in TOPICS and node in TOPICS[part.topic][1]:
                shutil.copytree(part.path, disk / part.name)
                self.records[part.name] = [(r.offset, r.value, r.timestamp) for r in pylogseg.read(part)]
        for path in (self.root / "made").glob("*checkpoint"):
            shutil.copy(path, disk)
        meta = MetaProperties(1, CLUSTER, node, DIRECTORIES[node])
        (disk / "meta.properties").write_bytes(encode_meta_properties(meta, "test"))
        (disk / ".kafka_cleanshutdown").write_bytes(b'{"version":0,"brokerEpoch":1}')

    def restored(self, target: Path, brokers: dict[int, int], *more: object) -> Done:
        """Run the command, with a number of folders for each broker."""
        arguments: list[object] = ["--controller", f"{CONTROLLER}={target / 'c1'}"]
        for node, count in brokers.items():
            folders = ",".join(str(target / f"b{node}-{i}") for i in range(count))
            arguments += ["--broker", f"{node}={folders}"]
        return shell("restore", self.archive, "--cluster", *arguments, *more)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("whole"))


def image_of(folder: Path) -> Image:
    (copy,) = read_copies(str(folder))
    assert copy.is_whole, copy.error
    assert copy.partition is not None
    return Image.read(copy.partition)


def contents(target: Path) -> dict[int, dict[str, tuple[str, list[Any]]]]:
    """Of each broker: each partition, the id of its directory and its records."""
    found: dict[int, dict[str, tuple[str, list[Any]]]] = {}
    for folder in sorted(target.glob("b*")):
        label = parse_properties((folder / "meta.properties").read_bytes())
        assert label["cluster.id"] == CLUSTER
        node = found.setdefault(int(label["node.id"]), {})
        for part in pylogseg.open_dir(folder).partitions:
            assert part.name not in node
            rows = [(record.offset, record.value, record.timestamp) for record in pylogseg.read(part)]
            node[part.name] = label["directory.id"], rows
        assert shell("verify", folder).code == 0
    return found


def check_agrees(world: World, target: Path, brokers: dict[int, int]) -> Image:
    """Check that the metadata says what is in the folders."""
    image, there = image_of(target / "c1"), contents(target)
    assert set(image.brokers) == set(brokers)
    ids = set[str]()
    counts = {broker: sum(broker in f["replicas"] for f in image.partitions.values()) for broker in brokers}
    last = max(brokers, key=lambda broker: (counts[broker], broker))  # the one that starts last leads what it has
    for (topic_id, number), fields in image.partitions.items():
        name = f"{image.topics[topic_id]}-{number}"
        assert fields["isr"] == [last if last in fields["replicas"] else fields["replicas"][0]]
        assert set(fields["replicas"]) <= set(brokers)
        assert (fields["leader"], fields["leaderEpoch"], fields["partitionEpoch"]) == (-1, 8, 10)
        for broker, directory in zip(fields["replicas"], fields["directories"], strict=True):
            assert there[broker][name] == (directory, world.records[name])
            ids.add(directory)
    assert {broker: set(parts) for broker, parts in there.items()} == {
        broker: {f"{image.topics[key[0]]}-{key[1]}" for key, fields in image.partitions.items()
                 if broker in fields["replicas"]} for broker in brokers
    }  # fmt: skip
    assert not ids & set(DIRECTORIES.values())
    return image


def test_the_same_brokers(world: World, tmp_path: Path) -> None:
    """Each broker has what it had, in folders whose ids the metadata names; the old log is a prefix of the new one."""
    brokers = {11: 1, 12: 2, 13: 1}
    done = world.restored(tmp_path, brokers)
    assert done.code == 0, done
    assert "done: 5 log directories" in done.out.decode()
    image = check_agrees(world, tmp_path, brokers)
    for fields in image.partitions.values():
        topic = image.topics[fields["topicId"]]
        assert tuple(fields["replicas"]) == TOPICS[topic][1]
        assert image.topic_ids[topic] == world.topic_id(topic)
    assert all(fields["fenced"] for fields in image.brokers.values())
    assert image.next_producer_id == 1_005_000
    assert image.configs[2, "orders"] == {"min.insync.replicas": "2"}
    (copy,) = read_copies(str(tmp_path / "c1"))
    assert [str(voter).split(":", 1)[1].split("@")[1] for voter in copy.voters or ()] == ["c1.example.com:9093"]
    before = (world.root / "c1" / LOG / f"{0:020d}.log").read_bytes()
    assert (tmp_path / "c1" / LOG / f"{0:020d}.log").read_bytes().startswith(before)
    for node, epoch in ((11, 1), (13, 44)):  # the controller compares it: another one counts as a crash
        data = (tmp_path / f"b{node}-0" / ".kafka_cleanshutdown").read_bytes()
        assert parse_clean_shutdown(data) == epoch


def test_fewer_brokers(world: World, tmp_path: Path) -> None:
    """One broker takes over all; others are unregistered, and what changes is named."""
    done = world.restored(tmp_path, {12: 1})
    assert done.code == 0, done
    image = check_agrees(world, tmp_path, {12: 1})
    assert len(image.partitions) == 6
    assert image.configs[2, "orders"] == {"min.insync.replicas": "1"}
    for text in ("brokers that are unregistered: 11, 13", "1 partition (far-0)", "with fewer replicas than before",
                 "orders: min.insync.replicas is 1, and was 2"):  # fmt: skip
        assert text in done.out.decode()


def test_two_of_three_brokers_keep_two_replicas(world: World, tmp_path: Path) -> None:
    """Where a replica's broker is gone, another one gets it if it has none yet."""
    assert world.restored(tmp_path, {11: 1, 13: 1}).code == 0
    image = check_agrees(world, tmp_path, {11: 1, 13: 1})
    replicas = {image.topics[key[0]]: fields["replicas"] for key, fields in image.partitions.items()}
    assert {topic: sorted(each) for topic, each in replicas.items()} == {
        "orders": [11, 13], "users": [11, 13], "far": [13],
    }  # fmt: skip


def test_two_runs_write_the_same_bytes(world: World, tmp_path: Path) -> None:
    """Nothing comes from the clock or from chance, and a dry run says the same and writes nothing."""
    texts, trees = [], []
    for _ in range(2):
        dry = world.restored(tmp_path / "new", {11: 1, 12: 1}, "-n")
        assert (dry.code == 0 and not (tmp_path / "new").exists()) or not [*(tmp_path / "new").iterdir()], dry
        done = world.restored(tmp_path / "new", {11: 1, 12: 1})
        files = [path for path in sorted((tmp_path / "new").rglob("*")) if path.is_file()]
        trees.append({path: path.read_bytes() for path in files})
        texts.append(done.out.decode())
        assert dry.out.decode().splitlines()[:-1] == done.out.decode().splitlines()[:-1]
        shutil.rmtree(tmp_path / "new")
    assert trees[0] == trees[1]
    assert texts[0] == texts[1]


def test_json(world: World, tmp_path: Path) -> None:
    """Partitions have rows, and the last one is the cluster's."""
    done = world.restored(tmp_path, {11: 1, 12: 1, 13: 1}, "--json")
    *parts, row = map(json.loads, done.out.decode().splitlines())
    assert {part["partition"] for part in parts if part["state"] == "done"} == {*world.records}
    assert (row["type"], row["clusterId"], row["dryRun"], row["unregistered"]) == ("cluster", CLUSTER, False, [])
    assert [folder["node"] for folder in row["folders"]] == [1, 11, 12, 13]
    settings = [line for step in row["steps"] for line in step["settings"] if line.startswith("log.dirs=")]
    assert settings == [f"log.dirs={tmp_path / name}" for name in ("c1", "b11-0", "b12-0", "b13-0")]


@pytest.mark.parametrize(
    ("more", "text"),
    [
        (["--broker", "11={0}/b11"], "--controller ID@HOST:PORT=DIR"),
        (["--controller", CONTROLLER + "={0}/c1"], "--broker ID=DIR"),
        (["--controller", CONTROLLER + "={0}/c1", "--broker", "14={0}/b14"], "it has 11, 12, 13"),
        (["--controller", CONTROLLER + "={0}/c1", "--broker", "11={0}/c1"], "folder of its own"),
        (["--controller", CONTROLLER + "={0}/c1", "--broker", "11={0}/c1/b11"], "folder of its own"),
        (["--controller", CONTROLLER + "={0}/c1", "--broker", "eleven={0}/b11"], "expected ID=DIR"),
        (["--controller", "1=c1", "--broker", "11={0}/b11"], "expected ID@HOST:PORT"),
        (["--controller", CONTROLLER + "={0}/c1", "--broker", "11={0}/b11", "--node-id", "1"], "--node-id does not"),
        (["--controller", CONTROLLER + "={0}/c1", "--broker", "11={0}/b11", "-t", "orders"], "--topic does not"),
        (["--controller", CONTROLLER + "={0}/c1", "--broker", "11={0}/full"], "empty"),
    ],
)  # fmt: skip
def test_refusals(world: World, tmp_path: Path, more: list[str], text: str) -> None:
    """Nothing is written for a wrong line of options, and the error names what is wrong."""
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "precious").write_text("data")
    done = shell("restore", world.archive, "--cluster", *(each.format(tmp_path) for each in more))
    assert done.code == 2, done
    assert text in done.err
    assert [path.name for path in tmp_path.iterdir()] == ["full"]


def test_a_point_without_metadata(tmp_path: Path) -> None:
    """Without the metadata nobody knows the partitions of brokers: the error says what would help."""
    with pylogseg.Broker(tmp_path / "disk") as broker:
        broker.create_topic("orders", 1)
        broker.produce("orders", b"1")
    assert shell("archive", tmp_path / "disk", tmp_path / "archive").code == 0
    with pytest.raises(RequestError, match="no metadata of the cluster"):
        restore_cluster(
            tmp_path / "archive", controllers={CONTROLLER: str(tmp_path / "c")}, brokers={1: [str(tmp_path / "b")]}
        )


def test_a_partition_that_no_disk_had_is_named(tmp_path: Path) -> None:
    """It begins empty, and the exit code says so."""
    world = World(tmp_path)
    shutil.rmtree(world.archive)
    shutil.rmtree(tmp_path / "b13" / "far-0")
    shell("archive", *(tmp_path / name for name in ("c1", "b11", "b12", "b13")), world.archive)
    done = world.restored(tmp_path / "new", {11: 1, 12: 1, 13: 1})
    assert done.code == 1, done
    assert "does not have 1 partition (far-0): they begin empty" in done.err
    assert not (tmp_path / "new" / "b13-0" / "far-0").exists()


def test_a_static_quorum(tmp_path: Path) -> None:
    """Its voters stand in the settings, and the records of brokers come in the new epoch all the same."""
    world = World(tmp_path, static=True)
    done = world.restored(tmp_path / "new", {11: 1})
    assert done.code == 0, done
    assert f"controller.quorum.voters={CONTROLLER}" in done.out.decode()
    check_agrees(world, tmp_path / "new", {11: 1})
    (copy,) = read_copies(str(tmp_path / "new" / "c1"))
    assert copy.voters is None
    assert copy.epoch == 1002


def test_old_metadata_versions(tmp_path: Path) -> None:
    """Below 3.7 no record names directories: a broker gets one folder."""
    world = World(tmp_path, level=16)
    expect(world.restored(tmp_path / "new", {11: 2}), 2, "metadata.version 16 knows no log directories")
    assert world.restored(tmp_path / "new", {11: 1}).code == 0
    image = image_of(tmp_path / "new" / "c1")
    assert all(not fields.get("directories") for fields in image.partitions.values())


def test_a_failure_at_any_step_leaves_nothing(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No folder has its name before all are written."""
    renames, real = list[str](), LocalStorage.rename

    def rename(self: LocalStorage, source: str, target: str) -> None:
        renames.append(target)
        if len(renames) == limit:
            raise StorageError(target, "rename", "the disk is full")
        real(self, source, target)

    monkeypatch.setattr(LocalStorage, "rename", rename)
    limit = -1
    names = {str(tmp_path / name) for name in ("c1", "b11", "b12")}
    how: Any = {"controllers": {CONTROLLER: str(tmp_path / "c1")},
                "brokers": {11: [str(tmp_path / "b11")], 12: [str(tmp_path / "b12")]}}  # fmt: skip
    restore_cluster(world.archive, **how)
    first = min(renames.index(name) for name in names)
    for name in names:
        shutil.rmtree(name)
    for chosen in (1, first // 2, first, first + 1):
        renames.clear()
        limit = chosen
        with pytest.raises(StorageError, match="the disk is full"):
            restore_cluster(world.archive, **how)
        assert {path.name for path in tmp_path.iterdir()} == set()
