"""The columns of a table with topic, partition, offset, key and value: presets of the programs that write tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import pyarrow as pa

from pylogseg.errors import RequestError
from pylogseg.lakehouse.audit_values import common_type

#: What an audit asks of a table; only the offset must be there, or, said to be missing, the timestamp.
ROLES = ("topic", "partition", "offset", "key", "value", "timestamp")

#: Columns by writer. The first whose offset a table has is taken. A dot stands between a struct and its field.
PRESETS: dict[str, dict[str, str]] = {
    # Redpanda's Iceberg topics: `build_rp_struct` in redpanda's src/v/datalake/table_definition.cc, and "How Iceberg
    # modes translate to table format" in specify-iceberg-schema.adoc of redpanda-data/docs. The value is a column of
    # bytes in the mode key_value only; elsewhere a column of this name would be a field of a schema. From 26.2 on,
    # `redpanda.iceberg.mode` may have a section that decodes the key.
    "redpanda": {
        "partition": "redpanda.partition",
        "offset": "redpanda.offset",
        "key": "redpanda.key",
        "value": "value",
    },
    # Aiven's Iceberg topics: "Table schema" in iceberg_whitepaper.md of Aiven-Open/tiered-storage-for-apache-kafka. Its
    # `value_raw` has only values that could not be decoded, and is null for all others: it is not compared.
    "aiven": {"partition": "kafka.partition", "offset": "kafka.offset", "key": "key_raw"},
    # AutoMQ's Table Topic: RecordAssembler.java in core/src/main/java/kafka/automq/table/process; `_kafka_value` where
    # the value is not flattened. With a topic it is Connect's transformation of metadata with nested=true.
    "automq": {
        "topic": "_kafka_metadata.topic",
        "partition": "_kafka_metadata.partition",
        "offset": "_kafka_metadata.offset",
        "key": "_kafka_key",
        "value": "_kafka_value",
    },
    # Confluent's Tableflow: the columns behind those of the value, as lists of its tables have them (its documents do
    # not). Iceberg and Delta share the files; in Delta, columns are mapped by their numbers.
    "tableflow": {
        "topic": "$$topic",
        "partition": "$$partition",
        "offset": "$$offset",
        "key": "$$raw-key",
        "value": "$$raw-value",
    },
    # Connect's Iceberg sink with KafkaMetadataTransform.java of apache/iceberg (kafka-connect-transforms), as it is set
    # by default: flat.
    "connect": {
        "topic": "_kafka_metadata_topic",
        "partition": "_kafka_metadata_partition",
        "offset": "_kafka_metadata_offset",
    },
    # Connect with InsertField of Kafka. The names are the user's: these are the most usual ones (apache/iceberg 12549).
    "insertfield": {"topic": "__kafka_topic", "partition": "__kafka_partition", "offset": "__kafka_offset"},
    # Ours; Spark's Kafka source (kafkaSchemaWithoutHeaders in KafkaRecordToRowConverter.scala); the S3 sink of Aiven
    # with format.output.fields=key,value,offset,timestamp, which has topic and partition in the names of files only;
    # and most that is written by hand.
    "kafka": {"topic": "topic", "partition": "partition", "offset": "offset", "key": "key", "value": "value"},
}
#: Who writes no row for a null value: Connect's Iceberg sink, `write` in IcebergWriter.java of apache/iceberg.
_WITHOUT_TOMBSTONES = ("connect", "insertfield")


class RoleColumn(NamedTuple):
    """A column of a table that has a role, or a field of a struct."""

    role: str
    path: tuple[str, ...]  #: Names from the table's column to the field.
    type: pa.DataType

    @property
    def name(self) -> str:
        return ".".join(self.path)


class TableColumns(NamedTuple):
    """The columns of a table by their roles."""

    preset: str  #: Empty if all were given.
    columns: tuple[RoleColumn, ...]
    typed: tuple[str, ...]  #: Keys or values that are there, but not as bytes or text: these cannot be compared.

    def get(self, role: str) -> RoleColumn | None:
        """Return the column with a role, if there is one."""
        return next((column for column in self.columns if column.role == role), None)

    @property
    def compared(self) -> tuple[str, ...]:
        """The roles of the columns whose content is compared with the log."""
        return tuple(column.role for column in self.columns if column.role in ("key", "value"))

    @property
    def by_time(self) -> bool:
        """True if there are no offsets."""
        return self.get("offset") is None

    @property
    def decoded(self) -> tuple[RoleColumn, ...]:
        """The columns that have decoded values, as ``value.amount``; ``value.`` is a value that is no record."""
        return tuple(column for column in self.columns if "." in column.role)

    def with_decoded(self, schema: pa.Schema, which: str, ours: pa.DataType) -> TableColumns:
        """Return the columns with decoded keys or values, if the table has columns for them.

        These are the fields of the table's column of that name, else columns of the table itself.
        """
        place = _find(schema, PRESETS.get(self.preset, {}).get(which, which)) or _find(schema, which)
        whole = None if place is None or _is_bytes(place[1]) else place
        if whole is not None and not pa.types.is_struct(ours):
            kind = common_type(ours, whole[1])
            parts = [] if kind is None else [RoleColumn(f"{which}.", whole[0], kind)]
        else:
            parts = []
            for field in ours if pa.types.is_struct(ours) else ():
                there = _find(schema, field.name) if whole is None else _field(whole, field.name)
                kind = None if there is None else common_type(field.type, there[1])
                if there is not None and kind is not None:
                    parts.append(RoleColumn(f"{which}.{field.name}", there[0], kind))
        if not parts:
            raise RequestError(f"the table has no column for the decoded {which} ({ours}): it cannot be compared")
        kept = tuple(column for column in self.columns if column.role != which)
        return self._replace(columns=(*kept, *parts), typed=tuple(name for name in self.typed if name != which))

    def without(self, roles: Iterable[str]) -> TableColumns:
        """Return the columns without some roles."""
        gone = {*roles}
        return self._replace(columns=tuple(column for column in self.columns if column.role not in gone))

    @property
    def has_tombstones(self) -> bool:
        """True if a record with a null value has a row."""
        nested = self.preset == "automq" and self.get("topic") is not None
        return not (nested or self.preset in _WITHOUT_TOMBSTONES)

    def only(self, compared: Iterable[str]) -> TableColumns:
        """Return the columns of which no other content than this is compared."""
        kept = {*compared, "topic", "partition", "offset"}
        return self._replace(columns=tuple(column for column in self.columns if column.role in kept))


def parse_columns(settings: Iterable[str]) -> dict[str, str]:
    """Return columns by role from texts ``ROLE=COLUMN``; an empty column says that there is none.

    >>> parse_columns(["offset=meta.offset", "key="])
    {'offset': 'meta.offset', 'key': ''}
    """
    columns = {}
    for setting in settings:
        role, equals, name = setting.partition("=")
        if not equals or role not in ROLES:
            raise RequestError(f"invalid columns {setting!r}: expected ROLE=COLUMN, with a role of {', '.join(ROLES)}")
        columns[role] = name
    return columns


def find_columns(schema: pa.Schema, table: str, given: Mapping[str, str], preset: str | None = None) -> TableColumns:
    """Return the columns of a schema by role: from `given`, or else from a preset.

    Raises RequestError if there is no column of offsets, or one that is named is missing or has another type.
    """
    if preset is not None and preset not in PRESETS:
        raise RequestError(f"no preset {preset!r}: there are {', '.join(PRESETS)}")
    by_time = given.get("offset") == ""
    chosen = preset or next((name for name, by in PRESETS.items() if _find(schema, by["offset"]) is not None), "")
    if by_time and preset is None:
        chosen = "kafka"
    if not chosen and "offset" not in given:
        raise RequestError(
            f"{table} has no column of offsets that is known (its columns: {', '.join(schema.names)}); "
            "say which they are: --columns offset=meta.offset --columns partition=meta.partition; or that there is "
            "none, and what the times are: --columns offset= --columns timestamp=ts"
        )
    wanted = {**PRESETS.get(chosen, {}), **({"timestamp": "timestamp"} if by_time else {}), **given}
    columns, typed = [], []
    for role in ROLES if by_time else ROLES[:-1]:
        name = wanted.get(role) or ""
        column = _find(schema, name) if name else None
        if name and column is None and (role in given or role in ("offset", "timestamp")):
            raise RequestError(f"{table} has no column {name} for the {role}; its columns: {', '.join(schema.names)}")
        if column is None:
            continue
        path, kind = column
        if role in ("partition", "offset") and not _may_be_whole(kind):
            raise RequestError(f"{table}: column {name}, for the {role}, has the type {kind}, not whole numbers")
        if role == "timestamp" and not (pa.types.is_integer(kind) or pa.types.is_timestamp(kind)):
            raise RequestError(f"{table}: column {name}, for the timestamp, has the type {kind}, not times")
        if role == "topic" and not _is_bytes(kind):
            raise RequestError(f"{table}: column {name}, for the topic, has the type {kind}, not text")
        is_decoded = chosen == "redpanda" and role == "value" and role not in given and len(schema.names) > 2
        if is_decoded or (role in ("key", "value") and not _is_bytes(kind)):
            typed.append(role)
        else:
            columns.append(RoleColumn(role, path, kind))
    if by_time and not any(column.role in ("key", "value") for column in columns):
        raise RequestError(f"{table} has neither offsets nor keys or values as bytes: there is nothing to compare")
    return TableColumns(chosen, tuple(columns), tuple(typed))


def _may_be_whole(kind: pa.DataType) -> bool:
    """Check whether values of a type may be exact whole numbers: the reader looks at each value."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    is_decimal = pa.types.is_decimal(kind) and kind.scale == 0
    return bool(pa.types.is_integer(kind) or pa.types.is_float64(kind) or is_decimal or is_text)


