"""Tests of owned/manager/cleaning.py. What happens to the logs of a manager while they are used: moves, failures,
truncations, new settings.
"""

import shutil
import threading

import pytest
from helpers.managed_logs import fill, manual, names, records, settings

import pylogseg
from pylogseg import BrokerSettings, LogManager
from pylogseg.env.storage import LocalStorage
from pylogseg.errors import ClosedError, RequestError, StorageError
from pylogseg.format.files.checkpoint import parse_offset_checkpoint
from pylogseg.format.files.properties import MetaProperties, encode_meta_properties
from pylogseg.owned.manager.cleaning import Cleaning
from pylogseg.testing.clock import ManualClock, ManualScheduler
from pylogseg.testing.faults import FaultyStorage
from pylogseg.testing.memory import MemoryStorage


def contents(log):
    return [(record.offset, record.key, record.value) for record in log.read()]


def test_a_move_to_another_directory(tmp_path):
    world = manual()
    topics = {"orders": {"segment_bytes": 1000, "cleanup_policy": "compact", "min_cleanable_dirty_ratio": 0.1}}
    with LogManager(settings(tmp_path), topics, **world) as manager:
        log = manager.log("orders", topic_id="AAAAAAAAAAAAAAAAAAAACQ", log_dir=str(tmp_path / "a"))
        fill(log, 200)
        log.producer(7).append(records(3))
        manager.cleaning.clean_dirtiest(manager.cleaning.new_cleaner())
        log.increment_log_start(150)
        before, cleaned = contents(log), manager.places()[0][0].cleaned_to("orders-0")
        told = []
        moved = manager.move("orders", 0, str(tmp_path / "b"), progress=lambda *where: told.append(where))
        assert told[-1] == (203, 203)
        assert contents(moved) == before
        assert moved.log_start_offset == 150
        assert moved is manager["orders", 0] is manager.move("orders", 0, str(tmp_path / "b"))
        assert moved.producer(7).next_sequence == 3
        assert manager.places()[0][0].cleaned_to("orders-0") == cleaned > 0
        with pytest.raises(ClosedError):
            log.append(records(1))
        assert moved.append(records(1)).last_offset == 203
        assert (tmp_path / "b" / "orders-0" / "partition.metadata").exists()
        assert names(tmp_path / "b") == ["orders-0"]
        assert [name[-7:] for name in names(tmp_path / "a")] == ["-delete"]
        world["scheduler"].advance(60_000)
        assert names(tmp_path / "a") == []
    with LogManager(settings(tmp_path), topics, **world) as again:
        assert contents(again["orders", 0])[:-1] == before
        assert again["orders", 0].report.recovered_segments == 0


def test_a_move_that_is_interrupted_goes_on_later(tmp_path):
    world = manual()
    target = str(tmp_path / "b")

    def stop(done, end):
        raise KeyboardInterrupt

    with LogManager(settings(tmp_path), **world) as manager:
        fill(manager.log("orders", log_dir=str(tmp_path / "a")), 20)
        with pytest.raises(KeyboardInterrupt):
            manager.move("orders", 0, target, progress=stop)
        assert [name[-7:] for name in names(tmp_path / "b")] == ["-future"]
    with LogManager(settings(tmp_path), **world) as again:
        fill(again["orders", 0], 10)
        told = []
        moved = again.move("orders", 0, target, progress=lambda *where: told.append(where))
        assert told[0] == (30, 30)  # it went on at 20
        assert len(contents(moved)) == 30
        assert names(tmp_path / "b") == ["orders-0"]
        with pytest.raises(RequestError, match="not one of"):
            again.move("orders", 0, "elsewhere")
        with pytest.raises(RequestError, match="no such partition"):
            again.move("none", 0, target)


@pytest.mark.parametrize("change", ["truncated", "other records", "deleted records"])
def test_a_copy_that_does_not_fit_any_more_is_made_anew(tmp_path, change):
    with LogManager(settings(tmp_path), **manual()) as manager:
        log = manager.log("orders", log_dir=str(tmp_path / "a"))
        fill(log, 20)

        def disturb(done, end):
            if log.log_end_offset != 20 or log.log_start_offset:
                return
            if change == "truncated":
                log.truncate_to(5)
            elif change == "other records":
                log.truncate_to(5)
                fill(log, 16)
            else:
                log.increment_log_start(20)
                fill(log, 2)

        moved = manager.move("orders", 0, str(tmp_path / "b"), progress=disturb)
        expected = {"truncated": (0, 5), "other records": (0, 21), "deleted records": (20, 22)}
        assert (moved.log_start_offset, moved.log_end_offset) == expected[change]
        assert [offset for offset, _, _ in contents(moved)] == list(range(*expected[change]))


