"""The filter of a reader: which offsets of a log are read for it, and which records of a chunk it leaves."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pylogseg.reading.arrow import columns as arrow
from pylogseg.reading.column_names import BATCH_COLUMNS, DEFAULT_COLUMNS
from pylogseg.reading.log_reader import LogFiles, Source
from pylogseg.reading.log_scan import known_of
from pylogseg.reading.partition import Chunk
from pylogseg.reading.pruning import bounds_of, check_filter, fields_of, filtered

_ALL = arrow.schema((*DEFAULT_COLUMNS, *BATCH_COLUMNS))
_ROW = "row"


class Where:
    """An expression of Arrow as the filter of a reader.

    Parameters
    ----------
    filter : pyarrow.compute.Expression
        On the columns of `read_arrow` and those about batches.

    Raises
    ------
    RequestError
        For what is no such expression.
    """

    def __init__(self, filter: Any) -> None:
        check_filter(filter, _ALL)
        #: As it was given.
        self.expression = filter
        self._wanted = arrow.schema(fields_of([filter], _ALL.names) or ["partition"])

    def range_of(self, log: Source) -> tuple[int, int]:
        """Return the offsets of a log that matching records have; half-open, and empty if it has none."""
        found = bounds_of(self.expression, _ALL, known_of(log) if isinstance(log, LogFiles) else None)
        if found is None:
            return 0, 0
        since = 0 if found.since_ms is None else log.offset_of_time(found.since_ms)
        return max(found.first_offset, since), found.end_offset

    def rows(self, chunk: Chunk) -> npt.NDArray[np.int64]:
        """Return the numbers of the matching records of a chunk."""
        table = pa.Table.from_batches([arrow.record_batch(chunk, self._wanted)])
        numbered = table.append_column(_ROW, pa.array(np.arange(len(chunk.columns))))
        found: npt.NDArray[np.int64] = filtered(numbered, self.expression).column(_ROW).to_numpy()
        return found
