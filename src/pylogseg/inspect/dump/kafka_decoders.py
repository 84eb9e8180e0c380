"""Records of Kafka's own topics as its dump tool shows them with the decoder of their topic."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import numpy as np

from pylogseg.errors import CorruptionError
from pylogseg.format.messages.codec import MalformedError, decode_message
from pylogseg.format.messages.framing import Part, decode_coordinator, decode_framed
from pylogseg.format.messages.schema import message
from pylogseg.format.messages.text import framed_text, key_text, text_of, value_text
from pylogseg.format.names import METADATA_TOPIC
from pylogseg.format.records import RecordColumns
from pylogseg.format.text import Texts
from pylogseg.inspect.dump.kafka_options import KafkaFailure, KafkaOptions

_REMOTE = "__remote_log_metadata"
_SEGMENT_STATES = ("COPY_SEGMENT_STARTED", "COPY_SEGMENT_FINISHED", "DELETE_SEGMENT_STARTED", "DELETE_SEGMENT_FINISHED")
_DELETE_STATES = ("DELETE_PARTITION_MARKED", "DELETE_PARTITION_STARTED", "DELETE_PARTITION_FINISHED")
#: Takes key, value and offset of a record; returns what stands behind its metadata.
Decoder = Callable[[bytes | None, bytes | None, int], str]


def _coordinator(topic: str) -> Decoder:
    def decode(key: bytes | None, value: bytes | None, offset: int) -> str:
        if key is None:
            reason = (
                f"Failed to decode message at offset {offset} using offset topic decoder (message had a missing key)"
            )
            raise KafkaFailure("java.lang.RuntimeException", reason)
        try:
            first, second = decode_coordinator(topic, key, value, offset=offset)
        except CorruptionError as error:
            return f" key: Error at offset {offset}, skipping. {error.reason}"
        if first.message is None or first.fields is None or second.message is None:
            return f" key: Unknown record type {first.number} at offset {offset}, skipping."
        if value is not None and second.fields is None:
            return f" key: Error at offset {offset}, skipping. Unknown version {second.version}"
        return f" key: {key_text(first)} payload: {'<DELETE>' if second.fields is None else _value_text(second)}"

    return decode


def _value_text(part: Part) -> str:
    assert part.message is not None
    assert part.fields is not None
    if part.message.name == "GroupMetadataValue" and part.fields["protocolType"] == "consumer":
        return value_text(part, _with_members(text_of(part.message, part.version, part.fields), part.fields))
    return value_text(part)


def _with_members(text: str, fields: dict[str, Any]) -> str:
    """Put the consumers' own structs in place of the bytes of each member."""
    at = text.index('"members":')
    pieces, rest = [], text[at:]
    for member in fields["members"]:
        for name, schema in (
            ("subscription", "ConsumerProtocolSubscription"),
            ("assignment", "ConsumerProtocolAssignment"),
        ):
            label = f'"{name}":"{base64.b64encode(member[name]).decode()}"'
            before, _, rest = rest.partition(label)
            pieces += [before, f'"{name}":{_consumer_text(schema, member[name])}']
    return text[:at] + "".join(pieces) + rest


def _consumer_text(name: str, raw: bytes) -> str:
    of = message(name)
    version = min(int.from_bytes(raw[:2], "big", signed=True), of.versions.last)
    try:
        if len(raw) < 2 or version < 0:
            raise MalformedError("no version")
        return text_of(of, version, decode_message(of, version, raw, 2)[0])
    except MalformedError:
        return f'"{base64.b64encode(raw).decode()}"'


def _cluster_metadata(_: bytes | None, value: bytes | None, offset: int) -> str:
    part = _decode_framed(METADATA_TOPIC, value, offset)
    return part if isinstance(part, str) else f" payload: {framed_text(part)}"


def _decode_framed(topic: str, value: bytes | None, offset: int) -> Part | str:
    """A record, or the reason as text if it does not decode."""
    try:
        part = decode_framed(topic, value or b"", offset=offset)
    except CorruptionError as error:
        return f" payload: Error at {offset}, skipping. {error.reason}"
    if part.message is None or part.fields is None:
        return f" payload: Error at {offset}, skipping. Unknown metadata id {part.number} or version {part.version}"
    if part.trailing:
        garbage = f"Found {len(part.trailing)} byte(s) of garbage after {part.message.name}"
        return f" payload: Error at {offset}, skipping. {garbage}"
    return part


def _remote_log_metadata(_: bytes | None, value: bytes | None, offset: int) -> str:
    part = _decode_framed(_REMOTE, value, offset)
    if isinstance(part, str):
        return part
    assert part.message is not None
    assert part.fields is not None
    if part.message.name not in _REMOTE_TEXTS:  # of a file format of Kafka 3, never in the topic
        return f" payload: Error at {offset}, skipping. {part.message.name} is not a record of the topic"
    return f" payload: {_REMOTE_TEXTS[part.message.name](part.fields)}"


