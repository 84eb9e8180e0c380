"""Which records of the logs clients may see."""

from __future__ import annotations

from typing import NamedTuple


class View(NamedTuple):
    """Which records of the logs clients may see."""

    until_checkpoint: bool = False  #: True if the high watermark is the checkpointed one, and not the end.
    skips: bool = False  #: True if damage is left out, as if it had been cleaned away.
    aborts_open: bool = False  #: True if transactions that are open count as aborted.
