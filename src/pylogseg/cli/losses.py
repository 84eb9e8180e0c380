"""Reports of losses of logs, and of small files that say less than they should."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import click

from pylogseg.cli import common
from pylogseg.disk.notes import joined_lines
from pylogseg.format.codec_error import in_shell

if TYPE_CHECKING:
    from pylogseg.reading.log_reader import LogReader


def report_doubts(doubts: Sequence[str]) -> None:
    """Report doubts about small files on stderr, and set the exit code to 1 if there is one."""
    for doubt in joined_lines(doubts):
        common.complain(f"not known: {in_shell(doubt)}")
    if doubts:
        click.get_current_context().meta[common.DAMAGE] = True


def report_losses(readers: Iterable[LogReader]) -> bool:
    """Report the known losses in the ranges of readers; return True if there is one (code 1)."""
    return common.report_gaps([gap for reader in readers for gap in reader.losses()])
