"""Dump files of batches like Kafka's dump tool: batch lines, record lines, control records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from pylogseg.env.filesystem import FileSystem, FileView
from pylogseg.errors import CorruptionError
from pylogseg.format.batches import BatchTable
from pylogseg.format.codec_error import in_shell
from pylogseg.format.control import ControlKind, decode_control_key
from pylogseg.format.messages.control import decode_control, kraft_message
from pylogseg.format.messages.text import text_of
from pylogseg.format.names import BOOTSTRAP_SNAPSHOT, parse_file_name
from pylogseg.format.records import BatchDamage, RecordColumns, columns_of, decode_slices
from pylogseg.format.scratch import COLUMN_NAMES, Scratch
from pylogseg.format.text import TextBuffer, dump_lines
from pylogseg.inspect.dump.kafka_decoders import Decoder, decoder_of, texts_of
from pylogseg.inspect.dump.kafka_options import MAX_INT, KafkaFailure, KafkaOptions, Write, number_of, too_small
from pylogseg.walker.broker_windows import broker_windows, magic_bytes
from pylogseg.walker.windows import Window

_INVALID = "org.apache.kafka.common.InvalidRecordException"

_VALUE_LABELS = {
    ControlKind.LEADER_CHANGE: "LeaderChange:",
    ControlKind.SNAPSHOT_HEADER: "SnapshotHeader",
    ControlKind.SNAPSHOT_FOOTER: "SnapshotFooter",
    ControlKind.KRAFT_VERSION: "KRaftVersion",
    ControlKind.KRAFT_VOTERS: "KRaftVoters",
}


def dump_windows(view: FileView, start: int, end: int, *, crc: bool) -> Iterator[Window]:
    """Yield batches as Kafka reads a file, also behind a bad CRC; one whose magic is above 2 has a window of its own.

    Raises KafkaFailure where Kafka raises: for a length below 14, or too short for its magic, and a negative magic.
    """

    def at_stop(rest: memoryview, path: str, position: int) -> None:
        size = int.from_bytes(rest[8:12], "big", signed=True)
        if len(rest) > 17 and size < 14:
            raise too_small(size, path)
        if len(rest) > 17 and position <= end - 12 - size:
            raise _corrupt(size, int.from_bytes(rest[16:17], "big", signed=True), position)

    for window in broker_windows(view, start, end=end, crc=crc, at_stop=at_stop):
        yield from _by_magic(window)


def _by_magic(window: Window) -> Iterator[Window]:
    rows, magic = window.batches, magic_bytes(window)
    first = 0
    for row in np.flatnonzero((magic < 0) | (magic > 2)).tolist():
        if row > first:
            yield window._replace(batches=rows[first:row])
        if magic[row] < 0:
            raise _corrupt(int(rows.size[row]) - 12, int(magic[row]), int(rows.position[row]))
        yield window._replace(batches=rows[row : row + 1])
        first = row + 1
    if first < len(rows):
        yield window._replace(batches=rows[first:]) if first else window


def _corrupt(size: int, magic: int, position: int) -> KafkaFailure:
    reason = f"Record is corrupt: {size} bytes of magic {magic} at position {position}"
    return KafkaFailure("org.apache.kafka.common.errors.CorruptRecordException", reason)


def dump_log(
    files: FileSystem, path: str, name: str, write: Write, options: KafkaOptions, jumps: dict[int, int]
) -> None:
    """Write the lines of a file of batches.

    `jumps` is filled with the record offsets that are not followed by the next number, and the offsets that follow.
    """
    write(f"{_title(name)}\n".encode())
    dump = _Dump(write, options, jumps)
    with files.open(path, sealed=False) as view:
        size = view.size
        end = min(size, options.max_bytes)
        position = 0
        for window in dump_windows(view, 0, end, crc=True):
            dump.window(window)
            last = window.batches.rows[-1]
            position = int(last["position"]) + int(last["size"])
    if position < end and options.max_bytes == MAX_INT:
        write(f"Found {end - position} invalid bytes at the end of {name}\n".encode())


def _title(name: str) -> str:
    if name.endswith(".log"):
        return f"Log starting offset: {number_of(name)}"
    if name == BOOTSTRAP_SNAPSHOT:
        return "KRaft bootstrap snapshot"
    parsed = parse_file_name(name)
    if parsed.offset is None or parsed.epoch is None:
        raise KafkaFailure("java.util.NoSuchElementException", "No value present")
    return f"Snapshot end offset: {parsed.offset}, epoch: {parsed.epoch}"


class _Dump:
    """Writes the lines of one file; keeps the last record's offset and reuses memory."""

    def __init__(self, write: Write, options: KafkaOptions, jumps: dict[int, int]) -> None:
        self._write, self._options, self._jumps = write, options, jumps
        self._last_offset = -1
        self._scratch = Scratch()
        self._out = TextBuffer()
        self._decoder = decoder_of(options)

    def window(self, window: Window) -> None:
        if not self._options.is_deep:
            self._part(window, _no_records(window.batches), None)
            return
        verdicts = window.batches.verdict.copy()
        done = 0
        for columns, damage, continues, _ in decode_slices(
            window.batches,
            window.buffer,
            window.file_position,
            limit_bytes=self._options.max_decompressed_bytes,
            scratch=self._scratch,
        ):
            # A line shows whether the CRC is good, not whether the records are.
            count = len(columns.batches)
            done -= count if continues else 0
            columns.batches.rows["verdict"] = verdicts[done : done + count]
            done += count
            self._part(window, columns, damage[0] if damage else None, continues)

    def _part(self, window: Window, columns: RecordColumns, bad: BatchDamage | None, continues: bool = False) -> None:
        try:
            self._lines(columns, len(columns.batches) if bad is None else bad.row + 1, continues)
        finally:
            self._flush(window)
        if bad is not None:
            raise KafkaFailure(_INVALID, in_shell(bad.reason))

    def _lines(self, columns: RecordColumns, stop: int, continues: bool) -> None:
        """Render data batches by the kernel, control batches record by record."""
        first = 0
        if self._options.is_deep:
            self._note_jumps(columns, stop)
            for row in np.flatnonzero(columns.batches.is_control[:stop]).tolist():
                self._data(columns, first, row)
                self._control(columns, row, batch_lines=not continues)
                first = row + 1
        self._data(columns, first, stop, batch_lines=not continues)

    def _data(self, columns: RecordColumns, start_batch: int, stop_batch: int, **what: Any) -> None:
        if self._decoder is not None and "start" not in what:
            if start_batch < stop_batch:
                self._write_one(columns, (start_batch, stop_batch), self._decoder, what.get("batch_lines", True))
        elif start_batch < stop_batch:
            options = self._options
            dump_lines(
                columns,
                self._out,
                start_batch=start_batch,
                stop_batch=stop_batch,
                metadata=not options.skip_record_metadata,
                payload=options.print_data_log,
                **what,
            )

    def _write_one(self, columns: RecordColumns, batches: tuple[int, int], decoder: Decoder, batch_lines: bool) -> None:
        """Write batches whose records Kafka's own code understands."""
        first, last = np.searchsorted(columns.batch, batches).tolist()
        texts, failure = texts_of(self._options, columns.take(slice(first, last)), decoder)
        metadata = not self._options.skip_record_metadata
        last = first + len(texts.ends) - 1
        row = batches[1] if failure is None else int(columns.batch[last]) + 1
        dump_lines(columns, self._out, start_batch=batches[0], stop_batch=row, start=first, stop=last,
                   batch_lines=batch_lines, metadata=metadata, texts=texts)  # fmt: skip
        if failure is not None:  # the tool has written the beginning of the line
            head = dump_lines(columns, start_batch=row - 1, stop_batch=row, start=last, stop=last + 1,
                              batch_lines=False, payload=False)  # fmt: skip
            self._out.append(bytes(head)[:-1] if metadata else b"|")
            raise failure

    def _control(self, columns: RecordColumns, row: int, *, batch_lines: bool) -> None:
        first, last = np.searchsorted(columns.batch, (row, row + 1)).tolist()
        self._data(columns, row, row + 1, start=first, stop=first, batch_lines=batch_lines)
        for i in range(first, last):
            if not self._options.skip_record_metadata:
                dump_lines(columns, self._out, start_batch=row, stop_batch=row + 1, start=i, stop=i + 1,
                           batch_lines=False, payload=False)  # fmt: skip
                self._out.append(control_text(columns.key(i), columns.value(i)).encode())
            self._out.append(b"\n")

    def _note_jumps(self, columns: RecordColumns, stop: int) -> None:
        offsets = columns.offset[: np.searchsorted(columns.batch, stop)]
        if not len(offsets):
            return
        before = np.concatenate(([self._last_offset], offsets[:-1]))
        for i in np.flatnonzero(offsets != before + 1).tolist():
            self._jumps[int(before[i])] = int(offsets[i])
        self._last_offset = int(offsets[-1])

    def _flush(self, window: Window) -> None:
        magic = int(magic_bytes(window)[0])
        if magic > 2:
            self._write(bytes(self._out).replace(b" magic: 2 ", b" magic: %d " % magic, 1))
        elif len(self._out):
            self._write(self._out)
        self._out.clear()


def _no_records(batches: BatchTable) -> RecordColumns:
    kinds = [np.int32 if name in ("batch", "header_count") or "size" in name else np.int64 for name in COLUMN_NAMES]
    empty: list[Any] = [np.empty(0, kind) for kind in kinds]
    return columns_of(empty, batches, (b"", b""))


def control_text(key: bytes | None, value: bytes | None) -> str:
    """Return the tool's text for a control record; KafkaFailure if it cannot be decoded."""
    try:
        head = decode_control_key(key or b"")
        if head.kind is ControlKind.UNKNOWN:
            return f" controlType: UNKNOWN({head.type})"
        fields = decode_control(key, value).fields
    except CorruptionError as error:
        raise KafkaFailure(_INVALID, error.reason) from None
    if head.kind.ends_transaction:
        return f" endTxnMarker: {head.kind.name} coordinatorEpoch: {fields['coordinatorEpoch']}"
    return f" {_VALUE_LABELS[head.kind]} {text_of(*kraft_message(head.kind, fields['version']), fields)}"
