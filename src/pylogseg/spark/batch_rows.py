"""Record batches and gaps of ranges of segments as Arrow rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from pylogseg.datasets.batch_rows import BATCHES, of_range
from pylogseg.errors import StorageError
from pylogseg.reading.planned_logs import Vanished
from pylogseg.reading.ranges import Range
from pylogseg.spark.options import SourceOptions
from pylogseg.spark.task import planned_logs

#: Schema of `pylogseg.spark.batches`. A range without a good batch has a `problem`, and null in unknown columns.
BATCH_SCHEMA = (
    "topic string, `partition` int, segment string, position bigint, sizeBytes bigint, baseOffset bigint, "
    "lastOffset bigint, count int, magic int, codec string, timestampType int, maxTimestamp timestamp, "
    "leaderEpoch int, producerId bigint, producerEpoch smallint, baseSequence int, isTransactional boolean, "
    "isControl boolean, problem string"
)


def read_batches(task: Iterable[Range], options: SourceOptions) -> Iterator[pa.RecordBatch]:
    """Yield the batch headers of a task as rows; payloads are read only with ``checkCrc``.

    Raises
    ------
    StorageError
        If a segment was deleted.
    """
    logs = planned_logs(options)
    for part in task:
        segment = logs.segments(part)[0]
        try:
            view = segment.open()
        except Vanished as error:
            raise StorageError(part.path, "read", "deleted since the plan was made") from error
        with view:
            found = of_range(segment, view, part.first_offset, part.end_offset, BATCHES, crc=options.check_crc)
            yield from (rows for rows, _ in found)
