"""The notes of a copy of a running cluster, so that the next run goes on with it: a small file in its folder."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from typing import Any

from pylogseg.env.filesystem import LocalFiles
from pylogseg.env.locks import LOCK_NAME
from pylogseg.env.storage import LocalStorage
from pylogseg.errors import CorruptionError, RequestError
from pylogseg.format.names import FileKind

#: A broker passes over files that it does not know.
FILE = "pylogseg-copy.json"
#: What a run leaves that was killed before it copied something.
_LEFT = {LOCK_NAME, f"{FILE}.tmp", FileKind.CLEAN_SHUTDOWN.value}
_VERSION = 1
_LIMIT_BYTES = 1 << 30


@dataclass
class CopiedLog:
    """How far a partition was copied, and as which topic."""

    topic_id: str  #: Empty where the cluster has none.
    start: int  #: Where the copy begins.
    end: int  #: The offset that comes next; more is there after a run that was killed.
    epoch: int = -1  #: All that is in the copy was written under leaders up to one of this epoch.
    gaps: list[list[int]] = field(default_factory=list)  #: Half-open ranges that retention removed before they came.


@dataclass
class CopyLedger:
    """The partitions of a copy, by the names of their folders."""

    cluster_id: str
    logs: dict[str, CopiedLog] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)  #: What the last run could not copy.
    is_ended: bool = False  #: True if the copy has ends of transactions of its own: it never goes on.
    _written: str = field(default="", compare=False, repr=False)

    @classmethod
    def read(cls, folder: str) -> CopyLedger | None:
        """Read the ledger of a copy; None where a copy may begin.

        Raises RequestError for any other folder, and for a copy that cannot go on; CorruptionError if it is damaged.
        """
        path, files = os.path.join(folder, FILE), LocalFiles()
        if not os.path.lexists(path):
            if os.path.lexists(folder) and (not os.path.isdir(folder) or set(os.listdir(folder)) - _LEFT):
                raise RequestError(
                    f"{folder}: expected an empty folder, a path that does not exist yet, or a copy of a running "
                    f"cluster, which has a file {FILE}"
                )
            return None
        if os.path.getsize(path) > _LIMIT_BYTES:
            raise CorruptionError(path, 0, f"the file has more than {_LIMIT_BYTES:,} bytes")
        try:
            found: dict[str, Any] = json.loads(bytes(files.read_all(path)))
            if (version := found["version"]) == _VERSION:
                logs = {name: _log_of(row) for name, row in found["partitions"].items()}
                faults = [str(fault) for fault in found["faults"]]
                ledger = cls(str(found["clusterId"]), logs, faults, bool(found["isEnded"]))
                ledger._written = ledger._text()
                return ledger
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            reason = f"it does not say how far the copy is: {error!r}; copy into another folder"
            raise CorruptionError(path, 0, reason) from error
        raise RequestError(f"{path}: version {version} is of another pylogseg; this one knows {_VERSION}")

    def write(self, storage: LocalStorage, folder: str) -> None:
        """Write it if it changed; it is on the disk then."""
        text = self._text()
        if text != self._written:
            storage.write_whole(os.path.join(folder, FILE), text.encode())
            self._written = text

    def _text(self) -> str:
        found = {
            "version": _VERSION,
            "clusterId": self.cluster_id,
            "faults": self.faults,
            "isEnded": self.is_ended,
            "partitions": {name: asdict(self.logs[name]) for name in sorted(self.logs)},
        }
        return json.dumps(found, indent=1) + "\n"


def ledger_of(folder: str) -> CopyLedger | None:
    """Return the ledger of a log directory that is a copy of a running cluster; None of any other."""
    return CopyLedger.read(folder) if os.path.lexists(os.path.join(folder, FILE)) else None


def _log_of(row: dict[str, Any]) -> CopiedLog:
    log = CopiedLog(**row)
    numbers = [log.start, log.end, log.epoch, *(offset for gap in log.gaps for offset in gap)]
    if not isinstance(log.topic_id, str) or not all(type(each) is int and -1 <= each < 1 << 63 for each in numbers):
        raise ValueError(f"{row} is of no partition")
    return log
