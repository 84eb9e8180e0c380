"""Tests of format/outcome.py. `--json` of every command that has it: each line of stdout is a JSON
object of its own.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from helpers.internal_logs import write_log
from helpers.shell import pylogseg

from pylogseg.cli import shell

#: Arguments by command: D is a log directory, C a copy of it, A an archive of it, O a path that is free.
LINES = {
    "archive": ["D A", "points A", "show A", "prune A --keep-last 1"],
    "audit": ["D txn-a T"],
    "cluster": ["topics D"],
    "compact": ["C --force"],
    "copy": ["D O"],
    "delete-records": ["C txn-a --offset 3 --force"],
    "diff": ["D C"],
    "drill": ["A codec-zstd"],
    "dump": ["D/txn-a-0/00000000000000000000.log"],
    "export": ["D txn-a --out O"],
    "groups": ["D", "D --offsets", "D --lag", "D --members", "D --map-to C"],
    "lake": ["D codec-zstd delta:O --to-end"],
    "ls": ["D", "D -l", "D --by topic", "D --all"],
    "merge": ["D --into O"],
    "quorum": ["D", "rescue D --into O --voter 1@h:9093 --force"],
    "move": ["C O codec-zstd"],
    "recode": ["C codec-zstd -z lz4"],
    "recover": ["C"],
    "redact": ["C codec-zstd --key k"],
    "reindex": ["C codec-zstd"],
    "repair": ["C codec-zstd"],
    "report": ["D codec-zstd"],
    "restore": ["D O codec-zstd"],
    "retain": ["C codec-zstd --bytes 1"],
    "schemas": ["S"],
    "stats": ["D", "D --by partition", "D --gaps", "D --top-keys 2 codec-zstd"],
    "transactions": ["D", "D --producers"],
    "truncate": ["C codec-zstd-0 --to 3"],
    "verify": ["D codec-zstd", "A"],
}
SCHEMA = (
    b'{"keytype":"SCHEMA","subject":"t-value","version":1,"magic":1}',
    b'{"subject":"t-value","version":1,"id":1,"schema":"\\"string\\"","deleted":false}',
)


def with_json(group: click.Group, context: click.Context) -> Iterator[str]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from ([name] if list(with_json(command, context)) else [])
        elif any("--json" in option.opts for option in command.params):
            yield name


def test_each_command_with_json_is_here() -> None:
    assert isinstance(shell, click.Group)
    assert sorted(with_json(shell, click.Context(shell))) == sorted(LINES)


@pytest.mark.parametrize(("command", "line"), [(name, line) for name, lines in LINES.items() for line in lines])
def test_each_line_is_an_object(
    command: str, line: str, examples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    words = {"D": str(examples), "C": str(tmp_path / "c"), "A": str(tmp_path / "a"), "O": str(tmp_path / "o")}
    words |= {"T": str(tmp_path / "t"), "S": str(tmp_path / "s")}
    write_log(tmp_path / "s" / "_schemas-0", [SCHEMA])
    if " C" in f" {line}":
        shutil.copytree(examples, words["C"])
    if command == "drill" or line.endswith("A") or "A --" in line:
        assert pylogseg("archive", examples, words["A"]).code in (0, 1)
    if command == "audit":
        assert pylogseg("lake", examples, "txn-a", f"delta:{words['T']}", "--to-end").code == 0
    if command in ("move", "restore"):
        (tmp_path / "o").mkdir()
    # The letters stand for places where they are a word, or a part of one that a slash or a colon ends.
    path = ["".join(words.get(part, part) for part in re.split("([/:])", word)) for word in line.split()]
    done = pylogseg(command, *path, "--json")
    assert done.rows, done.err
    assert all(isinstance(row, dict) for row in done.rows)
