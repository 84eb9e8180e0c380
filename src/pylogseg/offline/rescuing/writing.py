"""Writing a plan: a new log directory for each controller, or new records into a survivor's log.

A new folder is made beside its name, read again and compared, and only then gets the name. In place, one append of one
batch makes the difference: a controller that starts before it has the old voters, and after it the new ones.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

from pylogseg.env.beside import NewFolder
from pylogseg.env.storage import Storage
from pylogseg.errors import StorageError
from pylogseg.format.names import FileKind
from pylogseg.inspect.quorum.copies import MetadataCopy, read_copies
from pylogseg.inspect.quorum.pairs import compare_copies
from pylogseg.offline.rescuing.plan import NewController, RescuePlan, check_unchanged
from pylogseg.transfer.files import copy_file, copy_folder
from pylogseg.values.internal.cluster import FOLDER

_Advance = Callable[[int], None]


def write_folders(plan: RescuePlan, storage: Storage, advance: _Advance, before: Sequence[NewFolder] = ()) -> None:
    """Make all new folders, check them, and then give them their names; the folders of `before` first."""
    folders = [NewFolder(storage, controller.path) for controller in plan.controllers]
    try:
        with contextlib.ExitStack() as stack:
            for folder, controller in zip(folders, plan.controllers, strict=True):
                stack.enter_context(folder.lock())
                _write(storage, folder.beside, controller, advance)
                _check_written(plan, controller, folder.beside)
            check_unchanged(plan.best, _again(plan.best))
        for folder in (*before, *folders):
            folder.finish()
    except BaseException:
        for folder in folders:
            folder.discard()
        raise


def _write(storage: Storage, root: str, controller: NewController, advance: _Advance) -> None:
    log = storage.join(root, FOLDER)
    storage.make_folder(log)
    for file in controller.files:
        path = storage.join(root, file.name)
        if not file.source:
            storage.write_synced(path, file.added)
            continue
        copy_file(storage, file.source, path)
        written = storage.open_log(path, create=False)
        try:
            if written.size != file.copied:
                written.truncate(file.copied)
            if file.added:
                written.append(file.added)
            written.sync()
        finally:
            written.close()
        advance(file.copied)
    storage.sync_folder(log)
    storage.sync_folder(root)


def write_in_place(plan: RescuePlan, storage: Storage, keep: str, advance: _Advance) -> None:
    """Keep a copy of the survivor's metadata folder, then append the new records to its log."""
    (controller,), best = plan.controllers, plan.best
    lock = storage.lock(best.path)
    try:
        check_unchanged(best, _again(best))
        _keep(storage, best, keep, advance)
        for file in controller.files:
            path = storage.join(best.path, file.name)
            if not file.source:
                continue
            log = storage.open_log(path, create=False)
            try:
                if log.size != file.copied:  # a torn tail, which a start cuts off too
                    log.truncate(file.copied)
                    log.sync()
                log.append(file.added)
                log.sync()
            finally:
                log.close()
        state = storage.join(storage.join(best.path, FOLDER), FileKind.QUORUM_STATE.value)
        storage.write_whole(state, controller.files[-1].added)
        _check_written(plan, controller, best.path)
    finally:
        lock.release()


def _keep(storage: Storage, best: MetadataCopy, keep: str, advance: _Advance) -> None:
    folder = NewFolder(storage, keep)
    try:
        with folder.lock():
            copy_folder(storage, best.folder, storage.join(folder.beside, FOLDER), advance)
            meta = storage.join(best.path, FileKind.META_PROPERTIES.value)
            storage.write_synced(storage.join(folder.beside, FileKind.META_PROPERTIES.value), storage.read_all(meta))
            storage.sync_folder(folder.beside)
        folder.finish()
    except BaseException:
        folder.discard()
        raise


def _again(copy: MetadataCopy) -> MetadataCopy:
    (again,) = read_copies(copy.folder)
    return again


def _check_written(plan: RescuePlan, controller: NewController, path: str) -> None:
    """Read a folder as a controller will, and compare it with the plan and with the copy from which it was made."""
    (copy,) = read_copies(path)
    wanted = (plan.end, plan.epoch if plan.records else plan.best.epoch, controller.voter.id)
    written = (copy.end, copy.epoch, copy.node_id)
    reason = ""
    if not copy.is_whole:
        reason = copy.error
    elif written != wanted:
        reason = f"end, epoch and node are {written}, and should be {wanted}"
    elif plan.best.kraft_version and copy.voters != plan.voters:
        reason = f"the voters are {copy.voters}, and should be {plan.voters}"
    elif copy.state is None or (copy.state.leader_epoch, copy.state.leader_id, copy.state.voted_id) != (
        plan.epoch,
        -1,
        -1,
    ):
        reason = f"quorum-state is {copy.state}"
    elif copy.newest != plan.best.newest and not _is_alike(copy, plan.best):
        reason = f"its newest snapshot is {copy.newest}, and should be {plan.best.newest}"
    elif not plan.is_in_place and plan.best.segments:
        pair = compare_copies(copy, plan.best)
        if not pair.is_prefix:
            reason = f"its log differs from {plan.best.folder} at offset {pair.differs_at}: {pair.unknown}"
    if reason:
        raise StorageError(path, "check what was written to", reason)


def _is_alike(copy: MetadataCopy, best: MetadataCopy) -> bool:
    """Check whether two copies have the same newest snapshot, each at its own path."""
    one, other = copy.newest, best.newest
    return one is not None and other is not None and one._replace(path="") == other._replace(path="")
