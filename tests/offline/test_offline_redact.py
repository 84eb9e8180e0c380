"""Tests of cli/redact.py, log/segment_rewrite.py, offline/redacting.py and offline/redacting_batches.py. Redaction:
what is asked for is gone everywhere, and everything else is as it was.
"""

import shutil

import numpy as np
import pyarrow.compute as pc
import pytest
from helpers.damaged_logs import change_byte
from helpers.depth import draws
from helpers.descriptions import described
from helpers.offline_logs import NOW, SETTINGS, again, log_dir, made, opened, records, state
from hypothesis import given, settings
from hypothesis import strategies as st

import pylogseg
from pylogseg import offline
from pylogseg.config import LogConfig
from pylogseg.env.storage import LocalStorage
from pylogseg.errors import RequestError
from pylogseg.format import compression
from pylogseg.format.batches import scan
from pylogseg.format.records import decode
from pylogseg.offline.redacting_batches import Blank, HasHeader, KeySet, Redaction, any_of
from pylogseg.offline.rewriting import change_log
from pylogseg.testing.memory import MemoryStorage

CONFIG = {name.replace("_", "."): str(value) for name, value in SETTINGS.items()}
SEEDS = st.integers(0, 2**32)
KEYS = [b"a", b"hex", b"", b"long" * 20, b"\0\xff"]


def redact(log, wanted, **arguments):
    starts = [entry.start_offset for entry in log.epochs.entries]
    change = Redaction(wanted, log.log_end_offset, starts, **arguments)
    return list(change_log(log, change, lambda size: None))


@given(seed=SEEDS, keys=st.sets(st.sampled_from(KEYS)), mixed=st.booleans())
@settings(deadline=None, max_examples=draws(25))
def test_deleted_keys_are_gone_and_nothing_else(seed, keys, mixed):
    magics = (0, 1, 2, 2, 2) if mixed else (2,)
    log = made(seed, magics=magics)
    before, modified = records(log), [segment.modified_ms() for segment in log.segments]
    bases = [segment.base_offset for segment in log.segments]
    changed = redact(log, KeySet(keys))
    # A batch of magic 0 or 1 at the end leaves one record without key and value.
    expected = [row for row in before if row[2] not in keys or row[9]]
    left = records(log)
    if left != expected:
        assert left[:-1] == expected
        assert left[-1][:4] == (log.log_end_offset - 1, before[-1][1], None, None)
        assert left[-1][6] == -1
    assert sum(count for _, count, _, _ in changed) == len([row for row in before if row not in expected])
    assert [segment.base_offset for segment in log.segments] == bases
    assert [segment.modified_ms() for segment in log.segments] == modified
    assert not redact(log, KeySet(keys))
    log = again(log)
    assert records(log) == left
    known, expected = state(log), state(again(made(seed, magics=magics)))
    if mixed:  # a batch without an epoch makes a log forget all of them, and those left are found in the log again
        del known["epochs"], expected["epochs"]
    assert known == expected


@given(
    seed=SEEDS, value=st.sampled_from([None, b"", b"gone"]), parts=st.sets(st.sampled_from(["key", "value", "headers"]))
)
@settings(deadline=None, max_examples=draws(25))
def test_blanked_parts_are_gone_and_nothing_else(seed, value, parts):
    log = made(seed)
    before = records(log)
    blank = Blank(tuple(parts) or ("value", "headers"), value)
    wanted = any_of([KeySet([b"a"]), HasHeader(b"other", b"x"), HasHeader(b"h")])

    def expected(row):
        if row[9] or not (
            row[2] == b"a" or any(name == b"h" or (name, text) == (b"other", b"x") for name, text in row[4])
        ):
            return row
        key = None if "key" in blank.parts else row[2]
        left = value if "value" in blank.parts else row[3]
        return (*row[:2], key, left, [] if "headers" in blank.parts else row[4], *row[5:])

    redact(log, wanted, blank=blank)
    assert records(log) == [expected(row) for row in before]
    assert not redact(log, wanted, blank=blank)
    log = again(log)
    assert records(log) == [expected(row) for row in before]
    assert state(log) == state(again(made(seed)))


def run(path, **arguments):
    return offline.redact(str(path), config=CONFIG, now_ms=NOW, **arguments)


def on_disk(tmp_path, seed=1, **arguments):
    """A log directory on the disk, with one partition."""
    path = tmp_path / "logs"
    log_dir(seed, LocalStorage(), folder=str(path), **arguments)
    return path


