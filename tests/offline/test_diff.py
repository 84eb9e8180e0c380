"""Tests of cli/diff.py, offline/comparing.py and offline/comparing_columns.py. `pylogseg diff`: against a comparison of
dictionaries, whatever the batching; exit codes as of diff(1).
"""

import itertools
import json
import random
import shutil
import tempfile
from pathlib import Path

import pytest
from helpers.damaged_logs import change_byte
from helpers.shell import expect
from helpers.shell import pylogseg as shell
from hypothesis import given
from hypothesis import strategies as st

import pylogseg
from pylogseg.errors import RequestError
from pylogseg.offline import diff

RECORDS = st.dictionaries(
    st.integers(0, 60),
    st.tuples(
        st.integers(1, 2),
        st.none() | st.binary(max_size=2),
        st.sampled_from([None, b"", b"a", b"b", b"long" * 50, b"lonh" * 50]),
        st.sampled_from([(), (("h", b"1"),), (("h", b"2"),), (("h", b"1"), ("i", None))]),
    ),
    max_size=30,
)
FORMS = st.tuples(st.sampled_from(["none", "gzip", "zstd"]), st.integers(1, 5))


def write_log(folder: Path, records, codec: str, most: int) -> Path:
    """A log with these records at these offsets, at most so many in a batch."""
    folder.mkdir(parents=True)
    with (folder / f"{0:020}.log").open("wb") as out:
        offsets = sorted(records)
        while offsets:
            count = 1
            while count < min(most, len(offsets)) and offsets[count] == offsets[0] + count:
                count += 1
            batch = [records[offset] for offset in offsets[:count]]
            out.write(bytes(pylogseg.encode(batch, base_offset=offsets[0], compression=codec)))
            offsets = offsets[count:]
    return folder


def expected(a, b, offsets_only=False):
    """Ranges, from two dictionaries."""

    def kind(offset):
        if offset not in a or offset not in b:
            return ("missing" if offset in a else "extra"), ()
        pairs = zip(("timestamp", "key", "value", "headers"), a[offset], b[offset], strict=True)
        fields = {name for name, left, right in pairs if left != right and not offsets_only}
        return (
            ("changed", tuple(n for n in ("key", "value", "timestamp", "headers") if n in fields)) if fields else None
        )

    runs = [(found, list(run)) for found, run in itertools.groupby(sorted({*a, *b}), kind)]
    return [(found[0], run[0], run[-1], len(run), found[1]) for found, run in runs if found]


@given(a=RECORDS, b=RECORDS, changed=st.booleans(), forms=st.tuples(FORMS, FORMS), most=st.sampled_from([1000, 2]))
def test_like_dictionaries(a, b, changed, forms, most):
    b = {**a, **b} if changed else b
    with tempfile.TemporaryDirectory() as folder:
        left = write_log(Path(folder) / "a" / "t-0", a, *forms[0])
        right = write_log(Path(folder) / "b" / "t-0", b, *forms[1])
        (found,) = diff(left, right, max_ranges=most)
        (offsets_only,) = diff(left, right, mode="offsets")
    want = expected(a, b)
    assert [tuple(r) for r in found.ranges] == want[: len(found.ranges)]
    assert len(found.ranges) + found.unlisted == len(want)
    for kind in ("missing", "extra", "changed"):
        assert getattr(found, kind) == sum(r[3] for r in want if r[0] == kind)
    assert found.is_same == (a == b)
    assert (found.records_a, found.records_b) == (len(a), len(b))
    assert [tuple(r) for r in offsets_only.ranges] == expected(a, b, offsets_only=True)


def test_windows_that_do_not_meet(tmp_path):
    """Windows of the two end at other offsets, and a range goes on over several of them."""
    big = random.Random(1).randbytes(200_000)
    a = {i: (1, b"%d" % i, big, ()) for i in range(80)}
    b = {i: (1, b"%d" % i, big[1:] + b"x" if 20 <= i < 70 else big, ()) for i in range(80)}
    (found,) = diff(
        write_log(tmp_path / "a" / "t-0", a, "none", 3),
        write_log(tmp_path / "b" / "t-0", {i: b[i] for i in b if i < 75}, "zstd", 40),
    )
    assert [tuple(r) for r in found.ranges] == [
        ("changed", 20, 69, 50, ("value",)),
        ("missing", 75, 79, 5, ()),
    ]


def test_two_directories(examples, tmp_path):
    other = Path(shutil.copytree(examples, tmp_path / "other"))
    done = shell("diff", examples, other)
    (line,) = done.text.splitlines()  # one for all partitions
    assert (done.code, line.partition(" partitions: the same, ")[0]) == (0, str(len(pylogseg.open_dir(examples))))
    shutil.rmtree(other / "txn-a-1")
    log = other / "codec-zstd-0" / f"{0:020}.log"
    log.write_bytes(log.read_bytes()[: pylogseg.scan(log.read_bytes()).batches.position[-1]])
    done = expect(shell("diff", examples, other, "--json"), 1)
    rows = {row.get("partition"): row for row in done.rows}
    assert [name for name, row in rows.items() if name and not row["same"]] == ["codec-zstd-0", "txn-a-1"]
    assert rows["txn-a-1"]["b"] is None
    (found,) = rows["codec-zstd-0"]["ranges"]
    assert found["kind"] == "missing"
    assert found["records"] == rows["codec-zstd-0"]["missing"]
    assert done.rows[-1]["differ"] == 2
    text = shell("diff", examples, other, "txn-a", "codec-zstd").text
    assert f"txn-a-1: only in {examples / 'txn-a-1'}" in text
    assert f"  missing {found['first']}-{found['last']} " in text
    assert text.splitlines()[-1].startswith("txn-a-0: the same, 148 records, ")
    assert shell("diff", other, examples, "codec-zstd").text.count("  extra ") == 1
    assert shell("diff", examples, other, "txn-a-0", "-q") == (0, b"", "")
    assert shell("diff", examples, other, "txn-a", "-q").code == 1


