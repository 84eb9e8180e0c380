"""What pylogseg's SQL has beyond duckdb's: keys and values as text and compared with it, and a column called `offset`.

duckdb's cast of a blob escapes quotes and all that is not ASCII, which no JSON survives; its cast of text to a blob
takes such escapes; and `offset` is a keyword.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_TOKEN = re.compile(
    r"""(?P<space>\s+|--[^\n]*|/\*.*?\*/)
    |(?P<string>[eE]'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*'|(?P<fence>\$\w*\$).*?(?P=fence))
    |(?P<word>"(?:[^"]|"")*"|[^\W\d][\w$]*)
    |(?P<number>\d[\w.]*)
    |(?P<mark>::|->>|->|.)""",
    re.VERBOSE | re.DOTALL,
)
#: Columns of bytes, which are also the fields of a header.
_BYTES = frozenset(["key", "value"])
_COMPARING = frozenset("=<>!")
_TEXT_TYPES = frozenset(["varchar", "text", "string"])


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
    found = (_Token(match.lastgroup or "", match[0], match.start(), match.end()) for match in _TOKEN.finditer(sql))
    return [token for token in found if token.kind != "space"]


def words_of(sql: str) -> list[str]:
    """Return the words and quoted names of a statement, in lower case; strings and comments are left out."""
    return [token.name for token in _tokens(sql) if token.kind == "word"]


def with_text(sql: str) -> str:
    """Cast keys and values to text as they are, and take `->` of them as JSON.

    >>> with_text("select value::varchar, cast(o.key as text) from orders o where value->'a' is null")
    "select text(value), text(o.key) from orders o where json(value)->'a' is null"
    """
    tokens = _tokens(sql)
    changes: list[tuple[int, int, str]] = []
    for i, token in enumerate(tokens):
        following = tokens[i + 1 : i + 3]
        if token.kind != "word" or token.name not in _BYTES or not following:
            continue
        first = _path_start(tokens, i)
        path = sql[tokens[first].start : token.end]
        if following[0].text == "->":
            changes.append((tokens[first].start, token.end, f"json({path})"))
        elif following[0].text == "::" and _is_text_type(tokens, i + 2):
            changes.append((tokens[first].start, tokens[i + 2].end, f"text({path})"))
        elif following[0].name == "as" and _is_text_type(tokens, i + 2) and _is_cast(tokens, first, i + 3):
            changes.append((tokens[first - 2].start, tokens[i + 3].end, f"text({path})"))
    return _changed(sql, changes)


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
        for j in (*_compared_before(tokens, first, i), *_compared_behind(tokens, i)):
            literal = tokens[j].text
            if "\\" in literal or not literal.isascii():
                changes.append((tokens[j].start, tokens[j].end, f"same_kind({path}, {literal})"))
    return _changed(sql, sorted(changes))


def _compared_before(tokens: list[_Token], first: int, last: int) -> list[int]:
    """Return the literal that stands before a path and a comparison, if any."""
    i = first - 1
    while i >= 0 and tokens[i].text in _COMPARING:
        i -= 1
    is_whole = last + 1 >= len(tokens) or tokens[last + 1].text not in ("::", "->", "->>", "[", "(")
    return [i] if 0 <= i < first - 1 and tokens[i].kind == "string" and is_whole else []


def _compared_behind(tokens: list[_Token], last: int) -> list[int]:
    """Return the literals that a path is compared with, by what stands behind it."""
    i = last + 1
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
            return [j for j in (i + 1, i + 3) if is_range and tokens[j].kind == "string"]
        end = next((j for j in range(i, len(tokens)) if tokens[j].text == ")"), i)
        return [j for j in range(i + 2, end) if tokens[j].kind == "string"] if word == "in" else []
    is_cast = i + 1 < len(tokens) and tokens[i + 1].text == "::"
    return [i] if i < len(tokens) and tokens[i].kind == "string" and not is_cast else []


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


def _is_cast(tokens: list[_Token], first: int, end: int) -> bool:
    """Check whether a path stands in ``cast(PATH as TYPE)``, of which `end` is the last token."""
    opened = first >= 2 and tokens[first - 1].text == "(" and tokens[first - 2].name in ("cast", "try_cast")
    return opened and end < len(tokens) and tokens[end].text == ")"


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
    return _changed(sql, changes)


def has_offset_clause(sql: str) -> bool:
    """Check whether rows are passed by with SQL's clause `offset`."""
    tokens = _tokens(sql)
    return any(token.text.lower() == "offset" and _is_clause(tokens, i) for i, token in enumerate(tokens))


def _is_clause(tokens: list[_Token], i: int) -> bool:
    return i + 1 < len(tokens) and (tokens[i + 1].kind == "number" or tokens[i + 1].text in ("(", "?", "$"))


def _changed(sql: str, changes: list[tuple[int, int, str]]) -> str:
    for start, end, text in reversed(changes):
        sql = sql[:start] + text + sql[end:]
    return sql
