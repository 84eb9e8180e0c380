"""The command line: `pylogseg COMMAND PATH... NAME...`.

A command is imported only when it is called, so that help and errors appear at once. Only this package imports click
and rich. All commands share the exit codes in `_EPILOG`.
"""

from __future__ import annotations

import difflib
import errno
import logging
import os
import sys
from importlib import import_module
from typing import Any

import click

from pylogseg._version import __version__
from pylogseg.cli.streams import PrintedWarnings, Shown, forget_output, say
from pylogseg.env.garbage import freeze_imports
from pylogseg.env.interrupts import held_back
from pylogseg.errors import CorruptionError, PylogsegError, StorageError

# Name -> module and function, and the line of the help, which is shown without importing the command.
_COMMANDS = {
    "ls": ("pylogseg.cli.ls:ls", "List topics, partitions and segments: offsets, sizes, times, state."),
    "cat": ("pylogseg.cli.cat:cat", "Print records as JSON lines, as CSV or with a template; ranges, tail, follow."),
    "latest": ("pylogseg.cli.latest:latest", "Print the last value of each key, as compaction would leave it."),
    "grep": ("pylogseg.cli.grep:grep", "Search records for text, a regular expression or bytes."),
    "sql": ("pylogseg.cli.sql:sql", "Ask questions in SQL: each topic is a table (duckdb)."),
    "dump": ("pylogseg.cli.dump:dump", "Decode any file of a broker's disk: batches, entries, fields."),
    "verify": ("pylogseg.cli.verify:verify", "Check headers, CRCs, records and indexes."),
    "recover": (
        "pylogseg.cli.recover:recover",
        "Recover a log directory after a crash; report the cuts, and keep copies.",
    ),
    "compact": ("pylogseg.cli.compact:compact", "Keep the last record of each key, without a broker."),
    "retain": ("pylogseg.cli.retain:retain", "Delete the oldest segments: by age, size, offset or time."),
    "delete-records": (
        "pylogseg.cli.delete_records:delete_records",
        "Raise the log start offset, like kafka-delete-records.sh.",
    ),
    "copy": ("pylogseg.cli.copy:copy", "Copy a partition or log directory consistently while a broker writes to it."),
    "merge": ("pylogseg.cli.merge:merge", "Merge the disks of several brokers of a cluster into one log directory."),
    "move": ("pylogseg.cli.move:move", "Move partitions to another disk of a stopped broker."),
    "truncate": ("pylogseg.cli.truncate:truncate", "Truncate a partition to an offset, as a broker does."),
    "reindex": ("pylogseg.cli.reindex:reindex", "Rebuild indexes, snapshots and leader epochs from the log."),
    "diff": ("pylogseg.cli.diff:diff", "Compare two partitions or directories: missing, changed and extra records."),
    "redact": ("pylogseg.cli.redact:redact", "Delete or blank records by key, header or pattern in every segment."),
    "recode": (
        "pylogseg.cli.recode:recode",
        "Change the codec or level, convert magic 0 and 1 to 2, merge small batches.",
    ),
    "repair": (
        "pylogseg.cli.repair:repair",
        "Cut damage out of logs, and with --keep-behind keep the good batches after it.",
    ),
    "stats": ("pylogseg.cli.stats:stats", "Count batches, codecs, sizes, keys and producers; explain missing offsets."),
    "report": ("pylogseg.cli.report:report", "Write one HTML page about a disk: its contents, and its faults."),
    "groups": ("pylogseg.cli.groups:groups", "List consumer groups: state, members, offsets, lag."),
    "transactions": ("pylogseg.cli.transactions:transactions", "List transactions, and find hanging ones."),
    "cluster": (
        "pylogseg.cli.cluster:cluster",
        "Print a cluster's topics, partitions, settings, brokers, ACLs, quotas and users.",
    ),
    "quorum": (
        "pylogseg.cli.quorum:quorum_commands",
        "Compare controllers' metadata logs, and start a quorum again that lost its majority.",
    ),
    "schemas": ("pylogseg.cli.schemas:schemas", "List the schemas of a registry, from its topic."),
    "serve": ("pylogseg.cli.serve:serve", "Serve log directories to any Kafka client, read-only."),
    "broker": ("pylogseg.cli.broker:broker", "Run a broker of one node, on a directory or in memory."),
    "export": (
        "pylogseg.cli.export:export",
        "Export records to Parquet, Arrow, CSV or JSON lines, by topic and partition.",
    ),
    "audit": (
        "pylogseg.cli.audit:audit",
        "Check a table that was fed from Kafka: missing, double and changed records.",
    ),
    "lake": ("pylogseg.cli.lake:lake", "Write topics to tables of a lakehouse, each record once."),
    "archive": ("pylogseg.cli.archive:archive", "Back up brokers' disks, each segment once, with points in time."),
    "restore": ("pylogseg.cli.restore:restore", "Restore partitions from a backup or an export into a log directory."),
    "drill": ("pylogseg.cli.drill:drill", "Try the restore of an archive, and write the evidence."),
}

