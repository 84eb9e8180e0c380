"""Outcomes of commands: printed for people or as JSON, and turned into an exit code."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import click

from pylogseg.cli.common import complain, print_json, print_text_table, report_gaps, report_lacking, try_print
from pylogseg.cli.streams import say
from pylogseg.format.codec_error import in_shell
from pylogseg.format.outcome import Headings, Outcome, TextTable

Row = dict[str, Any]


def print_part(part: Any, as_json: bool) -> None:
    """Print an outcome, or a part of one: its row, or its lines; a closed pipe ends nothing."""
    if as_json:
        try_print(print_json, part)
    else:
        try_print(_print_lines, part)


def _print_lines(part: Any) -> None:
    for line in part.lines():
        if isinstance(line, TextTable):
            print_text_table(line)
        else:
            say(in_shell(line))


def print_parts(outcome: Outcome, as_json: bool, takes: Callable[[Any], bool] = bool) -> None:
    """Print the parts that `takes` accepts, and report gaps of all."""
    for part in outcome.parts():
        report_gaps(getattr(part, "gaps", ()))
        if takes(part):
            print_part(part, as_json)


def print_outcome(outcome: Outcome, as_json: bool) -> None:
    """Report the warnings of an outcome on stderr, and print its row or lines."""
    _report(outcome)
    print_part(outcome, as_json)


def end_with_outcome(outcome: Outcome, as_json: bool, code: int = 0) -> None:
    """Report and print an outcome, and end the command with its exit code, or else `code`."""
    print_outcome(outcome, as_json)
    if outcome.exit_code or code:
        click.get_current_context().exit(outcome.exit_code or code)


def print_list(outcome: Outcome, as_json: bool) -> None:
    """Print an outcome without a row of its own: the rows of its parts, or its lines; then report its warnings."""
    for part in outcome.parts() if as_json else (outcome,):
        print_part(part, as_json)
    _report(outcome)


def _report(outcome: Outcome) -> None:
    for warning in outcome.warnings():
        complain(in_shell(warning))
    report_lacking(outcome.lacking)


def print_rows(rows: Sequence[Row], headings: Headings, as_json: bool, right: Iterable[str] = ()) -> None:
    """Print rows as JSON lines, or as a table by headings and cells; numbers are to the right."""
    if as_json:
        for row in rows:
            print_json(row)
    else:
        print_text_table(TextTable.of(rows, headings, right))
