"""The jobs as commands: `python -m pylogseg.spark COMMAND`, and the same for `spark-submit`."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import click

from pylogseg._version import __version__
from pylogseg.cli import common
from pylogseg.cli.tiers import keys_option, tier_of_command, tier_option
from pylogseg.disk.tier.urls import is_tier
from pylogseg.errors import PylogsegError, RequestError
from pylogseg.spark import _compat

F = TypeVar("F", bound=Callable[..., Any])

_EPILOG = """\b
PATH is a log directory, a folder of log directories, a partition folder, a file
or a URL, also of tiered storage; the workers must see it under the same name. A NAME is a topic (orders),
a partition (orders-3) or a pattern ('orders-*').

\b
  python -m pylogseg.spark verify /data/kafka
  python -m pylogseg.spark --master spark://host:7077 export /data/kafka /lake/kafka
  python -m pylogseg.spark restore /lake/kafka /restored --dry-run
  python -m pylogseg.spark restore aiven+s3://bucket/prefix /data/kafka orders
  spark-submit --master yarn .../pylogseg/spark/__main__.py stats /data/kafka

\b
Results are tables; --json prints one JSON line per row. Exit codes: 0 success;
1 damage or differences found, a partition failed, or grep found nothing;
2 wrong usage, or a job failed; 130 interrupted.
"""
_DRY_RUN = "Show what would be done, and write nothing."


class _Commands(click.Group):
    """Turns errors, including those of tasks, into one line and an exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except PylogsegError as error:
            kind, message = type(error).__name__, common.remedy(error)
        except KeyboardInterrupt:
            ctx.exit(130)
        except (click.ClickException, click.exceptions.Exit):
            raise
        except Exception as error:
            cause = _compat.cause_of(error)
            if cause is None:
                raise
            kind, message = cause
        click.echo(f"pylogseg: {message}", err=True)
        ctx.exit(1 if kind in ("CorruptionError", "IncompleteError") else 2)


@click.group(cls=_Commands, epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="%(prog)s %(version)s")
@click.option(
    "--master",
    metavar="URL",
    help="Where to run: local[4], spark://..., sc://... Default: that of spark-submit or SPARK_HOME, else local[*].",
)
@click.option(
    "--conf", "-c", multiple=True, metavar="NAME=VALUE", help="Set a configuration property of Spark; repeatable."
)
@click.pass_context
def shell(ctx: click.Context, master: str | None, conf: tuple[str, ...]) -> None:
    """Check, count, search, export and rewrite whole directories of Kafka segments on Spark, without a broker."""
    settings = dict(_setting("--conf", text) for text in conf)
    ctx.obj = lambda: _session(master, settings)


