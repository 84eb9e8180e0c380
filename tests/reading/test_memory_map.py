"""Tests of env/maps.py. Files that are mapped instead of read: the same rows from every door, who keeps a map, and what
a cut file does.
"""

import gc
import hashlib
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import fsspec
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from helpers.checks import some
from helpers.depth import some_of
from helpers.golden_brokers import BROKERS
from helpers.shell import environment, expect, run

import pylogseg
from pylogseg import encode
from pylogseg._native import _lookup
from pylogseg.env.filesystem import MappedReader, PositionedFile
from pylogseg.errors import RequestError
from pylogseg.format.names import parse_file_name
from pylogseg.inspect.verify.disk import VerifySummary, verify_disk
from pylogseg.inspect.verify.findings import Level
from pylogseg.reading.column_names import BATCH_COLUMNS, DEFAULT_COLUMNS

COLUMNS = [*DEFAULT_COLUMNS, *BATCH_COLUMNS]
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
POSIX = pytest.mark.skipif(os.name == "nt", reason="there, a mapped file can be neither cut nor removed")


def both(path, **how):
    """A disk without maps, and with them."""
    return pylogseg.open_dir(path, **how), pylogseg.open_dir(path, **how, memory_map=True)


def kind_of(disk):
    """What opens the first file of a disk."""
    segments = [segment for partition in disk.partitions for segment in partition.segments]
    segments += disk.loose
    with segments[0].open() as view:
        return type(view)


@pytest.fixture(scope="module")
def files(golden):
    """Every distinct file of batches of the golden folders."""
    found = {}
    for path in sorted(golden.rglob("*")):
        if path.is_file() and parse_file_name(path.name).kind.holds_batches:
            found.setdefault((path.name, hashlib.sha256(path.read_bytes()).digest()), path)
    return list(found.values())


def records(disk, **how):
    """Rows and gaps of a reading."""
    reader = pylogseg.read(disk, control=True, on_corrupt="skip", columns=COLUMNS, **how)
    return pa.table(reader), reader.gaps


@pytest.mark.long
def test_every_golden_file(files):
    """Rows and gaps are those of a file that is read, damaged ones included."""
    assert len(files) > 500
    gaps = 0
    for path in files:
        read, mapped = map(records, both(path))
        assert mapped[0].equals(read[0]), path
        assert mapped[1] == read[1], path
        gaps += len(read[1])
    assert gaps > 10


def through_the_doors(disk):
    """What the doors of a scan give."""
    how = {"on_corrupt": "skip", "columns": COLUMNS}
    yield "views", pylogseg.read_arrow(disk, views=True, **how).read_all()
    yield "threads", pylogseg.read_arrow(disk, jobs=2, filter=pc.field("offset") >= 7, **how).read_all()
    yield "committed", pylogseg.read_arrow(disk, isolation_level="read_committed", **how).read_all()
    yield "latest", pylogseg.read_arrow(disk, latest=True, **how).read_all()
    yield "records", list(pylogseg.read(disk, on_corrupt="skip"))
    table = pylogseg.dataset(disk, **how)
    yield "dataset", table.to_table(filter=pc.field("offset") < 7)
    yield "count", table.count_rows()
    yield "batches", pylogseg.dataset(disk, of="batches").to_table()
    yield "polars", pylogseg.scan_polars(disk, on_corrupt="skip").collect()
    yield "verify", list(verify_disk(disk, VerifySummary(Level.RECORDS), partitions=disk.partitions))


@pytest.mark.long
@pytest.mark.reads
@pytest.mark.parametrize("name", some_of(BROKERS, 5))
def test_every_door(golden, name):
    for log_dir in some(sorted((golden / name).glob("data*"))):
        disk, mapped = both(log_dir)
        if disk:
            assert (kind_of(disk), kind_of(mapped)) == (PositionedFile, MappedReader)
        for (door, expected), (_, found) in zip(through_the_doors(disk), through_the_doors(mapped), strict=True):
            assert found.equals(expected) if hasattr(found, "equals") else found == expected, door


@pytest.mark.parametrize("isolation_level", ["read_uncommitted", "read_committed"])
def test_on_spark(examples, isolation_level):
    pytest.importorskip("pyspark")
    from helpers.spark_logs import rows as rows_of

    options = {"isolationLevel": isolation_level, "rangeBytes": 3000}
    expected = rows_of(str(examples), **options)
    assert rows_of(str(examples), **options, memoryMap=True) == expected
    with pytest.raises(RequestError, match="memoryMap: a stream reads files that a broker writes to"):
        pylogseg.spark.options.parse({"memoryMap": "true"}, streaming=True)


