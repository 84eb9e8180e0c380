"""One partition from several replicas: the source of each range, and the resulting log."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from pylogseg.config import LogConfig
from pylogseg.disk.lineage.authority import Authority, Choice, Known, Replica, Rule, choose, judge
from pylogseg.disk.lineage.chains import Lineage
from pylogseg.disk.lineage.parts import Assembly, assemble
from pylogseg.env.clock import SystemClock
from pylogseg.env.environment import Environment
from pylogseg.env.executor import Advance
from pylogseg.env.scheduler import CollectingScheduler
from pylogseg.env.storage import Storage
from pylogseg.errors import StorageError
from pylogseg.format.files.cuts import Cut, encode_cuts, without
from pylogseg.format.names import FileKind, segment_file_name
from pylogseg.log.log import Log
from pylogseg.log.state import Start
from pylogseg.offline.merging.replica import ReplicaScan, Trust
from pylogseg.transfer.checked import cut_pieces, piece_bytes
from pylogseg.transfer.segment_files import copy_snapshot, write_epochs

#: Bytes of batches that are appended in one call.
_APPEND_BYTES = 1 << 20
_FOR_EVER_MS = 2**63 - 1
_ANY_EPOCH = 2**31 - 1
#: A broker counts positions in a segment by 32 bits.
_MOST_BYTES = 2**31 - 1
#: In place of a replica that has other records, or nothing shows that they are the same.
_NOBODY = Replica(Lineage((), 0, 0))


class CopiedPiece(NamedTuple):
    """Offsets that come from one replica."""

    replica: int
    first_offset: int
    end_offset: int


@dataclass
class Plan:
    """The plan of a merge for one partition."""

    replicas: Sequence[ReplicaScan]
    choice: Choice
    verdict: Authority
    lineage: Lineage  #: Of what is written.
    pieces: list[CopiedPiece]
    missing: list[tuple[int, int]]  #: Offsets, half-open, from the log start on, that no replica has.
    trusts: list[Trust]  #: Of each replica, whether it has the records of the authoritative one.
    cuts: list[Cut]  #: What a command has cut out on purpose, and no other replica has: it does not count as missing.

    @property
    def chosen(self) -> ReplicaScan:
        """The authoritative replica."""
        return self.replicas[self.choice.replica]

    @property
    def is_disputed(self) -> bool:
        """True if there are two sides, and none was named: it is not written then."""
        differ = any(trust.differs_at is not None for trust in self.trusts)
        return self.choice.rule is not Rule.NAMED and (differ or bool(self.verdict.alarms))

    @property
    def committed(self) -> int:
        """The highest high watermark that is proved, as far as the log goes."""
        return max(self.chosen.log_start, min(self.verdict.committed, self.lineage.end))

    def estimate_output(self) -> tuple[int, int]:
        """Return segments and bytes that are written; of batches that are cut out of a run, bytes by their offsets."""
        size = 0.0
        for piece in self.pieces:
            for run in self.replicas[piece.replica].runs:
                shared = min(run.end_offset, piece.end_offset) - max(run.first_offset, piece.first_offset)
                if shared > 0:
                    size += (run.end_position - run.position) * shared / (run.end_offset - run.first_offset)
        chosen = self.chosen
        return 1 + sum(chosen.first_base < base <= self.lineage.end for base in chosen.bases), round(size)


def plan_merge(replicas: Sequence[ReplicaScan], known: Known | None, named: int | None) -> Plan:
    """Choose the source of each range; nothing is written."""
    choice = choose([each.replica for each in replicas], known, named)
    chosen = replicas[choice.replica]
    trusts = [Trust(None, True) if each is chosen else chosen.trust(each) for each in replicas]
    shown = [each.replica if trust.is_shown else _NOBODY for each, trust in zip(replicas, trusts, strict=True)]
    verdict = judge(shown, choice)
    given = [each for each, trust in zip(replicas, trusts, strict=True) if trust.is_shown]
    chosen.given_base = max((base for each in given for base in each.bases if base <= chosen.log_start), default=None)
    parts = []
    of: list[int] = []
    ranks = [2] * len(replicas)
    ranks[choice.replica] = 0
    if verdict.extended_by is not None:
        ranks[verdict.extended_by] = 1
    for number, replica in enumerate(replicas):
        if not trusts[number].is_shown:
            continue
        found = replica.parts(verdict.lineage, ranks[number], is_own=number == choice.replica)
        parts += found
        of += [number] * len(found)
    made: Assembly = assemble(parts, verdict.lineage._replace(start=chosen.first_base))
    pieces: list[CopiedPiece] = []
    for piece in made.pieces:
        last = pieces[-1] if pieces else None
        if last is not None and (last.replica, last.end_offset) == (of[piece.part], piece.first_offset):
            pieces[-1] = last._replace(end_offset=piece.end_offset)
        else:
            pieces.append(CopiedPiece(of[piece.part], piece.first_offset, piece.end_offset))
    start = chosen.log_start
    end = max([start, *(piece.end_offset for piece in pieces)])
    missing = [(max(first, start), until) for first, until in made.holes if until > start]
    if pieces and missing and pieces[0].first_offset == missing[0][1]:
        chosen.log_start = pieces[0].first_offset  # no replica has the beginning
        deleted = max(each.entries.get(FileKind.LOG_STARTS.value, 0) for each in given)
        first, until = missing[0]
        missing[:1] = [(max(first, deleted), until)] if until > deleted else []
    known_end = max([verdict.lineage.end, *(missing[-1:] and missing[-1][1:])])
    behind = max((each.end_offset for each in verdict.lost if each.is_behind), default=0)
    if behind > known_end:  # there was more than any disk has
        missing.append((known_end, behind))
    left, cuts = list[tuple[int, int]](), list[Cut]()
    noted = list(dict.fromkeys(cut for each in given for cut in each.cuts))
    for first, until in missing:
        ranges, taken = without(first, until, noted)
        left, cuts = left + ranges, cuts + taken
    return Plan(replicas, choice, verdict, verdict.lineage.shorten(end), pieces, left, trusts, cuts)


class MergedWriter:
    """Writes the log of a plan into a new folder."""

    def __init__(self, storage: Storage, folder: str, plan: Plan, config: LogConfig, advance: Advance) -> None:
        self._storage, self._folder, self._plan, self._advance = storage, folder, plan, advance
        chosen = plan.chosen
        sizes = [chosen.size, config.segment_bytes]
        self._scheduler = CollectingScheduler()
        self._bases = [base for base in chosen.bases if base > chosen.first_base]
        self._start = chosen.first_base
        # The segments are those of the authoritative replica; by time they would be rolled as of now.
        self._config = LogConfig.of(
            segment_bytes=min(max(sizes), _MOST_BYTES),
            segment_ms=_FOR_EVER_MS,
            segment_index_bytes=config.segment_index_bytes,
            index_interval_bytes=config.index_interval_bytes,
        )
        self.unread: list[tuple[int, int]] = []  #: Offsets of batches that did not fit behind those before them.

    def write(self) -> Log:
        """Write, flush and close the log; return it for its offsets."""
        storage, plan = self._storage, self._plan
        storage.make_folder(self._folder)
        has_producers = self._copy_snapshot()
        environment = Environment(storage, SystemClock(), self._scheduler)
        log = Log.open(environment, self._folder, self._config, Start(True, self._start))
        try:
            for piece in plan.pieces:
                self._append(log, piece)
            self._roll(log, plan.lineage.end)
            log.update_high_watermark(max(plan.committed, self._start))
            if plan.chosen.log_start > log.log_start_offset:
                log.increment_log_start(plan.chosen.log_start)
            log.flush()
            log.close()
            self._scheduler.finish()
        except BaseException:
            with contextlib.suppress(StorageError):
                log.close_handles()
            raise
        epochs = Lineage.of(plan.lineage.epochs, self._start, log.log_end_offset).epochs
        # One without records goes at the next load.
        write_epochs(storage, self._folder, epochs, log.log_end_offset)
        if not has_producers and log.log_end_offset > self._start:  # the load of the empty log wrote one
            storage.remove(storage.join(self._folder, segment_file_name(self._start, FileKind.PRODUCER_SNAPSHOT)))
        if plan.cuts:
            storage.write_synced(storage.join(self._folder, FileKind.CUTS.value), encode_cuts(plan.cuts))
        self._keep_times(log)
        storage.sync_folder(self._folder)
        return log

    def _copy_snapshot(self) -> bool:
        """Give the log the producers that the authoritative one knew at its start, if it has them."""
        storage, name = self._storage, segment_file_name(self._start, FileKind.PRODUCER_SNAPSHOT)
        source = storage.join(self._plan.chosen.folder, name)
        if not storage.exists(source):
            return False
        error = copy_snapshot(storage.read_all(source), source, storage, storage.join(self._folder, name))
        if error is not None:
            self._plan.chosen.notes.append(f"{error}; producers are known from the first record on")
            return False
        # The load keeps the snapshots of segments that are there, with their indexes.
        for kind in (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX):
            storage.write_plain(storage.join(self._folder, segment_file_name(self._start, kind)), b"")
        storage.open_log(storage.join(self._folder, segment_file_name(self._start, FileKind.LOG))).close()
        return True

    def _append(self, log: Log, piece: CopiedPiece) -> None:
        replica = self._plan.replicas[piece.replica]
        for kept in replica.batches(self._storage, piece.first_offset, piece.end_offset):
            self._advance(len(kept.data))
            rows = kept.batches
            fits = (rows.base_offset >= log.log_end_offset) | (rows.magic < 2)
            for row in np.flatnonzero(~fits).tolist():
                self.unread.append((int(rows.base_offset[row]), int(rows.last_offset[row]) + 1))
            chosen, start = rows[fits], int(rows.position[0])
            cuts = [0, *np.searchsorted(chosen.base_offset, self._bases).tolist(), len(chosen)]
            for begin, stop in pairwise(cuts):  # segments begin at bases
                for appended in cut_pieces(chosen[begin:stop], _APPEND_BYTES):
                    self._roll(log, int(appended.base_offset[0]))
                    log.append_as_follower(piece_bytes(appended, kept.data, start), _ANY_EPOCH)

    def _roll(self, log: Log, offset: int) -> None:
        """Begin the segments that the authoritative replica begins up to an offset."""
        while self._bases and self._bases[0] <= offset:
            base = self._bases.pop(0)
            if base >= log.log_end_offset and base > log.active.base_offset:
                log.roll(base)

    def _keep_times(self, log: Log) -> None:
        """Give segments the modification time of the authoritative ones: retention asks it where a record has none."""
        storage, chosen = self._storage, self._plan.chosen
        for base in {segment.base_offset for segment in log.segments}.intersection(chosen.bases):
            name = segment_file_name(base, FileKind.LOG)
            with contextlib.suppress(StorageError):
                name_now = chosen.file_name(base, FileKind.LOG)
                original = storage.open_log(storage.join(chosen.folder, name_now), create=False)
                modified_ms = original.modified_ms()
                original.close()
                copy = storage.open_log(storage.join(self._folder, name), create=False)
                copy.set_modified_ms(modified_ms)
                copy.close()
