"""Tests of owned/manager/background.py and owned/manager/manager.py. Many logs in several directories: loading,
placement, background work, failures, an orderly end.
"""

import shutil

import pytest
from helpers.checks import wait_for
from helpers.managed_logs import fill, manual, names, records, settings

import pylogseg
from pylogseg import BrokerSettings, LogManager
from pylogseg.errors import ClosedError, RequestError, StorageError
from pylogseg.format.files.checkpoint import parse_offset_checkpoint
from pylogseg.log.cleaner_range import cleanable

DAY_MS = 86_400_000


def test_logs_go_where_fewest_are_and_come_back(tmp_path):
    with LogManager(settings(tmp_path)) as manager:
        for partition in range(5):
            manager.log("orders", partition).append(records(partition + 1))
        assert manager.log("orders", 3) is manager["orders", 3]
        assert manager.log("pinned", log_dir=str(tmp_path / "b")).folder == str(tmp_path / "b" / "pinned-0")
        with pytest.raises(RequestError, match="not one of"):
            manager.log("elsewhere", log_dir=str(tmp_path))
    assert [len(names(tmp_path / "a")), len(names(tmp_path / "b"))] == [3, 3]
    assert (tmp_path / "a" / ".kafka_cleanshutdown").exists()
    points = parse_offset_checkpoint((tmp_path / "a" / "recovery-point-offset-checkpoint").read_bytes())
    assert set(points.values()) == {1, 3, 5}
    with LogManager(settings(tmp_path)) as again:
        assert list(again) == [*(("orders", partition) for partition in range(5)), ("pinned", 0)]
        assert [again["orders", partition].log_end_offset for partition in range(5)] == [1, 2, 3, 4, 5]
        assert not any(log.report.recovered_segments for _, _, log in again.places())
        assert not (tmp_path / "a" / ".kafka_cleanshutdown").exists()
    with pytest.raises(ClosedError):
        again.log("late")


def test_a_directory_has_one_manager(tmp_path):
    with LogManager(settings(tmp_path)) as manager:
        manager.log("orders")
        with pytest.raises(RequestError, match="open already"):
            LogManager(settings(tmp_path))
        with pytest.raises(RequestError, match="duplicate log directory"):
            LogManager(settings(tmp_path, log_dirs=(str(tmp_path / "c"), str(tmp_path / "x" / ".." / "c"))))
        assert manager.log("orders").append(records(1)).last_offset == 0


def test_a_partition_in_two_directories_is_refused(tmp_path):
    with LogManager(settings(tmp_path)) as manager:
        manager.log("orders", log_dir=str(tmp_path / "a")).append(records(1))
    shutil.copytree(tmp_path / "a" / "orders-0", tmp_path / "b" / "orders-0")
    with pytest.raises(RequestError, match="lies in both"):
        LogManager(settings(tmp_path))
    shutil.rmtree(tmp_path / "b" / "orders-0")
    LogManager(settings(tmp_path)).close()  # the locks were given back


def test_after_a_crash_logs_are_recovered(tmp_path):
    manager = LogManager(settings(tmp_path))
    fill(manager.log("orders"))
    for _, _, each in manager.places():
        each.close_handles()
    manager.close()
    path = tmp_path / "a" / "orders-0" / "00000000000000000000.log"
    path.write_bytes(path.read_bytes()[:-5])
    with LogManager(settings(tmp_path)) as again:
        assert again["orders", 0].report.recovered_segments == 1
        assert again["orders", 0].log_end_offset == 29


def test_deletion_is_seen_at_once_and_done_later(tmp_path):
    world = manual()
    with LogManager(settings(tmp_path), **world) as manager:
        log = manager.log("orders")
        log.append(records(3))
        manager.delete("orders", 0)
        assert ("orders", 0) not in manager
        (left,) = names(tmp_path / "a")
        assert left.startswith("orders-0.")
        assert left.endswith("-delete")
        with pytest.raises(ClosedError):
            log.append(records(1))
        assert manager.log("orders").log_end_offset == 0
        with pytest.raises(RequestError, match="no such partition"):
            manager.delete("orders", 7)
    with LogManager(settings(tmp_path), **world) as again:
        world["scheduler"].advance(60_000)
        assert names(tmp_path / "a") + names(tmp_path / "b") == ["orders-0"]
        assert list(again) == [("orders", 0)]


def test_background_work(tmp_path):
    world = manual()
    topics = {
        "orders": {"segment_bytes": 1000, "retention_bytes": 2000, "file_delete_delay_ms": 10},
        "flushed": {"flush_ms": 500},
    }
    with LogManager(settings(tmp_path), topics, **world) as manager:
        fill(manager.log("orders"))
        fill(manager.log("flushed"))
        assert manager["flushed", 0].recovery_point == 0
        world["scheduler"].advance(30_000)
        assert manager["orders", 0].log_start_offset > 0
        assert manager["flushed", 0].recovery_point == 30
        world["scheduler"].advance(60_000)
        starts = parse_offset_checkpoint((tmp_path / "a" / "log-start-offset-checkpoint").read_bytes())
        assert starts.get(("orders", 0), manager["orders", 0].log_start_offset) == manager["orders", 0].log_start_offset
        assert manager.configure("orders", retention_bytes=0).retention_bytes == 0
        before = manager["orders", 0].log_start_offset
        assert manager.retain() > 0
        assert manager["orders", 0].log_start_offset > before
        with pytest.raises(RequestError, match=r"retention\.bytes"):
            manager.configure("orders", retention_bytes="much")
        assert manager.configure("orders", retention_bytes=None).retention_bytes == -1


