"""How records are read: the choices of a reading, and the state of one while it goes over logs."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypedDict

import numpy as np
import numpy.typing as npt

from pylogseg.errors import RequestError
from pylogseg.format.batches import BatchTable
from pylogseg.format.escape import printable
from pylogseg.format.records import DECOMPRESSED_LIMIT_BYTES
from pylogseg.format.scratch import Scratch
from pylogseg.reading.options import check_options, option, options_of
from pylogseg.walker.gaps import Gap, GapKind
from pylogseg.walker.windows import MEDIUM_WINDOW_BYTES, WINDOW_BYTES

OnCorrupt = Literal["raise", "stop", "skip"]
IsolationLevel = Literal["read_uncommitted", "read_committed"]

_log = logging.getLogger("pylogseg.reading")


class Throttle:
    """Limits the bytes read per second, over all threads that share it, by sleeping."""

    def __init__(self, max_bytes_per_second: float, clock: Callable[[], float] = time.monotonic) -> None:
        if max_bytes_per_second <= 0:
            raise RequestError(f"max_bytes_per_second must be above 0, not {max_bytes_per_second}")
        self._rate, self._clock = max_bytes_per_second, clock
        self._free_at = clock()
        self._lock = threading.Lock()

    @classmethod
    def of(cls, max_bytes_per_second: float | None) -> Throttle | None:
        """Return a throttle for a limit; None without one."""
        return None if max_bytes_per_second is None else cls(max_bytes_per_second)

    def spend(self, size: int, sleep: Callable[[float], None] = time.sleep) -> None:
        """Account for bytes read, and wait until they are paid for."""
        with self._lock:
            now = self._clock()
            self._free_at = max(self._free_at, now) + size / self._rate
            wait = self._free_at - now
        if wait > 0:
            sleep(wait)


class LimitKeywords(TypedDict, total=False):
    """Limits of a reading as keywords of a function."""

    max_decompressed_bytes: int
    max_bytes_per_second: float | None


class ReadingKeywords(LimitKeywords, total=False):
    """The fields of `Reading` as keywords of a function."""

    isolation_level: IsolationLevel
    on_corrupt: OnCorrupt
    control: bool
    check_crc: bool
    drop_behind: bool


@dataclass(frozen=True)
class Reading:
    """How records are read, whichever they are; see `pylogseg.read`.

    With `skip_unreadable`, bytes that the disk cannot read are a gap even with ``on_corrupt="raise"``, for callers that
    report gaps later.
    """

    isolation_level: IsolationLevel = option(
        "read_uncommitted",
        "read_committed skips aborted transactions, and stops at an open one.",
        words=("read_uncommitted", "read_committed"),
        spark="isolationLevel",
    )
    on_corrupt: OnCorrupt = option(
        "raise",
        "At damage: raise an error, stop reading that partition, or skip the damage. The exit code is not 0.",
        words=("raise", "stop", "skip"),
        spark="onCorrupt",
    )
    control: bool = option(False, "Include control records (transaction markers).")
    check_crc: bool = option(True, "Check the CRC of each batch.", spark="checkCrc")
    max_decompressed_bytes: int = option(
        DECOMPRESSED_LIMIT_BYTES,
        "A batch that decompresses to more {}.",
        least=1,
        parse="size",
        shell_default="64Mi",
        spark="maxDecompressedBytes",
    )
    max_bytes_per_second: float | None = option(
        None, "Read no faster than this, e.g. 50M, to spare a broker's disk.", parse="size", metavar="RATE"
    )
    drop_behind: bool = option(
        False,
        "Drop pages from the page cache after reading (default), or keep them.",
        flags=("--drop-behind/--keep-pages",),
        shell_default=True,
    )
    jobs: int = 1  #: Threads that decode ahead, for a stream of Arrow.
    skip_unreadable: bool = False

    def __post_init__(self) -> None:
        check_options(self)

    @property
    def keywords(self) -> dict[str, Any]:
        """The options that are not as by default, as keywords of a function."""
        values = ((name, getattr(self, name), of.default) for name, (of, _) in options_of(Reading).items())
        return {name: value for name, value, preset in values if value != preset}

    def start(self, **more: Any) -> ReadState:
        """Return the state of a new reading; `more` are other fields of it."""
        return ReadState(self, throttle=Throttle.of(self.max_bytes_per_second), **more)


#: As a consumer with ``read_committed`` reads.
COMMITTED = Reading("read_committed")
#: Damage is skipped, and noted as a gap.
SKIPPING = Reading(on_corrupt="skip")
#: The same for bytes that the disk cannot read.
LENIENT = replace(SKIPPING, skip_unreadable=True)


@dataclass
class ReadState:
    """The state of one reading: how it reads, its memory, the gaps that it has met.

    Batches that `batches` masks out are not decoded. A state that `continues` a segment skips gaps that begin below its
    first offset: the reader of the segment's beginning reports them. Records that a broker removed since the listing
    are a gap; `on_removed` gets that gap, and may raise. With it, a log without any file is such a gap, too; without
    it, an error.
    """

    reading: Reading = field(default_factory=Reading)
    window_bytes: int = WINDOW_BYTES
    first_window_bytes: int = MEDIUM_WINDOW_BYTES
    throttle: Throttle | None = None
    scratch: Callable[[], Scratch] | None = None
    gaps: list[Gap] = field(default_factory=list)
    on_bytes: Callable[[int], None] | None = None
    batches: Callable[[BatchTable], npt.NDArray[np.bool_]] | None = None
    continues: bool = False
    on_removed: Callable[[Gap], None] | None = None

    def __post_init__(self) -> None:
        self.first_window_bytes = min(self.first_window_bytes, self.window_bytes)

    @property
    def ends_at_damage(self) -> bool:
        """True if a log ends where its damage begins."""
        return self.reading.on_corrupt == "stop"

    def is_raised(self, gap: Gap) -> bool:
        """Check whether a gap is an error of this reading."""
        is_skipped = self.reading.skip_unreadable and gap.kind is GapKind.UNREADABLE
        return gap.is_damage and self.reading.on_corrupt == "raise" and not is_skipped

    def report(self, gap: Gap) -> None:
        """Raise the error of a gap, or note it, as the reading has it."""
        if self.is_raised(gap):
            raise gap.as_error()
        self.note(gap)

    def note(self, gap: Gap) -> None:
        """Add a gap to the gaps of the reading, and log it: as a warning, if records are lost by it."""
        self.gaps.append(gap)
        if gap.kind is GapKind.REMOVED and self.on_removed is not None:
            self.on_removed(gap)
        _log.log(logging.WARNING if gap.is_loss else logging.INFO, "%s", printable(str(gap)))
