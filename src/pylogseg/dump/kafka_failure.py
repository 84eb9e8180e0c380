"""Failures of Kafka's dump tool: Java exceptions, with the same class and message."""

from __future__ import annotations

_CORRUPT = "org.apache.kafka.common.errors.CorruptRecordException"


class KafkaFailure(Exception):
    """A failure that ends Kafka's tool.

    Parameters
    ----------
    kind : str
        Class of the Java exception.
    message : str
    """

    def __init__(self, kind: str, message: str = "") -> None:
        super().__init__(f"{kind}: {message}" if message else kind)


def too_small(size: int, path: str) -> KafkaFailure:
    """Return the failure for a batch that is too short; to the tool, zeros at the end of a file are one."""
    return KafkaFailure(_CORRUPT, f"Found record size {size} smaller than minimum record overhead (14) in file {path}.")


def number_of(name: str) -> int:
    """Parse the base offset before the first dot of a name."""
    text = name.split(".")[0]
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 255 or not -(2**63) <= int(text) < 2**63:
        raise KafkaFailure("java.lang.NumberFormatException", f'For input string: "{text}"')
    return int(text)
