"""A small log with one harm after the other: fields of a batch, cut and moved batches, segments that are gone."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pylogseg
from pylogseg import _codec

#: Records of a batch; batches of the log.
WIDTH, BATCHES = 5, 30
RECORDS = WIDTH * BATCHES
#: Half-open ranges of offsets that are read, None an open end.
RANGES = [(None, None), (0, RECORDS), (0, RECORDS - 7), (33, 104), (100, None)]
_CRC, _CODEC, _LAST_DELTA, _COUNT, _BODY = 17, 22, 23, 57, 61

#: Files by name.
Files = dict[str, bytes]


class Harm(NamedTuple):
    """A log that somebody harmed."""

    name: str
    files: Files
    #: Whether nothing in the log itself shows it: bytes are gone at its end, a segment is, or its last offset is high.
    is_hidden: bool = False


def write_log(folder: Path, compression: str = "producer") -> Path:
    """Write a log of two segments and a short third one, with an index entry for every other batch."""
    settings = {"segment_bytes": 4100, "index_interval_bytes": 500, "compression_type": compression}
    with pylogseg.open_log(folder, **settings) as log:
        for batch in range(BATCHES):
            values = random.Random(batch).randbytes(40 * WIDTH)
            log.append([(1_000_000 + batch, b"k%d" % i, values[i * 40 : i * 40 + 40]) for i in range(WIDTH)])
    return folder


def files_of(folder: Path) -> Files:
    """Return the segments and indexes of a partition."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.suffix in (".log", ".index")}


def put(files: Files, folder: Path) -> Path:
    """Write the files of a partition, and no others."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.iterdir():
        path.unlink()
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


def places(data: bytes) -> list[tuple[int, int]]:
    """Return where the batches of a segment begin and end."""
    found, at = [], 0
    while at < len(data):
        end = at + 12 + struct.unpack_from(">i", data, at + 8)[0]
        found.append((at, end))
        at = end
    return found


def _patched(data: bytes, at: int, layout: str, value: int) -> bytes:
    changed = bytearray(data)
    struct.pack_into(layout, changed, at, value)
    return bytes(changed)


def _signed(data: bytes, place: tuple[int, int]) -> bytes:
    """Return a segment with the right check sum of a batch."""
    at, end = place
    return _patched(data, at + _CRC, ">I", _codec.crc32c(data[at + 21 : end]))


def _of_batch(data: bytes, place: tuple[int, int], is_last: bool) -> Iterator[Harm]:
    """Yield the harms of one batch; the files have one item, the segment."""
    at, end = place
    base = struct.unpack_from(">q", data, at)[0]
    for bit in (0, 1, 2, 4, 5, 6, 7, 20, 40, 62):
        other = base ^ (1 << bit)
        yield Harm(f"base offset {other}", {"": _patched(data, at, ">q", other)}, is_last and other > base)
    for delta in (WIDTH, WIDTH + 2, 3 * WIDTH, 70, 400, 2**31 - 1):
        lifted = _signed(_patched(data, at + _LAST_DELTA, ">i", delta), place)
        yield Harm(f"last offset delta {delta}", {"": lifted}, is_last)
    for count in (WIDTH - 1, WIDTH + 1, 0, -1):
        yield Harm(f"{count} records", {"": _signed(_patched(data, at + _COUNT, ">i", count), place)}, count == 0)
    for delta in (2 * 63, 2 * WIDTH, 1) if data[at + _CODEC] & 7 == 0 else ():  # as ZigZag: 63, 5, -1
        changed = _patched(data, _delta_of_last_record(data, place), ">B", delta)
        yield Harm(f"record delta {delta}", {"": _signed(changed, place)})
    yield Harm("another magic", {"": _patched(data, at + 16, ">b", 7)})
    yield Harm("a bit of the body", {"": _patched(data, end - 9, ">B", data[end - 9] ^ 4)})
    for length in (end - at - 12 + 40, end - at - 12 - 40, 2**30, -5):
        yield Harm(f"length {length}", {"": _patched(data, at + 8, ">i", length)}, is_last and length > end - at)
    yield Harm("zeros", {"": data[:at] + bytes(end - at) + data[end:]}, is_last)
    yield Harm("cut inside", {"": data[: at + 70]}, True)
    yield Harm("cut before", {"": data[:at]}, True)
    yield Harm("twice", {"": data[:end] + data[at:]})
    if not is_last:
        behind = end + 12 + struct.unpack_from(">i", data, end + 8)[0]
        yield Harm("swapped with the next", {"": data[:at] + data[end:behind] + data[at:end] + data[behind:]})
        lifted = _signed(_patched(data, at + _LAST_DELTA, ">i", 70), place)
        yield Harm("last offset delta 70, then zeros", {"": lifted[:end] + bytes(behind - end) + lifted[behind:]})


def _delta_of_last_record(data: bytes, place: tuple[int, int]) -> int:
    at, end = place[0] + _BODY, place[1]
    while True:
        size, shift, head = 0, 0, at
        while True:
            size |= (data[head] & 0x7F) << shift
            head, shift = head + 1, shift + 7
            if data[head - 1] < 0x80:
                break
        if head + (size >> 1) == end:
            return head + 2  # after the attributes and a delta of the timestamp of one byte
        at = head + (size >> 1)


def harms(files: Files) -> Iterator[Harm]:
    """Yield harms of each kind at batches in the middle and at both ends of each segment, and of the segments."""
    names = [name for name in files if name.endswith(".log")]
    for name in names:
        data, is_active = files[name], name == names[-1]
        found = places(data)
        for number in sorted({0, 1, len(found) // 2, len(found) - 2, len(found) - 1}):
            is_last = number == len(found) - 1
            for harm in _of_batch(data, found[number], is_last):
                is_hidden = harm.is_hidden and (is_active or not harm.name.startswith(("base", "last", "length")))
                label = f"{name[-7:]}, batch {number}: {harm.name}"
                yield Harm(label, {**files, name: harm.files[""]}, is_hidden)
    for name in names[:-1]:
        left = {other: data for other, data in files.items() if not other.startswith(name[:20])}
        yield Harm(f"{name[-7:]} gone", left, True)
    first, second = names[:2]
    yield Harm("segments swapped", {**files, first: files[second], second: files[first]})
