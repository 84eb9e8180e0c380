"""Delta's log of commits as `lake` and `audit` read it, newest first, and the ledger that is in it.

deltalake's own history is not asked: it is empty where the table's path has a ``#`` or a question mark.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from pylogseg.errors import StorageError, is_missing
from pylogseg.lakehouse.ledger import LEDGER, TOPIC_ID, Covered, Ledger


class Commit(NamedTuple):
    """A commit of a table's log."""

    version: int
    actions: list[dict[str, Any]]

    @property
    def about(self) -> dict[str, Any]:
        """The writer's own facts about it."""
        return next((action["commitInfo"] for action in self.actions if "commitInfo" in action), {})


def commits_of(read: Callable[[str], bytes], newest: int, table: str) -> Iterator[Commit]:
    """Yield the commits, the newest first, as far back as they are kept; `read` takes paths in the table's folder."""
    for version in range(newest, -1, -1):
        path = f"_delta_log/{version:020}.json"
        try:
            data = read(path)
        except OSError as error:
            if isinstance(error, FileNotFoundError) or is_missing(error):  # removed behind a checkpoint
                return
            raise
        yield Commit(version, parse_actions(data, f"{table}/{path}"))


def parse_actions(data: bytes, path: str) -> list[dict[str, Any]]:
    """Return the actions of a commit, each of which is a line; StorageError if they are none."""
    try:
        actions = _parse_lines([line for line in data.decode().split("\n") if line.strip()])
    except (ValueError, RecursionError) as error:
        raise StorageError(path, "read", f"this is not a commit of Delta: {type(error).__name__}: {error}") from error
    if not all(isinstance(action, dict) for action in actions):
        raise StorageError(path, "read", "this is not a commit of Delta: a line is not an object")
    return actions


def _parse_lines(lines: list[str]) -> list[Any]:
    """Return the value of each line, all parsed at once: a commit to many partitions has thousands."""
    with contextlib.suppress(ValueError):  # which the line itself explains better
        values: list[Any] = json.loads(f"[{','.join(lines)}]")
        if len(values) == len(lines):
            return values
    return [json.loads(line) for line in lines]


def newest_ledger(commits: Iterable[Commit], table: Any, partitions: Iterable[int], name: str) -> Ledger | None:
    """Return the ledger of the newest commit that has one: a restored version goes on from where that one was."""
    below = None
    for commit in commits:
        if below is not None and commit.version > below:
            continue
        about = commit.about
        if LEDGER in about:
            return Ledger.parse(about[LEDGER], name)
        if about.get("operation") == "RESTORE":
            below = int(about["operationParameters"]["version"])
    return _of_transactions(table, partitions)


def application(topic_id: str | None, partition: int, what: str = "") -> str:
    """Return the name of the application whose version is the table's next offset of a partition."""
    return f"pylogseg:{topic_id}:{partition}{':' if what else ''}{what}"


def about_text(ledger: Ledger) -> str:
    """Return the permanent properties of a new table; they outlive old commits of its log."""
    about = {"topic": ledger.topic, "id": ledger.topic_id, "isolation": ledger.isolation_level, "latest": ledger.latest}
    return json.dumps({**about, "cluster": ledger.cluster_id})


def _of_transactions(table: Any, partitions: Iterable[int]) -> Ledger | None:
    """Return the ledger by application versions, which stay when old commits are removed from the log."""
    text = table.metadata().configuration.get(TOPIC_ID)
    if text is None:
        return None
    about = json.loads(text)
    extents = {}
    for number in partitions:
        following = table.transaction_version(application(about["id"], number))
        if following is not None:
            epoch = table.transaction_version(application(about["id"], number, "epoch"))
            extents[number] = Covered(0, following, -1 if epoch is None else epoch)
    latest, cluster = about.get("latest", False), about.get("cluster")
    return Ledger(about["topic"], about["id"], about["isolation"], "", extents, latest, cluster)
