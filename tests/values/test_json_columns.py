"""Tests of values/schemas/columns.py, values/schemas/frames.py and values/typed_json.py. The kernel decodes usual JSON
values as pyarrow's reader does, and leaves all other values to that reader.
"""

from __future__ import annotations

import json
import math
import struct
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from helpers import json_shapes
from helpers.typed_values import placed
from hypothesis import given
from hypothesis import strategies as st

import pylogseg
from pylogseg._native import _json, _typed
from pylogseg.values.schemas.frames import Framed, Named
from pylogseg.values.schemas.schema import Schema
from pylogseg.values.typed_json import JsonColumns, JsonEngine

BAD = 99
FLAT = {"properties": {n: {"type": t} for n, t in zip("abcd", ("integer", "number", "string", "boolean"), strict=True)}}


def framed(raw: list[bytes | None], room: int = 1 << 24) -> Framed:
    place, size, sources = placed(raw)
    return Framed([Named("given")], np.zeros(len(raw), np.int32), place, size, sources, room=room)


def engine(schema: Any) -> JsonEngine:
    return JsonEngine(pylogseg.Schemas(), Schema(json.dumps(schema), "JSON"), 1, -BAD)


def outcome(made: JsonEngine, values: Framed) -> tuple[str, list[int], dict[int, str]] | str:
    """Everything that can be seen: values (the sign of zeros, too), types, statuses, reasons; or the refusal."""
    try:
        array, status, position, reasons = made.decode(values, np.zeros(len(values.size), np.int32), None)
    except OverflowError as error:
        return str(error)
    array.validate(full=True)
    assert not position.any()
    assert array.type == made.type
    return repr(array.to_pylist()), status.tolist(), reasons


def by_lines(made: JsonEngine) -> JsonEngine:
    """One that takes nothing itself."""
    made._columns.decode = lambda *_: None  # type: ignore[method-assign]
    return made


def taken(schema: Any, raw: list[bytes | None]) -> list[bool]:
    made = engine(schema)
    status = np.array([0 if each is not None else _typed.ABSENT for each in raw], np.uint8)
    found = made._columns.decode(framed(raw), status)
    assert found is not None
    return found[1].tolist()


@given(st.randoms(use_true_random=False), st.sampled_from([1 << 24, 1 << 24, 1 << 11, 300]))
def test_any_values_are_as_by_lines(rng: Random, room: int) -> None:
    schema = json_shapes.schema(rng)
    values = framed(json_shapes.values(rng, schema, rng.choice((1, 3, 40))), room)
    assert outcome(engine(schema), values) == outcome(by_lines(engine(schema)), values)


def test_what_is_compared_differs_where_a_kernel_errs() -> None:
    """The comparison finds a sign, a null, and a value that was taken and is none."""
    raw: list[bytes | None] = [b'{"b":-0.0,"c":""}', b'{"b":1.5}', b'{"b":"x"}']
    right = outcome(by_lines(engine(FLAT)), framed(raw))
    assert outcome(engine(FLAT), framed(raw)) == right
    wrongs = (
        ([0.0, 1.5, None], "", [True, True, False]),
        ([-0.0, 1.5, None], None, [True, True, False]),
        ([-0.0, 1.5, 2.0], "", [True] * 3),
    )
    for numbers, text, those in wrongs:
        made = engine(FLAT)
        rows = [{"b": number, "c": text if i == 0 else None} for i, number in enumerate(numbers)]
        array = pa.array(rows, made.type)
        made._columns.decode = lambda *_, array=array, those=those: (array, np.array(those))  # type: ignore[method-assign, misc]
        assert outcome(made, framed(raw)) != right


