"""What a report shows, and how much it reads."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pylogseg.disk.choice import ALL, PartitionChoice
from pylogseg.format.records import DECOMPRESSED_LIMIT_BYTES
from pylogseg.reading.state import Throttle


@dataclass(frozen=True)
class ReportOptions:
    """What a report shows, and how much it reads."""

    full: bool = False  # read every record
    since: int | None = None
    until: int | None = None  # excluded
    payloads: int = 0  # newest records a partition to show, with keys of the hottest ones
    throttle: Throttle | None = None
    #: The most that a batch may decompress to.
    limit_bytes: int = DECOMPRESSED_LIMIT_BYTES
    now_ms: int = field(default_factory=lambda: time.time_ns() // 1_000_000)
    choice: PartitionChoice = ALL
    registry: str | None = None  # by default the disk's own `_schemas`
    #: ``text`` leaves payloads as they are; ``schema`` says where no schema is known.
    value_as: str | None = None
    #: Settings of topics by Kafka's names, which override all others.
    config: Mapping[str, str] = field(default_factory=dict)
    server_properties: str | None = None
    command: str = ""  # makes this report again
    paths: Sequence[str] = ()

    @property
    def is_whole(self) -> bool:
        """True without bounds of time."""
        return self.since is None and self.until is None
