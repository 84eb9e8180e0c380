"""Types of the compiled door to places in a segment; `tests/test_meta.py` compares it with the module."""

from typing import Any

import numpy as np
import numpy.typing as npt

def place(entries: Any, count: int, log: Any, end: int, base_offset: int, offset: int) -> tuple[int, int, int]: ...
def place_in_part(log: Any, end: int, offset: int) -> tuple[int, int, int]: ...
def places(
    entries: Any,
    count: int,
    log: Any,
    end: int,
    base_offset: int,
    offsets: npt.NDArray[np.int64],
    positions: npt.NDArray[np.int64],
    base_offsets: npt.NDArray[np.int64],
    sizes: npt.NDArray[np.int64],
) -> None: ...
def first_at_time(
    log: Any, start: int, end: int, timestamp: int, lowest_offset: int
) -> tuple[int, int, int, int] | None: ...
