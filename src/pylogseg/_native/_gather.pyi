"""Types of the compiled module that gathers columns of places; `tests/package/test_meta.py` compares the two."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]
Int32s = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.uint8]

def gather_binary(
    place: Int64s, size: Int32s, sources: tuple[Any, ...], offsets: Int32s, data: Bytes, validity: Bytes
) -> int: ...
def gather_views(place: Int64s, size: Int32s, sources: tuple[Any, ...], views: Bytes, validity: Bytes) -> int: ...
def hash_spans(place: Int64s, size: Int32s, sources: tuple[Any, ...], out: npt.NDArray[np.uint64]) -> None: ...
def microseconds(milliseconds: Int64s, out: Int64s) -> bool: ...
def header_spans(
    headers_place: Int64s,
    header_count: Int32s,
    sources: tuple[Any, ...],
    key_place: Int64s,
    key_size: Int32s,
    value_place: Int64s,
    value_size: Int32s,
) -> int: ...

class Lender:
    def __init__(self, allocate: Callable[[int], Any]) -> None: ...
    def __call__(self, size: int) -> Any: ...

class Lent:
    def __len__(self) -> int: ...
