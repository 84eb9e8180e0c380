"""Tests of cli/repair.py, offline/repairing/command.py and offline/repairing/salvage.py. Repair: whatever was done to a
segment, the good batches around it stay, and nothing is invented.
"""

import os
import random
import shutil

import numpy as np
import pytest
from helpers.depth import draws
from helpers.descriptions import described
from helpers.offline_logs import SETTINGS, log_dir, opened, records, reopened
from helpers.offline_world import files
from helpers.trees import contents
from hypothesis import given, settings
from hypothesis import strategies as st

from pylogseg import _codec, encode, offline, open_dir, read
from pylogseg.format.batches import BATCH_DTYPE, BatchTable, scan
from pylogseg.inspect.verify.disk import VerifySummary, verify_disk
from pylogseg.inspect.verify.findings import Level
from pylogseg.offline.repairing.salvage import ascending, survey
from pylogseg.testing.memory import MemoryStorage

SEEDS = st.integers(0, 2**32)
CONFIG = {"segment.bytes": "2000", "index.interval.bytes": "100", "segment.index.bytes": "4096"}
DAMAGE = ["flip", "length", "magic", "zeros", "hole", "junk", "offset", "twice"]
assert SETTINGS["segment_bytes"] == 2000


def repaired(storage, **arguments):
    result = offline.repair("logs", storage=storage, config=CONFIG, **arguments)
    (each,) = result
    assert each.state != "failed", each.reason
    assert result.is_closed_clean
    return each


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
        batches = [bytes(data[at : at + length]) for at, length in zip(rows.position, rows.size, strict=True)]
        at = start + rng.randrange(size)
        del data[at : at + rng.randrange(1, size)]
        # Not by the place of the hole: the zeros that end a batch are followed by the zeros of the next one's offset.
        hit, end = set(), 0
        for i, batch in enumerate(batches):
            found = data.find(batch, end)
            hit |= {i} if found < 0 else set()
            end = end if found < 0 else found + len(batch)
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
@settings(deadline=None, max_examples=draws(25))
def test_good_batches_behind_damage_stay(seed, kind):
    storage = log_dir(seed, magics=(2, 2, 2, 0))
    before = records(reopened(log_dir(seed, magics=(2, 2, 2, 0))))
    spans = damage(storage, random.Random(seed), [kind])
    result = repaired(storage, keep_behind=True)
    found = records(reopened(storage))
    assert [row for row in found if row not in before] == []
    expected = [row for row in before if not any(above < row[0] <= last for above, last in spans)]
    if kind != "offset":
        assert [row for row in expected if row not in found] == [], (kind, spans)
    again = repaired(storage, keep_behind=True)
    assert not again.rows
    assert not [action for action in again.report.actions if action.bytes_gone]
    if kind not in ("flip", "offset", "length"):
        assert result.rows


def test_a_name_that_is_taken_is_not_advised(tmp_path):
    """Renaming to it would overwrite a good segment."""
    batch = encode([(1, b"k", b"v")], base_offset=5)
    folder = tmp_path / "t-0"
    folder.mkdir()
    (folder / f"{5:020}.log").write_bytes(batch)
    (folder / f"{9:020}.log").write_bytes(batch)
    (result,) = offline.repair(str(folder))
    assert (result.state, "rename" in result.reason) == ("failed", False)
    assert f"{5:020}.log is there as well" in result.reason
    assert "pylogseg repair" not in result.remedy
    (folder / f"{5:020}.log").unlink()
    (result,) = offline.repair(str(folder))
    assert f"rename its files to {5:020}.*" in result.reason


def test_a_small_file_that_no_load_takes_is_found_before_the_first_cut(tmp_path):
    batches = [bytearray(encode([(1, b"k", b"v")], base_offset=i)) for i in range(4)]
    batches[2][-1] ^= 1
    folder = tmp_path / "t-0"
    folder.mkdir()
    (folder / f"{0:020}.log").write_bytes(b"".join(batches))
    (folder / "partition.metadata").write_text("version: \ntopic_id: abc\n")
    (folder / "leader-epoch-checkpoint").write_text("x")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    for keep_behind in (False, True):
        (result,) = offline.repair(str(folder), keep_behind=keep_behind)
        assert (result.state, result.report.actions) == ("failed", [])
        assert "partition.metadata" in result.reason
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.parametrize("state", [None, b""])
def test_a_repair_that_fails_leaves_leader_epochs_as_they_were(golden, tmp_path, state):
    """Absent and empty are two things."""
    folder = shutil.copytree(golden / "broker-4.3/codecs/data1/codec-zstd-0", tmp_path / "d" / "codec-zstd-0")
    (folder / "leader-epoch-checkpoint").unlink()
    if state is not None:
        (folder / "leader-epoch-checkpoint").write_bytes(state)
    before = contents(folder)
    (result,) = offline.repair(tmp_path / "d", max_decompressed_bytes=10, keep=None)
    assert (result.state, contents(folder)) == ("failed", before)


