"""Tests of cli/latest.py and reading/latest.py. The last record of each key: against a dictionary, against what Kafka's
cleaner left, in one pass and in many.
"""

import shutil
import tempfile
from pathlib import Path

import pytest
from helpers.damaged_logs import change_byte
from helpers.shell import pylogseg as shell
from hypothesis import given, settings
from hypothesis import strategies as st

import pylogseg
from pylogseg.errors import RequestError
from pylogseg.log.cleaner import Cleaner
from pylogseg.log.cleaner_range import cleanable
from pylogseg.log.offset_map import OffsetMap
from pylogseg.reading.latest import latest_chunks
from pylogseg.reading.log_reader import LogReader
from pylogseg.reading.logs import logs_of
from pylogseg.reading.state import Reading
from pylogseg.walker.gaps import GapKind

SMALLEST = 64 << 10


def last_of(records, tombstones=False):
    last = {(r.topic, r.partition, r.key): r for r in records if r.key is not None}
    kept = [r for r in last.values() if tombstones or r.value is not None]
    return sorted(kept, key=lambda r: (r.topic, r.partition, r.offset))


def write_log(folder: Path, records, **options) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{0:020}.log").write_bytes(bytes(pylogseg.encode(records, **options)))
    return folder


KEYS = st.lists(st.tuples(st.just(1), st.none() | st.binary(max_size=2), st.none() | st.just(b"v")), max_size=80)


@given(
    records=KEYS, batch_bytes=st.integers(80, 400), codec=st.sampled_from(["none", "zstd"]), tombstones=st.booleans()
)
def test_like_a_dictionary(records, batch_bytes, codec, tombstones):
    with tempfile.TemporaryDirectory() as folder:
        log = write_log(Path(folder) / "t-0", records, batch_bytes=batch_bytes, compression=codec)
        got = list(pylogseg.read(log, latest=True, tombstones=tombstones))
        assert got == last_of(pylogseg.read(log), tombstones)


@pytest.mark.parametrize("isolation_level", ["read_uncommitted", "read_committed"])
def test_all_examples(examples, isolation_level):
    got = list(pylogseg.read(examples, isolation_level=isolation_level, latest=True))
    assert got == last_of(pylogseg.read(examples, isolation_level=isolation_level)) != []
    assert pylogseg.read_arrow(examples, isolation_level=isolation_level, latest=True).read_all().num_rows == len(got)


@pytest.mark.parametrize(("before", "after"), [(0, 1), (2, 3), (4, 5)])
def test_what_kafkas_cleaner_left(golden, before, after):
    """A cleaning changes no last value."""
    disks = [golden / "broker-4.3" / name for name in (f"compact-{before}-before", f"compact-{after}-cleaned")]
    values = [
        [r[:5] + r[6:] for r in pylogseg.read([disk / "data0", disk / "data1"], "cmp-*", latest=True)] for disk in disks
    ]
    assert values[0] == values[1] != []


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """20,000 records of 9,000 keys: some four times what the smallest map holds."""
    records = [(1, b"key-%d" % (i * 7919 % 9000), None if i % 5 == 0 else b"%d" % i) for i in range(20_000)]
    return write_log(tmp_path_factory.mktemp("many") / "many-0", records, compression="lz4", batch_bytes=2000)


@pytest.mark.parametrize("memory", [SMALLEST, 100_000, 300_000])
def test_more_keys_than_memory(many, memory):
    got = list(pylogseg.read(many, latest=True, latest_memory_bytes=memory))
    assert got == last_of(pylogseg.read(many))
    assert len(list(pylogseg.read(many, latest=True, tombstones=True, latest_memory_bytes=memory))) == 9000


def test_ranges_count(many):
    """What is outside of a range is no latest: the state as of then."""
    every = list(pylogseg.read(many))
    got = list(pylogseg.read(many, offset=(1000, 7000), latest=True, limit=50))
    assert got == last_of(every[1000:7000])[:50]


class Growing:
    """Reads a log, and calls something behind each pass."""

    def __init__(self, log: Path, then) -> None:
        self.passes, self._log, self._then = 0, log, then

    def __call__(self, state):
        yield from LogReader(logs_of(pylogseg.open_dir(self._log))[0], 0, 2**63, state=state).read()
        self.passes += 1
        self._then(self.passes)


def test_what_comes_between_the_passes_is_not_seen(many, tmp_path):
    log = Path(shutil.copytree(many, tmp_path / "many-0"))
    before = last_of(pylogseg.read(log))
    file = log / f"{0:020}.log"

    def append(passes):
        with file.open("ab") as out:
            out.write(bytes(pylogseg.encode([(1, b"key-1", b"new"), (1, b"else", b"new")], base_offset=2**20 * passes)))

    read, state = Growing(log, append), Reading().start()
    chunks = list(latest_chunks(read, state, memory_bytes=SMALLEST))
    assert [offset for chunk in chunks for offset in chunk.columns.offset.tolist()] == [r.offset for r in before]
    assert read.passes > 3
    assert state.gaps == []


