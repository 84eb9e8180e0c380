"""The SHA-256 of an object; of a large one, a thread computes it beside the use of the bytes."""

from __future__ import annotations

import hashlib
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

#: For a smaller step, or an object of one such step, a thread costs more than it saves.
_SMALL_BYTES = 3 << 19


class ObjectDigest:
    """The SHA-256 of an object, whose bytes come in steps: of a large one, a thread hashes a step beside the next one.

    The caller must not change the bytes until the next call.
    """

    def __init__(self) -> None:
        self._sha256 = hashlib.sha256()
        self._pool: ThreadPoolExecutor | None = None
        self._hashing: Future[None] | None = None

    def update(self, data: Any) -> None:
        """Take the next bytes, after the hash of the bytes before them is finished."""
        self._wait()
        if len(data) < _SMALL_BYTES:
            self._sha256.update(data)
        else:
            self._pool = self._pool or ThreadPoolExecutor(1, thread_name_prefix="pylogseg-digest")
            self._hashing = self._pool.submit(self._sha256.update, data)

    def _wait(self) -> None:
        if self._hashing is not None:
            self._hashing.result()
            self._hashing = None

    def hexdigest(self) -> str:
        self._wait()
        return self._sha256.hexdigest()

    def close(self) -> None:
        """End the thread that it may have."""
        if self._pool is not None:
            self._pool.shutdown()
