"""What a fresh broker over a restored point gives, beside what clients of the archived cluster were told."""

from __future__ import annotations

import time
from collections import Counter, defaultdict

# Neighbours, which are no package:
from archive_clients import GROUP, MOVED, NOTHING, Move, Place, Sent, Transaction
from archived_cluster import ArchivedCluster, Records, consumed
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from three_brokers import QUIET

from pylogseg.disk.tier.point import ArchivedPartition, Point

#: So long after the last leader came, it knows what was committed before.
SETTLED_S = 3.0
_BEFORE_S = 2.0
#: A broker notes what is committed in less.
_NOTING_S = 0.5
_AFTERWARDS = "afterwards"


class Judge:
    """What a history has told, and what is wrong with a point of it."""

    def __init__(self, cluster: ArchivedCluster, point: Point, ended_s: float) -> None:
        self.cluster, self.point, self.ended_s = cluster, point, ended_s
        self.begun_s = point.time_ms / 1000
        self.noted_s = cluster.noted_before(self.begun_s)
        self.clients = cluster.clients
        self.wrong: list[str] = []
        self.counts: Counter[str] = Counter()
        self.partitions = {(each.topic, each.partition): each for each in point.partitions}
        self.streams = {topic: self._stream(topic) for topic in {key[0] for key in self.partitions}}

    def _stream(self, topic: str) -> str:
        if topic != "again":
            return topic
        ids = {each.topic_id for each in self.point.partitions if each.topic == topic}
        lives = {self.cluster.lives.get(each, 0) for each in ids}
        if len(lives) > 1 or 0 in lives:
            self.wrong.append(f"the topic that is made anew has the ids {ids}, of lives {lives}")
        return f"again/{max(lives)}"

    def is_settled(self, at_s: float) -> bool:
        """Whether what was known then had to be in the point: all leaders noted it before."""
        if at_s + _NOTING_S > self.noted_s:
            return False
        return not any(
            begun_s - _BEFORE_S <= at_s <= ended_s and ended_s + SETTLED_S > self.noted_s
            for begun_s, ended_s in self.cluster.disturbed
        )

    # ---- before any broker ----

    def check_point(self) -> None:
        """Compare starts, faults and topics of the point with what clients know."""
        for key, each in sorted(self.partitions.items()):
            may_lack = key[0] in ("state", "loose") or key[0].startswith("__")
            if each.fault and not may_lack:
                self.wrong.append(f"{each.name} has a fault: {each.fault}")
            self.counts["faults"] += bool(each.fault)
            self._check_start(key, each)
        for topic_id, at_s in self.cluster.deleted.items():
            if self.is_settled(at_s) and any(p.topic_id == topic_id for p in self.point.partitions):
                self.wrong.append(f"topic {topic_id} was deleted {self.begun_s - at_s:.1f} s before the point")
        if self.point.not_seen:
            self.counts["not seen"] += len(self.point.not_seen)
            if not any(a - 1 <= self.begun_s <= b + SETTLED_S for a, b in self.cluster.disturbed):
                self.counts["not seen, and nothing moved"] += 1

    def _check_start(self, key: tuple[str, int], each: ArchivedPartition) -> None:
        lows = self.cluster.lows.get((self.streams[key[0]], key[1]), [])
        later = [low.offset for low in lows if low.asked_s >= self.ended_s]
        if later and each.start_offset > min(later):
            self.wrong.append(f"{each.name} starts at {each.start_offset}, and had {min(later)} on after the point")
        sooner = [low.offset for low in lows if self.is_settled(low.told_s)]
        if sooner and each.start_offset < max(sooner) and each.end_offset > each.start_offset:
            self.wrong.append(f"{each.name} starts at {each.start_offset}, and began at {max(sooner)} before the point")

    # ---- what a broker gives ----

    def check(self, address: str) -> None:
        """Compare records, groups and settings."""
        # Of a compacted log with a fault nothing may be left, and the broker gives nothing up to its end.
        names = sorted(
            key
            for key, each in self.partitions.items()
            if key[0][:2] != "__" and not (key[0] == "state" and each.fault)
        )
        ranges = {key: (self.partitions[key].start_offset, self.partitions[key].end_offset) for key in names}
        found = consumed(address, ranges, "read_uncommitted")
        self.counts["records"] += len(found)
        known: dict[Place, list[Sent]] = self.clients.known()
        self._check_found(found, known)
        self._check_acknowledged(found, known)
        stable = {key: (r[0], min(r[1], self.partitions[key].last_stable_offset)) for key, r in ranges.items()
                  if key[0] == "tx"}  # fmt: skip
        shown = consumed(address, stable, "read_committed")
        self._check_transactions(found, shown, stable)
        self._check_groups(address)
        self._check_settings(address)

    def _check_found(self, found: Records, known: dict[Place, list[Sent]]) -> None:
        """Each record is one that was sent, at the place that its producer was told, and there once."""
        places = defaultdict(list)
        for place, (_, value) in found.items():
            stream = self.streams[place[0]]
            told = known.get((stream, *place[1:]), [])
            if place[0] == "loose":  # what nobody was told of may lie there, until an election loses it
                told = [each for each in told if each.at_s <= self.ended_s]
            gone = [v for v, _, to_s in self.cluster.gone.get(place, []) if to_s + SETTLED_S <= self.begun_s]
            right = [each.value for each in told if each.value not in gone]
            if value is not None:
                places[value].append(place)
            if value is not None and value not in self.clients.values:
                self.wrong.append(f"{place} has {value[:30]!r}, which nobody sent")
            elif (end := self.cluster.end_records.get((stream, *place[1:]))) and place[0] not in ("loose", "state"):
                if value != end[1]:
                    self.wrong.append(f"{place} has {_shown(value)}, and the cluster had {_shown(end[1])}")
            elif value in gone or (told and not right):
                self.wrong.append(f"{place} has {_shown(value)}, which an election lost before the point")
            elif right and value not in right:
                self.wrong.append(f"{place} has {_shown(value)}, and {_shown(right[0])} was acknowledged")
            if place[0] == "again" and value is not None and value.split()[1] != stream.partition("/")[2]:
                self.wrong.append(f"{place} of {stream} has {value!r}")
        for value, each in places.items():
            if len(each) > 1 and each[0][0] not in ("loose", "again"):
                if all(place in self.cluster.end_records for place in each):
                    self.counts["records that the cluster has twice"] += 1
                    continue
                self.wrong.append(f"{value[:30]!r} is there {len(each)} times: {each}")

    def _check_acknowledged(self, found: Records, known: dict[Place, list[Sent]]) -> None:
        """What was acknowledged and lies in the point is there; what was so long before, lies in it."""
        here = {stream: topic for topic, stream in self.streams.items()}
        newest: dict[tuple[str, int, str], int] = {}
        for place, sent in known.items():
            if place[0] == "state":
                key = place[0], place[1], sent[-1].key
                end = self.partitions[place[:2]].end_offset if place[:2] in self.partitions else 0
                if place[2] < end:
                    newest[key] = max(newest.get(key, -1), place[2])
        for place, sent in known.items():
            topic = here.get(place[0])
            part = None if topic is None else self.partitions.get((topic, place[1]))
            if topic == "state" and part is not None and part.fault:
                continue
            if topic is None or part is None:
                if place[0] != "again" and "again/" not in place[0] and any(self.is_settled(e.at_s) for e in sent):
                    self.wrong.append(f"{place} was acknowledged, and its partition is not in the point")
                continue
            if place[2] < part.start_offset:
                continue
            gone = {value for value, from_s, _ in self.cluster.gone.get(place, ()) if from_s <= self.ended_s}
            left = [each for each in sent if each.value not in gone]
            if place[2] >= part.end_offset:
                late = [each for each in left if self.is_settled(each.at_s)]
                if late and not part.fault:
                    ago = self.begun_s - late[0].at_s
                    self.wrong.append(
                        f"{place} was acknowledged {ago:.1f} s before the point, which ends at {part.end_offset}"
                    )
                continue
            is_cleaned = topic == "state" and (
                newest.get((*place[:2], sent[-1].key), -1) > place[2] or sent[-1].value is None
            )
            if (topic, *place[1:]) not in found and left and not is_cleaned:
                self.wrong.append(f"{place} was acknowledged, and is missing below the end, {part.end_offset}")

    def _check_transactions(
        self, found: Records, shown: Records, stable: dict[tuple[str, int], tuple[int, int]]
    ) -> None:
        there = {value: place for place, (_, value) in found.items() if place[0] == "tx"}
        values = {value for _, value in shown.values()}
        ended = {value: each for each in self.clients.transactions if self._has_ended(each) for value in each.values}
        for key, (_, end) in stable.items():  # behind an open one nothing is shown
            if end < self.partitions[key].end_offset and (holder := ended.get(found.get((*key, end), ("", None))[1])):
                self.wrong.append(f"{key} is stable up to {end}, where a transaction begins that was {holder.state}")
        for each in self.clients.transactions:
            mine = [value for value in each.values if value in there and there[value][2] < stable[there[value][:2]][1]]
            if each.state in ("aborted", "left"):
                self.wrong += [f"{v[:20]!r} was {each.state}, and is shown" for v in mine if v in values]
            elif each.state == "committed" and self._has_ended(each):
                self.wrong += [f"{v[:20]!r} was committed, and is not shown" for v in mine if v not in values]
                self.counts["committed transactions"] += 1
        self.counts["open transactions"] += sum(
            self.partitions[key].last_stable_offset < self.partitions[key].end_offset for key in stable
        )

    def _has_ended(self, each: Transaction) -> bool:
        return each.state in ("committed", "aborted") and self.is_settled(each.at_s)

    def _check_groups(self, address: str) -> None:
        for group in (GROUP, MOVED):
            places = sorted({key[1:] for key in self.clients.moves if key[0] == group} & self.partitions.keys())
            consumer = Consumer({**QUIET, "bootstrap.servers": address, "group.id": group})
            stands = consumer.committed([TopicPartition(*each) for each in places], 60) if places else []
            consumer.close()
            for each in stands:
                place = each.topic, each.partition
                allowed = self._may_stand(self.clients.moves[(group, *place)])
                self.counts["group offsets"] += 1
                if each.offset not in allowed:
                    self.wrong.append(
                        f"{group} stands at {each.offset} of {place}, not at one of {sorted(allowed)[:10]}"
                    )
                said = any((c.group, c.topic, c.partition) == (group, *place) for c in self.point.above_end)
                if each.offset > self.partitions[place].end_offset and not said:
                    end = self.partitions[place].end_offset
                    self.wrong.append(
                        f"{group} stands at {each.offset} of {place}, above the end {end}: it is not said"
                    )

    def _may_stand(self, moves: list[Move]) -> set[int]:
        """Offsets at which a group may stand: what it committed last long before the point, or anything later."""
        last = max((each for each in moves if self.is_settled(each.told_s)), key=lambda each: each.told_s, default=None)
        since = 0.0 if last is None else last.asked_s
        allowed = {each.offset for each in moves if since <= each.asked_s <= self.ended_s}
        return allowed | ({NOTHING} if last is None else {last.offset})

    def _check_settings(self, address: str) -> None:
        admin = AdminClient({**QUIET, "bootstrap.servers": address})
        for topic in sorted({topic for _, _, topic, _, _ in self.cluster.settings} & self.streams.keys()):
            resource = ConfigResource(ResourceType.TOPIC, topic)
            has = admin.describe_configs([resource])[resource].result(60)
            for name in {each[3] for each in self.cluster.settings if each[2] == topic}:
                changes = [each for each in self.cluster.settings if each[2:4] == (topic, name)]
                before = [value for _, told_s, *_, value in changes if told_s + SETTLED_S <= self.begun_s]
                open_ones = [value for _, told_s, *_, value in changes if told_s + SETTLED_S > self.begun_s]
                if before and has[name].value not in (before[-1], *open_ones):
                    self.wrong.append(f"{topic} has {name}={has[name].value}, and had {before[-1]}")

    # ---- and on ----

    def go_on(self, address: str) -> None:
        """The same producers write, what they had left open ends, and the group reads on where it stood."""
        topics = sorted(
            {topic for topic in self.streams if topic in ("plain", "tx", "state", "kept", "loose", "again")}
        )
        self._one_replica(address, topics)
        told: list[str] = []
        written = 0
        ids = [{"transactional.id": name} for name in sorted(self.clients.ids)]
        for settings in ({"enable.idempotence": True}, *ids):
            producer = Producer({**QUIET, "bootstrap.servers": address, **settings})
            if "transactional.id" in settings:
                producer.init_transactions(60)
                producer.begin_transaction()
            for key in sorted(self.partitions):
                if key[0] in topics and ("transactional.id" not in settings or key[0] == "tx"):
                    written += 1
                    producer.produce(key[0], _AFTERWARDS.encode(), b"a", key[1],
                                     on_delivery=lambda error, _: told.append(str(error)))  # fmt: skip
            producer.flush(60)
            if "transactional.id" in settings:
                producer.commit_transaction(60)
        self.wrong += [f"a producer goes on: {each}" for each in told if each != "None"]
        if len(told) != written:
            self.wrong.append(f"a producer goes on: it was told of {len(told)} records of {written}")
        self._check_after(address)
        self._check_group_goes_on(address)

    def _one_replica(self, address: str, topics: list[str]) -> None:
        admin = AdminClient({**QUIET, "bootstrap.servers": address})
        entry = ConfigEntry("min.insync.replicas", "1", incremental_operation=AlterConfigOpType.SET)
        resources = [ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry]) for topic in topics]
        for future in admin.incremental_alter_configs(resources).values():
            future.result(60)

    def _check_after(self, address: str) -> None:
        """Nothing stays open; of no transaction a part is shown."""
        keys = [key for key in self.partitions if key[0] == "tx"]
        reader = Consumer(
            {**QUIET, "bootstrap.servers": address, "group.id": "reader", "isolation.level": "read_committed"}
        )
        other = Consumer(
            {**QUIET, "bootstrap.servers": address, "group.id": "reader", "isolation.level": "read_uncommitted"}
        )
        until, ends = time.monotonic() + 40, {}
        while time.monotonic() < until:
            stable = {key: reader.get_watermark_offsets(TopicPartition(*key), 20, cached=False) for key in keys}
            ends = {key: other.get_watermark_offsets(TopicPartition(*key), 20, cached=False)[1] for key in keys}
            if all(stable[key][1] == ends[key] for key in keys):
                break
            time.sleep(0.5)
        else:
            self.wrong.append(f"a transaction stays open: logs are stable up to {stable}, and end at {ends}")
        reader.close()
        other.close()
        shown = consumed(address, stable, "read_committed")
        values = {value for _, value in shown.values()}
        if sum(value == _AFTERWARDS for _, value in shown.values()) != (1 + len(self.clients.ids)) * len(keys):
            self.wrong.append("what was written afterwards is not shown")
        for each in self.clients.transactions:
            self._check_whole(each, values)

    def _check_whole(self, each: Transaction, values: set[str | None]) -> None:
        """Nothing of a transaction that was aborted is shown; all of one that was committed long before the point."""
        seen = [value for value in each.values if value in values]
        if each.state in ("aborted", "left"):
            self.wrong += [f"afterwards {v[:20]!r} is shown, which was {each.state}" for v in seen]
        elif seen and len(seen) < len(each.values) and not self._is_below(each):
            # Brokers note at different moments what is committed: docs/backup.md, limits.
            self.counts["transactions of the last moment, in parts"] += 1
            if self.is_settled(each.at_s):
                self.wrong.append(f"of a transaction {len(seen)} of {len(each.values)} records are there")

    def _is_below(self, each: Transaction) -> bool:
        """Whether what is missing of a transaction lies before the starts of logs."""
        starts = {key[1]: part.start_offset for key, part in self.partitions.items() if key[0] == "tx"}
        return any(
            place[2] < starts.get(place[1], 0)
            for place, sent in self.clients.known().items()
            if place[0] == "tx" and sent[0].value in each.values
        )

    def _check_group_goes_on(self, address: str) -> None:
        """The group gets the first record from where it stood on."""
        keys = [key for key in self.partitions if key[0] == "plain"]
        settings = {**QUIET, "bootstrap.servers": address, "group.id": GROUP, "auto.offset.reset": "earliest",
                    "enable.auto.commit": False}  # fmt: skip
        consumer = Consumer(settings)
        stands = {}
        for each in consumer.committed([TopicPartition(*key) for key in keys], 60):
            start, end = (
                self.partitions[each.topic, each.partition].start_offset,
                self.partitions[each.topic, each.partition].end_offset,
            )
            stands[each.topic, each.partition] = each.offset if start <= each.offset <= end else start
        consumer.subscribe(["plain"])
        first: dict[tuple[str, int], int] = {}
        until = time.monotonic() + 40
        while len(first) < len(keys) and time.monotonic() < until:
            for message in consumer.consume(500, 0.5):
                if message.error() is None:
                    first.setdefault((message.topic(), message.partition()), message.offset())
        consumer.close()
        if first != stands:
            self.wrong.append(f"the group goes on at {first}, and stood at {stands}")


def _shown(value: str | None) -> str:
    return repr(value and value[:30])
