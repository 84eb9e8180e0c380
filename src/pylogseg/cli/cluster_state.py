"""Shared by `groups`, `transactions` and `cluster`: the source, the moment, rows as tables and as JSON."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from pylogseg.cli import common, completion
from pylogseg.cli.outcomes import Row
from pylogseg.cli.outputs import check_output
from pylogseg.disk.listing import open_dir
from pylogseg.disk.notes import joined_lines
from pylogseg.disk.tier.opening import is_tier
from pylogseg.env.urls import CLUSTER_SCHEME
from pylogseg.errors import RequestError
from pylogseg.format.names import METADATA_TOPIC
from pylogseg.values.internal.cluster_state import ClusterState, cluster_state
from pylogseg.values.internal.cut_off import AsOf

F = TypeVar("F", bound=Callable[..., Any])
_FEW = 12
_OTHERS = "its partitions may be on the disks of other brokers"
_IN_NO_TIER = "brokers upload no compacted topic and none of their own: name a broker's log directory"
_IN_NO_ANSWER = "the cluster has none yet, or does not show it to this user, who needs Describe and Read on it"
_ELSEWHERE = {METADATA_TOPIC: "it is on the disks of controllers"}


def state_options(name: str) -> Callable[[F], F]:
    """Add PATH... and names, ``--as-of`` and ``--json``."""

    def add(function: F) -> F:
        return common.add_all(
            function,
            [
                click.argument(
                    "arguments",
                    nargs=-1,
                    required=True,
                    metavar=f"PATH... [{name}...]",
                    shell_complete=completion.files,
                ),
                click.option(
                    "--as-of",
                    metavar="TIME",
                    help="The state at a time (2h is two hours ago; 2026-01-31T12:00:00Z), or only records below these "
                    "offsets of internal topics: "
                    "__consumer_offsets-1=568,__cluster_metadata-0=331.",
                ),
                common.json_option,
            ],
        )

    return add


def open_state(
    arguments: Sequence[str],
    as_of: str | None,
    topic: str,
    *,
    is_needed: bool = True,
    show_secrets: bool = False,
    output: Path | None = None,
) -> tuple[ClusterState, list[str]]:
    """Return the state of the cluster at the paths, and the names behind them.

    Raises RequestError if `topic` is not there at all: an empty table would look like an answer; and if `output`
    lies in what is read.
    """
    paths, names, either = common.split_arguments(arguments)
    disk = open_dir([*paths, *either])
    if output is not None:
        check_output(output, disk)
    common.report_notes(disk, from_log_start=topic != METADATA_TOPIC)
    if not any(partition.topic == topic and not partition.state for partition in disk.partitions):
        elsewhere = _IN_NO_TIER if any(map(is_tier, [*paths, *either])) else _ELSEWHERE.get(topic, _OTHERS)
        if any(path.startswith(CLUSTER_SCHEME) for path in [*paths, *either]) and topic != METADATA_TOPIC:
            elsewhere = _IN_NO_ANSWER
        missing = f"{', '.join([*paths, *either])}: no {topic} here: {elsewhere}"
        if is_needed:
            raise RequestError(missing)
        common.complain(missing)
    return cluster_state(disk, _moment(as_of), show_secrets=show_secrets), names


def _moment(text: str | None) -> AsOf | None:
    if text is None or "=" not in text:
        return None if text is None else common.parse_moment(text, rounds_down=True)
    ends = {}
    for part in text.split(","):
        match = re.fullmatch(r"\s*([\w.-]+-\d+)=(\d+)\s*", part)
        if match is None:
            raise RequestError(
                f"invalid offset {part!r} in --as-of: expected PARTITION=OFFSET, such as __consumer_offsets-1=568"
            )
        ends[match[1]] = int(match[2])
    return ends


def shown_rows(state: ClusterState, table: str, names: Iterable[str] = (), column: str = "") -> list[Row]:
    """Return rows of a table with times in milliseconds: all, or the rows with one of the names in a column."""
    wanted, rows = set(names), state.rows(table)
    there = {row[column] for row in rows if row[column] is not None} if wanted else set()
    if missing := sorted(wanted - there):
        near = difflib.get_close_matches(missing[0], there, 3)
        listed = sorted(there)
        hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(listed[:_FEW]) or 'none'}"
        more = ", ..." if not near and len(listed) > _FEW else ""
        raise RequestError(f"there is no {column} {', '.join(missing)} here: {hint}{more}")
    return [row for row in rows if not wanted or row[column] in wanted]


def end_with_notes(state: ClusterState) -> None:
    """Print the notes on stderr, and end the command: exit code 1 if something was damaged or left out."""
    for note in joined_lines(state.notes):
        common.complain(note)
    common.end_with(state.notes.has_damage or state.notes.has_left_out)


def assignment_text(partitions: Sequence[Row] | None) -> str:
    """Return an assignment as Kafka's tools write it: ``in:0,1;out:2``."""
    return ";".join(f"{topic['topic']}:{','.join(map(str, topic['partitions']))}" for topic in partitions or ())
