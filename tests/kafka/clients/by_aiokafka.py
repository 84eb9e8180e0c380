"""The capabilities by aiokafka (`answers.py` says how it is called)."""

from __future__ import annotations

import asyncio
import time

import aiokafka
from aiokafka import TopicPartition as Partition
from aiokafka.admin import AIOKafkaAdminClient
from answers import Patience, by_topic, main, row, watch


class Consumer:
    """A consumer that is started on entry and stopped at the end."""

    def __init__(self, bootstrap, *topics, **more):
        settings = {"auto_offset_reset": "earliest", "enable_auto_commit": False, "max_partition_fetch_bytes": 100_000}
        self.client = aiokafka.AIOKafkaConsumer(*topics, bootstrap_servers=bootstrap, **{**settings, **more})

    async def __aenter__(self):
        await self.client.start()
        return self.client

    async def __aexit__(self, *_):
        await self.client.stop()


def all_of(spec):
    """All partitions that are read."""
    return [Partition(topic, number) for topic, numbers in spec["topics"].items() for number in numbers]


async def listed(bootstrap, spec):
    """Topics and their partitions."""
    async with Consumer(bootstrap) as client:
        return {topic: sorted(client.partitions_for_topic(topic) or ()) for topic in sorted(await client.topics())}


async def described(bootstrap, spec):
    """What the admin client says of topics."""
    client = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await client.start()
    try:
        found = await client.describe_topics(sorted(spec["topics"]))
        return {
            topic["topic"]: [
                topic["is_internal"],
                sorted(
                    [each["partition"], each["leader"], each["replicas"], each["isr"]] for each in topic["partitions"]
                ),
            ]
            for topic in found
        }
    finally:
        await client.close()


async def drain(client, wanted):
    """Records until each partition has come to its end; with read_committed that is where nothing more comes."""
    found, patience, quiet = [], Patience(), 0
    while quiet < 4 and not all([await client.position(each) >= end for each, end in wanted.items()]):
        patience.check(len(found))
        some = await client.getmany(timeout_ms=300)
        quiet = 0 if some else quiet + 1
        if some:
            patience.progress()
        found += [each for records in some.values() for each in records]
    return found


async def read(bootstrap, spec, **more):
    """All records by `assign`, with the places where the consumer stands then."""
    async with Consumer(bootstrap, **more) as client:
        mine = all_of(spec)
        client.assign(mine)
        ends, begins = await client.end_offsets(mine), await client.beginning_offsets(mine)
        rows = [(each.topic, row_of(each)) for each in await drain(client, ends)]
        places = {
            f"{each.topic}-{each.partition}": [begins[each], ends[each], await client.position(each)] for each in mine
        }
        return {"rows": by_topic(rows, spec["topics"]), "places": places}


def row_of(record):
    """A record with all its fields."""
    kind = None if record.timestamp is None or record.timestamp < 0 else record.timestamp_type
    return row(record.partition, record.offset, record.timestamp, kind, None, record.key, record.value, record.headers)


async def committed(bootstrap, spec):
    """The same with read_committed."""
    return await read(bootstrap, spec, isolation_level="read_committed")


async def legacy(bootstrap, spec):
    """Records of formats 0 and 1, which some clients cannot read."""
    return await read(bootstrap, {**spec, "topics": spec["legacy"]})


async def times(bootstrap, spec):
    """Look-ups by time."""
    async with Consumer(bootstrap) as client:
        found = {}
        for moment in spec["times"]:
            for each, at in (await client.offsets_for_times(dict.fromkeys(all_of(spec), moment))).items():
                found[f"{each.topic}-{each.partition} {moment}"] = at and list(at)
        return found


async def reset(bootstrap, spec):
    """Where it goes on from an offset that is not there."""
    found = {}
    for where in ("earliest", "latest"):
        async with Consumer(bootstrap, auto_offset_reset=where) as client:
            mine = Partition(*spec["reset"])
            client.assign([mine])
            client.seek(mine, 100_000)
            patience, records, until = Patience(), [], time.monotonic() + 2
            while await client.position(mine) == 100_000 or time.monotonic() < until:
                patience.check(where)
                for each in (await client.getmany(timeout_ms=200)).values():
                    records += each
            found[where] = [await client.position(mine), records[0].offset if records else None, len(records)]
    return found


async def group(bootstrap, spec):
    """Join, read all, commit; go on from there; commit an earlier offset, and go on from that."""
    topic, numbers = spec["group"], spec["topics"][spec["group"]]
    turns = []
    for turn in range(3):
        async with Consumer(bootstrap, topic, group_id="aiokafka" + spec["suffix"]) as client:
            patience = Patience()
            while not client.assignment():
                patience.check("no assignment")
                await asyncio.sleep(0.05)
            mine = sorted(client.assignment())
            rows = sorted((each.partition, each.offset) for each in await drain(client, await client.end_offsets(mine)))
            turns.append([rows, [await client.committed(each) for each in mine], [each.partition for each in mine]])
            if turn == 0:
                await client.commit()
            elif turn == 1:
                await client.commit({Partition(topic, number): (2, "words") for number in numbers})
    return turns


async def produce(bootstrap, spec):
    """The words of a refusal."""
    answers = []
    for idempotent in (False, True):
        client = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=idempotent)
        await client.start()
        try:
            await client.send_and_wait(spec["refused"], b"x", partition=0)
            answers.append("written")
        except Exception as error:
            answers.append(f"{type(error).__name__}: {error}")
        finally:
            await client.stop()
    return answers


async def sessions(bootstrap, spec):
    """Many partitions at once."""
    topic, count = spec["many"]
    async with Consumer(bootstrap) as client:
        mine = [Partition(topic, number) for number in range(count)]
        client.assign(mine)
        found = await drain(client, await client.end_offsets(mine))
        return sorted((each.partition, each.offset, each.value.decode()) for each in found)


def members(bootstrap, spec):
    """Members of one group."""
    asked = spec["members"]
    more = {"group_instance_id": asked["static"]} if asked.get("static") else {}
    loop = asyncio.new_event_loop()

    async def start():
        clients = [
            aiokafka.AIOKafkaConsumer(
                asked["topic"],
                bootstrap_servers=bootstrap,
                group_id=asked["group"],
                session_timeout_ms=6000,
                heartbeat_interval_ms=500,
                **more,
            )
            for _ in range(asked["count"])
        ]
        await asyncio.gather(*(client.start() for client in clients))
        return clients

    clients = loop.run_until_complete(start())

    async def poll():
        await asyncio.gather(*(client.getmany(timeout_ms=100) for client in clients))

    async def close():
        await asyncio.gather(*(client.stop() for client in clients))

    watch(
        lambda: [[each.partition for each in client.assignment()] for client in clients],
        lambda: loop.run_until_complete(poll()),
        lambda: loop.run_until_complete(close()),
    )


def run(capability):
    """A capability, outside of a loop."""
    return lambda bootstrap, spec: asyncio.run(capability(bootstrap, spec))


CAPABILITIES = {
    "list": run(listed),
    "describe": run(described),
    "records": run(read),
    "committed": run(committed),
    "legacy": run(legacy),
    "times": run(times),
    "reset": run(reset),
    "group": run(group),
    "produce": run(produce),
    "sessions": run(sessions),
}

if __name__ == "__main__":
    main(CAPABILITIES, members)
