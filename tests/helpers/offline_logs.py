"""Logs of all kinds, made from a seed, and all that a reader or a broker can see of one."""

import random

from helpers.descriptions import described
from pylogseg.config import LogConfig
from pylogseg.env.environment import Environment
from pylogseg.format.records import decode
from pylogseg.log.log import Log
from pylogseg.log.state import Start
from pylogseg.testing.clock import ManualClock, ManualScheduler
from pylogseg.testing.memory import MemoryStorage

NOW = 1_700_000_000_000
KEYS = [None, "", "a", "b", "c", "long" * 20, "hex:00ff"]
HEADERS = [[], [], [], [["h", "1"]], [["h", None], ["other", "x"]]]
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
SETTINGS = {"segment_bytes": 2000, "index_interval_bytes": 100, "segment_index_bytes": 4096, "file_delete_delay_ms": 0}


def opened(storage, folder, config=None, **arguments):
    clock = ManualClock(NOW)
    config = config or LogConfig.of(**SETTINGS)
    return Log.open(Environment(storage, clock, ManualScheduler(clock)), str(folder), config, Start(**arguments))


class Appends:
    """Batches of a follower: what is in a batch, its producer and epoch are a matter of chance."""

    def __init__(self, rng, magics=(2, 2, 2, 1, 0)):
        self.rng, self.magics = rng, magics
        self.sequences, self.open_txns, self.epoch, self.number = {}, set(), 0, 0

    def append(self, log):
        """Append one."""
        rng, number = self.rng, self.number
        self.number += 1
        self.epoch += rng.random() < 0.1
        base = log.log_end_offset + (rng.random() < 0.1)
        if self.open_txns and rng.random() < 0.3:
            pid = rng.choice(sorted(self.open_txns))
            self.open_txns.remove(pid)
            spec = {"control": rng.choice(["commit", "abort"]), "producer_id": pid, "producer_epoch": 0}
            spec["timestamp"] = NOW + number
        else:
            spec = self._data()
        if "records" in spec:
            for i, record in enumerate(spec["records"]):
                record["offset"] = base + i
        spec["base_offset"] = base
        if spec.get("magic", 2) == 2:
            spec["leader_epoch"] = self.epoch
        log.append_as_follower(described([spec]), self.epoch)

    def _data(self):
        rng, number = self.rng, self.number - 1
        magic = rng.choice(self.magics)
        codec = rng.choice(CODECS[:-1] if magic < 2 else CODECS)
        count = rng.randint(1, 6) if magic == 2 or codec != "none" else 1
        records = [
            {
                "timestamp": NOW + number * 10 + rng.randint(-5, 5),
                "key": rng.choice(KEYS),
                "value": rng.choice([None, "", f"value-{number}-{i}" * rng.randint(1, 5)]),
                "headers": rng.choice(HEADERS) if magic == 2 else [],
            }
            for i in range(count)
        ]
        spec = {"magic": magic, "compression": codec, "records": records}
        if magic and rng.random() < 0.2:
            spec |= {"timestamp_type": "append", "log_append_time": NOW + number * 10}
        if magic == 2 and rng.random() < 0.5:
            pid = rng.randint(1, 3)
            spec |= {"producer_id": pid, "producer_epoch": 0, "base_sequence": self.sequences.get(pid, 0)}
            self.sequences[pid] = self.sequences.get(pid, 0) + count
            if pid < 3:  # a producer has transactions always or never
                self.open_txns.add(pid)
                spec["transactional"] = True
        return spec


def fill(log, seed, batches=25, magics=(2, 2, 2, 1, 0)):
    """Append batches, and roll now and then."""
    appends = Appends(random.Random(seed), magics)
    for _ in range(batches):
        appends.append(log)
        if appends.rng.random() < 0.05:
            log.roll()
    log.update_high_watermark(log.log_end_offset)
    return log


def made(seed, storage=None, folder="t-0", **arguments):
    """A log of its own."""
    return fill(opened(storage or MemoryStorage(), folder, clean=True), seed, **arguments)


def records(log):
    """What a reader that is not held back sees: all of each record, and what its batch says of it."""
    out = []
    for segment in log.segments:
        for window in segment.windows(recovering=True):
            columns, damage = decode(window.batches, window.buffer, window.file_position)
            assert not damage
            assert not (window.batches.verdict != 0).any()
            for i in range(len(columns)):
                rows = columns.batches[columns.batch[i] : columns.batch[i] + 1]
                header_columns = columns.take(slice(i, i + 1))
                name, name_size, value, value_size = header_columns.header_spans()
                headers = [
                    (columns.span(name[k], name_size[k]), columns.span(value[k], value_size[k]))
                    for k in range(len(name))
                ]
                fields = (int(columns.timestamp[i]), columns.key(i), columns.value(i), headers)
                said = (rows.timestamp_type, rows.producer_id, rows.producer_epoch, rows.is_transactional)
                said += (rows.is_control, rows.leader_epoch)
                out.append((int(columns.offset[i]), *fields, *(column[0].item() for column in said)))
    return out


def state(log):
    """What a broker knows of a log besides its records."""
    producers = {
        number: (each.producer_epoch, each.first_txn_offset, [tuple(batch)[:3] for batch in each.batches])
        for number, each in sorted(log.producers.active.items())
    }
    return {
        "start": log.log_start_offset,
        "end": log.log_end_offset,
        "last stable": log.last_stable_offset,
        "epochs": [tuple(entry) for entry in log.epochs.entries],
        "producers": producers,
        "aborted": [tuple(txn) for segment in log.segments for txn in segment.aborted_txns],
    }


def again(log, **arguments):
    """The same log, closed, opened, and all of it read again unless told otherwise."""
    log.close()
    log.scheduler.advance(1)
    found = opened(log.storage, log.folder, log.config, **arguments)
    found.update_high_watermark(found.log_end_offset)
    assert not [action for action in found.report.actions if action.bytes_gone]
    return found


def log_dir(seed, storage=None, folder="logs", **arguments):
    """A log directory that a broker has left in order, with one partition, t-0; its storage."""
    storage = storage or MemoryStorage()
    log = made(seed, storage, f"{folder}/t-0", **arguments)
    log.flush()
    log.close()
    log.scheduler.advance(1)
    storage.write_synced(f"{folder}/meta.properties", b"version=1\ncluster.id=c\nnode.id=1\n")
    storage.write_synced(f"{folder}/recovery-point-offset-checkpoint", b"0\n1\nt 0 %d\n" % log.log_end_offset)
    storage.write_synced(f"{folder}/replication-offset-checkpoint", b"0\n1\nt 0 %d\n" % log.log_end_offset)
    storage.write_synced(f"{folder}/.kafka_cleanshutdown", b'{"version":0,"brokerEpoch":1}')
    storage.sync_folder(folder)
    return storage


def reopened(storage, folder="logs", **arguments):
    """The log of such a directory."""
    log = opened(storage, f"{folder}/t-0", clean=arguments.pop("clean", True), **arguments)
    log.update_high_watermark(log.log_end_offset)
    return log
