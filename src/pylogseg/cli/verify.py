"""`pylogseg verify`: check logs, indexes and small files for damage."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import click

from pylogseg.archive.verifying import ArchiveSummary, ReadObjects, is_archive_at, verify_archive
from pylogseg.cli.common import (
    end_with_code,
    json_option,
    print_json,
    progress,
    select,
    selection_options,
    try_print,
)
from pylogseg.cli.options import decompressed_option
from pylogseg.cli.outcomes import print_part
from pylogseg.cli.streams import say
from pylogseg.cli.workers import Workers, workers_option
from pylogseg.disk.choice import PartitionChoice
from pylogseg.disk.disk import Disk, Partition
from pylogseg.disk.listing import open_dir
from pylogseg.errors import RequestError
from pylogseg.format.codec_error import in_shell
from pylogseg.format.columns import to_row
from pylogseg.format.names import FileKind
from pylogseg.inspect.verify import disk as verify_disk
from pylogseg.inspect.verify.disk import VerifySummary
from pylogseg.inspect.verify.findings import Finding, Level
from pylogseg.values.internal.remote import TOPIC as REMOTE_METADATA

_EPILOG = """\b
Examples:
  pylogseg verify /data/kafka                     all that is in a log directory
  pylogseg verify /data/kafka orders              one topic
  pylogseg verify /data/kafka --level headers     fast: only headers of batches
  pylogseg verify 00000000000000000000.log        one file
  pylogseg verify /data/kafka --json              a line for each finding
  pylogseg verify aiven+s3://bucket/prefix        tiered storage
  pylogseg verify aiven+s3://bucket/archive --read-all
                                                  an archive: all of its points
  pylogseg verify /data/kafka --tier aiven+s3://bucket/prefix
                                                  a disk and its tier as one

\b
Exit codes: 0 no damage; 1 damage was found, or the disk could not read a file;
2 wrong usage, another disk error, or no damage was found, but a key for the rest
is missing, or the files cannot tell whether records are missing; 130
interrupted. A closed pipe is not an error.
"""


@click.command(epilog=_EPILOG)
@selection_options
@click.option(
    "--level",
    type=click.Choice([level.name.lower() for level in Level]),
    default="indexes",
    show_default=True,
    help="The checks; each level includes the levels before it.",
)
@json_option
@workers_option
@decompressed_option("is not checked")
@click.option(
    "--remote-metadata",
    metavar="DIR",
    type=click.Path(exists=True),
    help="For a tier: the log directory with __remote_log_metadata, to compare with.",
)
@click.option(
    "--read-all",
    "read",
    flag_value="all",
    help="For an archive: read all objects that its points need, instead of only listing them.",
)
@click.option(
    "--read-new", "read", flag_value="new", help="For an archive: read only objects that no earlier run has read."
)
@click.option("--quiet", "-q", is_flag=True, help="Print only damage, without notices and summary.")
def verify(
    arguments: tuple[str, ...],
    topic: tuple[str, ...],
    partition: tuple[int, ...],
    level: str,
    as_json: bool,
    max_decompressed_bytes: int,
    remote_metadata: str | None,
    read: ReadObjects | None,
    quiet: bool,
    workers: Workers,
) -> None:
    """Check logs, indexes and small files for damage.

    Each finding names the file, position, offset, kind, reason and remedy. The exit code is 1 if there is damage,
    otherwise 2 if a file could not be checked, or the files cannot tell whether records are missing.
    Notices (a torn tail after a crash, leftover files, missing indexes) do not change it: a broker handles them itself.
    """
    if is_archive_at(arguments[0]):
        if remote_metadata is not None:
            raise click.UsageError("--remote-metadata is for the tier of a broker: an archive has points instead")
        choice = PartitionChoice.of((*arguments[1:], *topic) or None, partition or None)
        archived = ArchiveSummary(Level[level.upper()])
        with workers.executor() as executor, progress(0, "verify") as advance:
            findings = verify_archive(
                arguments[0],
                archived,
                read=read or "none",
                choice=choice,
                executor=executor,
                limit_bytes=max_decompressed_bytes,
                on_bytes=advance,
            )
            _print(findings, archived, as_json, quiet)
        return
    if read is not None:
        raise click.UsageError(f"--read-{read} is for an archive, and {arguments[0]} has no points")
    chosen = select(arguments, topic, partition, from_log_start=False)  # which has findings of its own for that
    partitions = _partitions(chosen.disk, chosen.choice)
    summary = VerifySummary(Level[level.upper()])
    segments = [s for p in partitions for s in p.segments] + list(chosen.disk.loose)
    with workers.executor() as executor, progress(sum(s.size for s in segments), "verify") as advance:
        findings = verify_disk.verify_disk(
            chosen.disk,
            summary,
            partitions=partitions,
            choice=chosen.choice,
            executor=executor,
            limit_bytes=max_decompressed_bytes,
            on_bytes=advance,
            remote_metadata=None if remote_metadata is None else _with_remote_metadata(remote_metadata),
        )
        _print(findings, summary, as_json, quiet)


def _print(findings: Iterator[Finding], summary: VerifySummary, as_json: bool, quiet: bool) -> None:
    """Print findings, then the summary, and end with its exit code.

    Damage at a place in a segment comes as it is found. A finding that many files have alike is shown once.
    """
    is_read, alike = True, dict[tuple[Any, ...], list[Finding]]()
    try:
        for finding in findings:
            if finding.level == "notice" and quiet:
                continue
            place = finding.position, finding.offset
            is_of_segment = place != (None, None) and finding.path.endswith(FileKind.LOG.value)
            if as_json or (finding.level in ("damage", "unknown") and is_of_segment):
                is_read = is_read and try_print(print_finding, finding, as_json)
            else:
                key = finding.level, finding.kind, finding.reason, finding.remedy
                alike.setdefault(key if finding.level == "unread" else key + place, []).append(finding)
            if not is_read and summary.damaged:  # the pipe is closed, and the exit code cannot change
                break
    finally:  # also what an interrupted run has found
        for some in alike.values():
            is_read = is_read and try_print(print_finding, some[0], as_json, some[1:])
    summary.not_checked = [in_shell(text) for text in summary.not_checked]
    if is_read and (as_json or not quiet):
        print_part(summary, as_json)
    end_with_code(summary.exit_code)


def _with_remote_metadata(path: str) -> Disk:
    """Open the log directory of --remote-metadata."""
    disk = open_dir(path)
    if REMOTE_METADATA not in disk.topics:
        raise RequestError(f"--remote-metadata {path}: no partition of {REMOTE_METADATA} here")
    return disk


def _partitions(disk: Disk, choice: PartitionChoice) -> list[Partition]:
    """Return live partitions; stray or deleted ones only if they are named, or alone."""
    is_named = disk.is_named or len(disk.partitions) == 1
    return [p for p in disk.partitions if (is_named or not p.state) and choice.has_number(p.partition)]


def print_finding(finding: Finding, as_json: bool, others: Sequence[Finding] = ()) -> None:
    """Print a finding: four lines for people, or one line of JSON; `others` have the same reason and remedy."""
    if as_json:
        print_json(to_row(finding) | {"reason": in_shell(finding.reason)})
    else:
        say(*map(in_shell, finding.lines(others)))
