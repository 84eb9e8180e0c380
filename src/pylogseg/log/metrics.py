"""Metrics of a log."""

from __future__ import annotations

from dataclasses import dataclass

from pylogseg.log.append_result import Appended, AppendedMany


@dataclass(slots=True)
class LogMetrics:
    """Counters and timings of one log since it was opened, and its size now.

    Attributes
    ----------
    appends, append_seconds : int, float
        Batches written, and the time that appending took: with refused batches, without encoding and waiting for the
        lock.
    records, bytes : int
        Of those batches, including transaction markers.
    duplicates : int
        Batches of producers that were already in the log.
    refusals : int
        Batches that were refused, or failed.
    fetches : int
        Slices read.
    flushes, flush_seconds, longest_flush_seconds : int, float, float
        Flushes of the log, including those in the background.
    rolls, roll_seconds : int, float
        Segments created, and the time it took.
    load_seconds : float
        Time that opening took, including recovery.
    recovered_segments, cut_bytes : int
        By that recovery; `Log.report` has the details.
    segments, size_bytes : int
        Now; indexes are not counted.
    """

    appends: int = 0
    append_seconds: float = 0.0
    records: int = 0
    bytes: int = 0
    duplicates: int = 0
    refusals: int = 0
    fetches: int = 0
    flushes: int = 0
    flush_seconds: float = 0.0
    longest_flush_seconds: float = 0.0
    rolls: int = 0
    roll_seconds: float = 0.0
    load_seconds: float = 0.0
    recovered_segments: int = 0
    cut_bytes: int = 0
    segments: int = 0
    size_bytes: int = 0

    def note_append(self, done: Appended) -> None:
        """Count one append."""
        if done.is_duplicate:
            self.duplicates += 1
        elif done.first_offset >= 0:
            self.appends += 1
            self.records += done.last_offset - done.first_offset + 1
            self.bytes += done.valid_bytes

    def note_many(self, done: AppendedMany) -> None:
        """Count many batches."""
        written = (done.first_offset >= 0) & ~done.is_duplicate
        self.duplicates += int(done.is_duplicate.sum())
        self.refusals += len(done.errors)
        self.appends += int(written.sum())
        self.records += int((done.last_offset - done.first_offset + 1)[written].sum())
        self.bytes += int(done.valid_bytes[written].sum())

    def note_flush(self, seconds: float) -> None:
        """Count one more flush."""
        self.flushes += 1
        self.flush_seconds += seconds
        self.longest_flush_seconds = max(self.longest_flush_seconds, seconds)
