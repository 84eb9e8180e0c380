"""`pylogseg groups`: consumer groups of a broker's disk, without the broker."""

from __future__ import annotations

import csv
import io
import os
from pathlib import Path

import click

from pylogseg.cli import common
from pylogseg.cli.cluster_state import assignment_text, end_with_notes, open_state, shown_rows, state_options
from pylogseg.cli.outcomes import Row, print_rows
from pylogseg.cli.outputs import check_output, refuse_overwriting
from pylogseg.cli.streams import say
from pylogseg.disk.listing import open_dir
from pylogseg.env.beside import whole
from pylogseg.errors import RequestError
from pylogseg.format.outcome import Headings
from pylogseg.format.words import count_text
from pylogseg.values.internal.cluster_state import ClusterState, cluster_state
from pylogseg.values.internal.groups import TOPIC
from pylogseg.values.internal.lag import ABOVE_END

_EPILOG = r"""\b
Examples:
  pylogseg groups /data/kafka                     every group, its type and state
  pylogseg groups /data/kafka billing --offsets   offsets and lag, as --describe
  pylogseg groups /data/kafka --lag               lag also in records, bytes and time
  pylogseg groups /data/kafka --members           members and assignments
  pylogseg groups /data/kafka --as-of 2h          as it was two hours ago
  pylogseg groups /data/kafka --export saved.csv  for another cluster, see below
  pylogseg groups /data/kafka --map-to /data/mirror --export saved.csv

\b
Groups are read from __consumer_offsets, lags from the ends of the topics that
are in the given directories; "-" means that these files do not tell. Name the
directories of all brokers to see all groups. The files of a stopped broker still
list members that are long gone.
LAG counts offsets, as Kafka does, also those of markers and of records that
compaction removed. --lag counts records: it reads the headers of all batches
after each offset.
Groups of the new protocol have ids of topics; their names come from
__cluster_metadata.

\b
--export writes what this takes:
  kafka-consumer-groups.sh --bootstrap-server HOST:PORT --group GROUP \
      --group GROUP2 --reset-offsets --from-file saved.csv --execute
Name every group: --all-groups takes only those that the cluster knows already.
If one GROUP is named here, the file has no column for the group.

\b
--map-to DIR is for a mirror of the topics in which the records have other
offsets: each offset becomes that of the same record there (key, value, timestamp
and headers), or the one after the record that the group read last. Offsets that
cannot be mapped are listed, and the exit code is 1.
--map-to FILE takes the map that "diff --by-content --map FILE" made: an offset
without a record becomes that of the next record, one behind the map is listed.

\b
Exit codes: 0 success; 1 records were left out, damaged or written by a newer
Kafka, or an offset could not be mapped; 2 wrong usage, a disk error, or the topic
is not in the given directories.
"""

_GROUPS: Headings = {
    "GROUP": "group",
    "TYPE": "type",
    "PROTOCOL": lambda row: row["protocolType"] or None,
    "ASSIGNMENT-STRATEGY": "assignor",
    "STATE": "state",
    "GROUP-EPOCH": "groupEpoch",
    "TARGET-ASSIGNMENT-EPOCH": "assignmentEpoch",
    "#MEMBERS": "members",
    "#OFFSETS": "offsets",
}
_OFFSETS: Headings = {
    "GROUP": "group",
    "TOPIC": "topic",
    "PARTITION": "partition",
    "LEADER-EPOCH": "leaderEpoch",
    "CURRENT-OFFSET": "offset",
    "LOG-END-OFFSET": "endOffset",
    "LAG": "lag",
    "LAG-RECORDS": "lagRecords",
    "LAG-BYTES": "lagBytes",
    "LAG-SECONDS": lambda row: None if row.get("lagMs") is None else row["lagMs"] / 1000,
    "CONSUMER-ID": lambda row: row.get("memberId"),
    "HOST": lambda row: row.get("host"),
    "CLIENT-ID": lambda row: row.get("clientId"),
    "NOTE": lambda row: _note(row),
}
_MAPPED: Headings = {
    "GROUP": "group",
    "TOPIC": "topic",
    "PARTITION": "partition",
    "CURRENT-OFFSET": "offset",
    "MAPPED-TOPIC": "mappedTopic",
    "MAPPED-PARTITION": "mappedPartition",
    "MAPPED-OFFSET": "mappedOffset",
    "REASON": "reason",
}
_SHARES: Headings = {
    "GROUP": "group",
    "TOPIC": lambda row: row["topic"] or row["topicId"],
    "PARTITION": "partition",
    "LEADER-EPOCH": "leaderEpoch",
    "START-OFFSET": "startOffset",
    "LAG": "lag",
}
_MEMBERS: Headings = {
    "GROUP": "group",
    "CONSUMER-ID": "memberId",
    "GROUP-INSTANCE-ID": "instanceId",
    "HOST": "host",
    "CLIENT-ID": "clientId",
    "#PARTITIONS": lambda row: sum(len(topic["partitions"]) for topic in row["assignment"] or ()),
    "CURRENT-EPOCH": "memberEpoch",
    "CURRENT-ASSIGNMENT": lambda row: assignment_text(row["assignment"]) or None,
    "TARGET-EPOCH": "targetEpoch",
    "TARGET-ASSIGNMENT": lambda row: assignment_text(row["targetAssignment"]) or None,
}


