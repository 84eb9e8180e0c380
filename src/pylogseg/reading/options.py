"""Options of a question: each is declared once, beside its field, for keywords, the shell and Spark."""

from __future__ import annotations

from dataclasses import Field, field, fields
from typing import Any, NamedTuple

from pylogseg.errors import RequestError
from pylogseg.format.words import check_word

_KEY = "option"


class Option(NamedTuple):
    """The declaration of an option; its field has its name, type and default."""

    help: str  #: For the shell; ``{}`` stands for what a command says of itself.
    words: tuple[str, ...] = ()  #: The words that it may be; any value of its type, if there are none.
    least: int | None = None  #: The smallest number.
    flags: tuple[str, ...] = ()  #: Names in the shell, if it is not ``--`` and its own.
    metavar: str | None = None
    parse: str = (
        ""  #: The form of a value in the shell: a ``size``, a ``moment`` or ``offsets``; else that of its type.
    )
    shell_default: Any = None  #: In the shell, if another than in Python.
    spark: str = ""  #: Its name as an option of Spark's source.

    def check(self, name: str, value: Any) -> None:
        """Raise RequestError for a value that the option cannot have."""
        if self.words:
            check_word(name, value, self.words)
        elif self.least is not None and value is not None and value < self.least:
            raise RequestError(f"{name} must be at least {self.least}, not {value}")


def option(default: Any, help: str, **more: Any) -> Any:
    """Return a field of a dataclass with the declaration of its option."""
    return field(default=default, metadata={_KEY: Option(help, **more)})


def options_of(kind: Any) -> dict[str, tuple[Field[Any], Option]]:
    """Return the options that a dataclass declares, by name; fields without a declaration are none."""
    return {f.name: (f, f.metadata[_KEY]) for f in fields(kind) if _KEY in f.metadata}


def check_options(value: Any) -> None:
    """Raise RequestError for the first option of a dataclass that has a value which it cannot have."""
    for name, (_, declared) in options_of(value).items():
        declared.check(name, getattr(value, name))