def test_records_that_come_during_a_move_are_in_the_copy(tmp_path):
    with LogManager(settings(tmp_path)) as manager:
        fill(manager.log("orders", log_dir=str(tmp_path / "a")), 10)
        sent, stop = [], threading.Event()

        def send():
            while not stop.is_set():
                try:
                    sent.append(manager.log("orders").append([(None, b"k", b"%d" % len(sent))]).last_offset)
                except ClosedError:
                    continue

        thread = threading.Thread(target=send)
        thread.start()
        for target in "baba":
            manager.move("orders", 0, str(tmp_path / target))
        stop.set()
        thread.join()
        found = contents(manager["orders", 0])
        assert [offset for offset, _, _ in found] == list(range(10 + len(sent)))
        assert sent == list(range(10, 10 + len(sent)))


def test_set_aside(tmp_path):
    world = manual()
    with LogManager(settings(tmp_path), **world) as manager:
        fill(manager.log("orders"), 5)
        folder = manager.set_aside("orders", 0)
        assert folder.endswith("-stray")
        assert list(manager) == []
        world["scheduler"].advance(1_000_000)
    with LogManager(settings(tmp_path), **world) as again:
        assert list(again) == []
        assert again.log("orders").log_end_offset == 0
        again.delete("orders", 0)
    shutil.move(folder, tmp_path / "a" / "orders-0")
    with LogManager(settings(tmp_path), **world) as again:
        assert again["orders", 0].log_end_offset == 5


def test_offsets_of_a_deleted_partition_are_not_those_of_a_new_one(tmp_path):
    with LogManager(settings(tmp_path), **manual()) as manager:
        log = manager.log("orders")
        fill(log, 9)
        log.increment_log_start(5)
        saved = (tmp_path / "a" / "log-start-offset-checkpoint").read_bytes()
        assert b"orders 0 5" in saved
        manager.delete("orders", 0)
    # as a crash between the renaming and the checkpoint leaves it
    (tmp_path / "a" / "log-start-offset-checkpoint").write_bytes(saved)
    with LogManager(settings(tmp_path), **manual()) as again:
        new = again.log("orders", log_dir=str(tmp_path / "a"))
        assert (new.log_start_offset, new.log_end_offset) == (0, 0)


def test_a_closed_log_is_opened_again(tmp_path):
    with LogManager(settings(tmp_path)) as manager:
        for count in range(3):
            with manager.log("orders") as log:
                assert log.log_end_offset == count
                log.append(records(1))
        assert manager.places() == []
        manager.retain()


def test_a_failing_append_takes_its_directory_offline():
    world = manual()
    storage = FaultyStorage(MemoryStorage(), None, 5)
    config = BrokerSettings(log_dirs=("/a", "/b"), log_cleaner_enable=False)
    with LogManager(config, storage=storage, **world) as manager:
        first, second = manager.log("first", log_dir="/a"), manager.log("second", log_dir="/b")
        also = manager.log("also", log_dir="/a")
        first.append(records(1))
        storage.fail_at = storage.count + 1
        with pytest.raises(StorageError):
            first.append(records(1))
        world["scheduler"].advance(1)
        assert list(manager) == [("second", 0)]
        assert "/a" in manager.directories.failed
        with pytest.raises(ClosedError):
            also.append(records(1))
        assert second.append(records(1)).last_offset == 0


def test_a_malformed_file_takes_its_directory_offline(tmp_path):
    with LogManager(settings(tmp_path)) as manager:
        for name, place in (("first", "a"), ("second", "b"), ("third", "a")):
            fill(manager.log(name, log_dir=str(tmp_path / place)), 3)
    (tmp_path / "a" / "first-0" / "leader-epoch-checkpoint").write_bytes(b"what")
    with LogManager(settings(tmp_path)) as again:
        assert list(again) == [("second", 0)]
        assert "leader-epoch-checkpoint" in again.directories.failed[str(tmp_path / "a")]
    with pytest.raises(StorageError, match="leader-epoch-checkpoint"):
        LogManager(settings(tmp_path, log_dirs=(str(tmp_path / "a"),)))
    assert (tmp_path / "b" / ".kafka_cleanshutdown").exists()
    assert not (tmp_path / "a" / ".kafka_cleanshutdown").exists()


