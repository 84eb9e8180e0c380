"""Recoding: other bytes, the same records, and a broker knows the same of the log."""

from hypothesis import given, settings
from hypothesis import strategies as st
from offline_logs import CODECS, again, made, records, state

from pylogseg.format.batches import CODEC_NAMES
from pylogseg.offline.changes import change_log
from pylogseg.offline.recoder import Merging, Recoding

SEEDS = st.integers(0, 2**32)


def recode(log, **arguments):
    return list(change_log(log, Recoding(**arguments), lambda size: None))


def rows(log):
    return [row for segment in log.segments for stretch in segment.windows() for row in stretch.batches.rows]


def without_magic(found):
    """Magic 0 has no timestamp type, and magic 2 has one."""
    return [(*row[:5], max(row[5], 0), *row[6:]) for row in found]


@given(seed=SEEDS, codec=st.sampled_from([None, *range(5)]), upgrade=st.booleans(), all_again=st.booleans())
@settings(deadline=None, max_examples=25)
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
@settings(deadline=None, max_examples=25)
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
    log = again(log)
    assert records(log) == after
    assert state(log) == state(again(made(seed, batches=40)))
    assert tuple(CODECS) == CODEC_NAMES
