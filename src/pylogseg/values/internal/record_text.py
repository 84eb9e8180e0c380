"""Keys and values of internal topics as JSON, for renderers of records as text."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from pylogseg.disk.disk import Segment
from pylogseg.errors import CorruptionError
from pylogseg.format.messages.framing import COORDINATOR_TOPICS, HOMES, Part, decode_coordinator, decode_framed
from pylogseg.format.messages.secrets import CONFIG, MASK, SCRAM, SCRAM_SECRETS, is_secret
from pylogseg.format.messages.text import framed_text, key_text, value_text
from pylogseg.format.records import RecordColumns
from pylogseg.values.internal.message_arrays import with_payloads
from pylogseg.values.internal.message_text import coordinator_texts, text_array, with_texts

_Text = bytes | None


class MessageText:
    """Puts JSON in the place of keys and values of the topics that Kafka writes for itself; others stay as they are.

    A key is ``{"type":"1","data":{...}}``, its value ``{"version":"4","data":{...}}``, as Kafka's dump tool has them;
    a record of the metadata log ``{"type":"TOPIC_RECORD","version":0,"data":{...}}``. Keys of SCRAM users and secret
    settings are masked. `undecoded` counts what a newer Kafka wrote, or is malformed; it is left as it is.
    """

    def __init__(self, *, show_secrets: bool = False) -> None:
        self._show_secrets, self._lock = show_secrets, threading.Lock()
        self.undecoded, self.first = 0, ""

    def columns(self, columns: RecordColumns, segment: Segment) -> RecordColumns:
        """Return the columns with places of the text where a key or value was decoded."""
        if segment.topic in COORDINATOR_TOPICS:
            keys, values = self._coordinator(columns, segment)
            return with_payloads(with_payloads(columns, "key", keys), "value", values)
        if segment.topic in HOMES:
            return with_payloads(columns, "value", text_array(self._frame_texts(columns, segment)))
        return columns

    def _coordinator(self, columns: RecordColumns, segment: Segment) -> tuple[Any, Any]:
        control = columns.batches.is_control[columns.batch]
        typed = coordinator_texts(segment.topic, columns)
        rows = np.flatnonzero(control | ~typed.done)
        others = [(None, None) if control[i] else self._one(columns, i, segment) for i in rows.tolist()]
        keys, values = ([texts[part] for texts in others] for part in (0, 1))
        return with_texts(typed.keys, rows, keys), with_texts(typed.values, rows, values)

    def _one(self, columns: RecordColumns, i: int, segment: Segment) -> tuple[_Text, _Text]:
        offset = int(columns.offset[i])
        try:
            key, value = decode_coordinator(
                segment.topic, columns.key(i) or b"", columns.value(i), segment.path, offset
            )
        except CorruptionError as error:
            self._note(segment, offset, error.reason)
            return None, None
        first = None if key.fields is None else key_text(key).encode()
        if value.fields is None:
            if first is None or value.version >= 0:
                self._note(segment, offset, f"type {key.number} or version {value.version} is not known")
            return first, None
        return first, value_text(value).encode()

    def _frame_texts(self, columns: RecordColumns, segment: Segment) -> list[_Text]:
        control = columns.batches.is_control[columns.batch].tolist()
        texts: list[_Text] = []
        for i, offset in enumerate(columns.offset.tolist()):
            text = None
            if not control[i]:
                try:
                    part = decode_framed(segment.topic, columns.value(i) or b"", segment.path, offset)
                except CorruptionError as error:
                    self._note(segment, offset, error.reason)
                else:
                    if part.message is None or part.fields is None:
                        self._note(segment, offset, f"type {part.number} or version {part.version} is not known")
                    else:
                        text = framed_text(part if self._show_secrets else _mask_secrets(part)).encode()
            texts.append(text)
        return texts

    def _note(self, segment: Segment, offset: int, reason: str) -> None:
        with self._lock:
            self.undecoded += 1
            self.first = self.first or f"{segment.path}: offset {offset}: {reason}"


def _mask_secrets(part: Part) -> Part:
    fields: dict[str, Any] = dict(part.fields or {})
    name = part.message.name if part.message is not None else ""
    if name == SCRAM:
        fields |= dict.fromkeys(SCRAM_SECRETS, b"")
    elif name == CONFIG and fields["value"] is not None and is_secret(fields["resourceType"], fields["name"]):
        fields["value"] = MASK
    return part._replace(fields=fields)
