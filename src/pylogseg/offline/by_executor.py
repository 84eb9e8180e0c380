"""Commands by an executor of other processes: each partition by itself, on a copy, and all put in place together.

The bytes are those of threads. Notes beside the partitions say of which files they were made, so that another run finds
nothing left to do.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from pylogseg.disk.choice import PartitionChoice
from pylogseg.disk.listing import open_dir
from pylogseg.disk.target import Target
from pylogseg.env.executor import Advance, Executor, Workload
from pylogseg.env.storage import LocalStorage
from pylogseg.errors import RequestError
from pylogseg.format.files.status import encode_clean_shutdown
from pylogseg.format.names import FileKind, parse_partition_folder
from pylogseg.offline.result import PartitionResult, Result
from pylogseg.reading.marks import is_marked, mark_of
from pylogseg.transfer.staging import Staging, WrittenPart, finish_commits

_NOTES = ".pylogseg-made-of.json"
_MARKER = FileKind.CLEAN_SHUTDOWN.value


class _Rewritten(NamedTuple):
    """The result of a task for a partition, its source, and its files; None after a failure."""

    result: PartitionResult
    note: dict[str, Any]
    written: WrittenPart | None


def rewrite_by_executor(
    executor: Executor,
    command: Callable[..., Result],
    path: str | os.PathLike[str],
    options: dict[str, Any],
) -> Result:
    """Let a command rewrite each partition by itself, and put all of them in place in the folder `into`.

    Either all partitions that did not fail appear at the end, or none.
    """
    own = dict(options)
    if own.get("into") is None:
        raise RequestError("an executor works on a copy: give a folder that its workers share as into (--into)")
    out, overwrite = os.path.abspath(own.pop("into")), own.pop("overwrite", False)
    choice = PartitionChoice.of(own.pop("topic", None), own.pop("partition", None))
    tell, on_bytes, dry_run = (own.pop(name, None) for name in ("on_result", "on_bytes", "dry_run"))
    place = Target.find(LocalStorage(), os.path.abspath(path))
    chosen = [name for name in place.chosen(choice) if not place.reason_to_skip(name)]
    if not dry_run and os.path.isdir(out):
        finish_commits(out)  # a run that died after its commit began is finished first
    label, how, notes = f"pylogseg {command.__name__}", _digest(executor, command, own), _read_notes(out)
    sizes = {name: _size_of(os.path.join(place.parent, name)) for name in chosen}
    # overwrite writes, whatever an earlier run has made
    noted = [n for n in chosen if not overwrite and n in notes and os.path.isdir(os.path.join(out, n))]
    asked = [(os.path.join(place.parent, name), notes[name], how) for name in noted]
    compared = executor.map(is_made_of, asked, Workload(label, [sizes[name] for name in noted]))
    same = [name for name, is_same in zip(noted, compared, strict=True) if is_same]
    todo = [name for name in chosen if name not in same]
    for name in todo:
        if not overwrite and os.path.exists(os.path.join(out, name)):
            raise RequestError(
                f"{os.path.join(out, name)}: it already exists, and was not made by this command from the current "
                f"files in {os.path.join(place.parent, name)}; overwrite replaces it"
            )
    result = Result([_report_unchanged(name, os.path.join(out, name)) for name in same], out, bool(dry_run))
    work = functools.partial(command, **own)
    load = Workload(label, [sizes[name] for name in todo], on_bytes)
    if dry_run:
        result.partitions += executor.map(functools.partial(_try, work=work, parent=place.parent), todo, load)
    elif todo:
        task = functools.partial(_make, work=work, parent=place.parent, how=how)
        result.partitions += _put_in_place(executor, task, load, place, out, todo, overwrite)
    result.partitions.sort(key=lambda part_result: part_result.name)
    result.is_closed_clean = os.path.exists(os.path.join(out, _MARKER))
    for part_result in result if tell is not None else ():
        tell(part_result)
    return result


def _put_in_place(
    executor: Executor,
    task: Callable[..., _Rewritten],
    load: Workload,
    place: Target,
    out: str,
    todo: list[str],
    overwrite: bool,
) -> list[PartitionResult]:
    """Rewrite partitions, and put the successful ones in place, with notes."""
    staging = Staging(out)
    try:
        staging.begin()
        work = functools.partial(task, root=staging.root, write_id=staging.write_id)
        rewritten = list(executor.map(work, todo, load))
        new = {name: each.note for name, each in zip(todo, rewritten, strict=True) if each.written is not None}
        kept = {name: note for name, note in _read_notes(out).items() if name not in todo}
        files = {_NOTES: json.dumps({**kept, **new}).encode(), **_small_files(place, out)}
        if any(each.result.loses_records for each in rewritten) and (
            _MARKER in files or os.path.exists(os.path.join(out, _MARKER))
        ):
            files[_MARKER] = encode_clean_shutdown(None)  # so that the controller knows
        parts = [each.written for each in rewritten if each.written is not None]
        staging.commit(parts, overwrite=overwrite, files=files, may_repeat=False)
    finally:
        staging.abort()
    return [each.result for each in rewritten]


def _make(
    name: str, advance: Advance, *, work: Callable[..., Result], parent: str, root: str, write_id: str, how: str
) -> _Rewritten:
    into = os.path.join(Staging(root, write_id).attempt_folder(name), "into")
    note = note_of(os.path.join(parent, name), how)
    (result,) = work(os.path.join(parent, name), into=into, on_bytes=advance)
    has_failed = result.state == "failed"
    _rename(result, into, parent if has_failed else root)
    return _Rewritten(result, note, None if has_failed else _part_in(os.path.join(into, name)))


def _try(name: str, advance: Advance, work: Callable[..., Result], parent: str) -> PartitionResult:
    (result,) = work(os.path.join(parent, name), dry_run=True, on_bytes=advance)
    return result


def _rename(result: PartitionResult, staged: str, shown: str) -> None:
    """Name the input or the final place in a result, not the staging folder."""
    result.path, result.reason = result.path.replace(staged, shown), result.reason.replace(staged, shown)
    result.notes = [note.replace(staged, shown) for note in result.notes]
    actions = result.report.actions
    result.report.actions = [replace(action, path=action.path.replace(staged, shown)) for action in actions]


def _small_files(place: Target, root: str) -> dict[str, bytes]:
    """Return the small files of the input's log directory that the result gets, unless it has its own."""
    if place.log_dir is None:
        return {}
    storage, files = LocalStorage(), {}
    there = [parse_partition_folder(entry.name) for entry in storage.list_folder(root) if entry.is_dir]
    is_new = not any(folder is not None and not folder.state for folder in there)
    for kind in (FileKind.META_PROPERTIES, FileKind.CLEAN_SHUTDOWN):
        source, target = os.path.join(place.log_dir, kind.value), os.path.join(root, kind.value)
        # New partitions do not make an existing directory cleanly shut down.
        is_needed = is_new or kind is FileKind.META_PROPERTIES
        if is_needed and os.path.exists(source) and not os.path.exists(target):
            files[kind.value] = storage.read_all(source)
    return files


