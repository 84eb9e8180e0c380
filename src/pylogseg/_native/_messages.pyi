"""Types of the compiled bindings to messages; `tests/package/test_meta.py` compares it with the module."""

from typing import Any

import numpy as np
import numpy.typing as npt

REASONS: tuple[str, ...]
UNKNOWN: int
ABSENT: int

class Block:
    """Memory that a column was decoded into; a read-only buffer."""

    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

def decode(
    place: npt.NDArray[np.int64],
    size: npt.NDArray[np.int32],
    sources: tuple[Any, ...],
    entry: npt.NDArray[np.int32],
    version: npt.NDArray[np.int16],
    ops: npt.NDArray[np.int32],
    tags: npt.NDArray[np.int32],
    nodes: npt.NDArray[np.int32],
    status: npt.NDArray[np.uint8],
    rest: npt.NDArray[np.int32],
    unknown_tags: npt.NDArray[np.int32],
) -> list[tuple[int, Block | None, Block, Block | None]]: ...
def heads(
    place: npt.NDArray[np.int64],
    size: npt.NDArray[np.int32],
    sources: tuple[Any, ...],
    framed: bool,
    number: npt.NDArray[np.int32],
    version: npt.NDArray[np.int32],
    skip: npt.NDArray[np.uint8],
) -> None: ...
