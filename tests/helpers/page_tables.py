"""Tables of pages that are made from the code: its facts, each with the comment (`#:`) above or behind it."""

from __future__ import annotations

import ast
import dataclasses
import functools
import io
import tokenize
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from pylogseg import config
from pylogseg.config import LogConfig, kafka_name
from pylogseg.format import layout
from pylogseg.format.layout import STRUCTURES
from pylogseg.inspect.verify import findings
from pylogseg.owned.manager import settings
from pylogseg.owned.manager.settings import BrokerSettings
from pylogseg.spark import options, write_options

#: Values of settings that mean no limit.
_NO_LIMIT = (2**63 - 1, float("inf"))


class Item(NamedTuple):
    """A field of a class, or an item of a dictionary, a tuple or a call, with its comment."""

    node: ast.expr
    meaning: str


def items(module: ModuleType, name: str) -> Iterator[Item]:
    """Yield the fields of a class of a module, or the items of the collection or call that a name stands for."""
    assert module.__file__ is not None
    source = Path(module.__file__).read_text(encoding="utf-8")
    lines = source.splitlines()
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    comments = {token.start[0]: token.string[2:].strip() for token in tokens if token.string.startswith("#:")}
    before = 0
    for node, last in _nodes(ast.parse(source), name):
        above, line = [], node.lineno - 1
        while before < line and line in comments and lines[line - 1].lstrip().startswith("#:"):
            above.insert(0, comments[line])
            line -= 1
        before = last
        yield Item(node, " ".join(above) or comments.get(last, ""))


def _nodes(tree: ast.Module, name: str) -> Iterator[tuple[ast.expr, int]]:
    """Yield each item with its last line."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            fields = [field for field in node.body if isinstance(field, ast.AnnAssign)]
            yield from ((field.target, field.end_lineno or 0) for field in fields)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)) and name in map(ast.unparse, _targets(node)):
            value = node.value
            if isinstance(value, ast.Dict):
                pairs = zip(value.keys, value.values, strict=True)
                yield from ((key, item.end_lineno or 0) for key, item in pairs if key is not None)
            elif isinstance(value, (ast.Tuple, ast.List)):
                yield from ((item, item.end_lineno or 0) for item in value.elts)
            elif isinstance(value, ast.Call):
                yield from ((item, item.end_lineno or 0) for item in value.args)


def _targets(node: ast.Assign | ast.AnnAssign) -> list[ast.expr]:
    return node.targets if isinstance(node, ast.Assign) else [node.target]


def groups(module: ModuleType, name: str) -> Iterator[tuple[list[str], str]]:
    """Yield names with the comment of the first of them: an item without a comment belongs to the one before it."""
    number, rows = 0, []
    for item in items(module, name):
        number += bool(item.meaning)
        rows.append((number, eval(ast.unparse(item.node), vars(module)), item.meaning))
    for _, group in groupby(rows, key=lambda row: row[0]):
        _, names, meanings = zip(*group, strict=True)
        yield [*names], meanings[0]


def _markdown(head: str, rows: Iterable[tuple[object, ...]]) -> str:
    titles = head.split(" | ")
    marks = "|".join("---:" if title == "offset" else "---" for title in titles)
    lines = [titles, *([str(cell) for cell in row] for row in rows)]
    table = "".join(f"| {' | '.join(line)} |\n".replace("|  |", "| |") for line in lines)
    return table.replace("\n", f"\n|{marks}|\n", 1)


def _settings(module: ModuleType, settings: type) -> str:
    fields = {field.name: field for field in dataclasses.fields(settings)}
    rows = ((ast.unparse(item.node), item.meaning) for item in items(module, settings.__name__))
    return _markdown(
        "setting | default | meaning",
        ((f"`{kafka_name(name)}`", _default(fields[name].default), meaning) for name, meaning in rows),
    )


def _default(value: Any) -> str:
    if value in _NO_LIMIT:
        return "no limit"
    if value in (None, ()) or value is dataclasses.MISSING:
        return ""
    text = ",".join(value) if isinstance(value, tuple) else str(value)
    return f"`{text.lower() if isinstance(value, bool) else text}`"


def _named(head: str, rows: Iterable[tuple[list[str], str]]) -> str:
    return _markdown(head, ((", ".join(f"`{name}`" for name in names), meaning) for names, meaning in rows))


def _findings(*prefixes: str) -> str:
    """The kinds of findings that begin so; without prefixes, all kinds of a log directory."""
    others = () if prefixes else ("tier-", "archive-")
    rows = groups(findings, "REMEDIES")
    return _named(
        "kind | meaning",
        (row for row in rows if (row[0][0].startswith(prefixes) if prefixes else not row[0][0].startswith(others))),
    )


def _structure(name: str) -> str:
    (constant,) = (key for key, value in vars(layout).items() if getattr(value, "name", None) == name)
    meanings = [item.meaning for item in items(layout, constant)][1:]  # behind the name
    structure = next(each for each in STRUCTURES if each.name == name)
    rows = ((*field, meaning) for field, meaning in zip(structure, meanings, strict=True))
    return _markdown("offset | type | field | meaning", rows)


def _jobs() -> str:
    """The jobs of Spark, each with the first sentence of its docstring."""
    path = Path(options.__file__).with_name("jobs.py")
    functions = (node for node in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(node, ast.FunctionDef))
    texts = sorted((node.name, ast.get_docstring(node) or "") for node in functions if node.name[0] != "_")
    rows = ((f"`{name}`", " ".join(text.split("\n\n")[0].split()).replace("``", "`")) for name, text in texts)
    return _markdown("job | what it does", rows)


#: The tables by the names that they have in pages: ``<!-- table of NAME -->``.
TABLES: dict[str, Callable[[], str]] = {
    "settings of a log": lambda: _settings(config, LogConfig),
    "settings of many logs": lambda: _settings(settings, BrokerSettings),
    "findings": _findings,
    "findings of tiers": lambda: _findings("tier-"),
    "findings of archives": lambda: _findings("archive-"),
    "options of a read": lambda: _named("option | meaning", groups(options, "_NAMES")),
    "options of a write": lambda: _named("option | meaning", groups(write_options, "_OPTIONS")),
    "jobs": _jobs,
    **{structure.name: functools.partial(_structure, structure.name) for structure in STRUCTURES},
}
