"""`truncate`: cut off the end of a partition at an offset, like a broker's truncation."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pylogseg.disk.target import Target, chosen_in
from pylogseg.errors import RequestError
from pylogseg.log.log import Log
from pylogseg.offline.options import OptionKeywords, Options, takes_executor
from pylogseg.offline.partition import OfflinePartition
from pylogseg.offline.result import Result
from pylogseg.offline.running import run_command

if TYPE_CHECKING:  # typing has it from Python 3.11 on
    from typing_extensions import Unpack


@takes_executor
def truncate(path: str | os.PathLike[str], to: int, **options: Unpack[OptionKeywords]) -> Result:
    """Cut off the end of one partition, as a broker does that follows a new leader.

    Batches that hold the offset or come after it go, with their index entries, producer snapshots and leader epochs.
    Where the offset lies inside a batch the log ends before that batch, as a broker finds it that starts after such a
    truncation. Below the first segment everything goes, and the log goes on at the offset. Checkpoints follow: the
    recovery point, the high watermark, the log start offset, and the cleaner's offset (back to the beginning of the
    last segment).

    Parameters
    ----------
    path : path
        The folder of a partition, or a log directory with the partition in ``topics``.
    to : int
        The lowest offset that must not be there any more.
    **options
        See `pylogseg.offline.options.Options`.

    Returns
    -------
    Result
        ``numbers`` of a result: ``endBefore``, ``firstGone`` (the lowest offset that went), ``offsetsGone``,
        ``belowHighWatermark`` (of these, those that consumers may have read).
    """
    shared = Options.of(options)
    if to < 0:
        raise RequestError(f"invalid offset {to}: a log cannot end below 0")
    chosen = chosen_in(Target.find_all(shared.storage, os.fspath(path)), shared.choice)
    count = sum(len(names) for _, names in chosen)
    if count != 1:
        raise RequestError(f"{count} partitions are selected: name the one to truncate to {to}")
    return run_command(path, shared, lambda part: _truncate(part, part.open(), to))


def _truncate(part: OfflinePartition, log: Log, to: int) -> None:
    result, end, watermark = part.result, log.log_end_offset, log.high_watermark
    start, active = log.log_start_offset, log.active.base_offset
    first_gone = _first_gone(log, to)
    if not log.truncate_to(_end_below(log, first_gone)):
        result.state = "unchanged"
        result.notes.append(f"the log ends at {end}, so there is nothing to remove from {to} on")
        return
    if first_gone < active and part.directory is not None:
        part.directory.note_cleaned(part.name, log.active.base_offset, lower_only=True)
    result.loses_records = True
    result.numbers = {
        "endBefore": end,
        "firstGone": first_gone,
        "offsetsGone": max(0, end - max(first_gone, start)),
        "belowHighWatermark": max(0, watermark - max(first_gone, start)),
    }
    if first_gone < to:
        result.notes.append(f"{to} lies inside a batch: offsets {first_gone} to {to - 1} go with it")
    if max(first_gone, start) < watermark:
        result.notes.append(f"offsets {max(first_gone, start)} to {watermark - 1} lie below the high watermark: "
                             "consumers may have read them")  # fmt: skip
    if to < start:
        result.notes.append(f"it begins at {start}: nothing is left, and it goes on at {to}")


def _end_below(log: Log, offset: int) -> int:
    """Return the end of the last batch below an offset: a load does not know of a gap in the offsets after it."""
    segment = log.segments.floor(offset)
    if segment is None:
        return offset
    end = segment.base_offset
    for window in segment.windows(segment.offset_index.floor(offset - 1)[1]):
        ends = window.batches.next_offset
        below = int((ends <= offset).sum())
        if below:
            end = int(ends[below - 1])
        if below < len(ends):
            break
    return end


def _first_gone(log: Log, offset: int) -> int:
    """First offset of the batch that holds an offset; the offset itself if none does."""
    segment = log.segments.floor(offset)
    place = None if segment is None else segment.place_of(offset)
    return offset if place is None else min(offset, place.offset)
