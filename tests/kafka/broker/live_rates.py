"""Records per CPU second that a client fetches from a real Kafka: ours and confluent-kafka's, in one run.

    python tests/kafka/broker/live_rates.py [--records 2000000]

Each row is a process of its own; it reads a topic of four partitions, and prints records per second of its processor
time. Batches have 64 KiB, values 100 bytes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# A neighbour, which is no package:
from one_broker import Broker

PARTITIONS = 4
START = """
import json, sys, time
address, topic, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
"""
END = """
print(json.dumps({"records": records, "cpu": time.process_time() - begun, "wall": time.monotonic() - started}))
"""
CLOCK = "begun, started = time.process_time(), time.monotonic()\n"
WAYS = {
    "raw, headers and CRC": """
import pylogseg
from pylogseg.walker.windows import walk
pylogseg.read(f"kafka://{address}/{topic}", limit=1).to_arrow()  # imports
%srecords = 0
for partition in pylogseg.open_dir(f"kafka://{address}/{topic}"):
    with partition.segments[0].open() as view:
        records += sum(int(window.batches.rows["count"].sum()) for window in walk(view))
""",
    "to Arrow": """
import pylogseg
pylogseg.read(f"kafka://{address}/{topic}", limit=1).to_arrow()  # imports
%srecords = sum(batch.num_rows for batch in pylogseg.read(f"kafka://{address}/{topic}").batches())
""",
    "confluent-kafka, lists of messages": """
from confluent_kafka import Consumer, TopicPartition
%sconsumer = Consumer({"bootstrap.servers": address, "group.id": "rates", "enable.auto.commit": False})
consumer.assign([TopicPartition(topic, number, 0) for number in range(4)])
records = 0
while records < count:
    records += len(consumer.consume(10000, 1))
""",
}


def fill(address: str, topic: str, codec: str, count: int) -> None:
    """Make a topic, and write records into it."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result()
    producer = Producer({"bootstrap.servers": address, "compression.type": codec, "batch.size": 65536, "linger.ms": 50,
                         "queue.buffering.max.messages": 200_000})  # fmt: skip
    for number in range(count):
        value = (b"%d " % number) * 20
        while True:
            try:
                producer.produce(topic, value[:100], b"key-%d" % number, number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=2_000_000)
    count = parser.parse_args().records
    with tempfile.TemporaryDirectory() as temporary:
        broker = Broker(Path(temporary, "broker"))
        broker("start", "log.segment.bytes=1073741824")
        try:
            for codec in ("none", "lz4"):
                fill(broker.address, f"rates-{codec}", codec, count)
                time.sleep(2)
                for name, code in WAYS.items():
                    program = START + code % CLOCK + END
                    words = [sys.executable, "-c", program, broker.address, f"rates-{codec}", str(count)]
                    done = subprocess.run(words, check=True, capture_output=True, text=True)
                    row = json.loads(done.stdout.splitlines()[-1])
                    rate, wall = row["records"] / row["cpu"] / 1e6, row["records"] / row["wall"] / 1e6
                    print(f"{codec:5} {name:36} {rate:6.2f} M records per CPU second, {wall:6.2f} M per second")
        finally:
            broker("stop")


if __name__ == "__main__":
    main()
