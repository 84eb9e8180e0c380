"""Tests of env/filesystem.py. Pages of a sealed file that are mapped while they are decoded: `read_and_decode` in
_native/_records, env/filesystem.

A page that is gone ends the window, as a short file does; a signal that somebody else caused goes to who waits for it.
"""

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np
import pytest
from helpers.shell import environment

import pylogseg
from pylogseg._native import _records
from pylogseg.env import filesystem
from pylogseg.env.filesystem import PositionedFile
from pylogseg.format.records import read_and_decode
from pylogseg.format.scratch import Density, Scratch
from pylogseg.reading.arrow.encode import encode

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="files are mapped so on Linux alone")
COUNT = 2000


@pytest.fixture
def log(tmp_path):
    """A sealed segment of 12 MB, with an active one behind it."""
    path = tmp_path / "orders-0" / f"{0:020d}.log"
    path.parent.mkdir()
    path.write_bytes(b"".join(encode([(n, None, b"%06d" % n * 1000)], base_offset=n) for n in range(COUNT)))
    (path.parent / f"{COUNT:020d}.log").touch()
    return path


def maps_of(path):
    with open("/proc/self/maps") as maps:
        return sum(line.rstrip().endswith(str(path)) for line in maps)


def decode_window(view, size, scratch=None):
    scratch = scratch or Scratch(besides="payloads")
    scratch.density = Density(1e-4, 2e-4, 0.0)
    return read_and_decode(view, 0, size, 0, 2**62, 0, 1 << 20, scratch)


@LINUX
def test_a_sealed_file_is_mapped_while_it_is_open(log):
    with PositionedFile(str(log), sealed=True) as view:
        window = decode_window(view, 4 << 20)
        assert maps_of(log) == 1
        assert window.columns.offset.tolist() == list(range(len(window.batches)))
        assert window.columns.value(7) == b"000007" * 1000
        view.drop(0, 1 << 20)
        assert maps_of(log) == 0
        assert decode_window(view, 4 << 20).size == window.size
        assert maps_of(log) == 1
    assert maps_of(log) == 0


@LINUX
@pytest.mark.parametrize("besides", [None, "views", "keys"])
def test_payloads_that_are_not_copied_are_read(log, besides):
    """Views and places point at bytes that are the process's own."""
    with PositionedFile(str(log), sealed=True) as view:
        window = decode_window(view, 4 << 20, Scratch(besides=besides))
        assert maps_of(log) == 0
        log.write_bytes(bytes(log.stat().st_size))
        assert window.columns.value(7) == b"000007" * 1000


@LINUX
def test_files_in_memory_are_read():
    """Their pages come one by one: a map of them is slower."""
    folder = "/dev/shm"
    if not os.access(folder, os.W_OK):
        pytest.skip(f"{folder} cannot be written to")
    with tempfile.NamedTemporaryFile(dir=folder) as file:
        file.write(b"".join(encode([(n, None, b"value")], base_offset=n) for n in range(50)))
        file.flush()
        for everywhere in (True, False):
            _records.use_maps_in_memory(everywhere)
            try:
                with PositionedFile(file.name, sealed=True) as view:
                    assert decode_window(view, view.size) is not None
                    assert maps_of(file.name) == everywhere
            finally:
                _records.use_maps_in_memory(True)


@LINUX
def test_an_active_file_is_read(log):
    with PositionedFile(str(log)) as view:
        assert decode_window(view, 4 << 20) is not None
        assert maps_of(log) == 0


@LINUX
def test_a_file_that_was_written_to_lately_is_read(log, monkeypatch):
    """A write that is under way has its time already."""
    monkeypatch.setattr(filesystem, "SETTLED_NS", 2_000_000_000)
    for age, is_mapped in ((0, False), (-60, False), (60, True)):
        os.utime(log, (0, time.time() - age))
        with PositionedFile(str(log), sealed=True) as view:
            assert decode_window(view, 4 << 20) is not None
            assert maps_of(log) == is_mapped


@LINUX
@pytest.mark.parametrize("change", ["bytes in place", "bytes at the end"])
def test_a_file_that_is_written_to_is_read_from_then_on(log, change):
    """The CRC held for bytes of the page that need not be those which were copied."""
    os.utime(log, (0, 0))
    with PositionedFile(str(log), sealed=True) as view:
        assert decode_window(view, 4 << 20) is not None
        with open(log, "r+b") as file:
            file.seek(0, os.SEEK_SET if change == "bytes in place" else os.SEEK_END)
            file.write(encode([(0, None, b"999999" * 1000)]))
        assert decode_window(view, 4 << 20) is None
        assert decode_window(view, 4 << 20).columns.value(0)[:3] == (b"999" if change == "bytes in place" else b"000")
        assert maps_of(log) == 0


