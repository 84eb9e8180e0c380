"""Bytes of records as typed columns: the choice of the schema, and of an answer to bytes that do not decode."""

from __future__ import annotations

import itertools
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pylogseg._native import _typed
from pylogseg.disk.disk import Disk
from pylogseg.disk.listing import open_dir
from pylogseg.errors import CorruptionError, NotOwnError, PylogsegError, RequestError
from pylogseg.format.words import check_word
from pylogseg.reading.arrow.columns import record_batches, schema
from pylogseg.reading.arrow.functions import RaiseOrNull, bad_value
from pylogseg.reading.partition import Chunk
from pylogseg.values.forms import Form, cut_rows, in_form, with_type
from pylogseg.values.internal.message_arrays import binary_spans
from pylogseg.values.internal.own_topics import JsonColumn, MessageColumn, is_own, own_columns
from pylogseg.values.schemas.avro_program import RECURSION
from pylogseg.values.schemas.avro_schema import fingerprint
from pylogseg.values.schemas.frames import Frame, Named, check_frame, header_names, inflate, named_by, remove_frames
from pylogseg.values.schemas.schema import DEFAULT_CONTEXT, Schema
from pylogseg.values.schemas.store import Schemas, schema_of_file
from pylogseg.values.schemas.topic import TOPIC
from pylogseg.values.typed_engines import ProtobufEngine, engine_of, reason_of
from pylogseg.walker.gaps import Gap, GapKind, add_of_column

OnUndecoded = Literal["raw", "raise", "skip"]
#: A schema's file, its text, its id, a subject, or a subject and version: ``orders-value:2``.
SchemaChoice = str | int | os.PathLike[str] | Schema
#: Chunks that are looked at for a schema's id.
_PEEKED = 4
_WHICH = ("key", "value")
_VERSION = re.compile(r"(?P<subject>.+):(?P<version>\d+)", re.DOTALL)
_TEXT = re.compile(r'\s*([\[{"]|(syntax|message|package|import|//|/\*)\b)')


class DecodingKeywords(TypedDict, total=False):
    """The decoding that a function uses, as its keywords; see `Decoding.of_keywords`."""

    decoding: str | Sequence[str] | Decoding | None
    schema: SchemaChoice | Mapping[str, SchemaChoice] | None
    registry: str | os.PathLike[str] | Schemas | None


