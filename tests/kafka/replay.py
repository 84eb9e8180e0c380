"""Replay a list of operations on a log and print the answers, as the oracle in `tests/kafka` does with Kafka's own.

    python tests/kafka/replay.py OPS.jsonl DIR [OUT.jsonl]

`README.md` beside it describes the operations. `compare.py` compares two replays.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import sys
from pathlib import Path
from typing import Any, TextIO

from pylogseg.config import LogConfig
from pylogseg.env.clock import SystemClock
from pylogseg.env.environment import Environment
from pylogseg.env.storage import LocalStorage
from pylogseg.errors import ClosedError, CorruptionError, InvalidRecordError, PylogsegError, RequestError
from pylogseg.format.batches import scan
from pylogseg.log.batch_headers import first_offset
from pylogseg.log.cleaner import Cleaner
from pylogseg.log.cleaner_range import Cleanable, cleanable, dirtiness
from pylogseg.log.log import Log
from pylogseg.log.offset_map import OffsetMap
from pylogseg.log.producer_state import Origin
from pylogseg.log.state import Start
from pylogseg.testing.clock import ManualClock, ManualScheduler
from pylogseg.walker.broker_windows import check_length

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from helpers import old_leader
from helpers.descriptions import check_batch, check_fields, described

Row = dict[str, Any]
_ENTRY_BYTES = {".index": 8, ".timeindex": 12}
_PLACE = re.compile(r"(start|hw|end)([+-]\d+)?")


class CleanerOf44(Cleaner):
    """Cleans as Kafka 4.4: an emptied batch stays where the high watermark is, not at the end of each cleaning."""

    def _clean_group(self, log: Log, *arguments: Any) -> None:
        *others, _, stats = arguments
        super()._clean_group(log, *others, log.high_watermark, stats)


class Replay:
    """One list of operations on one log."""

    cleaner: type[Cleaner] = Cleaner

    def __init__(self, root: Path) -> None:
        self.root = root
        self.storage = LocalStorage()
        self.log: Log | None = None
        self.clock = ManualClock(0)
        self.scheduler = ManualScheduler(self.clock)
        self.config = LogConfig()
        self.folder = root
        self.topic_id: str | None = None
        self.expiry_ms = 86_400_000
        self.last_clean: int | None = None

    def run(self, op: Row) -> Row:
        """Run an operation; the fields of its answer, without line and state."""
        name = op["op"]
        if self.log is not None and op.get("unless_open"):
            return {}
        if self.log is None and name not in ("create", "open", "file", "capture", "advance"):
            raise ClosedError("no open log")
        self._resolve(op)
        result: Row = getattr(self, f"do_{name}")(op) or {}
        return result

    def _resolve(self, op: Row) -> None:
        """Places in the log ("end-3", "start", "hw+1") become numbers."""
        if self.log is None:
            return
        for fields, name in [(op, "offset"), (op, "log_start"), (op, "recovery_point")] + [
            (spec, "base_offset") for spec in op.get("batches", [])
        ]:
            match = _PLACE.fullmatch(fields[name]) if isinstance(fields.get(name), str) else None
            if match is not None:
                origins = {
                    "start": self.log.log_start_offset,
                    "hw": self.log.high_watermark,
                    "end": self.log.log_end_offset,
                }
                fields[name] = max(0, origins[match[1]] + int(match[2] or 0))

    @property
    def open_log(self) -> Log:
        """The log, which is open."""
        if self.log is None:
            raise ClosedError("no open log")
        return self.log

    def do_create(self, op: Row) -> None:
        """Open a fresh log."""
        self.clock = ManualClock(op.get("now", 1_700_000_000_000))
        self.scheduler = ManualScheduler(self.clock)
        self.folder = self.root / f"{op.get('topic', 't')}-{op.get('partition', 0)}"
        self.config = _config(op.get("config", {}))
        self.expiry_ms = op.get("producer_expiry_ms", 86_400_000)
        self.topic_id = op.get("topic_id")
        self._open(op, clean=op.get("clean", True))

    def do_open(self, op: Row) -> None:
        """Open the folder again."""
        if "config" in op:
            self.config = _config(op["config"])
        self._open(op, clean=op.get("clean", False))

    def _open(self, op: Row, *, clean: bool) -> None:
        self.log = None
        self.log = Log.open(
            Environment(self.storage, self.clock, self.scheduler),
            str(self.folder),
            self.config,
            Start(clean, op.get("log_start", 0), op.get("recovery_point", 0)),
            producer_expiration_ms=self.expiry_ms,
            topic_id=self.topic_id,
        )

    def do_config(self, op: Row) -> None:
        """New settings."""
        self.config = _config(op["config"])
        self.open_log.update_config(self.config)

    def do_append(self, op: Row) -> Row:
        """One append."""
        data = _bytes_of(op)
        epoch = op.get("epoch", 0)
        log = self.open_log
        if op.get("as", "leader") == "follower":
            done = log.append_as_follower(data, epoch)
        elif op.get("record_version", 2) < 2 or op.get("origin") == "raft_leader":
            done = old_leader.appended(log, data, op)
        else:
            done = log.append_as_leader(
                data,
                epoch,
                origin=Origin[op.get("origin", "client").upper()],
                transaction_version=op.get("transaction_version", 0),
            )
        return {
            "first_offset": done.first_offset,
            "last_offset": done.last_offset,
            "max_timestamp": done.max_timestamp,
            "log_append_time": done.append_time_ms,
            "valid_bytes": done.valid_bytes,
            "log_start": done.log_start_offset,
        }

    def do_advance(self, op: Row) -> None:
        """Move the clock."""
        self.scheduler.advance(op["ms"])

    def do_roll(self, op: Row) -> Row:
        """Begin a segment."""
        return {"base_offset": self.open_log.roll(op.get("offset", 0)).base_offset}

    def do_flush(self, op: Row) -> None:
        """Force to the disk."""
        self.open_log.flush(force_active=op.get("force_active", True))

    def do_flush_to(self, op: Row) -> None:
        """Force to the disk up to an offset."""
        self.open_log.flush_to(op["offset"])

    def do_truncate(self, op: Row) -> Row:
        """Drop the end."""
        return {"truncated": self.open_log.truncate_to(op["offset"])}

    def do_truncate_fully(self, op: Row) -> None:
        """Drop everything."""
        self.open_log.truncate_fully(op["offset"], op.get("log_start"))

    def do_high_watermark(self, op: Row) -> Row:
        """Move the high watermark."""
        return {"value": self.open_log.update_high_watermark(op["offset"])}

    def do_log_start(self, op: Row) -> Row:
        """Delete records."""
        return {"moved": self.open_log.increment_log_start(op["offset"])}

    def do_expire_producers(self, op: Row) -> None:
        """Forget idle producers."""
        self.open_log.producers.expire(self.clock.now_ms())

    def do_snapshot(self, op: Row) -> None:
        """Write the producers' state."""
        self.open_log.take_snapshot()

    def do_epoch(self, op: Row) -> None:
        """Assign a leader epoch."""
        self.open_log.epochs.assign(op["epoch"], op["offset"])

    def do_end_offset_for_epoch(self, op: Row) -> Row:
        """Where an epoch ends."""
        epoch, offset = self.open_log.epochs.end_offset_for(op["epoch"], self.open_log.log_end_offset)
        return {} if offset == -1 else {"offset": offset, "epoch": epoch}

    def do_lookup(self, op: Row) -> Row:
        """An offset by time."""
        found = self.open_log.offset_for_time(op["timestamp"])
        if found is None:
            return {}
        row = {"timestamp": found.timestamp, "offset": found.offset}
        # An epoch of -1 is an answer for "latest tiered", and no answer elsewhere.
        return {**row, "epoch": found.leader_epoch} if found.leader_epoch >= 0 or op["timestamp"] == -5 else row

    def do_read(self, op: Row) -> Row:
        """One fetch."""
        fetched = self.open_log.fetch(
            op["offset"], op.get("max_bytes", 1 << 20), op.get("isolation", "log_end"), min_one=op.get("min_one", True)
        )
        ended = scan(fetched.data, crc=False, any_magic=True)
        check_length(fetched.data[ended.position :], str(self.folder), ended.position)  # as who reads it in Kafka
        found = ended.batches
        if (found.codec > 4).any():
            raise RequestError(f"codec {int(found.codec.max())} is none of Kafka's")
        batches = []
        for row in range(len(found)):
            one = found[row : row + 1]
            base = int(one.base_offset[0])
            if one.magic[0] < 2 and one.count[0] < 0:
                base = first_offset(one, fetched.data, str(self.folder))
            batches.append([base, int(one.last_offset[0]), int(one.size[0])])
        row_: Row = {
            "fetch_offset": fetched.start.offset,
            "segment": fetched.start.segment,
            "position": fetched.start.position,
            "bytes": len(fetched.data),
            "first_incomplete": fetched.first_incomplete,
            "batches": batches,
        }
        if fetched.aborted is not None:
            row_["aborted"] = [list(pair) for pair in fetched.aborted]
        return row_

    def do_cleanable(self, op: Row) -> Row:
        """What the cleaner may clean."""
        log = self.open_log
        what = cleanable(log, self.last_clean, self.clock.now_ms())
        how = dirtiness(log, what)
        return {
            "first_dirty": what.first_dirty,
            "first_uncleanable": what.first_uncleanable,
            "force_checkpoint": what.reset_checkpoint,
            "clean_bytes": how.clean_bytes,
            "cleanable_bytes": how.cleanable_bytes,
            "total_bytes": how.total_bytes,
            "ratio": how.ratio if how.total_bytes else None,
        }

    def do_clean(self, op: Row) -> Row:
        """One cleaning."""
        log = self.open_log
        what = cleanable(log, self.last_clean, self.clock.now_ms())
        first = op.get("first_dirty", what.first_dirty)
        end = op.get("first_uncleanable", what.first_uncleanable)
        offsets = OffsetMap(op.get("offset_map_bytes", 1 << 20), op.get("load_factor", 0.9))
        before = list(log.segments)
        # A candidate of the broker ends at a segment.
        self.last_clean, stats = self.cleaner(offsets, crc=False).clean(log, Cleanable(first, end, False))
        for segment in log.segments:
            if segment not in before:  # Kafka gives what its cleaner makes the clock on the wall, not that of the log
                segment._clock = SystemClock()
                segment.created_ms = segment._clock.now_ms()
        return {
            "first_dirty": first,
            "first_uncleanable": end,
            "next_dirty": self.last_clean,
            "messages_read": stats.messages_read,
            "messages_written": stats.messages_written,
            "bytes_read": stats.bytes_read,
            "bytes_written": stats.bytes_written,
            "map_messages_read": stats.map_messages_read,
            "invalid_messages_read": stats.invalid_messages_read,
        }

    def do_retention(self, op: Row) -> Row:
        """Delete what the settings let go."""
        return {"deleted": self.open_log.apply_retention()}

    def do_set_mtime(self, op: Row) -> None:
        """Set a segment's modification time."""
        for segment in self.open_log.segments:
            if segment.base_offset == op["segment"]:
                segment.set_modified_ms(op["ms"])
                for index in (segment.offset_index, segment.time_index):  # Kafka sets theirs as well
                    os.utime(index.path, ns=(op["ms"] * 1_000_000,) * 2)

    def do_close(self, op: Row) -> None:
        """Close in order."""
        self.open_log.close()
        self.log = None

    def do_crash(self, op: Row) -> None:
        """Let go of everything."""
        self.open_log.close_handles()
        self.scheduler.shutdown()
        self.scheduler = ManualScheduler(self.clock)
        self.log = None

    def do_delete(self, op: Row) -> None:
        """Remove the log."""
        self.open_log.delete()
        self.log = None

    # ---- files by hand ----

    def do_file(self, op: Row) -> None:
        """Damage or repair a file."""
        path = self.folder / self._file_name(op["name"])
        action = op["action"]
        if action == "delete":
            path.unlink()
        elif action == "rename":
            os.link(path, self.folder / self._file_name(op["to"]))  # refuses a name that is taken
            path.unlink()
        elif action == "copy":
            with (self.folder / self._file_name(op["to"])).open("xb") as file:
                file.write(path.read_bytes())
        elif action == "truncate":
            size = op["size"]
            with path.open("ab") as file:
                file.truncate(size if size >= 0 else file.tell() + size)
        elif action == "append":
            with path.open("ab") as file:
                file.write(_bytes_of(op))
        elif action == "write":
            path.write_bytes(op["text"].encode() if "text" in op else bytes.fromhex(op["hex"]))
        elif action == "patch":
            path.touch()
            with path.open("r+b") as file:
                file.seek(op["at"], os.SEEK_SET if op["at"] >= 0 else os.SEEK_END)
                file.write(bytes.fromhex(op["hex"]))
        else:
            raise RequestError(f"file action {action}")

    def _file_name(self, name: str) -> str:
        if not name.startswith(("@first", "@last")):
            return name
        logs = sorted(path.name for path in self.folder.glob("*.log") if len(path.name) == 24)
        return logs[0 if name.startswith("@first") else -1][:20] + name[name.index(".") :]

    def do_capture(self, op: Row) -> Row:
        """Size and hash of every file."""
        files: Row = {}
        keep = self.root / op["keep"] if "keep" in op else None
        for path in sorted(self.folder.iterdir()):
            if not path.is_file():
                continue
            data = path.read_bytes()
            files[path.name] = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            if op.get("mtimes") and path.name.endswith(".log") and data:
                files[path.name]["mtime"] = path.stat().st_mtime_ns // 1_000_000
            if keep is not None:
                keep.mkdir(parents=True, exist_ok=True)
                (keep / path.name).write_bytes(data)
        return files

    def state(self) -> Row:
        """What the log is like now."""
        log = self.open_log
        return {
            "start": log.log_start_offset,
            "end": log.log_end_offset,
            "high_watermark": log.high_watermark,
            "last_stable": log.last_stable_offset,
            "recovery_point": log.recovery_point,
            "now": self.clock.now_ms(),
            "segments": [[segment.base_offset, segment.size] for segment in log.segments],
            "epochs": [[entry.epoch, entry.start_offset] for entry in log.epochs.entries],
            "producers": [_producer(number, state) for number, state in sorted(log.producers.active.items())],
        }


