"""Shared by the commands: paths and names, options, units, tables, progress, reports of damage."""

from __future__ import annotations

import contextlib
import copy
import datetime
import errno
import functools
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from glob import glob, has_magic
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from pylogseg.cli import completion
from pylogseg.cli.streams import Shown, bare, forget_output, say
from pylogseg.cli.tiers import keys_option, tier_of_command, tier_option
from pylogseg.disk.choice import PartitionChoice, of_topics, with_two_meanings
from pylogseg.disk.disk import Disk, Partition
from pylogseg.disk.listing import open_dir, open_later
from pylogseg.disk.notes import note_lines
from pylogseg.disk.tier.opening import check_layout
from pylogseg.env.executor import processors
from pylogseg.errors import PylogsegError, RequestError, StorageError
from pylogseg.format.codec_error import in_shell
from pylogseg.format.columns import to_row
from pylogseg.format.escape import json_line, printable
from pylogseg.format.moments import first_ms, ms_of, unit_note
from pylogseg.format.outcome import TextTable
from pylogseg.format.words import count_text
from pylogseg.walker.gaps import Gap, GapKind, add_gaps, joined_times

if TYPE_CHECKING:
    from pylogseg.inspect.verify.findings import Finding
    from pylogseg.reading.logs import LogFiles

#: In a context's meta: something could not be read, and was not to be skipped.
_UNREADABLE = "pylogseg.unreadable"
#: In a context's meta: damage was found, also if the pipe is closed before the end.
DAMAGE = "pylogseg.damage"
#: Key of the gaps that `report_gaps` has not printed yet.
_WAITING = "pylogseg.gaps"
_LABELS = {
    GapKind.LOST: "missing",
    GapKind.LOCKED: "not looked at",
    GapKind.TIME: "no timestamp",
    GapKind.DIGITS: "cut",
}
#: Files that are named where more have the same damage.
_NAMED = 5
#: In a context's meta: files are mapped.
_MAPPED = "pylogseg.mapped"
F = TypeVar("F", bound=Callable[..., Any])


# ---- what to read ----


class Chosen(NamedTuple):
    """The part of a disk that the arguments select."""

    disk: Disk  #: Only what the names select, whatever its numbers.
    choice: PartitionChoice
    from_log_start: bool = True  #: Begin at the log start offsets, and not at the first records.

    @property
    def size(self) -> int:
        return sum(segment.size for log in self.logs() for segment in log.segments)

    def live_partitions(self) -> list[Partition]:
        """Return the partitions of `logs`, in the same order."""
        from pylogseg.reading.logs import partitions_of

        return partitions_of(self._select_numbers())

    def logs(self) -> list[LogFiles]:
        from pylogseg.reading.logs import logs_of

        return logs_of(self._select_numbers(), from_log_start=self.from_log_start, with_ends=True)

    def _select_numbers(self) -> Disk:
        return self.disk.select(partition=self.choice.numbers or None)


