"""The engine that decodes payloads of one kind of schema into an Arrow array."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pylogseg._native import _typed
from pylogseg.errors import RequestError
from pylogseg.format.records import SOURCE_MASK, SOURCE_SHIFT
from pylogseg.values.schemas.avro_json import binary_of
from pylogseg.values.schemas.avro_program import AvroProgram
from pylogseg.values.schemas.avro_schema import AvroType, parse_avro
from pylogseg.values.schemas.columns import Values
from pylogseg.values.schemas.frames import Framed, Named
from pylogseg.values.schemas.proto_program import ProtoProgram, plain_indexes
from pylogseg.values.schemas.proto_schema import ProtoFile, parse_proto
from pylogseg.values.schemas.schema import Schema
from pylogseg.values.schemas.store import Schemas
from pylogseg.values.typed import ArrowColumn
from pylogseg.values.typed_json import JsonEngine

EntryNumbers = npt.NDArray[np.int32]
#: The array, status and position of each value, and what more is known of one that is bad, by row.
DecodedArray = tuple[pa.Array, npt.NDArray[np.uint8], npt.NDArray[np.int32], dict[int, str]]
#: Indexes of a message have at most so many bytes.
_INDEX_BYTES = 128
#: The tag of the field of Apicurio's message in front of a value, and the longest name of a length of one byte.
_REF_NAME, _LONGEST_NAME = 0x0A, 125


class Engine(Protocol):
    """Decodes payloads by a reader's schema."""

    type: pa.DataType

    def add(self, writer: Schema, named: Named) -> int: ...
    def prepare(self) -> Any: ...
    def decode(self, framed: Framed, entry: EntryNumbers, prepared: Any) -> DecodedArray: ...


def engine_of(
    schemas: Schemas, reader: Schema, recursion: int, message: str | None, refuse: Callable[[str], int]
) -> Engine:
    """Return the decoder of a schema; `refuse` makes the entry for a reason why values are not decoded."""
    if reader.type == "AVRO":
        return AvroEngine(schemas, reader, recursion, refuse)
    if reader.type == "PROTOBUF":
        return ProtobufEngine(schemas, reader, recursion, message, refuse)
    if reader.type == "JSON":
        return JsonEngine(schemas, reader, recursion, refuse("a value of another type than the schema has"))
    raise RequestError(f"{reader.title} is {reader.type}; only AVRO, PROTOBUF and JSON are decoded")


def reason_of(status: int, position: int) -> str:
    """Return why a value does not decode, from a kernel's status."""
    return f"{_typed.REASONS[status]}, at byte {position} of its payload"


def _reasons(values: Values) -> dict[int, str]:
    """Why values do not decode, with the part that is to blame."""
    bad = np.flatnonzero((values.status > 0) & (values.status < _typed.UNKNOWN)).tolist()
    return {
        row: f"{path}: {reason_of(int(values.status[row]), int(values.position[row]))}"
        for row, path in values.paths(bad).items()
    }


class AvroEngine:
    """Decodes Avro by a reader's schema."""

    def __init__(self, schemas: Schemas, reader: Schema, recursion: int, refuse: Callable[[str], int]) -> None:
        self._schemas, self._refuse = schemas, refuse
        self._in_json: dict[Named, AvroType] = {}
        self._parsed: dict[tuple[str, object], AvroType] = {}
        self._program = AvroProgram(self._parse(reader), recursion)
        self._column = ArrowColumn(self._program.column)
        self.type = self._column.type

    def _parse(self, schema: Schema) -> AvroType:
        key = schema.text, schema.references
        if key not in self._parsed:
            references = {name: other.text for name, other in self._schemas.references(schema).items()}
            self._parsed[key] = parse_avro(schema.text, references, schema.title)
        return self._parsed[key]

    def add(self, writer: Schema, named: Named) -> int:
        if named.form == "apicurio-json":
            self._in_json[named] = self._parse(writer)
        return self._program.add(self._parse(writer), is_bare=named.form == "confluent")

    def prepare(self) -> Any:
        """The schemas of writers that `decode` needs and that have been read so far."""
        return self._program.arrays()

    def decode(self, framed: Framed, entry: npt.NDArray[np.int32], prepared: Any) -> DecodedArray:
        """Return the array, and status and position of each value."""
        for number, named in enumerate(framed.names):
            if named in self._in_json:
                framed, entry = self._from_json(framed, np.flatnonzero(framed.name == number), named, entry.copy())
        values = self._program.decode(framed.place, framed.size, framed.sources, entry, prepared, framed.room)
        return self._column.array(values.nodes), values.status, values.position, _reasons(values)

    def _from_json(
        self, framed: Framed, rows: npt.NDArray[np.intp], named: Named, entry: EntryNumbers
    ) -> tuple[Framed, EntryNumbers]:
        """Values in Avro's JSON encoding in the binary one, one by one: they come from few systems."""
        place, size, encoded = framed.place.copy(), framed.size.copy(), bytearray()
        for row in rows.tolist():
            try:
                raw = binary_of(self._in_json[named], framed.payload(row))
            except (ValueError, OverflowError) as error:
                entry[row] = self._refuse(f"not in the JSON of its schema: {error}")
                continue
            place[row], size[row] = (len(framed.sources) << SOURCE_SHIFT) | len(encoded), len(raw)
            encoded += raw
        sources = (*framed.sources, np.frombuffer(bytes(encoded), np.uint8))
        return framed._replace(place=place, size=size, sources=sources), entry


