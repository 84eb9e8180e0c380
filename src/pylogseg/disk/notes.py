"""Notes: problems that readers of a disk go on behind, each with the partitions that it is about."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from pylogseg.errors import CorruptionError, StorageError
from pylogseg.format.names import parse_partition_folder
from pylogseg.format.words import names_text

#: Paths and ids, by which texts about several partitions may differ.
_PATH = re.compile(r"\S*/\S*|(?<![\w-])[\w-]{22}(?![\w-])")
_TOPIC = re.compile(r"topic (\S+) ")


@dataclass(frozen=True)
class Note:
    """A problem, without the names of the place and of the partition.

    Without a topic it is about the place: about every read of it (`is_of_all`), or only about reads that name no topic.
    """

    place: str  #: The log directory, or the URL of a tier.
    fact: str
    topic: str = ""
    partition: int = -1  #: -1: any partition of the topic.
    is_of_all: bool = False
    error: CorruptionError | StorageError | None = None  #: Why it is not known where the logs of the place start.
    is_whole: bool = False  #: True if the fact is a sentence that has the name.

    @property
    def text(self) -> str:
        """The note as a line."""
        if self.error is not None or self.is_whole:  # it names the file, or the partition
            return self.fact
        return ": ".join(part for part in (self.place, self.name, self.fact) if part)

    @property
    def name(self) -> str:
        """The name of the partition, or of the topic."""
        return f"{self.topic}-{self.partition}" if self.partition >= 0 else self.topic

    def is_about(self, takes: Callable[[str, int], bool], paths: Iterable[str], topics: Iterable[str]) -> bool:
        """True if it is about chosen partitions, which have these paths, and are of these topics."""
        if self.error is not None:
            return any(os.path.dirname(path).rstrip("!") == self.place for path in paths)
        if not self.topic:
            return self.is_of_all
        return self.topic in topics if self.partition < 0 else takes(self.topic, self.partition)


def without_paths(text: str, name: str = "") -> str:
    """Return a text without ids and paths; with a name, without the paths of that partition."""

    def drop_own_path(match: re.Match[str]) -> str:
        is_own = not name or "/" not in match[0] or name in match[0].rstrip(":;,").split("/")
        return "" if is_own else match[0]

    return _PATH.sub(drop_own_path, text)


def note_lines(notes: Iterable[Note], *, ignores_paths: bool = False, ignores_own_paths: bool = False) -> list[str]:
    """Return a line for each fact; one about several partitions names the first of them, and their number.

    With `ignores_paths`, facts that differ only in paths are one, and the line has that of the first partition; with
    `ignores_own_paths` if these are of the partitions.
    """
    alike: dict[tuple[str, str], list[Note]] = {}
    for note in notes:
        is_joined = bool(note.topic) and note.error is None
        fact = note.fact.replace(f"topic {note.topic} ", "") if note.is_whole else note.fact
        if ignores_paths or ignores_own_paths:
            fact = without_paths(fact, note.name if ignores_own_paths else "")
        alike.setdefault((note.place, fact if is_joined else note.text), []).append(note)
    return [line for some in alike.values() for line in _join_notes(some)]


def _join_notes(notes: Sequence[Note]) -> list[str]:
    first, names = notes[0], list(dict.fromkeys(note.name for note in notes))
    if len(names) < 2:
        return list(dict.fromkeys(note.text for note in notes))
    what = "topics" if all(note.partition < 0 for note in notes) else "partitions"
    mark = ": " if len({note.fact for note in notes}) == 1 and not first.is_whole else "; the first: "
    return [Note(first.place, f"{len(names):,} {what}, {names_text(names)}{mark}{first.fact}").text]


def as_notes(texts: Iterable[str], place: str = "", topics: Iterable[str] = ()) -> list[Note]:
    """Return texts as notes: a text that begins with ``orders-3:``, or with one of the topics, is about that topic."""
    notes, named = list[Note](), set(topics)
    for text in texts:
        name, mark, fact = text.partition(": ")
        folder = parse_partition_folder(name) if mark else None
        if folder is not None and not folder.state:
            notes.append(Note(place, fact, folder.topic, folder.partition))
        elif mark and name in named:
            notes.append(Note(place, fact, name))
        else:
            notes.append(Note(place, text, is_of_all=True))
    return notes


def joined_lines(texts: Iterable[str], topics: Iterable[str] = ()) -> list[str]:
    """Return texts; equal texts about several partitions, or about several topics, become one.

    The name is the first word, or behind the word topic, or in the path of a file. Texts may differ in ids, and in
    paths of the partitions.
    """
    notes, names = as_notes(texts, topics=topics), set(topics)
    return note_lines((note if note.topic else _with_subject(note, names) for note in notes), ignores_own_paths=True)


def _with_subject(note: Note, topics: set[str]) -> Note:
    """Return a note about all as one about the topic or partition that its text names, if there is one."""
    topic = _TOPIC.match(note.fact)
    if topic is not None and topic[1] in topics:
        return replace(note, topic=topic[1], is_whole=True)
    for path in _PATH.findall(note.fact):
        for name in path.rstrip(":;,").split("/")[:-3:-1]:
            folder = parse_partition_folder(name)
            if folder is not None:
                return replace(note, topic=folder.topic, partition=folder.partition, is_whole=True)
    return note
