"""`pylogseg.open_log`: open a partition's log."""

from __future__ import annotations

import difflib
import functools
import os
import time
from typing import TYPE_CHECKING, NamedTuple

from pylogseg.config import LogConfig, LogSettings
from pylogseg.env.clock import Clock, SystemClock
from pylogseg.env.environment import Environment
from pylogseg.env.scheduler import Scheduler, ThreadScheduler
from pylogseg.env.storage import LocalStorage, Storage, make_folder
from pylogseg.errors import RequestError
from pylogseg.log.directory import LogDirectory, partition_of
from pylogseg.log.indexes import LEAST_INDEX_BYTES
from pylogseg.log.log import Log
from pylogseg.log.recovery import LoadHooks
from pylogseg.log.recovery_keep import FolderKeeper, Keeper, check_keep_folder
from pylogseg.owned.log import EmbeddedLog
from pylogseg.owned.ownership import Ownership

if TYPE_CHECKING:  # typing has it from Python 3.11 on
    from typing_extensions import Unpack

#: Arguments other than Kafka's settings, to suggest one for a misspelled name.
_OPTIONS = ("topic_id", "leader_epoch", "producer_id_expiration_ms", "keep", "storage", "clock", "scheduler")


def open_log(
    path: str | os.PathLike[str],
    *,
    topic_id: str | None = None,
    leader_epoch: int | None = None,
    producer_id_expiration_ms: int = 86_400_000,
    keep: str | os.PathLike[str] | None = None,
    storage: Storage | None = None,
    clock: Clock | None = None,
    scheduler: Scheduler | None = None,
    **settings: Unpack[LogSettings],
) -> EmbeddedLog:
    """Open a partition's log for appending and reading; create it if it does not exist.

    The parent folder is the log directory: its lock keeps brokers and other programs out, its files say how the log was
    closed. After a crash the log is recovered; `EmbeddedLog.report` says what was done.

    Parameters
    ----------
    path : path
        The partition's folder, ``<log directory>/<topic>-<partition>``.
    topic_id : str, optional
        Of the topic in a Kafka cluster, 22 characters; kept in `partition.metadata`.
    leader_epoch : int, optional
        Written into batches. The default is the last batch's epoch, 0 in a new log.
    producer_id_expiration_ms : int
        Producers idle for this long are forgotten, with their sequences.
    keep : path, optional
        A folder outside the log directory for copies of removed bytes, by partition. By default no copies are made, as
        in a broker.
    storage : Storage, optional
        By default this machine's disks; logs of one log directory need the same one.
    clock : Clock, optional
        By default this machine's.
    scheduler : Scheduler, optional
        Runs background tasks. By default a thread for this log.
    **settings
        Kafka's settings of a topic with underscores, ``segment_bytes=1 << 20``; see `pylogseg.config.LogConfig`.

    Returns
    -------
    EmbeddedLog
        Close it, or use it in a ``with`` statement.

    Raises
    ------
    RequestError
        For an unknown setting or an invalid value, a folder that is not named like a partition's, or a log that this
        process already has open.
    StorageError
        If another process has the lock of the log directory, or the disk fails.
    CorruptionError
        If a required file is malformed.

    Examples
    --------
    >>> import pylogseg, tempfile
    >>> with pylogseg.open_log(tempfile.mkdtemp() + "/orders-0", segment_bytes=1 << 20) as log:
    ...     done = log.append([(None, b"key", b"first"), (None, b"key", b"second")])
    ...     [record.value for record in log.read(offset=1)]
    [b'second']
    """
    for name in settings:
        close = difflib.get_close_matches(name, _OPTIONS, 1, 0.8)
        if name.replace(".", "_") not in LogConfig.__dataclass_fields__ and close:
            raise RequestError(f"open_log has no option {name!r}. Did you mean {close[0]!r}?")
    config = LogConfig.of(**{name.replace(".", "_"): value for name, value in settings.items()})
    if leader_epoch is not None and leader_epoch < 0:
        raise RequestError(f"leader_epoch must be at least 0, got {leader_epoch}")
    storage = local_storage() if storage is None else storage
    # Files are opened lazily, so the path must not depend on the current folder.
    folder = os.path.realpath(path) if isinstance(storage, LocalStorage) else os.fspath(path)
    parent, name = storage.split(folder)
    try:
        partition_of(name)
    except RequestError as error:
        raise RequestError(f"{folder}: {error}") from None
    keeper = None
    if keep is not None:
        check_keep_folder(os.fspath(keep), parent)
        keeper = FolderKeeper(storage, os.path.abspath(keep) if isinstance(storage, LocalStorage) else os.fspath(keep))
    owner = Owner(leader_epoch, topic_id, producer_id_expiration_ms, keeper)
    directory = LogDirectory.open_shared(storage, parent)
    return open_in(directory, name, config, SystemClock() if clock is None else clock, scheduler, owner)


class Owner(NamedTuple):
    """Options of the program that opens a log."""

    leader_epoch: int | None = None  #: As in `open_log`.
    topic_id: str | None = None
    producer_id_expiration_ms: int = 86_400_000
    keeper: Keeper | None = None  #: Copies what recovery cuts off or removes, before it does.
    #: True if the log runs its own tasks for checkpoints, flushes and producers; else its manager does.
    tasks: bool = True


def open_in(
    directory: LogDirectory, name: str, config: LogConfig, clock: Clock, scheduler: Scheduler | None, owner: Owner
) -> EmbeddedLog:
    """Open the log of a folder in a log directory; the log then owns `directory`, and an error closes it."""
    if config.segment_index_bytes < LEAST_INDEX_BYTES:
        directory.close()
        raise RequestError(
            f"invalid segment.index.bytes={config.segment_index_bytes}: expected at least {LEAST_INDEX_BYTES}, "
            "one entry of a time index"
        )
    background = ThreadScheduler(f"pylogseg-{name}") if scheduler is None else scheduler
    storage = directory.storage
    folder = storage.join(directory.path, name)
    try:
        start = directory.claim(name)
        try:
            started = time.perf_counter()
            make_folder(storage, folder)
            engine = Log.open(
                Environment(storage, clock, background),
                folder,
                config,
                start,
                topic_id=owner.topic_id,
                producer_expiration_ms=owner.producer_id_expiration_ms,
                hooks=LoadHooks(owner.keeper),
            )
            engine.report.compare_end(folder, engine.log_end_offset, start.recovery_point, start.high_watermark)
            ownership = Ownership(
                engine, directory, owner.leader_epoch, has_tasks=owner.tasks, owns_scheduler=scheduler is None
            )
            ownership.begin(time.perf_counter() - started)
        except BaseException:
            directory.release(name, clean=False)
            raise
    except BaseException:
        if scheduler is None:
            background.shutdown()
        directory.close()
        raise
    return EmbeddedLog(ownership)


@functools.cache
def local_storage() -> LocalStorage:
    """Return the storage of all logs of this process, which bounds the number of open files."""
    return LocalStorage()
