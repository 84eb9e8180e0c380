"""Outcomes of commands: printed for people or as JSON, and turned into an exit code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from pylogseg.cli.common import complain, print_json, report_gaps, report_lacking, try_print
from pylogseg.cli.streams import say
from pylogseg.format.codec_error import in_shell
from pylogseg.format.outcome import Outcome


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
