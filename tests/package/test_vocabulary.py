"""Tests of format/keywords.py. One word for each thing, and for each word one type, in all that users call: Python, the
command line, Spark.
"""

from __future__ import annotations

import ast
import importlib
import typing
from collections.abc import Iterator

import click
import pytest
from helpers.public_names import Definition, definitions, public

from pylogseg.cli import shell
from pylogseg.spark.options import _NAMES

#: What an argument of this name may be. One partition is named by one topic and one number; a choice takes several.
TYPES: dict[str, set[str]] = {
    "topic": {"str", "str | None", "str | Sequence[str] | None"},
    "partition": {"int", "int | None", "int | Sequence[int] | None"},
    "filter": {"Any", "pc.Expression | None", "Callable[[Any], Any] | None"},
    "jobs": {"int | None"},
    "storage": {"Storage", "Storage | None"},
    "storage_options": {"Mapping[str, Any] | None"},
    "decoding": {"str | Sequence[str] | Decoding", "str | Sequence[str] | Decoding | None"},
}
#: The words of an argument; where it occurs, some of them.
WORDS: dict[str, set[str]] = {
    "on_corrupt": {"raise", "stop", "skip"},
    "on_undecoded": {"raise", "null", "skip", "raw"},
}
#: What the arguments of a choice become, and what servers call with an object.
OTHERS = {"pylogseg.disk.choice.PartitionChoice", "pylogseg.server.catalog.Catalog.find"}
#: Fields that have what was made of an argument.
MADE = {("pylogseg.offline.options.Options", "jobs")}
#: Words that another one has replaced.
GONE = {"names", "where", "threads", "decode", "on_error", "out_storage", "target_storage"}


def arguments() -> Iterator[tuple[str, str, ast.expr | None]]:
    """Each argument of what is public: who has it, its name, its type. Fields of options are arguments, too."""
    keywords = {path: node for path, node in definitions() if isinstance(node, ast.ClassDef) and node.keywords}
    for path, node in {**public(), **keywords}.items():  # a class with ``total=False`` declares keywords
        if path in OTHERS:
            continue
        for name, annotation in _named(node):
            if (path, name) not in MADE:
                yield path, name, annotation


def _named(node: Definition) -> list[tuple[str, ast.expr | None]]:
    if isinstance(node, ast.ClassDef):
        fields = (each for each in node.body if isinstance(each, ast.AnnAssign))
        return [(ast.unparse(each.target), each.annotation) for each in fields]
    given = node.args
    named = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
    return [(each.arg, each.annotation) for each in named if each is not None]


def words_of(path: str, annotation: ast.expr) -> set[str]:
    """The words of a literal type, or of a name for one."""
    module = path
    while True:
        try:
            space = vars(importlib.import_module(module))
            break
        except ImportError:
            module = module.rpartition(".")[0]
    text = ast.unparse(annotation).removesuffix(" | None")
    if text.isidentifier() and text not in space:  # imported for types only
        space = vars(importlib.import_module("pylogseg.values.decoding"))
    return set(typing.get_args(eval(text, {**space, "Literal": typing.Literal})))


@pytest.mark.spark
@pytest.mark.parametrize("name", [*TYPES, *WORDS])
def test_an_argument_is_the_same_everywhere(name: str) -> None:
    found = {path: annotation for path, each, annotation in arguments() if each == name}
    assert len(found) > 1, name
    for path, annotation in found.items():
        assert annotation is not None, path
        if name in TYPES:
            assert ast.unparse(annotation) in TYPES[name], path
        else:
            words = words_of(path, annotation)
            assert {"raise"} < words <= WORDS[name], path


def test_no_other_word_means_the_same() -> None:
    assert not [(path, name) for path, name, _ in arguments() if name in GONE]
    assert not GONE.intersection(_NAMES)


def test_the_command_line_has_the_same_words() -> None:
    with click.Context(shell) as context:
        commands = {name: shell.get_command(context, name) for name in shell.list_commands(context)}
    found: dict[str, list[str]] = {}
    for name, command in commands.items():
        assert command is not None
        for option in command.params:
            for each in option.opts:
                found.setdefault(each, []).append(name)
            if option.name in WORDS and isinstance(option.type, click.Choice):
                assert f"--{option.name.replace('_', '-')}" in option.opts, name
                assert {"raise"} < set(option.type.choices) <= WORDS[option.name], name
    assert len(found["--on-corrupt"]) > 5
    assert len(found["--on-undecoded"]) == 2
    assert found.keys().isdisjoint({"--decode", "--undecoded", "--topics"})