class Aliased(click.Option):
    """An option with a hidden last name: the word of other commands works, too."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        shown = copy.copy(self)
        shown.opts = self.opts[:-1]
        return click.Option.get_help_record(shown, ctx)


topic_option = click.option(
    "--topic",
    "-t",
    multiple=True,
    metavar="NAME",
    help="A topic, or where there is none of this name a partition; or a pattern; repeatable.",
    shell_complete=completion.names,
)
partition_option = click.option(
    "--partition", "-p", multiple=True, type=int, metavar="N", help="Only partition N; repeatable."
)
quiet_option = click.option("--quiet", "-q", is_flag=True, help="Print only errors and the total.")


def _note_map(ctx: click.Context, _: click.Parameter, is_mapped: bool) -> None:
    ctx.meta[_MAPPED] = is_mapped


memory_map_option = click.option(
    "--memory-map",
    is_flag=True,
    expose_value=False,
    callback=_note_map,
    help="Map files instead of reading them; only for files that no process truncates, such as a backup.",
)


def names_options(function: F) -> F:
    """Add [NAME...], ``--topic`` and ``--partition``: parameters ``names``, ``topic`` and ``partition``."""
    names = click.argument("names", nargs=-1, metavar="[NAME...]", shell_complete=completion.names)
    return add_all(function, [names, topic_option, partition_option])


def transfer_options(source: dict[str, Any], target: dict[str, Any], dry_run: str) -> Callable[[F], F]:
    """Return a decorator that adds SRC and DST (with settings `source` and `target`), `names_options`,
    ``--dry-run``.
    """
    add = [
        click.argument("source", metavar="SRC", **source),
        click.argument("target", metavar="DST", **target),
        names_options,
        click.option("--dry-run", "-n", is_flag=True, help=dry_run),
    ]
    return lambda function: add_all(function, add)


def selection_options(function: F, first: str = "", last: str = "") -> F:
    """Add PATH... NAME..., ``--topic`` and ``--partition``: parameters ``arguments``, ``topic``, ``partition``.

    `first` and `last` are shown before and after them in the usage line; their values are among the arguments.
    """
    shown = f"{first}PATH... [NAME...]{last}"
    add = [
        click.argument("arguments", nargs=-1, required=True, metavar=shown, shell_complete=completion.names),
        topic_option,
        partition_option,
        tier_option,
        keys_option,
        memory_map_option,
    ]
    return add_all(function, add)


def is_mapped() -> bool:
    """Check whether ``--memory-map`` was given to the command that runs."""
    return bool(click.get_current_context().meta.get(_MAPPED))


def _open(paths: Sequence[str], is_later: bool = False) -> Disk:
    return (open_later if is_later else open_dir)(paths, tier=tier_of_command(), memory_map=is_mapped())


def select(
    arguments: Sequence[str],
    topic: Sequence[str] = (),
    partition: Sequence[int] = (),
    *,
    from_log_start: bool = True,
    is_later: bool = False,
    is_noted: bool = True,
) -> Chosen:
    """Open the disk that the arguments of `selection_options` name, and report its notes about the chosen partitions.

    With `from_log_start`, the exit code shows if a log start offset cannot be read. With `is_later`, the files of each
    partition are listed when they are asked for. Without `is_noted`, the caller reports the notes.
    """
    paths, names = paths_and_names(arguments)
    disk = _open(paths, is_later)
    choice = PartitionChoice.of((*names, *topic) or None, partition or None)
    try:
        choice.check_numbers([p.partition for p in disk.partitions] + [segment.partition for segment in disk.loose])
        chosen = disk.select(choice.names or None)
        if is_noted:
            report_notes(chosen.select(partition=choice.numbers or None), from_log_start)
    except RequestError:
        report_notes(disk, from_log_start)  # they may say why it is not there
        raise
    is_topic = bool(topic) and not names
    for name in () if is_topic else with_two_meanings(disk, choice.names):
        other = name.rpartition("-")[0]
        complain(f"{name} is a topic, and a partition of {other}: the name means both; --topic {name} means the topic")
    return Chosen(of_topics(chosen, topic) if is_topic else chosen, choice, from_log_start)


def paths_and_names(arguments: Sequence[str], *, several: bool = False) -> tuple[list[str], list[str]]:
    """Split arguments; a word that may be either is a name if the paths have it, and a message reports the choice.

    With `several` there is nothing to report where it is a path: several are what the command expects.
    """
    paths, names, either = split_arguments(arguments)
    if either:
        disk = _open(paths)
        for word in either:
            is_name = disk.has(word)
            (names if is_name else paths).append(word)
            if is_name or not several:
                _report_choice(word, disk)
    return paths, names


def report_notes(disk: Disk, from_log_start: bool = True) -> None:
    """Report the disk's notes on stderr; notes of unknown log starts count, and come only with `from_log_start`."""
    for line in note_lines(note for note in disk.noted if from_log_start or note.error is None):
        complain(line)
    context = click.get_current_context()
    for error in disk.unknown_starts if from_log_start else ():
        context.meta[DAMAGE] = True
        if isinstance(error, StorageError) and context.params.get("on_corrupt", "raise") == "raise":
            context.meta[_UNREADABLE] = True


def _report_choice(word: str, disk: Disk) -> None:
    """Report whether a word that could be a name or a path was taken for one or the other."""
    if not disk.has(word):
        complain(f"{word} is read as a path: the paths before it have no topic or partition of that name")
    elif not any(os.path.exists(word) and os.path.samefile(p.path, word) for p in disk.select([word]).partitions):
        complain(f"{word} is read as a name; for the path write ./{word}")


