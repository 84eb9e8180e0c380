"""Full validation of appends: a leader's changes to batches, and a follower's checks.

`log.append` says which batches of a leader come here. They go through `_LeaderAppend`, in the order of Kafka's checks:
refusals, conversion of legacy messages to magic 2, recompression.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pylogseg._native import _append
from pylogseg._native._append import Batch, Prepared, Rules
from pylogseg.errors import InvalidRecordError, OffsetsOutOfOrderError, PylogsegError, RequestError, TooLargeError
from pylogseg.format import patch
from pylogseg.format.batches import scan
from pylogseg.format.buffers import byte_view
from pylogseg.format.builder import TRANSACTIONAL, build, columns_to_encode, shared_row
from pylogseg.format.records import RecordColumns, decode
from pylogseg.log.append_analysis import Analysis, analyze, frames, header_of
from pylogseg.log.append_record_checks import CheckedFields, check_records, limit_of, read_records
from pylogseg.log.producer_state import Origin

__all__ = ["Batch", "Origin", "Prepared", "Rules", "Terms", "follower", "leader"]

_SHOWN_OFFSETS = 10


class Terms(NamedTuple):
    """Values that an append writes into its batches, and who appends them."""

    next_offset: int  #: The log end offset.
    leader_epoch: int
    now_ms: int
    origin: Origin = Origin.CLIENT  #: `CLIENT` or `COORDINATOR`.


def leader(data: Any, rules: Rules, terms: Terms, where: str = "<append>") -> Prepared:
    """Validate an append as the leader of a partition does, and assign offsets, timestamps and leader epoch.

    `data` is one batch of magic 2, or legacy messages; a partial batch at the end is left out. The result has no
    batches if there is nothing to write. Errors are those of Kafka; an InvalidRecordError lists the records.
    """
    view = byte_view(data)
    bounds = analyze(view, terms.origin, terms.leader_epoch, size_limit=rules.size_limit, monotonic=False, where=where)
    if not bounds.batches:
        return Prepared(b"", [], -1, -1, -1, -1, -1, 0)
    view = view[: bounds.valid_bytes]
    return _LeaderAppend(view, bounds, rules, terms, where).prepare()


def follower(
    data: Any,
    *,
    next_offset: int,
    leader_epoch: int,
    where: str = "<append>",
) -> Prepared:
    """Validate batches that keep their offsets; the records of the result are a view of `data`.

    A partial batch at the end is left out, and those from the first one with an epoch above `leader_epoch` on. There is
    no size limit. Raises OffsetsOutOfOrderError if offsets do not ascend or begin below `next_offset`, else as Kafka
    does.
    """
    done = _append.prepare_with_offsets(data, leader_epoch)
    if done is None:
        view = byte_view(data)
        try:
            bounds = analyze(view, Origin.REPLICATION, leader_epoch, size_limit=None, monotonic=True, where=where)
        except OffsetsOutOfOrderError as error:
            raise _with_offsets(error, view, None, where) from None
        done = Prepared(
            view[: bounds.valid_bytes],
            bounds.batches,
            bounds.first_offset,
            bounds.last_offset,
            bounds.last_offset_of_first,
            bounds.max_timestamp,
            -1,
            bounds.valid_bytes,
        )
    if done.batches:
        start = done.first_offset if done.first_offset >= 0 else done.last_offset_of_first
        if start < next_offset:
            which = "first offset" if done.first_offset != -1 else "last offset of the first batch"
            below = OffsetsOutOfOrderError(
                f"{where}: the {which} is {start}, the log ends at {next_offset}; the last one is {done.last_offset}"
            )
            raise _with_offsets(below, byte_view(done.records), _SHOWN_OFFSETS, where)
    return done


def _with_offsets(error: OffsetsOutOfOrderError, view: memoryview, most: int | None, where: str) -> PylogsegError:
    """Return the error with the first records' offsets; as in Kafka, an unreadable record is reported instead."""
    offsets: list[int] = []
    for position, size in frames(view, where):
        if most is not None and len(offsets) >= most:
            break
        try:
            batch = header_of(view, position, size, None, where)[0]
            offsets += read_records(view, batch, where=where, crc=False).offset.tolist()
        except PylogsegError as damage:
            return damage
    return OffsetsOutOfOrderError(f"{error}; its records have the offsets {str(offsets[:_SHOWN_OFFSETS])[1:-1]}")