_EPILOG = """\b
A path is a log directory, a folder of log directories, a partition folder, a
file, a glob or a URL (s3://..., with an extra installed; kafka://HOST:PORT/TOPIC
is a running cluster). After the first path,
a word without a slash is a name, as on the broker: a topic (orders), a
partition (orders-3) or a pattern ('orders-*').

\b
  pylogseg ls /data/kafka
  pylogseg cat /data/kafka orders-3 --tail 10

\b
Exit codes: 0 success; 1 damage was found (grep: nothing was found; diff: the
sides differ; audit: the table is wrong; commands that change a log directory:
a partition failed, or one that was named was skipped); 2 wrong usage or a disk
error; 130 interrupted.
A closed pipe (| head) is not an error.
"""


#: One handler for all calls in a process: logging prints a warning once for each.
_WARNINGS = PrintedWarnings(logging.WARNING)
#: Operations of a `StorageError` that do not write.
_READING = ("read", "open", "list", "stat")


class LazyCommands(click.Group):
    """A group that imports a command when it is called, and turns errors into one line and an exit code."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the help."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module, _, name = _COMMANDS[cmd_name][0].partition(":")
        with held_back(), freeze_imports():
            command: click.Command = getattr(import_module(module), name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command. A misspelt name is answered with the nearest ones, an option behind it with its place."""
        if args and args[0] not in _COMMANDS and not args[0].startswith("-"):
            near = difflib.get_close_matches(args[0], _COMMANDS, 3)
            ctx.fail(f"no such command {args[0]!r}" + (f": did you mean {' or '.join(near)}?" if near else ""))
        name, command, rest = super().resolve_command(ctx, args)
        is_own = command is not None and any("--cluster" in param.opts for param in command.params)
        if "--cluster" in rest and "--" not in rest and not is_own:
            ctx.fail(f"--cluster stands before the command: pylogseg --cluster FILE {name} ...")
        return name, command, rest

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in _COMMANDS.items()])

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run a command line; all output goes through `Shown`."""
        before = sys.stdout, sys.stderr
        sys.stdout, sys.stderr = (None if stream is None else Shown(stream) for stream in before)
        try:
            return super().main(*args, **extra)
        except SystemExit as end:
            # In front of a command and behind it, click ends with 1, which stands for damage here.
            if isinstance(end.__context__, click.Abort) and isinstance(end.__context__.__context__, KeyboardInterrupt):
                raise SystemExit(130) from None
            raise
        finally:
            sys.stdout, sys.stderr = before

    def _advice(self, ctx: click.Context, error: BaseException) -> str:
        """Return the remedy if the system refused a write."""
        operation = error.operation if isinstance(error, StorageError) else "write"
        if not _may_not(error) or operation in _READING:
            return ""
        is_mount = isinstance(error, OSError) and error.errno == errno.EROFS
        if operation != "lock":
            where = "on a file system that is not read-only" if is_mount else "in which this user may create files"
            return f"; choose a folder {where}"
        command = self.get_command(ctx, ctx.invoked_subcommand or "")
        has = {param.name for param in command.params} if command is not None else set()
        copy = ", or work on a copy: --into FOLDER" if "into" in has else ""
        look = ", or see its changes first: --dry-run" if is_mount and "dry_run" in has else ""
        way = "mount the file system writable" if is_mount else "run the command as the user who owns the files"
        return f"; {way}{copy}{look}"

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; an error becomes one line on stderr and an exit code."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except PylogsegError as error:
            # An error class has the same exit code in every command.
            from pylogseg.cli.common import remedy

            _complain(remedy(error) + self._advice(ctx, error))
            ctx.exit(1 if isinstance(error, CorruptionError) else 2)
        except BrokenPipeError:
            forget_output()
            from pylogseg.cli.common import DAMAGE, code_of_damage

            ctx.exit(code_of_damage(ctx) if ctx.meta.get(DAMAGE) else 0)
        except MemoryError as error:
            _complain(f"out of memory: {error or 'an allocation failed'}")
            ctx.exit(2)
        except RuntimeError as error:
            if str(error) != "can't start new thread":
                raise
            _complain("the system starts no more threads: give the process more memory or processes, or use --jobs 1")
            ctx.exit(2)
        except OverflowError as error:
            _complain(f"a number is too large: {error}")
            ctx.exit(2)
        except KeyboardInterrupt:
            ctx.exit(130)
        except OSError as error:  # of files that a command writes; reading raises StorageError
            _complain(_not_written(error) + self._advice(ctx, error))
            ctx.exit(2)


def _may_not(error: BaseException) -> bool:
    """Check whether the system forbade an operation."""
    return isinstance(error, OSError) and error.errno in (errno.EACCES, errno.EPERM, errno.EROFS)


def _not_written(error: OSError) -> str:
    """Return the message for failed output; files are named, so an error without a name is stdout's."""
    return f"{error.filename or 'stdout'}: cannot write: {error.strerror or error}"


