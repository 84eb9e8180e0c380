"""Tests of cli/streams.py, format/escape.py and inspect/stats/shown.py. What reaches a terminal, and whether JSON and
CSV are well-formed and lossless for any bytes.
"""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pandas
import polars
import pytest
from helpers.drawn_columns import build
from helpers.forked import command
from helpers.handmade import batch, partition, varint
from helpers.shell import environment, pylogseg
from hypothesis import given
from hypothesis import strategies as st
from reference.text import Record

import pylogseg as package
from pylogseg.format import text
from pylogseg.format.escape import printable

ACTING = "\x1b[2J\x1b]0;p\x07 \u009b41m\u009d0;x\u009c \u202egnp.exe \u2066\u200f\u061c \x7f\x00\x85\u2028"
#: As bytes, with some that are no UTF-8.
VALUE = ACTING.encode() + b"\xff\x9b41m"
NAME = b"a\x1b[41mred\xc2\x9b\xff\x07-0"


def record(key: bytes, value: bytes, headers: list[tuple[bytes, bytes]]) -> bytes:
    body = b"\0\0\0" + varint(len(key)) + key + varint(len(value)) + value + varint(len(headers))
    for name, of in headers:
        body += varint(len(name)) + name + varint(len(of)) + of
    return varint(len(body)) + body


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    folder = tmp_path / "d"
    for value, name in ((VALUE, os.fsdecode(NAME)), (ACTING.encode(), "t-0")):
        body = record(value, value, [(value, value), (ACTING.encode(), ACTING.encode())])
        path = partition(folder, batch(body, 1, codec=0) + b"\xff" * 30, name)
        (path / "x\x1b[41m\u202e.log").write_bytes(b"")
        (path / "leader-epoch-checkpoint").write_bytes(b"0\n1\n\x1b[41m 0\n")
        (path / "partition.metadata").write_bytes(b"version: 0\ntopic_id: \x1b[41m\n")
    (folder / "meta.properties").write_bytes(b"version=1\nnode.id=\x1b[41m1\ncluster.id=\xc2\x9b41mabc\n")
    return folder


