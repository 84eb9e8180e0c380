"""The offsets of topics and of their mirrors, as runs of one difference: `diff` writes, and `groups` reads them."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import IO, Any

import numpy as np

from pylogseg.errors import RequestError

#: Offsets of records next to each other, inclusive, and the offset of the first one in the mirror. The end of a log is
#: a run too: of the offset at which it ends.
RUN = np.dtype([("first", "i8"), ("last", "i8"), ("target", "i8")])
COLUMNS = ("topic", "partition", "firstOffset", "lastOffset", "targetTopic", "targetPartition", "targetOffset")
#: Endings of a file's name, and its form.
SUFFIXES = (".csv", ".jsonl", ".json")


@dataclass
class MirrorRuns:
    """The runs of a partition, by offset."""

    name: str = ""  #: Of the partition.
    target: str = ""  #: Name of the mirror.
    runs: Any = field(default_factory=lambda: np.empty(0, RUN))

    def translate(self, offset: int) -> int | None:
        """Return the offset in the mirror of the record that a group reads next; None behind the end of the map."""
        at = int(np.searchsorted(self.runs["last"], offset))
        if at == len(self.runs):
            return None
        run = self.runs[at]
        return int(run["target"]) + max(0, offset - int(run["first"]))  # of a hole it is the next record

    def lines(self) -> Iterator[tuple[Any, ...]]:
        """Yield the lines of a file, in the order of `COLUMNS`."""
        (topic, _, number), (target, _, target_number) = (text.rpartition("-") for text in (self.name, self.target))
        for first, last, offset in self.runs.tolist():
            yield topic, int(number), first, last, target, int(target_number), offset


def check_map_name(path: str) -> None:
    """Raise RequestError for a name that says no form."""
    if not path.endswith(SUFFIXES):
        raise RequestError(f"{path}: a map of offsets is a .csv file, or a .jsonl file: choose one of these endings")


class MapWriter:
    """Writes a map, partition by partition; the file's name says in which form."""

    def __init__(self, file: IO[bytes], path: str) -> None:
        check_map_name(path)
        self._file, self._is_csv = file, path.endswith(".csv")
        self.runs = 0
        if self._is_csv:
            self._write([",".join(COLUMNS)])

    def add(self, runs: MirrorRuns) -> None:
        """Write the runs of a partition."""
        self.runs += len(runs.runs)
        if self._is_csv:
            self._write(",".join(map(str, line)) for line in runs.lines())
        else:
            self._write(json.dumps(dict(zip(COLUMNS, line, strict=True))) for line in runs.lines())

    def _write(self, lines: Iterable[str]) -> None:
        self._file.writelines(f"{line}\n".encode() for line in lines)


def read_map(path: str) -> dict[tuple[str, int], MirrorRuns]:
    """Read a map of offsets by topic and partition; RequestError for a file that is none."""
    check_map_name(path)
    runs: dict[tuple[str, int], list[tuple[int, int, int]]] = {}
    targets: dict[tuple[str, int], str] = {}
    try:
        with open(path, encoding="utf-8", newline="") as file:
            for number, row in enumerate(_rows_of(file, path), 1):
                try:
                    topic, partition, first, last, target, target_number, offset = (row[name] for name in COLUMNS)
                    key, to = (str(topic), int(partition)), f"{target}-{int(target_number)}"
                    run = int(first), int(last), int(offset)
                except (KeyError, TypeError, ValueError):
                    raise RequestError(f"{path}: row {number} is not one of a map of offsets") from None
                before = runs.setdefault(key, [])
                is_ascending = not before or run[0] > before[-1][1]
                if run[0] > run[1] or min(run) < 0 or not is_ascending or targets.setdefault(key, to) != to:
                    raise RequestError(f"{path}: row {number}: runs of {topic}-{partition} overlap, or contradict")
                before.append(run)
    except (OSError, ValueError) as error:  # also text that is no UTF-8 or no JSON
        raise RequestError(f"{path}: the map of offsets cannot be read: {error}") from error
    return {key: MirrorRuns(f"{key[0]}-{key[1]}", targets[key], np.array(rows, RUN)) for key, rows in runs.items()}


def _rows_of(file: IO[str], path: str) -> Iterator[Any]:
    if not path.endswith(".csv"):
        return map(json.loads, file)
    reader = csv.DictReader(file)
    if not set(COLUMNS) <= set(reader.fieldnames or ()):
        raise RequestError(f"{path}: no map of offsets: its first line has to name {', '.join(COLUMNS)}")
    return iter(reader)
