"""Targets of hostile bytes: scan, decode, gathers, windows, the reader, codecs, and the doors by themselves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext, suppress
from random import Random
from typing import Any

import numpy as np
from reference import batch as slow
from reference import compression as slow_compression

from helpers import mutations
from pylogseg import _codec
from pylogseg._native import _framing, _gather, _records
from pylogseg.disk.disk import Segment
from pylogseg.env.filesystem import Entry
from pylogseg.errors import CorruptionError, Ending, Verdict
from pylogseg.format import compression
from pylogseg.format.batches import BATCH_DTYPE, BatchTable, scan
from pylogseg.format.codec_error import CodecError
from pylogseg.format.names import FileKind
from pylogseg.format.records import BODY_DTYPE, REASONS, RecordColumns, check_and_decode, columns_of, decode
from pylogseg.format.scratch import COLUMN_NAMES, Copies, Scratch
from pylogseg.reading.log_reader import ReadScope
from pylogseg.reading.logs import LogFiles
from pylogseg.reading.offset_range import OPEN_END, OffsetRange
from pylogseg.reading.selection import Selection
from pylogseg.reading.state import Reading
from pylogseg.tables.reader import Reader
from pylogseg.walker.gaps import Gap, GapKind
from pylogseg.walker.windows import Window, walk

LIMIT_BYTES = 1 << 20
#: What the slow reader accepts and we do not: it takes any inner magic above 0 for 1.
STRICTER = (REASONS[13],)
#: Types of the columns, in their order.
KINDS = (np.int64, np.int64, np.int64, np.int32, np.int64, np.int32, np.int64, np.int32, np.int32)


def exact(data: Any) -> Any:
    """The bytes in an allocation of exactly their size."""
    out = np.empty(len(data), np.uint8)
    out[:] = np.frombuffer(data, np.uint8)
    return out


# ---- batches and records ----


def batches(rng: Random) -> None:
    """Scan, decode, gather; the same records as the slow reader."""
    data, heavy = mutations.file(rng)
    buffer = exact(data)
    table = scanned(buffer, rng)
    columns, damage = decode_exactly(table, buffer) if rng.random() < 0.5 else decoded(table, buffer)
    assert columns.tally()[:-1] == columns.take(slice(None)).tally()[:-1]  # but for what only the decoder counts
    gathered(columns, rng)
    in_one_pass(table, buffer)
    if not heavy and rng.random() < 0.3:
        compared(table, data, columns, damage)


def scanned(buffer: Any, rng: Random) -> BatchTable:
    """The batch table; it tiles the bytes that it covers, whatever the way it is made."""
    at = rng.choice((0, 0, 1 << 33))
    plain = scan(buffer, crc=False, file_position=at)
    checked = scan(buffer, file_position=at, max_rows=rng.choice((None, 1, 2)))
    table = plain.batches
    ends = table.position + table.size
    assert table.position.tolist() == [at, *ends.tolist()][: len(table)]
    assert plain.position == (ends[-1] if len(table) else at) <= at + len(buffer)
    assert (plain.ending is Ending.COMPLETE) == (plain.position == at + len(buffer))
    assert checked.batches.position.tolist() == table.position.tolist()[: len(checked.batches)]
    assert checked.ending in (plain.ending, Ending.MORE)
    table.rows["position"] -= at
    return table


def decoded(table: BatchTable, buffer: Any) -> tuple[RecordColumns, dict[int, str]]:
    columns, damage = decode(table, buffer, limit_bytes=LIMIT_BYTES)
    assert table.verdict.tolist() == [
        Verdict.RECORDS_BAD if row in dict(damage) else Verdict.UNCHECKED for row in range(len(table))
    ]
    return columns, dict(damage)


def decode_exactly(table: BatchTable, buffer: Any) -> tuple[RecordColumns, dict[int, str]]:
    """Like `records.decode`, with an arena and columns that have not a byte too many."""
    rows = np.ascontiguousarray(table.rows)
    bodies, data, errors = compression.fill_bodies(BatchTable(rows), buffer, 0, limit=LIMIT_BYTES)
    damage = {row: str(error) for row, error in errors}
    sources = (buffer, exact(data))
    room, _ = _records.capacity(rows, bodies)
    assert room <= sum(max(size, 0) for size in bodies["size"].tolist()) // 7 + len(rows)
    arrays = [np.empty(room, kind) for kind in KINDS]
    views = [np.empty(16 * room, np.uint8) for _ in range(2)]
    copies = [copy_room(room, int(bodies["size"].clip(0).sum())) for _ in range(2)]
    output = _records.Output(*arrays, *views, *copies[0], *copies[1])
    row = count = 0
    while True:
        made = _records.decode(rows, row, bodies, sources, count, output)
        row, count, _, status, _ = made
        if row == len(rows):
            break
        damage.setdefault(row, REASONS[status])
        row += 1
    columns = columns_of([array[:count] for array in arrays], BatchTable(rows), sources)
    made_besides(columns, [view[: 16 * count] for view in views], Scratch().trim_copies(copies, count))
    return columns, damage


def copy_room(records: int, size: int) -> Copies:
    return Copies(np.zeros(records + 1, np.int32), np.empty(size, np.uint8))


def made_besides(columns: RecordColumns, views: list[Any], copies: list[Copies]) -> None:
    """What the decoder makes besides columns is what the gathering kernels make of these; values are copied first."""
    out, bits = np.empty(16 * len(columns), np.uint8), np.empty((len(columns) + 7) // 8, np.uint8)
    spans = ((columns.key_place, columns.key_size), (columns.value_place, columns.value_size))
    for (place, size), view, (ends, copied) in zip(spans, views, reversed(copies), strict=True):
        _gather.gather_views(place, size, columns.sources, out, bits)
        assert out.tobytes() == view.tobytes()
        wanted, data = np.empty_like(ends), np.empty(ends[-1], np.uint8)
        _gather.gather_binary(place, size, columns.sources, wanted, data, bits)
        assert (wanted == ends).all()
        assert data.tobytes() == copied.tobytes()


def in_one_pass(table: BatchTable, buffer: Any) -> None:
    """Checked and decoded at once, batches that are not compressed give what scan and decoder give one by one."""
    plain = table[table.codec == 0]
    if not len(plain):
        return
    plain = BatchTable(np.ascontiguousarray(plain.rows))
    found = check_and_decode(plain, buffer, 0, None)
    good = [crc_holds(buffer, row) for row in plain.rows]
    assert (found is not None) == all(good)
    if found is not None:
        columns, damage = decode(plain, buffer)
        assert found[1] == damage
        for name in COLUMN_NAMES:
            assert (getattr(found[0], name) == getattr(columns, name)).all()


def crc_holds(buffer: Any, row: Any) -> bool:
    begin, end = int(row["position"]), int(row["position"]) + int(row["size"])
    data = memoryview(buffer)[begin:end]
    return bool(row["crc"] == (_codec.crc32c(data[21:]) if row["magic"] == 2 else _codec.crc32(data[16:])))


def gathered(columns: RecordColumns, rng: Random) -> None:
    """Spans copied and viewed, headers too."""
    names, name_sizes, values, value_sizes = columns.header_spans()
    chosen = rng.choice(
        [
            (columns.key_place, columns.key_size),
            (columns.value_place, columns.value_size),
            (names, name_sizes),
            (values, value_sizes),
        ]
    )
    place, size = (np.ascontiguousarray(array) for array in chosen)
    count = len(place)
    total, nulls = int(size.clip(0).sum(dtype=np.int64)), int((size < 0).sum())
    ends, data, bits = np.empty(count + 1, np.int32), np.empty(total, np.uint8), np.empty((count + 7) // 8, np.uint8)
    assert _gather.gather_binary(place, size, columns.sources, ends, data, bits) == nulls
    assert ends[-1] == total
    views = np.empty(16 * count, np.uint8)
    assert _gather.gather_views(place, size, columns.sources, views, bits) == nulls
    for i in rng.sample(range(count), min(count, 3)):
        span = columns.span(place[i], size[i])
        assert (span is None) == (not bits[i >> 3] >> (i & 7) & 1)
        assert (span or b"") == data[ends[i] : ends[i + 1]].tobytes()
        assert views[16 * i : 16 * i + 4].view("<i4")[0] == len(span or b"")


def compared(table: BatchTable, data: bytes, columns: RecordColumns, damage: dict[int, str]) -> None:
    """What the slow reader accepts, we read the same."""
    for row in range(len(table)):
        position, size = int(table.position[row]), int(table.size[row])
        raw = data[position : position + size]
        try:
            batch = slow.batch_v2(position, raw) if raw[16] == 2 else slow.legacy_batch(position, raw)
            expected = list(slow.records(batch))
        except slow.InvalidRecords:
            continue
        if row in damage:
            assert damage[row] in STRICTER, (damage[row], raw.hex())
            continue
        assert records_of(columns.take(columns.batch == row)) == wrapped(expected), raw.hex()


def wrapped(records: list[slow.Record]) -> list[slow.Record]:
    """Offsets as 64-bit arithmetic leaves them."""
    return [record._replace(offset=slow.wrapped_long(record.offset)) for record in records]


def records_of(columns: RecordColumns) -> list[slow.Record]:
    """Columns as records of the slow reader."""
    names, name_sizes, values, value_sizes = columns.header_spans()
    spans = zip(names, name_sizes, values, value_sizes, strict=True)
    headers = iter([(columns.span(*span[:2]), columns.span(*span[2:])) for span in spans])
    return [
        slow.Record(
            int(columns.offset[i]),
            int(columns.timestamp[i]),
            columns.key(i),
            columns.value(i),
            tuple(next(headers) for _ in range(columns.header_count[i])),
        )
        for i in range(len(columns))
    ]


# ---- windows and the reader ----


class View:
    """An open file whose every read is a fresh allocation of exactly its size."""

    path = "a.log"

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.size = len(data)

    def read(self, position: int, size: int) -> Any:
        return exact(self.data[position : position + size])

    def drop(self, start: int, end: int) -> None: ...

    def close(self) -> None: ...

    def __enter__(self) -> View:
        return self

    def __exit__(self, *_: object) -> None: ...


class Files:
    """A file system of bytes by name."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files

    def open(self, path: str, *, sealed: bool) -> View:
        return View(self.files[path])

    def read_all(self, path: str) -> bytes:
        return self.files[path]

    def stat(self, path: str) -> Entry:
        return Entry(path, False, len(self.files[path]), 0)

    def split(self, path: str) -> tuple[str, str]:
        return "", path


