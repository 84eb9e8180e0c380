"""The careful judge of appends: what a leader does to batches, and what a follower checks of them.

`log.append` says which batches of a leader come here. They go through `_Careful`, in the order of Kafka's checks:
refusals, conversion of formats, recompression.
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
from pylogseg.format.builder import TRANSACTIONAL, build, columns_of, shared_row
from pylogseg.format.records import RecordColumns, decode
from pylogseg.log.append_analysis import Analysis, analyze, frames, header_of
from pylogseg.log.append_record_checks import Judged, check_records, read_records
from pylogseg.log.producer_state import Origin

__all__ = ["Batch", "Origin", "Prepared", "Rules", "Terms", "follower", "leader"]

_SHOWN_OFFSETS = 10


class Terms(NamedTuple):
    """What the batches of an append get, and who appends them.

    Attributes
    ----------
    next_offset : int
        The log end offset.
    leader_epoch : int
        That batches get.
    now_ms : int
        The log's clock.
    origin : Origin
        ``CLIENT`` or ``COORDINATOR``.
    target_magic : int
        Format to store; brokers since Kafka 4 store 2 only.
    """

    next_offset: int
    leader_epoch: int
    now_ms: int
    origin: Origin = Origin.CLIENT
    target_magic: int = 2


def leader(data: Any, rules: Rules, terms: Terms, where: str = "<append>") -> Prepared:
    """Judge an append as the leader of a partition does, and give it offsets, timestamps and leader epoch.

    Parameters
    ----------
    data : buffer
        One batch of magic 2, or legacy messages. A partial batch at the end is left out.
    rules : Rules
        Of the log.
    terms : Terms
        Of this append.
    where : str
        Named in errors.

    Returns
    -------
    Prepared
        Without batches if there is nothing to write.

    Raises
    ------
    InvalidRecordError, TooLargeError, CorruptionError, RequestError
        As Kafka judges; the first of them with the records that are to blame.
    """
    view = byte_view(data)
    found = analyze(view, terms.origin, terms.leader_epoch, size_limit=rules.size_limit, monotonic=False, where=where)
    if not found.batches:
        return Prepared(b"", [], -1, -1, -1, -1, -1, 0)
    view = view[: found.valid_bytes]
    return _Careful(view, found, rules, terms, where).prepare()


def follower(
    data: Any,
    *,
    next_offset: int,
    leader_epoch: int,
    origin: Origin = Origin.REPLICATION,
    size_limit: int | None = None,
    where: str = "<append>",
) -> Prepared:
    """Judge batches that keep their offsets.

    Parameters
    ----------
    data : buffer
        Any number of batches; a partial one at the end is left out.
    next_offset : int
        The log end offset.
    leader_epoch : int
        In replication, batches from the first one with a higher epoch on are left out; the leader of the metadata log
        has this one in all.
    origin : Origin
        ``REPLICATION`` or ``RAFT_LEADER``.
    size_limit : int, optional
        Most bytes of a batch; replication has none.
    where : str
        Named in errors.

    Returns
    -------
    Prepared
        Its records are a view of `data`. Without batches if there is nothing to write.

    Raises
    ------
    OffsetsOutOfOrderError
        If offsets do not ascend, or begin below `next_offset`.
    InvalidRecordError, TooLargeError, CorruptionError, RequestError
        As Kafka judges.
    """
    limit = -1 if size_limit is None else size_limit
    done = _append.given(data, leader_epoch, origin is Origin.RAFT_LEADER, limit)
    if done is None:
        view = byte_view(data)
        try:
            found = analyze(view, origin, leader_epoch, size_limit=size_limit, monotonic=True, where=where)
        except OffsetsOutOfOrderError as error:
            raise _with_offsets(error, view, None, where) from None
        done = Prepared(
            view[: found.valid_bytes],
            found.batches,
            found.first_offset,
            found.last_offset,
            found.last_offset_of_first,
            found.max_timestamp,
            -1,
            found.valid_bytes,
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
    """The error with the offsets of the first records. As to Kafka, a record that cannot be read comes first."""
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


class _Careful:
    """One append of a leader, step by step."""

    def __init__(self, view: memoryview, found: Analysis, rules: Rules, terms: Terms, where: str) -> None:
        self.view, self.found, self.rules, self.where = view, found, rules, where
        self.next_offset, self.leader_epoch, self.now_ms, self.origin, self.magic = terms
        self.first = found.batches[0]
        self.codec = found.codec if rules.codec < 0 else rules.codec
        from pylogseg.log.append_decompress import limit_of  # codecs are loaded when they are needed

        self.limit = limit_of(rules)

    def prepare(self) -> Prepared:
        """Judge, and assign or rebuild."""
        if self.found.codec == 0 and self.codec == 0:
            same = all(batch.magic == self.magic for batch in self.found.batches)
            return self.assign(self.judge_all()) if same else self.convert()
        in_place = self.found.codec == self.codec and self.first.magic == self.magic and self.magic != 0
        # Control records are not compressed.
        in_place = in_place or (self.found.codec == 0 and self.first.is_control)
        judged = self.judge_all(lenient=in_place)
        if not in_place:
            return self.rebuild(self.codec)
        if self.first.magic > 0 and self.magic > 0 and not _numbered(judged):
            # Old clients number inner messages wrongly, so those are written anew. In magic 2 Kafka has not kept what
            # that needs.
            if self.first.magic == 2 and self.found.codec:
                raise RequestError(f"{self.where}: offsets in a compressed batch do not count up from 0")
            return self.rebuild(self.codec)
        return self.assign(judged)

    def convert(self) -> Prepared:
        """Store uncompressed records in another format: they are written one by one while they are judged."""
        columns = self.decode()
        self.check_number()
        if self.magic < 2 and self.first.is_transactional:
            raise RequestError(f"{self.where}: magic {self.magic} knows no transactions")
        broken = columns.timestamp < -1
        if self.magic < 2:
            broken |= columns.header_count > 0
        self.judge_all(broken=broken)
        return self.rebuild(0)

    def check_number(self) -> None:
        """Magic 2 and compressed messages come alone."""
        if len(self.found.batches) > 1 and (self.first.magic == 2 or self.found.codec):
            raise InvalidRecordError(f"{self.where}: {len(self.found.batches)} batches, one is allowed")

    def judge_all(self, *, lenient: bool = False, broken: npt.NDArray[np.bool_] | None = None) -> list[Judged]:
        """Check all batches and their records, of which `broken` tells which cannot be written anew."""
        self.check_number()
        found: list[Judged] = []
        first = 0
        for batch in self.found.batches:
            self.check_batch(batch)
            judged = read_records(self.view, batch, lenient=lenient, where=self.where, limit=self.limit)
            count = len(judged.timestamp)
            unwritable = None if broken is None else np.flatnonzero(broken[first : first + count])
            worst = int(unwritable[0]) if unwritable is not None and len(unwritable) else None
            check_records(judged, batch, self.rules, self.now_ms, self.where, worst)
            first += count
            found.append(judged)
        return found

    def check_batch(self, batch: Batch) -> None:
        """Check what the header says."""
        if batch.magic != self.first.magic:
            raise self.invalid(f"a batch of magic {batch.magic}, the first one has {self.first.magic}")
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
        if self.magic < 2 and (batch.is_transactional or batch.producer_id >= 0):
            raise RequestError(f"{self.where}: magic {self.magic} knows no producers and no transactions")

    def invalid(self, reason: str) -> InvalidRecordError:
        """An error of the whole batch."""
        return InvalidRecordError(f"{self.where}: {reason}")

    def assign(self, judged: list[Judged]) -> Prepared:
        """Keep the batches and set what a leader sets in their headers."""
        out = bytearray(self.view)
        offset, greatest, append_time = self.next_offset, -1, self.rules.append_time
        for batch, records in zip(self.found.batches, judged, strict=True):
            offset += len(records.timestamp)
            patch.set_last_offset(out, offset - 1, batch.position)
            if batch.magic == 2:
                patch.set_leader_epoch(out, self.leader_epoch, batch.position)
            if batch.magic > 0:
                most = max(int(records.timestamp.max(initial=-1)), -1)
                greatest = max(greatest, most)
                timestamp = self.now_ms if append_time else most
                patch.set_max_timestamp(out, timestamp, append_time=append_time, position=batch.position)
        if append_time:
            greatest = self.now_ms if self.magic else -1
        batches = [_append.read_batch(out, batch.position, batch.size)[0] for batch in self.found.batches]
        return self.prepared(out, batches, offset, greatest)

    def decode(self) -> RecordColumns:
        """All records, which are to be written anew."""
        table = scan(self.view, crc=False).batches
        if len(table) < len(self.found.batches):
            raise RequestError(f"{self.where}: the message at {self.found.batches[len(table)].position} is too small")
        columns, damage = decode(table, self.view, limit_bytes=self.limit)
        if damage:
            batch = self.found.batches[damage[0].row]
            if batch.magic == 2:
                read_records(self.view, batch, where=self.where, limit=self.limit)  # knows the error
            raise RequestError(f"{self.where}: records cannot be rewritten: {damage[0].reason}")
        return columns

    def rebuild(self, codec: int) -> Prepared:
        """Write all records anew, in the format and codec that are stored."""
        columns = self.decode()
        append_time = self.rules.append_time
        shared = shared_row(
            magic=self.magic,
            compression=codec,
            leader_epoch=self.leader_epoch if self.magic == 2 else -1,
            append_time_ms=self.now_ms if append_time and self.magic else None,
        )
        self.keep_producer(shared)
        records = columns_of(columns, base_offset=self.next_offset)
        out, table = build(records, shared, batch_bytes=0x7FFFFFFF, level=self.rules.level)
        batches = _append.batches_of(table.rows, False)
        for batch in batches:
            if batch.size > self.rules.size_limit:
                raise TooLargeError(
                    f"{self.where}: a batch becomes {batch.size} bytes, at most {self.rules.size_limit} are allowed"
                )
        greatest = self.now_ms if append_time else int(columns.timestamp.max(initial=-1)) if self.magic else -1
        return self.prepared(out, batches, self.next_offset + len(columns), greatest)

    def keep_producer(self, row: npt.NDArray[np.void]) -> None:
        """Take the producer of the first batch over; a coordinator's may have numbers that no client's has."""
        first = self.first
        if first.is_transactional and first.producer_id == -1:
            raise RequestError(f"{self.where}: a transactional batch without a producer")
        if first.producer_id != -1 and (first.producer_epoch == -1 or first.base_sequence < 0):
            raise RequestError(
                f"{self.where}: producer {first.producer_id} has epoch {first.producer_epoch} and sequence "
                f"{first.base_sequence}"
            )
        if self.magic == 2:
            row["producer_id"], row["producer_epoch"] = first.producer_id, first.producer_epoch
            row["base_sequence"] = first.base_sequence
            row["attributes"] |= TRANSACTIONAL if first.is_transactional else 0

    def prepared(self, out: Any, batches: list[Batch], offset: int, greatest: int) -> Prepared:
        """The result, with the log end offset behind it."""
        append_time_ms = self.now_ms if self.rules.append_time else -1
        last_of_first = batches[0].last_offset if batches else -1
        return Prepared(
            out, batches, self.next_offset, offset - 1, last_of_first, greatest, append_time_ms, self.found.valid_bytes
        )


def _numbered(judged: list[Judged]) -> bool:
    offsets = np.concatenate([records.offset for records in judged])
    return bool((offsets == np.arange(len(offsets))).all())
