"""Redaction: what is asked for is gone everywhere, and everything else is as it was."""

from hypothesis import given, settings
from hypothesis import strategies as st
from offline_logs import again, made, records, state

from pylogseg.offline.changes import change_log
from pylogseg.offline.redactor import Blank, HasHeader, KeySet, Redaction, any_of

SEEDS = st.integers(0, 2**32)
KEYS = [b"a", b"hex", b"", b"long" * 20, b"\0\xff"]


def redact(log, wanted, **arguments):
    starts = [entry.start_offset for entry in log.epochs.entries]
    change = Redaction(wanted, log.log_end_offset, starts, **arguments)
    return list(change_log(log, change, lambda size: None))


@given(seed=SEEDS, keys=st.sets(st.sampled_from(KEYS)), mixed=st.booleans())
@settings(deadline=None)
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
    assert sum(segment.changed for segment in changed) == len([row for row in before if row not in expected])
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
@settings(deadline=None)
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
