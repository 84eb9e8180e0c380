"""`pylogseg.open_log`: a partition's log for a program that owns it."""

from __future__ import annotations

import difflib
import functools
import os
import time
from typing import TYPE_CHECKING, NamedTuple

from pylogseg.config import LogConfig, LogSettings
from pylogseg.embedded.log import EmbeddedLog
from pylogseg.embedded.ownership import Ownership
from pylogseg.env.clock import Clock, SystemClock
from pylogseg.env.environment import Environment
from pylogseg.env.scheduler import Scheduler, ThreadScheduler
from pylogseg.env.storage import LocalStorage, Storage
from pylogseg.errors import RequestError
from pylogseg.log.directory import LogDirectory, make_folder, partition_of
from pylogseg.log.indexes import LEAST_INDEX_BYTES
from pylogseg.log.log import Log
from pylogseg.log.recovery import LoadHooks
from pylogseg.log.recovery_keep import FolderKeeper, Keeper, check_place

if TYPE_CHECKING:  # typing has it from Python 3.11 on
    from typing_extensions import Unpack

#: Arguments that are no settings of Kafka's, for whoever misspells one.
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
    """Open a partition's log for appending and reading; a new one is made.

    The folder around it becomes its log directory: the lock there keeps brokers and other programs out, the files
    there say how the log was left. What a crash left is put in order; `EmbeddedLog.report` says what was done.

    Parameters
    ----------
    path : path
        The partition's folder, ``<log directory>/<topic>-<partition>``.
    topic_id : str, optional
        Of the topic in a Kafka cluster, 22 characters; kept in `partition.metadata`.
    leader_epoch : int, optional
        Written into batches; that of the last one there if not given, 0 in a new log.
    producer_id_expiration_ms : int
        Producers that were idle for so long are forgotten, with their sequences.
    keep : path, optional
        A folder for copies of what a recovery cuts off or removes, by partition; not in the log directory. None are
        made if not given: then that is gone, as with a broker.
    storage : Storage, optional
        This machine's disks if not given; logs of one log directory need the same one.
    clock : Clock, optional
        This machine's if not given.
    scheduler : Scheduler, optional
        Runs what is done in the background. A thread for this log if not given.
    **settings
        Kafka's settings of a topic with underscores, ``segment_bytes=1 << 20``; see `pylogseg.config.LogConfig`.

    Returns
    -------
    EmbeddedLog
        Close it, or use it in a ``with`` statement.

    Raises
    ------
    RequestError
        For a setting that there is not or a value that it cannot have, a folder that is not named like a partition's, a
        log that this process has open already.
    StorageError
        If another process has the lock of the log directory, or the disk fails.
    CorruptionError
        If a file without which the log cannot be is malformed.

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
            raise RequestError(f"open_log has no option {name!r}: is {close[0]!r} meant?")
    config = LogConfig.of(**{name.replace(".", "_"): value for name, value in settings.items()})
    if leader_epoch is not None and leader_epoch < 0:
        raise RequestError(f"leader_epoch must not be negative, not {leader_epoch}")
    storage = local_storage() if storage is None else storage
    # Files are opened when they are needed: the name has to hold when the program goes to another folder.
    folder = os.path.realpath(path) if isinstance(storage, LocalStorage) else os.fspath(path)
    parent, name = storage.split(folder)
    try:
        partition_of(name)
    except RequestError as error:
        raise RequestError(f"{folder}: {error}") from None
    keeper = None
    if keep is not None:
        check_place(os.fspath(keep), parent)
        keeper = FolderKeeper(storage, os.path.abspath(keep) if isinstance(storage, LocalStorage) else os.fspath(keep))
    owner = Owner(leader_epoch, topic_id, producer_id_expiration_ms, keeper)
    directory = LogDirectory.shared(storage, parent)
    return open_in(directory, name, config, SystemClock() if clock is None else clock, scheduler, owner)


class Owner(NamedTuple):
    """What the program that opens a log wants of it.

    Attributes
    ----------
    leader_epoch, topic_id, producer_id_expiration_ms
        As of `open_log`.
    keeper : Keeper, optional
        Gets what a recovery cuts off or removes, before it does.
    tasks : bool
        Whether the log looks after its checkpoints, flushes and producers itself; else somebody does it for many.
    """

    leader_epoch: int | None = None
    topic_id: str | None = None
    producer_id_expiration_ms: int = 86_400_000
    keeper: Keeper | None = None
    tasks: bool = True


def open_in(
    directory: LogDirectory, name: str, config: LogConfig, clock: Clock, scheduler: Scheduler | None, owner: Owner
) -> EmbeddedLog:
    """Open the log of a folder in a log directory; see `open_log`.

    Parameters
    ----------
    directory : LogDirectory
        One use of it goes over to the log, or is given back if the log cannot be opened.
    name : str
        Of the folder.
    config : LogConfig
        Settings of the log.
    clock : Clock
        The log's.
    scheduler : Scheduler, optional
        A thread for this log if not given.
    owner : Owner
        What the program wants.
    """
    if config.segment_index_bytes < LEAST_INDEX_BYTES:
        directory.close()
        raise RequestError(
            f"segment.index.bytes = {config.segment_index_bytes}: allowed is at least {LEAST_INDEX_BYTES}, one entry "
            "of a time index"
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
            ownership = Ownership(engine, directory, has_tasks=owner.tasks, owns_scheduler=scheduler is None)
            log = EmbeddedLog(engine, ownership, owner.leader_epoch)
            log.begin(directory, time.perf_counter() - started)
        except BaseException:
            directory.release(name, clean=False)
            raise
    except BaseException:
        if scheduler is None:
            background.shutdown()
        directory.close()
        raise
    return log


@functools.cache
def local_storage() -> LocalStorage:
    """One for all logs of this process, since it bounds how many files are open."""
    return LocalStorage()
