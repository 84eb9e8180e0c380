"""Moving a partition to another log directory, by a copy in a folder whose name ends in ``-future``."""

from __future__ import annotations

from collections.abc import Callable

from pylogseg.errors import OffsetOutOfRangeError, RequestError
from pylogseg.format.batches import scan
from pylogseg.owned.log import EmbeddedLog

_STEP_BYTES = 4 << 20
_ANY_EPOCH = 2**31 - 1


class Mover:
    """Copies the batches of a log into another one, as they are."""

    def __init__(
        self, source: EmbeddedLog, target: EmbeddedLog, progress: Callable[[int, int], object] | None = None
    ) -> None:
        self._source, self._target, self._progress = source, target, progress
        self._cuts = source.engine.state.cuts
        if not self._fits():
            self._start_over()

    def copy(self) -> None:
        """Copy until little is left, while the source may grow."""
        while self._step() >= _STEP_BYTES // 2:
            pass

    def finish(self) -> None:
        """Copy the rest, while nobody appends, and flush everything.

        Raises RequestError if the log ends after its last batch, as after a truncation into the middle of one.
        """
        source, target = self._source, self._target
        while self._step():
            pass
        if target.log_end_offset != source.log_end_offset:
            raise RequestError(
                f"{source.folder}: the log ends at {source.log_end_offset}, its last batch at {target.log_end_offset}: "
                "append a record, then move the log"
            )
        target.increment_log_start(source.log_start_offset)
        target.ownership.leader_epoch = source.leader_epoch
        target.flush()

    def _fits(self) -> bool:
        """Return whether the target is a beginning of the source, by a comparison of its last batch."""
        source, target = self._source, self._target
        end = target.log_end_offset
        if end == target.log_start_offset or not source.log_start_offset < end <= source.log_end_offset:
            return end == source.log_start_offset
        last = [bytes(log.engine.fetch(end - 1, 1).data) for log in (source, target)]
        return last[0] == last[1]

    def _start_over(self) -> None:
        self._cuts = self._source.engine.state.cuts
        self._target.engine.truncate_fully(self._source.log_start_offset)

    def _step(self) -> int:
        """Copy some batches; return how many bytes."""
        source, target = self._source, self._target
        if self._cuts != source.engine.state.cuts:  # copied records may have been truncated and replaced
            self._start_over()
        try:
            data = source.engine.fetch(target.log_end_offset, _STEP_BYTES).data
        except OffsetOutOfRangeError:  # retention was faster
            self._start_over()
            return _STEP_BYTES
        size = int(scan(data, crc=False).batches.size.sum())
        if size:
            target.engine.append_as_follower(data[:size], _ANY_EPOCH)
        if self._progress is not None:
            self._progress(target.log_end_offset, source.log_end_offset)
        return size
