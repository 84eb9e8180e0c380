"""Tests of _setting_text.py. Tests of _setting_text.py and config.py: each text of each setting is read as Kafka's
classes read it.
"""

import doctest
import itertools

from helpers.kafka_storage import Kafka

from pylogseg import _setting_text
from pylogseg.config import LogConfig
from pylogseg.errors import RequestError

NUMBERS = [
    "0", "1", "-1", "-2", "+1", "-0", "007", "13", "14", "1048576", "2147483639", "2147483640", "2147483647",
    "2147483648", "-131072", "-131073", "9", "10", "17", "18", "22", "23", "9223372036854775807",
    "9223372036854775808", "-9223372036854775808", "1.0", "1_0", "1e3", "0x10", "5L", "5l", "++5", "-",
]  # fmt: skip
RATIOS = [
    "0.5", ".5", "5.", "0.5d", "0.5F", "1f", "1D", "1e-3", "1E0", "5e-1d", "0x1p-1", "0x.8p0", "0X1P-2f", "NaN",
    "nan", "+NaN", "-NaN", "NaNf", "Infinity", "-Infinity", "inf", "1e-999", "1e999", "-1e-999", "0.1_0", "0,5",
    "1.0000000000000001", "1.1", "half", "e5", "0x1", "0x0p0",
]  # fmt: skip
WORDS = [
    "true", "TRUE", "True", "false", "falsE", "yes", "1", "compact", "delete", "Delete", "compact,delete",
    "delete,compact,delete", "compact,compact", "compact,", ",delete", ",", "zstd", "ZSTD", "uncompressed", "none",
    "lz4", "snappy", "gzip", "producer", "CreateTime", "LogAppendTime", "createtime", "*", "*,*", "1:2", "1:2,1:2",
    "1:2,*", "*,1:2", "1:2,3:4,", "1:2:3", "-1:2", "1:+2", "01:002", "1:", ":2",
]  # fmt: skip
DIGITS = ["\uff15", "\u0665", "\U0001d7d3", "\u2165", "\u00b2", "1\uff15", "0.\uff15", "\uff11:2"]
#: Each is put in front of, behind and inside some texts.
SPACES = [" ", "\t", "\r\n", "\x00", "\x1f", "\x0b", "\x0c", "\x85", "\xa0", "\u2003", "\u3000", "\ufeff", "\u200b"]
#: Kafka 4.4 has these, 4.3 does not.
NEWER = {
    "max.decompressed.message.bytes",
    "errors.deadletterqueue.group.enable",
    "remote.copy.lag.ms",
    "remote.copy.lag.bytes",
}
#: The broker has a floor for segments that a log by itself does not have.
FREER = {"segment.bytes"}


def settings() -> list[dict[str, str]]:
    """Sets of one setting each: all names by all texts."""
    padded = [
        text
        for space, word in itertools.product(SPACES, ["5", "0.5", "true", "compact", "zstd", "LogAppendTime", "1:2"])
        for text in (space + word, word + space)
    ]
    listed = [f"{word}{space},{space}{word}" for space in SPACES for word in ("compact", "1:2")]
    names = sorted(LogConfig().to_properties())
    special = [name for name in names if not name.endswith((".ms", ".bytes", ".messages", ".level"))]
    short = ["", " ", *NUMBERS, *RATIOS, *DIGITS]
    rows = [(name, text) for name in names for text in short]
    rows += [(name, text) for name in [*special, "retention.ms"] for text in (*WORDS, *padded, *listed)]
    return [{name: text} for name, text in rows]


def test_kafka_reads_the_same(kafka: Kafka) -> None:
    rows, wrong = settings(), []
    assert len(rows) > 6_000
    for row, answer in zip(rows, kafka.parsed(rows), strict=True):
        (name,) = row
        try:
            value = LogConfig.from_properties(row).to_properties()[name]
        except RequestError:
            value = None
        if "Unknown topic config name" in answer.get("refused", "") and name in NEWER:
            continue
        if name in FREER and "at least 1048576" in answer.get("refused", ""):
            continue
        # the text of a number is compared as a number
        theirs = None if "refused" in answer else LogConfig.from_properties(answer).to_properties()[name]
        if value != theirs:
            wrong.append((row, value, answer))
    assert not wrong, f"{len(wrong)} of {len(rows)}: {wrong[:10]}"


def test_examples() -> None:
    assert doctest.testmod(_setting_text).failed == 0