@pytest.mark.parametrize(
    "words",
    [
        "cat {}", "grep 5 {} txn-a", "latest {}", "stats {} --json", "stats {} --top-keys 3 --json", "ls {} --json",
        "verify {} --level records --json", "sql {} records -f {}",
    ],
)  # fmt: skip
def test_in_the_shell(examples, tmp_path, monkeypatch, words):
    query = tmp_path / "q.sql"
    query.write_text("select topic, count(*), sum(octet_length(value)) from records group by 1 order by 1")
    text = words.replace("sql {} records -f {}", f"sql {{}} --file {query} --output json").format(examples)
    expected = expect(run(text), 0)
    opened = []
    whole = MappedReader.__init__
    monkeypatch.setattr(MappedReader, "__init__", lambda self, path: (opened.append(path), whole(self, path))[1])
    found = run(f"{text} --memory-map")
    assert (found.code, found.out, found.err) == (expected.code, expected.out, expected.err)
    assert opened or words.startswith("ls")


def test_an_export(examples, tmp_path):
    for name, more in (("read", ""), ("mapped", "--memory-map")):
        assert run(f"export {examples} txn-a --out {tmp_path / name}.parquet {more}").code == 0
    read, mapped = (pa.parquet.read_table(tmp_path / f"{name}.parquet") for name in ("read", "mapped"))
    assert mapped.equals(read)


def test_who_follows_does_not_map(examples):
    done = run(f"cat {examples} txn-a-0 --follow --memory-map")
    assert done.code == 2
    assert "--follow reads files that a broker writes to: it cannot be combined with --memory-map" in done.err


def test_only_files_of_this_machine(examples):
    for path in examples.rglob("*"):
        if path.is_file():
            fsspec.filesystem("memory").pipe(f"/mapped/{path.relative_to(examples)}", path.read_bytes())
    assert pylogseg.open_dir("memory://mapped").partitions
    reason = "only files of this machine can be mapped"
    for url in ("memory://mapped", "aiven+memory://mapped", f"file://{examples}"):
        with pytest.raises(RequestError, match=f"^{re.escape(url)}: {reason}"):
            pylogseg.open_dir(url, memory_map=True)
    done = run("cat memory://mapped --memory-map")
    assert (done.code, reason in done.err) == (2, True)


@pytest.mark.parametrize("name", ["aiven-plain", "kafka-localtieredstorage", "aiven-zstd-aesgcm"])
def test_tiers(golden, tmp_path, name):
    """Objects of this machine are mapped too, also those that are encrypted, and with the disk they belong to."""
    folder = golden / "tier" / name
    url = f"{'localtier' if 'local' in name else 'aiven'}+file://{folder}"
    keys = {"storage_options": {"tier_keys": str(folder / "private.pem")}} if "aesgcm" in name else {}
    read, mapped = both(url, **keys)
    assert records(mapped)[0].equals(records(read)[0])
    if not keys:
        assert kind_of(mapped) is MappedReader
    names = [each.name for each in read.partitions]
    for each in names:
        (tmp_path / each).mkdir()
    read, mapped = both(tmp_path, **keys, tier=url)
    assert records(mapped)[0].equals(records(read)[0])
    assert records(mapped)[0].num_rows > 1000
    options = {"tier": url, **({"storageOptions": keys["storage_options"]} if keys else {})}
    pytest.importorskip("pyspark")
    from helpers.spark_logs import rows as rows_of

    assert rows_of(str(tmp_path), **options, memoryMap=True) == rows_of(str(tmp_path), **options)


def test_another_process_maps_too(examples):
    disk = pickle.loads(pickle.dumps(pylogseg.open_dir(examples, memory_map=True)))
    assert kind_of(disk) is MappedReader
    table = pylogseg.dataset(disk)
    fragments = pickle.loads(pickle.dumps(list(table.get_fragments())))
    assert sum(each.count_rows() for each in fragments) == table.count_rows()


