"""The trace of a deliberate cut: the ranges of offsets that a command cut out of a log, and their former content.

It lies in the partition's folder, where no broker looks at it, and goes with the folder. `verify` takes a gap in the
offsets for done, and not for damage, only where the trace names its offsets.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from pylogseg import _codec
from pylogseg.errors import CorruptionError
from pylogseg.format import bounded_json

_VERSION = 1
_LATEST_MS = 32503680000000  # the year 3000


class Cut(NamedTuple):
    """A range of a segment's bytes that was cut out, and the half-open range of offsets that is missing since."""

    first_offset: int
    next_offset: int
    command: str  #: Which has cut it out, as `repair`.
    at_ms: int
    file: str  #: The segment.
    position: int
    size: int
    crc32c: int  #: Of these bytes; 0 where nothing is to be known of them.
    reason: str  #: What was wrong with them.


def encode_cuts(cuts: Iterable[Cut]) -> bytes:
    rows = [cut._asdict() for cut in cuts]
    content = {"version": _VERSION, "crc32c": _checksum(rows), "cuts": rows}
    return json.dumps(content, indent=1).encode() + b"\n"


def parse_cuts(data: bytes, path: str) -> list[Cut]:
    """Return the cuts of a file; CorruptionError if its checksum or version is wrong."""
    try:
        content = bounded_json.loads(data)
        if content["version"] != _VERSION:
            raise CorruptionError(path, 0, f"version {content['version']!r} is unknown; expected {_VERSION}")
        rows = content["cuts"]
        if content["crc32c"] != _checksum(rows):
            raise CorruptionError(path, 0, "the checksum of this list of cuts does not match")
        cuts = [Cut(**row) for row in rows]
        if not all(map(_is_sound, cuts)):
            raise CorruptionError(path, 0, "a cut has values that no command writes")
        return cuts
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise CorruptionError(path, 0, f"not a list of cuts, as `repair` writes it: {error!r}") from error


def _is_sound(cut: Cut) -> bool:
    numbers = cut.first_offset, cut.next_offset, cut.at_ms, cut.position, cut.size, cut.crc32c
    texts = cut.command, cut.file, cut.reason
    if not all(type(n) is int and n >= 0 for n in numbers) or not all(type(text) is str for text in texts):
        return False
    return cut.first_offset < cut.next_offset < 2**63 and cut.at_ms < _LATEST_MS


def _checksum(rows: Any) -> int:
    return int(_codec.crc32c(json.dumps(rows, sort_keys=True).encode()))


def without(first: int, end: int, cuts: Sequence[Cut]) -> tuple[list[tuple[int, int]], list[Cut]]:
    """Return the rest of a range of offsets without the cuts, and the cuts that took the difference."""
    left, taken = [], []
    for cut in sorted(cuts):
        if cut.next_offset <= first or cut.first_offset >= end or first >= end:
            continue
        taken.append(cut)
        if cut.first_offset > first:
            left.append((first, cut.first_offset))
        first = max(first, cut.next_offset)
    return [*left, (first, end)] if first < end else left, taken