def _setting(option: str, text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign:
        raise RequestError(f"{option} {text!r}: expected NAME=VALUE")
    return name.strip(), value.strip()


@contextlib.contextmanager
def _session(master: str | None, settings: dict[str, str]) -> Iterator[Any]:
    """Open a session, and stop it with the command."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("pylogseg")
    defaults = {"spark.ui.showConsoleProgress": "false", "spark.log.level": "ERROR"}
    if master is not None and master.startswith("sc://"):
        builder, defaults = builder.remote(master), {}  # Spark Connect: these are the server's
    elif master is not None:
        builder = builder.master(master)
    for name, value in {**defaults, **settings}.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    try:
        yield session
    finally:
        session.stop()


def _job(function: F) -> F:
    """Add the options of all jobs."""
    return common.decorated(function, [common.json_option, click.pass_obj])


def _reading(function: F) -> F:
    """Add the options of the jobs that read tiers."""
    return common.decorated(function, [tier_option, keys_option, _job])


def _rewriting(function: F) -> F:
    """Add the options of the jobs that rewrite partitions."""
    add = [
        click.option("--overwrite", is_flag=True, help="Overwrite partitions in OUT."),
        click.option("--dry-run", is_flag=True, help=_DRY_RUN),
        _job,
    ]
    return common.decorated(function, add)


@shell.command(short_help="Check logs, indexes and small files for damage.")
@click.argument("path")
@click.argument("names", nargs=-1, metavar="[NAME...]")
@click.option(
    "--level",
    type=click.Choice(["headers", "crc", "records", "indexes"]),
    default="indexes",
    show_default=True,
    help="How much to check; each level includes those before it.",
)
@_reading
def verify(session: Any, path: str, names: tuple[str, ...], level: str, as_json: bool) -> None:
    """Check logs, indexes and small files for damage, as `pylogseg verify`."""
    from pylogseg.cli.verify import print_finding, print_summary
    from pylogseg.inspect.verify.disk import Summary
    from pylogseg.inspect.verify.findings import Level
    from pylogseg.spark.jobs.checking import verified

    summary = Summary(Level[level.upper()])
    with session() as spark:
        findings = verified(spark, path, names, summary, tier=tier_of_command())
    for finding in findings:
        print_finding(finding, as_json)
    print_summary(summary, as_json, False)
    common.end_with_code(summary.exit_code)


@shell.command(short_help="Count batches, records, keys, bytes; explain gaps.")
@click.argument("path")
@click.argument("names", nargs=-1, metavar="[NAME...]")
@click.option(
    "--by",
    type=click.Choice(["partition", "topic", "all", "hour", "key"]),
    default="partition",
    show_default=True,
    help="Print one row for each of these; hour and key count records and bytes within each topic.",
)
@click.option(
    "--top", type=click.IntRange(min=1), metavar="N", help="With --by key: only the N keys with the most records."
)
@_reading
def stats(session: Any, path: str, names: tuple[str, ...], by: str, top: int | None, as_json: bool) -> None:
    """Count batches, records, keys and bytes; show dirty ratio, rates by hour, and why offsets are missing."""
    from pylogseg.spark.jobs.counting import stats_and_notes

    notes: list[str] = []
    with session() as spark:
        frame = stats_and_notes(spark, path, names or None, notes, by, top=top or 0, tier=tier_of_command())
        _print(frame if as_json or by in ("hour", "key") else frame.drop("detail"), as_json)
    for note in notes:
        common.complain(f"not known: {note}")
    common.end_with(bool(notes))


@shell.command(short_help="Show what is on a disk, as one HTML page.")
@click.argument("path")
@click.argument("names", nargs=-1, metavar="[NAME...]")
@click.option("--output", "-o", required=True, metavar="FILE", help="Write the page to FILE, on this machine.")
@click.option("--overwrite", is_flag=True, help="Replace FILE if it exists.")
@click.option("--full", is_flag=True, help="Read and check every byte, instead of headers and a sample.")
@click.option("--sample", type=click.IntRange(min=0), default=0, metavar="N", help="Show N records of each partition.")
@_reading
def report(
    session: Any,
    path: str,
    names: tuple[str, ...],
    output: str,
    overwrite: bool,
    full: bool,
    sample: int,
    as_json: bool,
) -> None:
    """Show what is on a disk and what is wrong with it, as `pylogseg report`; --json prints the facts too."""
    from pathlib import Path

    from pylogseg.cli.outputs import check_free
    from pylogseg.spark import jobs

    check_free(Path(output), overwrite)
    with session() as spark:
        found = jobs.report(spark, path, names or None, full=full, sample=sample, tier=tier_of_command())
    found.write(output)
    if as_json:
        common.print_json(found.to_dict())
    else:
        click.echo(found.facts.verdict)
        click.echo(output)
    common.end_with_code(found.exit_code)


@shell.command(short_help="Find records by text or regular expression.")
@click.argument("pattern")
@click.argument("path")
@click.option("--subscribe", "-t", metavar="A,B", help="Search only these topics; default: all.")
@click.option("--regex", "-E", is_flag=True, help="PATTERN is a regular expression on bytes.")
@click.option("--ignore-case", "-i", is_flag=True, help="Ignore case.")
@click.option("--invert", "-v", is_flag=True, help="Select the records that do not match.")
@click.option(
    "--in",
    "places",
    default="key,value",
    show_default=True,
    metavar="A,B",
    help="Where to search: key, value, headers.",
)
@click.option("--out", metavar="FOLDER", help="Write the records to FOLDER as Parquet instead of printing them.")
@_reading
def grep(
    session: Any,
    pattern: str,
    path: str,
    subscribe: str | None,
    regex: bool,
    ignore_case: bool,
    invert: bool,
    places: str,
    out: str | None,
    as_json: bool,
) -> None:
    """Find records that contain a text or match an expression. Exit code 1 if there are none."""
    from pylogseg.spark import jobs

    given = {"subscribe": subscribe, "tier": tier_of_command()}
    options = {name: value for name, value in given.items() if value is not None}
    with session() as spark:
        found = jobs.grep(
            spark,
            path,
            pattern,
            regex=regex,
            ignore_case=ignore_case,
            invert=invert,
            places=[place.strip() for place in places.split(",")],
            **options,
        )
        if out is not None:
            found.write.parquet(out)
            is_found = not spark.read.parquet(out).isEmpty()
        else:
            is_found = _print(found, as_json) > 0
    common.end_with(not is_found)


@shell.command(short_help="Export records as Parquet, by topic and day.")
@click.argument("path")
@click.argument("out")
@click.argument("names", nargs=-1, metavar="[NAME...]")
@click.option(
    "--columns", metavar="A,B", help="Columns of the table; default: all fields of a record, and the partition."
)
@click.option(
    "--compression", default="zstd", show_default=True, help="Codec of the files: zstd, snappy, gzip, lz4 or none."
)
@click.option(
    "--since",
    metavar="TIME",
    callback=common.parsed(common.parse_moment),
    help="Start: 2h (ago), 2026-01-31T12:00:00Z.",
)
@click.option("--until", metavar="TIME", callback=common.parsed(common.parse_moment), help="End, exclusive.")
@common.isolation_option
@common.on_corrupt_option()
@click.option(
    "--drop-deleted", is_flag=True, help="Also delete records from the table that retention removed from the log."
)
@click.option("--overwrite", is_flag=True, help="Delete everything that earlier runs wrote to OUT first.")
@click.option("--dry-run", is_flag=True, help=_DRY_RUN)
@_reading
def export(
    session: Any, path: str, out: str, names: tuple[str, ...], columns: str | None, as_json: bool, **options: Any
) -> None:
    """Export records as Parquet to OUT/topic=NAME/date=DAY; unchanged files are skipped."""
    from pylogseg.spark import jobs

    options["keep_deleted"], options["tier"] = not options.pop("drop_deleted"), tier_of_command()

    if columns is not None:
        options["columns"] = [name.strip() for name in columns.split(",")]
    with session() as spark:
        done = jobs.export(spark, path, out, names or None, **options)
        _print(done if as_json else done.drop("problem"), as_json)
        problems = [row.problem for row in done.filter("problem is not null").select("problem").distinct().collect()]
        partial = done.filter("problem is not null and state != 'gone'").count() > 0
    for problem in problems:
        click.echo(f"pylogseg: {problem}", err=True)
    common.end_with(partial)


@shell.command(short_help="Write Parquet files, or a tier, back as partitions.")
@click.argument("source")
@click.argument("path")
@click.argument("names", nargs=-1, metavar="[NAME...]")
@click.option(
    "--option",
    "-o",
    multiple=True,
    metavar="NAME=VALUE",
    help="Of a table, set an option of the write: offsets=assign, compression=zstd, topic=...; repeatable.",
)
@click.option("--overwrite", is_flag=True, help="Overwrite existing partitions.")
@click.option("--force", is_flag=True, help="Restore also what is known to lack records.")
@click.option(
    "--committed", is_flag=True, help="Confirm that all records of the table were committed (exported read_committed)."
)
@click.option(
    "--without-transactions", is_flag=True, help="Leave out records of transactions; needs the column isTransactional."
)
@tier_option
@keys_option
@click.option(
    "--partition",
    "-p",
    "partitions",
    multiple=True,
    type=int,
    metavar="N",
    help="From a tier: only partition N; repeatable.",
)
@click.option(
    "--cluster-metadata",
    metavar="FOLDER",
    help="From a tier: the __cluster_metadata-0 folder with the topic ids; default: the one in PATH.",
)
@common.tier_end_options
@click.option(
    "--on-corrupt",
    type=click.Choice(["raise", "skip"]),
    default="raise",
    show_default=True,
    help="From a tier: at damage a partition fails, or all of it but what is damaged or missing is restored.",
)
@common.arrival_options
@click.option("--dry-run", is_flag=True, help=_DRY_RUN)
@_job
def restore(
    session: Any, source: str, path: str, names: tuple[str, ...], option: tuple[str, ...], as_json: bool, **rest: Any
) -> None:
    """Write SOURCE as partitions to PATH: Parquet files, all of them or none; or a tier, one task per partition."""
    from pylogseg.spark import jobs
    from pylogseg.tables.export.notes import lacking_of

    shared = {name: rest.pop(name) for name in ("overwrite", "force", "dry_run")}
    of_table = {name: rest.pop(name) for name in ("committed", "without_transactions")}
    if is_tier(source) or tier_of_command() is not None:
        if option or any(of_table.values()):
            raise RequestError(f"{source}: no table; logs come byte for byte, and none of its options apply")
        _restore_tier(session, source, path, names, as_json, **shared, **rest)
        return
    if rest.pop("on_corrupt") != "raise" or names or any(value not in (None, (), False) for value in rest.values()):
        raise RequestError(f"{source}: only what comes from tiered storage is restored in part")
    options: dict[str, Any] = dict(_setting("--option", text) for text in option)
    with session() as spark:
        _print(jobs.restore(spark, source, path, **shared, **of_table, **options), as_json)
    common.end_with(common.report_lacking(lacking_of(source)))


def _restore_tier(
    session: Any,
    source: str,
    path: str,
    names: tuple[str, ...],
    as_json: bool,
    *,
    to: int | None,
    until: int | None,
    **options: Any,
) -> None:
    from pylogseg.offline.restoring.tier import Until
    from pylogseg.spark.jobs.restoring_tier import restored
    from pylogseg.spark.jobs.results import frame_of

    end = None if to is None and until is None else Until(to, until)
    with session() as spark:
        result = restored(spark, source, path, names, tier=tier_of_command(), until=end, **options)
        frame = frame_of(spark, result)
        _print(frame if as_json else frame.drop("detail"), as_json)
    common.report_lacking(result.lacking)
    of_partitions = [] if as_json else [f"{each.name}: {note}" for each in result for note in each.notes]
    for note in [*of_partitions, *result.notes]:
        click.echo(note, err=True)
    click.get_current_context().exit(result.exit_code)


@shell.command(short_help="Keep the last record of each key, in a copy.")
@click.argument("path")
@click.argument("out")
@click.argument("names", nargs=-1, metavar="[NAME...]")
@click.option("--force", is_flag=True, help="Also compact topics whose cleanup.policy does not contain compact.")
@click.option(
    "--include-active", is_flag=True, help="Roll the active segment first, so that its records are compacted too."
)
@_rewriting
def compact(session: Any, path: str, out: str, names: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Keep the last record of each key, as `pylogseg compact --into OUT`, with one task per partition."""
    from pylogseg.spark import jobs

    with session() as spark:
        _print_results(jobs.compact(spark, path, out, names or None, **options), as_json)


@shell.command(short_help="Delete the records of keys, in a copy.")
@click.argument("path")
@click.argument("out")
@click.argument("names", nargs=-1, metavar="[NAME...]")
@click.option(
    "--key",
    "-k",
    "keys",
    multiple=True,
    required=True,
    metavar="KEY",
    help="Delete the records of this key; repeatable.",
)
@_rewriting
def redact(session: Any, path: str, out: str, names: tuple[str, ...], keys: tuple[str, ...], **options: Any) -> None:
    """Delete the records of keys, as `pylogseg redact --into OUT`, with one task per partition."""
    from pylogseg.spark import jobs

    as_json = options.pop("as_json")
    encoded = [key.encode("utf-8", "surrogateescape") for key in keys]
    with session() as spark:
        _print_results(jobs.redact(spark, path, out, names or None, keys=encoded, **options), as_json)


@shell.command(short_help="Compare two directories, or one and a table.")
@click.argument("a")
@click.argument("b")
@click.argument("names", nargs=-1, metavar="[NAME...]")
@keys_option
@_job
def diff(session: Any, a: str, b: str, names: tuple[str, ...], as_json: bool) -> None:
    """Compare two directories, or a directory A and an exported table B; exit code 1 if their records differ."""
    from pylogseg.spark import jobs

    with session() as spark:
        found = jobs.diff(spark, a, b, names or None).cache()
        differ = found.filter("not same").count()
        _print(found if as_json else found.drop("detail"), as_json)
    click.get_current_context().exit(int(differ > 0))


def _print_results(frame: Any, as_json: bool) -> None:
    """Print results of partitions; exit code 1 if one failed."""
    _print(frame if as_json else frame.drop("detail"), as_json)
    common.end_with(frame.filter("state = 'failed'").count() > 0)


def _print(frame: Any, as_json: bool) -> int:
    """Print the rows of a DataFrame; return their number."""
    names: Sequence[str] = frame.columns
    if as_json:
        count = 0
        for count, row in enumerate(frame.toLocalIterator(), 1):  # noqa: B007
            click.echo(json.dumps(row.asDict(recursive=True), default=_plain, ensure_ascii=False))
        return count
    rows = [[_shown(value) for value in row] for row in frame.collect()]
    common.print_table([name.upper() for name in names], rows)
    click.echo(f"{len(rows)} rows", err=True)
    return len(rows)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime.datetime):
        return value.isoformat()
    return bytes(value).decode("utf-8", "backslashreplace")


def _shown(value: Any) -> Any:
    if isinstance(value, float):
        return f"{value:.3f}"
    return value if value is None or isinstance(value, (int, str)) else _plain(value)


def main() -> None:
    """Run a command; ends the process."""
    shell(prog_name="python -m pylogseg.spark")
