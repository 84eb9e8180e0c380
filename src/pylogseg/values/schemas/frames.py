"""The name of a value's schema: a frame in front of it, a header of the record, or the caller.

Frames are recognised by their first bytes, all values of a column at once.
"""

from __future__ import annotations

import struct
import uuid
import zlib
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from pylogseg._native import _typed
from pylogseg.errors import RequestError
from pylogseg.format.records import SOURCE_MASK, SOURCE_SHIFT
from pylogseg.values.schemas.columns import room_for

Frame = Literal["auto", "confluent", "apicurio", "plain"]
FRAMES = ("auto", "confluent", "apicurio", "plain")
_CONFLUENT_BYTES, _APICURIO_BYTES, _GLUE_BYTES, _OBJECT_BYTES = 5, 9, 18, 10
#: Of the room of values, the part that those which Glue has compressed may grow to.
_INFLATED_PART = 3


class Named(NamedTuple):
    """How a value names its schema: by its ``id``, ``guid`` or ``fingerprint``; ``given`` is the caller's.

    `form` is the maker of the frame, if the bytes behind it depend on that: ``confluent``, ``apicurio`` or nothing.
    """

    kind: str
    number: int = 0
    guid: str = ""
    indexes: bytes = b""
    form: str = ""


class Framed(NamedTuple):
    """Payloads of values, and of each value the place of its schema in `names`: -1 without a frame, -2 for a null.

    The values in `deflated` are still compressed, and may unfold to `room` bytes: `inflate` decompresses them.
    """

    names: list[Named]
    name: npt.NDArray[np.int32]
    place: npt.NDArray[np.int64]
    size: npt.NDArray[np.int32]
    sources: tuple[Any, ...]
    deflated: npt.NDArray[np.intp] = np.empty(0, np.intp)
    room: int = 0

    def payload(self, row: int, most: int | None = None) -> bytes:
        """Return the bytes of a payload, or the first ones of it."""
        source, position = int(self.place[row]) >> SOURCE_SHIFT, int(self.place[row]) & SOURCE_MASK
        size = int(self.size[row]) if most is None else min(int(self.size[row]), most)
        return bytes(memoryview(self.sources[source])[position : position + size])


def remove_frames(
    place: npt.NDArray[np.int64], size: npt.NDArray[np.int32], sources: tuple[object, ...], frame: Frame,
    by_header: dict[int, Named],
) -> Framed:  # fmt: skip
    """Take the frames off values that lie at places in sources."""
    if frame == "plain":
        name = (size >> 31) << 1  # -2 for a size below 0, else 0
        return Framed([Named("given")], name, place, size, sources, room=room_for(size))
    kind, number = np.empty(len(size), np.uint8), np.empty(len(size), np.int64)
    _typed.frames(place, size, sources, kind, number)
    name = np.full(len(size), -1, np.int32)
    name[kind == _typed.ABSENT_VALUE] = -2
    framed = Framed([], name, place.copy(), size.copy(), sources, room=room_for(size))
    is_confluent = kind == _typed.CONFLUENT
    if by_header:
        is_confluent[[*by_header]] = False
        kind[[*by_header]] = _typed.NOTHING
    if is_confluent.any():
        if frame == "apicurio":
            _apicurio(framed, is_confluent)
        else:
            _take_number(framed, is_confluent, number, "id", _CONFLUENT_BYTES, "confluent")
    if frame == "auto":
        _take_number(framed, kind == _typed.SINGLE_OBJECT, number, "fingerprint", _OBJECT_BYTES, "")
        if (kind == _typed.GLUE).any():
            framed = _glue(framed, np.flatnonzero(kind == _typed.GLUE))
    places: dict[Named, int] = {}
    for row, named in by_header.items():
        if framed.size[row] >= 0:
            if named not in places:
                places[named] = len(framed.names)
                framed.names.append(named)
            framed.name[row] = places[named]
    return framed


def _take_number(
    made: Framed, rows: npt.NDArray[np.bool_], number: npt.NDArray[np.int64], kind: str, skip: int, form: str
) -> None:
    if not rows.any():
        return
    those = number[rows]
    if (those == those[0]).all():
        made.name[rows] = len(made.names)
        made.names.append(Named(kind, int(those[0]), form=form))
    else:
        numbers, inverse = np.unique(those, return_inverse=True)
        made.name[rows] = inverse.reshape(-1) + len(made.names)
        made.names.extend(Named(kind, value, form=form) for value in numbers.tolist())
    made.place[rows] += skip
    made.size[rows] -= skip


