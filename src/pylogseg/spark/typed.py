"""Keys and values as nested columns of Spark: schemas are chosen by the driver, and go to the tasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from pylogseg.disk.listing import open_dir
from pylogseg.reading.partition import Chunk
from pylogseg.spark.logs import find_logs
from pylogseg.spark.options import SourceOptions
from pylogseg.spark.plan import plan
from pylogseg.spark.schema import selected_columns
from pylogseg.spark.task import chunks
from pylogseg.values.decoding import Decoding, TypedBatches, schemas_disk, typed_batches
from pylogseg.values.forms import for_spark
from pylogseg.values.schemas.store import Schemas


def with_new_schemas(typed: TypedBatches | None, paths: Sequence[str], options: SourceOptions) -> TypedBatches | None:
    """Return the decoder for a task of a stream, also with schemas that are newer than the stream's start."""
    return None if typed is None else typed.with_schemas(_schemas(paths, options))


def typed_source(paths: Sequence[str], options: SourceOptions) -> TypedBatches | None:
    """Choose the schemas of a read; the first records are read if nothing else says them. None without ``decoding``."""
    if not options.decoding:
        return None
    schemas = _schemas(paths, options)
    decoding = Decoding(
        options.decoding,
        int(options.schema) if options.schema.isdecimal() else options.schema or None,
        schemas,
        options.on_undecoded,
        message=options.message or None,
        form=for_spark,
        show_secrets=options.show_secrets,
    )
    if options.schema and len(options.decoding) > 1:
        decoding = replace(decoding, schema={"value": decoding.schema})  # type: ignore[dict-item]

    def first_task() -> Iterator[Chunk]:
        first = replace(options, min_partitions=0)
        for task in plan(paths, first)[:1]:
            yield from chunks(task, first, [*options.decoding, "headers"])

    disk = open_dir(paths, storage_options=options.storage_options)
    topics = sorted({log.topic for log in find_logs(paths, options)})
    return typed_batches(decoding, disk, topics, selected_columns(options), first_task)


def _schemas(paths: Sequence[str], options: SourceOptions) -> Schemas:
    if options.registry:
        return Schemas.open(options.registry)
    return Schemas.open(schemas_disk(open_dir(paths, storage_options=options.storage_options)))
