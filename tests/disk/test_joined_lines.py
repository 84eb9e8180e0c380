"""Tests of disk/notes.py. Tests of disk/notes.py: texts that say the same of many partitions become one line, with the
first names.
"""

from __future__ import annotations

import pytest

from pylogseg.disk.notes import joined_lines

IDS = ("svyuH3a_Q1CtTqgVTr9Rsw", "Ccfpheh7S1eNV0_5T2LTSQ")


@pytest.mark.parametrize(
    ("texts", "line"),
    [
        ([f"a-{n}: two bytes" for n in range(3)], "3 partitions, a-0, a-1, a-2: two bytes"),
        ([f"a-{n}: no id" for n in range(9)], "9 partitions, a-0, a-1, a-2, a-3, a-4 and 4 more: no id"),
        (["a: no id", "b-c: no id"], "2 topics, a, b-c: no id"),
        (
            [f"topic {name} has the id {own}: why" for name, own in zip(("a", "b-c"), IDS, strict=True)],
            f"2 topics, a, b-c; the first: topic a has the id {IDS[0]}: why",
        ),
        (
            [f"/d/a-{n}/partition.metadata: 0 bytes: a broker stops" for n in range(2)],
            "2 partitions, a-0, a-1; the first: /d/a-0/partition.metadata: 0 bytes: a broker stops",
        ),
        (
            [f"the files of /d/a-{n} were not there" for n in range(2)],
            "2 partitions, a-0, a-1; the first: the files of /d/a-0 were not there",
        ),
    ],
)
def test_texts_about_many_are_one_line(texts: list[str], line: str) -> None:
    assert joined_lines(texts, ["a", "b-c"]) == [line]


@pytest.mark.parametrize(
    "texts",
    [
        ["topic a has the id svyuH3a_Q1CtTqgVTr9Rsw: why"],
        ["/d/a-0/partition.metadata: 0 bytes"],
        ["settings: /d/server.properties", "settings: /d/other.properties"],
        ["a-0: offsets 3 to 4", "a-1: offsets 5 to 6"],
        ["topic unknown has no id", "topic other has no id"],
        ["a-0: the log is that of /d/1", "a-1: the log is that of /d/2"],
        ["a-0: /d/a-0/1.log is lost", "a-0: /d/a-0/2.log is lost"],
    ],
)
def test_other_texts_stay(texts: list[str]) -> None:
    assert joined_lines(texts, ["a", "b-c"]) == texts
