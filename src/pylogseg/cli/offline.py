"""Shared by the commands that change a log directory without a broker: options, and output of the result.

A command is a function decorated with `offline_command`. It gets a `Request` and its own options as keywords, and calls
`Request.run`, which ends it with the exit code.
"""

from __future__ import annotations

import datetime
import functools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import click

from pylogseg.cli.common import (
    add_all,
    jobs_option,
    json_option,
    names_options,
    parse_moment,
    parse_settings,
    parse_with,
    print_json,
    print_table,
    progress,
    quiet_option,
    report_lacking,
    try_print,
)
from pylogseg.cli.streams import say
from pylogseg.cli.tiers import DISK, Local
from pylogseg.cli.verify import print_finding
from pylogseg.cli.workers import Workers, parts_option, worker_options, workers_of
from pylogseg.disk.notes import without_paths
from pylogseg.errors import RequestError
from pylogseg.format.codec_error import in_shell
from pylogseg.format.columns import to_row
from pylogseg.format.words import count_text, names_text, size_text
from pylogseg.offline.options import Options
from pylogseg.offline.result import PartitionResult, Result
from pylogseg.offline.running import chosen_bytes

#: Headings of the commands that delete the oldest records.
DELETED = {"logStartBefore": "START BEFORE", "segmentsDeleted": "DELETED"}
#: For the epilog of each command.
EXIT_CODES = """\b
Exit codes: 0 success; 1 a partition failed, is known to lack records, or was
skipped although it was named or because its settings are not known; 2 wrong
usage, a disk error, or a broker runs; 130 interrupted: finished work stays, run
the command again for the rest.
"""
_OPTION_NAMES = ("dry_run", "into", "server_properties", "cluster_metadata", "now_ms")

_OPTIONS = (
    click.argument("directory", metavar="DIR", type=DISK),
    names_options,
    click.option("--dry-run", "-n", is_flag=True, help="Report the changes, and make none."),
    click.option(
        "--into",
        metavar="FOLDER",
        type=Local(),
        help="Leave DIR unchanged: copy the selected partitions to FOLDER (empty or new), and change the copy.",
    ),
    click.option(
        "--config", "-c", multiple=True, metavar="KEY=VALUE",
        help="A setting by Kafka's name; repeatable. Overrides the topic's and the broker's.",
    ),
    click.option(
        "--server-properties", metavar="FILE", type=click.Path(exists=True, dir_okay=False),
        help="File of the broker's settings.",
    ),
    click.option(
        "--cluster-metadata", metavar="FOLDER",
        help="The __cluster_metadata-0 folder with the topics' settings, or 'none'; default: the one in DIR.",
    ),
    click.option(
        "--now", "now_ms", callback=parse_with(parse_moment), metavar="TIME",
        help="Use TIME as the current time, e.g. 2026-01-31T12:00:00Z; default: the clock.",
    ),
    json_option,
    click.option(
        "--verbose", "-v", is_flag=True, help="Also print unchanged partitions, notices, and each file of a dry run.",
    ),
    quiet_option,
)  # fmt: skip


class Request(NamedTuple):
    """The values of the shared options of a command.
    `options` are fields of `Options`.
    """

    path: str
    options: dict[str, Any]
    as_json: bool
    quiet: bool
    verbose: bool = False
    workers: Workers | None = None  #: Of a command that goes partition by partition.

    def run(
        self,
        command: Callable[..., Result],
        *,
        columns: Mapping[str, str] | None = None,
        nothing: str = "",
        passes: int = 1,
        total_bytes: int | None = None,
        **own: Any,
    ) -> None:
        """Run a command of `pylogseg.offline`, print its result, and end with its exit code.

        `columns` are headings by names in `PartitionResult.numbers`, `nothing` a line for a result without a change.
        `passes` is how often the command goes through the bytes of a log, for the bar; `total_bytes` are these, if the
        caller knows better.
        """
        name = click.get_current_context().info_name or "work"
        copies = self.options.get("into") is not None and not self.options["dry_run"]
        if total_bytes is None:
            total_bytes = chosen_bytes(self.path, Options.of(self.options))
        total = total_bytes * (passes + copies)
        failures = dict[tuple[str, str], list[str]]()
        with progress(total, name) as advance:
            shared = {
                **self.options,
                "on_bytes": advance,
                "on_result": lambda part_result: try_print(self._report, part_result, failures),
            }
            try:
                result = self._work(command, {**shared, **own})
            except KeyboardInterrupt:
                say(f"interrupted: {self._after_interrupt()}", err=True)
                raise
        for _, *others in () if self.as_json else failures.values():
            if others:
                more = count_text(len(others), "more partition")
                try_print(say, f"FAILED  {more} for the same reason: {names_text(others)}")
        report_lacking(result.lacking)
        for finding in result.refusals:
            try_print(print_finding, finding, self.as_json)
        if self.as_json:
            try_print(print_json, result)
        elif self.quiet:
            try_print(say, *map(in_shell, result.short_lines()))
        else:
            try_print(_print_table, result, columns or {}, self.verbose)
            try_print(say, *map(in_shell, result.lines(self.verbose, nothing)))
        if result.exit_code:
            click.get_current_context().exit(result.exit_code)

    def _work(self, command: Callable[..., Result], given: dict[str, Any]) -> Result:
        if self.workers is None:
            return command(self.path, **given)
        if self.workers.is_spark and "into" in given and given["into"] is None:
            raise click.UsageError("--spark works on a copy: give --into FOLDER, which its workers share")
        with self.workers.executor() as executor:
            return command(self.path, executor=executor, **given)

    def _after_interrupt(self) -> str:
        if self.options["dry_run"]:
            return "nothing was changed"
        into = self.options.get("into")
        if into is not None:
            return f"{self.path} is unchanged, and {into} is complete or does not exist"
        return "each log is whole, and finished work stays; run the command again for the rest"

    def _report(self, result: PartitionResult, failures: dict[tuple[str, str], list[str]]) -> None:
        """Print urgent lines before the end; of failures for the same reason only the first."""
        if self.as_json:
            for action in result.report.actions:
                print_json({"type": "action", "partition": result.name, **to_row(action)})
            for row in result.rows:
                print_json({"partition": result.name, **row})
            print_json(result)
            return
        lines = result.lines
        if result.state == "failed" and not self.verbose:
            names = failures.setdefault((without_paths(result.reason, result.name), result.remedy), [])
            names.append(result.name)
            lines = result.lines if len(names) == 1 else result.action_lines
        say(*map(in_shell, lines(self.verbose, self.options["dry_run"])))


