"""Types of the compiled look-ups in segments; `tests/package/test_meta.py` compares it with the module."""

from typing import Any

import numpy as np
import numpy.typing as npt

def place(entries: Any, count: int, log: Any, end: int, base_offset: int, offset: int) -> tuple[int, int, int]: ...
def place_in_part(log: Any, end: int, offset: int) -> tuple[int, int, int]: ...
def read_in_file(
    descriptor: int, end: int, index: Any, base_offset: int, offset: int, wanted: int, whole: bool
) -> tuple[int, int, int, bytes]: ...
def places_in_file(
    descriptor: int,
    end: int,
    index: Any,
    base_offset: int,
    offsets: Any,
    positions: Any,
    base_offsets: Any,
    sizes: Any,
) -> int: ...
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
def first_at_time_in_file(
    descriptor: int, end: int, start: int, timestamp: int, lowest_offset: int
) -> tuple[int, int, int, int]: ...
def read_ahead(path: bytes) -> int: ...
def read_headers(descriptor: int, position: int, end: int, last_offset: int, out: Any) -> tuple[int, int]: ...
def mapped_headers(log: Any, position: int, last_offset: int, out: Any) -> tuple[int, int]: ...