class ProtobufEngine:
    """Decodes one message of a Protobuf schema; values that are another message are refused."""

    def __init__(
        self, schemas: Schemas, reader: Schema, recursion: int, message: str | None, refuse: Callable[[str], int]
    ) -> None:
        self._schemas, self._refuse = schemas, refuse
        self._files: dict[tuple[str, object], ProtoFile] = {}
        self._writers: list[tuple[ProtoFile, Named]] = []
        file = self._parse(reader)
        root = file.at([0]) if message is None else file.find_message(message)
        if root is None:
            raise RequestError(f"{reader.title} has no message {message or ''}".rstrip())
        self._message = root.name
        self._program = ProtoProgram(file, root, recursion)
        self._column = ArrowColumn(self._program.column)
        self.type = self._column.type

    def _parse(self, schema: Schema) -> ProtoFile:
        key = schema.text, schema.references
        if key not in self._files:
            imports = {name: other.text for name, other in self._schemas.references(schema).items()}
            files = {s.subject: s.text for s in self._schemas if s.type == "PROTOBUF" and s.subject}
            self._files[key] = parse_proto(schema.text, files | imports, schema.title)
        return self._files[key]

    def add(self, writer: Schema, named: Named) -> int:
        if writer.type != "PROTOBUF":
            raise RequestError(f"{writer.title} is {writer.type}, but the reader's schema is PROTOBUF")
        self._writers.append((self._parse(writer), named))
        return len(self._writers) - 1

    def prepare(self) -> list[tuple[ProtoFile, Named]]:
        """The schemas of writers that `decode` needs and that have been read so far."""
        return list(self._writers)

    def decode(self, framed: Framed, entry: EntryNumbers, prepared: list[tuple[ProtoFile, Named]]) -> DecodedArray:
        """Return the array, and status and position of each value."""
        place, size = framed.place.copy(), framed.size.copy()
        entry = entry.copy()
        for number, (file, named) in enumerate(prepared):
            if named.form not in ("confluent", "apicurio"):
                entry[entry == number] = 0
                continue
            rows = np.flatnonzero((entry == number) & (size >= 0))
            if len(rows) and not named.indexes:
                rows = self._take_refs(file, framed, rows, place, size, entry)
            if not len(rows):
                continue
            if named.form == "apicurio":
                entry[rows] = self._refuse("no message of the schema is named in front of it")
            elif named.indexes:
                path = plain_indexes(named.indexes, zigzag=True)
                entry[rows] = self._entry(file, path[0] if path else [])
            else:
                self._take_indexes(file, framed, rows, place, size, entry)
        values = self._program.decode(place, size, framed.sources, entry, framed.room)
        return self._column.array(values.nodes), values.status, values.position, _reasons(values)

    def _take_refs(
        self, file: ProtoFile, framed: Framed, rows: npt.NDArray[np.intp], place: npt.NDArray[np.int64],
        size: npt.NDArray[np.int32], entry: EntryNumbers,
    ) -> npt.NDArray[np.intp]:  # fmt: skip
        """Read Apicurio's name of the message in front of each value; returns the rows without one."""
        head = _first_bytes(framed, rows, 3)
        is_alike = (head[:, 1] == _REF_NAME) & (head[:, 2] == head[:, 0] - 2)
        left = rows[is_alike]
        for message in file.messages.values() if len(left) else ():
            for name in {message.name, message.name.rpartition(".")[2]}:
                if file.find_message(name) is not message or len(name) > _LONGEST_NAME:
                    continue
                ref = _ref(name)
                is_it = (_first_bytes(framed, left, len(ref)) == np.frombuffer(ref, np.uint8)).all(axis=1)
                those = left[is_it]
                entry[those] = self._entry_of(message.name)
                place[those] += len(ref)
                size[those] -= len(ref)
                left = left[~is_it]
        return np.sort(np.concatenate([rows[~is_alike], left]))

    def _take_indexes(
        self, file: ProtoFile, framed: Framed, rows: npt.NDArray[np.intp], place: npt.NDArray[np.int64],
        size: npt.NDArray[np.int32], entry: EntryNumbers,
    ) -> None:  # fmt: skip
        """Read which message each value is, and go on behind that."""
        code, skip = np.empty(len(rows), np.int64), np.empty(len(rows), np.int32)
        _typed.indexes(np.ascontiguousarray(place[rows]), np.ascontiguousarray(size[rows]), framed.sources, code, skip)
        for index_code in np.unique(code).tolist():
            those = rows[code == index_code]
            path = [] if index_code < 0 else [index_code >> (8 * k + 8) & 255 for k in range(index_code & 255)]
            if path and file.at(path) is not None:
                entry[those] = self._entry(file, path)
                place[those] += skip[code == index_code]
                size[those] -= skip[code == index_code]
                continue
            for row in those.tolist():  # as clients of before 2022 wrote them
                old = plain_indexes(framed.payload(row, _INDEX_BYTES), zigzag=False)
                if old is not None and file.at(old[0]) is not None:
                    entry[row] = self._entry(file, old[0])
                    place[row] += old[1]
                    size[row] -= old[1]
                else:
                    entry[row] = self._entry(file, path)

    def _entry(self, file: ProtoFile, path: list[int]) -> int:
        message = file.at(path) if path else None
        if message is None:
            return self._refuse(f"no message {path}" if path else "no indexes of a message")
        return self._entry_of(message.name)

    def _entry_of(self, name: str) -> int:
        return 0 if name == self._message else self._refuse(f"the message is {name}, not {self._message}")

    def message_of(self, writer: Schema, named: Named, framed: Framed, row: int) -> str | None:
        if writer.type != "PROTOBUF":
            return None
        file = self._parse(writer)
        if named.form not in ("confluent", "apicurio"):
            return None
        raw = named.indexes or framed.payload(row, _INDEX_BYTES)
        if len(raw) > 2 and raw[1] == _REF_NAME and raw[2] == raw[0] - 2:
            message = file.find_message(raw[3 : raw[0] + 1].decode("utf-8", "replace"))
            if message is not None:
                return message.name
        if named.form == "apicurio":
            return None
        for zigzag in (True, False):
            path = plain_indexes(raw, zigzag=zigzag)
            nested = file.at(path[0]) if path is not None else None
            if nested is not None:
                return nested.name
        return None


def _ref(name: str) -> bytes:
    """The frame that Apicurio writes in front of a value: a length, and a message with the name of a type in it."""
    text = name.encode()
    return bytes([len(text) + 2, _REF_NAME, len(text)]) + text


def _first_bytes(framed: Framed, rows: npt.NDArray[np.intp], count: int) -> npt.NDArray[np.uint8]:
    """The first bytes of values, a row each; zeros for one that has fewer."""
    place, size = framed.place[rows], framed.size[rows]
    first = np.zeros((len(rows), count), np.uint8)
    for source in np.unique(place >> SOURCE_SHIFT).tolist():
        those = np.flatnonzero((place >> SOURCE_SHIFT == source) & (size >= count))
        data = np.frombuffer(framed.sources[source], np.uint8)
        first[those] = data[(place[those] & SOURCE_MASK)[:, None] + np.arange(count)]
    return first