def _complain(message: str) -> None:
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        forget_output()
    say(f"pylogseg: {message}", err=True)


def _print_version(context: click.Context, _: click.Parameter, is_asked: bool) -> None:
    if not is_asked or context.resilient_parsing:
        return
    click.echo(f"pylogseg {__version__}")
    if context.params["verbose"]:
        from pylogseg.cli.versions import lines  # packages are looked up by modules that no other command needs

        for line in lines():
            click.echo(line)
    context.exit()


@click.group(
    cls=LazyCommands,
    epilog=_EPILOG,
    # Without color, click strips escape sequences for pipes, which changes names. `Shown` escapes them.
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100, "color": True},
)
@click.option("--verbose", is_flag=True, is_eager=True, help="With --version: also show Python and the packages.")
@click.option(
    "--cluster",
    type=click.Path(exists=True, dir_okay=False),
    envvar="PYLOGSEG_CLUSTER",
    metavar="FILE",
    help="Client properties, of Java or librdkafka, for kafka:// paths: addresses, TLS and login.",
)
@click.option("--version", is_flag=True, expose_value=False, callback=_print_version, help="Show the version and exit.")
def shell(verbose: bool, cluster: str | None) -> None:
    """Read and repair Kafka's log directories, without a broker or a JVM."""
    if cluster is not None:
        os.environ["PYLOGSEG_CLUSTER"] = os.path.abspath(cluster)  # also for worker processes
    # The commands report gaps; without a handler, logging would print them a second time.
    logging.getLogger("pylogseg").addHandler(logging.NullHandler())
    logging.getLogger("pylogseg.live").addHandler(_WARNINGS)


def run_command_line() -> None:
    """Run the command line of this process, and end it."""
    if sys.stdout is None:  # closed by the caller: without this, no output would look like success
        _complain("stdout is closed")
        sys.exit(2)
    # Before numpy is loaded: its library for matrices, which no command needs, has a thread for each processor, and
    # each of them spins for a while before it sleeps.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        shell(prog_name="pylogseg")
    except OSError as error:  # from click's own output: help and version
        _complain(_not_written(error))
        sys.exit(2)