USUAL = [
    b'{"a":1,"b":2.5,"c":"x","d":true}', b'{"a": 2, "b": 3, "c": "y", "d": false}',
    b'{"d":null,"c":"\xc3\xbc","b":-0,"a":-5}', b"{}", b" null ", b'{"z":[1,{"y":"]"}],"a":3}',
    b'{"c":"\\u00fc\\n\\ud83d\\ude00\\u0000"}', b'{"b":0.30000000000000004}', b'{"b":12345678901234567e-27}',
    b'{"a":999999999999999999}', b'{"c":"a text of more than sixteen bytes"}', b"{ }",
]  # fmt: skip
UNUSUAL = [
    b'{"a":1,"a":2}', b'{"\\u0061":1}', b'{"a":1000000000000000000}', b'{"a":1.0}', b'{"c":"\\ud800"}',
    b'{"z":"\\ud800"}', b'{"z":1e400}', b'{"b":1e400}', b'{"b":1e300}', b'{"b":"x"}', b"[]", b'{"a":1}}',
    b'{"a":1', b'{"a":1 ', b'{"a":01}', b'{"c":"a\nb"}', b'{"c":"\xff"}', b'{"\xff":1}', b'{"d":tru}',
    b'{"d":falsy}', b'{"a":nul}', b'{"a":1,}', b"", b'{"a"1}', b'{"z":' + b"[" * 100 + b"]" * 100 + b"}",
    b'{"z":' + b"9" * 300 + b"}", b"\xef\xbb\xbf{}", b'{"a":-}', b'{"b":1.}',
]  # fmt: skip


def test_what_is_usual_is_taken_and_nothing_else() -> None:
    raw: list[bytes | None] = [*USUAL, *UNUSUAL, None]
    assert taken(FLAT, raw) == [True] * len(USUAL) + [False] * (len(UNUSUAL) + 1)
    for each in range(len(raw)):  # alone too: it ends where its buffer does
        assert taken(FLAT, raw[each : each + 1]) == [each < len(USUAL)]
    assert outcome(engine(FLAT), framed(raw)) == outcome(by_lines(engine(FLAT)), framed(raw))


def test_the_end_of_a_value_is_no_matter_of_what_stands_behind_it() -> None:
    """Numbers, words and strings that go on in the next value are not read on."""
    for kind, one, rest in (
        ("integer", b"12", b"34"),
        ("number", b"1.5", b"5"),
        ("string", b'"ab', b'c"'),
        ("boolean", b"tru", b"e"),
    ):
        raw: list[bytes | None] = [one, rest, b" " * 60]
        assert outcome(engine({"type": kind}), framed(raw)) == outcome(by_lines(engine({"type": kind})), framed(raw))
    assert taken({"type": "integer"}, [b"12", b"34", b" " * 60]) == [True, True, False]


@given(
    st.floats(allow_nan=False, allow_infinity=False),
    st.integers(0, 3),
    st.integers(-30, 30),
    st.integers(1, 10**19 - 1),
)
def test_numbers_are_the_nearest_doubles(number: float, form: int, power: int, digits: int) -> None:
    texts = [repr(number), f"{number:.17g}", f"{digits}e{power}", f"{digits / 1000:.3f}"]
    text = texts[form].encode()
    array, status, _, _ = engine({"type": "number"}).decode(framed([text, b"0"]), np.zeros(2, np.int32), None)
    assert status.tolist() == [0, 0]
    assert struct.pack("<d", array[0].as_py()) == struct.pack("<d", float(text))


def test_halfway_numbers_go_to_the_even_one() -> None:
    rng, texts = Random(5), list[str]()
    for _ in range(3000):
        shift = rng.randrange(10)
        middle = (rng.randrange(2**52, 2**53) * 2 + 1) << shift
        texts += [f"{middle + off}e0" for off in (-1, 0, 1)] + [  # without an exponent no double is equal to them
            f"{middle + off}e-{rng.randrange(28)}" for off in (-1, 0, 1)
        ]
    for k in range(1, 28):  # products and quotients that lie within a part in 2**64 of the middle
        five, base = 5**k, rng.randrange(2**52, 2**53) * 2 + 1
        texts += [f"{base * five >> s}e-{k}" for s in range(8)] + [
            f"{((base << 63) // five >> s) or 1}e{k}" for s in range(53, 64)
        ]
    raw: list[bytes | None] = [each.encode() for each in texts]
    array = engine({"type": "number"}).decode(framed(raw, 1 << 26), np.zeros(len(raw), np.int32), None)[0]
    assert array.to_pylist() == [float(each) for each in texts]
    known = [len(each.partition("e")[0]) <= 19 for each in texts]
    assert taken({"type": "number"}, raw) == known
    assert sum(known) > 10_000


