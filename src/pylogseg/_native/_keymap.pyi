"""Types of the compiled bindings to the table of keys; `tests/package/test_meta.py` compares it with the module."""

from collections.abc import Sequence
from typing import Any

def put(
    table: Any,
    secret: tuple[int, int],
    used: int,
    limit: int,
    start_offset: int,
    key_place: Any,
    key_size: Any,
    offset: Any,
    sources: Sequence[Any],
    first: int,
    part_mask: int = 0,
    part: int = 0,
) -> tuple[int, int]: ...
def classify(
    table: Any,
    secret: tuple[int, int],
    latest_offset: int,
    key_place: Any,
    key_size: Any,
    offset: Any,
    sources: Sequence[Any],
    verdict: Any,
) -> None: ...
def hash_spans(secret: tuple[int, int], place: Any, size: Any, sources: Sequence[Any], out: Any) -> None: ...
def rehash(old: Any, new: Any) -> None: ...
