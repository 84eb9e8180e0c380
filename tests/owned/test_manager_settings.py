"""Tests of owned/manager/settings.py and owned/manager/topics.py. What a manager deletes: only what the cluster's
metadata, or the program, says may go.
"""

import logging
import shutil
from pathlib import Path

import pytest

import pylogseg
from pylogseg import BrokerSettings, LogManager
from pylogseg.config import LogConfig
from pylogseg.errors import RequestError
from pylogseg.format.files.properties import parse_meta_properties
from pylogseg.testing.clock import ManualClock, ManualScheduler
from pylogseg.values.internal.cluster import ClusterMetadata

ROOT = Path(__file__).resolve().parents[2]
NOW_MS = 1_900_000_000_000  # all that the example holds is older than a week


@pytest.fixture
def world():
    clock = ManualClock(NOW_MS)
    return {"clock": clock, "scheduler": ManualScheduler(clock)}


@pytest.fixture
def broker(tmp_path):
    """A directory of a broker, with the metadata of its cluster."""
    shutil.copytree(ROOT / "examples" / "data", tmp_path / "a")
    return tmp_path / "a"


def ranges(manager):
    """First and next offset of each log, but of internal topics, which are known to be compacted."""
    return {key: (manager[key].log_start_offset, manager[key].log_end_offset) for key in manager if key[0][:2] != "__"}


def records_of(manager):
    return {key: sum(1 for _ in manager[key].read()) for key in manager if key[0][:2] != "__"}


def settings(*folders, **changes):
    return BrokerSettings(log_dirs=tuple(map(str, folders)), **{"log_cleaner_enable": False, **changes})


def clean_all(manager):
    cleaner = manager.cleaning.new_cleaner()
    cleaned = set()
    while (done := manager.cleaning.clean_dirtiest(cleaner)) is not None:
        cleaned.add(Path(done.folder).name)
    manager.cleaning.retain()
    return cleaned


def test_a_topic_that_the_metadata_does_not_know_is_left_alone(broker, tmp_path, world, caplog):
    topics = {path.parent.name.rpartition("-")[0] for path in broker.glob("[a-z]*-*/*.log")}
    with caplog.at_level(logging.WARNING), LogManager(settings(broker, tmp_path / "b"), **world) as manager:
        before = ranges(manager), records_of(manager)
        manager.move("codec-zstd", 0, str(tmp_path / "b"))
        world["scheduler"].advance(10 * 60_000)
        assert manager.retain() == 0
        assert clean_all(manager) <= {"__consumer_offsets-0", "__transaction_state-0"}
        assert (ranges(manager), records_of(manager)) == before
        assert set(manager.unknown_topics) == topics
        assert "metadata" in manager.unknown_topics["cmp-short"]
    told = [record.getMessage() for record in caplog.records if "cmp-short" in record.getMessage()]
    assert len(told) == 1
    assert "neither retained nor compacted" in told[0]


@pytest.mark.parametrize("without", ["metadata", "both"])
def test_without_metadata_nothing_of_a_broker_is_deleted(broker, world, without):
    shutil.rmtree(broker / "__cluster_metadata-0")
    if without == "both":
        (broker / "meta.properties").unlink()
    with LogManager(settings(broker), **world) as manager:
        before = ranges(manager)
        world["scheduler"].advance(10 * 60_000)
        assert manager.retain() == 0
        assert ranges(manager) == before


def test_defaults_are_for_topics_that_are_known(broker, world):
    defaults = LogConfig(retention_ms=1000, cleanup_policy="compact,delete")
    with LogManager(settings(broker, topic_defaults=defaults), **world) as manager:
        assert manager.retain() == 0
        assert clean_all(manager) <= {"__consumer_offsets-0", "__transaction_state-0"}
        assert manager.config_of("codec-zstd").retention_ms == -1
        assert manager.config_of("meta-4").retention_ms == -1  # as the metadata says
        assert manager.config_of("meta-4").cleanup_policy == ("compact", "delete")


def test_the_clusters_settings_count(broker, world):
    with LogManager(settings(broker), **world) as manager:
        config = manager.config_of("meta-1")
        assert (config.cleanup_policy, config.segment_bytes) == (("compact",), 2 << 20)
        assert manager.config_of("__consumer_offsets").compact
        assert manager.configure("meta-1", segment_bytes=1 << 20).cleanup_policy == ("compact",)
        assert manager.configure("meta-1", segment_bytes=None).segment_bytes == 2 << 20
        for topic in ("meta-1", "__consumer_offsets", "never-heard-of"):
            assert topic not in manager.unknown_topics


@pytest.mark.parametrize("again", [True, False])
def test_a_topic_that_was_made_again_has_no_settings_for_the_old_ones_log(broker, world, again):
    """A folder of a topic that was deleted, which the metadata knows by another id: nothing in it is compacted."""
    own = ClusterMetadata.read(str(broker / "__cluster_metadata-0")).topic_ids["meta-1"]
    found = "AAAAAAAAAAAAAAAAAAAAAQ" if again else own
    shutil.rmtree(broker / "meta-1-0", ignore_errors=True)
    shutil.copytree(broker / "codec-zstd-0", broker / "meta-1-0")
    (broker / "meta-1-0" / "partition.metadata").write_text(f"version: 0\ntopic_id: {found}")
    with LogManager(settings(broker), **world) as manager:
        config = manager["meta-1", 0].config
        assert manager.config_of("meta-1") == config
        if not again:
            assert config.compact
            assert "meta-1" not in manager.unknown_topics
            return
        assert (config.cleanup_policy, config.retention_ms) == (("delete",), -1)
        said = manager.unknown_topics["meta-1"]
        assert f"{broker / 'meta-1-0'} belongs to an older topic meta-1 than the metadata" in said
        assert f"its topic id is {found}, in the metadata {own}" in said
        before = records_of(manager)["meta-1", 0]
        clean_all(manager)
        assert manager.retain() == 0
        assert records_of(manager)["meta-1", 0] == before
        manager.configure("meta-1", retention_ms=1000)
        assert "meta-1" not in manager.unknown_topics


