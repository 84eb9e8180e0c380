"""Tests of server/writing/handlers.py. Hostile requests to a broker that is written to: each is answered or ends its
connection, and others go on.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from helpers.depth import draws
from helpers.kafka_clients import RawClient, batch, produced
from helpers.messages import fields_of
from helpers.servers import topics_of
from helpers.wire_values import raw_ids
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import pylogseg
from pylogseg.format.messages import wire
from pylogseg.format.messages.wire import request_of
from pylogseg.server.writing.handlers import WRITING

#: Those that a server which only reads does not answer so.
KEYS = [0, 3, 9, 19, 20, 21, 22, 24, 25, 26, 28, 33, 37, 42, 44, 47]
VERSIONS = [
    (key, version)
    for key in KEYS
    for version in range(WRITING.offered[key].first, WRITING.offered[key].last + 1)
    if WRITING.is_served(key, version)
]


@pytest.fixture(scope="module")
def broker() -> Iterator[pylogseg.Broker]:
    with pylogseg.Broker(topics={"one": 1}) as found:
        yield found


def thrown(broker: pylogseg.Broker, frame: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """Send a frame; the server must not have failed over it, and must go on."""
    caplog.clear()
    with caplog.at_level(logging.ERROR, "pylogseg"), RawClient(broker.bootstrap_servers) as client:
        client.socket.sendall(frame)
        client.frame()
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
    with RawClient(broker.bootstrap_servers) as client:
        broker.catalog.topics.get("one") or topics_of(broker).make("one", 1)
        assert produced(client, "one", batch(b"x"))["errorCode"] == 0


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=draws(150))
@given(which=st.sampled_from(VERSIONS), data=st.data())
def test_well_formed_and_senseless(
    broker: pylogseg.Broker, caplog: pytest.LogCaptureFixture, which: tuple[int, int], data: st.DataObject
) -> None:
    of = request_of(which[0])
    assert of is not None
    values: Any = raw_ids(of.fields, data.draw(fields_of(of, which[1])))
    if which[0] == 0:
        values["acks"] = data.draw(st.sampled_from([1, -1, 7]))
    thrown(broker, wire.request(which[0], which[1], 1, "any", values), caplog)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=draws(100))
@given(data=st.data())
def test_batches_that_are_flipped_and_cut(
    broker: pylogseg.Broker, caplog: pytest.LogCaptureFixture, data: st.DataObject
) -> None:
    records = bytearray(batch(b"a", b"b", compression=data.draw(st.sampled_from(["none", "gzip", "zstd", "lz4"]))))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(records) - 1))
        records[at] = data.draw(st.sampled_from([0, 1, 127, 128, 255, records[at] ^ 1]))
    records = records[: data.draw(st.integers(0, len(records)))]
    topic = {"name": "one", "partitionData": [{"index": 0, "records": bytes(records)}]}
    frame = wire.request(0, 9, 1, "any", {"acks": 1, "transactionalId": "t", "topicData": [topic]})
    thrown(broker, frame, caplog)