def test_one_odd_partition_does_not_stop_the_others(tmp_path):
    for name in ("a-0", "b-0", "c-0"):
        (tmp_path / name).mkdir()
    good = [encode([(1, b"k", b"v")], base_offset=i) for i in range(2)]
    for name in ("a-0", "c-0"):
        (tmp_path / name / f"{0:020}.log").write_bytes(good[0] + b"\xff" * 50 + good[1])
    (tmp_path / "b-0" / "leader-epoch-checkpoint").write_text("0\n0\n")
    result = offline.repair(str(tmp_path), keep_behind=True)
    assert [(each.name, each.state) for each in result] == [
        ("a-0", "done"),
        ("b-0", "done"),
        ("c-0", "done"),
    ]
    assert [record.offset for record in read(str(tmp_path / "c-0"))] == [0, 1]


def test_kept_batches_that_no_segment_reaches_get_one_of_their_own(tmp_path):
    offsets = [0, 1, 2**31 + 10, 2**31 + 11, 2**33, 2**33 + 1]
    batches = [bytearray(encode([(1, b"k", b"v")], base_offset=i)) for i in offsets]
    batches[1][-1] ^= 1
    folder = tmp_path / "t-0"
    folder.mkdir()
    (folder / f"{0:020}.log").write_bytes(b"".join(batches))
    (result,) = offline.repair(str(folder), keep_behind=True)
    assert result.state == "done", result.reason
    assert [record.offset for record in read(str(folder))] == [offsets[0], *offsets[2:]]
    (result,) = offline.repair(str(folder), keep_behind=True)
    assert result.state == "unchanged"


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
    (result,) = offline.repair("logs/t-0", storage=storage, config=CONFIG, keep_behind=True)
    assert result.state == "done", result.reason
    assert [(gap["kind"], gap["position"]) for gap in result.rows] == [
        ("crc", int(rows.position[1])),
        ("order", int(rows.position[2])),
    ]
    assert "has a transaction open" in result.rows[1]["reason"]
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


# ---- repaired once is repaired ----

#: Of a log and its damage; see `check_repair`.
ROUNDS = int(os.environ.get("PYLOGSEG_REPAIR_SEEDS", "60"))
HARD = [*DAMAGE, "records", "records", "count", "marker", "reach"]


def sealed(batch):
    """A batch whose check sum holds again."""
    if batch[16] == 2:
        batch[17:21] = _codec.crc32c(bytes(batch[21:])).to_bytes(4, "big")
    else:
        batch[12:16] = _codec.crc32(bytes(batch[16:])).to_bytes(4, "big")
    return batch


def hurt(batch, kind, rng):
    """What becomes of one batch; more damage than `damage` makes: behind good check sums too."""
    size = len(batch)
    if kind == "flip":
        batch[rng.randrange(17, size)] ^= 1 << rng.randrange(8)
    elif kind == "length":
        batch[8:12] = rng.choice([0, 1, size, 10**6, 2**31 - 1, 2**32 - 5]).to_bytes(4, "big")
    elif kind == "magic":
        batch[16] = rng.randrange(3, 127)
    elif kind == "zeros":
        batch[:] = bytes(size)
    elif kind == "hole":
        at = rng.randrange(size)
        del batch[at : at + rng.randrange(1, size)]
    elif kind == "junk":
        batch[0:0] = rng.randbytes(rng.randrange(1, 200))
    elif kind == "offset":
        batch[:8] = rng.choice([2**40, 2**62]).to_bytes(8, "big")
    elif kind == "reach":
        batch[:8] = (int.from_bytes(batch[:8], "big") + 2**31 + rng.randrange(9)).to_bytes(8, "big")
    elif kind == "twice":
        batch += bytes(batch)
    elif kind == "records":
        batch[rng.randrange(61 if batch[16] == 2 else 17, size)] ^= 1 << rng.randrange(8)
        sealed(batch)
    elif kind == "count" and batch[16] == 2:
        batch[57:61] = rng.choice([0, 5, 2**31 - 1, 2**32 - 1]).to_bytes(4, "big")
        sealed(batch)
    elif kind == "marker" and batch[16] == 2:
        batch[22] |= 0x20
        sealed(batch)