def test_directories_of_one_broker(tmp_path):
    def write(place, **fields):
        (tmp_path / place).mkdir(exist_ok=True)
        meta = MetaProperties(1, **{"cluster_id": "c", "node_id": 1, **fields})
        (tmp_path / place / "meta.properties").write_bytes(encode_meta_properties(meta, "now"))

    first, second = "AAAAAAAAAAAAAAAAAAAAAg", "AAAAAAAAAAAAAAAAAAAAAw"
    write("a", directory_id=first)
    write("b", directory_id=second)
    with LogManager(settings(tmp_path)) as manager:
        assert manager.log("orders", log_dir=second).folder.startswith(str(tmp_path / "b"))
    for wrong, message in (
        ({"node_id": 2, "directory_id": second}, r"node\.id"),
        ({"cluster_id": "d", "directory_id": second}, r"cluster\.id"),
        ({"directory_id": first}, "copy"),
    ):
        write("b", **wrong)
        with pytest.raises(RequestError, match=message):
            LogManager(settings(tmp_path))
    (tmp_path / "b" / "meta.properties").write_bytes(b"version=what\n")
    with LogManager(settings(tmp_path)) as manager:
        assert list(manager.directories.failed) == [str(tmp_path / "b")]


def test_flushes_begin_when_a_topic_asks_for_them(tmp_path):
    world = manual()
    with LogManager(settings(tmp_path), **world) as manager:
        log = manager.log("orders")
        fill(log, 3)
        world["scheduler"].advance(1_000_000)
        assert log.recovery_point == 0
        manager.configure("orders", flush_ms=500)
        world["scheduler"].advance(500)
        assert log.recovery_point == 3


def test_a_truncation_ends_the_cleaning_of_its_log(tmp_path, monkeypatch):
    """Otherwise segments with what was cut off would come back."""
    topics = {"orders": {"cleanup_policy": "compact", "segment_bytes": 1000}}
    config = settings(tmp_path, log_cleaner_io_max_bytes_per_second=1.0)
    with LogManager(config, topics) as manager:
        log = manager.log("orders")
        fill(log, 100)
        ended, begun = [], threading.Event()
        spend = Cleaning._spend

        def slow(self, size):
            begun.set()
            spend(self, size)

        monkeypatch.setattr(Cleaning, "_spend", slow)

        def clean():
            ended.append(manager.cleaning.clean_dirtiest(manager.cleaning.new_cleaner()))

        thread = threading.Thread(target=clean)
        thread.start()
        assert begun.wait(60)
        (running,) = manager.cleaning.progress()
        assert (running.folder, running.done_bytes) == (log.folder, 0)
        assert running.total_bytes > 0
        log.truncate_to(10)
        thread.join(60)
        assert ended == [None]
        assert not manager.cleaning.uncleanable
        fill(log, 3)
        assert [offset for offset, _, _ in contents(log)] == list(range(13))
        with manager.cleaning.pause_cleaner(log.folder), manager.cleaning.pause_cleaner(log.folder):
            assert manager.cleaning.clean_dirtiest(manager.cleaning.new_cleaner()) is None


def test_the_checkpoint_of_the_cleaner_knows_folders_of_all_kinds(tmp_path):
    topics = {"orders": {"cleanup_policy": "compact", "segment_bytes": 1000}}
    with LogManager(settings(tmp_path, log_dirs=(str(tmp_path / "a"),)), topics) as manager:
        fill(manager.log("other"), 3)
        manager.set_aside("other", 0)
        fill(manager.log("orders"), 100)
        done = manager.cleaning.clean_dirtiest(manager.cleaning.new_cleaner())
        assert done is not None
        written = parse_offset_checkpoint((tmp_path / "a" / "cleaner-offset-checkpoint").read_bytes())
        assert written == {("orders", 0): done.next_dirty}
        manager.delete("orders", 0)
        assert not parse_offset_checkpoint((tmp_path / "a" / "cleaner-offset-checkpoint").read_bytes())


