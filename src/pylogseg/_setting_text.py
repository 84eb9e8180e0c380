"""Texts of settings as Kafka's classes parse them: Java's white space, numbers and lists, not Python's."""

from __future__ import annotations

import re

#: Java's `String.trim` removes these; Python's `strip` would also remove the other white space of Unicode.
_TRIMMED = "".join(map(chr, range(0x21)))
#: Java's `\s`.
_COMMA = re.compile(r"[ \t\n\x0b\f\r]*,[ \t\n\x0b\f\r]*")
#: Java's `Long.parseLong` takes the decimal digits of every script, but none that needs two UTF-16 units.
_INTEGER = re.compile(r"[+-]?\d+")
_DECIMAL = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?")
_HEXADECIMAL = re.compile(r"([+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?")
_NAMED = {sign + name: float(sign + name) for sign in ("", "+", "-") for name in ("NaN", "Infinity")}


def trim(text: str) -> str:
    r"""Remove the characters up to U+0020 from both ends.

    >>> trim(" 5 "), trim("\u00a05")
    ('5', '\xa05')
    """
    return text.strip(_TRIMMED)


def parse_integer(text: str) -> int:
    r"""Return an integer of any size; ValueError for a text that Java does not take.

    >>> parse_integer(" +5 "), parse_integer("\uff15")
    (5, 5)
    """
    digits = trim(text)
    if not _INTEGER.fullmatch(digits) or max(digits) > "\uffff":
        raise ValueError("an integer")
    return int(digits)


def parse_double(text: str) -> float:
    """Return a number; ValueError for a text that Java does not take.

    >>> parse_double("0.5d"), parse_double("0x1p-1")
    (0.5, 0.5)
    """
    digits = trim(text)
    if digits in _NAMED:
        return _NAMED[digits]
    if match := _DECIMAL.fullmatch(digits):
        return float(match[1])
    if match := _HEXADECIMAL.fullmatch(digits):
        try:
            return float.fromhex(match[1])
        except OverflowError:
            return float("-inf" if digits.startswith("-") else "inf")
    raise ValueError("a number")


def parse_boolean(text: str) -> bool:
    """Return a truth value; ValueError for a text that Java does not take.

    >>> parse_boolean(" TRUE ")
    True
    """
    word = trim(text).lower()
    if word not in ("true", "false"):
        raise ValueError("true or false")
    return word == "true"


def split_list(text: str) -> tuple[str, ...]:
    """Return the items between commas, also empty ones; none for a blank text.

    >>> split_list("delete , compact"), split_list(" "), split_list("1:2,")
    (('delete', 'compact'), (), ('1:2', ''))
    """
    items = trim(text)
    return tuple(_COMMA.split(items)) if items else ()
