"""`compact`: clean a log like the broker's cleaner, until nothing is left to clean."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np

from pylogseg.errors import CleaningAbortedError, RequestError
from pylogseg.format.records import DECOMPRESSED_LIMIT_BYTES
from pylogseg.log.cleaner import Cleaner
from pylogseg.log.cleaner_filter import decode_each
from pylogseg.log.cleaner_range import cleanable, dirtiness
from pylogseg.log.log import Log
from pylogseg.log.offset_map import SLOT_BYTES, OffsetMap
from pylogseg.offline.options import OptionKeywords, Options, takes_executor
from pylogseg.offline.partition import OfflinePartition
from pylogseg.offline.result import Result
from pylogseg.offline.running import run_command

if TYPE_CHECKING:  # typing has it from Python 3.11 on
    from typing_extensions import Unpack

_NAME_IT = (
    "cleanup.policy is not known: give --cluster-metadata or --config cleanup.policy=compact, or use --force to "
    "compact anyway"
)
_MORE = "give it more by map_bytes (--map-memory)"


@takes_executor
def compact(
    path: str | os.PathLike[str],
    *,
    force: bool = False,
    min_dirty_ratio: float = 0.0,
    include_active: bool = False,
    map_bytes: int | None = None,
    max_decompressed_bytes: int = DECOMPRESSED_LIMIT_BYTES,
    **options: Unpack[OptionKeywords],
) -> Result:
    """Keep the last record of each key, as the cleaner of a broker does.

    Parameters
    ----------
    path : path
        A log directory, or the folder of one partition.
    force : bool
        Take partitions without ``compact`` in their ``cleanup.policy``, too.
    min_dirty_ratio : float
        Leave partitions with a smaller dirty share. 0 takes every partition that is dirty at all.
    include_active : bool
        Roll the active segment first: a cleaning never touches the last segment, so the newest records would stay.
    map_bytes : int, optional
        Memory of the maps of keys, each 24 bytes; ``log.cleaner.dedupe.buffer.size`` if not given. Threads share it.
        With less than all keys need, the log is cleaned in several rounds.
    max_decompressed_bytes : int
        A partition with a batch that decompresses to more is given up: what a few bytes can declare has to fit into
        memory, several times over.
    **options
        See `pylogseg.offline.options.Options`.

    Returns
    -------
    Result
        ``numbers`` of a result: ``rounds``, ``recordsRead``, ``recordsRemoved``, of these ``recordsWithoutKey``.
    """
    shared = Options.of(options)

    def work(part: OfflinePartition) -> None:
        unknown = part.settings.why_unknown(part.topic, part.name)
        if unknown and not force and not part.settings.knows(part.topic, "cleanup_policy", name=part.name):
            part.result.skip(unknown, _NAME_IT, not_done=True)
            return
        if not part.config.compact and not force:
            part.result.skip("cleanup.policy has no compact", "use --force to compact anyway")
            return
        log = part.open()
        if not part.config.compact:
            _refuse_without_keys(log, max_decompressed_bytes)
        rolls = include_active and log.active.size > 0
        if rolls:
            log.roll()
        offsets = _map_of(part, map_bytes, shared.jobs)
        cleaner = Cleaner(offsets, throttle=part.advance, limit_bytes=max_decompressed_bytes)
        cleans = _clean(part, log, min_dirty_ratio, cleaner, offsets.limit)
        part.result.state = "done" if rolls or cleans else "unchanged"

    return run_command(path, shared, work)


def _refuse_without_keys(log: Log, limit_bytes: int) -> None:
    """A cleaning drops such records: which in a log that is compacted was agreed, and here was not."""
    for segment in log.segments:
        for window in segment.windows():
            data = ~window.batches.is_control
            where = window.buffer, window.file_position, segment.path
            for _, records in decode_each(window.batches, data, *where, limit_bytes):
                without = np.flatnonzero(records.key_size < 0)
                if len(without):
                    raise RequestError(
                        f"{segment.path}: the record at offset {records.offset[without[0]]} has no key, so a cleaning "
                        "would remove it"
                    )


def _map_of(part: OfflinePartition, map_bytes: int | None, jobs: int) -> OffsetMap:
    memory = part.broker.log_cleaner_dedupe_buffer_size if map_bytes is None else map_bytes
    offsets = OffsetMap(min(memory // jobs, 2**31 - 1), part.broker.log_cleaner_io_buffer_load_factor)
    if offsets.limit == 0:
        raise RequestError(f"a map of {memory // jobs} bytes has no room for a key, which takes {SLOT_BYTES}: {_MORE}")
    return offsets


def _clean(part: OfflinePartition, log: Log, min_dirty_ratio: float, cleaner: Cleaner, most_keys: int) -> bool:
    last_clean = None if part.directory is None else part.directory.cleaned_to(part.name)
    numbers = part.result.numbers = {"rounds": 0, "recordsRead": 0, "recordsRemoved": 0, "recordsWithoutKey": 0}
    while True:
        what = cleanable(log, last_clean, part.clock.now_ms())
        how = dirtiness(log, what)
        if not how.cleanable_bytes or (not numbers["rounds"] and how.ratio < min_dirty_ratio):
            break
        try:
            last_clean, stats = cleaner.clean(log, what)
        except CleaningAbortedError:  # a segment had to be split first
            continue
        numbers["rounds"] += 1
        numbers["recordsRead"] += stats.messages_read
        numbers["recordsRemoved"] += stats.messages_read - stats.messages_written
        numbers["recordsWithoutKey"] += stats.invalid_messages_read
        if part.directory is not None:
            part.directory.note_cleaned(part.name, last_clean)
        if last_clean <= what.first_dirty:
            raise RequestError(f"the map holds {most_keys:,} keys, which is not enough for one batch: {_MORE}")
    return numbers["rounds"] > 0
