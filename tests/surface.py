"""What a release keeps: public names, options, columns, JSON fields and exit codes, each as a line of `surface.txt`.

`python tests/surface.py` writes the file anew. A line that changes is a decision (docs/compatibility.md), never
an accident: `test_surface.py` compares.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from helpers.damaged_logs import change_byte
from helpers.public_names import shown_names
from helpers.shell import pylogseg

from pylogseg.cli import shell
from pylogseg.disk.columns import TABLES
from pylogseg.format.keywords import parameters_of
from pylogseg.reading.arrow.columns import schema

ROOT = Path(__file__).parents[1]
FILE = Path(__file__).with_name("surface.txt")

#: Commands with JSON, on a copy of the examples; the first line of each kind (`type`) is looked at.
JSON = (
    "ls data --json", "ls data txn-a-0 --segments --json", "cat data txn-a-0 --limit 1", "latest data txn-a-0",
    "stats data txn-a --json", "verify data --json", "groups data --json", "transactions data --json",
    "cluster data topics --json", "cluster data brokers --json", "dump data/txn-a-0/00000000000000000000.log --json",
    "diff data/txn-a-0 data/txn-b-0 --json", "report data --json", "export data txn-a --out out --json",
    "copy data/txn-a-0 copied --json", "compact data txn-a --dry-run --json",
    "retain data txn-a --before-offset 1 --dry-run --json", "truncate data txn-a-0 --to 100 --dry-run --json",
    "reindex data txn-a --dry-run --json", "recode data txn-a --compression zstd --dry-run --json",
    "redact data txn-a --key x --dry-run --json", "repair data txn-a --dry-run --json", "recover data --dry-run --json",
)  # fmt: skip
EXITS = (
    ("no damage", "verify data"),
    ("damage", "verify damaged"),
    ("records behind damage", "cat damaged --on-corrupt skip"),
    ("no such name", "cat data nowhere"),
    ("no such path", "ls nowhere/"),
    ("found", "grep committed data txn-a-0"),
    ("nothing found", "grep zzzz data txn-a-0"),
    ("the same", "diff data/txn-a-0 data/txn-a-0"),
    ("different", "diff data/txn-a-0 data/txn-b-0"),
    ("wrong usage", "cat data --nonsense"),
)


def surface() -> str:
    """Return all lines."""
    lines = [*_python(), *_shell(shell, "pylogseg"), *_columns(), *_outputs()]
    return "".join(f"{line}\n" for line in sorted(set(lines)))


def _python() -> Iterator[str]:
    for module, names in shown_names().items():
        there = importlib.import_module(module)
        for home, name in names:
            if f"{home}.{name}" == module:  # all that it defines
                own = [each for each in vars(there).values() if getattr(each, "__module__", "") == module]
                yield from (
                    line for each in own if each.__name__[0] != "_" for line in _of(f"{module}.{each.__name__}", each)
                )
            else:
                yield from _of(f"{module}.{name}", getattr(there, name))


def _of(name: str, value: Any) -> Iterator[str]:
    if inspect.isclass(value):
        names = {field.name for field in dataclasses.fields(value)} if dataclasses.is_dataclass(value) else set()
        names |= {
            each
            for each in dir(value)
            # What Python itself gives differs by its version.
            if each[0] != "_" and not any(hasattr(kind, each) for kind in (BaseException, tuple, int))
        }
        yield f"python class {name}"
        for each in names:
            found = inspect.getattr_static(value, each, None)
            shown = f"({_parameters(getattr(value, each))})" if inspect.isroutine(found) else ""
            yield f"python {name}.{each}{shown}"
    else:
        yield f"python {name}({_parameters(value)})"


def _parameters(function: Any) -> str:
    """Return the names that a caller may write; options have a `=`."""
    try:
        found = parameters_of(function)
    except ValueError:
        return "..."
    marks = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    return ", ".join(
        marks.get(each.kind, "") + each.name + ("=" if each.default is not inspect.Parameter.empty else "")
        for each in found
        if each.name not in ("self", "cls")
    )


def _shell(command: click.Command, name: str) -> Iterator[str]:
    if isinstance(command, click.Group):
        with click.Context(command) as context:
            for each in command.list_commands(context):
                found = command.get_command(context, each)
                assert found is not None
                yield from _shell(found, f"{name} {each}")
    for option in command.params:
        if isinstance(option, click.Option) and not option.hidden:
            choices = f" {{{','.join(map(str, option.type.choices))}}}" if isinstance(option.type, click.Choice) else ""
            yield f"shell {name} {' '.join([*option.opts, *option.secondary_opts])}{choices}"


def _columns() -> Iterator[str]:
    for field in schema():
        yield f"column records {field.name} {field.type}"
    for table, columns in TABLES.items():
        for column in columns:
            yield f"column {table} {column.name} {column.type}"


def _outputs() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        shutil.copytree(ROOT / "examples" / "data", folder / "data")
        shutil.copytree(folder / "data" / "codec-none-1", folder / "damaged" / "codec-none-1")
        (log,) = (folder / "damaged").glob("*/00000000000000000000.log")
        change_byte(log)
        for meaning, words in EXITS:
            yield f"exit {_run(words, folder)[0]} {meaning}: {words.split()[0]}"
        for words in JSON:
            code, out = _run(words, folder)
            assert code in (0, 1), (words, code)
            for line in out.splitlines():
                row = json.loads(line)
                kind = f" {row['type']}" if isinstance(row.get("type"), str) else ""
                for field in row:
                    yield f"json {' '.join(words.split()[:1])}{kind} {field}"


def _run(words: str, folder: Path) -> tuple[int, str]:
    before = os.getcwd()
    os.chdir(folder)
    try:
        done = pylogseg(*words.split())
    finally:
        os.chdir(before)
    return done.code, done.out.decode()


if __name__ == "__main__":
    FILE.write_text(surface(), encoding="utf-8")
