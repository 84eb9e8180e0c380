"""Notes of an export beside its files: if it ended, and the content of its parts.

An object ``_pylogseg/table.json`` says that a run writes, and last that all of it is there: who finds the first knows
that parts may be missing.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import platform
import re
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from pylogseg.disk.folders import RESTORING
from pylogseg.disk.stores import FolderStore, ObjectStore, store_of
from pylogseg.env.beside import is_alive
from pylogseg.env.file_errors import storage_error
from pylogseg.env.storage import LocalStorage
from pylogseg.errors import DirectoryLockedError, StorageError
from pylogseg.format.names import parse_partition_folder
from pylogseg.inspect.verify.findings import Finding

_log = logging.getLogger(__name__)

#: Readers of datasets skip names that begin with an underscore.
NOTES = "_pylogseg"
_TABLE = f"{NOTES}/table.json"
_LOCK = f"{NOTES}/lock-"
#: The note of whose the lock of a folder is.
_OWNER = "owner.json"
#: How long a run waits for others that began at the same moment, and between two looks.
_PATIENCE_SECONDS, _PAUSE_SECONDS = 2.0, 0.1
#: Locks that this process has now: of another one with its number, nobody is left.
_held: set[str] = set()
_FEW = 5
#: A longer name of a note is cut: so many letters name a folder with this end, which no topic's name has.
_MOST_NAME, _HEAD, _PARTED = 240, 200, "~"
#: Name of the note of a part.
NOTE = re.compile(r"(?P<topic>.+)-(?P<partition>-?\d+)-(?P<base>\d{20})\.json", re.DOTALL)

#: Name of the note of a whole log, of a plain export.
_LOG_NOTE = re.compile(r"log-(?P<topic>.+)-(?P<partition>-?\d{1,10})\.json", re.DOTALL)


def note_name(key: tuple[str, int], base: int) -> str:
    """Return the name of the note of a part, by topic and partition and its base offset."""
    return f"{key[0]}-{key[1]}-{base:020d}.json"


def note_key(name: str) -> str:
    """Return the name of the object with a note; a long one is parted, since a file system takes 255 bytes."""
    return f"{NOTES}/{name}" if len(name) <= _MOST_NAME else f"{NOTES}/{name[:_HEAD]}{_PARTED}/{name[_HEAD:]}"


def read_note(store: ObjectStore, name: str) -> dict[str, Any] | None:
    """Read a note; None without one, or if its writer died in the middle: that part is exported again."""
    data = store.read(note_key(name))
    try:
        note: dict[str, Any] | None = None if data is None else json.loads(data)
    except ValueError:
        return None
    return note


def write_note(store: ObjectStore, name: str, content: Mapping[str, Any]) -> None:
    """Put a note in place as a whole."""
    store.put(note_key(name), json.dumps(content).encode())


def note_log(
    store: ObjectStore, key: tuple[str, int], files: Sequence[tuple[str, int, int]], problem: str | None
) -> None:
    """Note a plain export's files of a log, with records and bytes, and the reason for missing records."""
    write_note(store, f"log-{key[0]}-{key[1]}.json", {"files": files, "problem": problem})


def note_names(store: ObjectStore, kind: re.Pattern[str] = NOTE) -> list[re.Match[str]]:
    """Return the names of the notes of parts, or of another kind, as matches, sorted."""
    names = (name.removeprefix(f"{NOTES}/").replace(f"{_PARTED}/", "", 1) for name in store.list(NOTES))
    return [match for name in sorted(names) if (match := kind.fullmatch(name)) is not None]


def paths_in_note(note: Mapping[str, Any] | None) -> list[str]:
    """Paths of the data files that a note names, below the place of the table."""
    if note is None:
        return []
    return [*(file[0] for file in note.get("files", ())), *note.get("pending", ())]


