"""Results of appends."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pylogseg.errors import PylogsegError


class Appended(NamedTuple):
    """Result of an append.

    Attributes
    ----------
    first_offset, last_offset : int
        Offsets of the records; of a duplicate, those of the earlier batch; -1 if the log wrote nothing.
    max_timestamp : int
        Milliseconds; -1 none.
    append_time_ms : int
        The broker's clock for LogAppendTime logs, the timestamp of the earlier batch for a duplicate; otherwise -1.
    valid_bytes : int
        Bytes of the whole batches that were given.
    log_start_offset : int
    is_duplicate : bool
    """

    first_offset: int
    last_offset: int
    max_timestamp: int
    append_time_ms: int
    valid_bytes: int
    log_start_offset: int
    is_duplicate: bool = False


@dataclass(slots=True)
class AppendedMany:
    """Results of many batches, in columns with a row for each; fields as in `Appended`."""

    #: Of the batch that was written before for a duplicate; -1 if nothing was written.
    first_offset: npt.NDArray[np.int64]
    last_offset: npt.NDArray[np.int64]
    max_timestamp: npt.NDArray[np.int64]
    append_time_ms: npt.NDArray[np.int64]
    valid_bytes: npt.NDArray[np.int64]  #: Of each batch; 0 if it was refused.
    is_duplicate: npt.NDArray[np.bool_]
    errors: dict[int, PylogsegError] = field(default_factory=dict)  #: Of the rows that were refused.
    log_start_offset: int = -1

    @classmethod
    def blank(cls, count: int) -> AppendedMany:
        """Return rows for batches that are not written yet."""
        first, last, timestamp, append_time = np.full((4, count), -1, np.int64)
        return cls(first, last, timestamp, append_time, np.zeros(count, np.int64), np.zeros(count, np.bool_))

    def __len__(self) -> int:
        return len(self.last_offset)

    def __getitem__(self, row: int) -> Appended:
        """Return the result of one batch, or raise its error."""
        if row in self.errors:
            raise self.errors[row]
        return Appended(
            int(self.first_offset[row]),
            int(self.last_offset[row]),
            int(self.max_timestamp[row]),
            int(self.append_time_ms[row]),
            int(self.valid_bytes[row]),
            self.log_start_offset,
            bool(self.is_duplicate[row]),
        )

    def raise_first(self) -> None:
        """Raise the error of the first batch that was refused, if there is one."""
        if self.errors:
            raise self.errors[min(self.errors)]

    def set(self, row: int, done: Appended) -> None:
        self.first_offset[row], self.last_offset[row] = done.first_offset, done.last_offset
        self.max_timestamp[row], self.append_time_ms[row] = done.max_timestamp, done.append_time_ms
        self.valid_bytes[row], self.is_duplicate[row] = done.valid_bytes, done.is_duplicate
