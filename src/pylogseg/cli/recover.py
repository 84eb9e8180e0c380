"""`pylogseg recover`: recover a log directory after a crash, as a broker does at startup."""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterator
from itertools import groupby
from typing import Any

import click

from pylogseg.cli.common import (
    change_text,
    complain,
    count_text,
    end_with,
    jobs_option,
    json_option,
    parse_settings,
    print_json,
    progress,
    report_lacking,
    size_text,
    try_print,
)
from pylogseg.cli.offline import done_text, dry_run_text
from pylogseg.cli.tiers import DISK, Local
from pylogseg.cli.verify import print_finding
from pylogseg.config import LogConfig
from pylogseg.disk.disk import open_dir
from pylogseg.disk.target import Target, refuse_if_locked
from pylogseg.env.storage import LocalStorage
from pylogseg.errors import RequestError, StorageError
from pylogseg.inspect.verify.lacking import lacking
from pylogseg.log.recovery_report import Action
from pylogseg.offline.recovering import RecoverOptions, RecoverResult, Recovery
from pylogseg.walker.gaps import offsets_text

#: Words of the output for states of a result.
_STATES = {"left": "skipped"}
_EXPIRATION = "producer.id.expiration.ms"

_EPILOG = """\b
Examples:
  pylogseg recover /data/kafka --dry-run       report what would be done
  pylogseg recover /data/kafka --keep /backup/kept
  pylogseg recover /data/kafka/orders-3        one partition only
  pylogseg recover /data                       all log directories in it

\b
Exit codes: 0 all is in order now; 1 written records were lost (also before:
checkpoints name more), a partition cannot be recovered, or a broker will not
start (lost+found, meta.properties); 2 wrong usage, a disk error, or a broker runs; 130 interrupted: recovered
partitions stay so, run the command again for the rest.
"""


@click.command(epilog=_EPILOG)
@click.argument("directory", metavar="DIR", type=DISK)
@click.option("--dry-run", "-n", is_flag=True, help="Report what would be done, and change nothing.")
@click.option("--full", is_flag=True, help="Check every segment, also flushed ones and after a clean shutdown.")
@click.option(
    "--keep",
    metavar="FOLDER",
    type=Local(),
    help="Copy what is cut off or removed to FOLDER; default: pylogseg/kept/<time> below $XDG_STATE_HOME.",
)
@click.option("--no-keep", is_flag=True, help="Keep no copies: what is cut off is lost, as with a broker.")
@click.option(
    "--config", "-c", "settings", multiple=True, metavar="KEY=VALUE",
    help=f"A topic's setting by Kafka's name, or {_EXPIRATION}; repeatable. Indexes depend on index.interval.bytes.",
)  # fmt: skip
@json_option
@jobs_option
@click.option(
    "--verbose", "-v", is_flag=True, help="Also print what was in order, each notice, and each file of a dry run."
)
@click.option("--quiet", "-q", is_flag=True, help="Print only losses, failures and the total.")
def recover(
    directory: str,
    dry_run: bool,
    full: bool,
    keep: str | None,
    no_keep: bool,
    settings: tuple[str, ...],
    as_json: bool,
    jobs: int,
    verbose: bool,
    quiet: bool,
) -> None:
    """Recover a log directory, or one partition's folder, after a crash.

    Does what a broker does when it starts and stops: cuts off a torn tail, rebuilds missing indexes, finishes or undoes
    replacements of segments, writes snapshots, checkpoints and the clean shutdown marker. It reports what it cuts off,
    and keeps a copy. It refuses to run while a broker runs.
    """
    if keep and no_keep:
        raise RequestError("--keep and --no-keep cannot be combined")
    config, expiration_ms = _config(settings)
    kept = None if no_keep else os.path.abspath(keep) if keep else default_keep()
    options = RecoverOptions(config, expiration_ms, full, dry_run, kept, jobs)
    counts = _Counts()
    places = Target.find_all(LocalStorage(), directory)
    if len(places) > 1 and not dry_run:
        refuse_if_locked(places)
    paths = [place.parent for place in places] if len(places) > 1 else [directory]
    # Whole partitions; asked before their entries in checkpoints go. The metadata may not know of an earlier move.
    gone = lacking(open_dir(paths), []) if all(place.is_whole for place in places) else []
    gone = [finding for finding in gone if finding.offset is not None]
    for path in paths:
        try:
            _recover_one(path, options, counts, as_json, 0 if quiet else 1 + verbose)
        except StorageError as error:
            if len(paths) == 1:
                raise
            counts.disk_failed = True
            complain(error)
    report_lacking(gone)
    if counts.disk_failed:
        click.get_current_context().exit(2)
    end_with(counts.is_damage or counts.refused > 0 or bool(gone))