def said_of(store: ObjectStore) -> dict[str, Any] | None:
    """Read the state of a table; ``state`` is ``writing`` until a run has ended. None without a note."""
    return read_note(store, _TABLE.removeprefix(f"{NOTES}/"))


@contextlib.contextmanager
def writing(store: ObjectStore, shape: Mapping[str, Any], names: Iterable[str]) -> Iterator[None]:
    """Note that a run writes partitions, and at its end that the table is complete; after an error, a later run does.

    Work that a killed run had begun stays unfinished until a later one has written it.
    """
    mine, before = set(names), set((said_of(store) or {}).get("unfinished", ()))
    _say(store, shape, before | mine)
    yield
    _say(store, shape, before - mine)
    if left := sorted(before - mine):
        _log.warning("%s: an earlier export did not finish %s: export them too", store.url, ", ".join(left))


def _say(store: ObjectStore, shape: Mapping[str, Any], unfinished: Collection[str]) -> None:
    state = {"state": "writing", "unfinished": sorted(unfinished)} if unfinished else {"state": "whole"}
    write_note(store, _TABLE.removeprefix(f"{NOTES}/"), {**shape, **state})


def unsay(store: ObjectStore) -> None:
    """Remove the notes of a table."""
    store.delete(_TABLE)


def read_state(out: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None) -> dict[str, Any] | None:
    """Read the notes of the table in a folder or at a URL, see `said_of`."""
    return said_of(store_of(out, storage_options))


def is_noted(out: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None) -> bool:
    """Check whether something is noted of files in a folder or at a URL, other than that a restore has not ended."""
    return any(name != RESTORING for name in store_of(out, storage_options).list(NOTES))


def noted_losses(
    out: str | os.PathLike[str],
    is_asked: Callable[[str, int], bool] = lambda topic, partition: True,
    storage_options: Mapping[str, Any] | None = None,
) -> list[Finding]:
    """Return the missing records of a table by its notes: not exported, unreadable, or in lost files.

    `is_asked` selects the partitions, also partitions without any file left.
    """
    store = store_of(out, storage_options)
    findings = list(_find_unfinished(store, is_asked))
    there: Collection[str] | None = None
    for match in [*note_names(store), *note_names(store, _LOG_NOTE)]:
        if not is_asked(match["topic"], int(match["partition"])):
            continue
        note = read_note(store, match.string) or {}
        if note.get("problem"):
            findings.append(_report(store, note_key(match.string), f"not all could be exported: {note['problem']}"))
        there = store.list() if there is None else there
        for name, records, *_ in note.get("files", ()):
            if name not in there:
                findings.append(_report(store, name, f"this file of the table is not there, with {records:,} records"))
    return findings


def _find_unfinished(store: ObjectStore, is_asked: Callable[[str, int], bool]) -> Iterator[Finding]:
    """Yield that the last export did not end, unless it was of other partitions."""
    said = said_of(store) or {}
    if said.get("state") != "writing":
        return
    names = said.get("unfinished", ["it"])
    folders = [parse_partition_folder(name) for name in names]
    left = [n for n, of in zip(names, folders, strict=True) if of is None or is_asked(of.topic, of.partition)]
    if left:
        of = f"{', '.join(left[:_FEW])}{' and others' * (len(left) > _FEW)}"
        reason = f"an export of {of} did not finish, and parts may be missing"
        yield Finding(store.url, "missing", True, reason, other_remedy="run the export again")


def _report(store: ObjectStore, name: str, reason: str) -> Finding:
    remedy = "run the export again, or take the file from a backup of the table"
    return Finding(store.name(name), "missing", True, reason, other_remedy=remedy)


@contextlib.contextmanager
def lock_place(store: ObjectStore, command: str = "export") -> Iterator[None]:
    """Keep other runs away from a place; StorageError if one is there. `command` names this run in their errors."""
    since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    owner = {"command": command, "host": platform.node(), "process": os.getpid(), "since": since}
    with _folder_locked(store, owner) if isinstance(store, FolderStore) else _store_locked(store, owner):
        yield


