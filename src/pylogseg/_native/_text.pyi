"""Types of the compiled bindings to text; `tests/package/test_meta.py` compares it with the module."""

from typing import Any

import numpy as np
import numpy.typing as npt

OP_COUNT: int
STYLE_COUNT: int

class TextBuffer:
    """Bytes that functions append text to, in memory that stays when it is cleared."""

    @property
    def capacity(self) -> int: ...
    def __init__(self, capacity: int = 0) -> None: ...
    def __len__(self) -> int: ...
    def __bytes__(self) -> bytes: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def append(self, text: Any) -> None: ...
    def clear(self) -> None: ...

def render(
    columns: Any, ops: npt.NDArray[np.int32], labels: bytes, delimiter: int, start: int, stop: int, out: TextBuffer
) -> None: ...
def dump_lines(
    columns: Any,
    start_batch: int,
    stop_batch: int,
    start: int,
    stop: int,
    what: int,
    out: TextBuffer,
    ends: npt.NDArray[np.int32] | None = None,
    texts: Any = None,
) -> None: ...
def json_strings(ends: npt.NDArray[np.int32], data: Any, kind: int, out: TextBuffer) -> npt.NDArray[np.int32]: ...
def find(
    place: npt.NDArray[np.int64],
    size: npt.NDArray[np.int32],
    sources: tuple[Any, ...],
    needle: Any,
    found: npt.NDArray[np.uint8],
    ignore_case: bool = False,
) -> None: ...
