"""Tests of owned/manager/directories.py and owned/manager/logs.py. A manager loads the directories of a real broker as
the broker's own start log says, and leaves them as it would.
"""

import re
import shutil

import pytest

import pylogseg
from pylogseg import BrokerSettings, LogManager
from pylogseg.format.files.checkpoint import parse_offset_checkpoint
from pylogseg.format.names import parse_partition_folder
from pylogseg.format.records import decode
from pylogseg.log.cleaner_range import cleanable
from pylogseg.owned.manager.logs import OpenLogs
from pylogseg.testing.clock import ManualClock, ManualScheduler

LOADED = re.compile(
    r"Completed load of Log\(dir=(data\d)/([^,]+), .*logStartOffset=(\d+), logEndOffset=(\d+)\) with (\d+) segments"
)
FOLDERS = ["codecs", "compact-0-before", "compact-3-cleaned", "metadata", "retention", "txn", "txn-old", "unclean"]


@pytest.mark.parametrize("name", FOLDERS)
def test_a_brokers_directories_load_as_it_says(golden, tmp_path, name, monkeypatch):
    said = {}
    for line in (golden / "broker-4.3" / name / "start.log").read_text(encoding="utf-8").splitlines():
        if match := LOADED.search(line):
            said[match[1], match[2]] = tuple(map(int, match.groups()[2:]))
    dirs = sorted(path.name for path in (golden / "broker-4.3" / name).glob("data?"))
    for each in dirs:
        shutil.copytree(golden / "broker-4.3" / name / each, tmp_path / each)
    loaded = {}
    opened = OpenLogs.open

    def note(self, directory, folder, topic_id=None):
        log = opened(self, directory, folder, topic_id)
        loaded[directory.path[-5:], folder] = (log.log_start_offset, log.log_end_offset, len(log.engine.segments))
        return log

    monkeypatch.setattr(OpenLogs, "open", note)
    clock = ManualClock(1_800_000_000_000)
    settings = BrokerSettings(log_dirs=tuple(str(tmp_path / each) for each in dirs), log_cleaner_enable=False)
    scheduler = ManualScheduler(clock)
    with LogManager(settings, clock=clock, scheduler=scheduler) as manager:
        live = {key for key in said if parse_partition_folder(key[1]).state != "delete"}
        assert loaded == {key: said[key] for key in live}
        assert len(manager) == sum(not parse_partition_folder(folder).state for _, folder in live)
        assert manager.directories.meta.keys() == set(settings.log_dirs)
        recovered = sum(log.report.recovered_segments for _, _, log in manager.places())
        assert (recovered > 0) == (name == "unclean")
        scheduler.advance(60_000)
        for each in dirs:
            assert not list((tmp_path / each).glob("*-delete"))
    loaded.clear()
    with LogManager(settings, clock=clock, scheduler=ManualScheduler(clock)) as again:
        assert loaded.keys() == live
        assert not any(log.report.recovered_segments for _, _, log in again.places())


TOPIC = {
    "segment_bytes": 8192,
    "index_interval_bytes": 512,
    "min_cleanable_dirty_ratio": 0.01,
    "cleanup_policy": "compact",
    "delete_retention_ms": 31_536_000_000,
}
SHORT = {**TOPIC, "delete_retention_ms": 100}


def cleaned_at(folder, delete_retention_ms):
    """When the broker cleaned a log: horizons of deletion count from that."""
    found = [1_795_000_000_000]
    for path in folder.glob("*.log"):
        batches = pylogseg.scan(path.read_bytes()).batches
        found += (batches.base_timestamp[batches.has_delete_horizon] - delete_retention_ms).tolist()
    return max(found)


def decoded(path):
    data = path.read_bytes()
    batches = pylogseg.scan(data).batches
    columns = decode(batches, data)[0]
    fields = ("base_offset", "last_offset", "count", "attributes", "base_timestamp", "max_timestamp", "producer_id")
    heads = [tuple(int(getattr(batches, field)[i]) for field in fields) for i in range(len(batches))]
    return heads, [(int(columns.offset[i]), columns.key(i), columns.value(i)) for i in range(len(columns))]


@pytest.mark.parametrize("step", [0, 2, 4])
def test_a_brokers_cleaning_is_ours(golden, tmp_path, step):
    before, after = (golden / "broker-4.3" / f"compact-{name}" for name in (f"{step}-before", f"{step + 1}-cleaned"))
    for each in ("data0", "data1"):
        shutil.copytree(before / each, tmp_path / each)
    clock = ManualClock(1_795_000_000_000)
    settings = BrokerSettings(log_dirs=(str(tmp_path / "data0"), str(tmp_path / "data1")), log_cleaner_enable=False)
    names = {folder.name: folder for folder in after.glob("data?/cmp-*-0")}
    topics = {name[:-2]: SHORT if name in ("cmp-short-0", "cmp-txn-0") else TOPIC for name in names}
    compared = 0
    with LogManager(settings, topics, clock=clock, scheduler=ManualScheduler(clock)) as manager:
        cleaner = manager.cleaning.new_cleaner()
        for place in [place for place in manager.places() if place[1] in names]:
            directory, name, log = place
            clock.set_ms(cleaned_at(names[name], log.config.delete_retention_ms))
            what = cleanable(log.engine, directory.cleaned_to(name), clock.now_ms())
            next_dirty, _ = cleaner.clean(log.engine, what)
            noted = parse_offset_checkpoint((names[name].parent / "cleaner-offset-checkpoint").read_bytes())
            assert next_dirty == noted[name[:-2], 0]
            compresses = name.split("-")[1] in ("gzip", "lz4", "snappy", "zstd")
            for path in sorted(names[name].glob("*.log"))[:-1]:
                mine = tmp_path / names[name].parent.name / name / path.name
                if compresses:
                    assert decoded(mine) == decoded(path), path
                else:
                    for suffix in (".log", ".index", ".timeindex", ".txnindex"):
                        one, other = mine.with_suffix(suffix), path.with_suffix(suffix)
                        assert one.exists() == other.exists(), other
                        assert not other.exists() or one.read_bytes() == other.read_bytes(), other
                compared += 1
            bases = [segment.base_offset for segment in log.engine.segments]
            assert bases == sorted(int(path.stem) for path in names[name].glob("*.log"))
    assert compared > 5