@pytest.mark.parametrize("bytes_each", [0, 3, 3000, 70_000])
def test_headers_in_a_map(tmp_path, bytes_each):
    """They are those that are read one by one; what is cut off or damaged ends them at the same place."""
    data = b"".join(encode([(n, None, bytes(bytes_each))], base_offset=n) for n in range(40))
    size = len(data) // 40
    for wrong in (data, data[:-1], data[: 5 * size + 60], data[:60], b"", data[: 7 * size] + b"\1" * 200):
        (tmp_path / "x.log").write_bytes(wrong)
        for start, last, room in ((0, 2**62, 64), (0, 11, 64), (0, 2**62, 3), (2 * size, 2**62, 64), (len(data), 5, 9)):
            found = []
            for mapped in (True, False):
                out = bytearray(room * 61)
                with (tmp_path / "x.log").open("rb") as file:
                    if mapped:
                        count, end = _lookup.mapped_headers(wrong, start, last, out)
                    else:
                        count, end = _lookup.read_headers(file.fileno(), start, len(wrong), last, out)
                found.append((count, end, bytes(out)))
            assert found[0] == found[1]
    with pytest.raises(IndexError):
        _lookup.mapped_headers(data, -1, 5, bytearray(61))


def maps_of(path):
    """How many maps this process has of a file."""
    return sum(line.rstrip().endswith(str(path)) for line in Path("/proc/self/maps").read_text().splitlines())


@pytest.fixture
def log(tmp_path):
    """A file of many pages, in a partition's folder."""
    path = tmp_path / "orders-0" / f"{0:020d}.log"
    path.parent.mkdir()
    path.write_bytes(b"".join(encode([(n, None, b"%06d" % n * 1000)], base_offset=n) for n in range(2000)))
    return path


@LINUX
def test_views_keep_the_map(log):
    """The Arrow buffers hold it: neither the disk, nor the reader, nor the name of the file is needed any more."""
    reader = pylogseg.read_arrow(pylogseg.open_dir(log, memory_map=True), columns=["value"], views=True)
    batch = next(iter(reader))
    values = batch.column("value").slice(3, 2)
    del reader, batch
    log.unlink()
    gc.collect()
    shown = f"{log} (deleted)"
    assert maps_of(shown) == 1
    assert values.to_pylist() == [b"000003" * 1000, b"000004" * 1000]
    del values
    gc.collect()
    assert maps_of(shown) == 0


@LINUX
def test_copies_keep_no_map(log):
    for how in ({}, {"columns": ["offset"]}, {"jobs": 2}):
        table = pylogseg.read_arrow(pylogseg.open_dir(log, memory_map=True), **how).read_all()
        gc.collect()
        assert (table.num_rows, maps_of(log)) == (2000, 0)
    assert pylogseg.dataset(pylogseg.open_dir(log, memory_map=True)).count_rows() == 2000
    gc.collect()
    assert maps_of(log) == 0


_CUT = """
import os, sys, pylogseg
path, how = sys.argv[1:]
disk = pylogseg.open_dir(path, memory_map=how == "mapped")
batches = iter(pylogseg.read_arrow(disk, columns=["value"]))
print(next(batches).num_rows > 0, flush=True)
os.truncate(path, os.path.getsize(path) // 2)
try:
    sum(batch.num_rows for batch in batches)
except pylogseg.StorageError as error:
    print(error.reason, flush=True)
"""


@POSIX
@pytest.mark.parametrize("how", ["mapped", "read"])
def test_a_file_that_is_cut(log, how):
    """The system ends the process that has it mapped; who reads it gets an error."""
    (log.parent / f"{2000:020d}.log").touch()  # the first one is sealed
    command = [sys.executable, "-c", _CUT, log, how]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=60)
    if how == "mapped":
        assert (done.returncode, done.stdout) == (-signal.SIGBUS, "True\n")
    else:
        assert done.returncode == 0
        assert "was cut to" in done.stdout


@POSIX
def test_the_shell_on_a_file_that_is_cut(log, tmp_path):
    """A signal ends it; there is no exit code of its own."""
    script = "import os, sys; from pylogseg.env.filesystem import MappedReader as M; own = M.__init__\n"
    script += "def cut(self, path): own(self, path); os.truncate(path, 5000)\n"
    script += "M.__init__ = cut; from pylogseg.cli import run_command_line; sys.exit(run_command_line())"
    copy = shutil.copytree(log.parent, tmp_path / "copy-0")
    command = [sys.executable, "-c", script, "cat", copy, "--memory-map"]
    assert subprocess.run(command, env=environment(), capture_output=True, timeout=60).returncode == -signal.SIGBUS
