"""The partition that an offline command is working on."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable

from pylogseg.config import LogConfig
from pylogseg.disk.small_files import FileState, read_leader_epochs, read_partition_metadata
from pylogseg.disk.target import Target
from pylogseg.env.clock import Clock
from pylogseg.env.environment import Environment
from pylogseg.env.executor import Advance
from pylogseg.env.filesystem import Readable
from pylogseg.env.scheduler import CollectingScheduler
from pylogseg.env.storage import LocalStorage, Storage
from pylogseg.errors import PylogsegError, StorageError
from pylogseg.format.names import FileKind, parse_file_name, parse_partition_folder
from pylogseg.inspect.verify.findings import Finding
from pylogseg.log.directory import LogDirectory
from pylogseg.log.log import Log
from pylogseg.log.recovery import LoadHooks
from pylogseg.log.recovery_keep import FolderKeeper, Keeper, KeepError, PlannedKeeper, check_keep_folder
from pylogseg.log.recovery_report import Action
from pylogseg.log.segment_replace import CLEANED, SWAP
from pylogseg.log.state import Start
from pylogseg.offline.options import Options
from pylogseg.offline.result import PartitionResult, is_full
from pylogseg.offline.settings import Settings


class OfflinePartition:
    """A partition that a command works on, by the log that `open` gives or by its files.

    `topic` is empty and `partition` -1 where the folder's name does not say. `storage` is an overlay in a dry run;
    `directory` (None for a folder outside of a log directory) takes the checkpoint of the cleaner. The command fills in
    `result`, and calls `advance` every few megabytes with the bytes worked through: Ctrl-C ends the work there.
    """

    def __init__(
        self,
        folder: str,
        name: str,
        storage: Storage,
        directory: LogDirectory | None,
        start: Start,
        config: LogConfig,
        settings: Settings,
        clock: Clock,
        result: PartitionResult,
        advance: Advance,
    ) -> None:
        self.folder, self.name, self.storage = folder, name, storage
        parsed = parse_partition_folder(name)
        self.topic, self.partition = (parsed.topic, parsed.partition) if parsed else ("", -1)
        self.is_live = parsed is not None and not parsed.state
        self.directory, self.start, self.config, self.clock = directory, start, config, clock
        self.settings, self.broker = settings, settings.broker
        self.result, self.advance = result, advance
        self.log: Log | None = None  #: From `open` on. Flushed and closed cleanly by the frame.
        self.why_no_high_watermark = ""  #: Where its broker should have noted one.
        self.makes_epochs = False  #: If new leader epochs were asked for.
        #: True if one that was closed cleanly still counts as such if the command fails and has changed nothing.
        self.stays_trusted = True
        self._scheduler = CollectingScheduler()
        self._opening = False
        self._before: dict[str, int] = {}
        self._had_epochs = True
        self._epochs_path = storage.join(folder, FileKind.LEADER_EPOCHS.value)

    def open(
        self,
        *,
        clean: bool | None = None,
        recovery_point: int | None = None,
        keeper: Keeper | None = None,
        mend: Callable[[], None] | None = None,
        as_broker: bool = False,
    ) -> Log:
        """Open the log as a starting broker does: after an unclean stop it is recovered first.

        `clean` and `recovery_point` replace what the log directory knows. The keeper gets what has to be cut off;
        without one, a KeepError refuses to lose anything: that is the business of ``repair`` and ``recover``. The high
        watermark is the checkpoint's, or the log's end where there is none; the log's start `as_broker`, for which it
        is an UnreachedError if a broker would end the log before batches that are there.
        """
        start = self.start
        if keeper is None and not as_broker:
            self._refuse_without_segments()
        self._opening = True
        self._before = self._live_files()
        self._had_epochs = self.storage.exists(self._epochs_path)
        log = Log.open(
            Environment(self.storage, self.clock, self._scheduler),
            self.folder,
            self.config,
            start._replace(
                clean=start.clean if clean is None else clean,
                recovery_point=start.recovery_point if recovery_point is None else recovery_point,
            ),
            producer_expiration_ms=self.broker.producer_id_expiration_ms,
            hooks=LoadHooks(
                _NothingIsLost() if keeper is None else keeper,
                self.advance,
                mend,
                report=self.result.report,
                stops_at_unreached=as_broker,
            ),
        )
        self.log, self._opening = log, False
        if start.high_watermark >= 0:
            counted = log.update_high_watermark(start.high_watermark)
            if counted > start.high_watermark:
                says = f"{FileKind.HIGH_WATERMARKS.value} says {start.high_watermark}, and the log begins at {counted}"
                self.result.doubts.append(
                    f"{says}: the file is older than the log; {counted} counts, as for a broker, and what lies above "
                    "is not known to be committed"
                )
        else:
            self._choose_high_watermark(log, as_broker)
        return log

    def _refuse_without_segments(self) -> None:
        """Raise KeepError if a log that had records has no segment: an empty log would destroy the evidence."""
        names = [parse_file_name(entry.name) for entry in self.storage.list_folder(self.folder) if not entry.is_dir]
        end = max(self.start.recovery_point, self.start.high_watermark)
        has_segment = any(name.kind is FileKind.LOG and (name.is_live or name.suffix == SWAP) for name in names)
        if end > max(self.start.log_start_offset, 0) and not has_segment:
            reason = (
                f"no segment is there, and the checkpoints have offsets up to {end:,}: an empty log would replace it"
            )
            raise KeepError(self.folder, "open the log", reason)

    def _choose_high_watermark(self, log: Log, as_broker: bool) -> None:
        """Choose a high watermark that no checkpoint has: the log end; as a broker, 0 if there are other replicas."""
        is_alone = len(self.result.replicas) == 1 and self.settings.node_id in (None, *self.result.replicas)
        log.update_high_watermark(0 if as_broker and not is_alone else log.log_end_offset)
        if self.directory is None:
            return
        above = log.log_end_offset - log.high_watermark
        if is_alone:
            text = "no high watermark is noted for it: the metadata has no other replica, so all up to its end counts"
        elif not as_broker:
            text = "no high watermark is noted for it, so its end is taken for one"
        elif above:
            text = (
                f"no high watermark is noted for it, so it is the log's start, {log.high_watermark}, as for a broker: "
                f"{above} offsets lie above it, which are not known to be committed before a broker has led it"
            )
        else:
            return
        (self.result.doubts if self.why_no_high_watermark else self.result.notes).append(text)

    def doubt_epochs(self, before: Iterable[Finding]) -> None:
        """Say that the file had lost leader epochs before the command began.

        It is a doubt, but for who asked for new ones.
        """
        is_made = bool(read_leader_epochs(self.storage, self.folder).value)
        for finding in before:
            result = ": the leader epochs are made again from the batches that are left" if is_made else ""
            text = f"{finding.path}: {finding.reason}{result or f'; {finding.remedy}'}"
            (self.result.doubts if finding.is_damage and not self.makes_epochs else self.result.notes).append(text)

    def doubt_topic_id(self) -> None:
        """Say that `partition.metadata` is gone, where the cluster's metadata has the topic, or that it is no file."""
        file = read_partition_metadata(self.storage, self.folder)
        is_assigned = self.settings.assigned_topic_id(self.topic, self.partition) is not None
        if self.is_live and file.state is FileState.ABSENT and is_assigned:
            reason = "a broker of KRaft sets the folder aside, and begins an empty log"
            self.result.doubts.append(f"{file.problem}: {reason}; `pylogseg recover` writes it")
        elif self.is_live and file.is_damaged:  # such as a folder of that name, which the engine does not read
            self.result.doubts.append(f"{file.problem}: a broker takes the log directory offline; remove it")

    def close(self) -> None:
        """Close the log in order, and delete files that await deletion; the frame calls it."""
        if self.log is not None:
            self.log.flush()
            self.log.close()
            self._scheduler.finish()
            self.result.log_start, self.result.log_end = self.log.log_start_offset, self.log.log_end_offset

    def give_up(self, error: BaseException) -> bool:
        """Let go of the log after an error; whether it could be closed cleanly. Done by the frame."""
        refused = isinstance(error, PylogsegError) and not isinstance(error, StorageError)
        if refused and not self._opening and (self.log is None or self.log.is_usable):
            self.close()  # what was refused, or cannot be read, leaves a log as good as it was
            self._remove_unfinished()
            return True
        if self.log is not None:
            with contextlib.suppress(StorageError):
                if isinstance(error, PylogsegError) and is_full(error) and self._is_as_before(self.log):
                    self._remove_unfinished()
                    return True
            self.log.close_handles()
            self._remove_unfinished()
        with contextlib.suppress(StorageError):  # the load made it: absent and empty are two things
            if not self._had_epochs and not self.storage.stat(self._epochs_path).size:
                self.storage.remove(self._epochs_path)
        return False

    def _is_as_before(self, log: Log) -> bool:
        """Close a log that was in order and of which nothing was changed when the disk was full; whether that is so."""
        if not self.start.clean or self._live_files() != self._before:
            return False
        try:
            log.producers.take_snapshot()
            for segment in log.segments:
                segment.close()
            self.storage.sync_folder(self.folder)
        except PylogsegError:
            return False
        return True

    def _live_files(self) -> dict[str, int]:
        """Segments and their unfinished replacements, with sizes."""
        entries = self.storage.list_folder(self.folder)
        return {entry.name: entry.size for entry in entries if entry.name.endswith((".log", SWAP))}

    def _remove_unfinished(self) -> None:
        """Remove segments that were being written, which the next load would do: the disk may be full."""
        with contextlib.suppress(StorageError):
            names = [entry.name for entry in self.storage.list_folder(self.folder)]
            if any(name.endswith(SWAP) for name in names):
                return  # a load has to see which of them belong together
            for name in names:
                if name.endswith(CLEANED):
                    self.storage.remove(self.storage.join(self.folder, name))

    def sizes(self) -> tuple[int, int]:
        """Bytes and number of the segments; none where the folder is gone."""
        if not self.storage.exists(self.folder):
            return 0, 0
        sizes = [
            entry.size
            for entry in self.storage.list_folder(self.folder)
            if (name := parse_file_name(entry.name)).kind is FileKind.LOG and name.is_live
        ]
        return sum(sizes), len(sizes)


def keeper_of(path: str, keep: str | None, options: Options) -> Keeper:
    """Return the function that copies all removed bytes to a folder; RequestError if a broker would read the folder."""
    if keep is None:
        return _NoCopies()
    for place in Target.find_all(options.storage, path):
        check_keep_folder(keep, place.parent, None if place.log_dir is not None else place.names[0])
    if options.into is not None:
        check_keep_folder(keep, options.into)
    return (PlannedKeeper if options.dry_run else FolderKeeper)(LocalStorage(), keep)


class _NoCopies:
    def keep(self, action: Action, file: Readable) -> str | None:
        return None


class _NothingIsLost:
    """Refuses a load that would lose records that were written whole."""

    def keep(self, action: Action, file: Readable) -> str | None:
        """Allow the remains of a crash; refuse damage that would cost records."""
        if action.is_damage:
            reason = f"{action.place} is damaged and would be cut off: {action.reason}"
            raise KeepError(file.path, "open the log", reason)
        return None