def _recover_one(path: str, options: RecoverOptions, counts: _Counts, as_json: bool, level: int) -> None:
    """Recover one log directory or partition; `level` is the amount of output: 0 quiet, 1, 2 verbose."""
    here, recovery = _Counts(), Recovery(path, options)
    with progress(recovery.total_bytes(), "recover") as advance:
        for result in recovery.run(advance):
            here.add(result)
            counts.add(result)
            if as_json:
                try_print(_print_rows, result)
            else:
                try_print(_print, result, level, options.dry_run)
    refusals = recovery.refusals()
    here.refused = len(refusals)
    counts.refused += len(refusals)
    for finding in refusals:
        try_print(print_finding, finding, as_json)
    if as_json:
        try_print(print_json, here.as_row(recovery, options.dry_run))
    else:
        try_print(click.echo, "\n".join([*here.lines(recovery, options.dry_run, level), here.total(options.dry_run)]))


def default_keep() -> str:
    """Return the folder for the copies of this run, named by time and process."""
    state = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    now = datetime.datetime.now(datetime.timezone.utc)
    return os.path.join(os.path.abspath(state), "pylogseg", "kept", f"{now:%Y%m%dT%H%M%SZ}-{os.getpid()}")


def _config(settings: tuple[str, ...]) -> tuple[LogConfig, int]:
    """Return the settings of logs, and the broker's producer expiration."""
    values = parse_settings(settings)
    expiration = values.pop(_EXPIRATION, "86400000")
    if not expiration.isascii() or not expiration.isdigit() or not 1 <= int(expiration[:10]) <= 2**31 - 1:
        raise RequestError(f"invalid {_EXPIRATION}={expiration!r}: expected an integer from 1 to 2147483647")
    return LogConfig.from_properties(values), int(expiration)


# ---- output ----


def _print_rows(result: RecoverResult) -> None:
    for action in result.report.actions:
        print_json({"type": "action", "partition": result.name, **action.as_row()})
    print_json(result.as_row())


def _print(result: RecoverResult, level: int, dry_run: bool) -> None:
    for _, group in groupby(result.report.actions, lambda action: (action.kind, action.reason, action.bytes_gone > 0)):
        actions = list(group)
        if actions[0].bytes_gone or actions[0].is_damage:
            for action in actions:
                if action.is_damage or level:
                    _print_action(action, 0, dry_run)
        elif level > 1:
            _print_action(actions[0], len(actions) - 1, dry_run)
    if result.state == "failed":
        click.echo(f"FAILED  {result.path}")
        click.echo(f"        {result.reason}")
        click.echo(f"        remedy: {result.remedy}")
    elif level > 1 or (level and (result.report.actions or result.state == "left")):
        click.echo(_line(result))
        reported = {action.path for action in result.report.actions}
        for change in result.changes if level > 1 else ():
            if change.path not in reported:
                click.echo(f"        {change_text(change)}")


def _print_action(action: Action, more: int, dry_run: bool) -> None:
    others = f" and {count_text(more, 'other file')}" if more else ""
    click.echo(f"{'DAMAGE' if action.is_damage else 'notice'}  {action.kind.value}  {action.place}{others}")
    click.echo(f"        {action.reason}")
    if action.kept:
        click.echo(f"        copy{' would be' * dry_run}: {action.kept}")
    if action.remedy != "none":
        click.echo(f"        remedy: {action.remedy}")