def walked(rng: Random) -> None:
    """Every byte is in a window or in a gap, once; windows hold good batches."""
    data, _ = mutations.file(rng)
    window = rng.choice((64, 200, 1000, 1 << 16))
    crc = rng.random() < 0.8
    covered = 0
    found = walk(
        View(data), is_last=rng.random() < 0.5, crc=crc, window_bytes=window, first_window_bytes=window,
        lowest_offset=rng.choice((0, 0, 1000, 1 << 62)),
    )  # fmt: skip
    for item in found:
        if isinstance(item, Gap):
            assert item.position == covered < item.end_position
            covered = item.end_position
            assert str(item)
            assert item.is_damage or item.kind in (GapKind.TORN, GapKind.ZEROS)
            continue
        assert isinstance(item, Window)
        rows = item.batches
        ends = rows.position + rows.size
        assert rows.position.tolist() == [covered, *ends.tolist()][: len(rows)]
        assert (rows.verdict == (Verdict.GOOD if crc else Verdict.UNCHECKED)).all()
        covered = int(ends[-1])
        first, last = int(rows.position[0]) - item.file_position, covered - item.file_position
        assert bytes(item.buffer[first:last]) == data[item.file_position + first : covered]
    assert covered == len(data)


def read(rng: Random) -> None:
    """The reader over two segments with indexes that lie, in every mode: records, or an error of ours."""
    files = {"0.log": mutations.file(rng).data, "1000.log": mutations.file(rng).data}
    files |= {f"{base}.{kind.value}": _index(rng, kind) for base in (0, 1000) for kind in _INDEXES}
    files["1000.snapshot"] = rng.randbytes(20)
    system: Any = Files(files)
    segments = [_segment(system, base, rng.random() < 0.5) for base in (0, 1000)]
    on_corrupt = rng.choice(("raise", "stop", "skip"))
    reading = Reading(
        rng.choice(("read_uncommitted", "read_committed")), on_corrupt,
        control=rng.random() < 0.5, check_crc=rng.random() < 0.8, max_decompressed_bytes=LIMIT_BYTES,
    )  # fmt: skip
    window, scratch = rng.choice((100, 1 << 16)), Scratch if rng.random() < 0.3 else None
    state = reading.start(window_bytes=window, scratch=scratch)
    offsets = rng.choice(((0, OPEN_END), (1003, 1004), (rng.randrange(2000), OPEN_END)))
    times = rng.choice(((None, None), (None, None), (1_600_000_000_010, None), (None, 1_600_000_000_010)))
    snapshots = rng.choice(({}, {1000: "1000.snapshot"}))
    selection = Selection(offsets=OffsetRange(*offsets), since=times[0], until=times[1], limit=rng.choice((None, 5)))
    reader = Reader(ReadScope([LogFiles(segments, 0, snapshots)], selection, state))
    # An index of transactions may refuse to be read in any mode; a log in none but "raise".
    with suppress(CorruptionError) if on_corrupt == "raise" else nullcontext():
        for record in reader:
            assert offsets[0] <= record.offset < offsets[1]


