"""The ledger of a table: the offsets of the log that it has. It is committed together with the rows.

As text it is JSON: `docs/lake.md` describes it for other readers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from pylogseg.errors import RequestError

#: Name of the ledger among the properties of a commit, and of a table.
LEDGER = "pylogseg.ledger"
#: In DuckLake a table of the catalog, with a row for each table: its name and its ledger. One commit is to both.
LEDGERS = "pylogseg_ledgers"
#: Name of the topic id among the properties of a table.
TOPIC_ID = "pylogseg.topic-id"
_FORMAT = 1


class Covered(NamedTuple):
    """A partition in a table: the half-open range of offsets that was read for it.

    Not each offset of the range has a row: markers, aborted records and what compaction removed have none.
    """

    first_offset: int
    next_offset: int
    epoch: int = -1  #: Leader epoch of the last offset; -1 if it is not known.
    #: Half-open ranges that were not in the log any more, and were passed over by order.
    skipped: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Ledger:
    """The ledger that a commit carries."""

    topic: str
    topic_id: str | None  #: None where no file of the log says it.
    isolation_level: str
    commit: str  #: Made up for each commit, so that it is found again when its outcome is not known.
    partitions: Mapping[int, Covered] = field(default_factory=dict)
    latest: bool = False  #: True if the table has only the latest record of each key.
    cluster_id: str | None = None  #: None where no file of the log says it, and in tables of older versions.

    def with_extents(self, extents: Mapping[int, Covered], commit: str) -> Ledger:
        """Return the ledger of the next commit."""
        return replace(self, commit=commit, partitions={**self.partitions, **extents})

    @property
    def text(self) -> str:
        extents = {
            str(number): [part.first_offset, part.next_offset, part.epoch, *([part.skipped] if part.skipped else [])]
            for number, part in sorted(self.partitions.items())
        }
        return json.dumps(
            {
                "format": _FORMAT,
                "topic": self.topic,
                "topicId": self.topic_id,
                **({} if self.cluster_id is None else {"clusterId": self.cluster_id}),
                "isolation": self.isolation_level,
                **({"latest": True} if self.latest else {}),
                "commit": self.commit,
                "partitions": extents,
            },
            separators=(",", ":"),
        )

    @classmethod
    def parse(cls, text: str, where: str) -> Ledger:
        """Return the ledger of a text; RequestError for a format that this version does not know."""
        try:
            state = json.loads(text)
            if state["format"] != _FORMAT:
                raise RequestError(f"{where}: its ledger has format {state['format']}: a newer version wrote the table")
            extents = {int(number): _read_extent(*part) for number, part in state["partitions"].items()}
            latest = bool(state.get("latest", False))
            cluster = state.get("clusterId")
            return cls(state["topic"], state["topicId"], state["isolation"], state["commit"], extents, latest, cluster)
        except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
            if isinstance(error, RequestError):
                raise
            raise RequestError(f"{where}: its ledger is damaged: {type(error).__name__}: {error}") from error


def _read_extent(first: int, following: int, epoch: int, skipped: Sequence[Sequence[int]] = ()) -> Covered:
    return Covered(first, following, epoch, tuple((start, end) for start, end in skipped))
