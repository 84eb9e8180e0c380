"""The end of an export: what was written, what is not as it should be, and the exit code; shared by both layouts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pylogseg.cli import common
from pylogseg.cli.streams import say
from pylogseg.cli.typed import report_undecoded
from pylogseg.errors import StorageError
from pylogseg.format.words import count_text, size_text
from pylogseg.inspect.verify.findings import Finding


@dataclass
class Done:
    """The result of an export."""

    rows: Sequence[Mapping[str, Any]] = ()  #: Of files, as ``--json`` has them.
    damage: bool = False
    problems: list[str] = field(default_factory=list)  #: Damage that is not yet said.
    kept: list[str] = field(default_factory=list)  #: Folders or a file that stay, as not all could be read.
    empty: int = 0  #: Partitions without a record to export.
    undecoded: int = 0  #: Payloads.


def end(
    done: Done, out: str, as_json: bool, lacking: Sequence[Finding], unlisted: Sequence[StorageError | None]
) -> None:
    """Print what was written, report what is missing, damaged or old, and end the command."""
    common.try_print(_print, done, out, as_json)
    damage = done.damage or bool(done.problems)
    for problem in done.problems:
        common.complain(problem)
    damage |= common.report_lacking(lacking)
    damage |= report_undecoded(done.undecoded)
    for path in done.kept:
        common.complain(
            f"{path} is still of the earlier export: not all that would replace it could be read, so nothing of that "
            "was written; to get it, export to another place"
        )
    common.end_with_unreadable(unlisted, damage, is_error=bool(done.kept))


def _print(done: Done, out: str, as_json: bool) -> None:
    empty = f"{count_text(done.empty, 'partition')} without a record to export: no file is made"
    if as_json:
        for row in done.rows:
            common.print_json(dict(row))
        if done.empty:
            common.complain(f"note: {empty}")
        return
    files = [row for row in done.rows if row["path"] is not None]
    told = ", ".join(f"{count} {state}" for state, count in Counter(row.get("state") for row in files).items() if state)
    records, size = sum(row["records"] for row in files), sum(row["size"] for row in files)
    counts = f"{count_text(records, 'record')} in {count_text(len(files), 'file')}"
    say(f"{out}: {counts}, {size_text(size)}{f' ({told})' if told else ''}")
    if done.empty:
        say(empty)