_INDEXES = (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TXN_INDEX)


def _index(rng: Random, kind: FileKind) -> bytes:
    return mutations.damaged(rng, rng.choice((bytes(24), rng.randbytes(8 * rng.randrange(9)), b"\0" * 7 + b"\1" * 41)))


def _segment(files: Any, base: int, with_indexes: bool) -> Segment:
    companions = {kind: f"{base}.{kind.value}" for kind in _INDEXES} if with_indexes else {}
    path = f"{base}.log"
    return Segment(files, path, base, files.stat(path).size, 0, base == 1000, "t", 0, companions)


# ---- codecs and doors ----


def codecs(rng: Random) -> None:
    """A payload by itself: bytes within the limit, or an error of ours; the same bytes as the slow reader's."""
    codec, magic, data, heavy = mutations.payload(rng)
    limit = rng.choice((0, 10, 1000, LIMIT_BYTES))
    buffer = exact(data)
    _tables(rng, buffer, limit)
    out: bytes | None = None
    try:
        out = compression.decompress(codec, buffer, magic=magic, limit=limit)
        assert len(out) <= limit
    except CodecError:
        pass
    # No bytes at all are no zstd frame to us and an empty stream to others; records are in neither.
    if heavy or not data or limit < LIMIT_BYTES or (codec == "zstd" and magic < 2) or rng.random() < 0.5:
        return
    try:
        expected = slow_compression.decompress(codec, data, magic)
    except slow_compression.CompressionError:
        return
    # Frames behind the first of lz4 are read by us alone.
    assert out is not None, (codec, magic, data.hex())
    assert out.startswith(expected) if codec == "lz4" else out == expected, (codec, magic, data.hex())


