"""Tests of inspect/search/patterns.py and inspect/search/regex.py. Regular expressions by Arrow's engine: the same
answers as Python's `re`, or none.
"""

import re
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pylogseg.errors import RequestError
from pylogseg.inspect.search.patterns import Pattern, regular_expression
from pylogseg.inspect.search.regex import in_re2, search

# Some have a meaning only beside others; what Python's `re` does not take is left out.
PIECES = [
    *(rb"a b K _ 9 - . ^ $ | ( ) (?: { } \d \D \w \W \s \S \b \B \n \. \$ \\ \x41 \xe9 \1 \A \Z".split()),
    *(rb"[ab] [^ab] [a-c9] [^\d\n] [\w-] []a] [a-] [K-a] [^-] [[:alpha:]] [a&&b]".split()),
    *(b"* + ? *? +? ?? {2} {1,} {0,2} {,2} {2}? *+ {x {1 (?i) (?=a) (?<!b) (?P<n> #".split()),
    *(b" ", b"\n", "\xe9".encode()),
]
VALUES = st.lists(st.sampled_from([*b"abABkK_ \n9-.{}\\", 0, 0xC3, 0xA9, 0xE9, 0xC9, 0xFF]), max_size=8).map(bytes)


def spans(values):
    """Columns of spans of some values, None among them."""
    data = b"".join(value or b"" for value in values)
    size = np.array([-1 if value is None else len(value) for value in values], np.int32)
    ends = np.cumsum(np.maximum(size, 0))
    return (ends - np.maximum(size, 0)).astype(np.int64), size, (data, b"")


@given(
    st.lists(st.sampled_from(PIECES), max_size=7).map(b"".join),
    st.lists(VALUES | st.none(), max_size=20),
    st.booleans(),
)
def test_the_same_answers_or_none(expression, values, ignore_case):
    warnings.simplefilter("ignore", FutureWarning)  # of nested sets
    try:
        pattern = re.compile(expression, re.IGNORECASE if ignore_case else 0)
    except re.error:
        return
    found = search(pattern, *spans(values))
    if found is not None:
        assert found.tolist() == [value is not None and pattern.search(value) is not None for value in values]


@pytest.mark.parametrize(
    ("expression", "by_column"),
    [
        (rb'"total":[0-9]{4,}', True),
        (b"^user-[0-9]+$", True),
        (rb"a|b$", True),
        (rb'{"id":\d+,"(name|note)":"[^"]*x', True),
        (b"a$b", False),
        (rb"\s\S[\sx]", True),
        (rb"(?i)(a+)+\Z", True),
        (rb"(\w+\s?)+$", True),
        (b"(?<!a)b", False),
        (b"[[:alpha:]]", False),
        (b"a{,3}", False),
        (b"a{999}{999}", False),
        ("é".encode(), False),
    ],
)
def test_which_expressions_go_by_column(expression, by_column):
    assert (in_re2(expression) is not None) == by_column


def test_both_ways_give_the_same(examples):
    """The same search, once in an expression that both know and once in one that only `re` does."""
    import pylogseg

    matched = 0
    for columns in (chunk.columns for chunk in pylogseg.read(examples).chunks()):
        for places in (("key",), ("value",), ("headers",), ("key", "value", "headers")):
            one = Pattern(regular_expression("[ko][0-9]|n$"), places).matches(columns)
            other = Pattern(regular_expression("(?=[ko])[ko][0-9]|n$"), places).matches(columns)
            assert one.tolist() == other.tolist()
            matched += int(one.sum())
    assert matched > 100


@pytest.mark.parametrize(
    "expression", [r"(?<!x)(a+)+b", r"(a+)+\1", r"(?=x)((a|b)+)*", r"(?<!x)(?:(?:a*)*)*b", "(?<!x)(a|a)*b"]
)
def test_what_python_alone_knows_and_would_try_for_ever_is_refused(expression):
    with pytest.raises(RequestError, match="might never end"):
        regular_expression(expression)


@pytest.mark.parametrize("expression", [r"(?<!x)(\d+,)+b", r"(?<!y)a{5}", r"(a|b)\1", r"^(?=.*x).*y"])
def test_what_python_alone_knows_is_searched(expression):
    assert regular_expression(expression).pattern == expression.encode()
