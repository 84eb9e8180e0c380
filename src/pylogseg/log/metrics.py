"""What a log has done since it was opened, in figures."""

from __future__ import annotations

from dataclasses import dataclass

from pylogseg.log.append_result import Appended, AppendedMany


@dataclass(slots=True)
class LogMetrics:
    """Counters and timings of one log since it was opened, and its size now.

    Attributes
    ----------
    appends, append_seconds : int, float
        Batches that were written, and the time that appending took, refusals with it, waiting for the lock and encoding
        not.
    records, bytes : int
        Of those batches, markers of transactions among them.
    duplicates : int
        Batches of producers that were in the log already.
    refusals : int
        Batches that were refused, or failed.
    fetches : int
        Slices read.
    flushes, flush_seconds, longest_flush_seconds : int, float, float
        Times that the log was forced to the disk, in the background too.
    rolls, roll_seconds : int, float
        Segments begun.
    load_seconds : float
        Time that opening took, recovery with it.
    recovered_segments, cut_bytes : int
        What that recovery did; `Log.report` says more.
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
        """Count one more batch, or what a follower took at once."""
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
