"""Options, failures, stderr lines and path forms of Kafka's dump tool."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

MAX_INT = 2**31 - 1
Write = Callable[[Any], object]
#: Options of decoders, in the order in which the tool looks for them.
DECODERS = (
    "offsets_decoder",
    "transaction_log_decoder",
    "cluster_metadata_decoder",
    "remote_log_metadata_decoder",
    "share_group_state_decoder",
)
_CORRUPT = "org.apache.kafka.common.errors.CorruptRecordException"


@dataclass(frozen=True)
class KafkaOptions:
    """The options of Kafka's tool, with its names; see its ``--help``."""

    deep_iteration: bool = False
    print_data_log: bool = False
    skip_record_metadata: bool = False
    verify_index_only: bool = False
    index_sanity_check: bool = False
    max_message_size: int = 5 * 1024 * 1024
    max_bytes: int = MAX_INT
    offsets_decoder: bool = False
    transaction_log_decoder: bool = False
    cluster_metadata_decoder: bool = False
    remote_log_metadata_decoder: bool = False
    share_group_state_decoder: bool = False
    #: Not an option of Kafka's tool.
    max_decompressed_bytes: int = 64 << 20

    @property
    def is_deep(self) -> bool:
        """True if records are printed: printing data implies it, and a decoder does."""
        return self.deep_iteration or self.print_data_log or self.decoder is not None

    @property
    def decoder(self) -> str | None:
        """The option of the decoder that is used: the first that is given, in the tool's order."""
        return next((name for name in DECODERS if getattr(self, name)), None)


@dataclass
class Complaints:
    """Findings that the tool prints on stderr when all files are done: pairs of numbers, by kind and file.

    Mismatches and jumps are stored by their first number, as in the tool: a later one replaces an earlier one.
    """

    mismatches: dict[str, dict[int, int]] = field(default_factory=dict)
    timestamps: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    disorder: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    not_found: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    jumps: dict[str, dict[int, int]] = field(default_factory=dict)

    def lines(self) -> Iterable[str]:
        """Yield the lines in the tool's order, except for the order of files, which is a hash map's in the tool."""
        for path, pairs in self.mismatches.items():
            yield f"Mismatches in :{path}"
            yield from (f"  Index offset: {k}, log offset: {v}" for k, v in sorted(pairs.items(), reverse=True))
        for path, listed in self.timestamps.items():
            yield f"Found timestamp mismatch in :{path}"
            yield from (f"  Index timestamp: {k}, log timestamp: {v}" for k, v in listed)
        for path, listed in self.disorder.items():
            yield f"Found out of order timestamp in :{path}"
            yield from (f"  Index timestamp: {k}, Previously indexed timestamp: {v}" for k, v in listed)
        for path, listed in self.not_found.items():
            yield f"The following indexed offsets are not found in :{path}"
            yield from (f"Indexed offset: {k}, found log offset: {v}" for k, v in listed)
        for path, pairs in self.jumps.items():
            yield f"Non-consecutive offsets in {path}"
            yield from (f"  {k} is followed by {v}" for k, v in sorted(pairs.items()))


def java_path(path: str) -> str:
    """Format a path like Java's File: without doubled and trailing slashes. URLs are not changed."""
    return path if "://" in path else re.sub("/+", "/", path).rstrip("/") or "/"


def make_absolute(path: str) -> str:
    """Make a path absolute like Java: `.` and `..` stay."""
    return path if "://" in path else os.path.join(os.getcwd(), java_path(path))


class KafkaFailure(Exception):
    """A failure that ends Kafka's tool; `kind` is the class of the Java exception."""

    def __init__(self, kind: str, message: str = "") -> None:
        super().__init__(f"{kind}: {message}" if message else kind)


def too_small(size: int, path: str) -> KafkaFailure:
    """Return the failure for a batch that is too short; to the tool, zeros at the end of a file are one."""
    return KafkaFailure(_CORRUPT, f"Found record size {size} smaller than minimum record overhead (14) in file {path}.")


def number_of(name: str) -> int:
    """Parse the base offset before the first dot of a name."""
    text = name.split(".")[0]
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 255 or not -(2**63) <= int(text) < 2**63:
        raise KafkaFailure("java.lang.NumberFormatException", f'For input string: "{text}"')
    return int(text)
