"""The capabilities by confluent-kafka, so by librdkafka (`answers.py` says how it is called)."""

from __future__ import annotations

import confluent_kafka
from answers import Patience, by_topic, main, row, watch
from confluent_kafka import TopicPartition as Partition
from confluent_kafka.admin import AdminClient, OffsetSpec

EOF = confluent_kafka.KafkaError._PARTITION_EOF


def consumer(bootstrap, **more):
    """A consumer that begins at the first offset, commits when it is told, and says where a partition ends."""
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "assigned",
        "isolation.level": "read_uncommitted",
        "auto.offset.reset": "earliest",
        "log_level": 2,
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "max.partition.fetch.bytes": 100_000,
        "fetch.wait.max.ms": 50,
    }
    return confluent_kafka.Consumer({**settings, **{name.replace("_", "."): value for name, value in more.items()}})


def all_of(spec, offset=confluent_kafka.OFFSET_BEGINNING):
    """All partitions that are read."""
    return [Partition(topic, number, offset) for topic, numbers in spec["topics"].items() for number in numbers]


def until_the_end(client, count):
    """Messages until so many partitions have said that they end."""
    found, ends, patience = [], set(), Patience()
    while len(ends) < count:
        patience.check(f"{len(found)} messages, {len(ends)} ends")
        message = client.poll(0.2)
        if message is None:
            continue
        patience.progress()
        if message.error() is None:
            found.append(message)
        elif message.error().code() == EOF:
            ends.add((message.topic(), message.partition()))
        else:
            raise confluent_kafka.KafkaException(message.error())
    return found


def listed(bootstrap, spec):
    """Topics and their partitions."""
    topics = consumer(bootstrap).list_topics(timeout=20).topics
    return {
        name: [
            [each.id, each.leader, each.replicas, each.isrs, str(each.error)]
            for _, each in sorted(topic.partitions.items())
        ]
        for name, topic in sorted(topics.items())
    }


