"""Types of the compiled door to record decoding and gathering; `tests/test_stubs.py` compares it with the module."""

from typing import Any

import numpy as np
import numpy.typing as npt

def bodies(rows: npt.NDArray[Any], file_position: int, out: npt.NDArray[Any]) -> int: ...
def count_records(rows: npt.NDArray[Any], bodies: npt.NDArray[Any], sources: tuple[Any, ...]) -> tuple[int, int]: ...
def decode(
    rows: npt.NDArray[Any],
    bodies: npt.NDArray[Any],
    sources: tuple[Any, ...],
    offset: npt.NDArray[np.int64],
    timestamp: npt.NDArray[np.int64],
    key_place: npt.NDArray[np.int64],
    key_size: npt.NDArray[np.int32],
    value_place: npt.NDArray[np.int64],
    value_size: npt.NDArray[np.int32],
    headers_place: npt.NDArray[np.int64],
    header_count: npt.NDArray[np.int32],
    batch: npt.NDArray[np.int32],
) -> tuple[int, int, int, int]: ...
def gather_binary(
    place: npt.NDArray[np.int64],
    size: npt.NDArray[np.int32],
    sources: tuple[Any, ...],
    offsets: npt.NDArray[np.int32],
    data: npt.NDArray[np.uint8],
    validity: npt.NDArray[np.uint8],
) -> int: ...
def gather_views(
    place: npt.NDArray[np.int64], size: npt.NDArray[np.int32], sources: tuple[Any, ...], views: npt.NDArray[Any], validity: npt.NDArray[np.uint8]
) -> int: ...
def header_spans(
    headers_place: npt.NDArray[np.int64],
    header_count: npt.NDArray[np.int32],
    sources: tuple[Any, ...],
    key_place: npt.NDArray[np.int64],
    key_size: npt.NDArray[np.int32],
    value_place: npt.NDArray[np.int64],
    value_size: npt.NDArray[np.int32],
) -> int: ...
