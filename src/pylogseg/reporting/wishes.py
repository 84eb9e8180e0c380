"""What a report is to show, and how much it may read."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pylogseg.env.executor import INLINE, Executor
from pylogseg.format.records import DECOMPRESSED_LIMIT_BYTES
from pylogseg.reading.partition import Throttle


@dataclass(frozen=True)
class Wishes:
    """What a report is to show, and how much it may read.

    Attributes
    ----------
    full : bool
        Read every record.
    since, until : int or None
        Only batches of this time, half-open.
    payloads : int
        Records a partition to show, with keys of the hottest ones.
    executor : Executor
        That runs over the segments.
    throttle : Throttle or None
    limit_bytes : int
        The most that a batch may decompress to.
    now_ms : int
        The time of the report.
    names : sequence of str
        That selected the partitions; empty if all.
    numbers : sequence of int or None
        The same of ``--partition``.
    registry : str or None
        Where schemas are that payloads are decoded by; None for `_schemas` of the disk.
    value_as : str or None
        ``text`` leaves payloads as they are; ``schema`` says where no schema is known.
    config : mapping of str to str
        Settings of topics by Kafka's names, that override all others.
    server_properties : str or None
        The broker's configuration file.
    command : str
        That makes this report again.
    paths : sequence of str
    """

    full: bool = False
    since: int | None = None
    until: int | None = None
    payloads: int = 0
    executor: Executor = INLINE
    throttle: Throttle | None = None
    limit_bytes: int = DECOMPRESSED_LIMIT_BYTES
    now_ms: int = field(default_factory=lambda: time.time_ns() // 1_000_000)
    names: Sequence[str] = ()
    numbers: Sequence[int] | None = None
    registry: str | None = None
    value_as: str | None = None
    config: Mapping[str, str] = field(default_factory=dict)
    server_properties: str | None = None
    command: str = ""
    paths: Sequence[str] = ()

    @property
    def is_whole(self) -> bool:
        """True without bounds of time."""
        return self.since is None and self.until is None