@dataclass(frozen=True)
class Decoding:
    """How keys and values become typed columns.

    Parameters
    ----------
    columns : tuple of str
        ``key``, ``value`` or both.
    schema : str, int, path, Schema, or mapping of them by column, optional
        The reader's schema: a file, its text, an id, a subject, or ``subject:version``. By default the newest version
        of the topic's subject (``orders-value``), else of the subject of the first record's schema.
    registry : path, URL or Schemas, optional
        Where schemas are; by default the topic `_schemas` of the disk that is read. See `Schemas.open`.
    on_undecoded : {"raw", "raise", "skip"}
        For a value that does not decode: put its bytes into a column ``valueRaw`` and the reason into ``valueError``;
        raise an error; or leave the record out, and count it in `TypedBatches.undecoded`.
    frame : {"auto", "confluent", "apicurio", "plain"}
        The bytes before a value that name its schema: ``apicurio`` are ids of eight bytes, ``plain`` means none.
    context : str
        Context of the ids in the registry.
    ids : int or sequence of int, optional
        Decode only values that were written by the schemas with these ids; all other values are null. This separates
        the kinds of values in one topic without a filter.
    recursion : int
        The number of decoded levels of a type that contains itself; deeper levels stay bytes.
    message : str, optional
        The Protobuf message to read; by default the first record's message.
    form : callable, optional
        Returns the type that stands for one that is not nested: for engines that do not have all of Arrow's.
    show_secrets : bool
        True if passwords and keys of users, settings and connectors are shown in topics that Kafka writes for itself.
    only_own : bool
        Decode only topics that Kafka, Connect or a registry writes for itself.
    """

    columns: tuple[str, ...] = ("value",)
    schema: SchemaChoice | Mapping[str, SchemaChoice] | None = None
    registry: str | os.PathLike[str] | Schemas | None = None
    on_undecoded: OnUndecoded = "raw"
    frame: Frame = "auto"
    context: str = DEFAULT_CONTEXT
    ids: int | Sequence[int] | None = None
    recursion: int = RECURSION
    message: str | None = None
    form: Form | None = None
    show_secrets: bool = False
    only_own: bool = False

    def __post_init__(self) -> None:
        if not self.columns or not set(self.columns) <= set(_WHICH) or len(set(self.columns)) < len(self.columns):
            raise RequestError(f"decoding is 'key', 'value' or both, not {self.columns!r}")
        check_word("on_undecoded", self.on_undecoded, ("raw", "raise", "skip"))
        check_frame(self.frame)
        if self.recursion < 0:
            raise RequestError(f"recursion is 0 or more, not {self.recursion}")
        if self.ids is not None and self.frame == "plain":
            raise RequestError("ids go with frames: with frame='plain', values name no schema")

    @classmethod
    def of(cls, decoding: str | Sequence[str] | Decoding, **options: Any) -> Decoding:
        """Return the decoding of a caller's argument ``decoding``; options that are None are left out."""
        settings = {name: value for name, value in options.items() if value is not None}
        if isinstance(decoding, Decoding):
            if settings:
                raise RequestError(f"pass {', '.join(settings)} to Decoding(...), not beside it")
            return decoding
        return cls((decoding,) if isinstance(decoding, str) else tuple(decoding), **settings)

    @classmethod
    def of_keywords(cls, decoding: str | Sequence[str] | Decoding | None = None, **options: Any) -> Decoding | None:
        """Return the decoding of a function's keywords, none without `decoding`; RequestError for options alone."""
        if decoding is not None:
            return cls.of(decoding, **options)
        names = [f"{name}=" for name, value in options.items() if value is not None]
        if names:
            raise RequestError(f"{' and '.join(names)} {'go' if names[1:] else 'goes'} with decoding='value'")
        return None

    def wanted(self, which: str) -> SchemaChoice | None:
        """Return the reader's schema that is asked for."""
        if isinstance(self.schema, Mapping):
            return self.schema.get(which)
        return self.schema if which == "value" or len(self.columns) == 1 else None