@contextlib.contextmanager
def _folder_locked(store: FolderStore, owner: Mapping[str, Any]) -> Iterator[None]:
    """Hold the lock of the folder of notes, with a note beside it that says whose it is."""
    notes, name = store.root / NOTES, f"{NOTES}/{_OWNER}"
    try:
        notes.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise storage_error(notes, "make", error) from error
    try:
        lock = LocalStorage().lock(str(notes))
    except DirectoryLockedError as error:
        if isinstance(error.__cause__, OSError) and error.__cause__.errno not in (errno.EACCES, errno.EAGAIN):
            raise
        holder = _owner_of(store.read(name))
        reason = f"another run writes to {store.url}" if holder is None else _holding(store, holder)
        raise DirectoryLockedError(str(notes), f"{reason}: wait until it ends") from error
    try:
        store.put(name, json.dumps(owner).encode())
        yield
    finally:
        with contextlib.suppress(StorageError):
            store.delete(name)
        lock.release()


@contextlib.contextmanager
def _store_locked(store: ObjectStore, owner: Mapping[str, Any]) -> Iterator[None]:
    """Hold the lock of a place without locks: an object for each run.

    Each run first puts its own, then looks: of two at the same time at least one sees the other, and no store needs to
    refuse anything. The run with the lowest name waits, and the other runs of that moment give way.
    """
    mine = f"{_LOCK}{uuid.uuid4().hex}.json"
    _held.add(mine)
    try:
        store.put(mine, json.dumps(owner).encode())
        until = time.monotonic() + _PATIENCE_SECONDS
        while (refusal := _other_lock(store, mine)) is not None:
            if refusal.path < store.name(mine) or time.monotonic() > until:
                raise refusal
            time.sleep(_PAUSE_SECONDS)
        yield
    finally:
        _held.discard(mine)
        try:
            store.delete(mine)
        except StorageError as error:  # what came of the run is known; the next run of this machine removes it
            _log.warning("%s", error)


def _other_lock(store: ObjectStore, mine: str) -> DirectoryLockedError | None:
    """Return why another run has the place: of several, the lock with the lowest name."""
    others = sorted(name for name in store.list(NOTES) if name.startswith(_LOCK) and name != mine)
    return next((refusal for name in others if (refusal := _refusal(store, name)) is not None), None)


def _refusal(store: ObjectStore, name: str) -> DirectoryLockedError | None:
    """Return the error of another run's lock; remove it, and return None, if it is of a process here that ended.

    This process may have left one itself, when its store did not let it go, and so may one that had its number: in a
    container that is started again, this is always the same.
    """
    data = store.read(name)
    if data is None:  # the run has just ended
        return None
    owner = _owner_of(data)
    if owner is None:
        reason = "no run wrote this lock: if none writes to this place, delete this object"
        return DirectoryLockedError(store.name(name), reason)
    if owner["host"] == platform.node():
        is_here = name in _held if owner["process"] == os.getpid() else is_alive(owner["process"])
        if not is_here:
            store.delete(name)
            return None
    return DirectoryLockedError(store.name(name), f"{_holding(store, owner)}; if none runs, delete this object")


def _owner_of(data: bytes | None) -> dict[str, Any] | None:
    """Read whose a lock is; None if the bytes do not say it."""
    try:
        owner = json.loads(data or b"")
    except (ValueError, RecursionError):
        return None
    kinds = {"host": str, "process": int, "since": str}
    is_whole = isinstance(owner, dict) and all(type(owner.get(name)) is kind for name, kind in kinds.items())
    return owner if is_whole else None


def _holding(store: ObjectStore, owner: Mapping[str, Any]) -> str:
    """Say which run has a place."""
    run = f"{owner['command']}, " if isinstance(owner.get("command"), str) else ""
    return (
        f"another run writes to {store.url}: {run}process {owner['process']} on {owner['host']}, since {owner['since']}"
    )