def _field(column: tuple[tuple[str, ...], pa.DataType], name: str) -> tuple[tuple[str, ...], pa.DataType] | None:
    path, kind = column
    if not pa.types.is_struct(kind) or [field.name for field in kind].count(name) != 1:
        return None
    return (*path, name), kind.field(name).type


def _is_bytes(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    is_plain = pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind)
    return bool(is_text or is_plain or pa.types.is_fixed_size_binary(kind))


def _find(schema: pa.Schema, name: str) -> tuple[tuple[str, ...], pa.DataType] | None:
    """Find a column by its name, even with dots; or else the field of a struct.

    Where no name is the same, one counts that differs in capital letters, if it is the only one.
    """
    for is_same in (True, False):
        for path in ((name,), tuple(name.split("."))):
            if (place := _at(schema, path, is_same)) is not None:
                return place
    return None


def _at(fields: Any, path: tuple[str, ...], is_same: bool) -> tuple[tuple[str, ...], pa.DataType] | None:
    steps = []
    for i, part in enumerate(path):
        inner = fields if i == 0 or pa.types.is_struct(fields) else ()
        names = [
            field
            for field in inner
            if (field.name if is_same else field.name.lower()) == (part if is_same else part.lower())
        ]
        if len(names) != 1:
            return None
        steps.append(names[0].name)
        fields = names[0].type
    return tuple(steps), fields