@click.command(epilog=_EPILOG.replace(r"\b", "\b"))
@state_options("GROUP")
@click.option("--offsets", is_flag=True, help="Print the offsets of each group, with lag.")
@click.option("--lag", is_flag=True, help="As --offsets, with the lag also in existing records, bytes and time.")
@click.option("--members", is_flag=True, help="Print the members of each group, with their assignments.")
@click.option("--export", metavar="FILE", help="Write offsets as CSV for kafka-consumer-groups.sh --reset-offsets.")
@click.option("--overwrite", is_flag=True, help="Replace the FILE of --export if it exists.")
@click.option(
    "--map-to",
    metavar="DIR|FILE",
    help="Find the offsets of another cluster's copy of the topics, by the records or by a map of offsets; print them, "
    "or --export them.",
)
def groups(
    arguments: tuple[str, ...],
    as_of: str | None,
    as_json: bool,
    offsets: bool,
    lag: bool,
    members: bool,
    export: str | None,
    overwrite: bool,
    map_to: str | None,
) -> None:
    """List consumer groups: type, state, members, offsets and lag, from the files alone."""
    if offsets + lag + members + (export is not None or map_to is not None) > 1:
        raise RequestError("choose one of --offsets, --lag, --members and --export; only --map-to works with --export")
    if export is not None and not export:
        raise RequestError("--export: the name is empty: expected a file")
    if overwrite and export is None:
        raise RequestError("--overwrite needs --export")
    state, names = open_state(arguments, as_of, TOPIC, output=None if export is None else Path(export))
    if export is not None:
        refuse_overwriting(Path(export), overwrite)
    if map_to is not None:
        _map(state, names, map_to, export, as_json)
    elif export is not None:
        _export(state, names, export)
    elif offsets or lag:
        _print_offsets(state, names, as_json, lag)
    elif members:
        _print(_with_epochs(state, shown_rows(state, "group_members", names, "group")), _MEMBERS, as_json)
    else:
        _print(shown_rows(state, "groups", names, "group"), _GROUPS, as_json)
    end_with_notes(state)


def _print(rows: list[Row], columns: Headings, as_json: bool) -> None:
    right = [
        name for name in columns if name.startswith(("#", "LAG", "PARTITION")) or name.endswith(("EPOCH", "OFFSET"))
    ]
    print_rows(rows, columns, as_json, right)


def _with_epochs(state: ClusterState, members: list[Row]) -> list[Row]:
    epochs = {row["group"]: row["assignmentEpoch"] for row in shown_rows(state, "groups")}
    return [row | {"targetEpoch": None if row["memberEpoch"] is None else epochs[row["group"]]} for row in members]


def _note(row: Row) -> str | None:
    if row.get("pendingOffset") is not None:
        return f"offset {row['pendingOffset']} is pending in a transaction of producer {row['pendingProducerId']}"
    if row.get("stale"):
        return "of a topic that was deleted since"
    return f"{ABOVE_END}: a consumer is reset" if (row["lag"] or 0) < 0 else None


