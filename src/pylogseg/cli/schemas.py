r"""`pylogseg schemas`: the schemas of a registry, from its topic on the disk."""

from __future__ import annotations

import click

from pylogseg.cli.cluster_state import end_with_notes, open_state, shown_rows, state_options
from pylogseg.cli.outcomes import print_rows
from pylogseg.errors import RequestError
from pylogseg.format.outcome import Headings
from pylogseg.values.schemas.topic import TOPIC

_EPILOG = r"""\b
Examples:
  pylogseg schemas /data/kafka                       every subject and version
  pylogseg schemas /data/kafka orders-value          of one subject
  pylogseg schemas /data/kafka orders-value --text   the schemas themselves
  pylogseg schemas /data/kafka --id 5 --text         the schema of an id
  pylogseg schemas /data/kafka --json                with references, GUIDs and texts

\b
Schemas are read from the topic _schemas, which Confluent's registry, Karapace and
Redpanda write. DELETED is "soft" for a version that the registry hides but still
uses to decode values, and "hard" for one that it deleted permanently, if the log
still has it.

\b
Exit codes: 0 success; 1 records were left out, damaged or written by a newer
Kafka; 2 wrong usage, a disk error, or the topic is not in the given directories.
"""

_COLUMNS: Headings = {
    "SUBJECT": "subject",
    "VERSION": "version",
    "ID": "id",
    "TYPE": "type",
    "DELETED": lambda row: None if row["deleted"] == "no" else row["deleted"],
    "REFERENCES": lambda row: ";".join(f"{r['subject']}:{r['version']}" for r in row["references"]) or None,
    "GUID": "guid",
}


@click.command(epilog=_EPILOG.replace(r"\b", "\b"))
@state_options("SUBJECT")
@click.option("--id", "number", type=int, metavar="ID", help="Only the schema with this id.")
@click.option("--text", is_flag=True, help="Print the text of each schema.")
def schemas(arguments: tuple[str, ...], as_of: str | None, as_json: bool, number: int | None, text: bool) -> None:
    """List the schemas of a registry's topic, also deleted ones: subject, version, id and type."""
    if text and as_json:
        raise RequestError("--json has the texts too: choose one of --text and --json")
    state, names = open_state(arguments, as_of, TOPIC)
    rows = shown_rows(state, "schemas", names, "subject")
    if number is not None:
        rows = [row for row in rows if row["id"] == number]
        if not rows:
            raise RequestError(f"there is no schema with id {number} here")
    if text:
        for row in rows:
            click.echo(row["schema"])
    else:
        print_rows(rows, _COLUMNS, as_json)
    end_with_notes(state)
