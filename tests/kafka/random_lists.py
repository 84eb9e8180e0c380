"""Random lists of log operations, in the language of README.md; `random_lists(seed, numbers)` gives them.

A list has a taste: small segments or large ones, formats, codecs, producers, damage. Codecs of other libraries write
other bytes, and with sizes everything moves; so a list in which the log itself compresses has segments and indexes that
never fill, and is compared by content, and every other list keeps what is appended as it is.

A third of a list is what a follower gets from a leader of another version or behind a cleaner: batches with gaps and
without records, markers, producers whose ids share a bucket of a map, times and offsets at their ends.
"""

import copy
import random
import struct
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from helpers import handmade
from scenarios import DELETED, HW, NOW, append, batch, marker, op, record

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
INDEXES = [".index", ".timeindex", ".txnindex"]
ISOLATIONS = ["log_end", "high_watermark", "txn_committed", "txn_committed"]
POLICIES = ["compact", "delete", "compact,delete", "delete", ""]
#: The last sequence, and the last epoch of a producer.
LAST_SEQUENCE, LAST_EPOCH = 2**31 - 1, 2**15 - 1
#: Attributes of a batch: the time is that of the append, transactional, control records, a delete horizon.
APPEND_TIME, TRANSACTIONAL, CONTROL, HORIZON = 8, 16, 32, 64
#: Producers that a follower gets; some ids share a bucket. Two are not transactional.
FOLLOWED = [10, 26, 11, 27, 43, 12]
IDEMPOTENT = [10, 11]
#: Where logs begin anew: offsets beyond 32 bits, beyond what a float holds, near the last ones that a leader takes.
FAR = [2**31 - 10, 2**31, 2**32 - 3, 2**33, 2**53 - 1, 2**62, 2**63 - 2**36]