def _line(result: RecoverResult) -> str:
    if result.state == "left":
        return f"{result.name}: skipped: {result.reason}"
    report = result.report
    segments = report.recovered_segments
    read = f"{count_text(segments, 'segment')} checked" if segments else "no segment checked"
    done = done_text(report.actions) or "nothing to repair"
    start, end = result.log_start or 0, result.log_end or 0
    offsets = offsets_text(start, end) if end > start else f"no records, log end offset {end}"
    return f"{result.name}: {offsets}, {read}, {done}"


class _Counts:
    """Totals of partitions."""

    def __init__(self) -> None:
        self.states = {"recovered": 0, "clean": 0, "left": 0, "failed": 0}
        self.sums: dict[str, int] = {}
        self.is_damage = self.disk_failed = False
        self.lost = self.refused = self.repaired = self.files = 0
        self.kept: list[str] = []

    def add(self, result: RecoverResult) -> None:
        """Count a partition."""
        self.states[result.state] += 1
        for name, value in result.report.as_row().items():
            self.sums[name] = self.sums.get(name, 0) + value
        self.repaired += len(result.report.actions)
        self.files += len(result.changes)
        self.lost += sum(action.is_damage for action in result.report.actions)
        self.kept += result.report.kept
        self.disk_failed |= isinstance(result.error, StorageError)
        self.is_damage |= result.report.is_damage or result.state == "failed"

    def as_row(self, recovery: Recovery, dry_run: bool) -> dict[str, Any]:
        """Return the fields of the last JSON line."""
        return {
            "type": "summary",
            "logDirectory": recovery.log_dir,
            "dryRun": dry_run,
            **self.states,
            **self.sums,
            "damaged": self.lost,
            "refused": self.refused,
            "kept": len(self.kept),
            "cleanShutdown": recovery.is_closed_clean,
            "notes": recovery.notes,
            "changes": [change._asdict() for change in recovery.changes],
        }

    def total(self, dry_run: bool) -> str:
        """Return the total line."""
        sums, would = self.sums, "would be " if dry_run else ""
        states = [f"{count:,} {_STATES.get(state, state)}" for state, count in self.states.items() if count]
        did = [
            (sums.get("recoveredSegments", 0), "segment", f" checked ({size_text(sums.get('recoveredBytes', 0))})"),
            (sums.get("cutBytes", 0), "byte", f" {would}cut off"),
            (sums.get("droppedSegments", 0), "segment", f" {would}dropped"),
            (sums.get("removedFiles", 0), "file", f" {would}removed"),
            (sums.get("rebuiltIndexes", 0), "index file", f" {would}rebuilt"),
        ]
        done = ", ".join(count_text(number, one) + what for number, one, what in did if number)
        if not self.repaired and not self.refused and not self.states["failed"]:
            done = ", ".join([*([done] if done else []), "nothing to repair"])
        partitions = count_text(sum(self.states.values()), "partition")
        return "; ".join(
            [f"TOTAL: {partitions}" + (f" ({', '.join(states)})" if states else ""), *([done] if done else [])]
        )

    def lines(self, recovery: Recovery, dry_run: bool, level: int) -> Iterator[str]:
        """Yield the lines before the total."""
        for note in recovery.notes if level else ():
            yield f"note: {note}"
        for change in recovery.changes if level > 1 else ():
            yield change_text(change)
        if self.refused:
            yield f"a broker will not start on this log directory: {count_text(self.refused, 'finding')} above"
        if self.lost:
            yield f"lost in {count_text(self.lost, 'place')}: records that may have been written whole"
        if not level:
            return
        if recovery.log_dir is not None and not dry_run and not recovery.is_closed_clean:
            yield "a broker will recover this log directory when it starts: there was no clean shutdown"
        if dry_run:
            yield dry_run_text(self.files + len(recovery.changes), level > 1)
