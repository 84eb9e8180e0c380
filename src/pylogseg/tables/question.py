"""The question of a function that reads in its own way: a reader's, or one made of its own keywords."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from pylogseg.disk.choice import PartitionChoice
from pylogseg.disk.disk import Disk
from pylogseg.disk.listing import as_disk
from pylogseg.errors import RequestError
from pylogseg.reading.selection import Selection, selection_of
from pylogseg.reading.state import Reading, ReadingKeywords
from pylogseg.tables.reader import Reader, Source, row_filter

if TYPE_CHECKING:
    from pylogseg.values.decoding import Decoding

_DECODING = ("decoding", "schema", "registry")


class Question(NamedTuple):
    """The logs that a function reads, its selection of their records, and how it reads and decodes them."""

    source: Source  #: The disk of a reader, which was listed when the reader was made.
    choice: PartitionChoice
    selection: Selection
    reading: Reading
    decoding: Decoding | None

    def open(self) -> Disk:
        """List the disk, if that is still to be done."""
        return as_disk(self.source)

    @classmethod
    def of(
        cls,
        door: str,
        source: Reader | Source,
        topic: str | Sequence[str] | None,
        partition: int | Sequence[int] | None,
        kind: Any,
        keywords: dict[str, Any],
        reading: Reading | None = None,
    ) -> Question:
        """Return the question of a reader, or of a path and keywords.

        `kind` is the TypedDict of the function's keywords about records; of a reader, it takes only options of these
        names. `reading` has the function's defaults.
        """
        if isinstance(source, Reader):
            if keywords:
                name = next(iter(keywords))
                raise RequestError(f"{door} got a reader and {name}=: say {name}= to the reader alone")
            check_asked(source, door, ("topic", "partition", *kind.__annotations__))
            narrow = source if topic is None and partition is None else source.where(topic=topic, partition=partition)
            selection, whole = narrow.scope.selection, disk_of(source, door)
            choice = PartitionChoice(selection.topics, selection.partitions)
            return cls(whole, choice, selection, narrow.scope.state.reading, narrow.decoding)
        rest = dict(keywords)
        decoding = {name: rest.pop(name) for name in _DECODING if name in rest}
        how = {name: rest.pop(name) for name in ReadingKeywords.__annotations__ if name in rest}
        rest["filter"] = row_filter(rest.get("filter"), None)
        return cls(
            source,
            PartitionChoice.of(topic, partition),
            selection_of(**rest),
            replace(reading or Reading(), **how),
            _decoding_of(decoding) if decoding else None,
        )


def _decoding_of(keywords: dict[str, Any]) -> Decoding | None:
    from pylogseg.values.decoding import Decoding

    return Decoding.of_keywords(**keywords)


def check_asked(reader: Reader, door: str, names: Iterable[str]) -> None:
    """Raise RequestError for an option of a reader that a function cannot honour."""
    for name in reader.asked:
        if name not in names:
            raise RequestError(f"{door} cannot honour {name}= of a reader: ask it without that")


def disk_of(reader: Reader, door: str) -> Disk:
    """Return the disk of a reader; RequestError for one of a log in memory."""
    if reader.disk is None:
        raise RequestError(f"{door} reads files: give it the folder of the log that this program writes")
    return reader.disk
