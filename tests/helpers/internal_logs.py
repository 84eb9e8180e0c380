"""Small logs of internal topics, from keys and values."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pylogseg.format.builder import build, shared_row
from pylogseg.format.record_input import columns_from_records

Record = tuple[bytes | None, bytes | None]


def write_log(folder: Path, records: Iterable[Record], *, base_offset: int = 0, timestamp_ms: int = 1000) -> Path:
    """Write one batch of records to a partition's folder, and return its segment."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [(timestamp_ms, key, value) for key, value in records]
    raw, _ = build(columns_from_records(rows, base_offset=base_offset), shared_row())
    path = folder / f"{base_offset:020d}.log"
    path.write_bytes(raw)
    return path
