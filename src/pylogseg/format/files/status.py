"""Small status files: ``partition.metadata``, ``quorum-state`` and ``.kafka_cleanshutdown``.

Rules: `docs/format.md`, "Status files".
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from pylogseg.errors import CorruptionError, RequestError
from pylogseg.format import bounded_json
from pylogseg.format.buffers import byte_view
from pylogseg.format.uuids import parse_uuid

_METADATA_LINE = re.compile(r"([^:\s]+):\s+(\S+)")
_NO_TOPIC = "A" * 22
_INT32_DIGITS = 10


class PartitionMetadata(NamedTuple):
    """Content of ``partition.metadata``: the id of the topic that a partition's folder belongs to."""

    topic_id: str  #: UUID as 22 characters.
    version: int = 0  #: 0; later ones are read alike.


def parse_partition_metadata(data: Any, path: str = "<partition.metadata>") -> PartitionMetadata:
    """Read ``partition.metadata``.

    Raises CorruptionError if a line is malformed, the version is negative or missing, or the topic id is missing, no
    UUID, or zero.
    """
    fields: dict[str, str] = {}
    position = 0
    for line in bytes(byte_view(data)).splitlines(keepends=True):
        match = _METADATA_LINE.fullmatch(line.decode("utf-8", "replace").strip())
        if match is None:
            raise CorruptionError(path, position, f"malformed line {line[:200]!r}")
        fields[match[1]] = match[2]
        position += len(line)
    version, topic_id = fields.get("version", ""), fields.get("topic_id", "")
    if not version.isascii() or not version.isdigit() or len(version) > _INT32_DIGITS:
        raise CorruptionError(path, 0, f"version is {version[:200]!r}, not a number from 0 on")
    try:
        parse_uuid(topic_id)
    except RequestError as error:
        raise CorruptionError(path, 0, f"topic_id: {error}") from None
    if topic_id == _NO_TOPIC:
        raise CorruptionError(path, 0, f"topic_id {topic_id} is the reserved zero UUID")
    return PartitionMetadata(topic_id, int(version))


def encode_partition_metadata(metadata: PartitionMetadata) -> bytes:
    """Make the text of ``partition.metadata``, without a line end; RequestError if the topic id is no UUID."""
    parse_uuid(metadata.topic_id)
    return f"version: {metadata.version}\ntopic_id: {metadata.topic_id}".encode()


class QuorumState(NamedTuple):
    """Content of ``quorum-state``: the node that this node of a KRaft quorum voted for and follows."""

    version: int  #: 0 (static voters) or 1.
    leader_id: int
    leader_epoch: int
    voted_id: int
    voted_directory_id: str | None = None  #: Version 1 only.
    voters: tuple[int, ...] = ()  #: Version 0 only.
    cluster_id: str | None = None  #: Version 0 only; mostly empty.


def parse_quorum_state(data: Any, path: str = "<quorum-state>") -> QuorumState:
    """Read ``quorum-state``; CorruptionError if it is not such a JSON object."""
    fields = _json_object(data)
    if fields is None:
        raise CorruptionError(path, 0, "not a JSON object")
    names = ("data_version", "leaderId", "leaderEpoch", "votedId")
    numbers: list[Any] = [fields.get(name) for name in names]
    voters = fields.get("currentVoters") or []
    if not all(_is_int32(number) for number in numbers):
        raise CorruptionError(path, 0, f"{', '.join(names)} are {str(numbers)[:200]}, not all numbers of 32 bits")
    if not isinstance(voters, list) or not all(isinstance(v, dict) and _is_int32(v.get("voterId")) for v in voters):
        raise CorruptionError(path, 0, f"currentVoters is not a list of voters: {str(voters)[:200]}")
    texts = [fields.get("votedDirectoryId"), fields.get("clusterId")]
    if not all(text is None or isinstance(text, str) for text in texts):
        raise CorruptionError(path, 0, f"votedDirectoryId and clusterId are not text: {str(texts)[:200]}")
    version, leader_id, leader_epoch, voted_id = numbers
    voter_ids = tuple(voter["voterId"] for voter in voters)
    return QuorumState(version, leader_id, leader_epoch, voted_id, texts[0], voter_ids, texts[1])


def encode_quorum_state(state: QuorumState) -> bytes:
    """Make the text of ``quorum-state``, as Kafka writes it: JSON without spaces or line end."""
    names = {"leaderId": state.leader_id, "leaderEpoch": state.leader_epoch, "votedId": state.voted_id}
    fields: dict[str, Any]
    if state.version == 0:
        voters = [{"voterId": voter} for voter in state.voters]
        fields = {"clusterId": state.cluster_id or "", **names, "appliedOffset": 0, "currentVoters": voters}
    elif state.version == 1:
        fields = {**names, "votedDirectoryId": state.voted_directory_id or _NO_TOPIC}
    else:
        raise RequestError(f"quorum-state has no version {state.version}")
    return json.dumps({**fields, "data_version": state.version}, separators=(",", ":")).encode()


def parse_clean_shutdown(data: Any) -> int | None:
    """Read the broker epoch from ``.kafka_cleanshutdown``; None where there is none.

    That the file exists says that the stop was clean: older brokers left it empty, and text that cannot be read is no
    error to a broker either.
    """
    fields = _json_object(data) or {}
    epoch = fields.get("brokerEpoch")
    is_epoch = isinstance(epoch, int) and not isinstance(epoch, bool) and 0 <= epoch < 2**63
    return epoch if is_epoch else None


def encode_clean_shutdown(broker_epoch: int | None) -> bytes:
    """Make the text of ``.kafka_cleanshutdown``; an epoch of None is written as -1."""
    epoch = -1 if broker_epoch is None else broker_epoch
    return json.dumps({"version": 0, "brokerEpoch": epoch}, separators=(",", ":")).encode()


def _json_object(data: Any) -> dict[str, Any] | None:
    try:
        value = bounded_json.loads(bytes(byte_view(data)))
    except (ValueError, RecursionError):  # bad bytes, bad JSON, a number of 5,000 digits; nested too deeply
        return None
    return value if isinstance(value, dict) else None


def _is_int32(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -(2**31) <= value < 2**31