def on_terminal(*words: object) -> bytes:
    """What a command writes to a terminal, both streams."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        command(*words), stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, env=environment() | {"TERM": "xterm"}
    ) as child:
        os.close(theirs)
        pieces = []
        try:
            while piece := os.read(ours, 1 << 16):
                pieces.append(piece)
        except OSError:  # how a terminal ends
            pass
        child.wait()
    os.close(ours)
    return b"".join(pieces)


COMMANDS = [
    "ls D",
    "ls -l -a D",
    "verify D",
    "stats D",
    "stats --by partition D",
    "cat D --on-corrupt skip",
    "cat D --csv --on-corrupt skip",
    "cat D --on-corrupt skip --value-as json",
    "cat D -f %t%k%s%h --on-corrupt skip",
    "grep p D --in headers --on-corrupt skip",
    "latest D --on-corrupt skip",
    "dump D",
    "dump -r D/t-0/00000000000000000000.log",
    "dump -r --json D/t-0/00000000000000000000.log",
    "dump --style kafka --print-data-log D/t-0/00000000000000000000.log",
    "recover --dry-run D",
    "repair --dry-run --no-keep D",
    "diff D D",
    "cat D nosuch\x1b[41m",
    "verify --json D",
    "ls --json D",
]


@pytest.mark.parametrize("line", COMMANDS)
def test_nothing_that_a_terminal_acts_on(hostile: Path, line: str) -> None:
    words = [word.replace("D", str(hostile), 1) if word[0] == "D" else word for word in line.split()]
    out = on_terminal(*words)
    assert out
    out = re.sub(rb"\x1b\[(\?25[lh]|2K|1A|(?!41)[0-9;]*m)|\r", b"", out)  # of rich
    shown = out.decode()  # well-formed
    assert [c for c in shown if c != "\n" and c != "\t" and printable(c) != c] == []
    assert b"Traceback" not in out


@pytest.mark.parametrize(
    "line",
    [
        *(line for line in COMMANDS if "\x1b" not in line),
        "reindex --dry-run D",
        "compact --force --dry-run D",
        "retain --dry-run D",
        "redact --key k --dry-run D",
        "recode -z zstd --dry-run D",
        "copy --dry-run D O",
        "export D --on-corrupt skip --out O --to csv --columns topic,value",
    ],
)
def test_names_that_are_not_utf8_where_output_is_strict(hostile: Path, tmp_path: Path, line: str) -> None:
    where = {"D": str(hostile), "O": str(tmp_path / "o")}
    words = [where[word[0]] + word[1:] if word[0] in where else word for word in line.split()]
    strict = environment() | {"LC_ALL": "C.UTF-8", "PYTHONIOENCODING": "utf-8:strict"}
    done = subprocess.run(command(*words), env=strict, capture_output=True, check=False)
    assert b"Traceback" not in done.stderr, done.stderr.decode()
    done.stderr.decode()
    if "-f" not in words:  # a template writes the bytes as they are
        done.stdout.decode()


@pytest.mark.parametrize("line", ["ls D", "grep -l --empty --pattern= D", "diff D D", "stats --by partition D"])
def test_a_name_is_the_same_in_a_pipe(tmp_path: Path, line: str) -> None:
    """Without its escape sequence it would be that of another folder."""
    folder = partition(tmp_path / "d", batch(record(b"k", b"v", []), 1, codec=0), "a\x1b[41mred-0")
    words = [str(folder) if word == "D" else word for word in line.split()]
    done = subprocess.run(command(*words), env=environment(), capture_output=True, check=False)
    assert rb"a\x1b[41mred" in done.stdout
    assert b"ared" not in done.stdout


def test_names_that_are_not_utf8_in_arrow_and_json(hostile: Path, caplog: pytest.LogCaptureFixture) -> None:
    topics = package.read_arrow(hostile, on_corrupt="skip", columns=["topic", "segment"]).read_all()["topic"]
    assert topics.to_pylist() == ["t"]
    assert len(caplog.messages) == 2  # of the folder that no topic can have, and of the damage
    for message in caplog.messages:
        assert printable(message) == message
    for line in (("ls", "--json"), ("verify", "--json"), ("stats", "--json", "--by", "partition")):
        for row in pylogseg(line[0], hostile / os.fsdecode(NAME), hostile / "t-0", *line[1:]).out.splitlines():
            json.loads(row)
            assert b"\\ud" not in row
            assert printable(row.decode()) == row.decode()


def test_what_is_printable_stays() -> None:
    assert printable("orders-3\té 漢字 🙂\n") == "orders-3\té 漢字 🙂\n"
    assert printable("\x1b\r\x7f\u009b\u202e\udcff") == r"\x1b\x0d\x7f\x9b\u202e\xff".replace(r"\x0d", r"\r")


# ---- JSON and CSV for any bytes ----

PAYLOADS = st.none() | st.binary(max_size=60) | st.text(max_size=30).map(lambda t: t.encode("utf-8", "surrogatepass"))
PAYLOADS |= st.sampled_from([b"base64:", b"base64:AA==", b"base64", b"\x00", b"a\x00b", b"\r\n", b'"', b"", VALUE])


@given(st.lists(st.tuples(PAYLOADS, PAYLOADS), max_size=6), st.sampled_from([b"", b"\xff" * 40]))
def test_every_payload_comes_back(pairs: list[tuple[bytes | None, bytes | None]], pad: bytes) -> None:
    headers = tuple((key or b"", value) for key, value in pairs)
    records = [Record(i, 0, key, value, headers) for i, (key, value) in enumerate(pairs)]
    columns = build(records, pad=pad)
    fields = ("offset", "key", "value", "headers")
    for style in ("text", "json"):
        lines = bytes(text.render(columns, text.json_lines(fields, key="text", value=style))).decode().splitlines()
        for line, (key, value) in zip(lines, pairs, strict=True):
            assert printable(line) == line
            row = json.loads(line)
            assert "\\ud" not in json.dumps(line) or json.dumps(row).encode()
            assert text.payload_of(row["key"]) == key
            assert [(text.payload_of(h["key"]), text.payload_of(h["value"])) for h in row["headers"]] == list(headers)
            if style == "text":
                assert text.payload_of(row["value"]) == value
                row_text = json.dumps(row, ensure_ascii=False)
                row_text.encode()  # no lone surrogate
    for delimiter in ",;|\t:":
        out = bytes(text.render(columns, text.csv(fields, delimiter=delimiter))).decode()
        assert "\0" not in out
        rows = list(csv.reader(io.StringIO(out, newline=""), delimiter=delimiter, strict=True))
        assert [(text.payload_of(k) or b"", text.payload_of(v) or b"") for _, k, v, _ in rows] == [
            (key or b"", value or b"") for key, value in pairs
        ]


MANY = [b"plain", "é漢🙂".encode(), VALUE, ACTING.encode(), b"\xff\xfe", b"\x00\x01\x02", b"base64:x", b'a,"b"\nc']


@pytest.fixture
def avro(tmp_path: Path) -> Path:
    data = b"".join(
        batch(record(b"k%d" % i, value, [(b"h\xff", value)]), 1, base=i, codec=0) for i, value in enumerate(MANY)
    )
    return partition(tmp_path / "avro", data)


def back(values: Any) -> list[bytes | None]:
    return [text.payload_of(value) for value in values]


@pytest.mark.parametrize("words", [("cat",), ("latest",), ("grep", "-v", "nothing"), ("export",)], ids=lambda w: w[0])
def test_other_programs_read_json_and_csv(avro: Path, tmp_path: Path, words: tuple[str, ...]) -> None:
    lines, table = tmp_path / "lines.jsonl", tmp_path / "table.csv"
    if words[0] == "export":
        for form, path in (("jsonl", lines), ("csv", table)):
            assert pylogseg("export", avro, "--out", tmp_path / form, "--to", form).code == 0
            (found,) = (tmp_path / form).rglob(f"*.{form}")
            found.rename(path)
    else:
        arguments = [*words[1:], avro]
        lines.write_bytes(pylogseg(words[0], *arguments).out)
        table.write_bytes(pylogseg(words[0], *arguments, "--csv").out)
    assert back(duckdb.sql(f"select value from read_json('{lines}') order by \"offset\"").df()["value"]) == MANY
    assert back(polars.read_ndjson(lines)["value"]) == MANY
    assert back(pandas.read_json(lines, lines=True, dtype=False)["value"]) == MANY
    assert back(duckdb.sql(f"select value from read_csv('{table}') order by \"offset\"").df()["value"]) == MANY
    assert back(polars.read_csv(table)["value"]) == MANY
    assert back(pandas.read_csv(table)["value"]) == MANY


def test_python_says_nothing_raw_of_its_own(hostile: Path) -> None:
    """The program that runs it keeps its streams."""
    before = sys.stdout
    pylogseg("ls", hostile)
    assert sys.stdout is before
