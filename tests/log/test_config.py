"""Tests of config.py. Settings of a log: Kafka's defaults, what it refuses, both ways of naming them."""

from __future__ import annotations

import doctest
import json
from pathlib import Path

import pytest

from pylogseg import config
from pylogseg.config import LogConfig
from pylogseg.errors import RequestError

LONG_MAX = 2**63 - 1
#: As `kafka-configs.sh --describe --all` shows them for a topic of a 4.3.0 broker.
DEFAULTS = {
    "cleanup.policy": "delete",
    "compression.gzip.level": "-1",
    "compression.lz4.level": "9",
    "compression.type": "producer",
    "compression.zstd.level": "3",
    "delete.retention.ms": "86400000",
    "file.delete.delay.ms": "60000",
    "flush.messages": "9223372036854775807",
    "flush.ms": "9223372036854775807",
    "follower.replication.throttled.replicas": "",
    "index.interval.bytes": "4096",
    "leader.replication.throttled.replicas": "",
    "errors.deadletterqueue.group.enable": "false",
    "local.retention.bytes": "-2",
    "local.retention.ms": "-2",
    "max.compaction.lag.ms": "9223372036854775807",
    "max.decompressed.message.bytes": "2147483639",
    "max.message.bytes": "1048588",
    "message.timestamp.after.max.ms": "3600000",
    "message.timestamp.before.max.ms": "9223372036854775807",
    "message.timestamp.type": "CreateTime",
    "min.cleanable.dirty.ratio": "0.5",
    "min.compaction.lag.ms": "0",
    "min.insync.replicas": "1",
    "preallocate": "false",
    "remote.copy.lag.bytes": "-1",
    "remote.copy.lag.ms": "0",
    "remote.log.copy.disable": "false",
    "remote.log.delete.on.disable": "false",
    "remote.storage.enable": "false",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    "segment.bytes": "1073741824",
    "segment.index.bytes": "10485760",
    "segment.jitter.ms": "0",
    "segment.ms": "604800000",
    "unclean.leader.election.enable": "false",
}


def test_defaults() -> None:
    assert LogConfig().to_properties() == DEFAULTS
    assert LogConfig.from_properties(DEFAULTS) == LogConfig()


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("segment.bytes", ["14", " 1048576 ", str(2**31 - 1)], ["13", str(2**31), "1e6", "1_000", "", "x"]),
        ("segment.ms", ["1", str(LONG_MAX)], ["0", str(LONG_MAX + 1)]),
        ("segment.jitter.ms", ["0"], ["-1"]),
        ("segment.index.bytes", ["4"], ["3"]),
        ("index.interval.bytes", ["0"], ["-1"]),
        ("flush.messages", ["1"], ["0"]),
        ("retention.bytes", ["-5", "0", "\uff15"], ["all", "\u00a05", "\U0001d7d8"]),
        ("retention.ms", ["-1"], ["-2"]),
        ("max.compaction.lag.ms", ["1"], ["0"]),
        ("min.cleanable.dirty.ratio", ["0", "1.0", "0.5d", "NaN"], ["1.1", "-0.1", "nan", "half", "0_1"]),
        (
            "cleanup.policy",
            ["", "compact", "delete , compact", "compact,compact"],
            ["Delete", "compact,", "drop", "\u00a0compact"],
        ),
        ("compression.type", ["zstd", "uncompressed"], ["none", "brotli", "LZ4"]),
        ("compression.gzip.level", ["-1", "1", "9"], ["0", "10", "-2"]),
        ("compression.lz4.level", ["1", "17"], ["0", "18"]),
        ("compression.zstd.level", ["-131072", "22"], ["23"]),
        ("preallocate", ["TRUE", "false\t"], ["1", "yes", "true\u00a0"]),
        ("message.timestamp.type", ["LogAppendTime"], ["createtime"]),
        ("leader.replication.throttled.replicas", ["", "*", "0:1,0:1", "0:1,"], ["0", "a:b", "0:1,*", "\u0661:2"]),
    ],
)
def test_checks(name: str, good: list[str], bad: list[str]) -> None:
    for value in good:
        LogConfig.from_properties({name: value})
    for value in bad:
        with pytest.raises(RequestError) as caught:
            LogConfig.from_properties({name: value})
        assert str(caught.value).startswith(f"invalid {name}={value!r}: expected ")


@pytest.mark.parametrize("value", [True, 1.5, None, b"14"])
def test_wrong_types(value: object) -> None:
    with pytest.raises(RequestError, match=r"segment\.ms"):
        LogConfig.of(segment_ms=value)
    with pytest.raises(RequestError, match=r"cleanup\.policy"):
        LogConfig.of(cleanup_policy=value)


def test_lags() -> None:
    with pytest.raises(RequestError, match=r"min\.compaction\.lag\.ms=6: expected at most .* 5"):
        LogConfig.of(min_compaction_lag_ms=6, max_compaction_lag_ms=5)


def test_unknown() -> None:
    with pytest.raises(RequestError, match=r"'segment\.byte'. Did you mean 'segment\.bytes'"):
        LogConfig.from_properties({"segment.byte": "5"})
    with pytest.raises(RequestError, match=r"unknown log setting 'message\.downconversion\.enable'"):
        LogConfig.of(message_downconversion_enable=True)


def test_internal_segment_bytes() -> None:
    assert LogConfig.from_properties({"internal.segment.bytes": "400"}).segment_bytes == 400
    assert LogConfig.of(segment_bytes=1 << 20, internal_segment_bytes=500).segment_bytes == 500


def test_with_changes() -> None:
    old = LogConfig.of(segment_bytes=400)
    new = old.with_changes(cleanup_policy=["compact", "delete"])
    assert (old.cleanup_policy, new.cleanup_policy, new.segment_bytes) == (("delete",), ("compact", "delete"), 400)
    with pytest.raises(RequestError):
        old.with_changes(segment_ms=0)
    with pytest.raises(AttributeError):
        old.segment_ms = 5  # type: ignore[misc]


def test_derived() -> None:
    assert not LogConfig.of(cleanup_policy="").compact
    assert not LogConfig.of(cleanup_policy="").delete
    lag = {"max_compaction_lag_ms": 10, "segment_ms": 20}
    assert LogConfig.of(**lag).max_segment_ms == 20
    assert LogConfig.of(**lag, cleanup_policy="compact").max_segment_ms == 10
    assert LogConfig.of(segment_bytes=500, preallocate=True).preallocate_bytes == 500
    assert LogConfig.of(segment_bytes=500).preallocate_bytes == 0


def text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def test_all_of_the_replays(golden: Path) -> None:
    """Every list of settings that a real Kafka took in the replays is taken here, and nothing of it is lost."""
    seen = 0
    for path in golden.glob("replay/*/ops.jsonl"):
        for line in path.read_text().splitlines():
            settings = {name: text(value) for name, value in (json.loads(line).get("config") or {}).items()}
            taken = LogConfig.from_properties(settings).to_properties()
            assert {name: taken[name] for name in settings} == settings
            seen += bool(settings)
    assert seen > 50


def test_examples() -> None:
    assert doctest.testmod(config).failed == 0