class Lists:
    """One list in the making."""

    def __init__(self, rng, cleaning):
        self.rng, self.cleaning = rng, cleaning
        self.now, self.epoch, self.n = NOW, 0, 0
        self.producers = {pid: {"epoch": 0, "seq": 0, "open": False} for pid in range(1, 6)}
        self.sent = []
        self.followed = {pid: {"epoch": 0, "seq": 0} for pid in FOLLOWED} | {6: {"epoch": LAST_EPOCH - 1, "seq": 0}}
        self.policy = rng.choice(POLICIES)
        self.compact = "compact" in self.policy
        self.keys = rng.choice([4, 12, 60])
        self.version = rng.choices(["2", "1", "0", "mixed"], [75, 9, 6, 10])[0]
        some_codecs = rng.random() < 0.45
        self.recoding = rng.random() < 0.2 or (some_codecs and cleaning and self.compact)
        self.codecs = CODECS if some_codecs or self.recoding else ["none"]
        self.changes_policy = self.recoding or not some_codecs  # a cleaner compresses anew what it takes records from
        self.loose = {"compare": "content"} if self.recoding else {}
        # times in steps that the jitter does not reach
        self.jitter = rng.random() < 0.15
        self.step_ms = [10_000, 20_000, 40_000] if self.jitter else [10, 500, 3000, 15_000]
        self.config = self.settings()

    def settings(self):
        rng = self.rng
        config = {
            "cleanup.policy": self.policy,
            "file.delete.delay.ms": rng.choice([0, 1000, 1000, 60_000]),
            "segment.bytes": rng.choice([400, 900, 3000, 20_000]),
            "segment.index.bytes": rng.choice([40, 96, 240, 4096]),
            "index.interval.bytes": rng.choice([0, 1, 50, 100, 500, 10_000, 2**31 - 1]),
            "segment.ms": rng.choice([3000, 60_000, 10**9]),
            "delete.retention.ms": rng.choice([0, 1, 2000, 50_000, 86_400_000]),
        }
        if self.recoding:
            config |= {"segment.bytes": 10**6, "segment.index.bytes": 4096, "index.interval.bytes": 10**6}
            config["compression.type"] = rng.choice(["producer", "uncompressed", *CODECS[1:]])
            config["compression.gzip.level"] = rng.choice([-1, 1, 9])
            config["compression.lz4.level"] = rng.choice([1, 9, 17])
            config["compression.zstd.level"] = rng.choice([-5, 1, 3, 19])
        elif rng.random() < 0.15:
            config["preallocate"] = "true"
        if self.jitter:
            config |= {"segment.ms": 35_000, "segment.jitter.ms": 5000}
        if rng.random() < 0.5:
            config["retention.ms"] = rng.choice([-1, 0, 1, 4000, 20_000, 10**12])
        if rng.random() < 0.3 and not self.recoding:
            config["retention.bytes"] = rng.choice([0, 700, 4000, 20_000])
        if self.compact and rng.random() < 0.3:
            lags = (
                (1500, 10**9) if self.jitter else rng.choice([(1500, 2500), (0, 3000), (1, 10_000), (3000, 2**63 - 1)])
            )
            config |= dict(zip(("min.compaction.lag.ms", "max.compaction.lag.ms"), lags, strict=True))
        if rng.random() < 0.2:
            config["message.timestamp.type"] = "LogAppendTime"
        if rng.random() < 0.15:
            config["flush.messages"] = rng.choice([1, 3, 20])
        if rng.random() < 0.15 and not self.recoding:
            config["max.message.bytes"] = rng.choice([200, 400])
        if rng.random() < 0.15:
            config |= {"message.timestamp.before.max.ms": 1500, "message.timestamp.after.max.ms": 50}
        return config

    # ---- what is appended ----

    def time(self):
        if self.jitter:
            return self.now
        return self.now + self.rng.choice([0, 0, self.rng.randint(-2000, 100)])

    def records(self, most=6):
        rng, rows = self.rng, []
        for _ in range(rng.randint(1, most)):
            self.n += 1
            key = f"key-{rng.randrange(self.keys)}" if rng.random() < (0.99 if self.compact else 0.8) else None
            value = None if rng.random() < 0.1 else f"value-{self.n}".ljust(rng.randint(0, 60), ".")
            headers = [["h", str(self.n)], ["h", None]] if self.version == "2" and rng.random() < 0.2 else None
            rows.append(record(key, value, self.time(), headers))
        return rows

    def leader_epoch(self):
        if self.rng.random() < 0.04:
            self.epoch += self.rng.randint(1, 2)
        return self.epoch if self.rng.random() < 0.98 else self.rng.randint(-1, self.epoch + 1)

    def given(self):
        """Fields of a batch, and of the append, for the formats of this list."""
        rng = self.rng
        codec = rng.choice(self.codecs)
        version = rng.choice(["0", "1", "2", "2"]) if self.version == "mixed" else self.version
        if version == "2":
            return {"compression": codec}, {}
        codec = "none" if codec == "zstd" or (version == "0" and not self.recoding) else codec
        to = int(rng.choice("012")) if self.recoding and rng.random() < 0.3 else int(version)
        return {"magic": int(version), "compression": codec}, {"record_version": to}

    def plain(self):
        fields, more = self.given()
        yield append(batch(*self.records(), **fields), epoch=self.leader_epoch(), **more)

    def copied(self):
        """As a follower appends: batches with offsets, of one or several epochs."""
        rng, made = self.rng, []
        place = rng.choice([0, 0, 0, 1, 7, -1]) if rng.random() < 0.98 else 2**31 + 5
        for _ in range(rng.choice([1, 1, 2, 4])):
            fields, _ = self.given()
            rows = self.records(3)
            self.epoch += rng.random() < 0.1
            made.append(batch(*rows, base_offset=f"end{place:+d}", leader_epoch=self.epoch, **fields))
            place += len(rows) + rng.choice([0, 0, 0, 2]) - (rng.random() < 0.02)
        yield append(*made, **{"as": "follower", "epoch": self.epoch})

    def produced(self):
        rng = self.rng
        pid = rng.randint(1, 5)
        state = self.producers[pid]
        if self.sent and rng.random() < 0.08:
            yield rng.choice(self.sent[-8:])
            return
        rows = self.records(4)
        transactional = state["open"] or (pid > 2 and rng.random() < 0.7)
        seq = state["seq"] if rng.random() < 0.93 else max(0, state["seq"] + rng.randint(-3, 2))
        epoch = state["epoch"] if rng.random() < 0.96 else max(0, state["epoch"] + rng.choice([-1, 1]))
        fields = {"producer_id": pid, "producer_epoch": epoch, "base_sequence": seq, "transactional": transactional}
        one = append(
            batch(*rows, compression=rng.choice(self.codecs), **fields),
            epoch=self.leader_epoch(),
            **({"transaction_version": 2} if pid == 5 else {}),
        )
        self.sent.append(one)
        yield one
        if seq == state["seq"]:
            state["seq"] = (state["seq"] + len(rows)) % 2**31
            state["open"] = transactional

    def ended(self):
        rng = self.rng
        pid = rng.choice([3, 3, 4, 4, 5, 5, 1, 9])
        state = self.producers.get(pid, {"epoch": 0, "seq": 0})
        second = pid == 5 and rng.random() < 0.9
        if second:
            state["epoch"] += 1
            state["seq"] = 0
        epoch = max(0, state["epoch"] + (rng.choice([-1, 1]) if rng.random() < 0.05 else 0))
        yield marker(
            rng.choice(["commit", "abort"]),
            pid,
            epoch,
            self.now,
            rng.choice([0, 0, 0, 1, 3]),
            epoch=self.leader_epoch(),
            **({"transaction_version": 2} if second else {}),
        )
        state["open"] = False

    def odd(self):
        """Appends that are refused, or nearly."""
        rng = self.rng
        kind = rng.randrange(7)
        if kind == 0:
            yield append(batch(*self.records()), batch(*self.records()))
        elif kind == 1:
            yield op("append", hex=rng.choice(["", "00" * 61, "ff" * 70, "00" * 7]))
        elif kind == 2:
            yield append({"control": "abort", "producer_id": 5, "producer_epoch": 0, "timestamp": self.now})
        elif kind == 3:
            yield append(batch(record(None, "v" * rng.choice([5, 500]), self.now)))
        elif kind == 4:
            control = rng.choice(["leader_change", "snapshot_header", "kraft_version"])
            yield append(
                {"control": control, "timestamp": self.now, "base_offset": "end", "leader_epoch": self.epoch},
                origin="raft_leader",
                epoch=self.epoch,
            )
        elif kind == 5:
            yield append(batch(*self.records(), producer_id=7, producer_epoch=0, base_sequence=2**31 - 2))
        else:
            yield append(batch(*self.records(), producer_id=8, producer_epoch=rng.choice([-1, 0]), base_sequence=-1))

    # ---- what no producer of today sends, and what a follower gets ----

    def made_by_hand(self):
        """A batch with gaps, without records, of any times; and how many offsets it has."""
        rng = self.rng
        flags = (APPEND_TIME if rng.random() < 0.2 else 0) | (HORIZON if rng.random() < 0.2 else 0)
        deltas = sorted(rng.sample(range(12), rng.choice([0, 1, 1, 2, 3, 5])))
        last = (deltas[-1] if deltas else 0) + rng.choice([0, 0, 1, 3])
        if rng.random() < 0.03:
            last = rng.choice([2**24, 2**30])
        begun, rows = self.now, b""
        if rng.random() < 0.4 and not self.jitter:
            begun = rng.choice([self.now - 3000, self.now + 10**9, -1, 0, 2**62])
        later = [0 if self.jitter else rng.choice([0, 1, -5, 50, 2000]) for _ in deltas]
        for delta, after in zip(deltas, later, strict=True):
            self.n += 1
            key = f"key-{rng.randrange(self.keys)}".encode() if rng.random() < 0.95 else None
            value = b"value-%d" % self.n if rng.random() < 0.8 else None
            rows += handmade.record(delta, after, key, value, [(b"h", None)] if rng.random() < 0.2 else [])
        latest = begun + max(later) if later else -1
        if rng.random() < 0.1:
            latest = rng.choice([self.now, begun, -1])
        producer = (-1, -1, -1)
        if rng.random() < 0.02:
            flags |= TRANSACTIONAL
        elif rng.random() < 0.6:
            pid = rng.choice(FOLLOWED)
            flags |= 0 if pid in IDEMPOTENT else TRANSACTIONAL
            producer = (pid, *self.sequence(pid, last + 1))
        more = {"timestamp": begun, "max_timestamp": latest, "producer": producer}
        return handmade.batch(rows, len(deltas), codec=0, flags=flags, last=last, **more).hex(), last + 1

    def sequence(self, pid, count):
        """Epoch and sequence of what this producer sends next, mostly the right ones."""
        rng, state = self.rng, self.followed[pid]
        if rng.random() < 0.08:
            state["epoch"], state["seq"] = min(LAST_EPOCH, state["epoch"] + rng.choice([1, 5, LAST_EPOCH])), 0
        if rng.random() < 0.08:
            state["seq"] = max(0, state["seq"] + rng.choice([-3, 2, 10])) % 2**31
        if rng.random() < 0.04:
            state["seq"] = LAST_SEQUENCE - rng.choice([0, 1, 4])
        sequence = state["seq"]
        state["seq"] = (sequence + count) % 2**31
        return state["epoch"], sequence

    def copied_by_hand(self):
        rng, made = self.rng, []
        place = rng.choice([0, 0, 0, 0, 1, 7, -1])
        for _ in range(rng.choice([1, 1, 2, 3])):
            data, count = self.made_by_hand()
            self.epoch += rng.random() < 0.05
            made.append({"hex": data, "base_offset": f"end{place:+d}", "leader_epoch": self.epoch})
            place += count + rng.choice([0, 0, 0, 2])
        yield append(*made, **{"as": "follower", "epoch": self.epoch})

    def led_by_hand(self):
        data, _ = self.made_by_hand()
        second = {"transaction_version": 2} if self.rng.random() < 0.3 else {}
        yield append({"hex": data}, epoch=self.leader_epoch(), **second)

    def copied_from_producers(self):
        """Batches of several producers, and markers, in one append of a follower."""
        rng, made, place = self.rng, [], 0
        for _ in range(rng.choice([1, 2, 3, 5, 8])):
            pid = rng.choice(FOLLOWED)
            fields = {"base_offset": f"end{place:+d}", "leader_epoch": self.epoch, "producer_id": pid}
            if rng.random() < 0.65:
                rows = self.records(3)
                epoch, sequence = self.sequence(pid, len(rows))
                fields |= {"producer_epoch": epoch, "base_sequence": sequence, "transactional": pid not in IDEMPOTENT}
                made.append(batch(*rows, compression=rng.choice(self.codecs), **fields))
                place += len(rows)
            else:
                state = self.followed[pid]
                state["epoch"] = min(LAST_EPOCH, max(0, state["epoch"] + rng.choice([0, 0, 1, -1])))
                state["seq"] = rng.choice([0, state["seq"], state["seq"]])
                fields |= {"producer_epoch": state["epoch"], "coordinator_epoch": rng.choice([0, 0, 2, 1, -1])}
                made.append({"control": rng.choice(["commit", "abort"]), "timestamp": self.now, **fields})
                place += 1
        yield append(*made, **{"as": "follower", "epoch": self.epoch})

    def odd_controls(self):
        """Control records of kinds and versions that nobody knows, and batches of none."""
        rng = self.rng
        key = struct.pack(">hh", rng.choice([0, 0, 1, 5]), rng.choice([0, 1, 0, 1, 2, 3, 4, 5, 6, 99, -1]))
        values = [struct.pack(">hi", version, epoch) for version, epoch in ((0, 0), (1, 3), (0, 7))]
        is_copied = rng.random() < 0.75
        rows = [handmade.record(0, 0, key, rng.choice([*values, b"", None, b"\0\0"]))]
        rows = rows[: rng.choice([1, 1, 1, 0]) if is_copied else 1]
        producer = (rng.choice([*FOLLOWED, 3]), rng.choice([0, 0, 1, 5, LAST_EPOCH]), -1)
        flags = CONTROL | (TRANSACTIONAL if rng.random() < 0.8 else 0)
        data = handmade.batch(
            b"".join(rows), len(rows), codec=0, flags=flags, last=0, timestamp=self.now, producer=producer
        )
        one = {"hex": data.hex(), "base_offset": "end", "leader_epoch": self.epoch}
        origin = {"origin": rng.choice(["coordinator", "client", "replication"])}
        yield append(one, epoch=self.epoch, **({"as": "follower"} if is_copied else origin))

    def leapt(self):
        """The next batch of a follower is far ahead."""
        place = self.rng.choice([2**30, *(2**31 + step for step in (-41, -2, -1, 0, 40)), 2**33])
        one = batch(*self.records(3), base_offset=f"end{place:+d}", leader_epoch=self.epoch)
        yield append(one, **{"as": "follower", "epoch": self.epoch})

    def far(self):
        yield op("truncate_fully", offset=self.rng.choice(FAR))
        self.forget()

    def wrapped(self):
        """Sequences beyond the last one, and some of the batches again."""
        rng, made = self.rng, []
        seq = LAST_SEQUENCE - rng.choice([0, 1, 2, 5])
        for _ in range(rng.choice([2, 4, 8])):
            rows = self.records(4)
            made.append(append(batch(*rows, producer_id=0, producer_epoch=0, base_sequence=seq), epoch=self.epoch))
            seq = (seq + len(rows)) % 2**31
        yield from [*made, *rng.choices(made, k=rng.choice([1, 3]))]

    def last_epochs(self):
        """A producer of the second version of transactions, whose epochs come to an end."""
        rng, state = self.rng, self.followed[6]
        for _ in range(rng.choice([1, 3])):
            rows = self.records(2)
            fields = {"producer_epoch": state["epoch"], "base_sequence": state["seq"], "transactional": True}
            yield append(batch(*rows, producer_id=6, **fields), epoch=self.epoch, transaction_version=2)
            state["seq"] += len(rows)
            if rng.random() < 0.5:
                epoch = min(LAST_EPOCH, state["epoch"] + rng.choice([0, 1, 1]))
                how = {"epoch": self.epoch, "transaction_version": rng.choice([1, 2, 2])}
                yield marker(rng.choice(["commit", "abort"]), 6, epoch, self.now, 0, **how)
                if epoch != state["epoch"]:
                    state |= {"epoch": epoch, "seq": 0}

    def at_any_time(self):
        if self.jitter:
            return
        rng, rows = self.rng, self.records(4)
        for row in rows:
            row["timestamp"] = rng.choice([-1, 0, 1, self.now, self.now + 10**12, self.now - 10**10, 2**62])
        append_time = {"timestamp_type": "append", "log_append_time": self.now}
        copied = {"base_offset": "end", "leader_epoch": self.epoch, **rng.choice([{}, append_time])}
        follower = {"as": "follower"} if rng.random() < 0.5 else {}
        yield append(batch(*rows, **(copied if follower else {})), epoch=self.epoch, **follower)

    def forget(self):
        for state in self.producers.values():
            state["seq"], state["epoch"], state["open"] = 0, state["epoch"] + 1, False

    # ---- the rest of the language ----

    def waited(self):
        step = self.rng.choice(self.step_ms)
        self.now += step
        yield op("advance", ms=step)

    def watermark(self):
        yield (
            HW
            if self.rng.random() < 0.7
            else op("high_watermark", offset=self.rng.choice(["hw+3", "end-4", "end+2", "start-1"]))
        )

    def rolled(self):
        yield op("roll") if self.rng.random() < 0.9 else op("roll", offset=self.rng.choice(["end", "end-3"]))

    def tidied(self):
        rng = self.rng
        yield HW
        if self.cleaning and self.compact and rng.random() < 0.7:
            yield from [op("roll"), HW, op("cleanable", **self.loose)]
            buffer, keys = rng.choice([512, 65536]), rng.choice([30, 1000])
            yield op("clean", io_buffer_bytes=buffer, offset_map_bytes=24 * keys, **self.loose)
        else:
            if rng.random() < 0.15:
                yield op("set_mtime", segment=rng.choice([0, 1, 5, 10]), ms=self.now - rng.choice([1000, 30_000]))
            yield op("retention")

    def cleaned_again(self):
        """Several cleanings, with time between them."""
        rng = self.rng
        for _ in range(rng.choice([2, 3]) if self.cleaning and self.compact else 0):
            yield from [op("roll"), HW, op("cleanable", **self.loose)]
            yield op("clean", offset_map_bytes=24_000, **self.loose)
            yield from self.waited()
            if rng.random() < 0.5:
                yield from self.plain()

    def cut(self):
        rng = self.rng
        if rng.random() < 0.85:
            yield op(
                "truncate", offset=rng.choice(["end-1", "end-3", "end-10", "end-40", "start+1", "end+5", "hw", -1])
            )
        else:
            more = {"log_start": rng.choice(["start", "end+1", "end"])} if rng.random() < 0.5 else {}
            yield op("truncate_fully", offset=rng.choice(["end+10", "end", "start", "end-3"]), **more)
        self.forget()

    def started(self):
        yield op("log_start", offset=self.rng.choice(["start+3", "hw", "hw-5", "end+1", "start-1"]))
        if self.rng.random() < 0.4:
            yield op("retention")

    def epochs(self):
        rng = self.rng
        if rng.random() < 0.2:
            self.epoch += 1
            yield op("epoch", epoch=self.epoch, offset="end")
        if rng.random() < 0.5:
            place = rng.choice(["end", "end-3", "end+2", "start", "hw"])
            yield op("epoch", epoch=max(0, self.epoch + rng.choice([-2, -1, 0, 1, 3])), offset=place)
        yield op("end_offset_for_epoch", epoch=rng.randint(-1, self.epoch + 1))

    def fetched(self):
        rng = self.rng
        place = rng.choice(["start", "start+5", "hw-8", "hw-20", "end-10", "end-1", "end", "end+1", "start-1", "hw"])
        most = rng.choice([1, 10**6]) if self.recoding else rng.choice([0, 1, 500, 5000])
        more = {"min_one": False} if rng.random() < 0.2 and not self.recoding else {}
        yield op("read", offset=place, max_bytes=most, isolation=rng.choice(ISOLATIONS), **more, **self.loose)

    def looked_up(self):
        rng = self.rng
        yield op("lookup", timestamp=rng.choice([self.now + rng.randint(-20_000, 1000), -1, -2, -3, -4, -5]))

    def flushed(self):
        rng = self.rng
        yield rng.choice(
            [
                op("flush"),
                op("flush", force_active=False),
                op("flush_to", offset=rng.choice(["end", "end-3", "hw"])),
                op("snapshot"),
                op("expire_producers"),
            ]
        )

    def set_up(self):
        if self.changes_policy and self.rng.random() < 0.5:
            self.policy = self.rng.choice(POLICIES)
            self.compact = "compact" in self.policy
        changed = {**self.settings(), "segment.index.bytes": self.config["segment.index.bytes"]}
        self.config = changed if self.rng.random() < 0.5 else {**self.config, "segment.bytes": changed["segment.bytes"]}
        yield op("config", config=self.config)

    # ---- ends and beginnings ----

    def damage(self):
        rng = self.rng
        which = rng.choice(["@first", "@last"])
        most = 8 if self.recoding else 90
        if rng.random() < 0.45:
            yield from rng.choice(
                [
                    [op("file", action="truncate", name="@last.log", size=-rng.randint(1, most))],
                    [op("file", action="append", name="@last.log", hex="00" * rng.randint(1, 100))],
                    [op("file", action="append", name=which + ".log", hex=rng.randbytes(rng.randint(1, 90)).hex())],
                    [op("file", action="delete", name=which + rng.choice([*INDEXES, ".snapshot"]))],
                    [op("file", action="delete", name="leader-epoch-checkpoint")],
                ]
            )
            return
        patch = op("file", action="patch", name=which + ".log", at=rng.randint(0, 200), hex=rng.randbytes(1).hex())
        text = rng.choice(["", "0\n2\n0 0\n", "0\n1\n0 0\n", "1\n0\n", "0\n2\n0 0\n3 2\n"])
        swap = rng.choice([".swap", ".cleaned", ".deleted"])
        yield from rng.choice(
            [
                [] if self.recoding else [patch],
                [op("file", action="write", name="leader-epoch-checkpoint", text=text)],
                [op("file", action="append", name=which + ".index", hex="0102")],
                [op("file", action="append", name=which + ".txnindex", hex="0000" + rng.choice(["ff", "00"]) * 32)],
                [op("file", action="patch", name=which + ".snapshot", at=4, hex="ffff")],
                [op("file", action="rename", name=which + s, to=which + s + swap) for s in (".log", *INDEXES)],
                [op("file", action="copy", name=which + ".log", to=which + ".log" + swap)],
                [op("file", action="rename", name=which + s, to=which + s + swap) for s in rng.sample(INDEXES, 1)],
                [op("file", action="delete", name=which + ".log")],
                [op("file", action="delete", name="@first" + s) for s in (".log", ".index", ".timeindex")],
                [op("file", action="write", name="00000000000000000099.index", hex="00" * 8)],
                [],
            ]
        )

    def left(self):
        """Closed or crashed, perhaps damaged, opened again; what cannot be opened is mended, or a new log begins."""
        rng = self.rng
        crashed = rng.random() < 0.6
        yield op("crash") if crashed else op("close")
        if rng.random() < 0.5:
            yield from self.damage()
        if rng.random() < 0.1:
            yield from self.damage()
        # never clean after a crash: with a marker that lies, a broker bisects indexes that are not sorted
        clean = not crashed and rng.random() < 0.9
        point = rng.choice([0, 0, rng.randint(0, self.n), 10**9])
        start = rng.choice([0, 0, 0, 0, rng.randint(0, self.n)])
        yield op("open", clean=clean, recovery_point=point, log_start=start)
        mended = {**self.config, "segment.index.bytes": 4096}
        yield op("file", action="write", name="leader-epoch-checkpoint", text="0\n0\n", unless_open=True)
        yield op("open", clean=False, recovery_point=0, config=mended, unless_open=True)
        yield op("file", action="delete", name="@last.log", unless_open=True)
        yield op("open", clean=False, recovery_point=0, config=mended, unless_open=True)
        yield op("create", config=self.config, now=self.now, partition=rng.randint(1, 10**6), unless_open=True)
        self.forget()

    def began_again(self):
        yield op("delete")
        yield op("create", config=self.config, now=self.now)
        self.forget()

    WEIGHTS = (
        (plain, 26),
        (copied, 6),
        (produced, 22),
        (ended, 9),
        (odd, 2),
        (waited, 8),
        (watermark, 5),
        (rolled, 3),
        (tidied, 5),
        (cut, 2.5),
        (started, 1.5),
        (epochs, 3),
        (copied_by_hand, 9),
        (led_by_hand, 4),
        (copied_from_producers, 9),
        (odd_controls, 3),
        (leapt, 0.5),
        (far, 0.4),
        (wrapped, 1.5),
        (last_epochs, 2),
        (at_any_time, 3),
        (cleaned_again, 1.5),
        (fetched, 11),
        (looked_up, 2.5),
        (flushed, 3),
        (set_up, 2.5),
        (left, 3),
        (began_again, 0.1),
    )

    def operations(self):
        rng = self.rng
        expiry = rng.choice([5000, 86_400_000])
        yield op("create", config=self.config, now=self.now, producer_expiry_ms=expiry)
        makers, weights = zip(*self.WEIGHTS, strict=True)
        for _ in range(rng.choice([40, 100, 180])):
            yield from rng.choices(makers, weights)[0](self)
            if rng.random() < 0.1:
                yield op("capture", mtimes=True, **self.loose)
        yield from [HW, DELETED, op("close"), op("capture", keep="final", mtimes=True, **self.loose)]


def random_lists(seed, numbers, cleaning=True):
    """Names and operations of the lists with these numbers; without `cleaning` none of them cleans."""
    for i in numbers:
        made = Lists(random.Random(f"{seed}/{i}"), cleaning).operations()
        # what is there twice is made two, since bytes and numbers are put in later
        yield f"random-{seed}-{i:04d}", [copy.deepcopy(each) for each in made]
