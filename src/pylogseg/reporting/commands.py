"""Commands for the findings of a report, quoted for a shell: they show a fault or mend it."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Sequence

from pylogseg.format.escape import printable
from pylogseg.reporting.facts import Command

_STOP = "stop the broker first; a dry run changes nothing"
_LOSES = (
    "what is damaged is cut out, and a copy of it kept: take the partition from another replica instead, if there is "
    f"one; {_STOP}"
)
_INDEXES = {
    "offset-index": "offset",
    "time-index": "time",
    "time-index-end": "time",
    "transaction-index": "txn",
    "missing-index": "",
    "snapshot": "snapshots",
    "leader-epoch": "epochs",
    "leader-epoch-file": "epochs",
}
_DAMAGED = ("crc", "records", "length", "magic", "order", "header", "inner-crc", "overlap")
_RECOVERED = ("torn", "zeros", "orphan", "leftover")
_MISSING = ("gap", "missing", "orphan-lost")


def line(*words: str) -> str:
    """Return a command as a shell takes it.

    Words that a terminal would act on, or that are no text, are written as ``$'...'``, which bash, zsh and ksh read.

    >>> line("pylogseg", "verify", "/data/my topic-0")
    "pylogseg verify '/data/my topic-0'"
    """
    return " ".join(_quote(word) for word in words)


@functools.lru_cache(4096)
def _quote(word: str) -> str:
    if printable(word) == word and "\n" not in word and "\t" not in word:
        return shlex.quote(word)
    raw = word.encode("utf-8", "surrogateescape")
    return "$'" + "".join(chr(b) if 32 <= b < 127 and chr(b) not in "'\\" else f"\\x{b:02x}" for b in raw) + "'"


def of_partition(path: str) -> tuple[Command, ...]:
    return (
        Command("show", line("pylogseg", "ls", path, "--segments")),
        Command("show", line("pylogseg", "stats", path, "--gaps")),
        Command("show", line("pylogseg", "verify", path)),
        Command("show", line("pylogseg", "cat", path, "--offset", "-10:")),
    )


def of_cleaning(
    path: str, policy: Sequence[str], retention: Sequence[str] = (), compaction: Sequence[str] = ()
) -> list[Command]:
    """Return the commands that free space in a partition, with options that name the rules which nobody has set."""
    lines = []
    rows = (
        ("delete", "retain", retention, "the time is Kafka's default"),
        ("compact", "compact", compaction, "by the cleaner's checkpoint the topic is compacted"),
    )
    for word, command, options, why in rows:
        if word in policy:
            note = f"{_STOP}; {why}" if options else _STOP
            lines += [
                Command("try", line("pylogseg", command, path, *options, "--dry-run")),
                Command("mend", line("pylogseg", command, path, *options), note),
            ]
    return lines


def of_finding(kind: str, path: str, folder: str | None, log_dir: str | None) -> tuple[Command, ...]:
    """Return the commands for a finding in a file: of a partition's folder, or of a log directory."""
    place = folder or log_dir or path
    shown = [Command("show", line("pylogseg", "verify", path if folder is None and log_dir is None else place))]
    if folder is None:
        return tuple(shown)
    if kind in _INDEXES:
        only = ["--only", _INDEXES[kind]] if _INDEXES[kind] else []
        return (*shown, *_try("reindex", folder, *only))
    if kind in _DAMAGED:
        return (*shown, *_try("repair", folder, "--keep-behind", note=_LOSES))
    if kind in _RECOVERED:
        return (*shown, *_try("recover", folder))
    if kind in _MISSING:
        return (*shown, Command("show", line("pylogseg", "stats", folder, "--gaps")))
    return tuple(shown)


def _try(command: str, *words: str, note: str = _STOP) -> tuple[Command, Command]:
    return (
        Command("try", line("pylogseg", command, *words, "--dry-run")),
        Command("mend", line("pylogseg", command, *words), note),
    )
