"""Tests of the whole package. Plain words: counts of wordings and names that a stranger has to read
twice only go down.

A new sentence or name that raises a count is rewritten. A commit that lowers one lowers its ceiling here.
"""

from __future__ import annotations

from collections.abc import Callable, Sized

import pytest
from helpers import words

CEILINGS: dict[Callable[[], Sized], int] = {
    words.inverted: 0,
    words.doubly_relative: 0,
    words.free_relatives: 0,
    words.agentless: 0,
    words.vague_locals: 318,
    words.participle_functions: 5,
    words.lonely_modules: 15,
    words.repeated_names: 0,
}


#: Words of all pages: more of them are read by nobody.
WORDS_OF_PAGES = 45_000


def test_pages_are_short() -> None:
    counts = words.in_pages()
    listing = "\n".join(f"{count:6} {page}" for page, count in sorted(counts.items()))
    assert sum(counts.values()) <= WORDS_OF_PAGES, f"{sum(counts.values())}, more than {WORDS_OF_PAGES}:\n{listing}"


@pytest.mark.parametrize("count", CEILINGS, ids=lambda count: count.__name__)
def test_a_count_only_goes_down(count: Callable[[], Sized]) -> None:
    places = count()
    listing = "\n".join(map(str, places)) if isinstance(places, list) else str(places)
    assert len(places) <= CEILINGS[count], f"{len(places)}, more than {CEILINGS[count]}:\n{listing}"
