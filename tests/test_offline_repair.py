"""Repair: whatever was done to a segment, the good batches around it stay, and nothing is invented."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from offline_logs import SETTINGS, log_dir, opened, records, reopened

from pylogseg import encode, offline
from pylogseg.format.batches import BATCH_DTYPE, BatchTable, scan
from pylogseg.offline.salvage import ascending, survey
from pylogseg.testing.descriptions import described
from pylogseg.testing.memory import MemoryStorage

SEEDS = st.integers(0, 2**32)
CONFIG = {"segment.bytes": "2000", "index.interval.bytes": "100", "segment.index.bytes": "4096"}
DAMAGE = ["flip", "length", "magic", "zeros", "hole", "junk", "offset", "twice"]
assert SETTINGS["segment_bytes"] == 2000


def repaired(storage, **arguments):
    result = offline.repair("logs", storage=storage, config=CONFIG, **arguments)
    (outcome,) = result
    assert outcome.state != "failed", outcome.reason
    assert result.is_closed_clean
    return outcome


def damage(storage, rng, kinds):
    """Damage one batch; the offsets that are hit: (above, up to)."""
    names = [entry.name for entry in storage.list_folder("logs/t-0") if entry.name.endswith(".log") and entry.size]
    path = f"logs/t-0/{rng.choice(names)}"
    data = bytearray(storage.read_all(path))
    rows = scan(data).batches
    row = rng.randrange(len(rows))
    start, size = int(rows.position[row]), int(rows.size[row])
    kind = rng.choice(kinds)
    hit = {row}
    if kind == "flip":
        data[start + rng.randrange(17, size)] ^= 1 << rng.randrange(8)
    elif kind == "length":
        data[start + 8 : start + 12] = rng.choice([0, 1, size, 10**6, 2**31 - 1, 2**32 - 5]).to_bytes(4, "big")
    elif kind == "magic":
        data[start + 16] = rng.randrange(3, 127)
    elif kind == "zeros":
        data[start : start + size] = bytes(size)
    elif kind == "hole":
        at = start + rng.randrange(size)
        cut = rng.randrange(1, size)
        hit = {i for i in range(len(rows)) if rows.position[i] < at + cut and rows.position[i] + rows.size[i] > at}
        del data[at : at + cut]
    elif kind == "junk":
        hit = set()
        data[start:start] = bytes(rng.randrange(256) for _ in range(rng.randrange(1, 200)))
    elif kind == "offset":
        data[start : start + 8] = rng.choice([2**40, 2**62]).to_bytes(8, "big")
    elif kind == "twice":
        hit = set()
        data[start + size : start + size] = data[start : start + size]
    storage.write_plain(path, bytes(data))
    # A compressed message of magic 0 does not tell its first offset.
    return [(int(rows.last_offset[i - 1]) if i else -1, int(rows.last_offset[i])) for i in hit]


@given(seed=SEEDS, kind=st.sampled_from(DAMAGE))
@settings(deadline=None, max_examples=25)
def test_good_batches_behind_damage_stay(seed, kind):
    storage = log_dir(seed, magics=(2, 2, 2, 0))
    before = records(reopened(log_dir(seed, magics=(2, 2, 2, 0))))
    spans = damage(storage, random.Random(seed), [kind])
    outcome = repaired(storage, keep_behind=True)
    found = records(reopened(storage))
    assert [row for row in found if row not in before] == []
    expected = [row for row in before if not any(above < row[0] <= last for above, last in spans)]
    if kind != "offset":
        assert [row for row in expected if row not in found] == [], (kind, spans)
    again = repaired(storage, keep_behind=True)
    assert not again.rows
    assert not [action for action in again.report.actions if action.bytes_gone]
    if kind not in ("flip", "offset", "length"):
        assert outcome.rows


def table(*spans):
    """Batches of these first and last offsets, one behind the other."""
    rows = np.zeros(len(spans), BATCH_DTYPE)
    rows["base_offset"], rows["last_offset"] = np.array(spans).reshape(-1, 2).T
    rows["position"], rows["size"], rows["producer_id"] = np.arange(len(spans)) * 100, 100, -1
    return BatchTable(rows)


@pytest.mark.parametrize(
    ("spans", "kept"),
    [
        ([(0, 4), (5, 9), (12, 12)], [0, 1, 2]),
        ([(0, 4), (0, 4), (5, 9)], [0, 2]),  # twice: the first
        ([(0, 4), (2**40, 2**40), (10, 12), (13, 13)], [0, 2, 3]),  # too high: not what follows
        ([(0, 4), (5, 9), (1, 3), (10, 10)], [0, 1, 3]),  # too low
        ([(0, 4), (3, 9), (10, 12)], [0, 2]),  # overlaps
        ([(7, 9), (0, 4), (5, 6), (20, 20)], [1, 2, 3]),
        ([(0, 4), (60, 70)], [0]),  # belongs to the next segment
        ([(0, 4), (5, 3), (6, 6)], [0, 2]),  # ends before it begins
    ],
)
def test_the_longest_chain_that_ascends_stays(spans, kept):
    assert ascending(table(*spans), 0, 50).tolist() == kept


def test_a_leap_at_the_end_goes():
    assert ascending(table((0, 4), (2**40, 2**40)), 0, None).tolist() == [0]
    assert ascending(table((0, 4), (2**31, 2**31)), 0, None).tolist() == [0, 1]
    assert ascending(table(), 0, None).tolist() == []


def test_batches_that_no_broker_loads_go():
    """The marker of a transaction is lost, and its producer goes on without one."""
    storage = MemoryStorage()
    log = opened(storage, "logs/t-0")
    producer = {"producer_id": 1, "producer_epoch": 0, "leader_epoch": 0}
    row = {"records": [{"timestamp": 1, "key": "k", "value": "v"}], **producer}
    specs = [
        {**row, "base_offset": 0, "base_sequence": 0, "transactional": True},
        {"control": "commit", "base_offset": 1, "timestamp": 1, **producer},
        {**row, "base_offset": 2, "base_sequence": 1},
        {**row, "base_offset": 3, "producer_id": 2, "base_sequence": 0},
    ]
    for spec in specs:
        log.append_as_follower(described([spec]), 0)
    log.close()
    path = f"logs/t-0/{0:020}.log"
    data = bytearray(storage.read_all(path))
    rows = scan(data).batches
    data[int(rows.position[1]) + 65] ^= 1
    storage.write_plain(path, bytes(data))
    (outcome,) = offline.repair("logs/t-0", storage=storage, config=CONFIG, keep_behind=True)
    assert outcome.state == "done", outcome.reason
    assert [(gap["kind"], gap["position"]) for gap in outcome.rows] == [
        ("crc", int(rows.position[1])),
        ("order", int(rows.position[2])),
    ]
    assert "has a transaction open" in outcome.rows[1]["reason"]
    left = reopened(storage)
    assert [row[0] for row in records(left)] == [0, 3]


def test_a_good_batch_across_two_gaps_is_found():
    """A damaged length leads to bytes that look like a batch, in the middle of a good one."""
    looks_so = (5).to_bytes(8, "big") + (60).to_bytes(4, "big") + bytes(4) + b"\2" + bytes(70)
    batches = [bytearray(encode([(1, b"k", value)], base_offset=i)) for i, value in enumerate([b"v", looks_so, b"v"])]
    at = bytes(batches[1]).index(looks_so)
    batches[0][8:12] = (len(batches[0]) - 12 + at).to_bytes(4, "big")
    storage = MemoryStorage()
    storage.make_folder("t-0")
    storage.write_plain("t-0/x.log", b"".join(batches))
    found = survey(storage.open_log("t-0/x.log"), 0, None, set())
    first = len(batches[0])
    assert found.runs == [(first, first + len(batches[1]) + len(batches[2]))]
    assert [(gap.position, gap.end_position) for gap in found.gaps] == [(0, first)]
