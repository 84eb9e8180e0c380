"""What control records say: their keys, the markers of transactions, the messages of the metadata log."""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable
from typing import Any

from reference.varint import read_unsigned

TYPES = ("ABORT", "COMMIT", "LEADER_CHANGE", "SNAPSHOT_HEADER", "SNAPSHOT_FOOTER", "KRAFT_VERSION", "KRAFT_VOTERS")


class ControlError(ValueError):
    """The bytes are no control record."""


def control_type(key: bytes | None) -> str:
    """Return the type of a control record by its key; one that is not known is ``UNKNOWN``."""
    if key is None or len(key) < 4:
        raise ControlError("key below 4 bytes")
    version, number = struct.unpack_from(">hh", key)
    if version < 0:
        raise ControlError(f"version {version}")
    return TYPES[number] if 0 <= number < len(TYPES) else "UNKNOWN"


def coordinator_epoch(value: bytes | None) -> int:
    """Return the coordinator epoch in the value of a marker; newer versions read as the first."""
    if value is None or len(value) < 6:
        raise ControlError("marker below 6 bytes")
    version, epoch = struct.unpack_from(">hi", value)
    if version < 0:
        raise ControlError(f"version {version}")
    return int(epoch)


class Reader:
    """Fields of a flexible message, one after the other."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def number(self, form: str) -> int:
        """Read a number of `struct`'s ``form``."""
        (value,) = struct.unpack_from(f">{form}", self.data, self.at)
        self.at += struct.calcsize(form)
        return int(value)

    def varint(self) -> int:
        """Read an unsigned varint."""
        value, self.at = read_unsigned(self.data, self.at)
        return value

    def take(self, size: int) -> bytes:
        """Read ``size`` bytes."""
        self.at += size
        return self.data[self.at - size : self.at]

    def string(self) -> str:
        """Read a compact string."""
        return self.take(self.varint() - 1).decode()

    def uuid(self) -> str:
        """Read a UUID, as Kafka writes it in text."""
        return base64.urlsafe_b64encode(self.take(16)).decode().rstrip("=")

    def array(self, item: Callable[[], Any]) -> list[Any]:
        """Read a compact array."""
        return [item() for _ in range(self.varint() - 1)]

    def tags(self) -> None:
        """Skip tagged fields."""
        for _ in range(self.varint()):
            self.varint()
            self.take(self.varint())


def message(kind: str, value: bytes) -> dict[str, Any]:
    """Return the fields of a message of the metadata log (types 2 to 6)."""
    reader = Reader(value)
    out: dict[str, Any] = {"version": reader.number("h")}
    if kind == "LEADER_CHANGE":
        out["leader_id"] = reader.number("i")
        out["voters"] = reader.array(lambda: leader_voter(reader, out["version"]))
        out["granting_voters"] = reader.array(lambda: leader_voter(reader, out["version"]))
    elif kind == "SNAPSHOT_HEADER":
        out["last_contained_log_timestamp"] = reader.number("q")
    elif kind == "KRAFT_VERSION":
        out["kraft_version"] = reader.number("h")
    elif kind == "KRAFT_VOTERS":
        out["voters"] = reader.array(lambda: voter(reader))
    reader.tags()
    if reader.at != len(value):
        raise ControlError("bytes left behind the message")
    return out


def leader_voter(reader: Reader, version: int) -> dict[str, Any]:
    """Read a voter of a LEADER_CHANGE message."""
    out: dict[str, Any] = {"voter_id": reader.number("i")}
    if version > 0:
        out["voter_directory_id"] = reader.uuid()
    reader.tags()
    return out


def voter(reader: Reader) -> dict[str, Any]:
    """Read a voter of a KRAFT_VOTERS message."""
    out = {"voter_id": reader.number("i"), "voter_directory_id": reader.uuid()}
    out["endpoints"] = reader.array(lambda: endpoint(reader))
    out["kraft_version_feature"] = {"min": reader.number("h"), "max": reader.number("h")}
    reader.tags()
    reader.tags()
    return out


def endpoint(reader: Reader) -> dict[str, Any]:
    """Read an endpoint of a voter."""
    out = {"name": reader.string(), "host": reader.string(), "port": reader.number("H")}
    reader.tags()
    return out
