"""Find the good batches of a damaged segment that can be kept, in an order that a broker accepts."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pylogseg._native import _append
from pylogseg.env.storage import AppendFile
from pylogseg.errors import CorruptionError, InvalidRecordError, RequestError, Verdict
from pylogseg.format.batches import BatchTable, joined_rows, scan
from pylogseg.format.records import REWRITE_LIMIT_BYTES, decode_slices
from pylogseg.format.scratch import Scratch
from pylogseg.inspect.verify.records import RecordsCheck
from pylogseg.log.batch_headers import first_offset
from pylogseg.log.transaction_markers import marker_of
from pylogseg.transfer.checked import windows_past_leaps
from pylogseg.walker.base_offsets import judge_base_offsets
from pylogseg.walker.batch_search import BatchSearch
from pylogseg.walker.gaps import Gap, GapKind
from pylogseg.walker.windows import Window

_MAX_RELATIVE = 2**31 - 1


class Survey(NamedTuple):
    """The gaps and the good batches of a segment."""

    gaps: list[Gap]  #: In the order of the file; each with the offsets that may be missing for it.
    runs: list[tuple[int, int]]  #: Positions, half-open, of the batches that can be kept.
    offsets: tuple[int, int] | None = None  #: From the first of these batches to the end of the last; None without any.


def survey(
    file: AppendFile,
    base_offset: int,
    end_offset: int | None,
    open_txns: set[int],
    on_bytes: Callable[[int], None] = lambda size: None,
    taken: Collection[int] = (),
    limit_bytes: int = REWRITE_LIMIT_BYTES,
) -> Survey:
    """Look through a whole segment: headers, checksums, records, and the order of offsets.

    `end_offset` is where the next segment begins (None for the last one), `taken` the names of all segments.
    `open_txns`, the producers with an open transaction where the segment begins, is brought to its end. Raises
    CorruptionError if all batches lie below the segment (then its name is wrong), and for a batch beyond the limit,
    since it may be whole.
    """
    rows, gaps = _good_batches(file, base_offset, end_offset, on_bytes, limit_bytes)
    if len(rows) and (rows.last_offset < base_offset).all():
        first, last = int(rows.base_offset[0]), int(rows.last_offset[-1])
        advice = f"rename its files to {first:020}.*"
        if first in taken:
            advice = f"{first:020}.log is there as well: look at both by `pylogseg dump`, and take this one away"
        reason = f"its batches have offsets {first} to {last}, below its name: {advice}"
        raise CorruptionError(file.path, int(rows.position[0]), reason, first)
    chosen = ascending(rows, base_offset, end_offset)
    left_out = np.setdiff1d(np.arange(len(rows)), chosen)
    refused = _find_refused(rows[chosen], open_txns)
    gaps += [_gap(file, rows, int(chosen[row]), GapKind.ORDER, reason) for row, reason in refused.items()]
    chosen = np.delete(chosen, list(refused))
    gaps += [_gap(file, rows, row, GapKind.ORDER, _explain_misplaced(rows, row, chosen)) for row in left_out.tolist()]
    kept = rows[chosen]
    gaps.sort(key=lambda gap: gap.position)
    gaps = [_with_offsets(file, gap, kept, base_offset, end_offset) for gap in gaps]
    return Survey(gaps, _runs(kept), (int(kept.base_offset[0]), int(kept.last_offset[-1]) + 1) if len(kept) else None)


def _good_batches(
    file: AppendFile, base_offset: int, end_offset: int | None, on_bytes: Callable[[int], None], limit_bytes: int
) -> tuple[BatchTable, list[Gap]]:
    """Batches with a right checksum and readable records, and the gaps between them."""
    gaps: list[Gap] = []
    tables: list[npt.NDArray[Any]] = []

    def note(gap: Gap) -> None:
        if gap.kind is GapKind.UNREADABLE:  # what the disk cannot read today is not cut off
            raise gap.as_error()
        gaps.append(gap)
        on_bytes(gap.end_position - gap.position)

    for window in windows_past_leaps(file, base_offset, end_offset, note):
        bad = dict(_unreadable(window, file.path, limit_bytes))
        gaps += [_gap(file, window.batches, row, GapKind.RECORDS_BAD, why) for row, why in bad.items()]
        tables.append(np.delete(window.batches.rows, list(bad)))
        on_bytes(int(window.batches.size.sum(dtype=np.int64)))
    gaps, overlooked = _without_overlooked(file, gaps, base_offset, limit_bytes)
    rows = joined_rows([*tables, *overlooked])
    return BatchTable(rows[np.argsort(rows["position"], kind="stable")]), gaps


def ascending(rows: BatchTable, base_offset: int, end_offset: int | None) -> npt.NDArray[np.intp]:
    """Return the rows of the longest sequence of batches whose offsets ascend and are in the segment.

    The first one of duplicates stays. No checksum covers an offset, so a batch that does not fit between its neighbours
    is left out, and not they.
    """
    base, last = rows.base_offset, rows.last_offset
    inside = (base >= base_offset) & (last >= base)
    if end_offset is not None:
        inside &= last < end_offset
    at = np.flatnonzero(inside)
    if (base[at][1:] > last[at][:-1]).all():
        return _without_leap(at, rows, base_offset)
    # The lowest end of a chain of each length, and for each batch the one before it in its chain.
    ends: list[int] = []
    tips: list[int] = []
    before: list[int] = []
    for number, (first, end) in enumerate(zip(base[at].tolist(), last[at].tolist(), strict=True)):
        length = bisect_left(ends, first)
        before.append(tips[length - 1] if length else -1)
        if length == len(ends):
            ends.append(end)
            tips.append(number)
        elif end < ends[length]:
            ends[length], tips[length] = end, number
    chain, number = [], tips[-1]
    while number >= 0:
        chain.append(number)
        number = before[number]
    by_neighbours = at[~judge_base_offsets(rows[at], base_offset, end_offset).is_wrong]
    if len(by_neighbours) == len(chain):  # several chains are as long: what follows decides between them
        return _without_leap(np.asarray(by_neighbours), rows, base_offset)
    return _without_leap(np.asarray(at[chain[::-1]]), rows, base_offset)


def _without_leap(at: npt.NDArray[np.intp], rows: BatchTable, base_offset: int) -> npt.NDArray[np.intp]:
    """Drop a last batch whose offset leaps beyond the range of a segment: no later batch contradicts it."""
    if not len(at):
        return at
    before = int(rows.last_offset[at[-2]]) if len(at) > 1 else base_offset
    return at[:-1] if int(rows.base_offset[at[-1]]) - before > _MAX_RELATIVE else at


def _without_overlooked(
    file: AppendFile, gaps: list[Gap], base_offset: int, limit_bytes: int
) -> tuple[list[Gap], list[npt.NDArray[Any]]]:
    """Return the gaps without the good batches inside neighbouring ones, and these batches.

    A damaged length may lead into the middle of the next batch, to bytes that look like the beginning of one: then
    there are two gaps, and the good batch lies across their border.
    """
    left: list[Gap] = []
    found: list[npt.NDArray[Any]] = []
    for gap in gaps:
        # Where a batch with a good checksum begins and ends is known: nothing lies across its borders.
        is_known = gap.kind is GapKind.RECORDS_BAD or (bool(left) and left[-1].kind is GapKind.RECORDS_BAD)
        if not left or left[-1].end_position != gap.position or is_known:
            left.append(gap)
            continue
        batches = _batches_up_to(file, left[-1].position + 1, gap.end_position, base_offset, limit_bytes)
        if batches is None:
            left.append(gap)
            continue
        found.append(batches)
        left[-1] = left[-1]._replace(end_position=int(batches["position"][0]))
    return left, found


def _batches_up_to(
    file: AppendFile, start: int, end: int, lowest_offset: int, limit_bytes: int
) -> npt.NDArray[Any] | None:
    """Good batches in a row up to a position; otherwise they may be a record's payload that looks like batches."""
    search = BatchSearch(file, start, end)
    while (at := search.next(start, lowest_offset)) is not None:
        view = file.view(at, end - at)
        batches, stop, _ = scan(view, file_position=at)
        if stop == end and (batches.verdict == Verdict.GOOD).all():
            bad = dict(_unreadable(Window(batches, view, at), file.path, limit_bytes))
            return np.delete(batches.rows, list(bad)) if len(bad) < len(batches) else None
        search.spend(stop - at)
        start = at + 1
    return None


