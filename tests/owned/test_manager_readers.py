"""Tests of owned/manager/manager.py. Readers that go on while the log under them is compacted and retained: threads of
this process, and another one.
"""

import contextlib
import subprocess
import sys
import threading
import time

from helpers.depth import IS_DEEP
from helpers.managed_logs import settings

from pylogseg import LogManager
from pylogseg.errors import OffsetOutOfRangeError

SECONDS = 2.0 if IS_DEEP else 0.8
KEYS = 20
#: Reads the partition again and again: offsets ascend, and no key goes back to an older value. What a cleaning removed
#: in front of the end that a read has seen may have come again behind it: then it reads on.
PROGRAM = """
import sys
import pylogseg
last = {}
print("reads", flush=True)
while not sys.stdin.closed:
    offset = -1
    state = {}
    for again in range(100):
        try:
            for record in pylogseg.read(sys.argv[1], sys.argv[2], offset=offset + 1):
                assert record.offset > offset, (record.offset, offset)
                offset = record.offset
                state[record.key] = int(record.value)
        except pylogseg.errors.StorageError:
            offset = -1  # a segment that was listed is part of another one now
            continue
        if all(state.get(key, -1) >= value for key, value in last.items()):
            break
    else:
        raise AssertionError((last, state))
    last = state
    print(offset, flush=True)
"""


def test_readers_see_old_or_new_segments(tmp_path):
    topics = {
        "compacted": {"cleanup_policy": "compact", "segment_bytes": 2000, "min_cleanable_dirty_ratio": 0.01},
        "deleted": {"segment_bytes": 2000, "retention_bytes": 6000, "file_delete_delay_ms": 60_000},
    }
    changes = {"log_cleaner_enable": True, "log_cleaner_backoff_ms": 1, "log_cleaner_dedupe_buffer_size": 1 << 20}
    with LogManager(settings(tmp_path, **changes), topics) as manager:
        compacted, deleted = manager.log("compacted"), manager.log("deleted")
        stop, failures, rounds = threading.Event(), [], [0]
        written = {}

        def read():
            try:
                while not stop.is_set():
                    known, state, offset = dict(written), {}, -1
                    # Up to the head: what a cleaning removed in front of a reader's end may have come again behind it.
                    while (end := compacted.log_end_offset) > offset + 1:
                        for record in compacted.read(offset=offset + 1):
                            assert record.offset > offset
                            offset, state[record.key] = record.offset, int(record.value)
                        offset = max(offset, end - 1)
                    assert all(state[key] >= value for key, value in known.items())
                    offsets = []
                    with contextlib.suppress(OffsetOutOfRangeError):  # the records that were to come are gone
                        offsets += (record.offset for record in deleted.read())
                    assert offsets == list(range(offsets[0], offsets[-1] + 1)) if offsets else True
                    rounds[0] += 1
            except Exception as error:
                failures.append(error)

        compacted.append([(None, b"key-0", b"0")])
        threads = [threading.Thread(target=read) for _ in range(2)]
        other = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, compacted.folder.rpartition("/")[0], "compacted-0"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert other.stdout.readline() == "reads\n"
        for thread in threads:
            thread.start()
        end, number = time.monotonic() + SECONDS, 0
        directory = next(place[0] for place in manager.places() if place[2] is compacted)

        def enough():
            cleaned = directory.cleaned_to("compacted-0") or 0
            return time.monotonic() > end and rounds[0] > 2 and cleaned > 200 and deleted.log_start_offset > 0

        while not enough() and not failures and other.poll() is None:
            for _ in range(30):
                number += 1
                key = b"key-%d" % (number % KEYS)
                compacted.append([(None, key, b"%d" % number)])
                written[key] = number
            deleted.append([(None, None, bytes(100))] * 10)
            manager.retain()
        stop.set()
        for thread in threads:
            thread.join()
        assert not failures, failures
        assert other.poll() is None, other.stderr.read()
        other.kill()
        other.wait()
        assert compacted.log_start_offset == 0
        assert sum(1 for _ in compacted.read()) < number
