"""`restore_tier`: partitions of tiered storage back into a log directory, one task per partition.

`pylogseg.offline` writes each partition, so the bytes are the same. The tasks write into a staging folder, and the
driver puts in place what they wrote.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from pylogseg.disk.disk import Disk, Partition, open_dir
from pylogseg.disk.tier.urls import is_tier
from pylogseg.env.executor import Executor
from pylogseg.env.pool import Advance
from pylogseg.errors import PylogsegError, RequestError
from pylogseg.inspect.verify.lacking import texts_of
from pylogseg.offline.restoring.adopting import Arrival
from pylogseg.offline.restoring.command import Restoring, checked_target
from pylogseg.offline.restoring.contents import Content
from pylogseg.offline.restoring.partition import Written
from pylogseg.offline.restoring.staging import Staging
from pylogseg.offline.restoring.tier import FromTier, Until
from pylogseg.offline.result import PartitionResult, Result
from pylogseg.spark.executor import SparkExecutor
from pylogseg.spark.jobs.names import asked_for
from pylogseg.spark.jobs.results import frame_of

_log = logging.getLogger("pylogseg.spark")


def restore_tier(spark: Any, path: str, target: str, names: Sequence[str] | None = None, **options: Any) -> Any:
    """Restore partitions from tiered storage, as `pylogseg restore` does; one task per partition.

    Partitions get their segments, indexes, producer snapshots and leader epochs. A partition that fails stays as it is
    in `target`; all others appear together at the end, or none if the job dies.

    Parameters
    ----------
    spark : SparkSession
        The session.
    path : URL or path
        A tier, as for `pylogseg.open_tier`; with the option ``tier``, a log directory whose older segments are there.
    target : str
        A folder that all workers share: the log directory of a stopped broker, or an empty folder.
    names : sequence of str
        Topics, partitions or patterns; all if left out. An empty sequence is refused.
    **options
        Options of `pylogseg.offline.restore`: ``partitions``, ``overwrite``, ``force``, ``cluster_metadata``,
        ``keep_producers``, ``abort_open_transactions``, ``storage`` (with ``tier_keys`` for encrypted tiers),
        ``tier``, ``until``, ``on_corrupt``, ``dry_run``. ``progress`` shows progress.

    Returns
    -------
    pyspark.sql.DataFrame
        A row for each partition: ``state`` is ``done``, ``unchanged`` (it already exists with the same offsets and as
        many records), ``left`` or ``failed``, with a reason. ``detail`` is the row of ``pylogseg restore --json``; its
        notes say what damage was left out.

    Raises
    ------
    IncompleteError
        If records are known to be missing at the end of a log, unless ``force``.
    RequestError
        If a name is not there, or a partition already exists with other records, unless ``overwrite``.
    StorageError
        If a broker has the lock of `target`.
    """
    result = restored(spark, path, target, asked_for(names), **options)
    for note in [*result.notes, *texts_of(result.lacking)]:
        _log.warning("%s", note)
    return frame_of(spark, result)


def restored(
    spark: Any,
    path: str,
    target: str,
    names: Sequence[str],
    *,
    partitions: Sequence[int] = (),
    overwrite: bool = False,
    force: bool = False,
    cluster_metadata: str | None = None,
    keep_producers: bool | None = None,
    abort_open_transactions: bool = False,
    storage: Mapping[str, Any] | None = None,
    tier: str | None = None,
    until: Until | None = None,
    on_corrupt: Literal["raise", "skip"] = "raise",
    dry_run: bool = False,
    progress: bool | None = None,
) -> Result:
    """Return the result of `restore_tier`."""
    if tier is None and not is_tier(path):
        raise RequestError(f"{path}: not the URL of a tier, such as aiven+s3://bucket/prefix; restore is for tables")
    if on_corrupt not in ("raise", "skip"):
        raise RequestError(f"on_corrupt: expected raise or skip, not {on_corrupt!r}")
    into = checked_target(target)
    disk = open_dir(path, storage=storage, tier=tier)
    given = _FromTier(disk, names, partitions, until or Until(), skips_damage=on_corrupt == "skip")
    given.executor = SparkExecutor(spark, progress)
    given.lacking = given.look(disk, force)
    job = Restoring(
        given,
        into,
        cluster_metadata,
        keep_producers=keep_producers,
        abort_open_transactions=abort_open_transactions,
    )
    return job.plan(overwrite) if dry_run else job.run(overwrite)


class _Made(NamedTuple):
    """What a task did for a partition: `value` is None if it failed."""

    value: Any
    result: PartitionResult  #: What it notes.
    error: PylogsegError | None


class _FromTier(FromTier):
    """Partitions of a tier that tasks read; one that fails does not keep the others."""

    executor: Executor

    def _new_result(self, part: Partition) -> PartitionResult:
        try:
            return super()._new_result(part)
        except PylogsegError as error:
            result = PartitionResult(part.name, "")
            _fail(result, error)
            return result

    def contents(self, names: Iterable[str], arrivals: Mapping[str, Arrival]) -> dict[str, Content]:
        """Return offsets and number of records of what is to be written; not of what cannot be read."""
        work = functools.partial(_read, until=self._until, arrivals=arrivals)
        return self._spread(list(names), work)

    def write(
        self,
        staging: Staging,
        names: Sequence[str],
        ids: dict[str, str],
        on_bytes: Callable[[int], None],
        arrivals: Mapping[str, Arrival],
    ) -> list[Written]:
        """Write partitions into the staging folder; leave out those that fail."""
        place = staging.root, staging.write_id
        work = functools.partial(
            _write, until=self._until, skips_damage=self._skips, place=place, ids=ids, arrivals=arrivals
        )
        return list(self._spread(names, work).values())

    def _spread(self, names: Sequence[str], work: Callable[[Partition, Advance], _Made]) -> dict[str, Any]:
        """Return what became of partitions, by name; note what tasks say of them."""
        parts = [self._parts[name] for name in names]
        done = self.executor.map(work, parts, [part.size for part in parts], label="pylogseg restore")
        made = dict(zip(names, done, strict=True))
        for name, each in made.items():
            known, told = self._results[name], each.result
            known.notes += told.notes
            known.rows += told.rows
            known.numbers |= told.numbers
            known.is_undone, known.is_locked = told.is_undone, told.is_locked
            if each.error is not None:
                _fail(self._results[name], each.error)
        return {name: each.value for name, each in made.items() if each.error is None}


def _read(part: Partition, advance: Advance, until: Until, arrivals: Mapping[str, Arrival]) -> _Made:
    return _tried(part, until, True, lambda given: given.contents([part.name], arrivals)[part.name])


def _write(
    part: Partition,
    advance: Advance,
    *,
    until: Until,
    skips_damage: bool,
    place: tuple[str, str],
    ids: dict[str, str],
    arrivals: Mapping[str, Arrival],
) -> _Made:
    def write(given: FromTier) -> Written:
        (made,) = given.write(Staging(*place), [part.name], ids, advance, arrivals)
        return made

    return _tried(part, until, skips_damage, write)


def _tried(part: Partition, until: Until, skips_damage: bool, work: Callable[[FromTier], Any]) -> _Made:
    """Do something with a partition alone; an error of this package is its result."""
    given = FromTier(Disk((), (part,)), [part.name], (), until, skips_damage=skips_damage)
    try:
        return _Made(work(given), given.partitions[0], None)
    except PylogsegError as error:
        return _Made(None, given.partitions[0], error)


def _fail(result: PartitionResult, error: PylogsegError) -> None:
    result.state, result.reason, result.error = "failed", str(error), error
