"""Scanning and decoding at once: the bytes of a batch come from memory for its CRC and are decoded while near."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pylogseg.errors import Verdict
from pylogseg.format.batches import BatchTable, Scan, scan
from pylogseg.format.records import BatchDamage, RecordColumns, Slice, check_and_decode, decode_slices
from pylogseg.format.scratch import Scratch

Decoded = tuple[RecordColumns, list[BatchDamage]]


class OnePass:
    """The scanner of a walk, and the decoder of the windows that the walk gives.

    A window is decoded ahead, before anybody has asked for its records: all of it or nothing. Where a batch is
    compressed, a CRC is bad or not all batches are wanted, scan and decoder work one after the other.

    Parameters
    ----------
    limit_bytes : int
        A batch that would decompress to more is damaged.
    scratch : Scratch, optional
        Reused memory.
    """

    def __init__(self, limit_bytes: int, scratch: Scratch | None) -> None:
        self._limit_bytes, self._scratch = limit_bytes, scratch
        self._buffer: Any = None
        self._scanned = 0
        self._decoded: Decoded | None = None
        self._is_worth_it, self._is_compressed = True, False

    def memory(self, size: int) -> memoryview | None:
        """Where a walk may read a window to; None where its bytes have to outlive it."""
        return None if self._scratch is None else self._scratch.window(size)

    def scan(self, buffer: Any, *, file_position: int, crc: bool) -> Scan:
        """`scan` of a window, which may be decoded besides."""
        self._buffer, self._decoded = buffer, None
        ahead = crc and self._is_worth_it and not self._is_compressed
        found = scan(buffer, file_position=file_position, crc=crc and not ahead)
        self._scanned = len(found.batches)
        # A window is taken for what the one before it was; else its headers are read twice.
        self._is_compressed = self._scanned > 0 and found.batches.summary().is_compressed
        if ahead and self._scanned:
            if not self._is_compressed:
                self._decoded = check_and_decode(found.batches, buffer, file_position, self._scratch)
            if self._decoded is None:
                return scan(buffer, file_position=file_position, crc=True)
        return found

    def decode(self, batches: BatchTable, buffer: Any, file_position: int) -> Iterator[Slice]:
        """`decode_slices` of batches of the window that was scanned last."""
        decoded, self._decoded = self._decoded, None
        is_whole = self._buffer is buffer and len(batches) == self._scanned
        # Who leaves out batches of this window (aborted ones, markers) will leave out some of the next.
        self._is_worth_it = is_whole
        if decoded is None or not is_whole:
            yield from decode_slices(
                batches, buffer, file_position, limit_bytes=self._limit_bytes, scratch=self._scratch
            )
            return
        for bad in decoded[1]:
            batches.rows["verdict"][bad.row] = Verdict.RECORDS_BAD
        yield Slice(*decoded)
