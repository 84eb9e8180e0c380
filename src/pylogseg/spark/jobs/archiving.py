"""`archive`: back up disks; workers upload partitions, and the driver writes the point."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from pylogseg.archive.writing import write
from pylogseg.format.columns import to_row
from pylogseg.spark import _compat
from pylogseg.spark.executor import SparkExecutor

RESULT = (
    "point string, partitions bigint, segments bigint, bytes bigint, adopted bigint, notSeen bigint, aboveEnd bigint, "
    "notes array<string>, faults array<string>"
)


def archive(
    spark: Any,
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    archive: str | os.PathLike[str],
    *,
    encrypt_to: str | os.PathLike[str] | None = None,
    compress: bool = False,
    to_end: bool = False,
    forget: Sequence[str] = (),
    storage_options: Mapping[str, Any] | None = None,
    progress: bool | None = None,
) -> Any:
    """Upload what an archive lacks of the disks of a cluster's brokers, and write a point, as `pylogseg archive` does.

    The driver looks at the disks and decides what is lacking, each worker uploads partitions, and the driver writes the
    point when all are there. Objects and point are those that the command would have written, and each of the two goes
    on where the other one has ended. Of a partition that a worker uploads again, objects are written over with the same
    bytes; of an encrypted one they may be left, and `pylogseg archive prune` removes them.

    Parameters
    ----------
    spark : SparkSession
        The session.
    path : path or list of them
        Log directories of one cluster, or folders of several, which the workers must see under the same names.
    archive : path or URL
        As for `pylogseg.archive.write`; the workers must see it.
    encrypt_to : path, optional
        The PEM file of a public RSA key, which only the driver needs.
    compress : bool
        Compress objects by zstd.
    to_end, forget
        As for `pylogseg.archive.write`.
    storage_options : mapping, optional
        Options of fsspec.
    progress : bool, optional
        True shows progress even if stderr is not a terminal.

    Returns
    -------
    pyspark.sql.DataFrame
        One row, the line of ``pylogseg archive --json``. Without ``faults`` all that was committed on the disks is in
        the point, which `pylogseg.archive.read_point` reads.

    Raises
    ------
    RequestError, StorageError, CorruptionError
        As by `pylogseg.archive.write`.
    """
    how: dict[str, Any] = {"storage_options": storage_options, "to_end": to_end, "forget": forget}
    work = SparkExecutor(spark, progress)
    done = write(path, archive, encrypt_to=encrypt_to, compress=compress, executor=work, **how)
    return _compat.small_frame(spark, [to_row(done)], RESULT)