@LINUX
def test_a_thread_that_blocks_the_signal_maps_nothing(log):
    """The signal would end the process, whoever handles it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGBUS})
    try:
        with PositionedFile(str(log), sealed=True) as view:
            assert decode_window(view, 4 << 20) is not None
            assert maps_of(log) == 0
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@LINUX
def test_headers_are_kept(tmp_path, log):
    rows = [(n, b"key", b"value-%d" % n, [("name", b"%d" % n)] if n % 3 else []) for n in range(50)]
    data = b"".join(bytes(encode([row], base_offset=row[0])) for row in rows)
    log.write_bytes(data)
    with PositionedFile(str(log), sealed=True) as view:
        window = decode_window(view, len(data))
        assert maps_of(log) == 1
        log.write_bytes(bytes(len(data)))  # the pages have other bytes now
        columns = window.columns
        names, name_sizes, values, value_sizes = columns.header_spans()
        assert [columns.span(*span) for span in zip(names, name_sizes, strict=True)] == [b"name"] * len(names)
        expected = [b"%d" % n for n in range(50) if n % 3]
        assert [columns.span(*span) for span in zip(values, value_sizes, strict=True)] == expected
        assert [columns.value(n) for n in range(50)] == [b"value-%d" % n for n in range(50)]


@LINUX
@pytest.mark.parametrize("left", [0, 1, 4096, 100_000, 3 << 20])
def test_a_file_that_is_cut_ends_the_window(log, left):
    with PositionedFile(str(log), sealed=True) as view:
        assert decode_window(view, 4 << 20) is not None
        os.truncate(log, left)
        assert decode_window(view, 4 << 20) is None
        with pytest.raises(pylogseg.StorageError, match="was cut to"):
            view.read(0, 4 << 20)


@LINUX
def test_files_that_are_cut_under_many_threads(log):
    """Each thread has its own guard; each reading ends with all records, or with an error that names the file."""
    data, failures, outcomes = log.read_bytes(), [], []
    paths = []
    for n in range(4):
        folder = log.parent.parent / f"cut-{n}"
        folder.mkdir()
        (folder / log.name).write_bytes(data)
        (folder / f"{COUNT:020d}.log").touch()
        paths.append(folder / log.name)

    def read(path):
        for _ in range(12):
            try:
                rows = sum(batch.num_rows for batch in pylogseg.read_arrow(path.parent, columns=["value"]))
                outcomes.append(rows)
            except (pylogseg.StorageError, pylogseg.CorruptionError) as error:
                failures.append(str(error))
            except BaseException as error:
                failures.append(repr(error))
                raise

    threads = [threading.Thread(target=read, args=(path,)) for path in paths for _ in range(2)]
    for thread in threads:
        thread.start()
    random = np.random.default_rng(7)
    while any(thread.is_alive() for thread in threads):
        path = paths[int(random.integers(len(paths)))]
        os.truncate(path, int(random.integers(len(data))))
        path.write_bytes(data)
    for thread in threads:
        thread.join()
    assert len(outcomes) + len(failures) == 12 * len(threads)
    assert all("orders" not in failure and "cut-" in failure for failure in failures), failures[:3]


_SCRIPT = """
import mmap, os, signal, sys, faulthandler, pylogseg
from pylogseg._native import _records
from pylogseg.env import filesystem
_records.use_maps_in_memory(True)
filesystem.SETTLED_NS = 0
path, how = sys.argv[1:]
if how == "faulthandler": faulthandler.enable()
if how == "python": signal.signal(signal.SIGBUS, lambda *_: os._exit(7))
def count(): return sum(batch.num_rows for batch in pylogseg.read_arrow(os.path.dirname(path)))
assert count() == 2000
if how == "later": signal.signal(signal.SIGBUS, lambda *_: os._exit(9)); assert count() == 2000
if how == "fork":
    child = os.fork()
    if child == 0:
        os._exit(0 if count() == 2000 else 1)
    assert os.waitpid(child, 0)[1] == 0
with open(path, "r+b") as file:
    pages = mmap.mmap(file.fileno(), 1 << 20)
os.truncate(path, 0)
if how == "sent": os.kill(os.getpid(), signal.SIGBUS)
print("touching", flush=True)
if how == "python" or how == "later": signal.raise_signal(signal.SIGBUS)
pages[4096]
print("not reached", flush=True)
"""


@LINUX
@pytest.mark.parametrize(
    ("how", "code"),
    [
        ("nothing", -signal.SIGBUS),
        ("faulthandler", -signal.SIGBUS),
        ("fork", -signal.SIGBUS),
        ("sent", -signal.SIGBUS),
        ("python", 7),
        ("later", 9),
    ],
)
def test_a_signal_that_somebody_else_caused(log, how, code):
    """It ends the process, or comes to the handler that was there before, or was installed later."""
    if code == -signal.SIGBUS and "asan" in os.environ.get("LD_PRELOAD", ""):
        pytest.skip("AddressSanitizer's handler was there before, and reports it")
    command = [sys.executable, "-c", _SCRIPT, str(log), how]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (code, "" if how == "sent" else "touching\n"), done.stderr
    assert ("Fatal Python error: Bus error" in done.stderr) == (how == "faulthandler")
