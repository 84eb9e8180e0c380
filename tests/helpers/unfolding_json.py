"""JSON of few bytes that becomes many objects, as a program of its own: it prints what reading it takes.

A line a case: what was done, its shape, its bytes, the most that memory grew by, and whether it was read.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from helpers.depth import IS_DEEP
from helpers.process_memory import Growth
from pylogseg.format import bounded_json
from pylogseg.values.typed_json_errors import mismatch

SHAPES = [
    "[]", "{}", "[0]", "[[]]", "[[[]]]", "[[[[[[[[]]]]]]]]",
    '{"":0}', '{"":[]}', '{"":{}}', '{"":123}', '""', '"ab"', '"éx"', '"😀"',
    "1", "1.5", "null", "[1,2]", "[1.5,2.5]", '{"a":1,"b":2}', '{"id":12345,"name":"abcdef","price":12.5}',
    "[ ]", '{ "a" : 1 }', '"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"', '{"a":1,"b":2,"c":3,"d":4,"e":5,"f":6}',
]  # fmt: skip
#: Below and above the size from which on it is estimated what JSON becomes.
SIZES = [2 << 20, 5 << 20]


def texts(size: int, turn: int) -> Iterator[tuple[str, bytes]]:
    """Arrays of one shape, and objects with many members; but for a deep run every other shape, in turns."""
    for shape in SHAPES if IS_DEEP else SHAPES[turn % 2 :: 2]:
        item = shape.encode()
        yield shape, b"[" + b",".join([item] * (size // (len(item) + 1) - 1)) + b"]"
    yield "members", b"{" + b",".join(b'"%06x":0' % i for i in range(size // 11 - 1)) + b"}"
    yield "members of text", b"{" + b",".join(b'"%06x":"%03x"' % (i, i % 4096) for i in range(size // 15 - 1)) + b"}"


def main() -> None:
    """Try each case, under a limit of what the process may take."""
    for turn, size in enumerate(SIZES):
        for name, raw in texts(size, turn):
            growth = Growth(20 * len(raw) + (128 << 20))
            try:
                is_read = bounded_json.loads(raw) is not None
            except ValueError:
                is_read = False
            print("read", name, len(raw), growth.peak(), is_read, sep=";", flush=True)
    for turn, size in enumerate((1 << 20, 3 << 20)):
        for name, raw in texts(size, turn):
            growth = Growth(20 * len(raw) + (128 << 20))
            assert mismatch(raw, pa.field("v", pa.struct([("x", pa.int64())])))
            print("mismatch", name, len(raw), growth.peak(), False, sep=";", flush=True)


if __name__ == "__main__":
    main()
