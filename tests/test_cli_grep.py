"""`pylogseg grep`: what is found, against a search in plain Python."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from shell import pylogseg

import pylogseg as package
from pylogseg import Record
from pylogseg.cli import grep as grep_module


def found(*arguments: object) -> list[tuple[str, int, int]]:
    done = pylogseg("grep", *arguments, "--fields", "topic,partition,offset")
    assert done.code == (0 if done.out else 1), done.err
    return [(row["topic"], row["partition"], row["offset"]) for row in done.rows]


def searched(path: Path, match: Callable[[Record], bool]) -> list[tuple[str, int, int]]:
    return [(r.topic, r.partition, r.offset) for r in package.read(path) if match(r)]


def test_text_in_keys_and_values(examples: Path) -> None:
    for word in ("tombstone", "k90", "idem", "é"):
        needle = word.encode()
        expected = searched(examples, lambda r: needle in (r.key or b"") or needle in (r.value or b""))  # noqa: B023
        assert found(word, examples) == expected
    assert found("k90", examples, "--in", "key") == searched(examples, lambda r: b"k90" in (r.key or b""))


def test_ignore_case(examples: Path) -> None:
    expected = searched(examples, lambda r: b"tombstone" in (r.value or b"").lower())
    assert found("-i", "ToMbStOnE", examples, "--in", "value") == expected != []


def test_regular_expression(examples: Path) -> None:
    pattern = re.compile(rb"^k\d0$")
    expected = searched(examples, lambda r: bool(pattern.search(r.key or b"")))
    assert found("-E", r"^k\d0$", examples, "--in", "key") == expected != []
    upper = found("-E", "-i", "^K[0-9]0$", examples, "--in", "key")
    assert upper == expected


def test_hex(examples: Path) -> None:
    expected = searched(examples, lambda r: b"\xff\xfe" in (r.key or b"") or b"\xff\xfe" in (r.value or b""))
    assert found("--hex", "fffe", examples) == expected


def test_headers(examples: Path) -> None:
    def in_headers(needle: bytes) -> Callable[[Record], bool]:
        return lambda r: any(needle in name.encode() or needle in (value or b"") for name, value in r.headers)

    names = {name for r in package.read(examples) for name, _ in r.headers}
    values = {value for r in package.read(examples) for _, value in r.headers if value}
    word = min(names)
    assert found(word, examples, "--in", "headers") == searched(examples, in_headers(word.encode())) != []
    value = min(values)
    assert found("--hex", value.hex(), examples, "--in", "headers") == searched(examples, in_headers(value)) != []


def test_invert(examples: Path) -> None:
    assert found("-v", "e", examples, "--in", "value") == searched(examples, lambda r: b"e" not in (r.value or b""))


def test_counts_and_names(examples: Path) -> None:
    expected: dict[str, int] = {}
    for record in package.read(examples):
        name = f"{record.topic}-{record.partition}"
        expected[name] = expected.get(name, 0) + (b"tombstone" in (record.value or b""))
    lines = pylogseg("grep", "-c", "tombstone", examples, "--in", "value").text.splitlines()
    assert dict(line.rsplit(":", 1) for line in lines) == {name: str(count) for name, count in expected.items()}
    names = pylogseg("grep", "-l", "tombstone", examples, "--in", "value").text.splitlines()
    assert names == [name for name, count in expected.items() if count]
    assert pylogseg("grep", "-c", "tombstone", examples, "mixed").text == "300\n"


def test_exit_codes(examples: Path) -> None:
    assert pylogseg("grep", "tombstone", examples).code == 0
    assert pylogseg("grep", "no such thing", examples).code == 1
    assert pylogseg("grep", "-c", "no such thing", examples).code == 1
    assert pylogseg("grep", "x", examples, "nosuch").code == 2
    assert pylogseg("grep", "-E", "--hex", "x", examples).code == 2


@pytest.mark.parametrize("jobs", [1, 3])
def test_limit_gives_the_first(jobs: int, examples: Path) -> None:
    whole = found("tombstone", examples)
    assert found("tombstone", examples, "--limit", 17, "--jobs", jobs) == whole[:17]


@pytest.mark.parametrize("jobs", [1, 2, 8])
def test_order_does_not_depend_on_threads(jobs: int, examples: Path) -> None:
    done = pylogseg("grep", "-v", "zzz", examples, "--jobs", jobs)
    assert done.out == pylogseg("cat", examples).out


def test_ranges_cut_segments(examples: Path) -> None:
    whole = found("", examples, "codec-none")
    assert found("", examples, "codec-none", "--offset", "100:400") == [hit for hit in whole if 100 <= hit[2] < 400]
    committed = found("", examples, "txn-a-0", "--isolation", "read_committed")
    assert [offset for _, _, offset in committed] == [
        r.offset for r in package.read(examples, "txn-a-0", isolation="read_committed")
    ]


def test_output_is_that_of_cat(examples: Path) -> None:
    done = pylogseg("grep", "k90", examples, "codec-zstd", "--in", "key", "--csv", "--fields", "offset,key")
    assert done.text == "offset,key\n100,k90\n"
    done = pylogseg("grep", "k90", examples, "codec-zstd", "--in", "key", "-f", r"%o\n")
    assert done.text == "100\n"


def test_an_error_comes_from_a_thread(examples: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(grep_module._Search, "_search", fail)
    with pytest.raises(ZeroDivisionError):
        pylogseg("grep", "x", examples)


def test_lines_are_json(examples: Path) -> None:
    for line in pylogseg("grep", "-v", "zzz", examples, "codec-none").out.splitlines():
        json.loads(line)
