"""Tests of cli/bar.py, cli/follow.py, cli/grep.py and cli/highlight.py. `pylogseg grep`: what is found, against a
search in plain Python.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.depth import diagonals
from helpers.forked import process
from helpers.shell import environment, expect, pylogseg

import pylogseg as package
from pylogseg import Record
from pylogseg.cli import grep as grep_module

posix = pytest.mark.skipif(os.name != "posix", reason="signals, pipes and terminals of POSIX")


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
    assert found("-E", "-i", "^K[0-9]0$", examples, "--in", "key") == expected


def test_hex(examples: Path) -> None:
    expected = searched(examples, lambda r: b"\xff\xfe" in (r.key or b"") or b"\xff\xfe" in (r.value or b""))
    assert found("--hex", "fffe", examples) == expected


def test_headers(examples: Path) -> None:
    def in_headers(needle: bytes) -> Callable[[Record], bool]:
        return lambda r: any(needle in name.encode() or needle in (value or b"") for name, value in r.headers)

    names = {name for r in package.read(examples) for name, _ in r.headers}
    values = {value for r in package.read(examples) for _, value in r.headers if value}
    word = min(name for name in names if name)
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
    whole = found("", "--empty", examples, "codec-none")
    assert found("", "--empty", examples, "codec-none", "--offset", "100:400") == [
        hit for hit in whole if 100 <= hit[2] < 400
    ]
    committed = found("", "--empty", examples, "txn-a-0", "--isolation-level", "read_committed")
    assert [offset for _, _, offset in committed] == [
        r.offset for r in package.read(examples, "txn-a-0", isolation_level="read_committed")
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
    lines = pylogseg("grep", "-v", "zzz", examples, "codec-none").out.splitlines()
    rows = [json.loads(line) for line in lines]
    records = package.read(examples, "codec-none")
    assert [(row["partition"], row["offset"]) for row in rows] == [(r.partition, r.offset) for r in records] != []


def test_several_patterns(examples: Path) -> None:
    expected = searched(
        examples, lambda r: any(n in (r.key or b"") + b"|" + (r.value or b"") for n in (b"k90", b"idem"))
    )
    assert found("-e", "k90", "-e", "idem", examples) == expected != []
    assert found("-E", "-e", "k9[0]", "-e", "(?<=id)em", examples) == expected
    both = found("-v", "-e", "k90", "-e", "idem", examples)
    assert len(both) + len(expected) == len(list(package.read(examples)))


@pytest.mark.parametrize("count", [2, 300])
@pytest.mark.parametrize("ignore_case", [False, True])
def test_patterns_of_a_file(count: int, ignore_case: bool, examples: Path, tmp_path: Path) -> None:
    """Many are looked for together, and found as one after the other."""
    words = [*(f"K{number}" if ignore_case else f"k{number}" for number in range(90, 90 + count)), "é", "a.c|[", "{\\"]
    lines = tmp_path / "patterns"
    lines.write_bytes(b"\xef\xbb\xbf" + "\r\n".join(words).encode())
    needles = [word.lower().encode() if ignore_case else word.encode() for word in words]

    def has(payload: bytes | None) -> bool:
        held = (payload or b"").lower() if ignore_case else payload or b""
        return any(needle in held for needle in needles)

    expected = searched(examples, lambda r: has(r.key) or has(r.value))
    case = ["-i"] if ignore_case else []
    assert found("--file", lines, *case, examples) == expected != []
    whole = pylogseg("grep", "--file", lines, *case, examples, "-j", 1)
    for jobs in (2, 5):
        assert pylogseg("grep", "--file", lines, *case, examples, "-j", jobs) == whole
    assert found("--file", lines, *case, "-e", "idem", examples) == searched(
        examples, lambda r: has(r.key) or has(r.value) or b"idem" in (r.key or b"") + b"|" + (r.value or b"")
    )


def test_an_empty_pattern_must_be_meant(examples: Path, tmp_path: Path) -> None:
    lines = tmp_path / "patterns"
    lines.write_text("k90\n\n")
    for arguments in (["", examples], ["-e", "k90", "-e", "", examples], ["-E", "", examples], ["--hex", "", examples]):
        done = pylogseg("grep", *arguments)
        assert (done.code, done.out) == (2, b"")
        assert "the pattern is empty, and would match every record: allow it with --empty" in done.err
    expect(pylogseg("grep", "--file", lines, examples), 2, f"{lines}: line 2: the pattern is empty")
    assert found("--empty", "--file", lines, examples, "mixed") == found("--empty", "", examples, "mixed")
    lines.write_text("")
    done = pylogseg("grep", "--file", lines, examples)
    assert (done.code, done.err) == (2, f"pylogseg: {lines} has no pattern: write one per line\n")
    lines.write_text("k90\n[")
    assert f"{lines}: line 2: invalid regular expression '['" in pylogseg("grep", "-E", "--file", lines, examples).err


def test_a_path_is_wanted(examples: Path) -> None:
    for arguments in (["word"], ["-e", "word"]):
        expect(pylogseg("grep", *arguments), 2, "PATH")


def test_quiet_tells_by_its_code(examples: Path) -> None:
    assert pylogseg("grep", "-q", "tombstone", examples) == (0, b"", "")
    assert pylogseg("grep", "-q", "no such thing", examples) == (1, b"", "")
    for other in ("-c", "-l", "-n1"):
        assert pylogseg("grep", "-q", other, "x", examples).code == 2


RED, PLAIN = "\x1b[1;31m", "\x1b[0m"


def test_colour_in_text(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    folder.mkdir()
    records = [
        (1, b"key", b'a "key" of k\xc3\xa9y', [("key", b"no key"), ("k", None)]),
        (2, b"key", b"\xff key"),
        (3, None, b"base64:key"),
        (4, b"kkey key", b""),
        (5, "\ue0f4key".encode(), None),
    ]
    (folder / f"{0:020d}.log").write_bytes(package.encode(records))
    wish = ["key", folder, "--in", "key,value,headers", "--fields", "key,value,headers,keySize"]
    plain = pylogseg("grep", *wish, "--color", "never")
    done = pylogseg("grep", *wish, "--color", "always")
    lines = done.text.splitlines()
    red = f"{RED}key{PLAIN}"
    headers = f'"headers":[{{"key":"{red}","value":"no {red}"}},{{"key":"k","value":null}}]'
    assert lines[0] == f'{{"key":"{red}","value":"a \\"{red}\\" of kéy",{headers},"keySize":3}}'
    assert lines[1] == f'{{"key":"{red}","value":"base64:/yBrZXk=","headers":[],"keySize":3}}'
    assert '"value":"base64:YmFzZTY0OmtleQ=="' in lines[2]
    assert f'"key":"k{red} {red}"' in lines[3]
    assert done.text.replace(RED, "").replace(PLAIN, "") == plain.text
    assert pylogseg("grep", *wish) == plain  # a pipe
    done = pylogseg("grep", "-E", "k.y|[é]", folder, "--in", "value", "-f", r"%k:%s %K\n", "--color", "always")
    assert done.out.decode(errors="replace").splitlines()[0] == f'key:a "{red}" of k{RED}é{PLAIN}y 3'
    assert pylogseg("grep", "-v", "nothing", folder, "--color", "always") == pylogseg("cat", folder)


@pytest.mark.parametrize(
    ("options", "pattern"),
    diagonals(
        [
            (),
            ("--csv",),
            ("--value-as", "json"),
            ("--key-as", "hex"),
            ("-f", r"%t %k=%s %h %S\n"),
            ("-i",),
            ("-j", "3"),
        ],
        ["e", "-E (a+)+|[0-9]$", "-E (?i)K(?=[0-9])", "--hex c3", "-E x*"],
    ),
)
def test_colour_changes_nothing_else(options: tuple[str, ...], pattern: str, examples: Path) -> None:
    wish = [*pattern.rsplit(" ", 1), examples, "txn-b", "codec-none", "legacy", "--in", "key,value,headers", *options]
    plain, coloured = (pylogseg("grep", *wish, "--color", when) for when in ("never", "always"))
    assert coloured.code == plain.code == 0
    assert coloured.out.replace(RED.encode(), b"").replace(PLAIN.encode(), b"") == plain.out
    # Hex has no colour, and some patterns are in keys only.
    assert coloured.out.count(RED.encode()) == coloured.out.count(PLAIN.encode())
    assert RED.encode() in coloured.out or "hex" in options


def grow(source: Path, folder: Path, segments: int) -> None:
    for path in sorted(source.glob("*.log"))[:segments]:
        if not (folder / path.name).exists():  # a log that somebody reads is not written again
            shutil.copy(path, folder)


@posix
def test_follow_shows_what_comes(examples: Path, tmp_path: Path) -> None:
    source, folder = examples / "codec-none-1", tmp_path / "codec-none-1"
    folder.mkdir()
    grow(source, folder, 1)
    started = process(
        "grep", "-E", "^k[0-9]*0$", folder, "--in", "key", "--follow", "--fields", "offset", "--limit", 30
    )
    assert started.stdout is not None
    first = json.loads(started.stdout.readline())["offset"]
    grow(source, folder, 3)
    out = [first, *(json.loads(line)["offset"] for line in started.stdout)]
    assert started.wait(60) == 0
    expected = searched(source, lambda r: re.match(rb"k\d*0$", r.key or b"") is not None)
    assert out == [offset for _, _, offset in expected][:30]
    assert started.stderr is not None
    assert started.stderr.read() == b""
    started.stdout.close()
    started.stderr.close()


@posix
def test_follow_ends_with_the_partition(examples: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(examples / "txn-b-0", tmp_path / "txn-b-0")
    started = process("grep", "committed", folder, "--follow", "--color", "always", "--csv", "--fields", "value")
    assert started.stdout is not None
    assert started.stdout.readline() == b"value\n"
    assert RED.encode() in started.stdout.readline()
    shutil.rmtree(folder)
    _, errors = started.communicate(timeout=60)
    assert started.returncode == 2
    assert b"no partition is left to follow" in errors
    assert pylogseg("grep", "x", examples, "--follow", "-c").code == 2
    assert "--follow has no end" in pylogseg("grep", "x", examples, "--follow", "--until", "now").err


def on_a_terminal(*arguments: object, **environ: str) -> tuple[int, bytes]:
    """A command whose output and messages go to one terminal: its exit code, and what the terminal gets."""
    import pty

    main, other = pty.openpty()
    started = process(*arguments, stdout=other, stderr=other, env={**environment(), "TERM": "xterm", **environ})
    os.close(other)
    shown = b""
    with contextlib.suppress(OSError):  # the end of a terminal
        while piece := os.read(main, 4096):
            shown += piece
    os.close(main)
    return started.wait(60), shown


@posix
@pytest.mark.parametrize(("command", "word"), [(("grep", "tombstone"), b"searching"), (("latest",), b"reading")])
def test_progress_shows_on_a_terminal(command: tuple[str, ...], word: bytes, examples: Path) -> None:
    name, *pattern = command
    code, shown = on_a_terminal(name, *pattern, examples, "codec-none", "--fields", "offset", NO_COLOR="1")
    assert code == 0
    assert word in shown
    plain = pylogseg(name, *pattern, examples, "codec-none", "--fields", "offset")
    # What is left when the bar is gone: lines that are whole.
    lines = [line for line in shown.replace(b"\r", b"").splitlines() if line.endswith(b"}")]
    assert [re.sub(rb"^.*\x1b\[[0-9?]*[A-Za-z]", b"", line) for line in lines] == plain.out.splitlines()


@posix
def test_colour_is_for_terminals(examples: Path) -> None:
    wish = ["grep", "k90", examples, "codec-none", "--in", "key", "--fields", "key"]
    assert f"{RED}k90{PLAIN}".encode() in on_a_terminal(*wish)[1]
    assert RED.encode() not in on_a_terminal(*wish, NO_COLOR="1")[1]
    assert RED.encode() not in on_a_terminal(*wish, "--color", "never")[1]
    assert b"searching" not in on_a_terminal(*wish, "-q")[1]


@posix
def test_the_bar_comes_back_below_whole_lines() -> None:
    """It is gone while something is printed, stands below it later, and never on the rest of a line."""
    import pty

    code = """
