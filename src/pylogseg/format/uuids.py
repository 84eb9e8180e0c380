"""UUIDs as Kafka writes them in text."""

from __future__ import annotations

import base64
import binascii

from pylogseg.errors import RequestError

#: To the characters that base64 has otherwise; Python 3.15 warns of those in text for other ones.
_FROM_URL = bytes.maketrans(b"-_", b"+/")


def format_uuid(raw: bytes) -> str:
    """Return the text of a UUID as Kafka writes it: URL-safe base64 without padding, 22 characters.

    >>> format_uuid(bytes(16))
    'AAAAAAAAAAAAAAAAAAAAAA'
    """
    return base64.urlsafe_b64encode(raw)[:22].decode()


def parse_uuid(text: str) -> bytes:
    """Return the 16 bytes of a UUID from the text that `format_uuid` gives; RequestError for another form."""
    try:
        raw = base64.b64decode(text.encode("ascii").translate(_FROM_URL) + b"==", validate=True)
    except (ValueError, binascii.Error):
        raw = b""
    # A last character with bits beyond the 128, or `+`, would be another text for the same number.
    if len(raw) != 16 or format_uuid(raw) != text:
        raise RequestError(f"{text!r} is not a UUID: 16 bytes as 22 characters of URL-safe base64")
    return raw
