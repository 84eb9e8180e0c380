"""Shared by the commands that change a log directory without a broker: options, and output of the result.

A command is a function decorated with `offline_command`. It gets a `Request` and its own options as keywords, and calls
`Request.run`, which ends it with the exit code.
"""

from __future__ import annotations

import datetime
import functools
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import click

from pylogseg.cli.common import (
    count_text,
    decorated,
    jobs_option,
    json_option,
    names_options,
    parse_moment,
    parse_settings,
    parsed,
    print_json,
    print_table,
    progress,
    quiet_option,
    report_lacking,
    size_text,
    try_print,
)
from pylogseg.cli.streams import say
from pylogseg.cli.tiers import DISK, Local
from pylogseg.cli.verify import print_finding
from pylogseg.cli.workers import Workers, parts_option, worker_options, workers_of
from pylogseg.env.overlay import FileChange
from pylogseg.errors import RequestError
from pylogseg.format.codec_error import in_shell
from pylogseg.format.columns import to_row
from pylogseg.log.recovery_report import Action
from pylogseg.offline.options import Options
from pylogseg.offline.result import CheckpointChange, PartitionResult, Result
from pylogseg.offline.running import chosen_bytes

#: For the epilog of each command.
EXIT_CODES = """\b
Exit codes: 0 success; 1 a partition failed, is known to lack records, or was
skipped although it was named or because its settings are not known; 2 wrong
usage, a disk error, or a broker runs; 130 interrupted: finished work stays, run
the command again for the rest.
"""
_FEW = 6
#: Noun and participle for the sums of `PartitionResult.numbers`.
_COUNTED = {
    "recordsRemoved": ("record", "removed"),
    "recordsDeleted": ("record", "deleted"),
    "recordsBlanked": ("record", "blanked"),
    "offsetsGone": ("offset", "removed"),
    "offsetsMissing": ("offset", "missing"),
    "segmentsDeleted": ("segment", "deleted"),
    "segmentsRewritten": ("segment", "rewritten"),
    "recoveredSegments": ("segment", "checked"),
    "cutBytes": ("byte", "cut off"),
    "droppedSegments": ("segment", "dropped"),
    "removedFiles": ("file", "removed"),
    "rebuiltIndexes": ("index file", "rebuilt"),
    "filesWritten": ("file", "written"),
    "filesRemoved": ("file", "removed"),
}
#: What opening a log did, by `ActionKind`; what is in brackets is for more than one.
_DONE = {
    "cut": "segment(s) cut",
    "emptied": "segment(s) emptied",
    "dropped": "segment(s) dropped",
    "replaced": "file(s) replaced",
    "swapped": "swap file(s) renamed",
    "split": "segment(s) split",
    "leftover": "leftover(s) removed",
    "orphan": "orphan index(es) removed",
    "index": "index(es) rebuilt",
    "snapshot": "snapshot(s) removed",
    "epochs": "file(s) of leader epochs updated",
    "created": "segment(s) created",
    "garbage": "segment(s) with garbage left as they are",
    "hidden": "segment(s) with hidden batches left as they are",
    "unreached": "segment(s) with batches that a broker does not reach left as they are",
    "short": "log(s) shorter than checkpoints say left as they are",
}
_ENDING = re.compile(r"[(](.*?)[)]")
_OPTION_NAMES = ("dry_run", "into", "server_properties", "cluster_metadata", "now_ms")

