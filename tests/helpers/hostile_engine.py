"""Target of hostile bytes: the engine. Batches that no broker sends, to a leader, to a follower, many at once.

What is refused leaves nothing behind; what is accepted is there after an orderly end, and after a crash.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from random import Random
from typing import Any

from helpers import mutations
from pylogseg import EmbeddedLog, open_log
from pylogseg.errors import PylogsegError
from pylogseg.log.append import LAST_START
from pylogseg.log.producer_state import Origin
from pylogseg.testing.clock import ManualClock, ManualScheduler
from pylogseg.testing.memory import MemoryStorage

NOW = 1_700_000_000_000
FOLDER = "/data/t-0"
#: Fields of a header of magic 2, and their formats.
FIELDS = (
    (0, ">q"),
    (12, ">i"),
    (21, ">h"),
    (23, ">i"),
    (27, ">q"),
    (35, ">q"),
    (43, ">q"),
    (51, ">h"),
    (53, ">i"),
    (57, ">i"),
)
NUMBERS = (
    -(2**63),
    -(2**31),
    -2,
    -1,
    0,
    1,
    2,
    5,
    100,
    2**15 - 1,
    2**31 - 1,
    2**31,
    2**32,
    2**40,
    2**50,
    2**63 - 3,
    2**63 - 1,
)
ATTRIBUTES = (0, 0, 1, 2, 3, 4, 5, 7, 8, 0x10, 0x20, 0x30, 0x40, 0x31, -1)


def numbered(rng: Random, data: bytes, end: int) -> bytes:
    """A batch of magic 2 with numbers in its header that say what is not so."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 3))):
        at, form = rng.choice(FIELDS)
        size = struct.calcsize(form)
        value = rng.choice(ATTRIBUTES) if at == 21 else rng.choice(NUMBERS) + rng.choice((0, 0, end))
        out[at : at + size] = struct.pack(">Q", value & (2**64 - 1))[8 - size :]
    return bytes(out)


def placed(rng: Random, data: bytes, end: int) -> bytes:
    """A batch where a follower expects it, or a little beyond."""
    if len(data) < 61:
        return data
    out = bytearray(data)
    last = struct.unpack_from(">i", out, 23)[0] if out[16] == 2 else 0
    offset = end + rng.choice((0, 0, 0, 1, 7, 2**31, 2**40)) + (abs(last) if out[16] != 2 else 0)
    struct.pack_into(">Q", out, 0, offset & (2**64 - 1))
    if out[16] == 2:
        struct.pack_into(">i", out, 12, rng.choice((0, 0, 0, -1, 1, 3)))
    return bytes(out)


def batches(rng: Random, end: int) -> bytes:
    """What somebody wants to append."""
    parts = []
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        data, heavy = mutations.batch(rng)
        data = rng.choice(mutations.seeds()).data if heavy or rng.random() < 0.3 else data
        data = placed(rng, data, end) if rng.random() < 0.6 else data
        if len(data) >= 61 and data[16] == 2 and rng.random() < 0.6:
            data = numbered(rng, data, end)
        if rng.random() < 0.8:
            data = mutations.sealed(data, rng.random() < 0.9)
        parts.append(data)
        end += rng.randrange(4)
    return b"".join(parts)


def settings(rng: Random) -> dict[str, Any]:
    """Small segments and smaller indexes."""
    return {
        "segment_bytes": rng.choice((600, 3000, 1 << 20)),
        "index_interval_bytes": rng.choice((0, 60, 4096)),
        "segment_index_bytes": rng.choice((12, 16, 24, 36, 100, 4096)),
        "compression_type": rng.choice(("producer", "producer", "uncompressed", "zstd")),
        "cleanup_policy": rng.choice(("delete", "delete", "compact")),
        "message_timestamp_type": rng.choice(("CreateTime", "CreateTime", "LogAppendTime")),
    }


def opened(storage: MemoryStorage, config: dict[str, Any]) -> EmbeddedLog:
    """The log as a program opens it."""
    clock = ManualClock(NOW)
    scheduler = ManualScheduler(clock)
    return open_log(FOLDER, storage=storage, clock=clock, scheduler=scheduler, **config)  # type: ignore[arg-type]


def content(log: EmbeddedLog) -> bytes:
    """The batches of all segments, as they lie in the files."""
    return b"".join(segment.log.read(0, segment.log.size) for segment in log.engine.segments)


def attempt(rng: Random, log: EmbeddedLog, data: bytes) -> tuple[Sequence[object], bool]:
    """Append as somebody does; what was refused, and whether the records were counted."""
    epoch = rng.choice((log.leader_epoch, log.leader_epoch, log.leader_epoch + 1, 5))
    kind = rng.randrange(5)
    try:
        if kind == 0:
            log.append_batch(data)
        elif kind == 1:
            origin = rng.choice((Origin.CLIENT, Origin.COORDINATOR))
            log.engine.append_as_leader(data, epoch, origin=origin)
            return [], origin is Origin.CLIENT
        elif kind == 2:
            buffers = [data, data] if rng.random() < 0.3 else data
            return list(log.engine.append_many(buffers, epoch).errors.values()), True
        else:
            log.engine.append_as_follower(data, epoch)
    except PylogsegError as error:
        return [error], True
    return [], True


def appends(rng: Random) -> None:
    """Appends, an ordinary one after each, then the end: an orderly one and a crash."""
    storage, config = MemoryStorage(), settings(rng)
    log = opened(storage, config)
    for _ in range(rng.randrange(4)):
        log.append([(NOW, b"k", b"v" * 100)] * rng.choice((1, 3)))
    for _ in range(rng.choice((1, 2, 4))):
        before, end = content(log), log.log_end_offset
        if end > LAST_START - 2**32:
            break
        data = batches(rng, end)
        refused, is_counted = attempt(rng, log, data)
        after = content(log)
        assert after.startswith(before), "an append changed what was there"
        assert log.engine.is_usable, "a refusal took the log offline"
        if refused and len(after) == len(before):
            assert log.log_end_offset == end, "a refused append moved the end"
        # As in Kafka nobody counts the records of a broker's own batches: one without any is written and moves nothing.
        if log.log_end_offset == end and is_counted:
            assert after == before, "bytes of a refused append were left behind"
        if log.log_end_offset > LAST_START:
            continue
        end = log.log_end_offset
        done = log.append([(NOW, b"key", b"an ordinary record")])
        assert (done.first_offset, log.log_end_offset) == (end, end + 1)
    wanted = content(log), log.log_end_offset
    if rng.random() < 0.5:
        log.close()
        again = opened(storage, config)
        assert (content(again), again.log_end_offset) == wanted, "an orderly end lost something"
        again.close()
        storage.remove("/data/.kafka_cleanshutdown")
    crashed = opened(MemoryStorage(storage.state), config)
    assert (content(crashed), crashed.log_end_offset) == wanted, "a crash lost something"
    assert wanted[1] > LAST_START or crashed.append([(NOW, b"k", b"v")]).first_offset == wanted[1]
