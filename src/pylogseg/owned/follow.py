"""Following a log: reading records as they are appended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pylogseg.errors import ClosedError, OffsetOutOfRangeError, RequestError
from pylogseg.owned.ownership import Ownership
from pylogseg.owned.slices import SliceReader, readable_end
from pylogseg.reading.column_names import check_columns
from pylogseg.reading.partition import Chunk, ReadOptions
from pylogseg.reading.stream import Record, records_of


class Follower:
    """Follows a log that is being written; iterate over it for `Record`s, over `chunks` for columns.

    Each iteration starts at the first offset again, and waits at the end of the log.
    """

    def __init__(
        self,
        owned: Ownership,
        offset: int | None,
        timeout: float | None,
        options: ReadOptions,
        columns: Sequence[str] | None,
    ) -> None:
        if columns is not None:
            check_columns(columns)
        if timeout is not None and timeout < 0:
            raise RequestError(f"timeout must be at least 0, got {timeout}")
        self._owned, self._offset, self._timeout = owned, offset, timeout
        self._options, self._columns = options, columns

    def chunks(self) -> Iterator[Chunk]:
        """Yield columns of the records as they are appended; none are empty.

        Raises
        ------
        OffsetOutOfRangeError
            The next record was deleted, or the log was truncated below it.
        CorruptionError, StorageError
            As of `EmbeddedLog.read`.
        """
        log, isolation_level = self._owned.log, self._options.isolation_level
        position = log.log_start_offset if self._offset is None else self._offset
        while True:
            if not log.log_start_offset <= position <= log.log_end_offset:
                raise OffsetOutOfRangeError(
                    f"{log.folder}: cannot continue at offset {position}: "
                    f"the log has {log.log_start_offset} to {log.log_end_offset}"
                )
            end = readable_end(log, isolation_level)
            if position < end:
                reader = SliceReader(log, position, end, self._options)
                try:
                    for chunk in reader:
                        if len(chunk.columns):
                            yield chunk
                except ClosedError:  # closed between two reads: this is the end, unless the disk failed
                    log.state.check_disk()
                    return
                position = reader.position
            elif not self._wait_beyond(position):
                log.state.check_disk()
                return

    def _wait_beyond(self, position: int) -> bool:
        log, isolation_level = self._owned.log, self._options.isolation_level
        return self._owned.wait_until(lambda: readable_end(log, isolation_level) > position, self._timeout)

    def __iter__(self) -> Iterator[Record]:
        for chunk in self.chunks():
            yield from records_of(chunk, self._columns)
