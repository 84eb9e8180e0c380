"""A log of a copy of a cluster: batches of the leader, at their offsets, in segments as the leader has them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pylogseg.config import LogConfig
from pylogseg.env.clock import SystemClock
from pylogseg.env.environment import Environment
from pylogseg.env.scheduler import CollectingScheduler
from pylogseg.errors import StorageError
from pylogseg.format.names import FileKind, segment_file_name
from pylogseg.log.directory import LogDirectory
from pylogseg.log.log import Log
from pylogseg.log.recovery import LoadHooks
from pylogseg.offline.copying.ledger import CopiedLog
from pylogseg.transfer.checked import cut_pieces, piece_bytes
from pylogseg.walker.gaps import offsets_text
from pylogseg.walker.windows import Window

#: The leader says where a segment ends. Where it does not, these are the limits of what a broker reads.
_CONFIG = {"segment_bytes": 2**31 - 1, "segment_ms": 2**63 - 1}
#: Bytes of an append, which become readable together.
_APPEND_BYTES = 8 << 20
_CHECKPOINT_SECONDS = 10.0


class FetchedLog:
    """A partition of a copy while it grows; its folder is made when the first batch comes."""

    def __init__(self, directory: LogDirectory, name: str, copied: CopiedLog) -> None:
        self._directory, self._name, self.copied = directory, name, copied
        self._log: Log | None = None
        self._scheduler = CollectingScheduler()
        self._noted = time.monotonic()
        self.size = 0  #: Bytes that were appended.

    @property
    def folder(self) -> str:
        return os.path.join(self._directory.path, self._name)

    @property
    def is_there(self) -> bool:
        """True if the folder of the partition is in the copy."""
        return os.path.isdir(self.folder)

    def open(self, base: int, on_bytes: Callable[[int], None] | None = None) -> Log:
        """Open the log, recovered if a run was killed; a new one begins at a base offset."""
        if self._log is not None:
            return self._log
        storage = self._directory.storage
        begin = self._directory.claim(self._name)
        try:
            if not self.is_there:
                storage.make_folder(self.folder)
            sizes = [each.size for each in storage.list_folder(self.folder) if each.name.endswith(FileKind.LOG.value)]
            if not sizes:
                for kind in (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.LOG):
                    storage.open_log(os.path.join(self.folder, segment_file_name(base, kind))).close()
                storage.sync_folder(self.folder)
                storage.sync_folder(self._directory.path)
            # The first batch may begin below the start of the log, and an empty log would end there.
            start = max(begin.log_start_offset, self.copied.start) if any(sizes) else 0
            self._log = Log.open(
                Environment(storage, SystemClock(), self._scheduler),
                self.folder,
                LogConfig.of(**_CONFIG),
                begin._replace(log_start_offset=start),
                topic_id=self.copied.topic_id or None,
                hooks=LoadHooks(on_bytes=on_bytes),
            )
        except BaseException:
            self._directory.release(self._name, clean=False, write=False)
            raise
        self._directory.attach(self._name, self._log)
        return self._log

    def append(self, window: Window, end: int, borders: Sequence[int]) -> None:
        """Append the batches of a window that are new and begin below an offset; new segments begin at `borders`."""
        rows = window.batches
        first = int(rows.base_offset[0])
        log = self.open(min(first, self.copied.start))
        rows = rows[(rows.last_offset >= log.log_end_offset) & (rows.base_offset < end)]
        if not len(rows):
            return
        cuts = np.searchsorted(rows.base_offset, [*borders, 2**63 - 1]).tolist()
        begin = 0
        for border, cut in zip([*borders, None], cuts, strict=True):
            self._append(log, window, rows[begin:cut])
            begin = max(begin, cut)
            if log.log_start_offset < self.copied.start <= log.log_end_offset:
                log.update_high_watermark(log.log_end_offset)
                log.increment_log_start(self.copied.start)
            if border is not None and log.log_end_offset <= border and log.active.size and cut < len(rows):
                log.roll(border)
                self._flush(log)

    def _append(self, log: Log, window: Window, rows: Any) -> None:
        for piece in cut_pieces(rows, _APPEND_BYTES):
            data = piece_bytes(piece, window.buffer, window.file_position)
            done = log.append_as_follower(data, int(piece.leader_epoch.max()))
            if done.last_offset != int(piece.last_offset[-1]):
                reason = f"batches from {offsets_text(done.last_offset + 1, None)} contradict one another"
                raise StorageError(self.folder, "append", reason)
            self.size += len(data)

    def reach(self, end: int) -> None:
        """Let the log end at an offset, where the leader has no batch before it: a cleaner was there."""
        log = self.open(end)
        if log.log_end_offset < end:
            log.roll(end)

    def _flush(self, log: Log) -> None:
        """Sync the log to the disk; now and then note a recovery point, so that the next run recovers only the rest."""
        log.flush()
        log.update_high_watermark(log.log_end_offset)
        if time.monotonic() - self._noted > _CHECKPOINT_SECONDS:
            self._noted = time.monotonic()
            self._directory.checkpoint()

    @property
    def segments(self) -> int:
        """The number of its segments."""
        return 0 if self._log is None else len(self._log.segments)

    def close(self) -> int | None:
        """Put the log on the disk, and release it; return where it ends, None if it was not opened."""
        log, self._log = self._log, None
        if log is None:
            return None
        is_clean = False
        try:
            if log.is_usable:
                log.flush()
                log.update_high_watermark(log.log_end_offset)
                log.close()
                self._scheduler.finish()
                is_clean = True
            else:
                log.close_handles()
        finally:
            self._directory.release(self._name, clean=is_clean, write=False)
        active = log.segments.active
        return max(log.log_end_offset, active.base_offset if active is not None and not active.size else 0)
