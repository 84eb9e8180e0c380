"""The order of keys in Java's hash maps; it decides the order inside files that brokers write.

Readers need none of this; writers do it so that the same state gives the same bytes as Kafka's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

Item = TypeVar("Item")


def hash_of_long(value: int) -> int:
    """Return Java's ``Long.hashCode``, as an unsigned number of 32 bits."""
    return (value ^ ((value & 0xFFFFFFFFFFFFFFFF) >> 32)) & 0xFFFFFFFF


def hash_of_text(text: str) -> int:
    """Return Java's ``String.hashCode``, as an unsigned number of 32 bits."""
    code = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        code = (code * 31 + int.from_bytes(units[at : at + 2], "big")) & 0xFFFFFFFF
    return code


def map_order(items: Iterable[Item], hash_code: Callable[[Item], int], most_items: int = 0) -> list[Item]:
    """Sort items as a ``HashMap`` lists them after they were put in one by one: by bucket, then by insertion.

    `hash_code` is Java's, unsigned; `most_items` is how many items the map ever had, as it keeps its number of buckets
    when it shrinks. Two things are not followed: eight or more items of one bucket may become a tree, and the map after
    ``Properties``, which is another one, may turn a bucket round when it grows beyond 12 items.
    """
    listed = list(items)
    buckets = 16
    while max(len(listed), most_items) * 4 > buckets * 3:
        buckets *= 2
    return sorted(listed, key=lambda item: ((code := hash_code(item)) ^ (code >> 16)) & (buckets - 1))
