"""Tests of values/internal/message_text.py and values/internal/record_text.py. `cat --internal`: records of internal
topics as Kafka's dump tool has them, as JSON.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from helpers.internal_logs import write_log
from helpers.shell import expect, pylogseg

from pylogseg.format.messages.framing import encode_coordinator, encode_framed

TOPICS = ("__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata")


@pytest.mark.parametrize("topic", TOPICS)
def test_as_kafka_dumps_them(golden: Path, topic: str) -> None:
    folder, compared = golden / "inside" / "groups", 0
    for path in sorted(folder.glob(f"data?/{topic}-*/*.log")):
        told = folder / "expected" / "decoders" / path.relative_to(folder).with_suffix(".short.txt.gz")
        if not told.exists():
            told = told.with_name(path.name + ".short.txt.gz")
        lines = gzip.decompress(told.read_bytes()).decode().splitlines()
        expected = [line for line in lines if line.startswith("| ") and " payload: " in line]
        rows = pylogseg("cat", path, "--internal", "--show-secrets", "--below-log-start").rows
        assert len(rows) == len(expected)
        for row, line in zip(rows, expected, strict=True):
            key, _, value = line.removeprefix("| ").partition("payload: ")
            if key:
                assert row["key"] == json.loads(key.strip().removeprefix("key: "))
            if key and row["key"]["type"] == "2" and row["value"] is not None:
                continue  # the tool decodes what is in the members
            assert row["value"] == (None if value == "<DELETE>" else json.loads(value))
            compared += 1
    assert compared > 20


def test_secrets_are_masked(tmp_path: Path) -> None:
    user = {"name": "u", "mechanism": 1, "salt": b"s", "storedKey": b"k", "serverKey": b"v", "iterations": 4096}
    setting = {"resourceType": 4, "resourceName": "1", "name": "ssl.key.password", "value": "secret"}
    records = [encode_framed("UserScramCredentialRecord", 0, user), encode_framed("ConfigRecord", 0, setting)]
    path = write_log(tmp_path / "__cluster_metadata-0", [(None, record) for record in records])
    data = [row["value"]["data"] for row in pylogseg("cat", path, "--internal").rows]
    assert (data[0]["salt"], data[0]["storedKey"], data[1]["value"]) == ("", "", "********")
    data = [row["value"]["data"] for row in pylogseg("cat", path, "--internal", "--show-secrets").rows]
    assert (data[0]["salt"], data[1]["value"]) == ("cw==", "secret")


def test_what_cannot_be_decoded_stays(tmp_path: Path) -> None:
    key, value = encode_coordinator("OffsetCommit", {"group": "g", "topic": "t", "partition": 1}, 3, {"offset": 5})
    assert value is not None
    records = [(key, value), (key, b"\0\x09" + value[2:]), (b"\0\x63x", value), (key, value[:5]), (key, None)]
    path = write_log(tmp_path / "__consumer_offsets-0", records)
    done = expect(pylogseg("cat", path, "--internal"), 1, "3 payloads could not be decoded")
    rows = done.rows
    assert [isinstance(row["value"], dict) for row in rows] == [True, False, False, False, False]
    assert rows[1]["key"]["data"] == {"group": "g", "topic": "t", "partition": 1}
    assert rows[4]["value"] is None


def test_options_that_do_not_go_together(tmp_path: Path) -> None:
    path = write_log(tmp_path / "__consumer_offsets-0", [(b"k", b"v")])
    assert pylogseg("cat", path, "--internal", "--value-as", "hex").code == 2
    assert pylogseg("cat", path, "--show-secrets").code == 2
    other = write_log(tmp_path / "plain-0", [(b"k", b"v")])
    assert pylogseg("cat", other, "--internal").rows[0]["key"] in ("k", "base64:aw==")