def described_offsets(state: ClusterState, names: list[str], table: str = "group_offsets") -> list[Row]:
    """Return offsets of a table with the member that has the partition, and partitions of members without an offset."""
    shown_rows(state, "groups", names, "group")  # says which of the names there is not
    wanted = set(names)
    by_key = {(row["group"], row["topic"], row["partition"]): row for row in shown_rows(state, table)}
    is_of_share = {row["group"] for row in shown_rows(state, "groups") if row["type"] in ("Share", "Streams")}
    for member in shown_rows(state, "group_members"):
        for topic in (member["assignment"] or ()) if member["group"] not in is_of_share else ():
            for partition in topic["partitions"]:
                key = member["group"], topic["topic"], partition
                end = state.ends(topic["topic"], partition)
                empty = dict.fromkeys(
                    ("leaderEpoch", "offset", "lag", "pendingOffset", "stale", "lagRecords", "lagBytes", "lagMs")
                )
                row = by_key.get(key) or dict(zip(("group", "topic", "partition"), key, strict=True)) | empty | {
                    "endOffset": end
                }
                by_key[key] = row | {name: member[name] for name in ("memberId", "host", "clientId")}
    return [by_key[key] for key in sorted(by_key) if not wanted or key[0] in wanted]


def described_shares(state: ClusterState, names: list[str]) -> list[Row]:
    """Return the rows of `kafka-share-groups.sh --describe`: a partition that no member has read has no epoch."""
    rows = [row for row in shown_rows(state, "share_offsets") if not names or row["group"] in names]
    return [row if row["startOffset"] is not None else row | {"leaderEpoch": None} for row in rows]


def _print_offsets(state: ClusterState, names: list[str], as_json: bool, lag: bool) -> None:
    rows = described_offsets(state, names, "group_lags" if lag else "group_offsets")
    columns = {name: of for name, of in _OFFSETS.items() if lag or not name.startswith("LAG-")}
    shares = described_shares(state, names)
    if rows or not shares:
        _print(rows, columns, as_json)
    if shares:
        if rows and not as_json:
            click.echo()
        _print(shares, _SHARES, as_json)


def _export(state: ClusterState, names: list[str], path: str) -> None:
    """Write the offsets that another cluster can take over, without deleted topics."""
    shown_rows(state, "groups", names, "group")
    rows = [row for row in shown_rows(state, "group_offsets") if not names or row["group"] in names]
    kept = [row for row in rows if row["offset"] is not None and not row["stale"]]
    _write(kept, names, path)
    left = len(rows) - len(kept)
    said = f", {count_text(left, 'offset')} left out: of deleted topics, or pending" if left else ""
    say(f"{path}: {count_text(len(kept), 'offset')}{said}")
    above = [row for row in kept if (row["lag"] or 0) < 0]
    for row in above[:1]:
        more = f", and so {'is' if len(above) == 2 else 'are'} {len(above) - 1:,} more" if above[1:] else ""
        place = f"{row['group']}, {row['topic']}-{row['partition']}, {row['offset']}"
        common.complain(f"{place}: {ABOVE_END}, {row['endOffset']}{more}: a consumer is reset")


def _map(state: ClusterState, names: list[str], other: str, path: str | None, as_json: bool) -> None:
    """Print or write offsets as they are on another cluster; name offsets without a counterpart on stderr."""
    shown_rows(state, "groups", names, "group")
    there: ClusterState | None = None
    if not os.path.isfile(other):
        disk = open_dir(other)
        if path is not None:
            check_output(Path(path), disk)
        there = cluster_state(disk)
    rows = state.map_offsets(other if there is None else there, set(names) or None).to_pylist()
    kept = [
        row | {"topic": row["mappedTopic"], "partition": row["mappedPartition"], "offset": row["mappedOffset"]}
        for row in rows
        if row["reason"] is None
    ]
    if path is None:
        print_rows(rows, _MAPPED, as_json)
    else:
        _write(kept, names, path)
        say(f"{path}: {count_text(len(kept), 'offset')}")
        for row in (row for row in rows if row["reason"] is not None):
            common.complain(f"{row['group']}, {row['topic']}-{row['partition']}, {row['offset']}: {row['reason']}")
    for note in there.notes if there else ():
        common.complain(note)
    common.end_with(len(kept) < len(rows) or (there is not None and there.notes.has_damage))


def _write(rows: list[Row], names: list[str], path: str) -> None:
    """Write the file that kafka-consumer-groups.sh takes."""
    columns = ("topic", "partition", "offset") if len(names) == 1 else ("group", "topic", "partition", "offset")
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([row[name] for name in columns] for row in rows)
    with whole(Path(path)) as file:
        file.write(text.getvalue().encode())
