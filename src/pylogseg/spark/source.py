"""`format("pylogseg")`: the data source, and its reader for batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from pylogseg.errors import RequestError
from pylogseg.offline.restoring.rows import WriteOptions, write_rows
from pylogseg.spark.options import SourceOptions, check_names, for_table, parse, paths_of
from pylogseg.spark.plan import plan
from pylogseg.spark.schema import (
    columns_in,
    options_in,
    selected_columns,
    spark_schema,
    typed_spark_schema,
    with_options,
)
from pylogseg.spark.task import read_task
from pylogseg.spark.typed import typed_source
from pylogseg.spark.worker import freeze_modules, task_name
from pylogseg.transfer.staging import Staging, WrittenPart
from pylogseg.values.decoding import TypedBatches


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
        self._staging.commit([file for message in messages for file in message.written], overwrite=self._overwrite)

    def abort(self, messages: list[Any]) -> None:
        """On the driver: remove the staging folder."""
        self._staging.abort()


#: Prefixes of options that are different for a batch and a stream.
_OF_ONE = ("starting", "ending", "maxoffsets", "minoffsets", "maxtrigger")


class PylogsegSource(DataSource):
    """Segments as a table and a stream, with the columns and options of Spark's Kafka source."""

    @classmethod
    def name(cls) -> str:
        return "pylogseg"

    def schema(self) -> StructType:
        """Return the columns that the options select; for a catalog's table they carry the options."""
        kept = for_table(self.options)
        settings = self.options if kept is None else kept
        check_names(settings)
        options = parse(_of_both(settings))
        typed = typed_source(paths_of(settings), options) if options.decoding else None
        schema = spark_schema(selected_columns(options)) if typed is None else typed_spark_schema(typed.schema())
        return schema if kept is None else with_options(schema, kept)

    def reader(self, schema: StructType) -> Any:
        settings = self._merge_options(schema)
        options = parse(settings)
        paths = paths_of(settings)
        typed = typed_source(paths, options)
        columns = columns_in(schema, None if typed is None else typed.schema())
        return SegmentReader(paths, options, columns, typed)

    def streamReader(self, schema: StructType) -> Any:
        from pylogseg.spark.stream import SegmentStreamReader

        settings = self._merge_options(schema)
        paths, options = paths_of(settings), parse(settings, streaming=True)
        typed = typed_source(paths, parse(_of_both(settings)))
        columns = columns_in(schema, None if typed is None else typed.schema())
        is_unsaid = not self._has_path and not any(name.startswith("starting") for name in settings)
        return SegmentStreamReader(paths, options, columns, typed, warns=is_unsaid)

    @property
    def _has_path(self) -> bool:
        """True if the query names a path; else it reads a table."""
        return any(name.lower() in ("path", "paths") for name in self.options)

    def _merge_options(self, schema: StructType) -> dict[str, str]:
        """Return the options of the query, and of its table; a query with its own path reads no table."""
        query = {name.lower(): value for name, value in self.options.items()}
        if self._has_path:
            return query
        table = options_in(schema)
        if not table:
            raise RequestError(
                'no path: load("/var/lib/kafka/data") needs a log directory, a partition\'s folder, or a URL of one. '
                "For a table with declared columns, Spark does not pass the options to a Python source: name the path "
                "in the query, SELECT ... FROM t WITH (path = '...'), or choose the columns by an option, "
                "CREATE TABLE t USING pylogseg OPTIONS (path '...', columns 'offset,value')"
            )
        return {**table, **query}

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        """Return a writer for one query: rows become partitions."""
        from pylogseg.spark.write_options import check_row_columns, parse_write

        if not any(name.lower() == "path" for name in self.options):
            raise RequestError(
                'no path: save("/var/lib/kafka/restored") needs the folder for the partitions. '
                "INSERT INTO a table is not possible: Spark does not pass the options of the table to a Python source"
            )
        options = parse_write(self.options)
        check_row_columns({field.name: field.dataType.simpleString() for field in schema}, options)
        return PartitionsWriter(options, overwrite)


def _of_both(given: Any) -> dict[str, str]:
    """Select the options that batch and stream share: Spark asks for a schema before it asks for a reader or writer."""
    return {name: value for name, value in given.items() if not name.lower().startswith(_OF_ONE)}


class SegmentReader(DataSourceReader):
    """Reads segments once. It is small, because Spark sends it to every task."""

    def __init__(
        self, paths: list[str], options: SourceOptions, columns: tuple[str, ...], typed: TypedBatches | None = None
    ) -> None:
        self._paths, self._options, self._columns, self._typed = paths, options, columns, typed

    def partitions(self) -> list[Any]:
        """Return a Spark partition for each task of the plan."""
        return [InputPartition(task) for task in plan(self._paths, self._options)]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task. Spark makes a partition without a value if there are none."""
        yield from read_task(partition.value or (), self._options, self._columns, self._typed)
        freeze_modules()
