"""Tests of reporting/options.py, reporting/partitions.py, reporting/payloads.py and reporting/scope.py. Samples of a
report: decoded by the schemas of the disk as `cat` decodes them, no more than was asked for.
"""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.shell import expect, pylogseg

import pylogseg as package
from pylogseg.reporting.options import ReportOptions
from pylogseg.reporting.partitions import SHOWN_BYTES

SCHEMA = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "long"}]}
COUNT = 500


def payloads(path: Path, *words: object) -> dict[tuple[str, int], dict[str, Any]]:
    done = pylogseg("report", path, "--json", "--sample", COUNT, *words)
    assert done.code in (0, 1), done.err
    (found,) = done.rows
    return {
        (part["name"], each["offset"]): each
        for part in found["partitions"]
        for each in (part["sample"]["payloads"] if part["sample"] else ())
    }


def same(shown: str, wanted: str) -> bool:
    """Whether a shown text is another one, perhaps cut; some letters are escaped."""
    return shown == wanted or (shown.endswith("…") and len(shown) > SHOWN_BYTES and wanted.startswith(shown[:-1]))


def test_values_are_those_of_cat(shop: Path) -> None:
    """Every topic with a schema in `_schemas`; what does not decode is named as `cat` names it, and stays as it is."""
    shown, seen, named = payloads(shop), 0, 0
    raw = payloads(shop, "--value-as", "text")
    for topic in ("orders", "types", "customers", "docs", "list", "old", "guid", "single-object", "events"):
        done = pylogseg("cat", shop, topic, "--value-as", "schema")
        for line in done.text.splitlines():
            row = json.loads(line)
            key = f"{topic}-{row['partition']}", row["offset"]
            mine = shown[key]
            if not mine["valueIsDecoded"]:
                assert mine["value"] == raw[key]["value"]
                assert mine["value"] is None or mine["whyNotDecoded"]
                named += bool(mine["whyNotDecoded"])
            else:
                text = line[line.index('"value":') + len('"value":') : line.rindex(',"headers":')]
                assert mine["value"].endswith("…") or json.loads(mine["value"]) == row["value"]
                assert same(mine["value"], text) or "\\" in mine["value"], (key, text)
                seen += 1
    assert seen > 50
    assert named > 3
    assert not any(each["valueIsDecoded"] or each["keyIsDecoded"] for each in raw.values())


def test_own_topics_without_secrets(golden: Path) -> None:
    path = golden / "inside" / "groups"
    shown, raw = (payloads(path / "data0", *words) for words in ((), ("--value-as", "text")))
    own = {key: each for key, each in shown.items() if key[0].startswith("__")}
    assert {key[0].rpartition("-")[0] for key, each in own.items() if each["valueIsDecoded"]} == {
        "__cluster_metadata", "__consumer_offsets", "__share_group_state", "__transaction_state"
    }  # fmt: skip
    users = [key for key, each in own.items() if '"USER_SCRAM_CREDENTIAL' in (each["value"] or "")]
    assert users
    for key in users:
        secret = json.loads(own[key]["value"])["data"]
        assert secret["storedKey"] == secret["serverKey"] == secret["salt"] == ""
        assert raw[key]["value"] != own[key]["value"]


def test_without_a_schema(tmp_path: Path) -> None:
    """As text, in silence; with a note if it was asked for. Files of schemas say how as well."""
    for name in ("orders-0", "other-0"):
        with package.open_log(tmp_path / "kafka" / name) as log:
            log.append([(1, b"k", b"\0\0\0\0\x07\x54" if name == "orders-0" else b"T")])
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / "7.avsc").write_text(json.dumps(SCHEMA))
    plain = package.report(tmp_path / "kafka", sample=1).facts
    assert [part.sample.payloads[0].value for part in plain.partitions if part.sample][1:] == ["T"]
    assert not plain.scope.notes
    asked = package.report(tmp_path / "kafka", sample=1, registry=tmp_path / "schemas").facts
    first, second = (part.sample.payloads[0] for part in asked.partitions if part.sample)
    assert (first.value, first.value_is_decoded, first.key_is_decoded) == ('{"n":42}', True, False)
    assert (second.value, second.value_is_decoded) == ("T", False)
    assert [note for note in asked.scope.notes if "other" in note]
    assert f"--registry {tmp_path / 'schemas'}" in asked.command


@pytest.fixture
def registry() -> Iterator[tuple[str, list[str]]]:
    asked: list[str] = []

    class Answers(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            body = json.dumps({"schema": json.dumps(SCHEMA), "id": 7, "subject": "orders-value", "version": 1}).encode()
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *words: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://somebody:secret@127.0.0.1:{server.server_port}", asked
    server.shutdown()
    server.server_close()


def test_a_registry_is_asked_only_if_it_is_named(
    registry: tuple[str, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, asked = registry
    monkeypatch.setenv("HOME", str(tmp_path))
    with package.open_log(tmp_path / "kafka" / "orders-0") as log:
        log.append([(1, b"k", b"\0\0\0\0\x07\x54")])
    package.report(tmp_path / "kafka", sample=1)
    package.report(tmp_path / "kafka", registry=None)
    assert asked == []
    (part,) = package.report(tmp_path / "kafka", sample=1, registry=url).facts.partitions
    assert part.sample is not None
    assert part.sample.payloads[0].value == '{"n":42}'
    assert asked
    command = ReportOptions(payloads=1, registry=url).command
    assert "secret" not in command
    assert f"--registry {url.replace('somebody:secret@', '')}" in command


def test_what_has_no_use_is_refused(tmp_path: Path) -> None:
    with package.open_log(tmp_path / "orders-0") as log:
        log.append([(1, b"k", b"v")])
    both = ["--sample", 1, "--registry", "x", "--value-as", "text"]
    for words in (["--registry", "x"], ["--value-as", "text"], both):
        done = expect(pylogseg("report", tmp_path, "--json", *words), 2)
        assert "--sample" in done.err or "no effect" in done.err
