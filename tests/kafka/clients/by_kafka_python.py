"""The capabilities by kafka-python, of any age (`answers.py` says how it is called)."""

from __future__ import annotations

import threading
import time

import kafka
from answers import Patience, Stalled, by_topic, main, row, watch
from kafka import TopicPartition as Partition
from kafka.structs import OffsetAndMetadata

HAS_ISOLATION = "isolation_level" in kafka.KafkaConsumer.DEFAULT_CONFIG
HAS_STATIC = "group_instance_id" in kafka.KafkaConsumer.DEFAULT_CONFIG
HAS_EPOCH = "leader_epoch" in OffsetAndMetadata._fields


def consumer(bootstrap, *topics, **more):
    """A consumer that begins at the first offset and commits when it is told."""
    settings = {"auto_offset_reset": "earliest", "enable_auto_commit": False, "max_partition_fetch_bytes": 100_000}
    return kafka.KafkaConsumer(*topics, bootstrap_servers=bootstrap, **{**settings, **more})


def all_of(spec):
    """All partitions that are read."""
    return [Partition(topic, number) for topic, numbers in spec["topics"].items() for number in numbers]


def listed(bootstrap, spec):
    """Topics and their partitions."""
    client = consumer(bootstrap)
    try:
        return {topic: sorted(client.partitions_for_topic(topic) or ()) for topic in sorted(client.topics())}
    finally:
        client.close()


def described(bootstrap, spec):
    """What the admin client says of topics and of settings."""
    client = kafka.KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        found = {}
        for topic in client.describe_topics(sorted(spec["topics"])):
            name = topic.get("topic", topic.get("name"))
            partitions = topic["partitions"]
            index = "partition" if "partition" in partitions[0] else "partition_index"
            number = {
                each[index]: [each.get("error_code"), each.get("replicas", each.get("replica_nodes"))]
                for each in partitions
            }
            found[name] = [bool(topic["is_internal"]), sorted(number.items())]
        return found
    finally:
        client.close()


def read(bootstrap, spec, **more):
    """All records by `assign`, with the places where the consumer stands; topic by topic where one cannot be read."""
    try:
        return read_at_once(bootstrap, spec, **more)
    except Stalled:
        raise
    except Exception as error:
        found = {"error": repr(error)}
    for topic in spec["topics"] if len(spec["topics"]) > 1 else ():
        try:
            found[topic] = read_at_once(bootstrap, {**spec, "topics": {topic: spec["topics"][topic]}}, **more)
        except Exception as error:
            found[topic] = repr(error)
    return found


def read_at_once(bootstrap, spec, **more):
    """All records by `assign`, with the places where the consumer stands then."""
    client = consumer(bootstrap, **more)
    try:
        mine = all_of(spec)
        client.assign(mine)
        ends, begins = client.end_offsets(mine), client.beginning_offsets(mine)
        rows, patience = [], Patience()
        while any(client.position(each) < ends[each] for each in mine):
            patience.check([(each, client.position(each)) for each in mine if client.position(each) < ends[each]])
            for records in client.poll(300).values():
                patience.progress()
                rows += [(each.topic, row_of(each)) for each in records]
        places = {f"{each.topic}-{each.partition}": [begins[each], ends[each], client.position(each)] for each in mine}
        return {"rows": by_topic(rows, spec["topics"]), "places": places}
    finally:
        client.close()


def row_of(record):
    """A record with all its fields."""
    kind = None if record.timestamp is None or record.timestamp < 0 else record.timestamp_type
    return row(
        record.partition,
        record.offset,
        record.timestamp,
        kind,
        getattr(record, "leader_epoch", None),
        record.key,
        record.value,
        record.headers,
    )


def committed(bootstrap, spec):
    """The same with read_committed."""
    return read(bootstrap, spec, isolation_level="read_committed")


def legacy(bootstrap, spec):
    """Records of formats 0 and 1, which some clients cannot read."""
    return read(bootstrap, {**spec, "topics": spec["legacy"]})


def times(bootstrap, spec):
    """Look-ups by time."""
    client = consumer(bootstrap)
    try:
        found = {}
        for moment in spec["times"]:
            for each, at in client.offsets_for_times(dict.fromkeys(all_of(spec), moment)).items():
                found[f"{each.topic}-{each.partition} {moment}"] = at and list(at)[:2]
        return found
    finally:
        client.close()


def reset(bootstrap, spec):
    """Where it goes on from an offset that is not there."""
    found = {}
    for where in ("earliest", "latest"):
        client = consumer(bootstrap, auto_offset_reset=where)
        try:
            mine = Partition(*spec["reset"])
            client.assign([mine])
            client.seek(mine, 100_000)
            patience, rows = Patience(), []
            until = time.monotonic() + 2
            while client.position(mine) == 100_000 or (where == "earliest" and not rows) or time.monotonic() < until:
                patience.check(where)
                for records in client.poll(200).values():
                    rows += records
            found[where] = [client.position(mine), rows[0].offset if rows else None, len(rows)]
        finally:
            client.close()
    return found