def _part_in(folder: str) -> WrittenPart:
    (part,) = open_dir(folder).partitions
    first = part.segments[0].base_offset if part.segments else 0
    return WrittenPart(part.topic, part.partition, folder, first, first, 0, len(part.segments), part.size, -1)


def _size_of(folder: str) -> int:
    return sum(entry.size for entry in LocalStorage().list_folder(folder) if entry.name.endswith(FileKind.LOG.value))


def _digest(executor: Executor, command: Callable[..., Result], options: dict[str, Any]) -> str:
    """Return a digest of a command and its options, of functions among them with their code."""
    return hashlib.sha256(executor.dumps((command.__name__, sorted(options.items())))).hexdigest()


def note_of(folder: str, how: str) -> dict[str, Any]:
    """Return the note on a result: the command with its options, and the state of the input."""
    (part,) = open_dir(folder).partitions
    marks = {segment.name: mark_of(segment) for segment in part.segments}
    return {"how": how, "log_start": part.log_start_offset, "files": marks}


def is_made_of(asked: tuple[str, dict[str, Any], str], advance: Advance) -> bool:
    """Check whether an earlier run of the same command made its result from the same folder."""
    folder, note, how = asked
    (part,) = open_dir(folder).partitions
    marks = note.get("files")
    if note.get("how") != how or note.get("log_start") != part.log_start_offset or not isinstance(marks, dict):
        return False
    names = {segment.name for segment in part.segments}
    return names == set(marks) and all(is_marked(segment, marks[segment.name]) for segment in part.segments)


def _read_notes(out: str) -> dict[str, Any]:
    try:
        with open(os.path.join(out, _NOTES), encoding="utf-8") as file:
            notes: dict[str, Any] = json.load(file)
    except (FileNotFoundError, ValueError):
        return {}
    return notes


def _report_unchanged(name: str, path: str) -> PartitionResult:
    return PartitionResult(name, path, "unchanged", "an earlier run made it from the same files")
