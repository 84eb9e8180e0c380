"""The footer of a file that `lake` wrote: the range of offsets of each partition, and the number of its rows.

Row groups have rows of several partitions, whose statistics tell neither. `audit --quick` counts by this.
"""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa

#: Its name among the metadata of a file.
CONTENTS = "pylogseg.contents"
#: By topic and partition: rows, first offset, last offset.
Contents = dict[tuple[str, int], tuple[int, int, int]]


def add_contents(contents: Contents, rows: pa.Table) -> None:
    """Add some rows, with the columns ``topic``, ``partition`` and ``offset``."""
    topic = rows.column("topic").combine_chunks().dictionary_encode()
    code, partition, offset = (np.asarray(column) for column in (topic.indices, rows["partition"], rows["offset"]))
    # Rows come by partition, so there are few stretches.
    differs = (code[1:] != code[:-1]) | (partition[1:] != partition[:-1])
    starts = np.append(0, np.flatnonzero(differs) + 1)
    least, most = np.minimum.reduceat(offset, starts), np.maximum.reduceat(offset, starts)
    counts = np.diff(np.append(starts, len(offset)))
    names = topic.dictionary.to_pylist()
    for at, first, last, count in zip(*(column.tolist() for column in (starts, least, most, counts)), strict=True):
        key = names[code[at]], int(partition[at])
        had = contents.get(key, (0, first, last))
        contents[key] = had[0] + count, min(had[1], first), max(had[2], last)


def contents_text(contents: Contents) -> str:
    """Return the contents as JSON: a list for each partition."""
    return json.dumps([[*key, *of] for key, of in sorted(contents.items())], separators=(",", ":"))


def contents_of(metadata: dict[bytes, bytes] | None, rows: int) -> list[tuple[str, int, int, int, int]] | None:
    """Return topic, partition, rows, first and last offset, of a file with so many rows; None if it says none.

    A file whose rows another program has changed may have kept it, and then has another number of rows.
    """
    try:
        text = (metadata or {})[CONTENTS.encode()]
        entries = [
            (str(topic), int(partition), int(count), int(first), int(last))
            for topic, partition, count, first, last in json.loads(text)
        ]
    except (KeyError, ValueError, TypeError):
        return None
    return entries if sum(entry[2] for entry in entries) == rows else None
