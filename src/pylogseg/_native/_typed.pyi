"""Types of the compiled bindings to typed values; `tests/package/test_meta.py` compares it with the module."""

from typing import Any

import numpy as np
import numpy.typing as npt

from pylogseg._native._messages import Block

REASONS: tuple[str, ...]
UNKNOWN: int
ABSENT: int
TOO_LARGE: int
NOTHING: int
ABSENT_VALUE: int
CONFLUENT: int
GLUE: int
SINGLE_OBJECT: int

def decode_avro(
    place: npt.NDArray[np.int64],
    size: npt.NDArray[np.int32],
    sources: tuple[Any, ...],
    entry: npt.NDArray[np.int32],
    entries: npt.NDArray[np.int32],
    ops: npt.NDArray[np.int32],
    table: npt.NDArray[np.int32],
    constants: npt.NDArray[np.uint8],
    nodes: npt.NDArray[np.int32],
    status: npt.NDArray[np.uint8],
    position: npt.NDArray[np.int32],
    room: int,
    where: npt.NDArray[np.int32] | None = None,
) -> list[tuple[int, Block | None, Block, Block | None]]: ...
def decode_protobuf(
    place: npt.NDArray[np.int64],
    size: npt.NDArray[np.int32],
    sources: tuple[Any, ...],
    entry: npt.NDArray[np.int32],
    messages: npt.NDArray[np.int32],
    fields: npt.NDArray[np.int32],
    table: npt.NDArray[np.int32],
    nodes: npt.NDArray[np.int32],
    status: npt.NDArray[np.uint8],
    position: npt.NDArray[np.int32],
    room: int,
    where: npt.NDArray[np.int32] | None = None,
) -> list[tuple[int, Block | None, Block, Block | None]]: ...
def frames(
    place: npt.NDArray[np.int64],
    size: npt.NDArray[np.int32],
    sources: tuple[Any, ...],
    kind: npt.NDArray[np.uint8],
    number: npt.NDArray[np.int64],
) -> None: ...
def indexes(
    place: npt.NDArray[np.int64],
    size: npt.NDArray[np.int32],
    sources: tuple[Any, ...],
    code: npt.NDArray[np.int64],
    skip: npt.NDArray[np.int32],
) -> None: ...
def may_repeat(
    ends: npt.NDArray[np.int32],
    offsets: npt.NDArray[np.int32],
    data: npt.NDArray[np.uint8],
) -> bool: ...
