"""Requests of clients that were recorded with a broker's answers, asked again and compared field by field.

Answers are decoded by kio, which knows nothing of our codec. Ids that a server makes up are learned from the answers
and put into the requests that follow. A recording is a file of JSON lines: a request in base64, and the broker's answer
in fields, in which bytes are told by length and SHA-1.
"""

from __future__ import annotations

import base64
import dataclasses
import datetime
import hashlib
import json
import lzma
import socket
import struct
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import kio.index
from kio.serial import entity_reader

from pylogseg.format.messages import wire

#: What one server makes up: learned from its answers, and put into requests.
MADE_UP = {"member_id": "memberId", "session_id": "sessionId", "leader": "memberId"}
#: What two servers say differently of the same files, and why.
EXPECTED = {
    "host": "an address",
    "port": "an address",
    "throttle_time": "a broker's quota",
    "api_keys": "what a read-only server offers",
    "supported_features": "what a read-only server offers",
    "finalized_features": "what a read-only server offers",
    "finalized_features_epoch": "what a read-only server offers",
    "zk_migration_ready": "what a read-only server offers",
    "error_message": "words",
    "topic_authorized_operations": "no access lists",
    "cluster_authorized_operations": "no access lists",
    **dict.fromkeys(MADE_UP, "made up by a server"),
}
#: Lists whose order says nothing, with the field that they are sorted by.
UNORDERED = {
    "topics": ("name", "topic", "topic_id"),
    "responses": ("topic", "topic_id"),
    "partitions": ("partition_index", "partition", "index"),
    "groups": ("group_id",),
}
#: Answers of these depend on the moment: KIP-848 assigns from beat to beat, and telemetry is not offered.
LEFT_OUT = {68, 71, 72, 0, 22}
#: Commits and fetches of a group's offsets, and a beat of a member of the new protocol.
OFFSETS, HEARTBEAT = (8, 9), 68
#: A client's fetch waits so long at most: nothing comes.
WAIT_MS = 5
PATIENCE_S = 20.0
_INT32 = struct.Struct(">i")


class Recorded(NamedTuple):
    """A request, and the fields of the answer that a broker gave."""

    client: str
    connection: int
    key: int
    version: int
    request: bytes
    answer: Any


def recorded(exchanges: Iterable[Any]) -> Iterator[Recorded]:
    """Decode what a recorder has kept, but for versions that kio does not know: 4.4 has some, our server none.

    Offsets of a group that heartbeats hold together are left out with these: without them there is no such group.
    """
    kept = [each for each in exchanges if each.client and each.answer]
    held = {group for each in kept for group in groups(each.request, (HEARTBEAT,))}
    for each in kept:
        key, version = struct.unpack_from(">hh", each.request)
        try:
            kio.index.load_response_schema(key, version)
        except kio.index.UnknownEntity:
            continue
        if key not in LEFT_OUT and not held & groups(each.request, OFFSETS):
            yield Recorded(
                each.client, each.connection, key, version, each.request, fields_of(key, version, each.answer)
            )


def groups(request: bytes, keys: tuple[int, ...]) -> set[str]:
    """The groups that a request with one of these keys is for."""
    header = wire.read_header(request)
    of = wire.request_of(header.key)
    if header.key not in keys or of is None or header.end < 0:
        return set()
    values, _ = wire.decode_body(of, header.version, request, header.end)
    return {one["groupId"] for one in (values, *values.get("groups", ())) if one.get("groupId")}


def save(path: Path, exchanges: Iterable[Recorded]) -> None:
    """Write a recording."""
    with lzma.open(path, "wt", encoding="utf-8", preset=9) as file:
        for each in exchanges:
            row = each._replace(request=base64.b64encode(each.request).decode())
            file.write(json.dumps(row) + "\n")


def load(path: Path) -> list[Recorded]:
    """Read a recording."""
    with lzma.open(path, "rt", encoding="utf-8") as file:
        rows = [Recorded(*json.loads(line)) for line in file]
    return [each._replace(request=base64.b64decode(each.request)) for each in rows]


# ---- answers as plain values ----


def fields_of(key: int, version: int, frame: bytes) -> Any:
    """Decode an answer by kio."""
    # ApiVersions answers an unknown version in version 0, with error 35 and a header that never changes.
    is_unknown = key == wire.API_VERSIONS and frame[4:6] == b"\0\x23"
    response = kio.index.load_response_schema(key, 0 if is_unknown else version)
    _, size = entity_reader(response.__header_schema__)(frame, 0)
    found, end = entity_reader(response)(frame, size)
    assert size + end == len(frame), f"{len(frame) - size - end} bytes behind the answer {key} {version}"
    return plain(found)


def plain(value: Any) -> Any:
    """An answer as JSON."""
    if dataclasses.is_dataclass(value):
        return {each.name: plain(getattr(value, each.name)) for each in dataclasses.fields(value)}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if isinstance(value, (bytes, bytearray, memoryview)):
        return f"{len(value)} {hashlib.sha1(value).hexdigest()}" if value else ""
    if isinstance(value, (datetime.datetime, datetime.timedelta, uuid.UUID)):
        return str(value)
    return value if value is None or isinstance(value, (bool, int, str, float)) else str(value)