def hurt_log(folder, rng):
    """Damage several batches, neighbours more often than not; whole batches that are left: path, position, rows."""
    left = []
    for path in sorted(folder.glob("*.log")):
        data = path.read_bytes()
        rows = scan(data).batches
        spans = [(int(rows.position[i]), int(rows.position[i] + rows.size[i])) for i in range(len(rows))]
        batches = [bytearray(data[start:end]) for start, end in spans]
        hit = set()
        if batches and rng.random() < 0.7:
            first = rng.randrange(len(batches))
            hit = {i for i in range(first, first + rng.choice([1, 1, 2, 2, 3, 5])) if i < len(batches)}
            hit |= {rng.randrange(len(batches)) for _ in range(rng.choice([0, 0, 1, 2]))}
        for i in hit:
            hurt(batches[i], rng.choice(HARD), rng)
        at = 0
        shorter = {i for i in hit if len(batches[i]) < spans[i][1] - spans[i][0]}
        for i, batch in enumerate(batches):
            if i not in hit and i - 1 not in shorter:  # which may take the first bytes of this one for its own
                left.append((str(path), at, int(rows.base_offset[i]), int(rows.last_offset[i])))
            at += len(batch)
        path.write_bytes(b"".join(batches))
    return left


def check_repair(seed, folder):
    """Any damage: repaired by one run, nothing invented, and what is not there any more is told."""
    rng = random.Random(seed)
    memory = log_dir(seed, magics=rng.choice([(2,), (2, 2, 2, 1, 0), (1, 0)]))
    before = records(reopened(memory))
    (folder / "t-0").mkdir(parents=True)
    for path, data in files(memory, "logs").items():
        target = folder / os.path.relpath(path, "logs")
        target.write_bytes(data)
    left = hurt_log(folder / "t-0", rng)
    keep_behind = rng.random() < 0.6
    options = {"config": CONFIG, "keep_behind": keep_behind}
    (result,) = offline.repair(str(folder), **options)
    assert result.state in ("done", "unchanged"), result.reason
    assert (result.state == "done") == bool(result.report.actions)
    found = list(verify_disk(open_dir(str(folder)), VerifySummary(Level.INDEXES)))
    # What was lost stays lost, and is named; nothing else is wrong.
    broken = [row for row in found if row.is_damage and row.kind not in ("gap", "missing")]
    # A header that says 0 records makes an emptied batch of it for every reader, and for a broker.
    broken = [row for row in broken if not row.reason.startswith("no records declared")]
    assert not broken, broken
    contents = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    (again,) = offline.repair(str(folder), **options)
    assert (again.state, again.rows) == ("unchanged", []), (again.rows, again.report.actions)
    assert {path: path.read_bytes() for path in contents} == contents
    there = {record.offset for record in read(str(folder))}
    gaps = [(row["path"], row["position"], row["endPosition"], row["kind"]) for row in result.rows]
    for path, position, first, last in left:
        offsets = {row[0] for row in before if first <= row[0] <= last and not row[-2]}
        covering = [kind for p, start, end, kind in gaps if p == path and start <= position < end]
        if not offsets <= there:
            assert covering or not keep_behind, (path, position, first, last)
            assert set(covering) <= {"order"} or not keep_behind, (path, position, covering)
    return keep_behind, bool(result.rows)


@pytest.mark.parametrize("part", range(3))
def test_repaired_once_is_repaired(tmp_path, part):
    """More of them: PYLOGSEG_REPAIR_SEEDS=3000."""
    for seed in range(part, ROUNDS, 3):
        folder = tmp_path / str(seed)
        try:
            check_repair(seed, folder)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        shutil.rmtree(folder)