def split_arguments(arguments: Sequence[str]) -> tuple[list[str], list[str], list[str]]:
    """Split arguments into paths, names, and words that may be either.

    The first argument that exists is a path, and so is one with a slash, a URL, ``.`` or ``..``. Any other word is a
    name, or may be either if a file or folder here has that name too.
    """
    paths: list[str] = []
    names: list[str] = []
    either: list[str] = []
    for argument in arguments:
        is_there = _exists(argument)
        if not paths or _has_slash(argument):
            (paths if is_there else names).append(argument)
        else:
            (either if is_there else names).append(argument)
    if not paths:
        raise RequestError(f"no path to read: there is no file or folder {', '.join(names)} here")
    return paths, names, either


def _has_slash(argument: str) -> bool:
    return argument in (os.curdir, os.pardir) or "/" in argument or os.sep in argument


def _exists(argument: str) -> bool:
    if not argument:
        raise RequestError("an argument is empty: expected a path or a name")
    if "://" in argument or os.path.lexists(argument) or (has_magic(argument) and glob(argument)):
        return True
    # Topic names have no slash, so this is a path that does not exist.
    if _has_slash(argument):
        check_layout(argument)
        raise RequestError(f"{argument}: no such file or folder")
    return False


# ---- options ----


def add_all(function: F, decorators: Iterable[Callable[[Any], Any]]) -> F:
    """Apply several decorators to a function, the first one outermost."""
    for decorator in reversed(list(decorators)):
        function = decorator(function)
    return function


def parse_size(text: str) -> int:
    """Return the bytes of a size with a suffix: K, M, G, T are powers of 1000, Ki, Mi, Gi, Ti of 1024; a B may follow.

    >>> parse_size("50M"), parse_size("1.5Gi"), parse_size("4096")
    (50000000, 1610612736, 4096)
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(i?)B?", text.strip(), re.IGNORECASE)
    if match is None or (match[3] and not match[2]):
        raise RequestError(f"invalid size {text!r}: expected a number, with K, M, G, T (1000) or Ki, Mi, Gi, Ti (1024)")
    return int(float(match[1]) * (1024 if match[3] else 1000) ** " KMGT".index(match[2].upper() or " "))


def parse_with(parse: Callable[[str], Any]) -> Callable[[click.Context, click.Parameter, str | None], Any]:
    """Return an option's callback that parses its value; a RequestError becomes a usage error of that option."""

    def convert(ctx: click.Context, param: click.Parameter, value: str | None) -> Any:
        try:
            return None if value is None else parse(value)
        except RequestError as error:
            raise click.BadParameter(str(error), ctx, param) from None

    return convert


def target_folder(ctx: click.Context, param: click.Parameter, value: str) -> str:
    """Check that a folder to write to is there: a missing one may be a disk that is not mounted."""
    if "://" in value:
        raise click.BadParameter(
            f"{value}: not a folder of this machine; the source comes first, the target last", ctx, param
        )
    if not os.path.exists(value):
        raise click.BadParameter(f"{value}: no such folder: make it first, as the user of the broker", ctx, param)
    if not os.path.isdir(value):
        raise click.BadParameter(f"{value}: not a folder", ctx, param)
    return value


def parse_settings(settings: Iterable[str]) -> dict[str, str]:
    """Return the values of a repeated ``--config KEY=VALUE``, by Kafka's names."""
    values = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals:
            raise RequestError(f"invalid --config {setting}: expected KEY=VALUE, such as index.interval.bytes=512")
        values[name.strip()] = value.strip()
    return values


_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000}


def parse_moment(text: str, now_ms: int | None = None, *, rounds_down: bool = False) -> int:
    """Return milliseconds since 1970 from ``2h`` (ago; also s, m, d, w), ISO 8601 with a zone, or milliseconds.

    A fraction of a millisecond counts as a whole one, so that a range of records begins and ends at the given time;
    `rounds_down` leaves it out.
    """
    text = text.strip()
    if re.fullmatch(r"-?\d+", text):
        note = unit_note(int(text))
        if note is not None:
            complain(f"note: {note}")
        return int(text)
    now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    if text == "now":
        return now_ms
    ago = _milliseconds(text)
    if ago is not None:
        return now_ms - ago
    try:
        # Python 3.10 does not accept Z.
        moment = datetime.datetime.fromisoformat(re.sub(r"[zZ]$", "+00:00", text))
    except ValueError:
        raise RequestError(
            f"invalid time {text!r}: expected now, 2h or 7d (ago), 2026-01-31T12:00:00Z (or with +02:00), "
            "or milliseconds"
        ) from None
    if moment.tzinfo is None:
        raise RequestError(f"time {text!r} has no time zone: add Z or an offset such as +02:00")
    return ms_of(moment) if rounds_down else first_ms(moment)


