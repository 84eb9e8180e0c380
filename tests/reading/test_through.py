"""Tests of reading/partition.py. Windows that are read, checked and decoded in one pass give what other windows give,
whatever lies in the file.
"""

import os
from dataclasses import replace

import cramjam
import numpy as np
import pyarrow as pa
import pytest

import pylogseg
from pylogseg.format import compression
from pylogseg.format import records as module
from pylogseg.format.scratch import Scratch
from pylogseg.reading.arrow.columns import copies_for, record_batches, schema
from pylogseg.reading.partition import OnePass

ALL = ("key", "value", "offset", "timestamp", "headers", "batchOffset")


def encoded(first, count, *, keys=False, headers=False, nulls=False, size=30, step_ms=1, **options):
    random = np.random.default_rng(first)
    rows = [
        (
            first + i,
            (b"key-%d" % i) * int(random.integers(1, 4)) if keys else None,
            None if nulls and i % 3 == 0 else random.bytes(int(random.integers(0, 2 * size))),
            1_700_000_000_000 + (first + i) * step_ms,
            [("name", b"header-%d" % i)] if headers and i % 2 else [],
        )
        for i in range(count)
    ]
    table = pa.table(
        {
            "key": pa.array([row[1] for row in rows], pa.binary()),
            "value": pa.array([row[2] for row in rows], pa.binary()),
            "timestamp": pa.array([row[3] * 1000 for row in rows], pa.timestamp("us", "UTC")),
            "headers": pa.array(
                [[{"key": n, "value": v} for n, v in row[4]] or None for row in rows], schema()[7].type
            ),
        }
    )
    return bytes(pylogseg.encode(table, base_offset=first, leader_epoch=0, **options))


KINDS = {
    "plain": {},
    "keys": {"keys": True},
    "headers": {"keys": True, "headers": True},
    "nulls": {"keys": True, "nulls": True},
    "large": {"size": 4000},
    "long": {"keys": True, "size": 150},
    "tiny": {"size": 1},
    "far": {"keys": True, "step_ms": 1 << 20},
    "packed": {"compression": "lz4"},
}


def written(folder, kinds):
    """A log with batches of some kinds, one after the other."""
    parts, first = [], 0
    for kind in kinds:
        parts.append(encoded(first, 20, **KINDS[kind]))
        first += 20
    folder.mkdir(parents=True)
    (folder / f"{0:020d}.log").write_bytes(b"".join(parts))
    (folder / f"{first:020d}.log").touch()
    return parts


@pytest.fixture
def through(monkeypatch):
    """Windows that were read in one pass: rows of each."""
    if not hasattr(os, "pread"):
        pytest.skip("files are not read by pread here")
    monkeypatch.setattr(module, "_PIECE_BYTES", 1500)
    seen, real = [], OnePass.through

    def noted(self, *arguments):
        found = real(self, *arguments)
        if found is not None:
            seen.append(len(found[0].batches))
        return found

    monkeypatch.setattr(OnePass, "through", noted)
    return seen


