"""Files of batches as rows: a dictionary for each batch, gap and control record; data records as text by a kernel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from pylogseg.disk.disk import Segment
from pylogseg.errors import CorruptionError, Verdict
from pylogseg.format.batches import BatchTable, scan
from pylogseg.format.codec_error import in_shell
from pylogseg.format.codecs import CODEC_NAMES
from pylogseg.format.escape import json_line
from pylogseg.format.messages.control import decode_control
from pylogseg.format.records import DECOMPRESSED_LIMIT_BYTES, RecordColumns, decode_slices
from pylogseg.format.scratch import Scratch
from pylogseg.format.text import TextBuffer, TextProgram, json_lines, render
from pylogseg.inspect.dump.entries import DumpRow, none_if_negative
from pylogseg.walker.gaps import Gap, GapKind
from pylogseg.walker.windows import Window, walk

#: Records whose text is held at once.
_TEXT_RECORDS = 1 << 12
_MAX_SEQUENCE = 2**31 - 1
_TIMESTAMP_TYPES = {0: "CreateTime", 1: "LogAppendTime", -1: None}


def records_program(lead: str, fields: tuple[str, ...]) -> TextProgram:
    """Compile JSON lines of records with `lead` (a brace, members, each with a comma) in place of the first brace."""
    program = json_lines(fields)
    text = lead.encode()
    ops = program.ops.copy()
    # The first label begins with the brace; the others come after it and move by as much as it grows.
    ops[0, 3] += len(text) - 1
    ops[1:, 2] += len(text) - 1
    return TextProgram(ops, text + program.labels[1:], program.delimiter)


def dump_batches(
    segment: Segment, program: TextProgram | None = None, *, limit_bytes: int = DECOMPRESSED_LIMIT_BYTES
) -> Iterator[DumpRow | TextBuffer]:
    """Decode a file of batches: a row for each batch, good or bad, and each gap.

    After a batch comes the text of its records by `program` (valid until the next item), or the rows of its control
    records; without a program none. The records of a batch that decompresses to more than `limit_bytes` are damage.
    """
    reader = _Records(program, limit_bytes) if program is not None else None
    with segment.open() as view:
        for item in walk(view, lowest_offset=segment.base_offset, is_last=segment.is_last):
            if isinstance(item, Gap):
                if item.kind is GapKind.CRC_BAD:
                    data = view.read(item.position, item.end_position - item.position)
                    yield from _rows(scan(data, file_position=item.position, max_rows=1).batches)
                yield gap_row(item)
            elif reader is None:
                yield from _rows(item.batches)
            else:
                yield from reader.window(segment, item)


def gap_row(gap: Gap) -> DumpRow:
    return {
        "type": "gap",
        "kind": gap.kind.value,
        "isDamage": gap.is_damage,
        "position": gap.position,
        "endPosition": gap.end_position,
        "firstOffset": gap.first_offset,
        "nextOffset": gap.next_offset,
        "reason": in_shell(gap.reason),
    }


def _rows(table: BatchTable) -> Iterator[DumpRow]:
    names = [name for name in table.rows.dtype.names or () if name != "pad"]
    columns = [table.rows[name].tolist() for name in names]
    kinds = table.timestamp_type.tolist()
    horizons = table.has_delete_horizon.tolist()
    flags = zip(table.is_transactional.tolist(), table.is_control.tolist(), strict=True)
    for values, kind, horizon, (transactional, control) in zip(
        zip(*columns, strict=True), kinds, horizons, flags, strict=True
    ):
        yield _row(dict(zip(names, values, strict=True)), kind, horizon, transactional, control)


def _row(v: dict[str, Any], kind: int, horizon: bool, transactional: bool, control: bool) -> DumpRow:
    codec = v["attributes"] & 7
    wrapper = v["magic"] < 2 and codec
    row: DumpRow = {
        "type": "batch",
        "position": v["position"],
        "size": v["size"],
        "magic": v["magic"],
        # The header of a wrapper has no base offset and no count.
        "baseOffset": None if wrapper else v["base_offset"],
        "lastOffset": v["last_offset"],
        "count": none_if_negative(v["count"]),
        "codec": CODEC_NAMES[codec] if codec < len(CODEC_NAMES) else f"unknown ({codec})",
        "timestampType": _TIMESTAMP_TYPES[kind],
        "maxTimestamp": none_if_negative(v["max_timestamp"]),
        "crc": v["crc"],
        "isValid": v["verdict"] == Verdict.GOOD,
    }
    if v["magic"] == 2:
        base = v["base_sequence"]
        row |= {
            "baseTimestamp": None if horizon else none_if_negative(v["base_timestamp"]),
            "deleteHorizon": v["base_timestamp"] if horizon else None,
            "leaderEpoch": none_if_negative(v["leader_epoch"]),
            "producerId": none_if_negative(v["producer_id"]),
            "producerEpoch": none_if_negative(v["producer_epoch"]),
            "baseSequence": none_if_negative(base),
            "lastSequence": _last_sequence(base, v["last_offset"] - v["base_offset"]),
            "isTransactional": transactional,
            "isControl": control,
        }
    return row


def _last_sequence(base: int, delta: int) -> int | None:
    """Return the last sequence; sequences wrap to 0 after the greatest number."""
    return None if base < 0 else (base + delta) & _MAX_SEQUENCE


class _Records:
    """Decodes batches and their records; reuses its memory."""

    def __init__(self, program: TextProgram, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._program, self._scratch, self._out = program, Scratch(), TextBuffer()

    def window(self, segment: Segment, window: Window) -> Iterator[DumpRow | TextBuffer]:
        """Yield the rows of the batches of a window, each followed by its records."""
        parts = decode_slices(
            window.batches, window.buffer, window.file_position, limit_bytes=self._limit, scratch=self._scratch
        )
        for columns, damage, continues, _ in parts:
            yield from self._part(segment, columns, {bad.row: bad.reason for bad in damage}, continues)

    def _part(
        self, segment: Segment, columns: RecordColumns, reasons: dict[int, str], continues: bool
    ) -> Iterator[DumpRow | TextBuffer]:
        table = columns.batches
        stops = np.searchsorted(columns.batch, np.arange(1, len(table) + 1)).tolist()
        controls = table.is_control.tolist()
        start = 0
        for i, (row, stop) in enumerate(zip(_rows(table), stops, strict=True)):
            row["isValid"] = True  # else it would be in a gap
            if not continues:
                yield row
            if i in reasons:
                yield _make_gap_row(segment, row, reasons[i])
            elif controls[i]:
                yield from (control_row(columns, record, row["position"]) for record in range(start, stop))
            for begin in range(start, stop, _TEXT_RECORDS) if not (i in reasons or controls[i]) else ():
                self._out.clear()
                yield render(columns, self._program, self._out, begin, min(begin + _TEXT_RECORDS, stop))
            start = stop


def _make_gap_row(segment: Segment, row: DumpRow, reason: str) -> DumpRow:
    end, first = row["position"] + row["size"], row["baseOffset"]
    gap = Gap(
        segment.path,
        GapKind.RECORDS_BAD,
        row["position"],
        end,
        row["lastOffset"] if first is None else first,
        row["lastOffset"] + 1,
        reason,
        True,
    )
    return gap_row(gap)


def control_row(columns: RecordColumns, i: int, position: int) -> DumpRow:
    """Return the row for a control record; with its bytes in hex if it cannot be decoded."""
    row: DumpRow = {
        "type": "controlRecord",
        "position": position,
        "offset": int(columns.offset[i]),
        "timestamp": int(columns.timestamp[i]),
    }
    key, value = columns.key(i) or b"", columns.value(i)
    try:
        record = decode_control(key, value)
    except CorruptionError as error:
        return row | {"kind": None, "reason": error.reason, "key": key.hex(), "value": (value or b"").hex()}
    return row | {"kind": record.key.kind.name, "fields": record.fields}


def json_lead(path: str) -> str:
    """Return the lead of `records_program` for JSON lines."""
    return f'{{"file":{json_line(path)},"type":"record",'
