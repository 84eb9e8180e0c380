"""Words of pylogseg's SQL beyond duckdb's: keys and values as text and compared with it, and a column called `offset`.

duckdb's cast of a blob escapes quotes and all that is not ASCII, which no JSON survives; its cast of text to a blob
takes such escapes; and `offset` is a keyword.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from pylogseg.format.moments import unit_note

_TOKEN = re.compile(
    r"""(?P<space>\s+|--[^\n]*|/\*.*?\*/)
    |(?P<string>[eE]'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*'|(?P<fence>\$\w*\$).*?(?P=fence))
    |(?P<word>"(?:[^"]|"")*"|[^\W\d][\w$]*)
    |(?P<number>\d[\w.]*)
    |(?P<mark>::|->>|->|\|\||.)""",
    re.VERBOSE | re.DOTALL,
)
#: Columns of bytes, which are also the fields of a header.
_BYTES = frozenset(["key", "value"])
_COMPARING = frozenset("=<>!")
_TEXT_TYPES = frozenset(["varchar", "text", "string"])
#: What keys and values are made in arguments of functions that take all types; ``json_...`` takes JSON.
_WANTED = {
    **dict.fromkeys(["from_json", "from_json_strict"], "json"),
    **dict.fromkeys(["concat", "concat_ws", "string_agg", "listagg", "group_concat", "format", "printf"], "text"),
    **dict.fromkeys(["to_json", "json_array", "json_object", "json_quote", "json_valid"], "text"),
}
#: Aggregates of which the first argument is the result.
_AGGREGATES = frozenset(["min", "max", "first", "last", "any_value", "mode", "arg_min", "arg_max", "min_by", "max_by"])
#: Words before a parenthesis that opens an expression.
_NO_CALL = frozenset(
    ["and", "between", "by", "distinct", "else", "in", "not", "on", "or", "select", "then", "when", "where"]
)


#: Start, end and what stands there instead.
_Change = tuple[int, int, str]


class _Token(NamedTuple):
    kind: str
    text: str
    start: int
    end: int

    @property
    def name(self) -> str:
        """The token in lower case; a quoted name without its quotes."""
        name = self.text[1:-1].replace('""', '"') if self.text.startswith('"') else self.text
        return name.lower()


def _tokens(sql: str) -> list[_Token]:
    tokens = (_Token(match.lastgroup or "", match[0], match.start(), match.end()) for match in _TOKEN.finditer(sql))
    return [token for token in tokens if token.kind != "space"]


def words_of(sql: str) -> list[str]:
    """Return the words and quoted names of a statement, in lower case; strings and comments are left out."""
    return [token.name for token in _tokens(sql) if token.kind == "word"]


def with_text(sql: str) -> str:
    """Cast to text, and take JSON of keys and values, by functions that know bytes: see `Session`.

    >>> with_text("select value::varchar, cast(max(o.key) as text) from orders o where value->'a' is null")
    "select text(value), cast(max(text(o.key)) as text) from orders o where json(value)->'a' is null"
    >>> with_text("select json_extract(value, '$.a'), key || '!', (key)::varchar from orders")
    "select json_extract(json(value), '$.a'), text(key) || '!', text((key)) from orders"
    """
    tokens = _tokens(sql)
    changes = [*_casts(tokens), *_as_arguments(tokens)]
    return _apply_changes(sql, sorted(changes, key=lambda change: change[:2]))


def _casts(tokens: list[_Token]) -> Iterator[_Change]:
    """Make casts to text calls; for other types, the function makes duckdb's own cast."""
    partners = _partners(tokens)
    for i, token in enumerate(tokens):
        if token.text == "::" and i and (_is_text_type(tokens, i + 1) or _is_bytes_as_json(tokens, i)):
            first = _operand_start(tokens, i - 1, partners)
            if tokens[first].name in _AGGREGATES and tokens[first + 1].text == "(":  # duckdb has no macro of those
                continue
            if tokens[first].kind == "word" or tokens[first].text == "(":
                yield tokens[first].start, tokens[first].start, f"{_function_of(tokens[i + 1])}("
                yield token.start, tokens[i + 1].end, ")"
        elif token.name in ("cast", "try_cast") and i + 1 in partners:
            end = partners[i + 1]
            if end - 2 > i + 1 and _is_text_behind(tokens, end - 3) and tokens[i + 2].name not in _AGGREGATES:
                yield token.start, tokens[i + 1].end, "text("
                yield tokens[end - 3].end, tokens[end - 1].end, ""


