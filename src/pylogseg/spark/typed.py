"""Keys and values as nested columns of Spark: schemas are chosen by the driver, and go to the tasks."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from pylogseg.disk.disk import open_dir
from pylogseg.reading.arrow import columns as arrow
from pylogseg.reading.partition import Chunk
from pylogseg.spark.logs import find_logs, naming_option
from pylogseg.spark.options import SourceOptions
from pylogseg.spark.plan import plan
from pylogseg.spark.schema import columns_of
from pylogseg.spark.task import chunks, read_task
from pylogseg.values.decoding import Decoding, TypedBatches, schemas_disk, typed_batches
from pylogseg.values.schemas.store import Schemas

_log = logging.getLogger("pylogseg.spark")


def for_spark(kind: pa.DataType) -> pa.DataType:
    """Return the type that Spark has for one of Arrow's: times of day are numbers, as `from_avro` has them."""
    if pa.types.is_dictionary(kind) or pa.types.is_decimal256(kind):
        return pa.string()
    if pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    if pa.types.is_unsigned_integer(kind):
        return pa.int64() if kind.bit_width < 64 else pa.decimal128(20, 0)
    if pa.types.is_time(kind):
        return pa.int32() if kind.bit_width == 32 else pa.int64()
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    return pa.duration("us") if pa.types.is_duration(kind) else kind


class TypedSource:
    """What decodes the records of a read. It goes to every task.

    Parameters
    ----------
    typed : TypedBatches
        Its names are the columns of the read.
    opens_again : bool
        Whether each task looks for schemas by itself: those that were not there when a stream began.
    """

    def __init__(self, typed: TypedBatches, places: Sequence[str], opens_again: bool) -> None:
        self._typed, self._places, self._opens_again = typed, places, opens_again

    @property
    def schema(self) -> pa.Schema:
        """All columns."""
        return self._typed.schema(arrow.schema(self._typed.names))

    def read(self, task: Iterable[object], options: SourceOptions, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield some columns of the rows of a task; see `read_task`."""
        typed = self._typed.of(columns)
        if self._opens_again:
            typed = typed.with_schemas(_schemas(self._places, options))
        with naming_option():
            for batch in typed.batches(read_task(task, options, typed.needed())):  # type: ignore[arg-type]
                yield batch.select(list(columns))
        if typed.undecoded:
            _log.warning("%d payloads could not be decoded", typed.undecoded)


def typed_source(paths: Sequence[str], options: SourceOptions, *, streaming: bool = False) -> TypedSource | None:
    """Choose the schemas of a read; the first records are read if nothing else says them. None without ``decode``."""
    if not options.decode:
        return None
    schemas = _schemas(paths, options)
    decoding = Decoding(
        options.decode,
        int(options.schema) if options.schema.isdecimal() else options.schema or None,
        schemas,
        options.on_undecoded,
        message=options.message or None,
        form=for_spark,
        show_secrets=options.show_secrets,
    )
    if options.schema and len(options.decode) > 1:
        decoding = replace(decoding, schema={"value": decoding.schema})  # type: ignore[dict-item]

    def first_task() -> Iterator[Chunk]:
        first = replace(options, push_filters=False, min_partitions=0)
        for task in plan(paths, first)[:1]:
            yield from chunks(task, first, [*options.decode, "headers"])

    disk = open_dir(paths, storage=options.storage)
    topics = sorted({log.topic for log in find_logs(paths, options)})
    typed = typed_batches(decoding, disk, topics, columns_of(options), first_task)
    return TypedSource(typed, list(paths), streaming)


def _schemas(paths: Sequence[str], options: SourceOptions) -> Schemas:
    if options.registry:
        return Schemas.open(options.registry)
    return Schemas.open(schemas_disk(open_dir(paths, storage=options.storage)))
