"""Encoding records into batches as a producer sends them, each with offsets from 0 on."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from pylogseg.config import LogConfig, stored_codec
from pylogseg.errors import InvalidRecordError, PylogsegError, RequestError, StorageError
from pylogseg.format.builder import Rows, build, shared_row
from pylogseg.format.codecs import CODECS
from pylogseg.log.append_result import Appended, AppendedMany
from pylogseg.log.log import Log
from pylogseg.reading.arrow.encode import input_columns

#: Default size of a batch before compression, if ``max.message.bytes`` allows it. Larger batches hardly compress
#: better, and a reader of one record has to decompress its whole batch.
BATCH_BYTES = 64 << 10
#: Bytes that a codec may add to incompressible data: 1/64, and some for its frame.
_SLACK_SHARE, _SLACK_BYTES = 64, 128


class Stamp(NamedTuple):
    """The producer fields of a batch."""

    producer_id: int
    producer_epoch: int
    base_sequence: int
    transactional: bool


class Encoded(NamedTuple):
    """Encoded batches."""

    data: bytearray  #: All batches, back to back.
    counts: list[int]  #: Records of each.

    def append_to(self, log: Log, leader_epoch: int) -> Appended:
        """Append them, with nothing between them; the error names the records of a refused batch."""
        if not self.counts:
            return Appended(-1, -1, -1, -1, 0, log.log_start_offset)
        if len(self.counts) == 1:
            return log.append_as_leader(self.data, leader_epoch, in_place=True)
        done = log.append_many(self.data, leader_epoch, in_place=True)
        if done.errors:
            raise self._error(done)
        return Appended(
            int(done.first_offset[0]),
            int(done.last_offset[-1]),
            int(done.max_timestamp.max()),
            int(done.append_time_ms[-1]),
            int(done.valid_bytes.sum()),
            done.log_start_offset,
            bool(done.is_duplicate.all()),
        )

    def _error(self, done: AppendedMany) -> PylogsegError:
        row = min(done.errors)
        error = done.errors[row]
        if isinstance(error, StorageError):
            return error
        first = sum(self.counts[:row])
        if isinstance(error, InvalidRecordError):  # its numbers count within its batch
            error.record_errors = tuple((first + number, why) for number, why in error.record_errors)
        refused = f"{len(done.errors)} of {len(self.counts)} batches were refused, the others are in the log"
        error.args = (f"records {first} to {first + self.counts[row] - 1}: {error}; {refused}", *error.args[1:])
        return error


@functools.lru_cache(8)
def _plain_row(codec: str) -> Rows:
    return shared_row(compression=codec)


def as_bytes(data: Any) -> memoryview | None:
    """Return a view of a buffer, which holds batches; None if `data` is records."""
    try:
        return memoryview(data)
    except TypeError:
        return None


def encode_for_append(
    records: Any,
    config: LogConfig,
    now_ms: int,
    *,
    compression: str | None = None,
    batch_bytes: int | None = None,
    stamp: Stamp | None = None,
) -> Encoded:
    """Encode records for appends.

    Raises RequestError as `pylogseg.encode`.
    """
    if isinstance(records, str):
        raise RequestError("expected an iterable of (timestamp, key, value), got a text")
    codec = (stored_codec(config) or CODECS[0]).name if compression is None else compression
    level = getattr(config, f"compression_{codec}_level", None)
    shared = _plain_row(codec) if stamp is None else shared_row(compression=codec, **stamp._asdict())
    most = min(config.max_message_bytes, config.segment_bytes)
    if codec != "none":
        most -= most // _SLACK_SHARE + _SLACK_BYTES
    size = max(1, min(BATCH_BYTES if batch_bytes is None else batch_bytes, most))
    data, table = build(input_columns(records, 0, now_ms), shared, batch_bytes=size, level=level)
    if len(table) > 1:
        starts = table.position[:, np.newaxis] + np.arange(8)
        np.frombuffer(data, np.uint8)[starts] = 0  # the base offset
    return Encoded(data, table.count.tolist())