def test_integers_of_every_length() -> None:
    numbers = [sign * (10**k + d) for k in range(19) for d in (-1, 0, 1) for sign in (1, -1)]
    raw: list[bytes | None] = [str(each).encode() for each in numbers]
    array = engine({"type": "integer"}).decode(framed(raw), np.zeros(len(raw), np.int32), None)[0]
    assert array.to_pylist() == numbers
    assert taken({"type": "integer"}, raw) == [abs(each) < 10**18 for each in numbers]


def test_too_little_room_is_left_to_lines() -> None:
    """What they may unfold to is counted before it is made, as for lines."""
    wide = {
        "type": "array",
        "items": {"type": "object", "properties": {f"f{i}": {"type": "number"} for i in range(99)}},
    }
    raw: list[bytes | None] = [b"[" + b",".join([b"{}"] * 1000) + b"]"]
    for count, message in ((1, _typed.TOO_LARGE), (2, None)):
        values = framed(raw * count, 1 << 20)
        made = engine(wide)
        assert made._columns.decode(values, np.zeros(count, np.uint8)) is None
        if message is None:
            assert outcome(made, values) == "the values unfold to more than 1048576 bytes: decode fewer at a time"
        else:
            assert outcome(made, values) == (repr([None]), [message], {})
    assert taken(wide, raw) == [True]


def test_tables_that_are_not_sound_are_refused() -> None:
    columns = JsonColumns(engine({"properties": {"a": {"type": "array", "items": {"type": "integer"}}}})._field)
    parts, nodes = columns.parts, columns._nodes
    place, size, sources = placed([b"{}"])
    status = taken_ = np.zeros(1, np.uint8)

    def run(
        rows: Any = parts.rows, part_nodes: Any = parts.nodes, names: Any = parts.names, given: Any = nodes
    ) -> None:
        _json.decode(place, size, sources, status, rows, part_nodes, names, given, 1 << 20, 9, 9, taken_)

    run()
    for where in np.ndindex(parts.rows.shape):
        for wrong in (-1, 99, 1 << 30):
            rows = parts.rows.copy()
            rows[where] = wrong
            if where[1] in (1, 2) and parts.rows[where[0], 0] not in (1, 2):
                continue  # what is in a number is no matter
            with pytest.raises(ValueError, match="not sound"):
                run(rows=rows)
    for at in range(len(parts.nodes)):
        for wrong in (-1, 99):
            moved = parts.nodes.copy()
            moved[at] = wrong
            with pytest.raises(ValueError, match="not sound"):
                run(part_nodes=moved)
    with pytest.raises(ValueError, match="not sound"):
        run(names=parts.names[:-1])
    with pytest.raises(ValueError, match="not sound"):
        run(part_nodes=parts.nodes[:-1])
    with pytest.raises(ValueError, match="differ in length"):
        _json.decode(
            place, size, sources, np.zeros(2, np.uint8), parts.rows, parts.nodes, parts.names, nodes, 1, 1, 1, taken_
        )


def test_large_numbers_of_values_share_buffers() -> None:
    """Ends and data are those of Arrow: a slice of the whole is what its values say."""
    rng = Random(1)
    rows = [{"a": i, "b": i / 7, "c": f"n-{rng.randrange(1000)}" * (i % 5), "d": i % 3 == 0} for i in range(20_000)]
    raw: list[bytes | None] = [json.dumps(row).encode() for row in rows]
    assert all(taken(FLAT, raw))
    array = engine(FLAT).decode(framed(raw), np.zeros(len(raw), np.int32), None)[0]
    assert array.to_pylist() == rows
    assert array.slice(7_001, 5).to_pylist() == rows[7_001:7_006]
    assert math.isclose(sum(array.field("b").to_pylist()), sum(row["b"] for row in rows))
