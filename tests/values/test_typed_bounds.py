"""Tests of values/decoding.py. What typed values unfold to is bounded by their bytes, whatever their schema makes of
them.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from helpers.typed_values import varint

import pylogseg
from pylogseg._native import _typed
from pylogseg.errors import RequestError
from pylogseg.values.decoding import decode_column
from pylogseg.values.schemas.avro_schema import parse_avro
from pylogseg.values.schemas.proto_schema import parse_proto

TESTS = Path(__file__).parents[1]


@pytest.mark.skipif(sys.platform != "linux", reason="the peak of a process's memory is read from /proc")
def test_values_take_twenty_times_their_bytes() -> None:
    """Every kind x rows and items x width, in one process, each with a limit of address space."""
    command = [sys.executable, str(TESTS / "helpers" / "unfolding.py")]
    paths = [str(Path(pylogseg.__file__).parents[1]), str(TESTS)]
    done = subprocess.run(
        command, env={"PYTHONPATH": ":".join(paths)}, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]
    cases = [line.split(";") for line in done.stdout.splitlines()]
    assert len(cases) == 25
    for name, size, peak, rows, undecoded in cases:
        assert int(peak) <= 20 * int(size) + (64 << 20), name
        assert int(rows) >= 1, name
        is_one = name.endswith("one") or (" items" in name)
        assert int(undecoded) == is_one, name


def test_too_many_values_at_once_are_refused() -> None:
    nulls = pa.array([b"\0"] * 40_000, pa.binary())
    schema = '["null", {"type": "fixed", "name": "F", "size": 1024}]'
    with pytest.raises(RequestError, match=r"unfold to more than 17417216 bytes: decode fewer at a time"):
        decode_column(nulls, schema, frame="plain")
    assert decode_column(nulls[:1000], schema, frame="plain").null_count == 1000


def test_a_value_that_is_too_large_says_so() -> None:
    wide = ", ".join(f'{{"name": "f{i}", "type": "double"}}' for i in range(1000))
    schema = f'{{"type": "array", "items": ["null", {{"type": "record", "name": "W", "fields": [{wide}]}}]}}'
    values = pa.array([varint(3) + bytes(4), varint(100_000) + bytes(100_001)], pa.binary())
    with pytest.raises(RequestError):
        decode_column(values, schema, frame="plain")
    found = decode_column(values[1:], schema, frame="plain", on_undecoded="null")
    assert found.to_pylist() == [None]
    with pytest.raises(pylogseg.CorruptionError, match="it unfolds to more bytes than it may take"):
        decode_column(values[1:], schema, frame="plain")


def test_long_lists_of_short_numbers_are_decoded() -> None:
    count = 6_000_000
    made = decode_column(
        pa.array([varint(count) + b"\2" * count + b"\0"]), '{"type": "array", "items": "long"}', frame="plain"
    )
    assert (np.asarray(made.flatten()) == 1).all()
    assert len(made.flatten()) == count


def test_a_decimal_of_a_huge_fixed_is_no_huge_number() -> None:
    fixed = {"type": "fixed", "name": "F", "size": (1 << 31) - 1, "logicalType": "decimal", "precision": 5}
    assert parse_avro(str(fixed).replace("'", '"')).logical == "decimal"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("message A {" + "oneof a {" * 2000 + "}" * 2001, "a oneof in a oneof"),
        ("message A {" * 2000 + "}" * 2000, "nested too deeply"),
    ],
)
def test_nested_schemas_are_refused(text: str, error: str) -> None:
    with pytest.raises(RequestError, match=error):
        parse_proto(text)


def test_json_that_is_nested_deeply_is_refused_in_our_words(tmp_path: Path) -> None:
    deep = b"[" * 100_000 + b"]" * 100_000  # which Python from 3.12 on refuses, too
    plain, nested = tmp_path / "plain.json", tmp_path / "nested.json"
    plain.write_text('{"type": "object", "properties": {"a": {"type": "integer"}}}')
    nested.write_text('{"not": ' * 100_000 + "{}" + "}" * 100_000)
    values = pa.array([b'{"a": ' + deep + b"}"])
    with pytest.raises(pylogseg.CorruptionError, match="no JSON: nested too deeply"):
        decode_column(values, plain, frame="plain")
    with pytest.raises(RequestError, match="is not a JSON Schema: nested too deeply"):
        decode_column(values, nested, frame="plain")


def test_a_chain_of_imports_is_followed() -> None:
    chain = {f"f{i}.proto": f'import "f{i + 1}.proto"; message M{i} {{ M{i + 1} m = 1; }}' for i in range(2000)}
    made = parse_proto('import "f0.proto"; message A { M0 m = 1; }', chain | {"f2000.proto": "message M2000 {}"})
    assert len(made.messages) == 2002
    with pytest.raises(RequestError, match="was not found"):
        parse_proto('import "f0.proto";', {"f0.proto": 'import "missing.proto";'})


def test_equal_keys_are_seen_beside_others() -> None:
    """As pairs of few entries, else perhaps; places that do not fit are not followed."""
    data = np.frombuffer(b"abcab", np.uint8)
    offsets = np.array([0, 1, 2, 3, 4, 5], np.int32)

    def asked(*ends: int, places: npt.NDArray[np.int32] = offsets) -> bool:
        return _typed.may_repeat(np.array(ends, np.int32), places, data)

    assert [asked(0, 3, 5), asked(0, 1, 1, 4), asked(0, 4), asked(0, 5), asked(0)] == [False, False, True, True, False]
    odd, many = [np.array(each, np.int32) for each in ([0, 9, 10], [3, 2])], np.zeros(10, np.int32)
    assert [asked(0, 6), asked(0, -1), asked(2, 1), asked(0, 2, places=odd[0])] == [True] * 4
    assert [asked(0, 1, places=odd[1]), asked(0, 9, places=many)] == [True] * 2
