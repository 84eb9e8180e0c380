"""Records with decoded keys and values as JSON."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pylogseg.disk.disk import Segment
from pylogseg.format.records import RecordColumns
from pylogseg.reading.arrow.columns import record_batch, schema
from pylogseg.reading.partition import Chunk
from pylogseg.values.decoding import Decoder, OnUndecoded, not_decoded
from pylogseg.values.internal.message_arrays import with_payloads
from pylogseg.values.internal.own_topics import JsonColumn, MessageColumn
from pylogseg.values.json_text import json_text

#: What decodes keys and values, by ``key`` and ``value``.
Decoders = Mapping[str, Decoder | MessageColumn | JsonColumn]


class PayloadText(Protocol):
    """Replaces keys and values by the text of the decoded ones."""

    undecoded: int  #: Payloads that did not decode.
    first: str  #: The first of them, and why.

    def columns(self, columns: RecordColumns, segment: Segment) -> RecordColumns: ...


class TypedText:
    """Replaces keys and values by JSON, for renderers of records as text.

    `open_topic` is called once for each topic. `first` is the first payload that did not decode, with the reason.
    """

    def __init__(self, open_topic: Callable[[str], Decoders], on_undecoded: OnUndecoded = "raw") -> None:
        self._open, self._on_undecoded = open_topic, on_undecoded
        self._decoders: dict[str, Decoders] = {}
        self._lock = threading.Lock()
        self.undecoded, self.first = 0, ""

    def _of(self, topic: str) -> Decoders:
        with self._lock:
            if topic not in self._decoders:
                self._decoders[topic] = self._open(topic)
            return self._decoders[topic]

    def columns(self, columns: RecordColumns, segment: Segment) -> RecordColumns:
        """Return the columns with places of the text where a payload was decoded."""
        chunk = Chunk(columns, segment)
        bad: set[int] = set()
        for which, decoder in self._of(segment.topic).items():
            batch = record_batch(chunk, schema([which, *decoder.needs]))
            texts, errors = [], dict[int, str]()
            for first, array, some in _decode_halving(decoder, batch):
                texts.append(json_text(array))
                errors.update((first + row, reason) for row, reason in some.items())
            good = batch.column(which).is_valid().to_numpy(zero_copy_only=False)
            good[[*errors]] = False
            columns = with_payloads(columns, which, pc.if_else(pa.array(good), pa.chunked_array(texts), None))
            if errors:
                self._note(columns, segment, which, errors)
                bad.update(errors)
        if bad and self._on_undecoded == "skip":
            columns = columns.take(np.setdiff1d(np.arange(len(columns)), [*bad]))
        return columns

    def _note(self, columns: RecordColumns, segment: Segment, which: str, errors: Mapping[int, str]) -> None:
        row, reason = next(iter(errors.items()))
        offset = int(columns.offset[row])
        if self._on_undecoded == "raise":
            raise not_decoded(segment.path, which, offset, reason)
        with self._lock:
            self.undecoded += len(errors)
            self.first = self.first or f"{segment.path}: the {which} of offset {offset}: {reason}"


def _decode_halving(
    decoder: Decoder | MessageColumn | JsonColumn, batch: pa.RecordBatch, first: int = 0
) -> Iterator[tuple[int, pa.Array, dict[int, str]]]:
    """Decode a batch, in parts if it unfolds to too much: yields the first row, the values and the errors of each."""
    try:
        yield first, *decoder.decode(*batch.columns)
    except OverflowError:
        half = batch.num_rows // 2
        if not half:
            raise
        yield from _decode_halving(decoder, batch.slice(0, half), first)
        yield from _decode_halving(decoder, batch.slice(half), first + half)