class Decoder:
    """Decodes columns of bytes by one reader's schema into arrays of `type`; `needs` are other columns that it takes.

    `message` is of Protobuf; by default the first one of the reader's schema.
    """

    needs = ("headers",)

    def __init__(
        self, schemas: Schemas, reader: Schema, decoding: Decoding, which: str, message: str | None = None
    ) -> None:
        self._schemas, self._reader, self._decoding, self.which = schemas, reader, decoding, which
        self._message = message
        self._reasons: dict[int, str] = {_typed.UNKNOWN: "no frame: nothing names the schema"}
        self._engine = engine_of(schemas, reader, decoding.recursion, message, self._add_reason)
        self.type = self._engine.type if decoding.form is None else in_form(self._engine.type, decoding.form)
        self._lock = threading.Lock()
        self._entries: dict[Named, int] = {}
        ids = decoding.ids
        self._ids = None if ids is None else frozenset([ids] if isinstance(ids, int) else ids)
        self._by_fingerprint: dict[int, Schema] | None = None

    def __reduce__(self) -> Any:
        return Decoder, (self._schemas, self._reader, self._decoding, self.which, self._message)

    def with_schemas(self, schemas: Schemas) -> Decoder:
        """Return a copy with other writers' schemas."""
        return Decoder(schemas, self._reader, self._decoding, self.which, self._message)

    def decode(self, column: pa.Array, headers: pa.Array | None = None) -> tuple[pa.Array, dict[int, str]]:
        """Decode a binary array: null where a value is null or does not decode, with the reasons by row.

        Raises OverflowError if several values unfold to more bytes than they may take together: decode fewer at a time.
        """
        array, errors = self.decode_exactly(column, headers)
        return with_type(array, self.type), errors

    @property
    def may_cut(self) -> bool:
        """True if `type` may lack digits of times."""
        return _has_nanoseconds(self._engine.type) and self._engine.type != self.type

    def cut_rows(self, array: pa.Array) -> list[int]:
        """Return which values of `decode_exactly` have digits of times that `type` does not have."""
        form = self._decoding.form
        return [] if form is None else np.flatnonzero(cut_rows(array, form)).tolist()

    def decode_exactly(self, column: pa.Array, headers: pa.Array | None = None) -> tuple[pa.Array, dict[int, str]]:
        """Decode as `decode` does, to an array of the schema's own type."""
        place, size, source = binary_spans(column)
        by_header = _by_header(headers, self.which) if headers is not None else {}
        framed, failed = inflate(remove_frames(place, size, (source,), self._decoding.frame, by_header))
        with self._lock:  # threads decode at the same time; which schemas there are is found out by one
            entries = [self._entry(named) for named in framed.names]
            prepared = self._engine.prepare()
        unnamed = -(_typed.UNKNOWN if self._ids is None else _typed.ABSENT)
        numbers = np.array([*entries, 0, unnamed], np.int32)  # -1 is the last of it, no frame; -2 a null
        entry = numbers.take(framed.name)
        for row, reason in failed.items():
            if entry[row] != -_typed.ABSENT:
                entry[row] = self._add_reason(reason)
        array, status, position, reasons = self._engine.decode(framed, entry, prepared)
        bad = np.flatnonzero((status != 0) & (status != _typed.ABSENT))
        return array, {
            row: reasons.get(row) or self._reason(int(status[row]), int(position[row])) for row in bad.tolist()
        }

    def _reason(self, status: int, position: int) -> str:
        if status in self._reasons:
            return self._reasons[status]
        return reason_of(status, position)

    def _entry(self, named: Named) -> int:
        if self._ids is not None and (named.kind != "id" or named.number not in self._ids):
            return -int(_typed.ABSENT)
        if named not in self._entries:
            try:
                self._entries[named] = self._engine.add(self._writer(named), named)
            except RequestError as error:
                self._entries[named] = self._add_reason(str(error))
        return self._entries[named]

    def _add_reason(self, reason: str) -> int:
        """Add a reason and return its status: the complement of its index, as entries have it."""
        for status, other in list(self._reasons.items()):
            if other == reason:
                return -status
        status = min(_typed.UNKNOWN + len(self._reasons), _typed.ABSENT - 1)
        self._reasons[status] = "one of many reasons" if status == _typed.ABSENT - 1 else reason
        return -status

    def _writer(self, named: Named) -> Schema:
        """The schema that a value was written by."""
        schemas, context = self._schemas, self._decoding.context
        if named.kind == "given":
            return self._reader
        if named.kind == "id":
            schema = schemas.by_id(named.number, context)
            missing = schemas.missing(named.number, context)
        elif named.kind == "guid":
            schema, missing = schemas.by_guid(named.guid), f"no schema {named.guid}"
        else:
            if self._by_fingerprint is None:
                avro = [s for s in (*schemas, self._reader) if s.type == "AVRO"]
                self._by_fingerprint = {number: s for s in avro if (number := fingerprint(s.text)) is not None}
            schema = self._by_fingerprint.get(named.number)
            missing = f"no schema with the fingerprint {named.number & (1 << 64) - 1:016x}"
        if schema is not None:
            return schema
        if not len(schemas) and not schemas.gone:
            return self._reader  # nothing else is known: the schema that was given stands for what wrote the values
        raise RequestError(missing)


def _has_nanoseconds(kind: pa.DataType) -> bool:
    if pa.types.is_map(kind):
        return _has_nanoseconds(kind.key_type) or _has_nanoseconds(kind.item_type)
    parts = [*kind] if pa.types.is_struct(kind) else [kind.value_field] if pa.types.is_list(kind) else []
    return any(_has_nanoseconds(field.type) for field in parts) or getattr(kind, "unit", "") == "ns"


