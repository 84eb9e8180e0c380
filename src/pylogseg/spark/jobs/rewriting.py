"""`compact` and `redact`: rewrite partitions by the offline commands, one task per partition.

`pylogseg.offline` rewrites a partition, so the bytes are the same. Spark distributes the partitions, and the results
are put in place at the end.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from pyspark import cloudpickle

from pylogseg import offline
from pylogseg.disk.choice import PartitionChoice
from pylogseg.disk.disk import open_dir
from pylogseg.disk.target import Target
from pylogseg.env.executor import Advance, Executor, Workload
from pylogseg.env.storage import LocalStorage
from pylogseg.errors import RequestError
from pylogseg.format.files.status import encode_clean_shutdown
from pylogseg.format.names import FileKind, parse_partition_folder
from pylogseg.offline.restoring.partition import WrittenPart
from pylogseg.offline.restoring.staging import Staging, finish_commits
from pylogseg.offline.result import PartitionResult, Result
from pylogseg.reading.marks import is_marked, mark_of
from pylogseg.spark.executor import SparkExecutor
from pylogseg.spark.jobs.results import frame_of

#: Notes on the input of each partition in a folder, so that another run finds nothing left to do.
_NOTES = ".pylogseg-made-of.json"


class _Rewritten(NamedTuple):
    """The result of a task for a partition, what it read, and what it wrote; None after a failure."""

    result: PartitionResult
    note: dict[str, Any]
    written: WrittenPart | None


def compact(
    spark: Any,
    path: str,
    out: str,
    topic: str | Sequence[str] | None = None,
    partition: int | Sequence[int] | None = None,
    **options: Any,
) -> Any:
    """Keep the last record of each key, as a broker's cleaner does, in a new log directory; one task per partition.

    Parameters
    ----------
    spark : SparkSession
        The session.
    path : str
        A log directory, or the folder of a partition; it is only read.
    out : str
        A folder that all workers share, for the partitions: either all of them appear at the end, or none.
    topic : str or sequence of str, optional
        Topics, partitions (``orders-3``) or shell patterns; all if left out.
    partition : int or sequence of int, optional
        Only partitions with these numbers.
    **options
        Options of `pylogseg.offline.compact`. ``dry_run=True`` only returns what would be done, ``overwrite=True``
        replaces partitions in `out`, ``progress`` shows progress.

    Returns
    -------
    pyspark.sql.DataFrame
        A row for each partition: ``state`` is ``done``, ``unchanged`` (nothing to clean, or written by an
        earlier run from the same files), ``left`` (copied unchanged: its topic is not compacted) or ``failed``, with a
        reason.
    """
    return _frame(spark, offline.compact, path, out, topic=topic, partition=partition, **options)


def redact(
    spark: Any,
    path: str,
    out: str,
    topic: str | Sequence[str] | None = None,
    partition: int | Sequence[int] | None = None,
    **options: Any,
) -> Any:
    """Delete or blank records; the others keep offsets and batches. One task per partition, to a new log directory.

    Parameters
    ----------
    spark, path, out, topic, partition
        As for `compact`.
    **options
        Options of `pylogseg.offline.redact`, such as ``keys=[b"..."]``, and those of `compact`.

    Returns
    -------
    pyspark.sql.DataFrame
        As for `compact`.
    """
    return _frame(spark, offline.redact, path, out, topic=topic, partition=partition, **options)


def _frame(spark: Any, command: Callable[..., Result], path: str, out: str, **given: Any) -> Any:
    executor = SparkExecutor(spark, given.pop("progress", None))
    return frame_of(spark, rewritten(executor, command, path, out, **given))


def rewritten(
    executor: Executor,
    command: Callable[..., Result],
    path: str,
    out: str,
    *,
    topic: str | Sequence[str] | None = None,
    partition: int | Sequence[int] | None = None,
    dry_run: bool = False,
    overwrite: bool = False,
    on_result: Callable[[PartitionResult], None] | None = None,
    on_bytes: Callable[[int], None] | None = None,
    **options: Any,
) -> Result:
    """Let a command of `pylogseg.offline` rewrite each partition by itself, and put all of them in place in `out`."""
    place = Target.find(LocalStorage(), os.path.abspath(path))
    chosen = [name for name in place.chosen(PartitionChoice.of(topic, partition)) if not place.reason_to_skip(name)]
    if not dry_run and os.path.isdir(out):
        finish_commits(os.path.abspath(out))  # a run that died after its commit began is finished first
    label, how, notes = f"pylogseg {command.__name__}", _how(command, options), _read_notes(out)
    sizes = {name: _size_of(os.path.join(place.parent, name)) for name in chosen}
    # overwrite writes, whatever an earlier run has made
    known = [n for n in chosen if not overwrite and n in notes and os.path.isdir(os.path.join(out, n))]
    asked = [(os.path.join(place.parent, name), notes[name], how) for name in known]
    compared = executor.map(is_made_of, asked, Workload(label, [sizes[name] for name in known]))
    same = [name for name, is_same in zip(known, compared, strict=True) if is_same]
    todo = [name for name in chosen if name not in same]
    for name in todo:
        if not overwrite and os.path.exists(os.path.join(out, name)):
            raise RequestError(
                f"{os.path.join(out, name)}: it already exists, and was not made by this command from the current "
                f"files in {os.path.join(place.parent, name)}; overwrite replaces it"
            )
    result = Result([_unchanged(name, os.path.join(out, name)) for name in same], os.path.abspath(out), dry_run)
    work = functools.partial(command, **options)
    load = Workload(label, [sizes[name] for name in todo], on_bytes)
    if dry_run:
        tried = functools.partial(_tried, work=work, parent=place.parent)
        result.partitions += executor.map(tried, todo, load)
    elif todo:
        task = functools.partial(_make, work=work, parent=place.parent, how=how)
        spread = functools.partial(executor.map, load=load)
        result.partitions += _into(spread, task, place, out, todo, overwrite)
    result.partitions.sort(key=lambda each: each.name)
    result.is_closed_clean = os.path.exists(os.path.join(out, FileKind.CLEAN_SHUTDOWN.value))
    for each in result:
        (on_result or _unheard)(each)
    return result


def _unheard(result: PartitionResult) -> None:
    """Nobody asked for it."""


def _into(
    spread: Callable[..., Iterator[_Rewritten]],
    task: Callable[..., _Rewritten],
    place: Target,
    out: str,
    todo: list[str],
    overwrite: bool,
) -> list[PartitionResult]:
    """Rewrite partitions, and put those that did not fail in place, with notes."""
    staging = Staging(os.path.abspath(out))
    try:
        staging.begin()
        made = list(spread(functools.partial(task, root=staging.root, write_id=staging.write_id), todo))
        new = {name: each.note for name, each in zip(todo, made, strict=True) if each.written is not None}
        kept = {name: note for name, note in _read_notes(out).items() if name not in todo}
        files = {_NOTES: json.dumps({**kept, **new}).encode(), **_as_they_are(place, staging.root)}
        marker = FileKind.CLEAN_SHUTDOWN.value
        if any(each.result.loses_records for each in made) and (
            marker in files or os.path.exists(os.path.join(staging.root, marker))
        ):
            files[marker] = encode_clean_shutdown(None)  # so that the controller knows
        parts = [each.written for each in made if each.written is not None]
        staging.commit(parts, overwrite=overwrite, files=files, may_repeat=False)
    finally:
        staging.abort()
    return [each.result for each in made]


def _make(
    name: str, advance: Advance, *, work: Callable[..., Result], parent: str, root: str, write_id: str, how: str
) -> _Rewritten:
    into = os.path.join(Staging(root, write_id).attempt_folder(name), "into")
    note = made_of(os.path.join(parent, name), how)
    (result,) = work(os.path.join(parent, name), into=into, on_bytes=advance)
    failed = result.state == "failed"
    _rename(result, into, parent if failed else root)
    return _Rewritten(result, note, None if failed else _written(os.path.join(into, name)))


def _rename(result: PartitionResult, staged: str, shown: str) -> None:
    """Name the input or the final place in a result, not the staging folder."""
    result.path, result.reason = result.path.replace(staged, shown), result.reason.replace(staged, shown)
    result.notes = [note.replace(staged, shown) for note in result.notes]
    actions = result.report.actions
    result.report.actions = [replace(each, path=each.path.replace(staged, shown)) for each in actions]


def _as_they_are(place: Target, root: str) -> dict[str, bytes]:
    """Return the small files of the input's log directory that the result gets, unless it has its own."""
    if place.log_dir is None:
        return {}
    storage, found = LocalStorage(), {}
    there = [parse_partition_folder(entry.name) for entry in storage.list_folder(root) if entry.is_dir]
    is_new = not any(folder is not None and not folder.state for folder in there)
    for kind in (FileKind.META_PROPERTIES, FileKind.CLEAN_SHUTDOWN):
        source, target = os.path.join(place.log_dir, kind.value), os.path.join(root, kind.value)
        # New partitions do not make an existing directory cleanly shut down.
        is_needed = is_new or kind is FileKind.META_PROPERTIES
        if is_needed and os.path.exists(source) and not os.path.exists(target):
            found[kind.value] = storage.read_all(source)
    return found


