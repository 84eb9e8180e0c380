"""Schemas in JSON Schema at random, and values that have their types, nearly have them, or have not."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from helpers import mutations

_NAMES = [
    "id", "price", "a", "aa", "ab", "", "b\u00fc", 'q"\\', "x\n", "a name of more than sixteen bytes",
    "\U0001f600",
]  # fmt: skip
_TEXTS = [
    "", "a", "n-1", "fifteen bytes..", "sixteen bytes...", "seventeen bytes..", "\u00fc", "\U0001f600",
    'q"\\/\b\f\n\r\t', "\x7f", "\0", "{[]},:", "x" * 40, "\u2028", "e",
]  # fmt: skip
_INTEGERS = [0, 1, -1, 7, 42, 12345678, 123456789, -(10**17), 10**18 - 1, 10**18, 2**63 - 1, -(2**63), 2**63, 10**25]
_NUMBERS = [
    "0", "-0", "0.0", "-0.0", "1", "0.5", "-1.25", "1e5", "1E-5", "1.5e+3", "0.1", "0.30000000000000004",
    "1e22", "1e23", "9007199254740993", "9007199254740993.0", "123456789012345678901234567890", "1e308",
    "1e309", "1e-400", "4.9e-324", "2.2250738585072011e-308", "0e400", "1e400", "179769313486231580793e289",
    "0.000001234567", "8.442911973260991817129021e-309", "12345678901234567e-27", "1." + "0" * 300,
    "1" + "0" * 300,
]  # fmt: skip
#: What is no JSON, or no value of a type.
_WRONG = [
    "01", "1.", ".5", "+1", "1e", "NaN", "tru", "nul", "truex", '"\\x"', '"\\ud800"', '"\\udc00\\ud800"',
    '"\\ud83d\\ude00"', '"a\nb"', "[1,]", "{,}", '{"a":1,}', "[", "{", "}", "", "''", "-", "--1", '"',
    "\ufeff1", '{"a" 1}', "1 2",
]  # fmt: skip
_SPACES = ["", "", "", "", " ", " ", "\n", "\t \r\n"]


def schema(rng: Random, depth: int = 3) -> Any:
    """A schema of nested objects and lists, and of what has no type."""
    kind = rng.randrange(10 if depth else 6)
    if kind < 5:
        named = ("string", "integer", "number", "boolean", "null")[kind if kind < 4 or rng.random() < 0.2 else 2]
        return {"type": named}
    if kind == 5:
        return {} if rng.random() < 0.5 else {"type": ["string", "integer"]}
    if kind == 6:
        items = schema(rng, depth - 1)  # pyarrow's reader makes unsound arrays of lists of nothing but nulls
        return {"type": "array", "items": {"type": "boolean"} if items == {"type": "null"} else items}
    names = rng.sample(_NAMES, rng.randrange(1, 6))
    return {"type": "object", "properties": {name: schema(rng, depth - 1) for name in names}}


def value(rng: Random, of: Any, odd: float) -> str:
    """The text of a value of a schema; with the chance `odd` a part of it is something else."""
    if rng.random() < odd:
        return rng.choice(("null", "null", _anything(rng, 2), rng.choice(_WRONG), rng.choice(_NUMBERS)))
    kind = of.get("type")
    if kind == "string":
        return text(rng, rng.choice(_TEXTS))
    if kind == "integer":
        return str(
            rng.choice(_INTEGERS) if rng.random() < odd * 4 else rng.randrange(-(10 ** rng.randrange(1, 18)), 10**9)
        )
    if kind == "number":
        return number(rng)
    if kind == "boolean":
        return rng.choice(("true", "false"))
    if kind == "null":
        return "null"
    if "items" in of:
        return _joined(rng, "[]", [value(rng, of["items"], odd) for _ in range(rng.choice((0, 1, 2, 2, 5)))])
    if "properties" not in of:
        return _anything(rng, 3)
    members = [(name, value(rng, part, odd)) for name, part in of["properties"].items() if rng.random() > 0.1]
    if rng.random() < 0.2:
        rng.shuffle(members)
    if rng.random() < 0.15:
        members.insert(rng.randrange(len(members) + 1), (rng.choice((*_NAMES, "other")), _anything(rng, 2)))
    if members and rng.random() < 0.05:
        members.append(rng.choice(members))
    return _joined(rng, "{}", [_member(rng, name, each) for name, each in members])


def number(rng: Random) -> str:
    """Numbers as programs write them, near the borders of what is read fast, and the special ones."""
    kind = rng.randrange(6)
    if kind == 0:
        return rng.choice(_NUMBERS)
    if kind == 1:
        return repr(rng.uniform(-1000, 1000))
    if kind == 2:
        return f"{rng.randrange(10 ** rng.randrange(1, 22))}e{rng.randrange(-40, 40)}"
    if kind == 3:
        return f"{rng.randrange(10**9)}.{rng.randrange(10 ** rng.randrange(1, 14))}"
    if kind == 4:  # halfway between two doubles, or a little off
        return f"{(rng.randrange(2**52, 2**53) * 2 + 1) * 2 ** rng.randrange(0, 9) + rng.randrange(-1, 2)}"
    return str(rng.randrange(-(10**6), 10**6))


def text(rng: Random, of: str) -> str:
    """A string of JSON, with or without escapes."""
    plain = json.dumps(of, ensure_ascii=rng.random() < 0.3)
    return plain.replace("a", "\\u0061") if rng.random() < 0.05 else plain


def values(rng: Random, of: Any, count: int) -> list[bytes | None]:
    """Payloads: most are whole and usual, some odd, some damaged."""
    made: list[bytes | None] = []
    for _ in range(count):
        kind = rng.random()
        space = rng.choice(_SPACES)
        raw = (space + value(rng, of, 0.0 if kind < 0.6 else 0.08) + rng.choice(_SPACES)).encode(
            "utf-8", "surrogatepass"
        )
        if kind > 0.93:
            made.append(
                rng.choice((None, b"", b" ", b"null", b" null ", b"{}", b"[]", b"0", b"{}{}", b"\xff", b"nullx"))
            )
        else:
            made.append(mutations.damaged(rng, raw) if kind > 0.8 and raw else raw)
    return made


def _anything(rng: Random, depth: int) -> str:
    kind = rng.randrange(8 if depth else 6)
    if kind < 6:
        return rng.choice(("null", "true", "1.10", "-0", number(rng), text(rng, rng.choice(_TEXTS)), '"\\ud800"'))
    parts = [_anything(rng, depth - 1) for _ in range(rng.randrange(4))]
    if kind == 6:
        return _joined(rng, "[]", parts)
    return _joined(rng, "{}", [_member(rng, rng.choice(_NAMES), each) for each in parts])


def _member(rng: Random, name: str, of: str) -> str:
    return f"{text(rng, name)}{rng.choice(_SPACES)}:{rng.choice(_SPACES)}{of}"


def _joined(rng: Random, around: str, parts: list[str]) -> str:
    inner = f"{rng.choice(_SPACES)},{rng.choice(_SPACES)}".join(parts)
    return f"{around[0]}{rng.choice(_SPACES)}{inner}{rng.choice(_SPACES)}{around[1]}"