def with_epoch(offset, metadata):
    """An offset to be committed."""
    return OffsetAndMetadata(offset, metadata, -1) if HAS_EPOCH else OffsetAndMetadata(offset, metadata)


def group(bootstrap, spec):
    """Join, read all, commit; go on from there; commit an earlier offset, and go on from that."""
    topic, numbers = spec["group"], spec["topics"][spec["group"]]
    turns = []
    for turn in range(3):
        client = consumer(bootstrap, topic, group_id="kafka-python" + spec["suffix"], max_poll_records=100)
        try:
            patience, rows, seen, ends = Patience(), [], None, {}
            while seen is None or any(client.position(each) < ends[each] for each in seen):
                patience.check(len(rows))
                for records in client.poll(200).values():
                    patience.progress()
                    rows += [(each.partition, each.offset) for each in records]
                if client.assignment() and client.assignment() != seen:
                    seen = set(client.assignment())
                    ends = client.end_offsets(sorted(seen))
            kept = {each.partition: client.committed(each) for each in sorted(seen)}
            turns.append([sorted(rows), kept, sorted(each.partition for each in seen)])
            if turn == 0:
                client.commit()
            elif turn == 1:
                client.commit({Partition(topic, number): with_epoch(2, "words") for number in numbers})
        finally:
            client.close()
    return turns


def produce(bootstrap, spec):
    """The words of a refusal."""
    client = kafka.KafkaProducer(bootstrap_servers=bootstrap, retries=0)
    try:
        client.send(spec["refused"], b"x", partition=0).get(20)
        return "written"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    finally:
        client.close()


def truncated(bootstrap, spec):
    """It goes on from a commit that lies behind the end of the epoch it names."""
    topic, number, offset, epoch = spec["truncated"]
    mine = Partition(topic, number)
    found = []
    for turn in range(2):
        client = consumer(bootstrap, group_id="kafka-python-epochs" + spec["suffix"])
        try:
            client.assign([mine])
            if turn == 0:
                client.commit({mine: OffsetAndMetadata(offset, "", epoch)})
                continue
            patience = Patience()
            while not found:
                patience.check(client.position(mine))
                found = [each.offset for records in client.poll(300).values() for each in records]
        except Exception as error:
            found = [f"{type(error).__name__}: {error}"]
        finally:
            client.close()
    return found[0]


def sessions(bootstrap, spec):
    """Many partitions in one fetch session: all records, then some rounds without any."""
    topic, count = spec["many"]
    client = consumer(bootstrap)
    try:
        mine = [Partition(topic, number) for number in range(count)]
        client.assign(mine)
        ends = client.end_offsets(mine)
        rows, patience = [], Patience()
        while any(client.position(each) < ends[each] for each in mine):
            patience.check(len(rows))
            for records in client.poll(300).values():
                patience.progress()
                rows += [(each.partition, each.offset, each.value.decode()) for each in records]
        client.seek(mine[7], 0)
        again = []
        while not again:
            patience.check("again")
            again = [(each.partition, each.offset) for records in client.poll(300).values() for each in records]
        return [sorted(rows), sorted(ends.values()), again]
    finally:
        client.close()


def members(bootstrap, spec):
    """Members of one group."""
    asked = spec["members"]
    more = {}
    if asked.get("static"):
        more["group_instance_id"] = asked["static"]
    owned = [[] for _ in range(asked["count"])]
    over = threading.Event()

    def take_part(number):
        client = consumer(
            bootstrap,
            asked["topic"],
            group_id=asked["group"],
            session_timeout_ms=6000,
            heartbeat_interval_ms=500,
            **more,
        )
        while not over.is_set():
            client.poll(100)
            owned[number] = [each.partition for each in client.assignment()]
        client.close()

    # a thread each: some ages of this client wait for the others inside of poll
    threads = [threading.Thread(target=take_part, args=(number,), daemon=True) for number in range(asked["count"])]
    for each in threads:
        each.start()

    def close():
        over.set()
        for each in threads:
            each.join(20)

    watch(lambda: owned, lambda: time.sleep(0.02), close)


CAPABILITIES = {
    "list": listed,
    "describe": described,
    "records": read,
    "legacy": legacy,
    "times": times,
    "reset": reset,
    "group": group,
    "produce": produce,
    "sessions": sessions,
}
if HAS_ISOLATION:
    CAPABILITIES["committed"] = committed
if HAS_EPOCH:
    CAPABILITIES["truncated"] = truncated

if __name__ == "__main__":
    main(CAPABILITIES, members)