def _state(names: tuple[str, ...], number: int) -> str:
    return names[number] if 0 <= number < len(names) else f"null({number})"


def _partition_id(fields: dict[str, Any]) -> str:
    return f"{fields['id']}:{fields['name']}-{fields['partition']}"


def _segment_id(fields: dict[str, Any]) -> str:
    at = _partition_id(fields["topicIdPartition"])
    return f"RemoteLogSegmentId{{topicIdPartition={at}, id={fields['id']}}}"


def _custom(raw: bytes | None) -> str:
    return "Optional.empty" if raw is None else f"Optional[CustomMetadata{{{len(raw)} bytes}}]"


def _segment_text(f: dict[str, Any]) -> str:
    epochs = sorted((epoch["leaderEpoch"], epoch["offset"]) for epoch in f["segmentLeaderEpochs"])
    return (
        f"RemoteLogSegmentMetadata{{remoteLogSegmentId={_segment_id(f['remoteLogSegmentId'])}, "
        f"startOffset={f['startOffset']}, endOffset={f['endOffset']}, brokerId={f['brokerId']}, "
        f"maxTimestampMs={f['maxTimestampMs']}, eventTimestampMs={f['eventTimestampMs']}, "
        f"segmentLeaderEpochs={{{', '.join(f'{epoch}={offset}' for epoch, offset in epochs)}}}, "
        f"segmentSizeInBytes={f['segmentSizeInBytes']}, customMetadata={_custom(f['customMetadata'])}, "
        f"state={_state(_SEGMENT_STATES, f['remoteLogSegmentState'])}, "
        f"txnIdxEmpty={'true' if f['txnIndexEmpty'] else 'false'}}}"
    )


def _update_text(f: dict[str, Any]) -> str:
    return (
        f"RemoteLogSegmentMetadataUpdate{{remoteLogSegmentId={_segment_id(f['remoteLogSegmentId'])}, "
        f"customMetadata={_custom(f['customMetadata'])}, state={_state(_SEGMENT_STATES, f['remoteLogSegmentState'])}, "
        f"eventTimestampMs={f['eventTimestampMs']}, brokerId={f['brokerId']}}}"
    )


def _delete_text(f: dict[str, Any]) -> str:
    return (
        f"RemotePartitionDeleteMetadata{{topicPartition={_partition_id(f['topicIdPartition'])}, "
        f"state={_state(_DELETE_STATES, f['remotePartitionDeleteState'])}, "
        f"eventTimestampMs={f['eventTimestampMs']}, brokerId={f['brokerId']}}}"
    )


_REMOTE_TEXTS: dict[str, Callable[[dict[str, Any]], str]] = {
    "RemoteLogSegmentMetadataRecord": _segment_text,
    "RemoteLogSegmentMetadataUpdateRecord": _update_text,
    "RemotePartitionDeleteMetadataRecord": _delete_text,
}
_COORDINATORS = {
    "offsets_decoder": "__consumer_offsets",
    "transaction_log_decoder": "__transaction_state",
    "share_group_state_decoder": "__share_group_state",
}
_BY_OPTION: dict[str, Decoder] = {
    **{option: _coordinator(topic) for option, topic in _COORDINATORS.items()},
    "cluster_metadata_decoder": _cluster_metadata,
    "remote_log_metadata_decoder": _remote_log_metadata,
}


def texts_of(options: KafkaOptions, columns: RecordColumns, decoder: Decoder) -> tuple[Texts, KafkaFailure | None]:
    """Return the texts behind the metadata of records, and the failure that ends the dump, if any."""
    from pylogseg.values.internal.message_text import coordinator_texts, dump_texts, join_texts, text_array, with_texts

    topic = _COORDINATORS.get(options.decoder or "")
    typed = None if topic is None else coordinator_texts(topic, columns)
    rows = np.arange(len(columns)) if typed is None else np.flatnonzero(~typed.done)
    texts: list[bytes] = []
    failure = None
    for i in rows.tolist():
        try:
            texts.append(decoder(columns.key(i), columns.value(i), int(columns.offset[i])).encode())
        except KafkaFailure as error:
            failure = error
            break
    if typed is None:
        return join_texts(text_array(texts)), failure
    array = dump_texts(typed) if failure is None else dump_texts(typed).slice(0, rows[len(texts)])
    return join_texts(with_texts(array, rows[: len(texts)], texts)), failure


def decoder_of(options: KafkaOptions) -> Decoder | None:
    """Return the decoder of records, if one is wanted."""
    return None if options.decoder is None else _BY_OPTION[options.decoder]