# ---- asking again ----


class Difference(NamedTuple):
    """A field that differs."""

    client: str
    key: int
    version: int
    where: str
    theirs: Any
    ours: Any


def replay(
    exchanges: Iterable[Recorded], bootstrap: str, suffix: str = ""
) -> tuple[Counter[tuple[str, int, int]], list[Difference]]:
    """Ask one client's requests again, in their order; what was compared, and what differs.

    Parameters
    ----------
    exchanges : iterable of Recorded
        Of one client.
    bootstrap : str
        Address of a server of the same files.
    suffix : str
        Put behind the names of groups, where the server knows them already.
    """
    host, _, port = bootstrap.rpartition(":")
    connections: dict[int, socket.socket] = {}
    learned: dict[tuple[str, Any], Any] = {}
    compared: Counter[tuple[str, int, int]] = Counter()
    differences: list[Difference] = []
    try:
        for each in exchanges:
            if each.connection not in connections:
                connections[each.connection] = socket.create_connection((host, int(port)), PATIENCE_S)
            try:
                frame = ask(connections[each.connection], again(each, learned, suffix))
                ours = fields_of(each.key, each.version, frame)
            except (OSError, EOFError) as error:
                differences.append(Difference(each.client, each.key, each.version, "no answer", None, str(error)))
                connections.pop(each.connection).close()
                continue
            compared[each.client, each.key, each.version] += 1
            differences += [
                Difference(each.client, each.key, each.version, *one)
                for one in differ(each.answer, ours, learned, suffix)
            ]
    finally:
        for connection in connections.values():
            connection.close()
    return compared, differences


def ask(connection: socket.socket, frame: bytes) -> bytes:
    """Send a frame, and return the answer's."""
    connection.sendall(frame)
    with connection.makefile("rb", buffering=0) as stream:
        return exactly(stream.read, _INT32.unpack(exactly(stream.read, 4))[0])


def exactly(read: Callable[[int], bytes], size: int) -> bytes:
    """Read so many bytes; EOFError where there are none."""
    data = b""
    while len(data) < size:
        piece = read(size - len(data))
        if not piece:
            raise EOFError("the connection was closed")
        data += piece
    return data


def again(each: Recorded, learned: dict[tuple[str, Any], Any], suffix: str) -> bytes:
    """The request with the ids of this server, and without long waits."""
    header = wire.read_header(each.request)
    of = wire.request_of(each.key)
    if header.end < 0 or of is None:  # a version that nobody has: to be refused
        return _INT32.pack(len(each.request)) + each.request
    values, end = wire.decode_body(of, each.version, each.request, header.end)
    if each.key == 1:
        values["maxWaitMs"] = min(values["maxWaitMs"], WAIT_MS)
    values = put(values, learned, suffix)
    if each.key == 10 and suffix:
        values["key"] = values["key"] + suffix
        values["coordinatorKeys"] = [one + suffix for one in values["coordinatorKeys"]]
    frame = wire.request(each.key, each.version, header.correlation, header.client, values)
    rest = each.request[end:]  # librdkafka sends three bytes too many behind Metadata 13
    return _INT32.pack(len(frame) - 4 + len(rest)) + frame[4:] + rest


def put(value: Any, learned: dict[tuple[str, Any], Any], suffix: str) -> Any:
    """Replace ids that are known by another name here."""
    if isinstance(value, list):
        return [put(each, learned, suffix) for each in value]
    if not isinstance(value, dict):
        return value
    found = {}
    for name, each in value.items():
        if name in ("groupId", "groups") and isinstance(each, str):
            found[name] = each + suffix
        elif name == "groups" and isinstance(each, list) and all(isinstance(one, str) for one in each):
            found[name] = [one + suffix for one in each]
        elif isinstance(each, (list, dict)):
            found[name] = put(each, learned, suffix)
        else:
            found[name] = learned.get((name, each), each)
    return found


def differ(
    theirs: Any, ours: Any, learned: dict[tuple[str, Any], Any], suffix: str, where: str = ""
) -> Iterator[tuple[str, Any, Any]]:
    """Fields of two answers that differ; what a server makes up is learned."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for name, value in theirs.items():
            if name in MADE_UP and type(value) is type(ours[name]):
                learned[MADE_UP[name], value] = ours[name]
            if name in EXPECTED:
                continue
            one, other = value, ours[name]
            if name in UNORDERED and isinstance(one, list) and isinstance(other, list):
                one, other = (in_order(each, UNORDERED[name]) for each in (one, other))
            yield from differ(one, other, learned, suffix, f"{where}.{name}")
    elif isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        for number, (one, other) in enumerate(zip(theirs, ours, strict=True)):
            yield from differ(one, other, learned, suffix, f"{where}[{number}]")
    elif theirs != ours and not (suffix and isinstance(theirs, str) and f"{theirs}{suffix}" == ours):
        yield where, theirs, ours


def in_order(rows: list[Any], names: tuple[str, ...]) -> list[Any]:
    """Sort rows by the first of some fields that they have."""
    return sorted(rows, key=lambda row: str([row[name] for name in names if isinstance(row, dict) and name in row][:1]))
