"""`pylogseg transactions`: transactions of a broker's disk, without the broker."""

from __future__ import annotations

from typing import Any

import click

from pylogseg.cli.cluster_state import end_with_notes, open_state, shown_rows, state_options
from pylogseg.cli.outcomes import print_rows
from pylogseg.cli.streams import say
from pylogseg.errors import RequestError
from pylogseg.format.moments import time_text
from pylogseg.format.outcome import Headings
from pylogseg.values.internal.transactions import TOPIC

_EPILOG = r"""\b
Examples:
  pylogseg transactions /data/kafka              every transactional id, its state
  pylogseg transactions /data/kafka --open       open ones in the partitions
  pylogseg transactions /data/kafka --hanging    those that no one will ever end
  pylogseg transactions /data/kafka --producers  producers of each partition

\b
A transaction hangs if its producer wrote nothing for 15 minutes and no
coordinator knows of it. Consumers with read_committed, and compaction, stop at it.
COORDINATOR is the state of the transaction in __transaction_state: "no entry" if no
transactional id has the producer, "not of this one" if its transaction is another.
--hanging prints the command of Kafka's tools that aborts it.
Ages are relative to --as-of, or to now.

\b
Exit codes: 0 success; 1 records were left out, damaged or written by a newer
Kafka; 2 wrong usage, a disk error, or the topic is not in the given directories.
"""


def _partitions(row: dict[str, Any]) -> str | None:
    return ",".join(f"{part['topic']}-{n}" for part in row["partitions"] for n in part["partitions"]) or None


_TRANSACTIONS: Headings = {
    "TransactionalId": "transactionalId",
    "ProducerId": "producerId",
    "ProducerEpoch": "producerEpoch",
    "TransactionState": "state",
    "TransactionTimeoutMs": "timeoutMs",
    "StartTime": lambda row: time_text(row["startTime"]),
    "TopicPartitions": _partitions,
}
_OPEN: Headings = {
    "Topic": "topic",
    "Partition": "partition",
    "ProducerId": "producerId",
    "ProducerEpoch": "producerEpoch",
    "CoordinatorEpoch": "coordinatorEpoch",
    "StartOffset": "startOffset",
    "LastTimestamp": "lastTimestamp",
    "Duration(min)": lambda row: row["ageMs"] // 60_000,
    "TransactionalId": "transactionalId",
    "Hanging": lambda row: "yes" if row["hanging"] else "no",
    "Coordinator": lambda row: (
        "no entry"
        if row["coordinatorState"] is None
        else row["coordinatorState"] + ("" if row["isHeld"] else ", not of this one")
    ),
}
_PRODUCERS: Headings = {
    "Topic": "topic",
    "Partition": "partition",
    "ProducerId": "producerId",
    "ProducerEpoch": "producerEpoch",
    "LatestCoordinatorEpoch": lambda row: -1 if row["coordinatorEpoch"] is None else row["coordinatorEpoch"],
    "LastSequence": "lastSequence",
    "LastTimestamp": "lastTimestamp",
    "CurrentTransactionStartOffset": lambda row: "None" if row["openSinceOffset"] is None else row["openSinceOffset"],
}


@click.command(epilog=_EPILOG.replace(r"\b", "\b"))
@state_options("TRANSACTIONAL-ID")
@click.option("--open", "is_open", is_flag=True, help="Print the transactions that are open in the partitions.")
@click.option(
    "--hanging", is_flag=True, help="Print only open transactions that hang, and the command that aborts each."
)
@click.option("--producers", is_flag=True, help="Print the producers of each partition.")
def transactions(
    arguments: tuple[str, ...], as_of: str | None, as_json: bool, is_open: bool, hanging: bool, producers: bool
) -> None:
    """List transactions as their coordinator knows them, or with --hanging only hanging ones."""
    if is_open + hanging + producers > 1:
        raise RequestError("choose one of --open, --hanging and --producers")
    state, names = open_state(arguments, as_of, TOPIC, is_needed=not producers)
    table, columns = "transactions", _TRANSACTIONS
    if is_open or hanging:
        table, columns = "open_transactions", _OPEN
    elif producers:
        table, columns = "producers", _PRODUCERS
    rows = shown_rows(state, table, names, "transactionalId")
    rows = [row for row in rows if row["hanging"]] if hanging else rows
    numbers = [name for name in columns if name not in ("Topic", "TransactionalId", "TransactionState", "StartTime",
                                                        "TopicPartitions", "Hanging", "Coordinator")]  # fmt: skip
    print_rows(rows, columns, as_json, numbers)
    for row in rows if hanging and not as_json else ():
        say(row["abortCommand"])
    end_with_notes(state)