def test_too_little_memory_for_a_cleaner(tmp_path):
    with pytest.raises(RequestError, match=r"dedupe\.buffer\.size"):
        settings(tmp_path, log_cleaner_dedupe_buffer_size=1 << 20, log_cleaner_threads=2)


def test_a_log_that_is_compacted_and_deleted(tmp_path):
    topics = {"both": {"cleanup_policy": "compact,delete", "segment_bytes": 1000, "retention_bytes": 2000}}
    with LogManager(settings(tmp_path), topics, **manual()) as manager:
        log = manager.log("both")
        for i in range(100):
            log.append([(None, b"key%d" % i, b"v" * 50)])
        assert manager.retain() == 0  # the cleaner does it
        assert manager.cleaning.retain() > 0
        assert 0 < log.log_start_offset < 100
        done = manager.cleaning.clean_dirtiest(manager.cleaning.new_cleaner())
        assert done.next_dirty == log.engine.active.base_offset
        manager.configure("both", cleanup_policy="compact", retention_bytes=0)
        assert manager.cleaning.retain() == 0


def test_a_record_that_waits_too_long_is_compacted_soon(tmp_path):
    world = manual()
    topics = {
        "orders": {"cleanup_policy": "compact", "max_compaction_lag_ms": 10_000, "min_cleanable_dirty_ratio": 1.0}
    }
    with LogManager(settings(tmp_path), topics, **world) as manager:
        log = manager.log("orders")
        fill(log, 20)
        log.engine.roll()
        assert manager.cleaning.candidates() == []  # the ratio has to be above the setting
        world["scheduler"].advance(10_001)
        (candidate,) = manager.cleaning.candidates()
        assert candidate.urgent
        assert manager.cleaning.clean_dirtiest(manager.cleaning.new_cleaner()) is not None
        assert manager.cleaning.candidates() == []
        assert len(contents(log)) == 3


class Waiting(LocalStorage):
    """Lets somebody act between a look at a log and the flush of its folder."""

    before_sync = None

    def sync_folder(self, path):
        act, self.before_sync = self.before_sync, None
        if act is not None and path.endswith("-0"):
            act()
        elif act is not None:
            self.before_sync = act
        super().sync_folder(path)


@pytest.mark.parametrize("how", ["delete", "set_aside"])
@pytest.mark.parametrize("flush", ["roll", "flush"])
def test_a_folder_that_is_renamed_beside_a_flush_is_no_failure(tmp_path, how, flush):
    storage = Waiting()
    clock = ManualClock(1_700_000_000_000)
    scheduler = ManualScheduler(clock)
    config = BrokerSettings(log_dirs=(str(tmp_path),), log_cleaner_enable=False)
    with LogManager(config, storage=storage, clock=clock, scheduler=scheduler) as manager:
        other = manager.log("other")
        log = manager.log("orders")
        log.append([(None, None, b"value")])
        storage.before_sync = lambda: getattr(manager, how)("orders", 0)
        try:
            log.engine.roll() if flush == "roll" else log.flush()
        except ClosedError:
            assert flush == "flush"
        assert storage.before_sync is None
        scheduler.advance(1000)
        assert not manager.directories.failed
        assert other.append([(None, None, b"value")]).last_offset == 0
        assert ("orders", 0) not in manager


CHECKPOINTS = (
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "replication-offset-checkpoint",
    "cleaner-offset-checkpoint",
)


def noted(folder):
    """What each checkpoint says, by its name."""
    paths = [folder / name for name in CHECKPOINTS]
    return {path.name: parse_offset_checkpoint(path.read_bytes()) if path.exists() else {} for path in paths}


def note_partitions_that_are_gone(folder):
    for name in CHECKPOINTS:
        (folder / name).write_text("0\n2\norders 0 1\ngone 3 500\n")


def one_directory(tmp_path):
    return settings(tmp_path, log_dirs=(str(tmp_path / "a"),))


def test_a_checkpoint_that_is_written_has_no_partition_that_is_gone(tmp_path):
    with LogManager(one_directory(tmp_path)) as manager:
        manager.log("orders").append(records(1))
    note_partitions_that_are_gone(tmp_path / "a")
    with LogManager(one_directory(tmp_path)) as again:
        again.checkpoint()
        assert noted(tmp_path / "a") == {name: {("orders", 0): 1} for name in CHECKPOINTS}