def test_what_goes_between_the_passes_is_told(many, tmp_path):
    log = Path(shutil.copytree(many, tmp_path / "many-0"))
    records = [(1, b"key-%d" % i, b"x") for i in range(10)]
    read = Growing(log, lambda passes: write_log(log, records, base_offset=20_000))
    state = Reading().start()
    assert list(latest_chunks(read, state)) == []
    (gap,) = state.gaps
    assert gap.kind is GapKind.REMOVED
    assert not gap.is_damage
    assert "9000 records that were the last of their key were deleted" in str(gap)


def test_damage_is_told_once(many, tmp_path):
    log = Path(shutil.copytree(many, tmp_path / "many-0"))
    change_byte(log / f"{0:020}.log")
    reader = pylogseg.read(log, latest=True, latest_memory_bytes=SMALLEST, on_corrupt="skip")
    assert list(reader) == last_of(pylogseg.read(log, on_corrupt="skip"))
    assert [gap.kind for gap in reader.gaps] == [GapKind.CRC_BAD]


@given(
    records=KEYS,
    segment_bytes=st.sampled_from([300, 10_000]),
    codec=st.sampled_from(["none", "lz4"]),
    tombstones=st.booleans(),
    start=st.integers(0, 90),
)
@settings(max_examples=20)
def test_of_an_open_log(records, segment_bytes, codec, tombstones, start):
    with (
        tempfile.TemporaryDirectory() as folder,
        pylogseg.open_log(f"{folder}/t-0", segment_bytes=segment_bytes) as log,
    ):
        for at in range(0, len(records), 3):
            log.append(records[at : at + 3], compression=codec)
        reader = log.read(offset=(start, None), latest=True, tombstones=tombstones)
        expected = last_of(log.read(offset=(start, None)), tombstones)
        log.append([(1, key, b"later") for _, key, _ in records])  # is not seen
        assert list(reader) == expected
        assert reader.gaps == []


def test_of_an_open_log_with_more_keys_than_memory(tmp_path, many):
    with pylogseg.open_log(tmp_path / "many-0", segment_bytes=100_000) as log:
        log.append(pylogseg.read(many))
        last = log.read(latest=True, latest_memory_bytes=SMALLEST)
        assert list(last) == last_of(log.read())
        assert len(list(log.read(latest=True, limit=5))) == 5


def test_of_an_open_log_without_what_was_aborted(tmp_path):
    with pylogseg.open_log(tmp_path / "t-0") as log:
        producer = log.producer(1)
        for value, end in ((b"kept", "commit"), (b"aborted", "abort")):
            producer.begin()
            producer.append([(1, b"key", value)])
            getattr(producer, end)()
        assert [r.value for r in log.read(latest=True)] == [b"aborted"]
        assert [r.value for r in log.read(latest=True, isolation_level="read_committed")] == [b"kept"]


def test_of_an_open_log_that_is_cleaned_between_the_passes(tmp_path):
    with pylogseg.open_log(tmp_path / "t-0", cleanup_policy="compact") as log:
        log.append([(1, b"a", b"1"), (1, b"b", b"1")])
        reader = log.read(latest=True)
        put = OffsetMap.offsets

        def between(offsets):
            """The first pass is over: newer records of a key come, and the older one goes."""
            log.append([(1, b"a", b"2")])
            log.engine.roll()
            Cleaner(OffsetMap(1 << 16)).clean(log.engine, cleanable(log.engine, 0, 0))
            return put(offsets)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(OffsetMap, "offsets", between)
            assert [(r.key, r.value) for r in reader] == [(b"b", b"1")]
        assert [gap.kind for gap in reader.gaps] == [GapKind.REMOVED]
        assert [(r.key, r.value) for r in log.read(latest=True)] == [(b"b", b"1"), (b"a", b"2")]
        with pytest.raises(RequestError, match="too small"):
            log.read(latest=True, latest_memory_bytes=1000)


def test_wrong_usage(examples):
    with pytest.raises(RequestError, match="a map of 1000 bytes is too small"):
        pylogseg.read(examples, latest=True, latest_memory_bytes=1000)
    with pytest.raises(RequestError, match="control"):
        pylogseg.read(examples, latest=True, control=True)
    assert shell("cat", examples, "--tombstones").code == 2
    assert shell("cat", examples, "txn-a-0", "--latest", "--follow").code == 2
    assert "is too small" in shell("latest", examples, "--map-memory", "1k").err


def test_in_the_shell(examples):
    want = [r.offset for r in pylogseg.read(examples, "cmp-short-0", latest=True)]
    for command in (["latest"], ["cat", "--latest"], ["latest", "--jobs", 1], ["latest", "--limit", 1000]):
        rows = shell(*command, examples, "cmp-short-0").rows
        assert [row["offset"] for row in rows] == want
    with_tombstones = shell(
        "latest", examples, "cmp-short-0", "--tombstones", "--isolation-level", "read_committed"
    ).rows
    assert len(with_tombstones) > len(want)
    assert [row["offset"] for row in shell("cat", examples, "cmp-short-0", "--latest", "--tail", 7).rows] == want[-7:]
    assert shell("grep", "-c", "key-117", examples, "cmp-short-0", "--latest").out == b"1\n"
    one = shell("latest", examples, "cmp-short-0", "--key", "key-117").rows
    assert [row["offset"] for row in one] == [348]
