"""Records whose keys and values are the JSON of what they were decoded to."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from pylogseg.arrow.columns import record_batch, schema
from pylogseg.arrow.decoding import Decoder
from pylogseg.arrow.json_text import json_text
from pylogseg.arrow.own_topics import JsonColumn, MessageColumn
from pylogseg.catalog.disk import Segment
from pylogseg.format.records import SOURCE_SHIFT, RecordColumns
from pylogseg.reading.partition import Chunk

#: What decodes keys and values, by ``key`` and ``value``.
Decoders = Mapping[str, Decoder | MessageColumn | JsonColumn]


class TypedText:
    """Puts JSON in the place of keys and values, for what renders records as text.

    Parameters
    ----------
    open_topic : callable
        Returns what decodes the records of a topic; it is called once for each.

    Attributes
    ----------
    undecoded : int
        Payloads that did not decode; they are left as they are.
    first : str
        The first of them, and why.
    """

    def __init__(self, open_topic: Callable[[str], Decoders]) -> None:
        self._open = open_topic
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
        for which, decoder in self._of(segment.topic).items():
            batch = record_batch(chunk, schema([which, *decoder.needs]))
            array, errors = decoder.decode(*batch.columns)
            text = json_text(array)
            ends = np.frombuffer(text.buffers()[1], np.int32)[text.offset : text.offset + len(text) + 1].astype(
                np.int64
            )
            size, place = getattr(columns, f"{which}_size"), getattr(columns, f"{which}_place")
            good = size >= 0
            good[[*errors]] = False
            made: dict[str, Any] = {
                f"{which}_place": np.where(good, ends[:-1] | (len(columns.sources) << SOURCE_SHIFT), place),
                f"{which}_size": np.where(good, np.diff(ends), size).astype(np.int32),
            }
            source = np.frombuffer(text.buffers()[2] or b"", np.uint8)
            columns = replace(
                columns,
                sources=(*columns.sources, source),
                key_view=None,
                value_view=None,
                keys=None,
                values=None,
                **made,
            )
            if errors:
                self._note(columns, segment, which, errors)
        return columns

    def _note(self, columns: RecordColumns, segment: Segment, which: str, errors: Mapping[int, str]) -> None:
        row, reason = next(iter(errors.items()))
        with self._lock:
            self.undecoded += len(errors)
            self.first = self.first or f"{segment.path}: the {which} of offset {int(columns.offset[row])}: {reason}"
