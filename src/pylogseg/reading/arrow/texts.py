"""Bytes as strings that have all of them, and back: as text, or as ``base64:`` and base64."""

from __future__ import annotations

import binascii

import pyarrow as pa
import pyarrow.compute as pc

from pylogseg.format.text import MARK, payload_of, payload_text


def readable_strings(column: pa.Array) -> pa.Array:
    """Return binary as strings, as `pylogseg cat` prints it: `bytes_of` gives all bytes back.

    Bytes that are not UTF-8 are encoded, and so is text that begins with ``base64:``.
    """
    try:
        strings = column.cast(pa.string())
        if not pc.any(pc.starts_with(strings, MARK)).as_py():
            return strings
    except pa.ArrowInvalid:
        pass
    return pa.array([payload_text(payload) for payload in column.to_pylist()], pa.string())


def bytes_of(strings: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the bytes of `readable_strings`; a string that this does not make stands for its UTF-8."""
    if not pc.any(pc.starts_with(strings, MARK)).as_py():
        return strings
    return pa.chunked_array([pa.array([_bytes(text) for text in strings.to_pylist()], pa.binary())])


def _bytes(text: str | None) -> bytes | None:
    try:
        payload = payload_of(text)
    except binascii.Error:
        payload = None
    return payload if text is None or payload_text(payload) == text else text.encode()
