"""Repair: whatever was done to a segment, the good batches around it stay, and nothing is invented."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st
from offline_logs import SETTINGS, log_dir, records, reopened

from pylogseg import offline
from pylogseg.format.batches import scan

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