def _tried(name: str, advance: Advance, work: Callable[..., Result], parent: str) -> PartitionResult:
    (result,) = work(os.path.join(parent, name), dry_run=True, on_bytes=advance)
    return result


def _written(folder: str) -> WrittenPart:
    (found,) = open_dir(folder).partitions
    first = found.segments[0].base_offset if found.segments else 0
    return WrittenPart(found.topic, found.partition, folder, first, first, 0, len(found.segments), found.size, -1)


def _size_of(folder: str) -> int:
    return sum(each.size for each in LocalStorage().list_folder(folder) if each.name.endswith(FileKind.LOG.value))


def _how(command: Callable[..., Result], options: dict[str, Any]) -> str:
    # Pickled, as Spark sends it: the text of a function contains its address, not its code.
    return hashlib.sha256(cloudpickle.dumps((command.__name__, sorted(options.items())))).hexdigest()


def made_of(folder: str, how: str) -> dict[str, Any]:
    """Return the note on a result: the command with its options, and the state of the input."""
    (found,) = open_dir(folder).partitions
    marks = {segment.name: mark_of(segment) for segment in found.segments}
    return {"how": how, "log_start": found.log_start_offset, "files": marks}


def is_made_of(asked: tuple[str, dict[str, Any], str], advance: Advance) -> bool:
    """Check whether a folder, with its note and a command, would give what an earlier run made."""
    folder, note, how = asked
    (found,) = open_dir(folder).partitions
    marks = note.get("files")
    if note.get("how") != how or note.get("log_start") != found.log_start_offset or not isinstance(marks, dict):
        return False
    names = {segment.name for segment in found.segments}
    return names == set(marks) and all(is_marked(segment, marks[segment.name]) for segment in found.segments)


def _read_notes(out: str) -> dict[str, Any]:
    try:
        with open(os.path.join(out, _NOTES), encoding="utf-8") as file:
            found: dict[str, Any] = json.load(file)
    except (FileNotFoundError, ValueError):
        return {}
    return found


def _unchanged(name: str, path: str) -> PartitionResult:
    return PartitionResult(name, path, "unchanged", "an earlier run made it from the same files")