def test_a_predicate_on_arrow_columns(tmp_path):
    path = on_disk(tmp_path, magics=(2,))
    before = list(pylogseg.read(str(path), "t-0"))
    (result,) = run(path, filter=lambda rows: pc.less(rows["offset"], 10))
    assert result.numbers["recordsDeleted"] == sum(record.offset < 10 for record in before)
    left = list(pylogseg.read(str(path), "t-0"))
    assert [record.offset for record in left] == [record.offset for record in before if record.offset >= 10]
    with pytest.raises(RequestError, match="returned 1 values for"):
        raise run(path, filter=lambda rows: [True]).failed[0].error


def test_nothing_is_found_afterwards(tmp_path):
    """In folders that nobody reads either, if they are asked for."""
    path = on_disk(tmp_path, seed=3)
    uuid = "0" * 32
    for name in (f"gone-0.{uuid}-delete", f"old-1.{uuid}-stray", f"t-1.{uuid}-future"):
        shutil.copytree(path / "t-0", path / name)
    (path / "t-0" / f"{0:020}.log.deleted").write_bytes((path / "t-0" / f"{0:020}.log").read_bytes())
    result = run(path, keys=[b"long" * 20])
    left = [part_result for part_result in result if part_result.state == "skipped"]
    assert len(left) == 3
    assert all("--everywhere" in part_result.remedy for part_result in left)
    holding = {file.parent.name for file in path.rglob("*.log*") if b"longlong" in file.read_bytes()}
    assert holding == {part_result.name for part_result in left}
    result = run(path, keys=[b"long" * 20], everywhere=True)
    assert {part_result.state for part_result in result} == {"done", "unchanged"}
    assert result.is_closed_clean
    assert sorted(entry.name for entry in path.iterdir() if entry.is_dir()) == sorted(
        ["t-0", left[1].name, left[2].name]
    )
    assert not [file for file in path.rglob("*.log*") if b"longlong" in file.read_bytes()]
    for name in ("t-0", left[1].name, left[2].name):
        assert not [record for record in pylogseg.read(str(path / name)) if record.key == b"long" * 20]


def test_damage_is_refused_before_anything_is_written(tmp_path):
    path = on_disk(tmp_path, seed=4)
    last = max((path / "t-0").glob("*.log"))
    change_byte(last, -1)
    before = {file.name: file.read_bytes() for file in (path / "t-0").glob("*.log")}
    (result,) = run(path, keys=[b"a"])
    assert result.state == "failed"
    assert last.name in result.reason
    assert "repair" in result.remedy
    assert {file.name: file.read_bytes() for file in (path / "t-0").glob("*.log")} == before


def test_many_keys():
    """More than a first table holds, and some that differ in a byte."""
    wanted = KeySet([b"key %d" % i for i in range(0, 30_000, 3)] + [b""])
    data = pylogseg.encode([(0, b"key %d" % i, None) for i in range(30_000)] + [(0, b"", b""), (0, None, b"")])
    table = scan(data).batches
    mask = wanted(decode(table, data)[0])
    assert np.flatnonzero(mask).tolist() == [*range(0, 30_000, 3), 30_000]


def test_what_decompresses_to_much_is_taken_in_parts(monkeypatch):
    monkeypatch.setattr(compression, "ARENA_BYTES", 1 << 20)
    log = opened(MemoryStorage(), "t-0", LogConfig.of(segment_bytes=1 << 20))
    for i in range(40):
        spec = {"base_offset": i, "compression": "zstd", "leader_epoch": 0}
        spec["records"] = [{"timestamp": NOW, "key": f"k{i % 4}", "value": "v" * 2_000_000}]
        log.append_as_follower(described([spec]), 0)
    ((_, count, _, _),) = redact(log, KeySet([b"k1"]))
    assert count == 10
    monkeypatch.undo()
    assert [row[0] for row in records(log)] == [i for i in range(40) if i % 4 != 1]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "no records are selected"),
        ({"keys": [b"a"], "blank": Blank(("values",))}, "cannot blank values: there are key, value, headers"),
        ({"keys": [b"a"], "blank": Blank(())}, "cannot blank nothing"),
        ({"keys": ["k91"]}, "keys are bytes, such as b'k91', not 'k91'"),
        ({"keys": [b"a", 7]}, "keys are bytes, not 7"),
        ({"keys": b"k91"}, r"keys are a list, not one value: \[b'k91'\]"),
        ({"keys": "k91", "force": True}, "keys are a list"),
        ({"headers": [("mail", None)]}, "names of headers are bytes, such as b'mail'"),
        ({"headers": [(b"mail", "x")]}, "values of headers are bytes, such as b'x'"),
    ],
)
def test_refused(tmp_path, arguments, said):
    with pytest.raises(RequestError, match=said):
        run(on_disk(tmp_path), **arguments)