def _tables(rng: Random, buffer: Any, limit: int) -> None:
    """Block tables: every block lies in the payload, and they have room for no more than the limit."""
    rows = rng.choice((1, 3))
    start = np.array([rng.choice((0, 0, rng.randrange(len(buffer) + 1))) for _ in range(rows)], np.int64)
    end = np.full(rows, len(buffer), np.int64)
    counts, blocks = np.empty(rows, np.int32), np.empty(rng.choice((0, 1, 5, 70)), compression.BLOCK_DTYPE)
    for kernel, extra in ((_framing.lz4_blocks, (np.zeros(rows, np.uint8),)), (_framing.xerial_blocks, ())):
        row = 0
        while row < rows:
            first = row
            row, used = kernel(buffer, start, end, *extra, limit, row, counts, blocks.view(np.uint8))
            assert row > first
            found = blocks[:used]
            assert (found["position"] >= 0).all()
            assert (found["size"] > 0).all()
            assert (found["position"] + found["size"] <= len(buffer)).all()
            assert np.abs(found["room"].astype(np.int64)).sum() <= limit * (row - first)
            assert used == np.maximum(counts[first:row], 0).sum()


def doors(rng: Random) -> None:
    """What a caller may make up: positions, counts, places."""
    data = exact(rng.choice((mutations.batch(rng).data[:300], rng.randbytes(rng.randrange(40)))))
    rng.choice((_varints, _searches, _spans))(rng, data)


def _refused(call: Any, *arguments: Any, **options: Any) -> Any:
    try:
        return call(*arguments, **options)
    except (ValueError, IndexError):
        return None


def _varints(rng: Random, data: Any) -> None:
    for read_one, bits in ((_codec.decode_uvarint, 32), (_codec.decode_varint, 32), (_codec.decode_varlong, 64)):
        position = rng.randrange(-1, len(data) + 2)
        found = _refused(read_one, data, position)
        if found is not None:
            assert abs(found[0]) < 1 << bits
            assert position < found[1] <= min(len(data), position + (5 if bits == 32 else 10))


