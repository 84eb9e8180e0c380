"""Outcomes of commands: printed for people or as JSON, and turned into an exit code."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import click

from pylogseg.cli.common import complain, print_json, print_table, report_gaps, report_lacking, try_print
from pylogseg.cli.streams import say
from pylogseg.format.codec_error import in_shell
from pylogseg.format.outcome import Outcome

Row = dict[str, Any]
#: Headings, each with the name of a field or a function of the row.
Columns = Mapping[str, str | Callable[[Row], Any]]


def print_part(part: Any, as_json: bool) -> None:
    """Print an outcome, or a part of one: its row, or its lines; a closed pipe ends nothing."""
    if as_json:
        try_print(print_json, part)
    else:
        try_print(say, *map(in_shell, part.lines()))


def print_parts(outcome: Outcome, as_json: bool, takes: Callable[[Any], bool] = bool) -> None:
    """Print the parts that `takes` accepts, and report gaps of all."""
    for part in outcome.parts():
        report_gaps(getattr(part, "gaps", ()))
        if takes(part):
            print_part(part, as_json)


def print_outcome(outcome: Outcome, as_json: bool) -> None:
    """Report the warnings of an outcome on stderr, and print its row or lines."""
    for warning in outcome.warnings():
        complain(in_shell(warning))
    report_lacking(outcome.lacking)
    print_part(outcome, as_json)


def end_with_outcome(outcome: Outcome, as_json: bool, code: int = 0) -> None:
    """Report and print an outcome, and end the command with its exit code, or else `code`."""
    print_outcome(outcome, as_json)
    if outcome.exit_code or code:
        click.get_current_context().exit(outcome.exit_code or code)


def print_rows(rows: Sequence[Row], columns: Columns, as_json: bool, right: Iterable[str] = ()) -> None:
    """Print rows as JSON lines, or as a table by headings and what stands below them; numbers are to the right."""
    if as_json:
        for row in rows:
            print_json(row)
        return
    cells = [[of(row) if callable(of) else row[of] for of in columns.values()] for row in rows]
    numbers = (name for i, name in enumerate(columns) if any(type(line[i]) in (int, float) for line in cells))
    print_table(list(columns), [[_text(cell) for cell in line] for line in cells], {*right, *numbers})


def _text(value: Any) -> Any:
    if isinstance(value, list):
        return ",".join(map(str, value)) or None
    return str(value).lower() if isinstance(value, bool) else value
