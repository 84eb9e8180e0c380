"""Types of the compiled door to the framing of compressed payloads; `tests/test_meta.py` compares the two."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

def xxh32(buffer: Any, seed: int = 0) -> int: ...
def lz4_blocks(
    buffer: Any,
    start: npt.NDArray[np.int64],
    end: npt.NDArray[np.int64],
    unchecked: npt.NDArray[np.uint8],
    limit: int,
    row: int,
    counts: npt.NDArray[np.int32],
    blocks: npt.NDArray[np.uint8],
) -> tuple[int, int]: ...
def xerial_blocks(
    buffer: Any,
    start: npt.NDArray[np.int64],
    end: npt.NDArray[np.int64],
    limit: int,
    row: int,
    counts: npt.NDArray[np.int32],
    blocks: npt.NDArray[np.uint8],
) -> tuple[int, int]: ...
def zstd_frame(buffer: Any, position: int) -> tuple[int, int, int]: ...
def zstd_rooms(
    buffer: Any,
    start: npt.NDArray[np.int64],
    end: npt.NDArray[np.int64],
    limit: int,
    rooms: npt.NDArray[np.int64],
) -> None: ...
def gzip_rooms(
    buffer: Any,
    start: npt.NDArray[np.int64],
    end: npt.NDArray[np.int64],
    limit: int,
    rooms: npt.NDArray[np.int64],
) -> None: ...
def run_blocks(
    into: Callable[..., int],
    failure: type[Exception] | tuple[type[Exception], ...],
    source: memoryview,
    target: memoryview,
    blocks: npt.NDArray[np.uint8],
    marks: npt.NDArray[np.int64],
    exact: bool,
) -> int: ...
def run_payloads(
    quick: Callable[[memoryview, int], bytes],
    failure: type[Exception] | tuple[type[Exception], ...],
    source: memoryview,
    start: npt.NDArray[np.int64],
    end: npt.NDArray[np.int64],
    first: npt.NDArray[np.int64],
    room: npt.NDArray[np.int64],
    target: npt.NDArray[np.uint8],
    row: int,
    marks: npt.NDArray[np.int64],
    failed: npt.NDArray[np.uint8],
) -> int: ...

ZSTD_REASONS: tuple[str, ...]