def _as_arguments(tokens: list[_Token]) -> Iterator[_Change]:
    """Make keys and values text where duckdb would escape them: in `||` with text, and in functions that take all."""
    functions, partners = _functions(tokens), _partners(tokens)
    for i, token in enumerate(tokens):
        if token.kind != "word" or token.name not in _BYTES:
            continue
        first, following = _path_start(tokens, i), tokens[i + 1].text if i + 1 < len(tokens) else ""
        before = tokens[first - 1].text if first else ""
        if following == "->":
            wanted = "json"
        elif (following == "||" and not _is_bytes_at(tokens, i + 2)) or (
            before == "||" and not (first > 1 and tokens[first - 2].name in _BYTES)
        ):
            wanted = "text"
        elif following in (",", ")") and before in (",", "("):
            name = functions[first]
            if name in _AGGREGATES and before == "(" and _is_text_behind(tokens, partners.get(first - 1, i)):
                wanted = "text"
            else:
                wanted = _WANTED.get(name, "json" if name.startswith("json_") else "")
        else:
            wanted = ""
        if wanted:
            yield tokens[first].start, tokens[first].start, f"{wanted}("
            yield token.end, token.end, ")"


def _partners(tokens: list[_Token]) -> dict[int, int]:
    """Return for each parenthesis the number of its counterpart."""
    partners, opened = dict[int, int](), list[int]()
    for i, token in enumerate(tokens):
        if token.text == "(":
            opened.append(i)
        elif token.text == ")" and opened:
            partners[i] = opened.pop()
            partners[partners[i]] = i
    return partners


def _functions(tokens: list[_Token]) -> list[str]:
    """Return for each token the function whose arguments it is among; empty for none."""
    functions, opened = [], [""]
    for i, token in enumerate(tokens):
        if token.text == ")" and len(opened) > 1:
            opened.pop()
        functions.append(opened[-1])
        if token.text == "(":
            opened.append(tokens[i - 1].name if i and tokens[i - 1].kind == "word" else "")
    return functions


def _operand_start(tokens: list[_Token], last: int, partners: dict[int, int]) -> int:
    """Return the first token of a path, a call or an expression in parentheses, of which `last` is the last."""
    if tokens[last].text == ")":
        opening = partners.get(last, last)
        is_call = opening > 0 and tokens[opening - 1].kind == "word" and tokens[opening - 1].name not in _NO_CALL
        return _path_start(tokens, opening - 1) if is_call else opening
    return _path_start(tokens, last)


def _is_text_behind(tokens: list[_Token], last: int) -> bool:
    """Check whether the expression that ends with a token is cast to text."""
    return last + 1 < len(tokens) and tokens[last + 1].name in ("::", "as") and _is_text_type(tokens, last + 2)


def _function_of(kind: _Token) -> str:
    return "json" if kind.name == "json" else "text"


def _is_bytes_as_json(tokens: list[_Token], i: int) -> bool:
    return i + 1 < len(tokens) and tokens[i + 1].name == "json" and tokens[i - 1].name in _BYTES


def _is_bytes_at(tokens: list[_Token], i: int) -> bool:
    """Check whether a path that begins with a token leads to bytes."""
    while i + 2 < len(tokens) and tokens[i + 1].text == ".":
        i += 2
    return i < len(tokens) and tokens[i].kind == "word" and tokens[i].name in _BYTES


def with_bytes(sql: str) -> str:
    r"""Compare keys and values with literals as they are typed.

    duckdb would take a backslash as an escape of a byte, and refuse what is not ASCII.

    >>> with_bytes(r"select 1 from orders o where o.key = 'ключ' or key in ('a', 'a\b')")
    "select 1 from orders o where o.key = same_kind(o.key, 'ключ') or key in ('a', same_kind(key, 'a\\b'))"
    """
    tokens = _tokens(sql)
    changes: list[tuple[int, int, str]] = []
    for i, token in enumerate(tokens):
        if token.kind != "word" or token.name not in _BYTES:
            continue
        first = _path_start(tokens, i)
        path = sql[tokens[first].start : token.end]
        is_whole = i + 1 >= len(tokens) or tokens[i + 1].text not in ("::", "->", "->>", "[", "(")
        before = _literals_before(tokens, first, "string") if is_whole else []
        for j in (*before, *_literals_behind(tokens, i + 1, "string")):
            literal = tokens[j].text
            if "\\" in literal or not literal.isascii():
                changes.append((tokens[j].start, tokens[j].end, f"same_kind({path}, {literal})"))
    return _apply_changes(sql, sorted(changes))


def _literals_before(tokens: list[_Token], first: int, kind: str) -> list[int]:
    """Return the literal of a kind that stands before a comparison, and that before a token; if any."""
    i = first - 1
    while i >= 0 and tokens[i].text in _COMPARING:
        i -= 1
    return [i] if 0 <= i < first - 1 and tokens[i].kind == kind else []