def test_a_log_and_its_compaction(golden):
    """Kafka's own cleaning: records are missing, but of every key the last one is there."""
    before, after = (golden / "broker-4.3" / name / "data0" for name in ("compact-0-before", "compact-1-cleaned"))
    cleaned = [f.name for f in diff(before, after, "cmp-*") if f.missing]
    assert cleaned
    for name in cleaned:
        assert shell("diff", before, after, name, "--latest").code == 0
    assert shell("diff", before, after, cleaned[0]).code == 1


def test_replicas_that_begin_and_end_elsewhere(tmp_path):
    records = {i: (1, None, b"%d" % i, ()) for i in range(50)}
    a = write_log(tmp_path / "a" / "t-0", {i: records[i] for i in range(40)}, "none", 3)
    b = tmp_path / "b" / "t-0"
    write_log(b, {i: records[i] for i in range(10, 50)}, "none", 1)
    (b / f"{0:020}.log").rename(b / f"{10:020}.log")
    assert shell("diff", a, b).code == 1
    done = shell("diff", a, b, "--common", "--json")
    assert (done.code, done.rows[0]["firstOffset"], done.rows[0]["nextOffset"]) == (0, 10, 40)
    assert shell("diff", a, b, "--offset", "12:30").code == 0
    assert shell("diff", a, b, "--offset", "5:+20").code == 1


def test_damage_is_no_difference(examples, tmp_path):
    other = Path(shutil.copytree(examples / "txn-a-0", tmp_path / "txn-a-0"))
    log = other / f"{0:020}.log"
    change_byte(log, 200)
    done = shell("diff", examples / "txn-a-0", other)
    assert (done.code, done.out) == (2, b"")
    assert str(log) in done.err
    skipped = expect(shell("diff", examples / "txn-a-0", other, "--on-corrupt", "skip", "--json"), 2)
    assert json.loads(skipped.out.splitlines()[0])["missing"] > 0
    assert "damage" in skipped.err


def test_wrong_usage(examples, tmp_path):
    for arguments in (["nothing"], ["--offsets-only", "--latest"], ["--offset", "-5:"]):
        assert shell("diff", examples, examples, *arguments).code == 2
    with pytest.raises(RequestError, match="mode='what'"):
        diff(examples, examples, mode="what")
    other = shutil.copytree(examples / "txn-b-0", tmp_path / "txn-b-0")
    with pytest.raises(RequestError, match="txn-b-0 lies in two folders"):
        diff([examples, other], examples)


def test_each_side_is_what_its_consumers_see(examples, tmp_path):
    """Records below the log start offset of one side are missing there."""
    for name in ("a", "b"):
        shutil.copytree(examples / "codec-none-1", tmp_path / name / "codec-none-1")
    (tmp_path / "b" / "log-start-offset-checkpoint").write_text("0\n1\ncodec-none 1 300\n")
    (found,) = diff(tmp_path / "a", tmp_path / "b")
    assert (found.missing, found.extra, found.log_starts) == (300, 0, (0, 300))
    (found,) = diff(tmp_path / "b", tmp_path / "a")
    assert (found.missing, found.extra) == (0, 300)
    (found,) = diff(tmp_path / "a", tmp_path / "b", common=True)
    assert found.is_same
    (found,) = diff(tmp_path / "a", tmp_path / "b", from_log_start=False)
    assert found.is_same
    assert shell("diff", tmp_path / "a", tmp_path / "b").code == 1


def test_what_is_there_twice_is_not_the_same(examples: Path, tmp_path: Path) -> None:
    """On either side: a batch once more at the end, and a segment once more under another name."""
    source = examples / "codec-none-1"
    logs = sorted(path.name for path in source.glob("*.log"))
    for case in ("batch", "segment"):
        other = shutil.copytree(source, tmp_path / case / "codec-none-1")
        data = (source / logs[-1]).read_bytes()
        if case == "batch":
            last = pylogseg.scan(data).batches[-1:]
            (other / logs[-1]).write_bytes(data + data[int(last.position[0]) :])
        else:
            (other / f"{int(logs[-1][:20]) + 1000:020d}.log").write_bytes(data)
        for sides in ((source, other), (other, source)):
            done = shell("diff", *sides, "--on-corrupt", "skip", "--json")
            assert (done.code, done.rows[0]["same"], done.rows[0]["damaged"]) == (2, False, True)
            assert "the same" not in shell("diff", *sides, "--on-corrupt", "skip").text
