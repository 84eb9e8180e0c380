"""The plain batches of a segment, which most are: a cleaning reads them by compiled calls, without columns.

Batches that are not plain, are damaged or have no room come as windows, for the general way, which names the fault.
Both ways make the same bytes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

import numpy as np

from pylogseg._native import _cleaning
from pylogseg.env.filesystem import read_into
from pylogseg.errors import CleaningAbortedError
from pylogseg.format.batches import BATCH_DTYPE, BatchTable
from pylogseg.format.builder import CODEC_MASK, CONTROL, TRANSACTIONAL
from pylogseg.format.scratch import Scratch
from pylogseg.log.segment import LogSegment
from pylogseg.log.segment_rewrite import Filtered, whole_windows
from pylogseg.walker.windows import Window

#: Bytes of a file that one call reads at most, and those that it reads at a time: a batch is worked on in the cache.
_CALL_BYTES, _PIECE_BYTES = 4 << 20, 768 << 10
#: What a call may write: somewhat more than it reads, as another base timestamp makes records longer.
_OUT_BYTES, _OUT_BATCHES = _CALL_BYTES + (256 << 10), 1 << 14

_T = TypeVar("_T")


class PlainReader:
    """Memory for the calls of a cleaning, one at a time."""

    def __init__(self) -> None:
        self._memory = np.empty(_CALL_BYTES, np.uint8)
        self._passing = _cleaning.Pass(self._memory, _PIECE_BYTES)
        self._out = np.empty(_OUT_BYTES, np.uint8)
        self._rows = np.empty(_OUT_BATCHES, BATCH_DTYPE)

    def call(self, segment: LogSegment, kernel: Callable[..., Any], position: int, *more: Any) -> Any:
        """Call a pass for the batches from a position of a segment on; CleaningAbortedError if it was cut meanwhile."""
        file, calls = segment.log, itertools.count()

        def once(descriptor: int, size: int) -> Any:
            if next(calls):  # what was put into the map may be gone from the file
                raise CleaningAbortedError(f"{segment.path}: the file was cut while it was cleaned; try again")
            return kernel(descriptor, size, position, self._passing, *more)

        result = file.by_descriptor(once)
        if result is None:
            data = read_into(file, position, self._memory.data[: file.size - position])
            self._memory[: len(data)] = np.frombuffer(data, np.uint8)
            result = kernel(-1, position + len(data), position, self._passing, *more)
        return result

    def filter(self, segment: LogSegment, position: int, *rule: Any) -> PlainBatches:
        """Filter batches by a rule, which is the arguments of `_cleaning.filter_plain`; see there."""
        size, count, end, records, kept, without_key = self.call(
            segment, _cleaning.filter_plain, position, *rule, self._rows, self._out
        )
        filtered = Filtered(self._out.data[:end], BatchTable(self._rows[:count]))
        return PlainBatches(size, records, kept, without_key, filtered)


class PlainBatches(NamedTuple):
    """Batches that were filtered."""

    size: int
    records: int
    kept: int
    without_key: int
    filtered: Filtered  #: Valid until the next call.


def last_batches(data_offsets: Mapping[int, int]) -> tuple[Any, Any]:
    """Return producers, and the last offsets of their last batches, ascending by these."""
    pairs = sorted((offset, number) for number, offset in data_offsets.items() if offset >= 0)
    batches = np.array(pairs, np.int64).reshape(-1, 2)
    return np.ascontiguousarray(batches[:, 1]), np.ascontiguousarray(batches[:, 0])


def steps(
    segment: LogSegment,
    position: int,
    plain: Callable[[int], tuple[int, _T]],
    *,
    crc: bool,
    scratch: Scratch,
) -> Iterator[_T | Window]:
    """Yield the results of `plain` for batches from a position on, and windows of batches that it cannot take.

    It returns how many bytes it has done, and what it made of them. A window is valid until the next step. Raises as
    `whole_windows` does.
    """
    is_plain = True
    while position < segment.size:
        if is_plain:
            size, item = plain(position)
            if size:
                position += size
                yield item
                continue
        window = next(whole_windows(segment, position, crc=crc, memory=scratch.window))
        yield window
        position += int(window.batches.size.sum(dtype=np.int64))
        # One more of the same kind probably follows.
        is_plain = _is_plain(window.batches)


def _is_plain(batches: BatchTable) -> bool:
    unlike = CODEC_MASK | CONTROL | TRANSACTIONAL
    return batches.rows["magic"][-1] == 2 and not batches.rows["attributes"][-1] & unlike
