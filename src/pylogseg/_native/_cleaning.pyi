"""Types of the compiled passes of a cleaning; `tests/package/test_meta.py` compares them with the module."""

from typing import Any

class Pass:
    def __init__(self, memory: Any, piece_bytes: int) -> None: ...

def put_plain(
    file: int,
    size: int,
    position: int,
    passing: Pass,
    table: Any,
    secret: tuple[int, int],
    used: int,
    limit: int,
    start_offset: int,
    older: Any,
    older_first: int,
    previous: int,
) -> tuple[int, int, int, int, int, bool]: ...
def filter_plain(
    file: int,
    size: int,
    position: int,
    passing: Pass,
    table: Any,
    secret: tuple[int, int],
    latest_offset: int,
    older: Any,
    older_first: int,
    now_ms: int,
    horizon_ms: int,
    round_end: int,
    producers: Any,
    last_offsets: Any,
    rows: Any,
    out: Any,
) -> tuple[int, int, int, int, int, int]: ...