def offline_command(function: Callable[..., None]) -> Callable[..., None]:
    """Add DIR, NAME... and the shared options to a command; it gets them as a `Request`."""
    return _command(function, parts_option)


def parallel_command(function: Callable[..., None]) -> Callable[..., None]:
    """The same for a command that needs little memory: with a thread for each processor."""
    return _command(function, jobs_option)


def _command(function: Callable[..., None], jobs: Callable[[Any], Any]) -> Callable[..., None]:
    @functools.wraps(function)
    def command(
        directory: str,
        names: Sequence[str],
        topic: Sequence[str],
        partition: Sequence[int],
        config: Sequence[str],
        as_json: bool,
        quiet: bool,
        verbose: bool,
        **rest: Any,
    ) -> None:
        shared = {name: rest.pop(name) for name in _OPTION_NAMES}
        workers = workers_of(rest)
        shared.update(topic=(*names, *topic) or None, partition=partition or None, config=parse_settings(config))
        function(Request(directory, shared, as_json, quiet, verbose, workers), **rest)

    return add_all(command, (*_OPTIONS[:-2], *worker_options(jobs), *_OPTIONS[-2:]))


def keeps_copies(what: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add --keep and --no-keep to a command, which gets the folder for copies as `keep`, None for none."""

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(function)
        def command(request: Request, keep: str | None, no_keep: bool, **rest: Any) -> None:
            if keep and no_keep:
                raise RequestError("--keep and --no-keep cannot be combined")
            function(request, keep=None if no_keep else os.path.abspath(keep or default_keep()), **rest)

        to = f"Copy what is {what} to FOLDER; default: pylogseg/kept/<time> below $XDG_STATE_HOME."
        lost = f"Keep no copies: what is {what} is lost."
        options = (
            click.option("--keep", metavar="FOLDER", type=Local(), help=to),
            click.option("--no-keep", is_flag=True, help=lost),
        )
        return add_all(command, options)

    return decorate


def default_keep() -> str:
    """Return the folder for the copies of this run, named by time and process."""
    state = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    now = datetime.datetime.now(datetime.timezone.utc)
    return os.path.join(state, "pylogseg", "kept", f"{now:%Y%m%dT%H%M%SZ}-{os.getpid()}")


# ---- output ----


def _print_table(result: Result, columns: Mapping[str, str], verbose: bool) -> None:
    rows = [part_result for part_result in result if part_result.is_shown(verbose)]
    if rows:
        sizes = ("SEGMENTS", "AFTER", "SIZE", "SIZE AFTER")
        headings = ["PARTITION", "STATE", "START", "END", *sizes, *columns.values()]
        print_table(headings, [_cells(part_result, columns) for part_result in rows], right=headings[2:])


def _cells(result: PartitionResult, columns: Mapping[str, str]) -> list[Any]:
    return [
        result.name,
        result.state,
        result.log_start,
        result.log_end,
        result.segments_before,
        result.segments_after,
        size_text(result.bytes_before),
        size_text(result.bytes_after),
        *("?" if name in result.unknown else f"{result.numbers.get(name, 0):,}" for name in columns),
    ]
