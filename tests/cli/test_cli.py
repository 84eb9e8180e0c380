"""Tests of __main__.py, _version.py, cli/bar.py, cli/common.py, cli/options.py, cli/query.py, errors.py and
reading/offset_range.py. The shell as a whole: help, arguments, units, errors and their exit codes, pipes and signals.
"""

from __future__ import annotations

import datetime
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from helpers import forked
from helpers.damaged_logs import change_byte
from helpers.depth import some_of
from helpers.shell import command, damaged, environment, expect, process, pylogseg

from pylogseg._version import __version__
from pylogseg.cli import _COMMANDS, LazyCommands, common
from pylogseg.cli import shell as group
from pylogseg.cli.query import parse_bytes
from pylogseg.errors import RequestError
from pylogseg.format.moments import time_text
from pylogseg.reading.offset_range import OffsetRange, parse_offsets

posix = pytest.mark.skipif(os.name != "posix", reason="signals and pipes of POSIX")


def test_help_names_every_command() -> None:
    done = expect(pylogseg("--help"), 0)
    assert all(name in done.text for name in _COMMANDS)


@pytest.mark.parametrize("name", [name for name in _COMMANDS if name not in ("dump", "verify")])
def test_command_help_has_examples(name: str) -> None:
    expect(pylogseg(name, "--help"), 0, out=[f"pylogseg {name}", "Examples"])


@pytest.mark.parametrize("name", _COMMANDS)
def test_command_is_the_one_named(name: str) -> None:
    assert isinstance(group, LazyCommands)
    loaded = group.get_command(None, name)  # type: ignore[arg-type]
    assert loaded is not None
    assert loaded.name == name


def test_help_loads_no_command() -> None:
    code = (
        "import sys\nfrom pylogseg.cli import shell\n"
        "try: shell(['--help'])\nexcept SystemExit: pass\n"
        "print([name for name in ('numpy', 'rich', 'pyarrow', 'pylogseg.disk.disk') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(("name", "heavy"), [("cat", "rich pyarrow"), ("ls", "rich pyarrow numpy")])
def test_a_command_in_a_pipe_loads_little(name: str, heavy: str, examples: Path) -> None:
    code = (
        "import sys\nfrom pylogseg.cli import shell\n"
        f"try: shell(['{name}', {str(examples)!r}, 'txn-b-0'])\nexcept SystemExit: pass\n"
        f"print([name for name in {heavy.split()!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_sql_loads_of_other_packages_what_it_needs(examples: Path) -> None:
    """Stores and formats of pyarrow that files of logs have nothing to do with, and docstrings, take long to load."""
    pytest.importorskip("duckdb")
    spared = ("pandas", "pydoc", "pyarrow._dataset_parquet", "pyarrow._s3fs", "pyarrow.vendored.docscrape")
    query = "select count(*) as n from records where value is null"
    code = (
        "import sys\nfrom pylogseg.cli import shell\n"
        f"try: shell(['sql', {str(examples)!r}, 'txn-b-0', {query!r}])\nexcept SystemExit: pass\n"
        f"print([name for name in {spared} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["n", "0", "[]"]


def test_unknown_command() -> None:
    expect(pylogseg("bite"), 2, "bite")


# ---- paths and names ----


def test_paths_and_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs2").mkdir()
    monkeypatch.chdir(tmp_path)
    assert common.split_arguments(["logs", "orders-3", "pay*"]) == (["logs"], ["orders-3", "pay*"], [])
    assert common.split_arguments(["log*", "s3://bucket/x", "orders"]) == (["log*", "s3://bucket/x"], ["orders"], [])
    assert common.split_arguments(["logs", "logs2", "./logs2", "x"]) == (["logs", "./logs2"], ["x"], ["logs2"])
    assert common.split_arguments([".", "logs", ".."]) == ([".", ".."], [], ["logs"])
    with pytest.raises(RequestError, match=r"no/where: no such file or folder"):
        common.split_arguments(["logs", "no/where"])
    with pytest.raises(RequestError, match=r"no path to read: there is no file or folder orders here"):
        common.split_arguments(["orders"])


def test_topic_and_partition_options(examples: Path) -> None:
    by_name = pylogseg("cat", examples, "txn-a-1")
    by_option = pylogseg("cat", examples, "--topic", "txn-a", "--partition", 1)
    assert by_name.out == by_option.out != b""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("cat", "{data}", "nosuch"), "no topic or partition 'nosuch' here; there are: "),
        (("cat", "{data}/nosuch"), "no such file or folder"),
        (("cat", "nosuch"), "no path to read: there is no file or folder nosuch"),
        (("cat", "{data}", "-p", "77"), "no partition 77"),
        (("ls", "{data}/.."), "no Kafka log directory"),
        (("cat", "{data}", "--fields", "offset,colour"), "unknown field 'colour'"),
        (("cat", "{data}", "-f", "%z"), "unknown field %z"),
        (("cat", "{data}", "-f", "%k", "--csv"), "--format cannot be combined"),
        (("cat", "{data}", "--follow", "--until", "1h"), "--follow has no end"),
        (("grep", "-E", "(", "{data}"), "invalid regular expression"),
        (("grep", "--hex", "xy", "{data}"), "invalid hex 'xy'"),
        (("grep", "x", "{data}", "--in", "tail"), "cannot search in 'tail'"),
        (("cat", "{data}", "--max-bytes-per-second", "0"), "max_bytes_per_second must be above 0"),
    ],
)
def test_wrong_requests_are_one_line(arguments: tuple[str, ...], words: str, tmp_path: Path, examples: Path) -> None:
    (tmp_path / "empty").mkdir()
    data = tmp_path / "empty" if ".." in " ".join(arguments) else examples
    done = expect(pylogseg(*(argument.format(data=data) for argument in arguments)), 2)
    assert done.out == b""
    assert done.err.count("\n") == 1
    assert done.err.startswith("pylogseg: ")
    assert words in done.err