_OPTIONS = (
    click.argument("directory", metavar="DIR", type=DISK),
    names_options,
    click.option("--dry-run", "-n", is_flag=True, help="Report what would be done, and change nothing."),
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
        "--now", "now_ms", callback=parsed(parse_moment), metavar="TIME",
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
        with progress(total, name) as advance:
            shared = {
                **self.options,
                "on_bytes": advance,
                "on_result": lambda part_result: try_print(self._report, part_result),
            }
            try:
                result = self._work(command, {**shared, **own})
            except KeyboardInterrupt:
                say(f"interrupted: {self._after_interrupt()}", err=True)
                raise
        report_lacking(result.lacking)
        for finding in result.refusals:
            try_print(print_finding, finding, self.as_json)
        if self.as_json:
            try_print(print_json, result)
        elif self.quiet:
            try_print(say, *_losses(result), _total(result))
        else:
            try_print(_print, result, columns or {}, self.verbose, nothing)
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

    def _report(self, result: PartitionResult) -> None:
        """Print what cannot wait for the end."""
        if self.as_json:
            for action in result.report.actions:
                print_json({"type": "action", "partition": result.name, **to_row(action)})
            for row in result.rows:
                print_json({"partition": result.name, **row})
            print_json(result)
            return
        _print_actions(result.report.actions, self.verbose, self.options["dry_run"])
        if result.state == "failed":
            say(f"FAILED  {result.path}")
            say(f"        {in_shell(result.reason)}")
            if result.remedy:
                say(f"        remedy: {result.remedy}")
            for line in _details(result):
                say(f"        {result.name}: {line}")
            for change in result.changes if self.verbose else ():
                say(f"        {result.name}: {_change_text(change)}")


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

    return decorated(command, (*_OPTIONS[:-2], *worker_options(jobs), *_OPTIONS[-2:]))


def keeps_copies(what: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add --keep and --no-keep to a command, which gets the folder for copies as `keep`, None for none."""

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(function)
        def command(request: Request, keep: str | None, no_keep: bool, **rest: Any) -> None:
            if keep and no_keep:
                raise RequestError("--keep and --no-keep cannot be combined")
            function(request, keep=None if no_keep else os.path.abspath(keep or _default_keep()), **rest)

        to = f"Copy what is {what} to FOLDER; default: pylogseg/kept/<time> below $XDG_STATE_HOME."
        lost = f"Keep no copies: what is {what} is lost."
        options = (
            click.option("--keep", metavar="FOLDER", type=Local(), help=to),
            click.option("--no-keep", is_flag=True, help=lost),
        )
        return decorated(command, options)

    return decorate


def _default_keep() -> str:
    """Return the folder for the copies of this run, named by time and process."""
    state = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    now = datetime.datetime.now(datetime.timezone.utc)
    return os.path.join(state, "pylogseg", "kept", f"{now:%Y%m%dT%H%M%SZ}-{os.getpid()}")


# ---- output ----


def _print(result: Result, columns: Mapping[str, str], verbose: bool, nothing: str) -> None:
    looked_at = [part_result for part_result in result if part_result.state in ("done", "unchanged")]
    shown = [part_result for part_result in looked_at if verbose or part_result.state == "done"]
    if shown:
        sizes = ("SEGMENTS", "AFTER", "SIZE", "SIZE AFTER")
        headings = ["PARTITION", "STATE", "START", "END", *sizes, *columns.values()]
        print_table(headings, [_cells(part_result, columns) for part_result in shown], right=headings[2:])
    for line in _shared_details(looked_at, verbose):
        say(line)
    for part_result in shown if verbose else ():
        for change in part_result.changes:
            say(f"{part_result.name}: {_change_text(change)}")
    if nothing and looked_at and not result.failed and not any(map(_is_done, result)):
        say(nothing)
    for line in _summary(result):
        say(line)
    if result.dry_run:
        say(dry_run_text(sum(len(part_result.changes) for part_result in result), verbose))
    say(_total(result))


def _print_actions(actions: Iterable[Action], verbose: bool, dry_run: bool) -> None:
    """Print what lost records, and with `verbose` the rest: many files with the same reason once."""
    for _, group in groupby(actions, lambda action: (action.kind, action.reason, action.bytes_gone > 0)):
        first, *others = group
        if first.is_damage:
            for action in (first, *others):
                _print_action(action, 0, dry_run)
        elif verbose:
            _print_action(first, len(others), dry_run)


def _print_action(action: Action, more: int, dry_run: bool) -> None:
    others = f" and {count_text(more, 'other file')}" if more else ""
    say(f"{'DAMAGE' if action.is_damage else 'notice'}  {action.kind.value}  {action.place}{others}")
    say(f"        {in_shell(action.reason)}")
    if action.kept:
        say(f"        copy{' would be' * dry_run}: {action.kept}")
    if action.remedy != "none":
        say(f"        remedy: {action.remedy}")


def _is_done(result: PartitionResult) -> bool:
    return result.state == "done"


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


def done_text(actions: Iterable[Action]) -> str:
    """Return what a recovery did: ``7 leftovers removed, 1 index rebuilt``."""
    counts = Counter(action.kind.value for action in actions)
    plural = {kind: r"\1" if count > 1 else "" for kind, count in counts.items()}
    return ", ".join(f"{count:,} {_ENDING.sub(plural[kind], _DONE[kind])}" for kind, count in counts.items())


def _details(result: PartitionResult) -> Iterator[str]:
    if done := done_text(result.report.actions):
        yield f"recovered, as a starting broker does: {done}"
    yield from (str(action) for action in result.report.actions if action.bytes_gone and not action.is_damage)
    yield from result.notes
    yield from result.doubts


def _shared_details(results: Sequence[PartitionResult], verbose: bool) -> Iterator[str]:
    """Yield details of partitions; a line that several partitions share, once."""
    names: dict[str, list[str]] = {}
    for result in results:
        for line in _details(result):
            names.setdefault(line, []).append(result.name)
    for line, those in names.items():
        if verbose or len(those) == 1:
            yield from (f"{name}: {line}" for name in those)
        else:
            yield f"{count_text(len(those), 'partition')}: {line}"


def _losses(result: Result) -> Iterator[str]:
    if result.refusals:
        yield f"a broker will not start on this log directory: {count_text(len(result.refusals), 'finding')} above"
    if lost := sum(action.is_damage for part_result in result for action in part_result.report.actions):
        yield f"lost in {count_text(lost, 'place')}: records that may have been written whole"
    yield from (f"not known: {doubt}" for doubt in result.doubts)


def _summary(result: Result) -> Iterator[str]:
    would = "would be " if result.dry_run else ""
    left: dict[tuple[str, str], list[str]] = {}
    for part_result in result:
        if part_result.state == "skipped":
            topic = part_result.name.rpartition("-")[0]
            left.setdefault(
                (part_result.reason.replace(f"topic {topic} ", "topic {} "), part_result.remedy), []
            ).append(topic)
    for (reason, remedy), topics in sorted(left.items(), key=lambda item: -len(item[1])):
        why = _of_topics(reason, list(dict.fromkeys(topics)))
        yield f"{count_text(len(topics), 'partition')} skipped: {why}" + (f"; {remedy}" if remedy else "")
    yield from _losses(result)
    yield from result.notes
    for file in dict.fromkeys(change.file for change in result.checkpoints):
        changes = [change for change in result.checkpoints if change.file == file]
        entries = ", ".join(map(_entry_text, changes[:_FEW])) + (", ..." if len(changes) > _FEW else "")
        yield f"{file} {would}rewritten, {len(changes):,} of its entries: {entries}"
    if result.log_dir is not None and not result.dry_run and not result.is_closed_clean:
        yield f"a broker will recover this log directory when it starts: {_why_unclean(result)}"
    yield _replicas(result)
    if result.clients:
        yield "what clients will see:"
        yield from (f"- {line}" for line in result.clients)


def _why_unclean(result: Result) -> str:
    if result.was_closed_clean:
        return "this command removed the clean shutdown marker, since a partition failed half way"
    return "there was no clean shutdown"


def _of_topics(reason: str, topics: list[str]) -> str:
    """Return a reason that several topics share, with their names in the place of ``{}``."""
    names = ", ".join(topics[:_FEW]) + (", ..." if len(topics) > _FEW else "")
    if len(topics) > 1:
        reason = reason.replace("topic {} is not", "topics {} are not").replace("topic {}", "topics {}")
    return reason.replace("{}", names)


def dry_run_text(files: int, verbose: bool) -> str:
    """Return the last line of a dry run."""
    hint = f" ({count_text(files, 'file')} would differ: --verbose lists them)" if files and not verbose else ""
    return f"dry run: nothing was changed{hint}"


def _total(result: Result) -> str:
    """Return the total: partitions, records, bytes."""
    sums, would = result.totals(), "would be " if result.dry_run else ""
    before, after = sums["bytesBefore"], sums["bytesAfter"]
    done = "merged" if result.sources else "changed"
    parts = [f"{sums['changed']:,} of {count_text(len(result.partitions), 'partition')} {would}{done}"]
    parts += [f"{count_text(sums[name], one)} {what}" for name, (one, what) in _COUNTED.items() if sums.get(name)]
    if result.sources:  # nothing shrinks: something new is made
        return f"TOTAL: {', '.join(parts)}; segments {size_text(after)}"
    moved = f"{size_text(abs(before - after))} {'freed' if after <= before else 'more'}"
    return f"TOTAL: {', '.join(parts)}; segments {size_text(before)} to {size_text(after)}, {moved}"


def _entry_text(change: CheckpointChange) -> str:
    before, after = ("none" if offset is None else str(offset) for offset in (change.before, change.after))
    return f"{change.topic}-{change.partition} {before} to {after}"


def _replicas(result: Result) -> str:
    if result.sources:
        return f"nothing was changed in {', '.join(result.sources)}"
    chosen = [part_result for part_result in result if part_result.state == "done"] or list(result)
    brokers = sorted({broker for part_result in chosen for broker in part_result.replicas} - {result.node_id})
    counts = {len(part_result.replicas) for part_result in chosen}
    if counts == {1} and (result.node_id is None or not brokers):
        return "these partitions have no other replicas"
    named = f" (these partitions have replicas on brokers {', '.join(map(str, brokers))})" if brokers else ""
    return f"other replicas are unchanged{named}: the command works on this disk only"


def _change_text(change: FileChange) -> str:
    """Return how a dry run would change a file."""
    if change.before is None:
        return f"would create {change.path}, {change.after} bytes"
    if change.after is None:
        return f"would remove {change.path}, {change.before} bytes"
    sizes = f"{change.before} bytes" if change.before == change.after else f"{change.before} to {change.after} bytes"
    return f"would change {change.path} from position {change.position} on, {sizes}"
