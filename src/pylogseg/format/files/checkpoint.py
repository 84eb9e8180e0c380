"""Text checkpoints: an offset per partition of a log directory, and the leader epochs of a partition.

Both are a version, a count and one entry a line. A broker that cannot read one takes the log directory offline (or, for
two of them, goes on as if it were empty), so an error here names the line. Rules: `docs/format.md`, "Text checkpoints".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from pylogseg.errors import CorruptionError, RequestError
from pylogseg.format.buffers import byte_view

#: The only version there is.
VERSION = 0

_NUMBER = re.compile(r"[+-]?[0-9]{1,40}")
_SPACES = re.compile(r"[ \t\n\x0b\f\r]+")
_LINE = re.compile(r"([^\r\n]*)(\r\n|\r|\n|\Z)")
# What a broker writes; all else is read line by line, and may turn out to be malformed.
_PLAIN_OFFSETS = re.compile(rb"0\n([0-9]{1,9})\n((?:[!-~]+ [0-9]{1,9} [0-9]{1,18}\n)*)")
_PLAIN_EPOCHS = re.compile(rb"0\n([0-9]{1,9})\n((?:[0-9]{1,9} [0-9]{1,18}\n)*)")
_INT32 = (-(2**31), 2**31 - 1)
_INT64 = (-(2**63), 2**63 - 1)


class EpochEntry(NamedTuple):
    """The start of a leader epoch."""

    epoch: int
    start_offset: int  #: First offset that this leader wrote.


def _plain_words(form: re.Pattern[bytes], data: Any) -> list[str] | None:
    """Return words of the entries of a file as a broker writes it; None if it has another form or number of entries."""
    match = form.fullmatch(data)
    if match is None or match[2].count(b"\n") != int(match[1]):
        return None
    return match[2].decode("ascii").split()


def parse_offset_checkpoint(data: Any, path: str = "<offset checkpoint>") -> dict[tuple[str, int], int]:
    """Read one of the four offset checkpoints of a log directory; an empty file, or one with a version alone, is empty.

    The later line counts for a partition that comes twice. Raises CorruptionError if the version is not 0, a line is
    malformed, or the number of entries is not the one declared.
    """
    if (words := _plain_words(_PLAIN_OFFSETS, data)) is not None:
        return dict(zip(zip(words[::3], map(int, words[1::3]), strict=True), map(int, words[2::3]), strict=True))
    offsets = {}
    for line in _entries(data, str(path)):
        topic, partition, offset = line.fields(3)
        offsets[topic, line.number(partition, _INT32)] = line.number(offset, _INT64)
    return offsets


def encode_offset_checkpoint(offsets: Mapping[tuple[str, int], int]) -> bytes:
    """Make the text of an offset checkpoint, in the order of the mapping.

    Raises RequestError if a topic is empty or has white space in it, or a number does not fit.
    """
    for (topic, partition), offset in offsets.items():
        if not topic or _SPACES.search(topic):
            raise RequestError(f"topic {topic!r} cannot be written to a checkpoint")
        _check_range("partition", partition, _INT32)
        _check_range("offset", offset, _INT64)
    return _text([f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()])


def parse_leader_epochs(data: Any, path: str = "<leader-epoch-checkpoint>") -> list[EpochEntry]:
    """Read the leader epochs of a partition, in the order of the file; errors as of `parse_offset_checkpoint`."""
    if (words := _plain_words(_PLAIN_EPOCHS, data)) is not None:
        numbers = list(map(int, words))
        return list(map(EpochEntry, numbers[::2], numbers[1::2]))
    epochs = []
    for line in _entries(data, str(path)):
        epoch, start_offset = line.fields(2)
        epochs.append(EpochEntry(line.number(epoch, _INT32), line.number(start_offset, _INT64)))
    return epochs


def encode_leader_epochs(epochs: Iterable[EpochEntry]) -> bytes:
    """Make the text of a leader epoch checkpoint; RequestError if epochs or offsets do not ascend."""
    lines = []
    before = EpochEntry(-1, -1)
    for entry in epochs:
        _check_range("epoch", entry.epoch, _INT32)
        _check_range("start offset", entry.start_offset, _INT64)
        if entry.epoch <= before.epoch or entry.start_offset <= before.start_offset:
            raise RequestError(f"leader epochs do not ascend: {before} is before {entry}")
        lines.append(f"{entry.epoch} {entry.start_offset}")
        before = entry
    return _text(lines)


class _Line(NamedTuple):
    path: str
    row: int  # from 1
    position: int
    text: str

    def fields(self, count: int) -> list[str]:
        """Split at white space, which may also end the line; another number of fields is an error."""
        parts = _SPACES.split(self.text.rstrip(" \t\x0b\f"))
        if len(parts) != count or not parts[0]:
            raise self.error()
        return parts

    def number(self, text: str, limits: tuple[int, int]) -> int:
        """Read a decimal number as Java does: a sign may stand in front, and it must fit."""
        if not _NUMBER.fullmatch(text) or not limits[0] <= int(text) <= limits[1]:
            raise self.error()
        return int(text)

    def error(self, reason: str = "malformed") -> CorruptionError:
        shown = self.text if len(self.text) <= 200 else self.text[:200] + "..."
        return CorruptionError(self.path, self.position, f"line {self.row} is {reason}: {shown!r}")


def _entries(data: Any, path: str) -> list[_Line]:
    """Return lines after the header, after a check that there are as many as it says."""
    lines = _lines(data, path)
    if not lines:
        return []
    version = lines[0].number(lines[0].text, _INT32)
    if version != VERSION:
        raise lines[0].error(f"a version other than {VERSION}")
    if len(lines) == 1:
        return []
    declared = lines[1].number(lines[1].text, _INT32)
    entries = lines[2:]
    if declared != len(entries):
        raise lines[1].error(f"a wrong count, {len(entries)} entries are there")
    return entries


def _lines(data: Any, path: str) -> list[_Line]:
    raw = bytes(byte_view(data))
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise CorruptionError(
            path, error.start, f"byte 0x{raw[error.start]:02x} is not UTF-8: {error.reason}"
        ) from None
    lines: list[_Line] = []
    at = position = 0
    while at < len(text):
        match = _LINE.match(text, at)
        assert match is not None  # the expression matches anywhere
        lines.append(_Line(path, len(lines) + 1, position, match[1]))
        at = match.end()
        position += len(match[0].encode())
    return lines


def _text(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in [str(VERSION), str(len(lines)), *lines]).encode()


def _check_range(name: str, value: int, limits: tuple[int, int]) -> None:
    if not 0 <= value <= limits[1]:
        raise RequestError(f"{name} {value} is not in 0..{limits[1]}")