@pytest.mark.parametrize(
    "arguments",
    [("--offset", "x"), ("--since", "yesterday"), ("--since", "2026-01-01T00:00:00"), ("--max-bytes-per-second", "5X")],
)
def test_malformed_options_are_wrong_usage(arguments: tuple[str, str], examples: Path) -> None:
    expect(pylogseg("cat", examples, *arguments), 2, arguments[0], arguments[1])


# ---- units ----


def test_sizes() -> None:
    cases = {"1": 1, "50M": 50_000_000, "2k": 2000, "2KiB": 2048, "1.5Gi": 3 << 29, "3GB": 3_000_000_000, "7b": 7}
    assert {text: common.parse_size(text) for text in cases} == cases
    for text in ("", "M", "5i", "-1", "1e3", "5 parsecs"):
        with pytest.raises(RequestError, match="invalid size"):
            common.parse_size(text)


def test_moments() -> None:
    assert common.parse_moment("1700000000000") == 1_700_000_000_000
    assert common.parse_moment("2023-11-14T22:13:20Z") == 1_700_000_000_000
    assert common.parse_moment("2023-11-15T00:13:20.500+02:00") == 1_700_000_000_500
    for text, ago in (("2h", 7_200_000), ("30m", 1_800_000), ("7d", 604_800_000), ("1.5s", 1500)):
        assert abs(time.time() * 1000 - ago - common.parse_moment(text)) < 10_000
    for text in ("", "soon", "2y", "2023-13-01T00:00Z"):
        with pytest.raises(RequestError, match="invalid time"):
            common.parse_moment(text)
    with pytest.raises(RequestError, match="has no time zone"):
        common.parse_moment("2023-11-14 22:13:20")


@pytest.mark.parametrize("given", ["100000000", "1700000040", "99999999999"])
def test_seconds_for_milliseconds_are_noticed(examples: Path, given: str) -> None:
    """In whatever takes a time; what no one means as seconds is passed by."""
    for name in ("cat", "stats", "grep"):
        arguments = [name, *(["x"] if name == "grep" else [])]
        done = pylogseg(*arguments, examples, "codec-none", "--since", given)
        assert f"note: {given} is milliseconds, 197" in done.err
        assert f"if seconds are meant, write {given}000, " in done.err
    for plain in ("99999999", "0", "100000000000", "1700000000000", str(2**63 - 1)):
        assert "note" not in pylogseg("cat", examples, "codec-none", "--since", plain).err


@pytest.mark.parametrize(
    ("given", "unit"), [("1700000000030000", "micro"), ("1700000000030000000", "nano"), ("9999999999999999999", "nano")]
)
def test_smaller_units_for_milliseconds_are_noticed(examples: Path, given: str, unit: str) -> None:
    done = pylogseg("cat", examples, "codec-none", "--since", given)
    assert f"note: {given} is milliseconds, after the year 9999; if {unit}seconds are meant, write " in done.err


