"""Options of a report: its parts, and how much it reads."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pylogseg.disk.choice import ALL, PartitionChoice
from pylogseg.format.records import DECOMPRESSED_LIMIT_BYTES
from pylogseg.reading.state import Throttle
from pylogseg.reporting.commands import line

#: In a URL, the name and the password.
_LOGIN = re.compile(r"(?<=//).*@", re.DOTALL)


@dataclass(frozen=True)
class ReportOptions:
    """The parts of a report, and how much it reads."""

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
    paths: Sequence[str] = ()

    @property
    def is_whole(self) -> bool:
        """True without bounds of time."""
        return self.since is None and self.until is None

    @property
    def command(self) -> str:
        """The command that makes the report again, without the login of a registry."""
        words = ["pylogseg", "report", *self.paths, *self.choice.names]
        values = {
            "--since": self.since,
            "--until": self.until,
            "--sample": self.payloads or None,
            "--registry": None if self.registry is None else _LOGIN.sub("", self.registry),
            "--value-as": self.value_as,
        }
        for name, value in values.items():
            words += [] if value is None else [name, str(value)]
        words += [word for name, value in self.config.items() for word in ("--config", f"{name}={value}")]
        words += [word for number in self.choice.numbers for word in ("--partition", str(number))]
        return line(*words, *(["--full"] if self.full else []), "-o", "report.html")