def _producer(number: int, state: Any) -> Row:
    row = {
        "id": number,
        "epoch": state.producer_epoch,
        "last_timestamp": state.last_timestamp,
        "coordinator_epoch": state.coordinator_epoch,
        "batches": [
            [b.first_sequence, b.last_sequence, b.first_offset, b.last_offset, b.timestamp] for b in state.batches
        ],
    }
    if state.has_open_txn:
        row["txn_first_offset"] = state.first_txn_offset
    return row


def _bytes_of(op: Row) -> bytes:
    return bytes.fromhex(op["hex"]) if "hex" in op else described(op["batches"])


def _config(settings: Row) -> LogConfig:
    return LogConfig.from_properties({name: str(value) for name, value in settings.items()})


def kind_of(error: Exception) -> str:
    """What a refusal is about, in the words of the oracle."""
    if isinstance(error, CorruptionError) and error.path.endswith("-checkpoint"):
        return "storage"  # a broker takes a log directory offline for a checkpoint that it cannot read
    return error.kind if isinstance(error, PylogsegError) else "request"


class ReplayAs44(Replay):
    """One list as Kafka 4.4 answers it: our engine, with what differs there (docs/fidelity.md)."""

    cleaner = CleanerOf44

    def do_close(self, op: Row) -> None:
        """Close in order; the active segment has indexes, if only empty ones, and only its own are cut to entries."""
        active = max(self.folder.glob("*.log"), default=None)
        others = [path for path in self.folder.glob("*.*index") if active is None or path.stem != active.stem]
        uncut = {path: path.read_bytes() for path in others if path.stat().st_size % _ENTRY_BYTES.get(path.suffix, 1)}
        super().do_close(op)
        for path, data in uncut.items():
            path.write_bytes(data)
        active = max(self.folder.glob("*.log"))
        for suffix in (".index", ".timeindex"):
            active.with_suffix(suffix).touch()


