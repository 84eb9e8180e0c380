"""`pylogseg drill`: try the restore of a point of an archive."""

from __future__ import annotations

from typing import Any

import click

from pylogseg.archive.drilling import drill as try_restore
from pylogseg.archive.evidence import write_evidence
from pylogseg.cli.common import jobs_option, json_option, names_options, progress, try_print
from pylogseg.cli.outcomes import print_list
from pylogseg.cli.points import at_point, point_options
from pylogseg.cli.streams import say
from pylogseg.cli.tiers import keys_option

_EPILOG = """\b
Examples:
  pylogseg drill s3://bucket/archive                            the newest point
  pylogseg drill s3://bucket/archive --at 2026-01-31T12:00:00Z --evidence drill
  pylogseg drill /backup --kafka-home /opt/kafka_2.13-4.3.0     a real Kafka too

\b
The point is restored into a temporary folder (--folder), as large as the point,
and opened by `pylogseg serve` and, with --kafka-home or KAFKA_HOME, by that Kafka,
each with a copy of its own, on ports of this machine. With --cluster, that Kafka also
runs what `restore --cluster` makes: a controller, and one broker with all partitions.
All partitions are consumed with both isolations. Topic ids, ends, records with their
SHA-256 and offsets of groups are compared with the point, and with what the archive
has.

\b
Exit codes: 0 all is as it was at the point; 1 something differs; 2 wrong usage,
a store or disk error, a broker that could not be tried (a full disk, no Java), no
key for a part, or the point does not have all that the cluster had; 130
interrupted.
"""


@click.command(epilog=_EPILOG)
@click.argument("archive", callback=at_point)
@names_options
@point_options
@click.option(
    "--evidence", metavar="DIR", type=click.Path(file_okay=False), help="Write evidence.json and evidence.html there."
)
@click.option(
    "--kafka-home",
    metavar="DIR",
    envvar="KAFKA_HOME",
    type=click.Path(exists=True, file_okay=False),
    help="The folder of a Kafka to start too; default: KAFKA_HOME.",
)
@click.option(
    "--cluster",
    is_flag=True,
    help="Start also the cluster that `restore --cluster` makes: a controller, and a broker with all partitions.",
)
@click.option(
    "--folder",
    metavar="DIR",
    type=click.Path(exists=True, file_okay=False),
    help="Where the restored copies lie meanwhile; default: the system's temporary folder.",
)
@keys_option
@json_option
@jobs_option
def drill(
    archive: str,
    names: tuple[str, ...],
    topic: tuple[str, ...],
    partition: tuple[int, ...],
    evidence: str | None,
    kafka_home: str | None,
    cluster: bool,
    folder: str | None,
    as_json: bool,
    jobs: int | None,
) -> None:
    """Try the restore of a point of ARCHIVE: restore it, open it with brokers, consume all of it, and compare."""
    chosen: dict[str, Any] = {"topic": (*names, *topic) or None, "partition": partition or None}
    chosen |= {"kafka_home": kafka_home, "cluster": cluster, "folder": folder, "jobs": jobs}
    with progress(0, "drill") as advance:
        result = try_restore(archive, on_bytes=advance, **chosen)
    files = [] if evidence is None else write_evidence(result, evidence)
    if not as_json:
        try_print(say, *(f"written: {path}" for path in files))
    print_list(result, as_json)
    if result.exit_code:
        click.get_current_context().exit(result.exit_code)