def test_time_text() -> None:
    assert time_text(1_700_000_000_123) == "2023-11-14T22:13:20.123Z"
    assert time_text(-1) is None
    assert time_text(2**62) == f"{2**62} ms"
    latest = datetime.datetime(9999, 12, 31, tzinfo=datetime.timezone.utc).timestamp() * 1000
    assert str(time_text(int(latest))).startswith("9999-12-31")


def test_offset_ranges() -> None:
    cases = {
        "5": OffsetRange(5),
        "5:": OffsetRange(5),
        "5:9": OffsetRange(5, 9),
        ":9": OffsetRange(None, 9),
        "-5:": OffsetRange(-5),
        "-5:-2": OffsetRange(-5, -2),
        "7:+3": OffsetRange(7, None, 3),
        ":": OffsetRange(),
    }
    assert {text: parse_offsets(text) for text in cases} == cases
    for text in ("", "a", "1:2:3", "1-2", ":+3"):
        with pytest.raises(RequestError, match="invalid offset range"):
            parse_offsets(text)


def test_bytes_of() -> None:
    assert parse_bytes("00fF", "hex") == b"\x00\xff"
    assert parse_bytes("AP8=", "base64") == b"\x00\xff"
    assert parse_bytes("\udcff", "text") == b"\xff"
    with pytest.raises(RequestError, match="invalid base64"):
        parse_bytes("AP8", "base64")


# ---- damage ----


