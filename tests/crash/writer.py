"""A process that works with a log and tells what it was promised, until it is killed.

    python tests/crash writer FOLDER SEED [STEPS]

Works through random lists of operations in ``FOLDER/t-0``, ``t-1`` and so on, and writes pickles to its output: each
batch before it is appended, each promise as it comes to hold, each batch whose truncation begins.
"""

from __future__ import annotations

import itertools
import pickle
from typing import Any, BinaryIO

from crash.promises import Promise, Witness, Written
from crash.workloads import Wanderer
from pylogseg.config import LogConfig
from pylogseg.env.storage import LocalStorage

#: Segments of a few pages, so that the file system meets whole and torn pages, rolls and removals all the time.
SMALL = LogConfig.of(
    segment_bytes=20_000,
    segment_index_bytes=4096,
    index_interval_bytes=1000,
    file_delete_delay_ms=1000,
    max_message_bytes=10_000,
)


class _Telling(list[Written]):
    """A history that is told as it grows."""

    def __init__(self, out: BinaryIO) -> None:
        super().__init__()
        self._out = out

    def append(self, batch: Written) -> None:
        tell(self._out, ("batch", batch))
        super().append(batch)

    def __setitem__(self, number: Any, batch: Any) -> None:
        tell(self._out, ("died", number, batch.died))
        super().__setitem__(number, batch)


def tell(out: BinaryIO, what: object) -> None:
    """Write one pickle, at once."""
    out.write(pickle.dumps(what))
    out.flush()


def run(folder: str, seed: int, steps: int, out: BinaryIO) -> None:
    """One log from its beginning to its end."""
    config = SMALL.with_changes(preallocate=seed % 2 == 1, flush_messages=(2**62, 7)[seed % 3 == 0])
    tell(out, ("begin", folder, config))
    witness = Witness(LocalStorage(), lambda promise: tell(out, ("promise", promise)), config, folder)
    witness.history = _Telling(out)
    witness.promised(**Promise()._asdict())
    witness.open()
    Wanderer(witness, seed, large=True).walk(steps)
    witness.crash()


def run_for_ever(folder: str, seed: int, steps: int, out: BinaryIO) -> None:
    """One log after another, until somebody kills the process; the last three stay."""
    for number in itertools.count():
        run(f"{folder}/t-{number}", seed * 1000 + number, steps, out)
        if number > 1:
            LocalStorage().remove_folder(f"{folder}/t-{number - 2}")
