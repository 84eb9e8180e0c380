"""Any kind of buffer as bytes."""

from __future__ import annotations

from typing import Any


def byte_view(buffer: Any) -> memoryview:
    """View any contiguous buffer as bytes, without a copy."""
    view = memoryview(buffer)
    # memoryview refuses to cast an empty array of numpy's.
    return view.cast("B") if view.nbytes else memoryview(b"")
