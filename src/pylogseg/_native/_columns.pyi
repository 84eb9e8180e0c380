"""Types of the compiled bindings to columns of binary values; `tests/package/test_meta.py` compares it."""

from typing import Any

import numpy as np
import numpy.typing as npt

VARINT_REASONS: tuple[str, ...]

def crc32c(offsets: Any, data: Any, out: npt.NDArray[np.uint32]) -> None: ...
def murmur2(offsets: Any, data: Any, out: npt.NDArray[np.int32]) -> None: ...
def read_varints(
    offsets: Any, data: Any, out: npt.NDArray[np.int64], zigzag: bool, status: npt.NDArray[np.uint8]
) -> None: ...
def write_varints(
    numbers: npt.NDArray[np.int64], zigzag: bool, offsets: npt.NDArray[np.int32], data: npt.NDArray[np.uint8]
) -> int: ...
