"""Types of the compiled bindings to runs of appends; `tests/package/test_meta.py` compares it with the module."""

from typing import Any

import numpy as np
import numpy.typing as npt

from pylogseg._native._append import Rules

ALL: int
FULL: int
ALONE: int
PRODUCER: int
BODY: int
STEPS: int

class Run:
    next_offset: int
    base_offset: int
    position: int
    max_timestamp: int
    max_timestamp_offset: int
    entry_timestamp: int
    entry_timestamp_offset: int
    entry_offset: int
    since_entry: int
    interval: int
    entries_left: int
    first_timestamp: int
    created_ms: int
    roll_age_ms: int
    roll_bytes: int
    flush_offset: int
    used: int
    reason: int
    timestamp: int
    @property
    def has_entries(self) -> bool: ...
    @property
    def has_producers(self) -> bool: ...
    def __init__(
        self, rules: Rules | None = None, leader_epoch: int = -1, client: bool = True, now_ms: int = 0
    ) -> None: ...
    def begin(self) -> None: ...
    def begin_nowhere(self) -> None: ...
    def add_producer(self, producer_id: int, producer_epoch: int, last_sequence: int, in_transaction: bool) -> bool: ...
    def producer_states(self) -> list[tuple[int, list[tuple[int, int, int, int]]]]: ...
    def entries(self) -> tuple[bytes, bytes]: ...
    def validate(
        self,
        data: Any,
        starts: npt.NDArray[np.int64],
        row: int,
        out: Any,
        room: int,
        first_offsets: npt.NDArray[np.int64],
        last_offsets: npt.NDArray[np.int64],
        timestamps: npt.NDArray[np.int64],
        bodies: npt.NDArray[Any] | None = None,
        arena: Any = None,
    ) -> int: ...
    def add(self, rows: npt.NDArray[Any], row: int) -> int: ...
    def validate_one(
        self,
        data: Any,
        leader_epoch: int,
        now_ms: int,
        client: bool,
        in_place: bool,
        body: Any = None,
    ) -> Any: ...
    def codec(self) -> int: ...
    def producer_id(self) -> int: ...
    def take_validated(self) -> bool: ...
