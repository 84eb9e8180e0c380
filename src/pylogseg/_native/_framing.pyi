"""Types of the compiled bindings to the framing of compressed payloads; `tests/package/test_meta.py` compares it."""

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

class Unpacker:
    codec: int
    def __init__(
        self,
        codec: int,
        call: Callable[..., Any],
        failure: type[Exception] | tuple[type[Exception], ...],
        limit: int,
        first_room: int,
        careful: Callable[[memoryview], bytes | None],
    ) -> None: ...

def run_blocks(
    into: Callable[..., int],
    failure: type[Exception] | tuple[type[Exception], ...],
    source: memoryview,
    target: memoryview,
    used: int,
    blocks: npt.NDArray[np.uint8],
    counts: npt.NDArray[np.int32],
    rows: npt.NDArray[np.int64],
    first: int,
    bodies: npt.NDArray[np.uint8],
    late: list[int],
    exact: bool,
) -> tuple[int, int, int]: ...
def run_payloads(
    quick: Callable[[Any, int], bytes],
    failure: type[Exception] | tuple[type[Exception], ...],
    source: memoryview,
    target: npt.NDArray[np.uint8],
    used: int,
    start: npt.NDArray[np.int64],
    end: npt.NDArray[np.int64],
    rooms: npt.NDArray[np.int64],
    first_room: int,
    rows: npt.NDArray[np.int64],
    first: int,
    bodies: npt.NDArray[np.uint8],
    late: list[int],
) -> tuple[int, int, int]: ...

ZSTD_REASONS: tuple[str, ...]