def test_what_the_program_says_counts(broker, world):
    topics = {"codec-zstd": {"retention_ms": 1000}}
    with LogManager(settings(broker), topics, **world) as manager:
        assert "codec-zstd" not in manager.unknown_topics
        assert manager.retain() > 0
        log = manager["codec-zstd", 0]
        assert log.log_start_offset == log.log_end_offset
        assert manager["codec-gzip", 0].log_start_offset < manager["codec-gzip", 0].log_end_offset
        manager.configure("codec-gzip", retention_ms=1000)
        assert "codec-gzip" not in manager.unknown_topics
        assert manager.retain() > 0
        manager.configure("cmp-short", segment_bytes=1 << 20)  # says nothing of what may go
        assert "cmp-short" in manager.unknown_topics
        assert manager.retain() == 0


def test_metadata_elsewhere(broker, tmp_path, world):
    shutil.move(broker / "__cluster_metadata-0", tmp_path / "meta" / "__cluster_metadata-0")
    with LogManager(settings(broker, metadata_log_dir=str(tmp_path / "meta")), **world) as manager:
        assert manager.config_of("meta-1").compact
    text = {"log.dirs": str(broker), "metadata.log.dir": str(tmp_path / "meta"), "log.cleaner.enable": "false"}
    with LogManager(BrokerSettings.from_properties(text), **world) as manager:
        assert manager.config_of("meta-1").compact


def _damaged_snapshot(broker):
    path = max((broker / "__cluster_metadata-0").glob("*.checkpoint"))
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 255
    path.write_bytes(data)
    return path


def test_the_log_stands_in_for_a_damaged_snapshot(broker, world, caplog):
    path = _damaged_snapshot(broker)
    with caplog.at_level(logging.WARNING), LogManager(settings(broker), **world) as manager:
        assert manager.config_of("meta-1").compact
    assert any(str(path) in record.getMessage() for record in caplog.records)


def test_damaged_metadata_deletes_nothing(broker, world, caplog):
    path = _damaged_snapshot(broker)
    for segment in sorted(path.parent.glob("*.log"))[:2]:  # the log alone does not give the state either
        segment.unlink()
    with caplog.at_level(logging.WARNING), LogManager(settings(broker), **world) as manager:
        assert manager.retain() == 0
        assert "cannot be read" in manager.unknown_topics["codec-zstd"]
    assert any(str(path.parent) in record.getMessage() for record in caplog.records)


def test_what_nobody_said_deletes_nothing_of_an_own_log(tmp_path, world):
    with LogManager(settings(tmp_path / "a"), {"orders": {"segment_bytes": 200}}, **world) as manager:
        for _ in range(30):
            manager.log("orders").append([(1000, b"key", b"value")])
        assert manager.retain() == 0
        assert not manager.unknown_topics
    with LogManager(settings(tmp_path / "a", topic_defaults=LogConfig()), **world) as manager:
        assert manager.retain() > 0  # Kafka's week, since the program said so


def test_a_new_log_directory_belongs_to_the_others(broker, tmp_path, world):
    with LogManager(settings(broker, tmp_path / "b", tmp_path / "c"), **world):
        pass
    first, *new = (
        parse_meta_properties((folder / "meta.properties").read_bytes())
        for folder in (broker, tmp_path / "b", tmp_path / "c")
    )
    assert all(each[:3] == first[:3] for each in new)
    assert len({each.directory_id for each in (first, *new)}) == 3
    with LogManager(settings(broker, tmp_path / "b", tmp_path / "c"), **world) as manager:
        assert manager.directories.find(new[0].directory_id).path == str(tmp_path / "b")


def test_directories_of_a_program_get_no_meta_properties(tmp_path, world):
    with LogManager(settings(tmp_path / "a", tmp_path / "b"), **world) as manager:
        manager.log("orders")
    assert not list(tmp_path.glob("*/meta.properties"))


def test_from_a_brokers_file(tmp_path):
    said = BrokerSettings.from_properties({"log.dirs": str(tmp_path), "log.retention.hours": "168"})
    assert said.topic_defaults.retention_ms == 604_800_000
    assert BrokerSettings.from_properties({"log.dirs": str(tmp_path)}).topic_defaults.retention_ms == -1
    assert pylogseg.BrokerSettings((str(tmp_path),)).topic_defaults.retention_ms == -1


def test_the_log_directories_alone_are_settings(tmp_path):
    for given in (tmp_path / "a", str(tmp_path / "a"), [tmp_path / "a", str(tmp_path / "b")]):
        with LogManager(given) as manager:
            assert manager.settings.log_dirs[0] == str(tmp_path / "a")
    assert BrokerSettings(log_dirs=[tmp_path]).log_dirs == (str(tmp_path),)
    for wrong in ([], 5, [5], None):
        with pytest.raises(RequestError, match=r"invalid log\.dirs"):
            LogManager(wrong)
