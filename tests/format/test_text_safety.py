"""Tests of format/text.py. What a caller must not get away with when records become text, and the buffer that the text
goes to.
"""

from __future__ import annotations

import dataclasses
import mmap
from typing import Any

import numpy as np
import pytest
from helpers.drawn_columns import INT64, build
from hypothesis import given
from hypothesis import strategies as st
from reference.text import Record

from pylogseg.errors import RequestError
from pylogseg.format import text
from pylogseg.format.records import SOURCE_SHIFT, RecordColumns


def replaced(columns: RecordColumns, **changes: Any) -> RecordColumns:
    return dataclasses.replace(
        columns, **{name: np.array(value, getattr(columns, name).dtype) for name, value in changes.items()}
    )


HOSTILE = [
    -1,
    1 << 39,
    (1 << SOURCE_SHIFT) - 1,
    3 << SOURCE_SHIFT,
    4 << SOURCE_SHIFT,
    (1 << 63) - 1,
    -(1 << 63),
    (1 << SOURCE_SHIFT) | 100,
]
PROGRAMS = [
    text.json_lines(key="json", value="base64"),
    text.csv(),
    text.template("%k%s%h"),
    text.json_lines(("key", "value", "headers")),
]


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("name", ["key_place", "value_place", "headers_place"])
@pytest.mark.parametrize("place", HOSTILE)
def test_spans_outside_of_their_source(program: text.TextProgram, name: str, place: int) -> None:
    columns = build([Record(0, 0, b"k", b"v", ((b"h", b"w"),)), Record(1, 0, b"k", b"v", ((b"h", b"w"),))])
    good = getattr(columns, name)
    with pytest.raises(RequestError, match="record 1"):
        text.render(replaced(columns, **{name: [good[0], place]}), program)
    if name == "value_place":
        with pytest.raises(RequestError, match="record 1"):
            text.find(np.array([good[0], place]), columns.value_size, columns.sources, b"v")


@given(
    st.lists(INT64 | st.integers(0, 80), min_size=3, max_size=3),
    st.lists(st.integers(-(1 << 31), (1 << 31) - 1) | st.integers(0, 20), min_size=3, max_size=3),
    st.integers(-2, 2),
    st.sampled_from(PROGRAMS),
)
def test_hostile_columns_end_in_text_or_an_error(
    places: list[int], sizes: list[int], batch: int, program: text.TextProgram
) -> None:
    columns = build([Record(0, 0, b"key", b"value", ((b"h", b"w"), (b"i", None)))])
    names = ("key_place", "value_place", "headers_place", "key_size", "value_size", "header_count", "batch")
    hostile = replaced(columns, **dict(zip(names, ([number] for number in (*places, *sizes, batch)), strict=True)))
    try:
        out = text.render(hostile, program)
    except RequestError:
        return
    assert batch == 0
    assert all(
        size < 0 or (place & 0xFF) + size <= len(columns.sources[0])
        for place, size in zip(places[:2], sizes[:2], strict=True)
    )
    assert len(out) < 1000


def test_operations_are_checked() -> None:
    columns = build([])
    for op in (
        [text._text.OP_COUNT, 0, 0, 0],
        [-1, 0, 0, 0],
        [1, text._text.STYLE_COUNT, 0, 0],
        [1, 0, 0, 2],
        [1, 0, 2, 0],
        [1, 0, -1, 1],
        [1, 0, 1, 0x7FFFFFFF],
    ):
        with pytest.raises(RequestError):
            text.render(columns, text.TextProgram(np.array([op], np.int32), b"x", 0))


def test_numbers_of_the_kernel_are_those_of_the_programs() -> None:
    assert max(text._FIELD_OPS.values()) + 3 == text._text.OP_COUNT == text._VALUE_SIZE_BE + 1
    assert text._text.STYLE_COUNT == text._HEX + 1


def test_ranges_and_lengths_are_checked() -> None:
    columns = build([Record(n, 0, None, None) for n in range(5)])
    program = text.template("%o")
    assert bytes(text.render(columns, program, start=1, stop=4)) == b"123"
    for start, stop in ((-1, 2), (3, 2), (0, 6)):
        with pytest.raises(RequestError):
            text.render(columns, program, start=start, stop=stop)
    with pytest.raises(RequestError):
        text.render(dataclasses.replace(columns, batch=columns.batch[:3]), program)
    with pytest.raises(RequestError):
        text.render(dataclasses.replace(columns, sources=(b"",) * 5), program)


# ---- the buffer ----


def test_the_buffer_grows_at_any_record() -> None:
    value = bytes(range(256)) * 40
    columns = build([Record(n, n, value[:n], value[: 13 * n], ((value[:n], value[:n]),)) for n in range(0, 700, 7)])
    for program in PROGRAMS:
        whole = bytes(text.render(columns, program))
        for capacity in (1, 17, 1000, 65537):
            assert bytes(text.render(columns, program, text.TextBuffer(capacity))) == whole


def test_the_buffer_is_reused_and_guarded() -> None:
    columns = build([Record(1, 2, b"k", b"v")])
    out = text.render(columns, text.template("%o,"))
    assert text.render(columns, text.template("%o"), out) is out
    out.append(b"\n")
    view = memoryview(out)
    assert (bytes(view), view.readonly, len(out)) == (b"1,1\n", True, 4)
    for forbidden in (out.clear, lambda: text.render(columns, text.template("%o"), out), lambda: out.append(b"x")):
        with pytest.raises(BufferError):
            forbidden()
    view.release()
    capacity = out.capacity
    out.clear()
    assert (len(out), out.capacity, bytes(out)) == (0, capacity, b"")
    assert bytes(text.TextBuffer()) == b""
    with pytest.raises(RequestError):
        text.TextBuffer(-1)


def test_what_stands_in_front_of_a_bad_record_is_written() -> None:
    columns = build([Record(7, 0, None, b"a"), Record(8, 0, None, b"b")])
    out = text.TextBuffer()
    with pytest.raises(RequestError):
        text.render(replaced(columns, value_size=[1, 100]), text.template("%o=%s "), out)
    assert bytes(out) == b"7=a "


@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview, lambda b: np.frombuffer(b, np.uint8)])
def test_sources_may_be_any_buffer(wrap: Any) -> None:
    columns = build([Record(1, 2, b"k", b"v"), Record(1, 2, b"k", b"v")])
    sources = tuple(wrap(source) for source in columns.sources)
    assert bytes(text.render(dataclasses.replace(columns, sources=sources), text.template("%k%s"))) == b"kvkv"


def test_a_mapped_file_is_a_source() -> None:
    with mmap.mmap(-1, 4096) as mapped:
        mapped[4095:] = b"v"
        columns = dataclasses.replace(build([Record(1, 2, None, b"v")]), sources=(mapped,))
        columns = replaced(columns, value_place=[4095])
        assert bytes(text.render(columns, text.json_lines(("value",)))) == b'{"value":"v"}\n'
        assert text.find(columns.value_place, columns.value_size, columns.sources, b"v").tolist() == [True]