def _literals_behind(tokens: list[_Token], i: int, kind: str) -> list[int]:
    """Return the literals of a kind on the right side of a comparison, from a token on."""
    names = [token.name for token in tokens[i : i + 4]]
    if names[:4] == ["is", "not", "distinct", "from"]:
        i += 4
    elif names[:3] == ["is", "distinct", "from"]:
        i += 3
    elif tokens[i : i + 1] and tokens[i].text in _COMPARING:
        while i < len(tokens) and tokens[i].text in _COMPARING:
            i += 1
    else:
        i += names[:1] == ["not"]
        word = tokens[i].name if i < len(tokens) else ""
        if word == "between":
            is_range = i + 3 < len(tokens) and tokens[i + 2].name == "and"
            return [j for j in (i + 1, i + 3) if is_range and tokens[j].kind == kind]
        end = next((j for j in range(i, len(tokens)) if tokens[j].text == ")"), i)
        return [j for j in range(i + 2, end) if tokens[j].kind == kind] if word == "in" else []
    is_cast = i + 1 < len(tokens) and tokens[i + 1].text == "::"
    return [i] if i < len(tokens) and tokens[i].kind == kind and not is_cast else []


#: Functions that take a time as a number, or give one, with its unit.
_TIMES = {
    **{"to_timestamp": "seconds", "epoch": "seconds"},
    **dict.fromkeys(["epoch_ms", "make_timestamp_ms"], "milliseconds"),
    **dict.fromkeys(["epoch_us", "make_timestamp"], "microseconds"),
    **dict.fromkeys(["epoch_ns", "make_timestamp_ns"], "nanoseconds"),
}


def time_notes(sql: str) -> list[str]:
    """Return notes about numbers for times that are probably in another unit than their function's.

    >>> [note.partition(",")[0] for note in time_notes("select 1 where epoch_ms(timestamp) > 1700000000")]
    ['epoch_ms: 1700000000 is milliseconds']
    """
    tokens = _tokens(sql)
    partners, notes = _partners(tokens), list[str]()
    for i, token in enumerate(tokens):
        unit = _TIMES.get(token.name) if token.kind == "word" else None
        if unit is None or i + 1 not in partners:
            continue
        end = partners[i + 1]
        literals = [i + 2] if end == i + 3 else []
        literals += [*_literals_before(tokens, i, "number"), *_literals_behind(tokens, end + 1, "number")]
        for j in literals:
            digits = tokens[j].text.replace("_", "")
            note = unit_note(int(digits), unit) if digits.isdecimal() else None
            notes += [] if note is None else [f"{token.name}: {note}"]
    return list(dict.fromkeys(notes))


def _path_start(tokens: list[_Token], i: int) -> int:
    """Return the index of the first token of ``a.b[1].c``, of which `i` is the last."""
    while i >= 2 and tokens[i - 1].text == ".":
        i -= 2
        if tokens[i].text == "]":
            depth = 0
            while i > 0:
                depth += (tokens[i].text == "]") - (tokens[i].text == "[")
                i -= 1
                if not depth:
                    break
    return i


def _is_text_type(tokens: list[_Token], i: int) -> bool:
    return i < len(tokens) and tokens[i].name in _TEXT_TYPES and [t.text for t in tokens[i + 1 : i + 2]] not in (
        ["("], ["["],
    )  # fmt: skip


def with_offset(sql: str) -> str:
    """Quote the column `offset` wherever SQL's own clause of that name cannot be meant.

    >>> with_offset("select key from orders where offset >= 5 order by offset limit 2 offset 1")
    'select key from orders where "offset" >= 5 order by "offset" limit 2 offset 1'
    """
    tokens = _tokens(sql)
    changes = []
    for i, token in enumerate(tokens):
        if token.text.lower() != "offset" or (i and tokens[i - 1].text == "."):
            continue
        if not _is_clause(tokens, i):
            changes.append((token.start, token.end, '"offset"'))
    return _apply_changes(sql, changes)


def has_offset_clause(sql: str) -> bool:
    """Check whether rows are skipped with SQL's clause `offset`."""
    tokens = _tokens(sql)
    return any(token.text.lower() == "offset" and _is_clause(tokens, i) for i, token in enumerate(tokens))


def stated_limit(sql: str) -> str:
    """Return the number of the only limit of a statement; empty if there are more, or it is no number.

    >>> stated_limit("select key from orders limit 3"), stated_limit("from (from orders limit 5) limit 3")
    ('3', '')
    """
    tokens = _tokens(sql)
    limits = [after.text for token, after in pairwise(tokens) if token.text.lower() == "limit"]
    return limits[0] if len(limits) == 1 else ""


def _is_clause(tokens: list[_Token], i: int) -> bool:
    return i + 1 < len(tokens) and (tokens[i + 1].kind == "number" or tokens[i + 1].text in ("(", "?", "$"))


def _apply_changes(sql: str, changes: list[tuple[int, int, str]]) -> str:
    for start, end, text in reversed(changes):
        sql = sql[:start] + text + sql[end:]
    return sql