def outcome(folder, names, *, views=False, is_reused=True, window=9000, **options):
    """Rows and gaps: in small windows with memory that is used again, or as they come."""
    reader = pylogseg.read(folder, on_corrupt="skip", **options)
    scope = reader.scope
    if is_reused:
        besides = "views" if views else copies_for(names)

        def scratch():
            return Scratch(with_arena=not views, besides=besides, allocate=pa.allocate_buffer)

        how = replace(scope.state, window_bytes=window, first_window_bytes=window // 4, scratch=scratch)
        scope = scope._replace(state=how)
    reader.gaps.clear()
    found, rows = [], []
    for batch in record_batches(scope.chunks(), schema(names, views=views), []):
        batch.validate(full=True)
        found.append(batch)
        if not views:
            rows += batch.to_pylist()
    # Views point into memory that lives as long as they do: looked at when all has been read.
    rows += [row for batch in found if views for row in batch.to_pylist()]
    # Of a window, those of its order come first.
    return rows, sorted((gap[1:] for gap in scope.state.gaps), key=lambda gap: gap[1:3])


MIXED = (
    ["plain"] * 30
    + ["keys"] * 20
    + ["headers"] * 3
    + ["nulls"] * 20
    + ["large"]
    + ["tiny", "far", "long", "plain"] * 9
    + ["keys", "packed"] * 3
    + ["plain"] * 30
)


@pytest.mark.parametrize("names", [ALL, ("offset", "value"), ("offset", "key"), ("offset",), ("headers",)], ids=str)
@pytest.mark.parametrize("views", [False, True])
@pytest.mark.parametrize(
    "kinds", [["plain"] * 60, ["keys"] * 60, ["headers"] * 60, MIXED], ids=["plain", "keys", "headers", "mixed"]
)
@pytest.mark.reads
def test_the_same_as_other_windows(tmp_path, through, kinds, names, views):
    written(tmp_path / "orders-0", kinds)
    for options in ({}, {"offset": (333, 987)}, {"offset": (985, 986)}):
        given = outcome(tmp_path / "orders-0", names, views=views, **options)
        assert given == outcome(tmp_path / "orders-0", names, is_reused=False, **options)
    assert sum(through) > len(kinds) // 2


def records_of(chunks):
    """Every column of each record, payloads as bytes and the batch by its position."""
    found = []
    for chunk in chunks:
        of = chunk.columns
        spans = zip(*(span.tolist() for span in of.header_spans()), strict=True)
        headers = [(of.span(name, size), of.span(value, length)) for name, size, value, length in spans]
        ends = np.cumsum(of.header_count).tolist()
        at = of.batches.position[of.batch].tolist()
        for i in range(len(of)):
            of_one = headers[ends[i] - int(of.header_count[i]) : ends[i]]
            sizes = int(of.key_size[i]), int(of.value_size[i])
            payloads = of.key(i), of.value(i)
            assert [-1 if each is None else len(each) for each in payloads] == [*sizes]
            found.append((int(of.offset[i]), int(of.timestamp[i]), payloads, of_one, at[i]))
        assert of.take(slice(1, 3)).batch.tolist() == of.batch[1:3].tolist()
    return found


@pytest.mark.parametrize("besides", [None, "views", "keys", "values", "payloads"])
@pytest.mark.parametrize(("compression", "wide"), [("none", True), ("none", False), ("lz4", True), ("zstd", True)])
@pytest.mark.reads
def test_columns_that_follow_from_others_are_those_of_other_windows(
    tmp_path, through, request, besides, compression, wide
):
    """Those of records without headers are not filled, but made when they are asked for."""
    request.addfinalizer(lambda: module._records.use_wide_copies(True))
    module._records.use_wide_copies(wide)
    parts, kinds = [], [kind for kind in MIXED if kind != "packed"]
    for n, kind in enumerate(kinds):
        how = {"timestamp_type": "append", "append_time_ms": n} if n % 7 == 0 else {}
        parts.append(encoded(20 * n, 20, compression=compression, **KINDS[kind], **how))
    (tmp_path / "orders-0").mkdir()
    (tmp_path / "orders-0" / f"{0:020d}.log").write_bytes(b"".join(parts))
    (tmp_path / "orders-0" / f"{20 * len(parts):020d}.log").touch()
    scope = pylogseg.read(tmp_path / "orders-0").scope
    given = records_of(scope.chunks())
    assert len(given) == 20 * len(parts)
    made = 0

    def noted(chunks):
        nonlocal made
        for chunk in chunks:
            made += isinstance(chunk.columns, module.PlainColumns)
            yield chunk

    for with_arena in (True, False):
        how = replace(
            scope.state,
            window_bytes=9000,
            first_window_bytes=2000,
            scratch=lambda with_arena=with_arena: Scratch(with_arena, besides, pa.allocate_buffer),
        )
        assert records_of(noted(scope._replace(state=how).chunks())) == given
    assert bool(made) == (besides is not None)
    assert sum(through) > len(parts)


@pytest.mark.reads
def test_damage_of_every_kind(tmp_path, through):
    parts = written(tmp_path / "orders-0", ["plain"] * 20 + ["keys"] * 20 + ["headers"] * 2 + ["nulls"] * 10)
    path, data = tmp_path / "orders-0" / f"{0:020d}.log", b"".join(parts)
    random = np.random.default_rng(5)
    for n in range(48):
        worse = bytearray(data)
        at = int(random.integers(0, len(data) - 70))
        if n % 4 == 0:
            del worse[at : at + int(random.integers(1, 3000))]
        elif n % 4 == 1:
            size = int(random.integers(1, 5000))
            worse[at : at + size] = bytes(len(worse[at : at + size]))
        elif n % 4 == 2:  # a header
            begins = np.cumsum([0, *map(len, parts)])
            worse[int(random.choice(begins[:-1])) + int(random.integers(0, 61))] ^= 1 << int(random.integers(0, 8))
        else:
            worse[at] ^= 0xFF
        path.write_bytes(worse)
        assert outcome(tmp_path / "orders-0", ALL) == outcome(tmp_path / "orders-0", ALL, is_reused=False)
    assert sum(through) > 48 * 20


@pytest.mark.reads
def test_records_that_are_wrong_behind_a_good_check_sum(tmp_path, through):
    """What the decoder refuses is said by the careful way, and nothing of it stays."""
    parts = written(tmp_path / "orders-0", ["keys"] * 40)
    path = tmp_path / "orders-0" / f"{0:020d}.log"
    for row in (15, 25, 39):
        for at, new in ((57, (19).to_bytes(4, "big")), (57, (21).to_bytes(4, "big")), (61, b"\x7f")):
            batch = bytearray(parts[row])
            batch[at : at + len(new)] = new
            batch[17:21] = pylogseg._codec.crc32c(bytes(batch[21:])).to_bytes(4, "big")
            path.write_bytes(b"".join([*parts[:row], bytes(batch), *parts[row + 1 :]]))
            given = outcome(tmp_path / "orders-0", ALL)
            assert given == outcome(tmp_path / "orders-0", ALL, is_reused=False)
            assert (len(given[1]), len(given[0])) == (1, 39 * 20)
    assert through


@pytest.mark.reads
def test_a_file_that_is_cut_while_it_is_read(tmp_path, through):
    parts = written(tmp_path / "orders-0", ["plain"] * 60)
    path = tmp_path / "orders-0" / f"{0:020d}.log"
    reader = pylogseg.read(tmp_path / "orders-0")
    how = replace(reader.scope.state, window_bytes=9000, first_window_bytes=2000, scratch=Scratch)
    chunks = iter(reader.scope._replace(state=how).chunks())
    next(chunks), next(chunks)
    path.write_bytes(b"".join(parts)[:20000])
    with pytest.raises(pylogseg.StorageError, match="was cut to"):
        list(chunks)
    assert through


@pytest.fixture
def made(monkeypatch):
    """What was decoded as it was decompressed: batches of each call."""
    monkeypatch.setattr(module, "_PIECE_BYTES", 1500)
    found, real = [], module._records.read_and_decode

    class Native:
        def __getattr__(self, name):
            return getattr(native, name)

        def read_and_decode(self, *arguments):
            got = real(*arguments)
            if arguments[-2] is not None:
                found.append(got[0])
            return got

    native = module._records
    monkeypatch.setattr(module, "_records", Native())
    return found


PACKED = {
    "plain": {},
    "keys": {"keys": True},
    "headers": {"keys": True, "headers": True},
    "nulls": {"keys": True, "nulls": True},
    "large": {"size": 4000},
}


def packed(folder, codec, kinds):
    parts = [encoded(20 * n, 20, compression=codec, **PACKED[kind]) for n, kind in enumerate(kinds)]
    folder.mkdir(parents=True)
    (folder / f"{0:020d}.log").write_bytes(b"".join(parts))
    (folder / f"{20 * len(parts):020d}.log").touch()
    return parts


COMPRESSED = ["plain"] * 20 + ["keys"] * 20 + ["headers"] * 9 + ["nulls"] * 20 + ["large"] * 2 + ["keys"] * 20


CODECS = ("gzip", "snappy", "lz4", "zstd")


@pytest.mark.parametrize("names", [ALL, ("offset", "value"), ("offset", "key"), ("offset",)], ids=str)
@pytest.mark.parametrize("codec", CODECS)
def test_compressed_batches(tmp_path, made, codec, names):
    packed(tmp_path / "orders-0", codec, COMPRESSED)
    for options in ({}, {"offset": (333, 1287)}):
        given = outcome(tmp_path / "orders-0", names, is_reused=False, **options)
        for views in (False, True):
            made.clear()
            assert outcome(tmp_path / "orders-0", names, views=views, **options) == given
            assert sum(made) > len(COMPRESSED) // 4


@pytest.mark.parametrize("codec", CODECS)
def test_payloads_that_are_not_plain(tmp_path, made, codec):
    """Kafka's writers leave no such payloads, but its readers take them: they are decoded in the same pass."""
    lz4 = pytest.importorskip("lz4.frame")
    batch = encoded(0, 20, keys=True)
    plain = {
        "gzip": [compression.compress("gzip", part) for part in (batch[61:100], batch[100:])],
        "zstd": [compression.compress("zstd", part) for part in (batch[61:100], batch[100:])],
        "snappy": [cramjam.snappy.compress_raw(batch[61:])],
        "lz4": [lz4.compress(batch[61:], block_linked=False, block_checksum=True, store_size=False)],
    }[codec]
    odd = bytearray(batch[:61]) + b"".join(map(bytes, plain))
    odd[8:12], odd[22] = (len(odd) - 12).to_bytes(4, "big"), ("gzip", "snappy", "lz4", "zstd").index(codec) + 1
    parts = []
    for n in range(40):
        odd[:8] = (20 * n).to_bytes(8, "big")
        odd[17:21] = pylogseg._codec.crc32c(bytes(odd[21:])).to_bytes(4, "big")
        parts.append(bytes(odd))
    (tmp_path / "orders-0").mkdir()
    (tmp_path / "orders-0" / f"{0:020d}.log").write_bytes(b"".join(parts))
    (tmp_path / "orders-0" / f"{800:020d}.log").touch()
    given = outcome(tmp_path / "orders-0", ALL, is_reused=False)
    assert len(given[0]) == 800
    assert not given[1]
    assert outcome(tmp_path / "orders-0", ALL) == given
    assert sum(made) > 20


@pytest.mark.long
@pytest.mark.parametrize("codec", CODECS)
def test_damage_inside_of_compressed_batches(tmp_path, made, codec):
    """The check sum holds, and the codec or the decoder refuses the bytes; a limit that some batches are over."""
    parts = packed(tmp_path / "orders-0", codec, COMPRESSED)
    path = tmp_path / "orders-0" / f"{0:020d}.log"
    random = np.random.default_rng(7)
    for _ in range(16):
        worse = [bytearray(part) for part in parts]
        for row in random.choice(len(parts), 5, replace=False).tolist():
            batch = worse[row]
            batch[int(random.integers(57, len(batch)))] ^= 1 << int(random.integers(0, 8))
            batch[17:21] = pylogseg._codec.crc32c(bytes(batch[21:])).to_bytes(4, "big")
        path.write_bytes(b"".join(worse))
        for limit in (64 << 20, 20_000):
            options = {"max_decompressed_bytes": limit}
            given = outcome(tmp_path / "orders-0", ALL, **options)
            assert given == outcome(tmp_path / "orders-0", ALL, is_reused=False, **options)
    assert sum(made) > 16 * 30
