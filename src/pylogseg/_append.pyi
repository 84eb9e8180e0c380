"""Types of the compiled door to appends; `tests/test_meta.py` compares it with the module."""

from typing import Any

import numpy.typing as npt

class Batch:
    @property
    def position(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def base_offset(self) -> int: ...
    @property
    def last_offset(self) -> int: ...
    @property
    def base_timestamp(self) -> int: ...
    @property
    def max_timestamp(self) -> int: ...
    @property
    def producer_id(self) -> int: ...
    @property
    def producer_epoch(self) -> int: ...
    @property
    def base_sequence(self) -> int: ...
    @property
    def leader_epoch(self) -> int: ...
    @property
    def count(self) -> int: ...
    @property
    def crc(self) -> int: ...
    @property
    def magic(self) -> int: ...
    @property
    def attributes(self) -> int: ...
    @property
    def codec(self) -> int: ...
    @property
    def is_transactional(self) -> bool: ...
    @property
    def is_control(self) -> bool: ...
    @property
    def is_append_time(self) -> bool: ...
    @property
    def last_sequence(self) -> int: ...

class Prepared:
    records: Any
    batches: list[Batch]
    first_offset: int
    last_offset: int
    last_offset_of_first: int
    max_timestamp: int
    append_time_ms: int
    valid_bytes: int
    def __init__(
        self,
        records: Any,
        batches: list[Batch],
        first_offset: int,
        last_offset: int,
        last_offset_of_first: int,
        max_timestamp: int,
        append_time_ms: int,
        valid_bytes: int,
    ) -> None: ...

class Rules:
    size_limit: int
    codec: int
    level: int | None
    def __init__(
        self,
        size_limit: int,
        codec: int,
        append_time: bool,
        key_required: bool,
        before_ms: int,
        after_ms: int,
        level: int | None = None,
    ) -> None: ...
    @property
    def append_time(self) -> bool: ...
    @property
    def key_required(self) -> bool: ...
    @property
    def before_ms(self) -> int: ...
    @property
    def after_ms(self) -> int: ...
    def usual(
        self,
        data: Any,
        next_offset: int,
        leader_epoch: int,
        now_ms: int,
        client: bool,
        in_place: bool,
        body: Any = None,
    ) -> Prepared | int | None: ...

def given(data: Any, leader_epoch: int, raft: bool, size_limit: int) -> Prepared | None: ...
def read_batch(data: Any, position: int, size: int) -> tuple[Batch, bool]: ...
def batches_of(rows: npt.NDArray[Any], producers: bool) -> list[Batch]: ...
def end_marker(data: Any, position: int, size: int) -> tuple[int, int, int] | None: ...