def described(bootstrap, spec):
    """What the admin client says of topics, with their ids."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    found = admin.describe_topics(confluent_kafka.TopicCollection(sorted(spec["topics"])))
    answer = {}
    for name, future in found.items():
        topic = future.result(20)
        partitions = [
            [each.id, each.leader and each.leader.id, [one.id for one in each.replicas], [one.id for one in each.isr]]
            for each in topic.partitions
        ]
        answer[name] = [str(topic.topic_id), topic.is_internal, partitions]
    return answer


def read(bootstrap, spec, **more):
    """All records by `assign`, with the places where the consumer stands then."""
    client = consumer(bootstrap, **more)
    try:
        mine = all_of(spec)
        client.assign(mine)
        rows = [(each.topic(), row_of(each)) for each in until_the_end(client, len(mine))]
        places = {
            f"{each.topic}-{each.partition}": [client.get_watermark_offsets(each), each.offset]
            for each in client.position(mine)
        }
        return {"rows": by_topic(rows, spec["topics"]), "places": places}
    finally:
        client.close()


def row_of(message):
    """A record with all its fields."""
    kind, stamp = message.timestamp()
    known = {confluent_kafka.TIMESTAMP_CREATE_TIME: 0, confluent_kafka.TIMESTAMP_LOG_APPEND_TIME: 1}.get(kind)
    return row(
        message.partition(),
        message.offset(),
        stamp,
        known,
        message.leader_epoch(),
        message.key(),
        message.value(),
        message.headers(),
    )


def committed(bootstrap, spec):
    """The same with read_committed."""
    return read(bootstrap, spec, isolation_level="read_committed")


def legacy(bootstrap, spec):
    """Records of formats 0 and 1, which some clients cannot read."""
    return read(bootstrap, {**spec, "topics": spec["legacy"]})


def times(bootstrap, spec):
    """Look-ups by time, and by each kind of end that the admin client knows."""
    client = consumer(bootstrap)
    found = {}
    for moment in spec["times"]:
        for each in client.offsets_for_times(all_of(spec, moment), timeout=20):
            found[f"{each.topic}-{each.partition} {moment}"] = [each.offset, str(each.error)]
    client.close()
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    kinds = {"earliest": OffsetSpec.earliest(), "latest": OffsetSpec.latest(), "max": OffsetSpec.max_timestamp()}
    for isolation in (confluent_kafka.IsolationLevel.READ_UNCOMMITTED, confluent_kafka.IsolationLevel.READ_COMMITTED):
        for name, kind in kinds.items():
            asked = admin.list_offsets(dict.fromkeys(all_of(spec, 0), kind), isolation_level=isolation)
            for each, future in asked.items():
                at = future.result(20)
                found[f"{each.topic}-{each.partition} {name} {isolation}"] = [at.offset, at.timestamp, at.leader_epoch]
    return found


def reset(bootstrap, spec):
    """Where it goes on from an offset that is not there."""
    found = {}
    for where in ("earliest", "latest"):
        client = consumer(bootstrap, auto_offset_reset=where)
        client.assign([Partition(*spec["reset"], 100_000)])
        offsets = [each.offset() for each in until_the_end(client, 1)]
        found[where] = [offsets[:1], len(offsets), client.position([Partition(*spec["reset"])])[0].offset]
        client.close()
    return found


def group(bootstrap, spec, **more):
    """Join, read all, commit; go on from there; commit an earlier offset, and go on from that."""
    topic, numbers = spec["group"], spec["topics"][spec["group"]]
    turns = []
    for turn in range(3):
        client = consumer(bootstrap, **{"group.id": "confluent" + spec["suffix"], **more})
        try:
            client.subscribe([topic])
            rows = sorted((each.partition(), each.offset()) for each in until_the_end(client, len(numbers)))
            kept = [
                [each.partition, each.offset, each.metadata, str(each.error)]
                for each in client.committed([Partition(topic, number) for number in numbers])
            ]
            turns.append([rows, kept, sorted(each.partition for each in client.assignment())])
            if turn == 0:
                client.commit(asynchronous=False)
            elif turn == 1:
                client.commit(offsets=[Partition(topic, number, 2, "words") for number in numbers], asynchronous=False)
        finally:
            client.close()
    return turns


def new_group(bootstrap, spec):
    """The same with the new group protocol."""
    return group(bootstrap, spec, **{"group.id": "confluent-new" + spec["suffix"], "group.protocol": "consumer"})


def produce(bootstrap, spec):
    """The words of a refusal, of a plain and of an idempotent producer."""
    answers = []
    for idempotent in (False, True):
        said = []
        client = confluent_kafka.Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": idempotent, "log_level": 2}
        )
        client.produce(spec["refused"], b"x", partition=0, callback=lambda error, _, said=said: said.append(str(error)))
        client.flush(20)
        answers += said
    return answers


def truncated(bootstrap, spec):
    """It goes on behind the end of an epoch that it says it was in."""
    topic, number, offset, epoch = spec["truncated"]
    client = consumer(bootstrap)
    try:
        client.assign([Partition(topic, number, offset, leader_epoch=epoch)])
        return [each.offset() for each in until_the_end(client, 1)][:1]
    finally:
        client.close()


def sessions(bootstrap, spec):
    """Many partitions at once."""
    topic, count = spec["many"]
    client = consumer(bootstrap)
    client.assign([Partition(topic, number, 0) for number in range(count)])
    rows = sorted((each.partition(), each.offset(), each.value().decode()) for each in until_the_end(client, count))
    client.close()
    return rows


def members(bootstrap, spec):
    """Members of one group."""
    asked = spec["members"]
    more = {"session.timeout.ms": 6000, "heartbeat.interval.ms": 500}
    if asked.get("protocol") == "consumer":
        more = {"group.protocol": "consumer"}
    elif asked.get("strategy"):
        more["partition.assignment.strategy"] = asked["strategy"]
    if asked.get("static"):
        more["group.instance.id"] = asked["static"]
    clients = [consumer(bootstrap, **{"group.id": asked["group"], **more}) for _ in range(asked["count"])]
    for client in clients:
        client.subscribe([asked["topic"]])

    def poll():
        for client in clients:
            client.poll(0.1 / len(clients))

    def close():
        for client in clients:
            client.close()

    watch(lambda: [[each.partition for each in client.assignment()] for client in clients], poll, close)


CAPABILITIES = {
    "list": listed,
    "describe": described,
    "records": read,
    "committed": committed,
    "legacy": legacy,
    "times": times,
    "reset": reset,
    "group": group,
    "new group": new_group,
    "produce": produce,
    "truncated": truncated,
    "sessions": sessions,
}

if __name__ == "__main__":
    main(CAPABILITIES, members)
