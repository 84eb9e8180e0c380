"""`df.write.format("pylogseg")`: turn rows into partitions, which a commit puts in place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from pylogseg.offline.restoring.partition import WrittenPart
from pylogseg.offline.restoring.rows import WriteOptions, write_rows
from pylogseg.offline.restoring.staging import Staging
from pylogseg.spark.worker import task_name


@dataclass
class TaskWrote(WriterCommitMessage):
    """The partitions that one attempt of a task wrote."""

    written: list[WrittenPart]


class PartitionsWriter(DataSourceArrowWriter):
    """Writes the rows of each task to a staging folder, and puts them in place when all tasks are done."""

    def __init__(self, options: WriteOptions, overwrite: bool) -> None:
        self._options, self._overwrite = options, overwrite
        staging = Staging(options.root)
        staging.begin()
        self._write_id = staging.write_id

    @property
    def _staging(self) -> Staging:
        return Staging(self._options.root, self._write_id)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskWrote:
        """Write the rows of a task into the staging folder."""
        return TaskWrote(write_rows(iterator, self._staging, task_name(), self._options))

    def commit(self, messages: list[Any]) -> None:
        """On the driver: put the partitions of the successful attempts in place."""
        self._staging.commit([each for message in messages for each in message.written], overwrite=self._overwrite)

    def abort(self, messages: list[Any]) -> None:
        """On the driver: remove the staging folder."""
        self._staging.abort()
