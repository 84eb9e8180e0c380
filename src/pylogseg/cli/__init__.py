"""The shell: `pylogseg COMMAND PATH... NAME...`.

Commands are loaded when they are called, so that help and errors come at once. click and rich are imported only in this
package. What a command means for the exit code is the same everywhere: see `_EPILOG`.
"""

from __future__ import annotations

import logging
import os
import sys
from importlib import import_module
from typing import Any

import click

from pylogseg import __version__
from pylogseg.errors import CorruptionError, PylogsegError
from pylogseg.format.escape import printable

# Name -> where the command is, and its line in the help: which must not cost an import of the command.
_COMMANDS = {
    "ls": ("pylogseg.cli.ls:ls", "Topics, partitions and segments: offsets, sizes, times, state."),
    "cat": ("pylogseg.cli.cat:cat", "Records as JSON lines, CSV or by a template; ranges, tail, follow."),
    "latest": ("pylogseg.cli.latest:latest", "The last value of each key, as compaction would leave it."),
    "grep": ("pylogseg.cli.grep:grep", "Records that hold a text, a regular expression or bytes."),
    "dump": ("pylogseg.cli.dump:dump", "Any file of a broker's disk: batches, entries, fields."),
    "verify": ("pylogseg.cli.verify:verify", "Check headers, CRCs, records and indexes."),
    "recover": (
        "pylogseg.cli.recover:recover",
        "Put a log directory in order after a crash; cut off, report, keep copies.",
    ),
    "compact": ("pylogseg.cli.compact:compact", "Keep the last record of each key, without a broker."),
    "retain": ("pylogseg.cli.retain:retain", "Delete the oldest segments: by age, size, offset or time."),
    "delete-records": (
        "pylogseg.cli.delete_records:delete_records",
        "Let logs begin later, as kafka-delete-records.sh does.",
    ),
    "copy": ("pylogseg.cli.copy:copy", "A consistent copy of a partition or directory while a broker writes to it."),
    "move": ("pylogseg.cli.move:move", "Partitions to another disk of a broker that is stopped."),
    "truncate": ("pylogseg.cli.truncate:truncate", "Let a partition end at an offset, as a broker's truncation does."),
    "reindex": ("pylogseg.cli.reindex:reindex", "Rebuild indexes, snapshots and leader epochs from the log."),
    "diff": ("pylogseg.cli.diff:diff", "Two partitions or directories: missing, changed and extra records."),
    "redact": ("pylogseg.cli.redact:redact", "Delete or blank records by key, header or pattern, everywhere."),
    "recode": ("pylogseg.cli.recode:recode", "Another codec or level, magic 0 and 1 to 2, small batches merged."),
    "repair": ("pylogseg.cli.repair:repair", "Cut damage out of logs, and keep the good batches after it."),
    "stats": ("pylogseg.cli.stats:stats", "Batches, codecs, sizes, keys, producers, and gaps explained."),
    "export": ("pylogseg.cli.export:export", "Records to Parquet, Arrow, CSV or JSON lines, by topic and partition."),
    "restore": ("pylogseg.cli.restore:restore", "Partitions from a backup or an export into a log directory."),
}

_EPILOG = """\b
Paths are log directories, folders of them, partition folders, files, globs or
URLs (s3://..., with an extra installed); words without a slash after the first
path are names, as on the broker: a topic (orders), a partition (orders-3) or a
pattern ('orders-*').

\b
  pylogseg ls /data/kafka
  pylogseg cat /data/kafka orders-3 --tail 10

\b
Exit codes: 0 fine; 1 damage was found (grep: nothing was found);
2 wrong usage, or the disk failed; 130 interrupted. A reader that goes away
(| head) is no error.
"""


class Shown:
    """A text stream that shows what a terminal would act on, and what cannot be encoded, as escapes.

    Names of folders, bytes of small files and arguments stand in what is said, and anybody may have written them.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, written: str) -> int:
        """Write text."""
        if not isinstance(written, str):
            raise TypeError(f"text is written, not {type(written).__name__}")
        shown = printable(written)
        self._stream.write(shown.encode(self.encoding, "backslashreplace").decode(self.encoding))
        return len(written)

    @property
    def encoding(self) -> str:
        """Never None, as rich's stream has it: click would write past a stream without one."""
        return getattr(self._stream, "encoding", None) or "utf-8"

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class LazyCommands(click.Group):
    """A group whose commands are imported when they are called, and which turns errors into a line and an exit code."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of the help."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        if cmd_name not in _COMMANDS:
            return None
        module, _, name = _COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(import_module(module), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands, without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in _COMMANDS.items()])

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run a command line; all that is said goes through `Shown`."""
        before = sys.stdout, sys.stderr
        sys.stdout, sys.stderr = (None if stream is None else Shown(stream) for stream in before)
        try:
            return super().main(*args, **extra)
        finally:
            sys.stdout, sys.stderr = before

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; what goes wrong becomes one line on stderr and an exit code."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except PylogsegError as error:
            # Outcomes of one kind of error are the same in every command.
            from pylogseg.cli.common import remedy

            _complain(remedy(error))
            ctx.exit(1 if isinstance(error, CorruptionError) else 2)
        except BrokenPipeError:
            forget_output()
            from pylogseg.cli.common import DAMAGE, code_of_damage

            ctx.exit(code_of_damage(ctx) if ctx.meta.get(DAMAGE) else 0)
        except MemoryError as error:
            _complain(f"out of memory: {error or 'nothing more could be allocated'}")
            ctx.exit(2)
        except OverflowError as error:
            _complain(f"a number is too large: {error}")
            ctx.exit(2)
        except KeyboardInterrupt:
            ctx.exit(130)
        except OSError as error:  # of files that a command writes; reading raises StorageError
            _complain(f"{error.filename}: {error.strerror}" if error.filename else str(error))
            ctx.exit(2)


def _complain(message: str) -> None:
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        forget_output()
    click.echo(f"pylogseg: {message}", err=True)


def forget_output() -> None:
    """Let what is still buffered go nowhere: the interpreter flushes once more when it ends."""
    try:
        descriptor = sys.stdout.fileno()
    except (OSError, ValueError):
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


@click.group(
    cls=LazyCommands,
    epilog=_EPILOG,
    # Else click takes escape sequences out where there is no terminal: a name would be another one. `Shown` has them.
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100, "color": True},
)
@click.version_option(__version__, message="%(prog)s %(version)s")
def shell() -> None:
    """Read Kafka's log directories: no broker, no JVM."""
    # Gaps are reported by the commands; without a handler logging would print them a second time.
    logging.getLogger("pylogseg").addHandler(logging.NullHandler())


def main() -> None:
    """Entry point of the `pylogseg` script; ends the process."""
    if sys.stdout is None:  # closed by the caller: nothing would be said, and all would look well
        _complain("stdout is closed")
        sys.exit(2)
    try:
        shell(prog_name="pylogseg")
    except OSError as error:  # of click's own output: help and versions
        _complain(str(error))
        sys.exit(2)
