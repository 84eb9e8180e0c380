"""What a leader of an old message format, and the leader of the metadata log, did with an append.

No broker since Kafka 4 stores magic 0 or 1, and no log of this package has such a leader. Replays of a real Kafka begin
with logs that were written like that: this makes their batches, as Kafka's own test doubles do, and the engine takes
them as a follower takes what its leader has.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pylogseg._native import _append
from pylogseg._native._append import Batch, Prepared, Rules
from pylogseg.errors import InvalidRecordError, RequestError, TooLargeError
from pylogseg.format import patch
from pylogseg.format.batches import scan
from pylogseg.format.buffers import byte_view
from pylogseg.format.builder import build, columns_to_encode, shared_row
from pylogseg.log.append_analysis import analyze
from pylogseg.log.append_record_checks import CheckedFields
from pylogseg.log.append_validation import Terms, _LeaderAppend, follower
from pylogseg.log.producer_state import Origin


def old_leader(data: Any, rules: Rules, terms: Terms, magic: int, where: str = "<append>") -> Prepared:
    """Validate an append to a log that stores `magic`, 0 or 1."""
    view = byte_view(data)
    limit = rules.size_limit
    found = analyze(view, terms.origin, terms.leader_epoch, size_limit=limit, monotonic=False, where=where)
    if not found.batches:
        return Prepared(b"", [], -1, -1, -1, -1, -1, 0)
    append = _OldLeaderAppend(view[: found.valid_bytes], found, rules, terms, where)
    append.magic = magic
    return append.prepare()


def raft_leader(data: Any, *, next_offset: int, leader_epoch: int, size_limit: int) -> Prepared:
    """Validate an append of the leader of the metadata log: all batches have its epoch, none is above the limit."""
    found = scan(data, crc=False).batches
    for epoch, size in zip(found.leader_epoch.tolist(), found.size.tolist(), strict=True):
        if epoch != leader_epoch:
            raise InvalidRecordError(f"a batch has leader epoch {epoch}, expected {leader_epoch}")
        if size > size_limit:
            raise TooLargeError(f"a batch of {size} bytes is larger than the limit, {size_limit}")
    return follower(data, next_offset=next_offset, leader_epoch=leader_epoch)


class _OldLeaderAppend(_LeaderAppend):
    magic: int

    def prepare(self) -> Prepared:
        if self.found.codec == 0 and self.codec == 0:
            same = all(batch.magic == self.magic for batch in self.found.batches)
            return self.assign(self.check_all()) if same else self.convert()
        in_place = self.found.codec == self.codec and self.first.magic == self.magic and self.magic != 0
        checked = self.check_all(lenient=in_place)
        if not in_place:
            return self.rebuild(self.codec)
        offsets = np.concatenate([records.offset for records in checked])
        if not (offsets == np.arange(len(offsets))).all():
            return self.rebuild(self.codec)  # old clients number inner messages wrongly
        return self.assign(checked)

    def convert(self) -> Prepared:
        columns = self.decode()
        self.check_number()
        if self.first.is_transactional:
            raise RequestError(f"message format v{self.magic} does not support transactions")
        self.check_all(broken=self.broken(columns.timestamp, columns.header_count))
        return self.rebuild(0)

    @staticmethod
    def broken(timestamp: npt.NDArray[np.int64], header_count: npt.NDArray[np.int32]) -> npt.NDArray[np.bool_]:
        return np.asarray((timestamp < -1) | (header_count > 0))

    def check_batch(self, batch: Batch) -> None:
        super().check_batch(batch)
        if batch.is_transactional or batch.producer_id >= 0:
            raise RequestError(f"message format v{self.magic} does not support producer ids")

    def assign(self, checked: list[CheckedFields]) -> Prepared:
        out = bytearray(self.view)
        offset, greatest, append_time = self.next_offset, -1, self.rules.append_time
        for batch, records in zip(self.found.batches, checked, strict=True):
            offset += len(records.timestamp)
            patch.set_last_offset(out, offset - 1, batch.position)
            if batch.magic > 0:
                most = max(int(records.timestamp.max(initial=-1)), -1)
                greatest = max(greatest, most)
                timestamp = self.now_ms if append_time else most
                patch.set_max_timestamp(out, timestamp, append_time=append_time, position=batch.position)
        if append_time:
            greatest = self.now_ms if self.magic else -1
        batches = [_append.read_batch(out, batch.position, batch.size)[0] for batch in self.found.batches]
        return self.make_result(out, batches, offset, greatest)

    def rebuild(self, codec: int) -> Prepared:
        columns = self.decode()
        append_time = self.rules.append_time
        append_time_ms = self.now_ms if append_time and self.magic else None
        shared = shared_row(magic=self.magic, compression=codec, leader_epoch=-1, append_time_ms=append_time_ms)
        records = columns_to_encode(columns, base_offset=self.next_offset)
        out, table = build(records, shared, batch_bytes=0x7FFFFFFF, level=self.rules.level)
        greatest = self.now_ms if append_time else int(columns.timestamp.max(initial=-1)) if self.magic else -1
        return self.make_result(out, _append.batches_of(table.rows, False), self.next_offset + len(columns), greatest)


def appended(log: Any, data: bytes, op: dict[str, Any]) -> Any:
    """Append to a `Log` as an old leader, or as that of the metadata log."""
    appender, state, epoch = log._appender, log.state, op.get("epoch", 0)
    end, now_ms = state.offsets.end.offset, state.clock.now_ms()

    def append() -> Any:
        if op.get("origin") == "raft_leader":
            limit = state.config.max_message_bytes
            prepared = raft_leader(data, next_offset=end, leader_epoch=epoch, size_limit=limit)
            return appender._write(prepared, Origin.REPLICATION, -1, now_ms)
        origin = Origin(op.get("origin", "client"))
        prepared = old_leader(data, appender.rules, Terms(end, epoch, now_ms, origin), op["record_version"])
        return appender._write(prepared, origin, 0, now_ms)

    with state.lock:
        return state.guard(append)
