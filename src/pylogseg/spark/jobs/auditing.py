"""`audit`: compare tables that were fed from Kafka with the log; workers read both, and compare."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pylogseg.disk.listing import open_dir
from pylogseg.format.columns import to_row
from pylogseg.lakehouse.audit import audit as compared
from pylogseg.lakehouse.audit_result import Audit
from pylogseg.spark import _compat
from pylogseg.spark.executor import SparkExecutor

_COUNTS = ("rows", "present", "double", "changed")
_REASONS = ("missing", "foreign", "unchecked")
FOUND = ", ".join(
    ["type string", "name string", "right boolean", "whole boolean", *(f"{name} bigint" for name in _COUNTS),
     *(f"{name} map<string,bigint>" for name in _REASONS), "detail string"]
)  # fmt: skip


def audit(
    spark: Any,
    path: Any,
    table: Any,
    topic: str | Sequence[str] | None = None,
    partition: int | Sequence[int] | None = None,
    *,
    storage_options: Mapping[str, Any] | None = None,
    tier: str | None = None,
    progress: bool | None = None,
    **options: Any,
) -> Any:
    """Compare a table that was fed from Kafka with the log, as `pylogseg.audit` does.

    The workers read the files of the table and the log, and compare them; the driver gets what was found. Offsets and
    hashes of the table lie in a folder of ``TMPDIR`` of the driver, which all machines must see.

    Parameters
    ----------
    spark : SparkSession
        The session.
    path : path, URL or list of them
        As for `pylogseg.open_dir`. The workers must see the same files under the same names, and those of the table.
    table : path or str
        As for `pylogseg.audit`; the packages of its format are needed on the driver only.
    topic : str or sequence of str, optional
        Topics, partitions (``orders-3``) or shell patterns; by default the topics that the table has.
    partition : int or sequence of int, optional
        Only partitions with these numbers.
    storage_options, tier : optional
        Those of `pylogseg.open_dir`, for the log.
    progress : bool, optional
        True shows progress even if stderr is not a terminal.
    **options
        Those of `pylogseg.audit`, but for ``jobs`` and ``executor``.

    Returns
    -------
    pyspark.sql.DataFrame
        The lines of ``pylogseg audit --json``: by ``type``, a row for each ``partition``, for each ``finding`` about
        the table or a file of it, and the ``summary``, last. ``right`` is false where something is double, changed,
        lost, foreign or hidden, ``whole`` where something could not be looked at; ``detail`` is the line.

    Raises
    ------
    RequestError, StorageError
        As by `pylogseg.audit`.
    """
    disk = open_dir(path, storage_options=storage_options, tier=tier)
    found = compared(disk, table, topic, partition, executor=SparkExecutor(spark, progress), **options)
    return _compat.small_frame(spark, [*_rows(found)], FOUND)


def _rows(found: Audit) -> Iterator[dict[str, Any]]:
    for part in found.partitions:
        yield _row(to_row(part), name=part.name)
    for finding in found.findings:
        yield _row(to_row(finding), name=finding.file, right=not finding.is_wrong, whole=finding.kind != "unread")
    yield _row(to_row(found), name=found.table)


def _row(line: dict[str, Any], **more: Any) -> dict[str, Any]:
    named = {name: line.get(name) for name in ("type", "right", "whole", *_COUNTS, *_REASONS)}
    return {**named, "detail": json.dumps(line), **more}
