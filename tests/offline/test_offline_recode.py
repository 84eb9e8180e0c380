"""Tests of cli/recode.py, offline/recoding.py, offline/recoding_batches.py and offline/rewriting.py. Recoding: other
bytes, the same records, and a broker knows the same of the log.
"""

import pytest
from helpers.depth import draws
from helpers.descriptions import described
from helpers.offline_logs import CODECS, NOW, again, made, opened, records, state
from hypothesis import given, settings
from hypothesis import strategies as st

from pylogseg.config import LogConfig
from pylogseg.errors import RequestError
from pylogseg.format.codecs import CODEC_NAMES
from pylogseg.offline.recoding_batches import Merging, Recoding
from pylogseg.offline.rewriting import change_log
from pylogseg.testing.memory import MemoryStorage

SEEDS = st.integers(0, 2**32)


def recode(log, **arguments):
    return list(change_log(log, Recoding(**arguments), lambda size: None))


def rows(log):
    return [row for segment in log.segments for window in segment.windows() for row in window.batches.rows]


def without_magic(found):
    """Magic 0 has no timestamp type, and magic 2 has one."""
    return [(*row[:5], max(row[5], 0), *row[6:]) for row in found]


@given(seed=SEEDS, codec=st.sampled_from([None, *range(5)]), upgrade=st.booleans(), all_again=st.booleans())
@settings(deadline=None, max_examples=draws(25))
def test_the_same_records_in_the_same_batches(seed, codec, upgrade, all_again):
    log = made(seed, magics=(0, 1, 2, 2) if upgrade or codec != 4 else (2,))
    before, shape = records(log), [(int(row["last_offset"]), int(row["magic"])) for row in rows(log)]
    changed = recode(log, codec=codec, to_magic_2=upgrade, all_again=all_again)
    after = records(log)
    assert (without_magic(after) if upgrade else after) == (without_magic(before) if upgrade else before)
    shape_after = [(int(row["last_offset"]), int(row["magic"])) for row in rows(log)]
    if codec == 0 and not upgrade:  # uncompressed messages of magic 0 and 1 are always alone
        assert set(shape_after) >= set(shape)
    else:
        assert shape_after == [(last, 2 if upgrade else magic) for last, magic in shape]
    for row in rows(log):
        if codec is not None and not row["attributes"] & 0x20:
            assert row["attributes"] & 7 == codec
    if not all_again:
        assert not recode(log, codec=codec, to_magic_2=upgrade)
    assert bool(changed) <= (codec is not None or upgrade)
    log = again(log)
    assert records(log) == after
    assert state(log) == state(again(made(seed, magics=(0, 1, 2, 2) if upgrade or codec != 4 else (2,))))


@given(
    seed=SEEDS, codec=st.sampled_from([None, 0, 4]), most=st.sampled_from([1, 500, 1 << 20]), below=st.integers(0, 99)
)
@settings(deadline=None, max_examples=draws(25))
def test_merged_batches_hold_the_same_records(seed, codec, most, below):
    log = made(seed, batches=40)
    before, count, ends = records(log), len(rows(log)), [int(row["last_offset"]) for row in rows(log)]
    recode(log, codec=codec, to_magic_2=True, merging=Merging(most, below))
    after = records(log)
    assert without_magic(after) == without_magic(before)
    left = [int(row["last_offset"]) for row in rows(log)]
    assert set(left) <= set(ends)
    assert {end for end in ends if end >= below} <= set(left)
    assert most > 1 or len(left) == count
    assert not recode(log, codec=codec, to_magic_2=True, merging=Merging(most, below))
    log = again(log)
    assert records(log) == after
    assert state(log) == state(again(made(seed, batches=40)))
    assert tuple(CODECS) == CODEC_NAMES


def test_segments_that_grow_become_several():
    """Each within its size and its indexes, one behind the other, aborted transactions where their markers are."""
    log = opened(
        MemoryStorage(), "t-0", LogConfig.of(segment_bytes=4000, segment_index_bytes=64, index_interval_bytes=50)
    )
    for i in range(30):
        spec = {"base_offset": 12 * i, "compression": "zstd", "leader_epoch": 0}
        if i % 3 == 2:
            spec |= {"control": "abort", "producer_id": 1, "producer_epoch": 0, "timestamp": NOW}
        else:
            spec |= {"producer_id": 1, "producer_epoch": 0, "base_sequence": 10 * (i - i // 3), "transactional": True}
            spec["records"] = [{"timestamp": NOW + i, "key": "k", "value": "value" * 20} for _ in range(10)]
        log.append_as_follower(described([spec]), 0)
    before, known, count = records(log), state(log)["aborted"], len(list(log.segments))
    changed = recode(log, codec=0)
    assert sum(len(new) for _, _, _, new in changed) == len(list(log.segments)) > count
    assert (records(log), state(log)["aborted"]) == (before, known)
    for segment in log.segments:
        assert segment.size <= 4000
        assert segment.offset_index.count <= 8
        txns = list(segment.aborted_txns)
        following = log.segments.higher(segment.base_offset)
        assert all(segment.base_offset <= txn.last_offset for txn in txns)
        assert all(following is None or txn.last_offset < following.base_offset for txn in txns)
    log = again(log)
    assert (records(log), state(log)["aborted"]) == (before, known)


def test_zstd_needs_magic_2():
    log = made(1, magics=(1,))
    before = records(log)
    with pytest.raises(RequestError, match=r"the batch at position 0 has magic 1, which does not support zstd"):
        recode(log, codec=4)
    assert records(log) == before
    assert recode(log, codec=4, to_magic_2=True)


def test_a_level_is_used():
    sizes = []
    for level in (1, 19):
        log = made(5, magics=(2,), batches=60)
        recode(log, codec=4, all_again=True, merging=Merging(1 << 20, 2**40), levels={4: level})
        sizes.append(log.segments.size)
    assert sizes[1] < sizes[0]
