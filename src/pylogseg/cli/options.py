"""The options of a question in the shell, made of their declarations: `Selection`, `Reading`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import Field
from typing import Any, TypeVar, cast

import click

from pylogseg.cli import common
from pylogseg.reading.offset_range import parse_offsets
from pylogseg.reading.options import Option, options_of
from pylogseg.reading.selection import Selection
from pylogseg.reading.state import Reading

F = TypeVar("F", bound=Callable[..., Any])

_PARSERS = {"size": common.parse_size, "moment": common.parse_moment, "offsets": parse_offsets}
_METAVARS = {"size": "SIZE"}


def declared_option(field: Field[Any], declared: Option, text: str = "", default: Any = None) -> Callable[[F], F]:
    """Return a decorator that adds a declared option; `text` replaces ``{}`` in its help.

    `default` is that of the command, if it has another one.
    """
    flags = declared.flags or (f"--{field.name.replace('_', '-')}",)
    how: dict[str, Any] = {"help": declared.help.format(text)}
    preset = field.default if declared.shell_default is None else declared.shell_default
    preset = preset if default is None else default
    if declared.words:
        how.update(type=click.Choice(declared.words), default=preset, show_default=True)
    elif declared.parse:
        how.update(
            metavar=declared.metavar or _METAVARS[declared.parse], callback=common.parse_with(_PARSERS[declared.parse])
        )
        if isinstance(preset, str):
            how.update(default=preset, show_default=True)
    elif "/" in flags[0]:
        how.update(default=preset)
    else:
        how.update(is_flag=True, flag_value=not preset, default=preset)
    return click.option(field.name, *flags, **how)


def question_option(name: str, text: str = "", default: Any = None) -> Callable[[F], F]:
    """Return a decorator for one option of `Selection` or `Reading`: a parameter of its name; see `declared_option`."""
    return declared_option(*(options_of(Selection) | options_of(Reading))[name], text, default)


def decompressed_option(consequence: str = "counts as damaged") -> Callable[[F], F]:
    """Return a decorator that adds ``--max-decompressed-bytes``: parameter ``max_decompressed_bytes``."""
    return question_option("max_decompressed_bytes", consequence)


def time_options(text: str = "From this time on") -> Callable[[F], F]:
    """Return a decorator that adds ``--since`` and ``--until``; help begins with a text."""
    return lambda function: common.add_all(function, [question_option("since", text), question_option("until")])


def reading_options(*names: str, text: str = "counts as damaged", **defaults: Any) -> Callable[[F], F]:
    """Return a decorator that adds options of `Reading`: a parameter ``reading``; `defaults` are the command's.

    `text` says what becomes of a batch that decompresses to too much.
    """

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def call(**given: Any) -> Any:
            return function(reading=Reading(**{name: given.pop(name) for name in names}), **given)

        add = [question_option(name, text, defaults.get(name)) for name in names]
        return common.add_all(cast("F", call), add)

    return decorate
