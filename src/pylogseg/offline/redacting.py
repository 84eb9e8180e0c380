"""`redact`: delete or blank the records with given keys or headers, or by a predicate, in every segment."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from pylogseg.config import compression_levels
from pylogseg.env.urls import file_system
from pylogseg.errors import RequestError
from pylogseg.format.batches import Mask, scan
from pylogseg.format.names import parse_partition_folder
from pylogseg.format.records import DECOMPRESSED_LIMIT_BYTES, RecordColumns, decode
from pylogseg.offline.noting_cuts import note_gaps
from pylogseg.offline.options import OptionKeywords, Options, takes_executor
from pylogseg.offline.partition import OfflinePartition
from pylogseg.offline.redacting_batches import Blank, HasHeader, KeySet, Predicate, Redaction, any_of
from pylogseg.offline.result import Result
from pylogseg.offline.rewriting import change_part
from pylogseg.offline.running import run_command
from pylogseg.reading.arrow.encode import encode

if TYPE_CHECKING:  # typing has it from Python 3.11 on
    from typing_extensions import Unpack

#: Folders that no consumer reads and that may hold the same records.
_HIDDEN = ("delete", "future", "stray")


@takes_executor
def redact(
    path: str | os.PathLike[str],
    *,
    keys: Iterable[bytes] = (),
    headers: Iterable[tuple[bytes, bytes | None]] = (),
    filter: Callable[[Any], Any] | None = None,
    matches: Iterable[Predicate] = (),
    blank: Blank | None = None,
    everywhere: bool = False,
    force: bool = False,
    max_decompressed_bytes: int = DECOMPRESSED_LIMIT_BYTES,
    **options: Unpack[OptionKeywords],
) -> Result:
    """Delete or blank records in every segment, compacted or not; all others keep offsets, order and batches.

    A record is meant that any of `keys`, `headers`, `filter` and `matches` asks for.

    Parameters
    ----------
    path : path
        A log directory, or the folder of one partition.
    keys : iterable of bytes
        Whole keys; there may be millions.
    headers : iterable of (bytes, bytes or None)
        Name and value of headers; None for any value.
    filter : callable, optional
        Gets a ``pyarrow.RecordBatch`` (offset, timestamp, key, value, headers) and returns a mask: an array of
        booleans, of Arrow or numpy, one for each record.
    matches : iterable of callable
        Each gets `RecordColumns` and returns a mask, as `pylogseg.inspect.search.patterns.Pattern.matches` does.
    blank : Blank, optional
        What of the records becomes nothing. Without it they go.
    everywhere : bool
        Take folders too that no consumer reads: strays (``-stray``) and replicas being moved (``-future``); and remove
        folders of deleted partitions (``-delete``).
    force : bool
        Allow a key or pattern that may mean all records: an empty key, a pattern that matches the empty text.
    max_decompressed_bytes : int
        A partition with a batch that decompresses to more fails: a few bytes can declare a large size, and it has to
        fit into memory several times.
    **options
        See `pylogseg.offline.options.Options`.

    Returns
    -------
    Result
        ``numbers`` of a result: ``recordsDeleted`` or ``recordsBlanked``, ``segmentsRewritten``. Its ``rows`` have
        one of type ``"segment"`` for each segment that was rewritten.
    """
    shared = Options.of(options)
    conditions: list[Predicate] = list(matches)
    given, headers = _of_bytes("keys", keys), list(headers)
    _of_bytes("names of headers", [name for name, _ in headers])
    _of_bytes("values of headers", [value for _, value in headers if value is not None])
    if not force:
        _refuse_empty(given, headers, conditions)
    if given:
        conditions.append(KeySet(given))
    for name, value in headers:
        conditions.append(HasHeader(name, value))
    if filter is not None:
        conditions.append(_of_arrow(filter))
    if not conditions:
        raise RequestError(
            "no records are selected: give keys (--key, --key-file), headers (--header), matches (--match) or filter"
        )
    if blank is not None:
        blank.check()
    counted = "recordsDeleted" if blank is None else "recordsBlanked"

    def work(part: OfflinePartition) -> None:
        if part.name.endswith("-delete"):
            part.storage.remove_folder(part.folder)
            part.storage.sync_folder(part.storage.split(part.folder)[0])
            part.result.notes.append("the folder of a deleted partition was removed, as a broker would do next")
            return
        log = part.open()
        starts = [entry.start_offset for entry in log.epochs.entries]
        levels, end = compression_levels(part.config), log.log_end_offset
        change = Redaction(any_of(conditions), end, starts, blank, levels, max_decompressed_bytes)
        change_part(part, log, change, counted, lambda: note_gaps(part, "redact", change.cuts))

    result = run_command(path, shared, work, takes=_HIDDEN if everywhere else ())
    for part_result in result:
        folder = parse_partition_folder(part_result.name)
        if part_result.state == "skipped" and folder is not None and folder.state:
            part_result.remedy = "it may hold such records too: --everywhere includes it"
    return result


def _of_bytes(what: str, values: Iterable[bytes]) -> list[bytes]:
    if isinstance(values, (str, bytes, bytearray, memoryview)):
        raise RequestError(f"{what} are a list, not one value: [{values!r}]")
    given = list(values)
    for value in given:
        if not isinstance(value, bytes):
            meant = f", such as {value.encode()!r}" if isinstance(value, str) else ""
            raise RequestError(f"{what} are bytes{meant}, not {value!r}")
    return given


def _refuse_empty(keys: list[bytes], headers: list[tuple[bytes, bytes | None]], matches: list[Predicate]) -> None:
    """Raise for conditions that an unset shell variable would cause."""
    for what, values in (("key", keys), ("name of a header", [name for name, _ in headers])):
        if b"" in values:
            raise RequestError(f"an empty {what} is given: to allow it, use force (--force)")
    empty = encode([(0, b"", b"")])
    records = decode(scan(empty).batches, empty)[0]
    if any(found := [bool(match(records).any()) for match in matches]):
        number = found.index(True)
        raise RequestError(
            f"pattern {number + 1} of {len(matches)} matches the empty string, so it would take all records: to "
            "allow it, use force (--force)"
        )


def _of_arrow(filter: Callable[[Any], Any]) -> Predicate:
    """A condition from a predicate on Arrow's columns."""
    from pylogseg.disk.disk import Segment
    from pylogseg.reading.arrow import columns as arrow  # which takes long to load, and only this needs it
    from pylogseg.reading.partition import Chunk

    schema = arrow.schema(["offset", "timestamp", "key", "value", "headers"])
    segment = Segment(file_system(".")[0], "", 0, 0, 0, False)

    def ask(columns: RecordColumns) -> Mask:
        return np.asarray(filter(arrow.record_batch(Chunk(columns, segment), schema)), np.bool_)

    return ask