import sys
from pylogseg.cli import bar
bar._SILENCE_SECONDS = 0
with bar.Bar(100, "working") as shown:
    for text in ("one\\n", "two\\n", "three"):
        with shown.pause(sys.stdout, text.endswith("\\n")):
            sys.stdout.write(text)
            sys.stdout.flush()
        shown(10)
"""
    main, other = pty.openpty()
    variables = {**environment(), "TERM": "xterm"}
    started = subprocess.Popen([sys.executable, "-c", code], stdout=other, stderr=other, env=variables)
    os.close(other)
    shown = b""
    with contextlib.suppress(OSError):
        while piece := os.read(main, 4096):
            shown += piece
    os.close(main)
    assert started.wait(60) == 0
    hidden, begun = b"\x1b[?25h", b"\x1b[?25l"  # the cursor comes back, the cursor goes: rich's first and last act
    parts = re.split(rb"one|two|three", shown)
    assert [part.count(begun) for part in parts] == [1, 1, 1, 0]
    assert [part.count(hidden) for part in parts] == [1, 1, 1, 0]
    assert parts[3] == b""


def test_pattern_behind_the_path(examples: Path) -> None:
    expect(pylogseg("grep", examples, "order"), 2, f"{examples} is a folder: PATTERN comes before PATH")
    assert pylogseg("grep", "order", examples, "-q").code in (0, 1)
