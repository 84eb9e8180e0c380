"""Types of the compiled bindings to encoding; `tests/package/test_meta.py` compares it with the module."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]
Int32s = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.uint8]

class Columns:
    def __init__(
        self,
        count: int,
        offset: Int64s | None,
        timestamp: Int64s | None,
        key_place: Int64s | None,
        key_size: Int32s | None,
        value_place: Int64s | None,
        value_size: Int32s | None,
        headers_place: Int64s | None,
        header_count: Int32s | None,
        sources: Sequence[Any],
        base_offset: int = 0,
        default_timestamp: int = -1,
    ) -> None: ...
    def __len__(self) -> int: ...

def blank(size: int) -> bytearray: ...
def resize(data: bytearray, size: int) -> None: ...
def likely_size(columns: Columns, magic: int, batch_bytes: int, batch_records: int) -> int: ...
def write(
    columns: Columns,
    start: int,
    rows: npt.NDArray[Any],
    planned: bool,
    out: Any,
    at: int,
    batch_bytes: int = 0,
    batch_records: int = 0,
) -> tuple[int, int, int, int]: ...
def pack(
    function: Callable[[memoryview], bytes],
    rows: npt.NDArray[Any],
    scratch: Any,
    out: Any,
    at: int,
    row: int,
    body: bytes | None = None,
) -> tuple[int, int, bytes | None]: ...
def wire_headers(headers: Columns, header_count: Int32s) -> tuple[Bytes, Int64s, int]: ...
