"""Tests of the whole package. What a Python program meets: errors with what the system said, and arguments that are not
taken in silence.
"""

import datetime
import errno
import pickle

import pyarrow as pa
import pytest

import pylogseg
from pylogseg.errors import RequestError, StorageError

UTC = datetime.timezone.utc


def test_an_error_of_the_disk_is_one_of_the_system(tmp_path):
    with pytest.raises(OSError, match="no such file or folder") as caught:
        pylogseg.open_dir(tmp_path / "missing")
    (tmp_path / "orders-0").write_bytes(b"")
    with pytest.raises(StorageError) as caught:
        pylogseg.open_log(tmp_path / "orders-0")
    error = caught.value
    assert error.errno in (errno.EEXIST, errno.ENOTDIR)
    assert error.filename == error.path
    assert str(tmp_path / "orders-0") in error.filename
    assert error.strerror == error.reason
    assert str(error) == f"{error.path}: cannot {error.operation}: {error.reason}"
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.errno, again.filename) == (str(error), error.errno, error.filename)


@pytest.mark.parametrize("name", ["Key", "id", "values", "__index_level_0__"])
def test_a_column_that_no_record_has_is_refused(tmp_path, name):
    table = pa.table({name: ["a"], "value": ["b"]})
    with pytest.raises(RequestError, match=f"unknown column '{name}'"):
        pylogseg.encode(table)
    with pylogseg.open_log(tmp_path / "orders-0") as log:
        with pytest.raises(RequestError, match=f"unknown column '{name}'"):
            log.append(table)
        assert log.log_end_offset == 0


def test_what_was_read_can_be_appended(tmp_path):
    with pylogseg.open_log(tmp_path / "orders-0") as log:
        log.append([(1000, b"k", b"v")])
        log.append(pa.table(log.read()))
        log.append(pa.table(log.read(columns=["value", "topic", "partition", "offset", "timestampType", "segment"])))
        assert [record.value for record in log.read()] == [b"v"] * 4


def test_times_as_in_read(tmp_path):
    moment = datetime.datetime(2026, 1, 2, 3, 4, 5, 6000, UTC)
    with pylogseg.open_log(tmp_path / "orders-0") as log:
        log.append([(moment, b"k", b"v"), {"timestamp": moment, "value": b"w"}])
        assert [record.timestamp for record in log.read(timestamp=moment)] == [1767323045006] * 2
        with pytest.raises(RequestError, match="time zone"):
            log.append([(moment.replace(tzinfo=None), b"k", b"v")])
        naive = pa.table({"value": [b"v"], "timestamp": pa.array([moment.replace(tzinfo=None)])})
        for frame in (naive, naive.to_batches()[0]):  # one rule, whatever records come in
            with pytest.raises(RequestError, match="has no time zone"):
                log.append(frame)
        log.append(pa.table({"value": [b"x"], "timestamp": pa.array([moment])}))
        assert [record.value for record in log.read(timestamp=moment)] == [b"v", b"w", b"x"]
        with pytest.raises(RequestError, match=r"\(message\.timestamp\.after\.max\.ms is 3600000\)"):
            log.append([(datetime.datetime.now(UTC) + datetime.timedelta(days=1), None, b"v")])
        with pytest.raises(RequestError, match="a datetime or None, not str"):
            log.append([("2026", b"k", b"v")])
        with pytest.raises(RequestError, match="list of tuples"):
            log.append((None, b"k", b"v"))


@pytest.mark.parametrize(
    ("wrong", "right"), [("segment_byte", "segment_bytes"), ("leader_epochs", "leader_epoch"), ("topicid", "topic_id")]
)
def test_a_wrong_option_is_told_with_the_right_one(tmp_path, wrong, right):
    with pytest.raises(RequestError, match=right.replace("_", "[_.]")):
        pylogseg.open_log(tmp_path / "orders-0", **{wrong: 1})
    assert not (tmp_path / "orders-0").exists()