@pytest.fixture(scope="module")
def broken(examples: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A partition with a bad CRC in its second segment."""
    folder = tmp_path_factory.mktemp("broken") / "codec-none-1"
    names = sorted(path.name for path in (examples / "codec-none-1").glob("*.log"))
    return damaged(examples / "codec-none-1", folder, names[1], 100)


def test_damage_is_an_error_and_code_1(broken: Path) -> None:
    done = expect(pylogseg("cat", broken, "--fields", "offset"), 1)
    assert done.err.startswith("pylogseg: ")
    assert "CRC mismatch" in done.err
    assert "--on-corrupt skip" in done.err
    assert done.rows[0] == {"offset": 0}  # what lies in front of it is given


@pytest.mark.parametrize("choice", ["skip", "stop"])
def test_damage_that_is_passed_over_is_told(broken: Path, examples: Path, choice: str) -> None:
    whole = [row["offset"] for row in pylogseg("cat", examples, "codec-none-1", "--fields", "offset").rows]
    done = expect(pylogseg("cat", broken, "--fields", "offset", "--on-corrupt", choice), 1)
    assert done.err.startswith("pylogseg: damage: ")
    assert done.err.count("\n") == 1
    got = [row["offset"] for row in done.rows]
    lost = sorted(set(whole) - set(got))
    assert f"offsets {lost[0]} to " in done.err
    assert (got[-1] == whole[-1]) == (choice == "skip")


def test_damage_ends_grep_with_2(broken: Path) -> None:
    assert pylogseg("grep", "-c", "record", broken).code == 2
    assert pylogseg("grep", "-c", "record", broken, "--on-corrupt", "skip").code == 2


def test_damage_in_stats(broken: Path) -> None:
    done = expect(pylogseg("stats", broken, "--json"), 1)
    (row,) = done.rows
    assert row["missingOffsets"]["damage"] > 0
    assert row["missingOffsets"]["unexplained"] == 0
    assert row["records"] + row["missingOffsets"]["damage"] == 505
    assert len(row["gaps"]) == 1


@pytest.mark.parametrize("seed", some_of(range(12), 4))
def test_any_damage_ends_in_a_line_and_a_code(seed: int, examples: Path, tmp_path: Path) -> None:
    """Bytes of all files of a partition changed at random: no command fails in a way that it does not explain."""
    chance = random.Random(seed)
    source = chance.choice(["codec-none-1", "codec-lz4-1", "txn-a-0", "cmp-txn-0", "legacy-0", "mixed-0"])
    folder = shutil.copytree(examples / source, tmp_path / source)
    for path in folder.iterdir():
        data = bytearray(path.read_bytes())
        for _ in range(min(len(data), chance.randrange(4))):
            data[chance.randrange(len(data))] = chance.randrange(256)
        path.write_bytes(data[: chance.choice([len(data), len(data), len(data) // 2])])
    commands: list[tuple[object, ...]] = [("ls", folder), ("ls", "-l", folder), ("stats", folder)]
    for choice in ("raise", "stop", "skip"):
        commands += [
            (
                "cat",
                folder,
                "--on-corrupt",
                choice,
                "--isolation-level",
                chance.choice(["read_committed", "read_uncommitted"]),
            ),
            ("cat", folder, "--on-corrupt", choice, "--tail", 50, "--control"),
            ("cat", folder, "--on-corrupt", choice, "--since", 1_700_000_001_000),
            ("grep", "record", folder, "--on-corrupt", choice),
            ("export", folder, "--on-corrupt", choice, "-O", tmp_path / f"out-{choice}"),
        ]
    for words in commands:
        done = pylogseg(*words)
        assert done.code in (0, 1, 2), words
        assert all(line.startswith("pylogseg: ") for line in done.err.splitlines()), words
        if done.code and words[0] != "grep":
            assert done.err, words


# ---- pipes and signals ----


@posix
@pytest.mark.parametrize("name", [("cat",), ("grep", "-v", "zzz"), ("dump",)])
def test_a_closed_pipe_is_no_error(name: tuple[str, ...], examples: Path) -> None:
    # Many times the same directory: more than a pipe holds.
    started = forked.process(*name, *[examples] * 8)
    assert started.stdout is not None
    assert started.stderr is not None
    started.stdout.readline()
    started.stdout.close()
    assert started.wait(60) == 0
    assert started.stderr.read() == b""
    started.stderr.close()


@posix
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_write_in_part_is_no_success(examples: Path, tmp_path: Path, unbuffered: str) -> None:
    import resource

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))

    with open(tmp_path / "out", "wb") as out:
        done = subprocess.run(
            command("cat", examples, "txn-b-0"),
            env={**environment(), "PYTHONUNBUFFERED": unbuffered, "PYTHONDONTWRITEBYTECODE": "1"},
            stdout=out,
            stderr=subprocess.PIPE,
            preexec_fn=limit,
        )
    assert (tmp_path / "out").stat().st_size == 1000
    assert done.returncode == 2
    assert b"File too large" in done.stderr


@posix
@pytest.mark.parametrize("name", ["ls", "cat", "verify", "stats", "dump"])
def test_a_closed_stdout_is_an_error(examples: Path, name: str) -> None:
    words = [*command(name, examples / "txn-b-0")]
    done = subprocess.run(
        ["sh", "-c", '"$@" >&-', "sh", *words], env=environment(), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (2, "pylogseg: stdout is closed\n")


@posix
def test_help_on_a_full_disk_is_an_error() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full")
    with open("/dev/full", "wb") as full:
        done = subprocess.run(command("--help"), env=environment(), stdout=full, stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (2, b"pylogseg: stdout: cannot write: No space left on device\n")


PRINTS = {
    "cat": [], "grep": [], "grep -c": [], "latest": [], "dump": ["txn-a-0/00000000000000000000.log"], "ls": [],
    "ls --json": [], "verify": [], "stats": [], "cluster": [], "transactions": [], "sql": ["", "select 1"],
    "diff": ["codec-zstd-0", "timestamps-0"], "report --json": [], "recover --dry-run": ["txn-a-0"],
    "serve --help": None,
}  # fmt: skip


@posix
@pytest.mark.parametrize("name", PRINTS)
def test_a_full_disk_is_an_error(examples: Path, name: str) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full")
    places = PRINTS[name]
    first = ["a"] if name.startswith("grep") else []
    given = [] if places is None else [place if " " in place else examples / place for place in places or [""]]
    with open("/dev/full", "wb") as full:
        words = forked.command(*name.split(), *first, *given)
        done = subprocess.run(words, env=environment(), stdout=full, stderr=subprocess.PIPE, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == b"pylogseg: stdout: cannot write: No space left on device"


@posix
def test_interrupt_is_130(examples: Path) -> None:
    started = process("cat", examples / "txn-b-0", "--follow")
    assert started.stdout is not None
    assert started.stdout.readline().endswith(b"}\n")
    started.send_signal(signal.SIGINT)
    _, errors = started.communicate(timeout=60)
    assert started.returncode == 130
    assert errors == b""


#: Sends an interrupt in the lines of a compiled module that swallow exceptions, which Cython writes.
_SWALLOWED = """
import abc, os, signal, sys
register, sent = abc.ABCMeta.register, []

def interrupt(self, subclass):
    if subclass.__module__ == "_cyutility" and not sent:  # a module that all compiled ones share
        sent.append(subclass)
        os.kill(os.getpid(), signal.SIGINT)
    return register(self, subclass)

abc.ABCMeta.register = interrupt
from pylogseg.__main__ import main
try:
    main()
finally:
    assert sent
"""


@posix
def test_an_interrupt_while_the_command_is_imported(examples: Path) -> None:
    words = [sys.executable, "-c", _SWALLOWED, "verify", str(examples)]
    done = subprocess.run(words, env=environment(), capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


def all_of(terminal: int) -> bytes:
    """All that is shown on a terminal, until its other side is closed."""
    shown = b""
    while True:
        try:
            piece = os.read(terminal, 4096)
        except OSError:
            return shown
        if not piece:
            return shown
        shown += piece


@posix
def test_progress_shows_on_a_terminal_only(examples: Path, tmp_path: Path) -> None:
    import pty

    main, other = pty.openpty()
    with open(tmp_path / "out", "wb") as out:
        started = subprocess.Popen(
            command("cat", examples), stdout=out, stderr=other, env={**environment(), "TERM": "xterm"}
        )
        os.close(other)
        shown = all_of(main)
        assert started.wait(60) == 0
    os.close(main)
    assert b"reading" in shown
    assert pylogseg("cat", examples).err == ""
    assert (tmp_path / "out").read_bytes() == pylogseg("cat", examples).out


@posix
def test_a_dumb_terminal_cuts_no_names(examples: Path) -> None:
    import pty

    main, other = pty.openpty()
    started = subprocess.Popen(
        command("ls", examples, "txn-a"), stdout=other, stderr=other, env={**environment(), "TERM": "dumb"}
    )
    os.close(other)
    shown = all_of(main)
    assert started.wait(60) == 0
    os.close(main)
    assert [line.split()[0] for line in shown.decode().splitlines()] == ["TOPIC", "txn-a", "txn-a", "TOTAL"]


@posix
def test_verify_gives_its_verdict_to_whoever_reads_one_line(examples: Path, tmp_path: Path) -> None:
    folder = damaged(examples / "codec-none-1", tmp_path / "codec-none-1", "00000000000000000190.log", 100)
    for path, code in ((folder, 1), (examples, 0)):
        with forked.process("verify", path) as running:
            assert running.stdout is not None
            running.stdout.close()
            assert running.wait(60) == code
            assert running.stderr is not None
            assert running.stderr.read() == b""


def test_a_verdict_does_not_hang_on_the_reader(examples: Path, tmp_path: Path) -> None:
    """``| head -1`` reads no more than what comes first: `diff` and `stats` know what lies behind it."""
    disk = Path(shutil.copytree(examples, tmp_path / "kafka"))
    change_byte(min((disk / "txn-a-0").glob("*.log")), 100)
    for words in (("diff", disk, examples, "--on-corrupt", "skip"), ("stats", disk, "--by", "partition")):
        running = forked.process(*words)
        running.stdout.close()
        running.stderr.read()
        assert running.wait() == (2 if words[0] == "diff" else 1), words
    shutil.rmtree(disk / "txn-a-0")
    running = forked.process("diff", disk, examples)
    running.stdout.close()
    assert running.wait() == 1


def test_an_empty_argument(examples: Path) -> None:
    for arguments in ([""], [examples, ""]):
        done = pylogseg("ls", *arguments)
        assert (done.code, done.err) == (2, "pylogseg: an argument is empty: expected a path or a name\n")


def test_versions() -> None:
    """`--version` is one line for scripts; with `--verbose`, in any order, a line for each package."""
    assert pylogseg("--version").text == f"pylogseg {__version__}\n"
    for arguments in (("--version", "--verbose"), ("--verbose", "--version")):
        first, *rest = pylogseg(*arguments).text.splitlines()
        assert first == f"pylogseg {__version__}"
        assert f"numpy{'':13}{np.__version__}" in rest
    assert pylogseg("--verbose").code == 2