class _LeaderAppend:
    """Validation of one append of a leader, step by step."""

    def __init__(self, view: memoryview, found: Analysis, rules: Rules, terms: Terms, where: str) -> None:
        self.view, self.found, self.rules, self.where = view, found, rules, where
        self.next_offset, self.leader_epoch, self.now_ms, self.origin = terms
        self.first = found.batches[0]
        self.codec = found.codec if rules.codec < 0 else rules.codec
        self.limit = limit_of(rules)

    def prepare(self) -> Prepared:
        """Check, then assign offsets in place or rebuild the batches."""
        if self.found.codec == 0 and self.codec == 0:
            same = all(batch.magic == 2 for batch in self.found.batches)
            return self.assign(self.check_all()) if same else self.convert()
        in_place = self.found.codec == self.codec and self.first.magic == 2
        # Control records are not compressed.
        in_place = in_place or (self.found.codec == 0 and self.first.is_control)
        checked = self.check_all(lenient=in_place)
        if not in_place:
            return self.rebuild(self.codec)
        if not _numbered(checked):  # Kafka has not kept what it takes to rewrite a compressed one
            if self.found.codec:
                raise RequestError(f"{self.where}: the offsets in a compressed batch do not count up from 0")
            return self.rebuild(self.codec)
        return self.assign(checked)

    def convert(self) -> Prepared:
        """Store uncompressed legacy messages: write them one by one while they are checked."""
        columns = self.decode()
        self.check_number()
        self.check_all(broken=columns.timestamp < -1)
        return self.rebuild(0)

    def check_number(self) -> None:
        """Refuse more than one batch, where magic 2 or compression allows only one."""
        if len(self.found.batches) > 1 and (self.first.magic == 2 or self.found.codec):
            raise InvalidRecordError(f"{self.where}: expected one batch, got {len(self.found.batches)}")

    def check_all(self, *, lenient: bool = False, broken: npt.NDArray[np.bool_] | None = None) -> list[CheckedFields]:
        """Check all batches and their records; `broken` marks the records that cannot be rewritten."""
        self.check_number()
        checks: list[CheckedFields] = []
        first = 0
        for batch in self.found.batches:
            self.check_batch(batch)
            checked = read_records(self.view, batch, lenient=lenient, where=self.where, limit=self.limit)
            count = len(checked.timestamp)
            unwritable = None if broken is None else np.flatnonzero(broken[first : first + count])
            worst = int(unwritable[0]) if unwritable is not None and len(unwritable) else None
            check_records(checked, batch, self.rules, self.now_ms, self.where, worst)
            first += count
            checks.append(checked)
        return checks

    def check_batch(self, batch: Batch) -> None:
        if batch.magic != self.first.magic:
            raise self.invalid(f"a batch has magic {batch.magic}, the first one {self.first.magic}")
        if self.origin is Origin.CLIENT and batch.magic == 2:
            span, count = batch.last_offset - batch.base_offset + 1, batch.count
            if span <= 0:
                raise self.invalid(f"the offsets of a batch are {batch.base_offset} to {batch.last_offset}")
            if count <= 0:
                raise self.invalid(f"a batch of {count} records")
            if span != count:
                raise self.invalid(f"a batch of {count} records has {span} offsets")
            if batch.is_control:
                raise self.invalid("clients may not write control records")
            if batch.producer_id >= 0 and batch.base_sequence < 0:
                raise self.invalid(f"sequence {batch.base_sequence} in a batch of producer {batch.producer_id}")

    def invalid(self, reason: str) -> InvalidRecordError:
        """Return an error about the whole batch."""
        return InvalidRecordError(f"{self.where}: {reason}")

    def assign(self, checked: list[CheckedFields]) -> Prepared:
        """Keep the batches and set the header fields that a leader sets."""
        out = bytearray(self.view)
        offset, greatest, append_time = self.next_offset, -1, self.rules.append_time
        for batch, records in zip(self.found.batches, checked, strict=True):
            offset += len(records.timestamp)
            patch.set_last_offset(out, offset - 1, batch.position)
            patch.set_leader_epoch(out, self.leader_epoch, batch.position)
            most = max(int(records.timestamp.max(initial=-1)), -1)
            greatest = max(greatest, most)
            timestamp = self.now_ms if append_time else most
            patch.set_max_timestamp(out, timestamp, append_time=append_time, position=batch.position)
        if append_time:
            greatest = self.now_ms
        batches = [_append.read_batch(out, batch.position, batch.size)[0] for batch in self.found.batches]
        return self.make_result(out, batches, offset, greatest)

    def decode(self) -> RecordColumns:
        table = scan(self.view, crc=False).batches
        if len(table) < len(self.found.batches):
            raise RequestError(f"{self.where}: the message at {self.found.batches[len(table)].position} is too small")
        columns, damage = decode(table, self.view, limit_bytes=self.limit)
        if damage:
            batch = self.found.batches[damage[0].row]
            if batch.magic == 2:
                read_records(self.view, batch, where=self.where, limit=self.limit)  # raises the right error
            raise RequestError(f"{self.where}: records cannot be rewritten: {damage[0].reason}")
        return columns

    def rebuild(self, codec: int) -> Prepared:
        """Rewrite all records as a batch of magic 2 with the codec to be stored."""
        columns = self.decode()
        append_time = self.rules.append_time
        shared = shared_row(
            compression=codec,
            leader_epoch=self.leader_epoch,
            append_time_ms=self.now_ms if append_time else None,
        )
        self.keep_producer(shared)
        records = columns_to_encode(columns, base_offset=self.next_offset)
        out, table = build(records, shared, batch_bytes=0x7FFFFFFF, level=self.rules.level)
        batches = _append.batches_of(table.rows, False)
        for batch in batches:
            if batch.size > self.rules.size_limit:
                raise TooLargeError(
                    f"{self.where}: a batch becomes {batch.size} bytes, more than the limit, {self.rules.size_limit}"
                )
        greatest = self.now_ms if append_time else int(columns.timestamp.max(initial=-1))
        return self.make_result(out, batches, self.next_offset + len(columns), greatest)

    def keep_producer(self, row: npt.NDArray[np.void]) -> None:
        """Copy the producer of the first batch; a coordinator's may have values that no client's has."""
        first = self.first
        if first.is_transactional and first.producer_id == -1:
            raise RequestError(f"{self.where}: a transactional batch without a producer")
        if first.producer_id != -1 and (first.producer_epoch == -1 or first.base_sequence < 0):
            raise RequestError(
                f"{self.where}: producer {first.producer_id} has epoch {first.producer_epoch} and sequence "
                f"{first.base_sequence}"
            )
        row["producer_id"], row["producer_epoch"] = first.producer_id, first.producer_epoch
        row["base_sequence"] = first.base_sequence
        row["attributes"] |= TRANSACTIONAL if first.is_transactional else 0

    def make_result(self, out: Any, batches: list[Batch], offset: int, greatest: int) -> Prepared:
        """Return the result, with the log end offset after it."""
        append_time_ms = self.now_ms if self.rules.append_time else -1
        last_of_first = batches[0].last_offset if batches else -1
        return Prepared(
            out, batches, self.next_offset, offset - 1, last_of_first, greatest, append_time_ms, self.found.valid_bytes
        )


def _numbered(checked: list[CheckedFields]) -> bool:
    offsets = np.concatenate([records.offset for records in checked])
    return bool((offsets == np.arange(len(offsets))).all())
