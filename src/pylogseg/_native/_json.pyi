"""Types of the compiled bindings to values in JSON; `tests/package/test_meta.py` compares it with the module."""

from typing import Any

import numpy as np
import numpy.typing as npt

from pylogseg._native._messages import Block

def lines(
    place: npt.NDArray[np.int64],
    size: npt.NDArray[np.int32],
    sources: tuple[Any, ...],
    status: npt.NDArray[np.uint8],
    bare: bool,
    mismatch: int,
    ends: npt.NDArray[np.int64],
) -> Block: ...
def with_parts(
    lines: Any,
    ends: npt.NDArray[np.int64],
    before: int,
    behind: int,
    parts: npt.NDArray[np.int32],
    names: npt.NDArray[np.uint8],
    made_ends: npt.NDArray[np.int64],
) -> Block: ...
def decode(
    place: npt.NDArray[np.int64],
    size: npt.NDArray[np.int32],
    sources: tuple[Any, ...],
    status: npt.NDArray[np.uint8],
    parts: npt.NDArray[np.int32],
    part_nodes: npt.NDArray[np.int32],
    names: npt.NDArray[np.uint8],
    nodes: npt.NDArray[np.int32],
    room: int,
    value_bytes: int,
    object_bytes: int,
    taken: npt.NDArray[np.uint8],
) -> list[tuple[int, Block | None, Block, Block | None]] | None: ...
