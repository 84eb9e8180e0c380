"""Types of the compiled module that decodes records; `tests/package/test_meta.py` compares the two."""

from typing import Any

import numpy as np
import numpy.typing as npt

from pylogseg._native._framing import Unpacker

Int64s = npt.NDArray[np.int64]
Int32s = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.uint8]

def capacity(rows: npt.NDArray[Any], bodies: npt.NDArray[Any]) -> tuple[int, int]: ...
def plain_bodies(
    rows: npt.NDArray[Any], file_position: int, bodies: npt.NDArray[Any], buffer_size: int = 0
) -> bool: ...

class Output:
    def __init__(
        self,
        offset: Int64s,
        timestamp: Int64s,
        key_place: Int64s,
        key_size: Int32s,
        value_place: Int64s,
        value_size: Int32s,
        headers_place: Int64s,
        header_count: Int32s,
        batch: Int32s,
        key_view: Bytes | None = None,
        value_view: Bytes | None = None,
        value_ends: Int32s | None = None,
        value_data: Bytes | None = None,
        key_ends: Int32s | None = None,
        key_data: Bytes | None = None,
    ) -> None: ...

def decode(
    rows: npt.NDArray[Any],
    first_row: int,
    bodies: npt.NDArray[Any],
    sources: tuple[Any, ...],
    n: int,
    output: Output,
    *,
    crc: bool = False,
    done: int = -1,
    at: int = 0,
) -> tuple[int, int, tuple[int, int, int, int, int, int], int, int]: ...

class FileMap: ...

def read_and_decode(
    file: int,
    position: int,
    memory: Any,
    piece_bytes: int,
    first_offset: int,
    last_offset: int,
    rows: npt.NDArray[Any],
    output: Output,
    unpacker: Unpacker | None = None,
    arena: Any = None,
    file_map: FileMap | None = None,
) -> tuple[int, int, int, tuple[int, int, int, int, int, int], int, int, int, int]: ...
def use_maps_in_memory(everywhere: bool) -> None: ...
def use_wide_copies(wide: bool) -> bool: ...