def _unreadable(window: Window, path: str, limit_bytes: int) -> Iterator[tuple[int, str]]:
    """Yield batches with good checksums whose records or marker cannot be read, or contradict their header."""
    first, check = 0, RecordsCheck()
    for columns, damage, continues, ends in decode_slices(
        window.batches, window.buffer, window.file_position, limit_bytes=limit_bytes, scratch=Scratch()
    ):
        for bad in damage:
            if bad.is_limit:
                raise CorruptionError(path, int(columns.batches.position[bad.row]), bad.reason)
            yield first + bad.row, bad.reason
        for _, row, reason, is_damage in check(columns, continues, ends):
            if is_damage:
                yield first + row, reason
        first += len(columns.batches) if ends else 0
    rows = window.batches
    wrong = (rows.magic == 2) & ((rows.count < 0) | (rows.count > rows.last_offset - rows.base_offset + 1))
    for row in np.flatnonzero(wrong).tolist():
        width = rows.last_offset[row] - rows.base_offset[row] + 1
        yield row, f"{rows.count[row]} records declared for {width} offsets"
    markers = np.flatnonzero((rows.magic == 2) & rows.is_control & (rows.producer_id >= 0))
    for row, batch in zip(markers.tolist(), _append.batches_of(rows[markers].rows, True), strict=True):
        try:
            marker_of(window.buffer, batch, window.file_position)
        except (InvalidRecordError, RequestError, CorruptionError) as error:
            yield row, f"a marker that cannot be read: {error}"