def _searches(rng: Random, data: Any) -> None:
    start, end = rng.randrange(-1, len(data) + 1), rng.randrange(len(data) + 2)
    lowest, behind = rng.choice((0, 1000, -(2**63), 2**63 - 1)), rng.choice((0, 1, 5000))
    found = _refused(_codec.find_batch, data, start, end, lowest, 1 << 20, behind)
    if found is not None and found[0] + found[1] > end:
        assert start <= found[0] <= end - 61
        assert found[0] + found[1] <= end + behind
    elif found is not None and found[0] >= 0:
        rows = scan(data, start=found[0], end=end, max_rows=1).batches
        assert rows.verdict.tolist() == [Verdict.GOOD]
    entry, size = rng.choice(((8, 4), (12, 8), (34, 8), (4, 4), (8, 16))), rng.randrange(-1, 12)
    for key in (rng.choice((0, -1, 2**63 - 1, -(2**63))), rng.getrandbits(40)):
        slot = _refused(_codec.search, data, *entry[:1], 0, entry[1], size, key, rng.random() < 0.5)
        assert slot is None or -1 <= slot <= size
    _refused(_framing.xxh32, data)


def _spans(rng: Random, data: Any) -> None:
    """Places and sizes out of thin air."""
    count = rng.randrange(4)
    place = np.array([_place(rng, len(data)) for _ in range(count)], np.int64)
    size = np.array([rng.choice((-1, 0, 1, 12, 13, len(data), 2**31 - 1, -(2**31))) for _ in range(count)], np.int32)
    sources = rng.choice(((data,), (data, b""), (), (b"", data)))
    room = rng.choice((0, 100))
    ends, out, bits = np.empty(count + 1, np.int32), np.empty(room, np.uint8), np.empty((count + 7) // 8, np.uint8)
    _refused(_gather.gather_binary, place, size, sources, ends, out, bits)
    _refused(_gather.gather_views, place, size, sources, np.empty(16 * count, np.uint8), bits)
    spans = [np.empty(room, kind) for kind in (np.int64, np.int32, np.int64, np.int32)]
    _refused(_gather.header_spans, place, size, sources, *spans)
    rows = np.zeros(count, BATCH_DTYPE)
    rows["magic"], rows["attributes"] = rng.randrange(3), rng.randrange(8)
    rows["count"] = rng.choice((0, 1, -1, 2**31 - 1))
    bodies = np.empty(count, BODY_DTYPE)
    bodies["place"], bodies["size"] = place, np.where(size < 0, -1, size)
    if count and rng.random() < 0.7:
        rows["attributes"], bodies[0], sources = 0, (0, len(data)), (data,)
        rows["magic"] = min(int(data[16]) if len(data) > 16 else 0, 2)
        if rows["magic"][0] == 2 and len(data) >= 61 and rng.random() < 0.5:
            bodies[0] = 61, len(data) - 61
    head = 61 if rng.random() < 0.5 else 0
    rows["size"] = (bodies["size"] + head).clip(-1, 2**31 - 1)
    columns = [np.empty(room, kind) for kind in KINDS]
    views = [np.empty(rng.choice((16 * room, 16 * room, 5)), np.uint8) for _ in range(2)]
    copy, other = (copy_room(room, rng.choice((len(data), len(data), 3))) for _ in range(2))
    besides = rng.choice(([], views, [None, None, *copy], [*views, *copy], [None, None, *copy, *other]))
    row, first = 0, rng.choice((0, 0, 1, -1, room, room + 1))
    for row in _resumed(rows, bodies, sources, first, columns + besides, crc=rng.random() < 0.3):
        assert row < count


def _decode(rows: Any, row: int, bodies: Any, sources: Any, n: int, out: list[Any], crc: bool) -> Any:
    return _records.decode(rows, row, bodies, sources, n, _records.Output(*out), crc=crc)


def _resumed(rows: Any, bodies: Any, sources: Any, n: int, out: list[Any], crc: bool) -> Iterator[int]:
    row = 0
    while row < len(rows):
        done = _refused(_decode, rows, row, bodies, sources, n, out, crc)
        if done is None or done[0] == len(rows):
            return
        row, n = done[0], done[1]
        yield row
        row += 1


def _place(rng: Random, size: int) -> int:
    near = (0, 1, size, size - 1, rng.randrange(size + 1))
    return rng.choice((*near, -1, 1 << 40, (1 << 40) + size, 5 << 40, 1 << 62, -(1 << 63)))
