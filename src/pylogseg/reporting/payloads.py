"""The newest records of partitions, for a report that was asked to show some: decoded where a schema says how."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

from pylogseg.disk.disk import Disk, Partition, Segment
from pylogseg.disk.listing import as_disk
from pylogseg.errors import PylogsegError, RequestError
from pylogseg.format.escape import printable
from pylogseg.format.messages.framing import HOMES
from pylogseg.format.records import SOURCE_SHIFT, RecordColumns
from pylogseg.inspect.stats.listing import PartitionRow
from pylogseg.reading.log_reader import ReadScope
from pylogseg.reading.offset_range import OffsetRange
from pylogseg.reading.partition import Chunk
from pylogseg.reading.record import records_of
from pylogseg.reading.selection import Selection
from pylogseg.reading.state import SKIPPING
from pylogseg.reporting.facts import Payload
from pylogseg.reporting.options import ReportOptions
from pylogseg.reporting.partitions import SHOWN_BYTES, readable_text
from pylogseg.values.decoding import Decoding, schemas_disk, typed_batches
from pylogseg.values.internal.record_text import MessageText
from pylogseg.values.schemas.store import Schemas
from pylogseg.values.typed_text import Decoders, TypedText

#: Of a key or a value that was decoded.
_SHOWN_JSON = 5 * SHOWN_BYTES
_WHICH = ("key", "value")


class Samples:
    """Reads the newest records; keys and values become JSON by named schemas, or by schemas of the disk.

    `notes` have the reason where they could not be decoded.
    """

    def __init__(self, disk: Disk, options: ReportOptions) -> None:
        self._disk, self._options = disk, options
        self.notes: list[str] = []
        self._typed, self._own = _Typed(self._open_topic), MessageText()
        self._now: list[Chunk] = []

    def newest(self, partition: Partition, row: PartitionRow) -> tuple[Payload, ...]:
        """Return the records with the last offsets of a partition, as escaped and shortened text; damage is skipped."""
        count, end = self._options.payloads, row.log_end_offset or 0
        first = max(row.log_start_offset, end - count)
        limit_bytes = self._options.limit_bytes
        selection = Selection(offsets=OffsetRange(first, end), limit=count)
        reading = replace(SKIPPING, max_decompressed_bytes=limit_bytes)
        scope = ReadScope.of(selection.logs(as_disk(partition)), selection, reading)
        self._now = list(scope.chunks()) if count else []
        return tuple(payload for chunk in self._now for payload in self._payloads(chunk))

    def _payloads(self, chunk: Chunk) -> list[Payload]:
        self._typed.reasons.clear()
        columns = chunk.columns
        if self._options.value_as != "text":
            text = self._own if chunk.topic in HOMES else self._typed
            columns = text.columns(columns, chunk.segment)
        payloads, sources = [], len(chunk.columns.sources)
        decoded = {which: _is_behind(columns, which, sources) for which in _WHICH}
        before = records_of(chunk)
        for i, (record, raw) in enumerate(zip(records_of(Chunk(columns, chunk.segment)), before, strict=True)):
            payloads.append(
                Payload(
                    record.offset,
                    None if record.timestamp < 0 else record.timestamp,
                    _show(record.key, decoded["key"][i]),
                    _show(record.value, decoded["value"][i]),
                    len(raw.key or b""),
                    len(raw.value or b""),
                    tuple((printable(name), _show(value, False)) for name, value in record.headers),
                    key_is_decoded=decoded["key"][i],
                    value_is_decoded=decoded["value"][i],
                    why_not_decoded=printable(self._typed.reasons.get(record.offset, "")),
                )
            )
        return payloads

    @cached_property
    def _schemas(self) -> Schemas:
        source = self._options.registry
        try:
            return Schemas.open(schemas_disk(self._disk) if source is None else source)
        except PylogsegError as error:
            if self._is_asked or not isinstance(error, RequestError):
                self.notes.append(f"samples are not decoded: {error}")
            return Schemas()

    @property
    def _is_asked(self) -> bool:
        return self._options.value_as is not None or self._options.registry is not None

    def _open_topic(self, topic: str) -> Decoders:
        """Return the decoders of a topic's keys and values, as far as it has schemas."""
        decoders: dict[str, Any] = {}
        for which in _WHICH:
            decoding = Decoding(columns=(which,), registry=self._schemas)
            try:
                typed = typed_batches(decoding, self._disk, [topic], (which,), lambda: self._now)
            except PylogsegError as error:
                if which == "value" and self._is_asked:
                    self.notes.append(f"the values of {topic} are shown as text: {error}")
            else:
                decoders.update(typed.decoders)
        return decoders


class _Typed(TypedText):
    """Keeps for each offset why it did not decode."""

    def __init__(self, open_topic: Any) -> None:
        super().__init__(open_topic)
        self.reasons: dict[int, str] = {}

    def _note(self, columns: RecordColumns, segment: Segment, which: str, errors: Mapping[int, str]) -> None:
        for row, reason in errors.items():
            offset = int(columns.offset[row])
            self.reasons[offset] = "; ".join(filter(None, [self.reasons.get(offset), f"the {which}: {reason}"]))


def _is_behind(columns: RecordColumns, which: str, known: int) -> list[bool]:
    """Return flags: True if a payload lies in a source from number `known` on, so in the text of decoded ones."""
    place, size = getattr(columns, f"{which}_place"), getattr(columns, f"{which}_size")
    flags: list[bool] = ((size >= 0) & ((place >> SOURCE_SHIFT) >= known)).tolist()
    return flags


def _show(data: bytes | None, is_decoded: bool) -> str | None:
    return None if data is None else printable(readable_text(data, _SHOWN_JSON if is_decoded else SHOWN_BYTES))