def replay(operations: list[Row], root: Path, out: TextIO, kind: type[Replay] = Replay) -> None:
    """Run all operations and print an answer for each."""
    session = kind(root)
    for number, op in enumerate(operations, 1):
        row: Row = {"line": number, "op": op["op"]}
        check_fields(op, op["op"], "every operation")  # outside of `try`: an answer would be compared, and be the same
        for spec in op.get("batches", []):
            check_batch(spec)
        if "compare" in op:
            row["compare"] = op["compare"]
        try:
            row["result"] = session.run(op)
        except Exception as error:
            if os.environ.get("REPLAY_TRACE"):
                raise
            row |= {"error": type(error).__name__, "kind": kind_of(error), "message": str(error)}
            if isinstance(error, InvalidRecordError) and error.record_errors:
                row["record_errors"] = [list(pair) for pair in error.record_errors]
        if session.log is not None:
            row["state"] = session.state()
        out.write(json.dumps(row) + "\n")
    if session.log is not None:
        session.log.close()


def main(arguments: list[str]) -> int:
    """Run from the command line."""
    if not 2 <= len(arguments) <= 3:
        print(__doc__, file=sys.stderr)
        return 2
    random.seed(0)  # the jitter of segments
    operations = [json.loads(line) for line in Path(arguments[0]).read_text(encoding="utf-8").splitlines() if line]
    if len(arguments) == 2:
        replay(operations, Path(arguments[1]), sys.stdout)
    else:
        with open(arguments[2], "w", encoding="utf-8") as out:
            replay(operations, Path(arguments[1]), out)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