def test_a_log_that_is_opened_alone_keeps_what_the_checkpoints_say_of_others(tmp_path):
    (tmp_path / "a").mkdir()
    note_partitions_that_are_gone(tmp_path / "a")
    with pylogseg.open_log(tmp_path / "a" / "new-0") as log:
        log.append(records(1))
    points = noted(tmp_path / "a")["recovery-point-offset-checkpoint"]
    assert points == {("orders", 0): 1, ("gone", 3): 500, ("new", 0): 1}


@pytest.mark.parametrize("how", ["manager", "open_log"])
def test_a_crash_leaves_a_new_partition_no_offsets_of_a_deleted_one(tmp_path, how):
    (tmp_path / "a").mkdir()
    note_partitions_that_are_gone(tmp_path / "a")
    if how == "manager":
        log = LogManager(one_directory(tmp_path)).log("gone", 3)
    else:
        log = pylogseg.open_log(tmp_path / "a" / "gone-3")
    log.append(records(5))
    log.flush()
    shutil.copytree(tmp_path / "a", tmp_path / "crashed")
    with LogManager(settings(tmp_path, log_dirs=(str(tmp_path / "crashed"),))) as again:
        assert [record.offset for record in again["gone", 3].read()] == [0, 1, 2, 3, 4]
        assert again["gone", 3].log_start_offset == 0
    assert ("gone", 3) not in noted(tmp_path / "crashed")["cleaner-offset-checkpoint"]
    log.close()


@pytest.mark.parametrize("end", ["delete", "set_aside", "move"])
def test_no_checkpoint_says_anything_of_a_partition_that_was_taken_away(tmp_path, end):
    topics = {"orders": {"cleanup_policy": "compact", "segment_bytes": 1000}}
    (tmp_path / "b").mkdir()
    with LogManager(settings(tmp_path), topics) as manager:
        log = manager.log("orders", log_dir=str(tmp_path / "a"))
        fill(log, 100)
        log.increment_log_start(5)
        done = manager.cleaning.clean_dirtiest(manager.cleaning.new_cleaner())
        manager.checkpoint()
        assert all(noted(tmp_path / "a").values())
        getattr(manager, end)("orders", 0, *([str(tmp_path / "b")] if end == "move" else []))
        manager.checkpoint()
        assert not any(noted(tmp_path / "a").values())
        if end == "move":
            assert noted(tmp_path / "b")["cleaner-offset-checkpoint"] == {("orders", 0): done.next_dirty}


def test_a_log_that_is_deleted_leaves_nothing_in_the_checkpoint_of_the_cleaner(tmp_path):
    with pylogseg.open_log(tmp_path / "a" / "orders-0") as log:
        log.append(records(1))
        (tmp_path / "a" / "cleaner-offset-checkpoint").write_text("0\n1\norders 0 1\n")
    with pylogseg.open_log(tmp_path / "a" / "orders-0") as log:
        log.delete()
    assert not noted(tmp_path / "a")["cleaner-offset-checkpoint"]


@pytest.mark.parametrize("end", ["delete", "set_aside", "move"])
def test_a_log_that_was_closed_is_taken_away_like_any_other(tmp_path, end):
    (tmp_path / "b").mkdir()
    with LogManager(settings(tmp_path)) as manager:
        log = manager.log("orders", log_dir=str(tmp_path / "a"))
        log.append(records(3))
        log.close()
        getattr(manager, end)("orders", 0, *([str(tmp_path / "b")] if end == "move" else []))
        assert "orders-0" not in names(tmp_path / "a")
        assert [place[2].log_end_offset for place in manager.places()] == ([3] if end == "move" else [])


def test_a_log_directory_is_found_by_the_path_that_the_settings_were_given(tmp_path, monkeypatch):
    """The settings make paths absolute; who named a directory relatively names it so again."""
    monkeypatch.chdir(tmp_path)
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
    with LogManager(BrokerSettings(log_dirs=("a", "b")), scheduler=None) as manager:
        manager.log("t", 0, log_dir="a").append(records(1))
        manager.move("t", 0, "b")
        assert (tmp_path / "b" / "t-0").is_dir()