def parse_duration(text: str) -> float:
    """Return seconds from ``60s``, ``5m``, ``1h`` and the like, in the units of `parse_moment`."""
    milliseconds = _milliseconds(text.strip())
    if milliseconds is None:
        raise RequestError(f"invalid time {text!r}: expected 60s, 5m or 1h")
    return milliseconds / 1000


def _milliseconds(text: str) -> int | None:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)", text)
    return None if match is None else int(float(match[1]) * _UNITS_MS[match[2]])


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON lines, for programs.")
jobs_option = click.option(
    "--jobs",
    "-j",
    type=click.IntRange(min=1),
    metavar="N",
    default=processors,
    help="Threads; default: one per processor.",
)


def size_option(*names: str, help: str, default: str | None = None) -> Callable[[F], F]:
    shown = default is not None
    return click.option(
        *names, callback=parse_with(parse_size), metavar="SIZE", default=default, show_default=shown, help=help
    )


# ---- output ----


def write_stdout(data: Any) -> None:
    """Write all bytes to stdout without the text layer; on a terminal, escape control sequences."""
    if is_terminal(sys.stdout):
        data = printable(bytes(data).decode("utf-8", "surrogateescape")).encode()
    write_as_is(data)


def write_as_is(data: Any) -> None:
    """Write all bytes to stdout without the text layer; they must be safe for a terminal."""
    # Unbuffered (python -u), one call may write only a part: above 2 GiB, or on a full disk.
    with memoryview(data) as left:
        done = sys.stdout.buffer.write(left) or 0
        while done < len(left):
            written = sys.stdout.buffer.write(left[done:])
            if not written:
                raise BlockingIOError(errno.EAGAIN, "stdout would block")
            done += written


def print_json(row: Any) -> None:
    click.echo(json_line(row if type(row) is dict else to_row(row)))


def is_terminal(stream: Any) -> bool:
    try:
        return bool(stream.isatty())
    except (AttributeError, ValueError):
        return False


def print_table(columns: Sequence[str], rows: Sequence[Sequence[Any]], right: Iterable[str] = ()) -> None:
    """Print a table: None as ``-``, the columns in `right` to the right."""
    print_text_table(TextTable(columns, rows, set(right)))


def print_text_table(table: TextTable) -> None:
    """Print a table, with rich on a terminal."""
    if not is_terminal(sys.stdout):
        say(*str(table).split("\n"))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    rich = Table(box=None, pad_edge=False, header_style="bold")
    for name in table.headings:
        rich.add_column(name, justify="right" if name in table.right else "left", no_wrap=True)
    for row in table.texts:
        rich.add_row(*(Text(cell) for cell in row))
    console = Console(file=bare(sys.stdout))
    # Wider than the terminal if needed: a truncated name is useless. With one side unset, a dumb one has 80 columns.
    wanted = console.measure(rich, options=console.options.update(width=10_000)).maximum
    console.size = max(console.width, wanted), console.height
    console.print(rich, soft_wrap=True)


@contextlib.contextmanager
def progress(total_bytes: int, label: str) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on stderr if that is a terminal and the total is not 0.

    Yields what is called with the bytes done since the last call, from any thread.
    """
    if not total_bytes or not is_terminal(sys.stderr):
        yield lambda size: None
        return
    with rich_bar(label) as bar:
        task = bar.add_task(label, total=total_bytes)
        # rich has replaced the streams by its own, which write above the bar.
        streams = sys.stdout, sys.stderr
        sys.stdout, sys.stderr = map(Shown, streams)
        try:
            yield lambda size: bar.advance(task, size)
        finally:
            sys.stdout, sys.stderr = streams


def rich_bar(label: str, redirects: bool = True) -> Any:
    """Return a rich bar on stderr that leaves no trace when stopped, and may redirect other output meanwhile."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    parts = (TextColumn(label), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    console = Console(file=bare(sys.stderr))
    return Progress(*parts, console=console, transient=True, redirect_stdout=redirects, redirect_stderr=redirects)