def _find_refused(rows: BatchTable, open_txns: set[int]) -> dict[int, str]:
    """Return batches with which no broker loads a log, since the marker before them is lost: rows and reasons."""
    refused = {}
    with_producer = np.flatnonzero(rows.producer_id >= 0)
    columns = (rows.producer_id, rows.is_control, rows.is_transactional)
    facts = zip(with_producer.tolist(), *(column[with_producer].tolist() for column in columns), strict=True)
    for row, producer_id, is_control, is_transactional in facts:
        if is_control:
            open_txns.discard(producer_id)
        elif is_transactional:
            open_txns.add(producer_id)
        elif producer_id in open_txns:
            refused[row] = f"producer {producer_id} has a transaction open, and this batch is not part of one"
    return refused


def _gap(file: AppendFile, rows: BatchTable, row: int, kind: GapKind, reason: str) -> Gap:
    position = int(rows.position[row])
    return Gap(file.path, kind, position, position + int(rows.size[row]), 0, None, reason, True)


def _explain_misplaced(rows: BatchTable, row: int, chosen: npt.NDArray[np.intp]) -> str:
    first, last = int(rows.base_offset[row]), int(rows.last_offset[row])
    same = (rows.base_offset[chosen] == first) & (rows.last_offset[chosen] == last)
    if same.any():
        position = int(rows.position[chosen[np.flatnonzero(same)[0]]])
        return f"a duplicate of the batch of offsets {first} to {last} at position {position}"
    return f"a batch of offsets {first} to {last} does not fit between its neighbours"


def _with_offsets(file: AppendFile, gap: Gap, kept: BatchTable, base_offset: int, end_offset: int | None) -> Gap:
    """The gap with the offsets that the batches around it, which are kept, and the next segment leave open."""
    behind = int(np.searchsorted(kept.position, gap.position))
    first = int(kept.last_offset[behind - 1]) + 1 if behind else base_offset
    if behind == len(kept):
        return gap._replace(first_offset=first, next_offset=end_offset)
    following = kept[behind : behind + 1]
    is_wrapper = following.magic[0] < 2 and following.codec[0]  # which tells its first offset only when it is opened
    position, size = int(following.position[0]), int(following.size[0])
    next_offset = (
        first_offset(following, file.view(position, size), file.path, position)
        if is_wrapper
        else int(following.base_offset[0])
    )
    return gap._replace(first_offset=first, next_offset=next_offset)


def _runs(rows: BatchTable) -> list[tuple[int, int]]:
    if not len(rows):
        return []
    starts, ends = rows.position, rows.position + rows.size
    breaks = np.flatnonzero(starts[1:] != ends[:-1]) + 1
    return list(
        zip(starts[np.append(0, breaks)].tolist(), ends[np.append(breaks, len(rows)) - 1].tolist(), strict=True)
    )
