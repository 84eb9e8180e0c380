"""Tests of tables/opening.py and tables/sql/answers.py. Names that records have in common, in dictionaries for duckdb:
nothing else about an answer changes.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import pylogseg
from pylogseg.tables.opening import openers
from pylogseg.tables.sql import answers

pytest.importorskip("duckdb")

from pylogseg.tables.sql.session import Session

#: Few letters, so that neighbours are often the same.
_STRINGS = st.lists(st.none() | st.text("aä", max_size=2), max_size=6) | st.lists(st.just("orders"), max_size=9)


@given(_STRINGS, st.integers(0, 3), st.integers(0, 9))
@example(["ab", "ab", "ba"], 0, 3)
@example(["a", "aa", "aaa"], 0, 3)
@example(["", ""], 0, 2)
@example(["x", "orders", "orders", "y"], 1, 2)
def test_strings_stay_what_they_are(names: list[str | None], first: int, count: int) -> None:
    """Whatever they are, and also a part of an array."""
    column = pa.array(names, pa.string()).slice(first, count)
    batch = pa.RecordBatch.from_arrays([column, pa.nulls(len(column))], ["topic", "key"])
    declared = pa.schema([("topic", pa.dictionary(pa.int32(), pa.string())), ("key", pa.null())])
    found = answers.as_declared(batch, declared)
    found.validate(full=True)
    assert found.schema == declared
    assert found.column("topic").to_pylist() == column.to_pylist()
    assert len(found.column("topic").dictionary) == len({*column.to_pylist()} - {None})


_QUERIES = (
    "select distinct topic, segment, typeof(topic) from records order by all",
    "select topic, count(*), max(\"offset\") from records where topic in ('legacy', 'txn-a') group by 1 order by 1",
    "select segment from records where segment > '00000000000000000100.log' and topic <> 'txn-a' order by all",
    "select upper(topic) || segment as name from records where topic like 'l%' order by all",
    "select count(*) from records r join partitions p on r.topic = p.topic and r.partition = p.partition",
    "select topic, codec, count(*) from batches group by all order by all",
    "describe records",
)


@pytest.mark.skipif(not answers._HAS_FILTERS, reason="this pyarrow gets strings")
@pytest.mark.parametrize("query", _QUERIES)
def test_answers_and_plans_are_those_of_strings(query: str, examples: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows, types, and what is read for them."""
    found = []
    for has_dictionaries in (True, False):
        monkeypatch.setattr(answers, "_HAS_FILTERS", has_dictionaries)
        with Session(openers(pylogseg.open_dir(examples), None), jobs=1) as session:
            plan = session.explain(query)
            found += [(answer.schema, [*answer.batches], plan) for answer in session.run(query)]
    assert found[0] == found[1]
    assert any(batch.num_rows for batch in found[0][1])