def _by_header(headers: pa.Array, which: str) -> dict[int, Named]:
    """The rows whose headers name a schema; of several headers of a name the last counts."""
    headers = headers.combine_chunks() if isinstance(headers, pa.ChunkedArray) else headers
    items = headers.flatten()
    if not len(items):
        return {}
    names, values = items.flatten()
    hits = np.flatnonzero(pc.is_in(names, pa.array(header_names(which))).to_numpy(zero_copy_only=False))
    if not len(hits):
        return {}
    rows = np.asarray(pc.list_parent_indices(headers))[hits].tolist()
    headers_by_row: dict[int, dict[str, bytes | None]] = {}
    taken = pa.array(hits)
    for row, name, value in zip(rows, names.take(taken).to_pylist(), values.take(taken).to_pylist(), strict=True):
        headers_by_row.setdefault(row, {})[name] = value
    named = ((row, named_by(found_headers, which)) for row, found_headers in headers_by_row.items())
    return {row: named for row, named in named if named is not None}


@dataclass
class TypedBatches:
    """Replaces columns of bytes in record batches by typed columns; `undecoded` counts values that did not decode.

    `gaps` get the records with times whose last digits the columns cannot hold.
    """

    decoders: Mapping[str, Decoder | MessageColumn | JsonColumn]
    on_undecoded: OnUndecoded
    names: tuple[str, ...]
    undecoded: int = field(default=0, init=False)
    gaps: list[Gap] = field(default_factory=list, init=False)
    _lock: Any = field(default_factory=threading.Lock, init=False, repr=False)

    def __reduce__(self) -> Any:
        return TypedBatches, (self.decoders, self.on_undecoded, self.names)

    def with_names(self, names: Sequence[str]) -> TypedBatches:
        """Return the same for other columns of records."""
        return TypedBatches(self.decoders, self.on_undecoded, tuple(names))

    def of(self, columns: Sequence[str]) -> TypedBatches:
        """Return the batches of some columns: reads and decodes only the columns that these come from.

        To leave out a record that does not decode, it decodes all columns.
        """
        wanted = {self.source_of(name) for name in columns}
        wanted |= {*self.decoders} if self.on_undecoded == "skip" else set()
        decoders = {name: decoder for name, decoder in self.decoders.items() if name in wanted}
        return TypedBatches(decoders, self.on_undecoded, tuple(name for name in self.names if name in wanted))

    def with_schemas(self, schemas: Schemas) -> TypedBatches:
        """Return the same with others of the schemas that values were written by."""
        decoders = {
            name: decoder.with_schemas(schemas) if isinstance(decoder, Decoder) else decoder
            for name, decoder in self.decoders.items()
        }
        return TypedBatches(decoders, self.on_undecoded, self.names)

    def source_of(self, column: str) -> str:
        """Return the column of bytes that a column of its schema comes from."""
        beside = {f"{name}{end}": name for name in self.decoders for end in ("Raw", "Error")}
        return beside.get(column, column) if self.on_undecoded == "raw" else column

    def is_made(self, column: str) -> bool:
        """True if a column of its schema comes from bytes that are decoded."""
        return self.source_of(column) in self.decoders

    def list_needed_columns(self) -> list[str]:
        more = [name for decoder in self.decoders.values() for name in decoder.needs]
        if self.decoders and (self.on_undecoded == "raise" or any(map(_may_cut, self.decoders.values()))):
            more += ["topic", "partition", "offset"]
        return [*self.names, *dict.fromkeys(name for name in more if name not in self.names)]

    def schema(self, source: pa.Schema | None = None) -> pa.Schema:
        """Return the schema of the result; `source` (by default the schema of records) has the other columns."""
        source = schema(self.names) if source is None else source
        fields: list[pa.Field] = []
        for name in self.names:
            if name not in self.decoders:
                fields.append(source.field(name))
                continue
            fields.append(pa.field(name, self.decoders[name].type))
            if self.on_undecoded == "raw":
                fields += [pa.field(f"{name}Raw", pa.binary()), pa.field(f"{name}Error", pa.string())]
        return pa.schema(fields)

    def batches(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if not self.decoders:
            yield from batches
            return
        target: pa.Schema | None = None
        for batch in batches:
            target = target or self.schema(batch.schema)
            yield from self._decode_halving(batch, target)

    def _decode_halving(self, batch: pa.RecordBatch, target: pa.Schema) -> Iterator[pa.RecordBatch]:
        try:
            yield self._one(batch, target)
        except OverflowError:  # what it unfolds to is too much; a single value has a reason of its own
            half = batch.num_rows // 2
            if not half:
                raise
            yield from self._decode_halving(batch.slice(0, half), target)
            yield from self._decode_halving(batch.slice(half), target)

    def _one(self, batch: pa.RecordBatch, target: pa.Schema) -> pa.RecordBatch:
        arrays: list[pa.Array] = []
        bad: set[int] = set()
        for name in self.names:
            column = batch.column(name)
            if name not in self.decoders:
                arrays.append(column)
                continue
            array, errors = self._array(batch, name)
            arrays.append(array)
            if errors and self.on_undecoded == "raise":
                raise _make_error(batch, name, *next(iter(errors.items())))
            bad.update(errors)
            if self.on_undecoded == "raw":
                arrays += _raw(column, errors)
        if bad:
            with self._lock:
                self.undecoded += len(bad)
        decoded = pa.RecordBatch.from_arrays(arrays, schema=target)
        if not bad or self.on_undecoded != "skip":
            return decoded
        good = np.ones(batch.num_rows, np.bool_)
        good[[*bad]] = False
        return decoded.filter(pa.array(good))

    def _array(self, batch: pa.RecordBatch, name: str) -> tuple[pa.Array, dict[int, str]]:
        decoder = self.decoders[name]
        needs = [batch.column(need) for need in decoder.needs]
        if not isinstance(decoder, Decoder) or not decoder.may_cut:
            return decoder.decode(batch.column(name), *needs)
        array, errors = decoder.decode_exactly(batch.column(name), *needs)
        rows = decoder.cut_rows(array)
        if rows:
            topic, partition, offset = (batch.column(column) for column in ("topic", "partition", "offset"))
            reason = f"its {name} has a time with digits below a microsecond, which the column does not have"
            log = f"{topic[rows[0]]}-{partition[rows[0]]}"
            place = (offset[rows[0]].as_py(), offset[rows[-1]].as_py() + 1)
            with self._lock:
                add_of_column(self.gaps, Gap(log, GapKind.DIGITS, 0, 0, *place, reason, False, len(rows)))
        return with_type(array, decoder.type), errors


def _may_cut(decoder: Any) -> bool:
    return isinstance(decoder, Decoder) and decoder.may_cut


def _raw(column: pa.Array, errors: Mapping[int, str]) -> tuple[pa.Array, pa.Array]:
    """The bytes of values that did not decode, and the reasons."""
    if not errors:
        return pa.nulls(len(column), pa.binary()), pa.nulls(len(column), pa.string())
    rows = np.full(len(column), -1)
    rows[[*errors]] = np.arange(len(errors))
    picked = pa.array(rows, mask=rows < 0)
    return column.take(pa.array([*errors])).take(picked), pa.array([*errors.values()], pa.string()).take(picked)


def _make_error(batch: pa.RecordBatch, which: str, row: int, reason: str) -> CorruptionError:
    topic, partition, offset = (batch.column(name)[row].as_py() for name in ("topic", "partition", "offset"))
    return not_decoded(f"{topic}-{partition}", which, offset, reason)


def not_decoded(log: str, which: str, offset: int, reason: str) -> CorruptionError:
    """Return the error for a key or value that does not decode."""
    position = re.search(r"at byte (\d+)", reason)
    remedy = "on_undecoded='raw' keeps such bytes, 'skip' leaves the record out"
    where = f"{log}, the {which} of offset {offset}"
    return CorruptionError(where, int(position[1]) if position else 0, f"{reason}; {remedy}", offset)


def typed_batches(
    decoding: Decoding, disk: Disk, topics: Sequence[str], names: Sequence[str], read: Callable[[], Iterable[Chunk]]
) -> TypedBatches:
    """Choose the reader's schemas for records of topics; Without any other choice, `read` begins to read them."""

    def peek(which: str) -> Iterator[pa.RecordBatch]:
        return itertools.islice(record_batches(read(), schema([which, "headers"]), []), _PEEKED)

    own = _own_columns(decoding, topics, names, peek)
    if own:
        return TypedBatches(own, decoding.on_undecoded, tuple(names))
    source = decoding.registry
    schemas = source if isinstance(source, Schemas) else Schemas.open(schemas_disk(disk) if source is None else source)
    decoders = {}
    for which in decoding.columns:
        reader = reader_schema(decoding, schemas, topics, which, peek)
        message = decoding.message
        if message is None and reader.type == "PROTOBUF":
            message = first_message(schemas, reader, decoding, which, peek)
        decoders[which] = Decoder(schemas, reader, decoding, which, message)
    return TypedBatches(decoders, decoding.on_undecoded, tuple(names))


def _own_columns(
    decoding: Decoding, topics: Sequence[str], names: Sequence[str],
    peek: Callable[[str], Iterable[pa.RecordBatch]],
) -> Mapping[str, Decoder | MessageColumn | JsonColumn]:  # fmt: skip
    """The decoder of a topic that Kafka, Connect or a registry writes for itself; none for other topics."""
    for which in decoding.columns:
        if which not in names:
            raise RequestError(f"{which} is decoded, but is not among the columns {', '.join(names)}")
    topic = topics[0] if len(topics) == 1 else ""
    if decoding.schema is not None:
        return {}
    if len(topics) > 1 and (decoding.only_own or any(map(is_own, topics))):
        raise RequestError(f"the topics {', '.join(topics)} have different records: read one of them")
    own: dict[str, MessageColumn | JsonColumn] = {}
    if is_own(topic) or decoding.only_own:
        own = own_columns(
            topic, decoding.columns, peek, show_secrets=decoding.show_secrets,
            counts_rest=decoding.on_undecoded == "raw", form=decoding.form,
        )  # fmt: skip
    if decoding.only_own and not own:
        name = topic or "what is read"
        raise NotOwnError(f"{name} is not a topic that Kafka, Connect or a registry writes for itself")
    return own


def first_message(
    schemas: Schemas, reader: Schema, decoding: Decoding, which: str, peek: Callable[[str], Iterable[pa.RecordBatch]]
) -> str | None:
    """Return the message that the first record with a known schema is."""
    engine = ProtobufEngine(schemas, reader, decoding.recursion, None, lambda _: -_typed.UNKNOWN)
    for batch in peek(which):
        place, size, source = binary_spans(batch.column(which))
        by_header = _by_header(batch.column("headers"), which)
        framed = remove_frames(place, size, (source,), decoding.frame, by_header)
        for row in np.flatnonzero(framed.name >= 0).tolist():
            named = framed.names[framed.name[row]]
            writer = reader if named.kind != "id" else schemas.by_id(named.number, decoding.context)
            if named.kind == "guid":
                writer = schemas.by_guid(named.guid)
            message = engine.message_of(writer, named, framed, row) if writer is not None else None
            if message is not None:
                return message
    return None


def schemas_disk(disk: Disk) -> Disk:
    """Where the schemas of records are: here, or in the log directories that have these partitions and files."""
    if any(partition.topic == TOPIC for partition in disk.partitions):
        return disk
    folders = {os.path.dirname(partition.path) for partition in disk.partitions}
    folders |= {os.path.dirname(os.path.dirname(segment.path)) for segment in disk.loose}
    parents = [folder for folder in sorted(folders) if folder and "://" not in folder]
    try:
        return open_dir([os.path.join(folder, f"{TOPIC}-0") for folder in parents]) if parents else disk
    except PylogsegError:
        return disk


def reader_schema(
    decoding: Decoding, schemas: Schemas, topics: Sequence[str], which: str,
    peek: Callable[[str], Iterable[pa.RecordBatch]],
) -> Schema:  # fmt: skip
    wanted = decoding.wanted(which)
    if wanted is not None:
        return chosen_schema(schemas, wanted, decoding.context)
    prefix = "" if decoding.context == DEFAULT_CONTEXT else f":{decoding.context}:"
    versions = {schema for topic in topics if (schema := schemas.version(f"{prefix}{topic}-{which}")) is not None}
    if len(versions) > 1:
        raise RequestError(f"the topics {', '.join(topics)} have different schemas: read one of them, or give schema=")
    if versions:
        return versions.pop()
    for batch in peek(which):
        place, size, source = binary_spans(batch.column(which))
        by_header = _by_header(batch.column("headers"), which)
        for named in remove_frames(place, size, (source,), decoding.frame, by_header).names:
            if named.kind == "id":
                schema = schemas.by_id(named.number, decoding.context)
            elif named.kind == "guid":
                schema = schemas.by_guid(named.guid)
            else:
                numbers = {fingerprint(s.text): s for s in schemas if s.type == "AVRO"}
                schema = numbers.get(named.number) if named.kind == "fingerprint" else None
            if schema is not None:
                newest = None if schema.subject is None else schemas.version(schema.subject)
                return newest if newest is not None and newest.version is not None else schema
    hint = f" ({schemas.notes[0]})" if schemas.notes and not len(schemas) else ""
    names = ", ".join(f"{topic}-{which}" for topic in topics)
    raise RequestError(f"no schema is known for {names}{hint}: give schema= or registry=")


def decode_column(
    column: Any,
    schema: SchemaChoice,
    registry: str | os.PathLike[str] | Schemas | None = None,
    on_undecoded: RaiseOrNull = "raise",
    **options: Any,
) -> pa.Array:
    """Decode a column of binary values: keys or values with their frames, from wherever they come.

    Parameters
    ----------
    column : pyarrow.Array or pyarrow.ChunkedArray
        Binary.
    schema : str, int, path or Schema
        The reader's, as in `Decoding`.
    registry : path, URL or Schemas, optional
        Where the writers' schemas are; without it all values were written by `schema`.
    on_undecoded : {"raise", "null"}
        Action for a value that does not decode.
    **options
        ``frame``, ``context``, ``ids``, ``recursion`` and ``message`` of `Decoding`.

    Returns
    -------
    pyarrow.Array

    Raises
    ------
    CorruptionError
        With `on_undecoded` ``"raise"``: names the value and the position in its payload.
    """
    check_word("on_undecoded", on_undecoded, ("raise", "null"))
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return decoded_column(column_decoder(schema, registry, **options), array, None, on_undecoded)


def column_decoder(
    schema: SchemaChoice, registry: str | os.PathLike[str] | Schemas | None = None, **options: Any
) -> Decoder:
    """Return a decoder of columns by a schema; the arguments are ``form`` and the ones of `decode_column`."""
    decoding = Decoding(schema=schema, registry=registry, **options)
    schemas = registry if isinstance(registry, Schemas) else Schemas() if registry is None else Schemas.open(registry)
    return Decoder(schemas, chosen_schema(schemas, schema, decoding.context), decoding, "value", decoding.message)


def decoded_column(decoder: Decoder, column: pa.Array, headers: pa.Array | None, on_undecoded: RaiseOrNull) -> pa.Array:
    """Decode an array of values; a value that does not decode is null, or raises CorruptionError."""
    try:
        values, errors = decoder.decode(column, headers)
    except OverflowError as error:
        raise RequestError(str(error)) from None
    if errors and on_undecoded == "raise":
        row, reason = next(iter(errors.items()))
        remedy = "on_undecoded='null' gives null, and ids=[...] decodes values of these schemas only"
        raise bad_value(row, f"{reason} ({remedy})")
    return values


def chosen_schema(schemas: Schemas, wanted: SchemaChoice, context: str = DEFAULT_CONTEXT) -> Schema:
    if isinstance(wanted, Schema):
        return wanted
    if isinstance(wanted, int):
        schema = schemas.by_id(wanted, context)
        if schema is None:
            raise RequestError(schemas.missing(wanted, context))
        return schema
    text = os.fspath(wanted)
    if _TEXT.match(text):
        return Schema(text, "AVRO" if text.lstrip()[0] in '[{"' else "PROTOBUF")
    if text.lower().endswith((".avsc", ".avro", ".proto", ".json")) and os.path.exists(text):
        return schema_of_file(text)
    match = _VERSION.fullmatch(text)
    schema = schemas.version(text) or (schemas.version(match["subject"], int(match["version"])) if match else None)
    if schema is None:
        raise RequestError(
            f"there is no schema {text!r}: expected a file, a subject, subject:version, an id or the schema"
        )
    return schema


__all__: list[Any] = ["Decoder", "Decoding", "TypedBatches", "decode_column", "typed_batches"]