def _apicurio(made: Framed, rows: npt.NDArray[np.bool_]) -> None:
    """Ids of eight bytes, as Apicurio wrote them before version 3."""
    rows = rows & (made.size >= _APICURIO_BYTES)
    number = np.zeros(len(rows), np.int64)
    for row in np.flatnonzero(rows).tolist():
        number[row] = int.from_bytes(made.payload(row, _APICURIO_BYTES)[1:], "big", signed=True)
    _take_number(made, rows, number, "id", _APICURIO_BYTES, "apicurio")


def _glue(made: Framed, rows: npt.NDArray[np.intp]) -> Framed:
    """The frame of AWS Glue: how it is compressed, and a schema version's id."""
    places: dict[Named, int] = {}
    deflated = []
    for row in rows.tolist():
        head = made.payload(row, _GLUE_BYTES)
        named = Named("guid", guid=str(uuid.UUID(bytes=head[2:])), form="glue")
        if head[1]:
            deflated.append(row)
        made.place[row] += _GLUE_BYTES
        made.size[row] -= _GLUE_BYTES
        if named not in places:
            places[named] = len(made.names)
            made.names.append(named)
        made.name[row] = places[named]
    return made._replace(deflated=np.array(deflated, np.intp))


def inflate(framed: Framed) -> tuple[Framed, dict[int, str]]:
    """Decompress payloads, as one source more; return also why it failed, by value.

    Raises OverflowError if several values unfold to more than their room.
    """
    if not len(framed.deflated):
        return framed, {}
    left = most = framed.room // _INFLATED_PART
    failed: dict[int, str] = {}
    parts: list[bytes] = []
    place, size = framed.place.copy(), framed.size.copy()
    for row in framed.deflated.tolist():
        engine = zlib.decompressobj()
        try:
            raw = engine.decompress(framed.payload(row, int(size[row])), left + 1)
        except zlib.error as error:
            failed[row] = f"compressed as Glue has it, and not whole: {error}"
            continue
        if len(raw) > left:
            if len(size) > 1:
                raise OverflowError(f"the values are compressed, and more than {most} bytes: decode fewer at a time")
            failed[row] = f"compressed, and more than {most} bytes"
        elif not engine.eof:
            failed[row] = "compressed as Glue has it, and not whole"
        else:
            place[row], size[row] = (len(framed.sources) << SOURCE_SHIFT) | (most - left), len(raw)
            parts.append(raw)
            left -= len(raw)
    source = parts[0] if len(parts) == 1 else b"".join(parts)
    unpacked = framed._replace(place=place, size=size, room=framed.room - len(source))
    return unpacked._replace(sources=(*framed.sources, source)) if source else unpacked, failed


def header_names(which: str) -> tuple[str, ...]:
    """Return the names of headers that name the schema of keys or values."""
    apicurio = (f"apicurio.{which}.{name}" for name in ("globalId", "contentId", "msgType", "encoding"))
    return (f"__{which}_schema_id", *apicurio)


def named_by(headers: Mapping[str, bytes | None], which: str) -> Named | None:
    """Return the schema that a record's headers name (of equal names the last counts); None without one."""
    confluent, globally, content, message, coded = (headers.get(name) or b"" for name in header_names(which))
    if len(confluent) >= 17 and confluent[0] == 1:
        return Named("guid", guid=str(uuid.UUID(bytes=confluent[1:17])), indexes=confluent[17:], form="confluent")
    if len(confluent) >= 5 and confluent[0] == 0:
        return Named("id", struct.unpack(">i", confluent[1:5])[0], indexes=confluent[5:], form="confluent")
    number = content or globally
    if len(number) == 8:
        form = "apicurio-json" if coded == b"JSON" else "apicurio-header"
        return Named("id", struct.unpack(">q", number)[0], indexes=message, form=form)
    return None


def check_frame(frame: str) -> None:
    """Refuse a word that is no frame."""
    if frame not in FRAMES:
        raise RequestError(f"frame must be one of {', '.join(FRAMES)}, not {frame!r}")
