"""Where the state of a cluster ends: now, at a time, or below given offsets of its internal topics."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import NamedTuple

from pylogseg.disk.choice import whole_number
from pylogseg.errors import RequestError
from pylogseg.format.moments import ms_of, warned_of_unit
from pylogseg.reading.offset_range import OPEN_END

AsOf = int | datetime.datetime | Mapping[str, int]


class CutOff(NamedTuple):
    """The cut-off of a state: a time, and offsets by partition; records from there on do not count."""

    until_ms: int | None = None
    ends: Mapping[str, int] = {}

    @classmethod
    def of(cls, as_of: AsOf | None) -> CutOff:
        """Return the cut-off of an argument: a time includes its own millisecond, and a datetime needs a zone."""
        if as_of is None:
            return cls()
        if isinstance(as_of, Mapping):
            ends = {name: whole_number(offset, f"as_of[{name!r}]") for name, offset in as_of.items()}
            if any(offset < 0 for offset in ends.values()):
                raise RequestError(f"as_of has a negative offset: {ends}")
            return cls(None, ends)
        if isinstance(as_of, datetime.datetime):
            return cls(ms_of(as_of) + 1)
        return cls(warned_of_unit(whole_number(as_of, "as_of")) + 1)

    def end(self, name: str) -> int:
        """Above the last offset of a partition that counts."""
        return self.ends.get(name, OPEN_END)