def test_compaction_in_the_background(tmp_path):
    changes = {"log_cleaner_enable": True, "log_cleaner_backoff_ms": 5, "log_cleaner_dedupe_buffer_size": 1 << 20}
    topics = {"orders": {"cleanup_policy": "compact", "segment_bytes": 1000}, "plain": {"segment_bytes": 1000}}
    with LogManager(settings(tmp_path, **changes), topics) as manager:
        log, plain = manager.log("orders"), manager.log("plain")
        fill(log, 100)
        fill(plain, 100)

        def first_dirty() -> int:
            return cleanable(log.engine, _cleaned(tmp_path, log), log.engine.clock.now_ms()).first_dirty

        wait_for(lambda: first_dirty() >= log.engine.active.base_offset)
        last = {record.key: record.offset for record in log.read()}
        assert sorted(last.values()) == [97, 98, 99]
        assert sum(1 for _ in log.read(offset=(0, log.engine.active.base_offset))) == 3
        assert sum(1 for _ in plain.read()) == 100
        manager.configure("orders", cleanup_policy="delete")
        cleaned = _cleaned(tmp_path, log)
        log.truncate_to(50)
        assert _cleaned(tmp_path, log) == 50 < cleaned


def _cleaned(tmp_path, log):
    for folder in (tmp_path / "a", tmp_path / "b"):
        path = folder / "cleaner-offset-checkpoint"
        if log.folder.startswith(str(folder)) and path.exists():
            return parse_offset_checkpoint(path.read_bytes()).get(("orders", 0))
    return None


def test_a_log_that_cannot_be_cleaned_does_not_stop_the_others(tmp_path):
    topics = {"bad": {"cleanup_policy": "compact"}, "good": {"cleanup_policy": "compact"}}
    with LogManager(settings(tmp_path), topics) as manager:
        for topic in topics:
            log = manager.log(topic)
            log.append(records(40, 1), compression="lz4")
            log.append(records(40, 1), compression="lz4")
            log.engine.roll()
        path = tmp_path / "a" / "bad-0" / "00000000000000000000.log"
        data = bytearray(path.read_bytes())
        data[70:90] = b"\xff" * 20
        path.write_bytes(data)
        cleaner = manager.cleaning.new_cleaner()
        done = [manager.cleaning.clean_dirtiest(cleaner) for _ in range(2)]
        assert [each.folder for each in done if each] == [manager["good", 0].folder]
        assert list(manager.cleaning.uncleanable) == [manager["bad", 0].folder]
        assert sum(1 for _ in manager["good", 0].read()) == 1


def test_a_directory_that_fails_does_not_stop_the_others(tmp_path):
    with LogManager(settings(tmp_path)) as manager:
        first, second = manager.log("first"), manager.log("second")
        first.append(records(3))
        shutil.rmtree(tmp_path / "a")
        (tmp_path / "a").write_bytes(b"")
        manager.checkpoint()
        assert list(manager) == [("second", 0)]
        assert list(manager.directories.failed) == [str(tmp_path / "a")]
        assert second.append(records(1)).last_offset == 0
        with pytest.raises(StorageError, match="offline"):
            manager.log("third")
        assert manager.log("third", log_dir=str(tmp_path / "b")).log_end_offset == 0
    assert (tmp_path / "b" / ".kafka_cleanshutdown").exists()
    with pytest.raises(StorageError, match="no log directory"):
        LogManager(settings(tmp_path, log_dirs=(str(tmp_path / "a"),)))


def test_settings_of_a_broker(tmp_path):
    text = {
        "log.dirs": f"{tmp_path}/x, {tmp_path}/y",
        "log.retention.hours": "2",
        "log.retention.minutes": "30",
        "log.roll.hours": "3",
        "message.max.bytes": "2000000",
        "log.cleaner.threads": "2",
        "log.cleanup.policy": "compact,delete",
        "log.segment.delete.delay.ms": "7",
        "log.flush.scheduler.interval.ms": "1000",
        "zookeeper.connect": "not ours",
    }
    path = tmp_path / "server.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in text.items()))
    found = BrokerSettings.from_file(path, log_cleaner_backoff_ms=1)
    assert found.log_dirs == (f"{tmp_path}/x", f"{tmp_path}/y")
    defaults = found.topic_defaults
    assert (defaults.retention_ms, defaults.segment_ms, defaults.max_message_bytes) == (
        1_800_000,
        10_800_000,
        2_000_000,
    )
    assert (defaults.cleanup_policy, defaults.file_delete_delay_ms) == (("compact", "delete"), 7)
    assert (defaults.flush_ms, found.log_cleaner_threads, found.log_cleaner_backoff_ms) == (1000, 2, 1)
    assert (
        BrokerSettings.from_properties({"log.dir": "z", "log.retention.hours": "-1"}).topic_defaults.retention_ms == -1
    )
    for wrong in ({"log.cleaner.threads": "many"}, {"log.cleaner.threads": "-1"}, {"log.retention.ms": "soon"}):
        with pytest.raises(RequestError, match=next(iter(wrong))):
            BrokerSettings.from_properties({"log.dirs": "z", **wrong})
    with pytest.raises(RequestError, match=r"log\.dirs"):
        BrokerSettings.from_properties({})


def test_a_brokers_directory(examples, tmp_path):
    shutil.copytree(examples, tmp_path / "data")
    with LogManager(settings(tmp_path, log_dirs=(str(tmp_path / "data"),))) as manager:
        assert len(manager) == len(pylogseg.open_dir(examples).partitions) - 1  # not the cluster's metadata
        for key in manager:
            want = pylogseg.read(examples, key[0], partition=key[1])
            got = manager[key].read(offset=0)
            assert [(r.offset, r.key, r.value) for r in got] == [(r.offset, r.key, r.value) for r in want]
