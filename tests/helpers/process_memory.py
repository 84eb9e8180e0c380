"""What this process takes of memory, on Linux."""

from __future__ import annotations

import ctypes
import re
import resource
from pathlib import Path


class Growth:
    """How much more memory the process takes than now, at the most; `most_bytes` more of address space end it."""

    def __init__(self, most_bytes: int) -> None:
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        self._before = _status("VmRSS")
        self._hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        resource.setrlimit(resource.RLIMIT_AS, (_status("VmSize") + most_bytes, self._hard))

    def peak(self) -> int:
        """Return it, in bytes, and end the limit."""
        resource.setrlimit(resource.RLIMIT_AS, (self._hard, self._hard))
        return _status("VmHWM") - self._before


def _status(name: str) -> int:
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) << 10