def remedy(error: PylogsegError) -> str:
    """Return an error's message, with command line options in place of Python's."""
    text = in_shell(str(error)).replace('on_corrupt="skip"', "--on-corrupt skip").replace('"stop" ends', "stop ends")
    text = re.sub(r'\b(key|value)_type="binary"', r"--\1-type binary", text)
    text = text.replace("give schema=", "give --schema").replace(" or registry=", " or --registry")
    text = text.replace("on_undecoded='raw'", "--on-undecoded raw").replace("'skip' leaves", "skip leaves")
    return text.replace('not_utf8="base64" or "null"', "--not-utf8 base64 or null")


def complain(text: object) -> None:
    """Print a message to stderr."""
    say(f"pylogseg: {text}", err=True)


def report_gaps(gaps: Iterable[Gap], *, waits: bool = True) -> bool:
    """Report gaps on stderr, one line each; return whether records are lost by one of them (exit code 1).

    Each part of a file that is gone, or cannot be opened, has a gap: the one line `waits` for the command's end, as
    does the one line for all times that a column cannot hold.
    """
    is_loss, context = False, click.get_current_context()
    if _WAITING not in context.meta:
        context.meta[_WAITING] = []
        context.call_on_close(functools.partial(_print_gaps, context.meta[_WAITING]))
    waiting: list[Gap] = context.meta[_WAITING]
    for gap in gaps:
        is_loss |= gap.is_loss
        is_locked = gap.kind is GapKind.LOCKED
        if is_locked or (gap.kind is GapKind.UNREADABLE and context.params.get("on_corrupt", "raise") == "raise"):
            context.meta[_UNREADABLE] = True
        if gap.is_loss:
            context.meta[DAMAGE] = True
        if (gap.is_of_file or gap.is_of_column) and waits:
            add_gaps(waiting, [gap])
        else:
            _print_gaps([gap])
    return is_loss


def _print_gaps(gaps: Iterable[Gap]) -> None:
    alike: dict[tuple[Any, ...], int] = {}
    for gap in joined_times(gaps):
        label = _LABELS.get(gap.kind, "damage" if gap.is_damage else "note")
        key = label, gap.reason if gap.is_of_file else gap
        alike[key] = alike.get(key, 0) + 1
        if alike[key] <= _NAMED:
            complain(f"{label}: {in_shell(str(gap))}")
    for (label, reason), count in alike.items():
        if count > _NAMED:
            complain(
                f"{label}: {count_text(count - _NAMED, 'more file')} with the same reason: {in_shell(str(reason))}"
            )


def report_lacking(found: Sequence[Finding]) -> bool:
    """Report missing and damaged records, certain or not, on stderr; return True if there are any (code 1)."""
    if not found:
        return False
    from pylogseg.inspect.verify.lacking import DAMAGED, lines_of

    for finding, text in lines_of(found):
        word = "damaged" if finding.kind in DAMAGED else "missing"
        complain(f"{word if finding.is_damage else 'perhaps missing'}: {in_shell(text)}")
    click.get_current_context().meta[DAMAGE] = True
    return True


def end_with_unreadable(errors: Iterable[StorageError | None], damage: bool = False, is_error: bool = False) -> None:
    """Report files that could not be listed or opened on stderr, and end the command: exit code 2 if there are any.

    Also with `is_error`, for what was reported before.
    """
    texts = list(dict.fromkeys(str(error) for error in errors if error is not None))
    for error in texts:
        complain(error)
    if texts or is_error:
        click.get_current_context().exit(2)
    end_with(damage)


def end_with(damage: bool) -> None:
    """End the command: exit code 1 if damage was found, 2 if it is unreadable and was not to be skipped."""
    if damage or is_damage_met():
        context = click.get_current_context()
        context.exit(code_of_damage(context))


def end_with_code(code: int) -> None:
    """End a checking command; `code` is the exit code of its findings."""
    end_with(code == 1)
    if code:
        click.get_current_context().exit(code)


def is_damage_met() -> bool:
    """Check whether damage was reported, also damage without a gap."""
    return bool(click.get_current_context().meta.get(DAMAGE))


def code_of_damage(context: click.Context) -> int:
    return 2 if context.meta.get(_UNREADABLE) else 1


def try_print(print_function: Callable[..., None], *arguments: Any) -> bool:
    """Print something; return False if the pipe is closed (``| head``).

    A command that does more than print goes on then: its exit code still counts.
    """
    try:
        print_function(*arguments)
    except BrokenPipeError:
        forget_output()
        return False
    return True
