"""What of the files of logs is shown."""

from __future__ import annotations

from typing import NamedTuple


class View(NamedTuple):
    """What is shown of logs.

    Attributes
    ----------
    until_checkpoint : bool
        Whether the high watermark is the checkpointed one, and not the end.
    skips : bool
        Whether damage is left out, as if it had been cleaned away.
    aborts_open : bool
        Whether transactions that are open count as aborted.
    """

    until_checkpoint: bool = False
    skips: bool = False
    aborts_open: bool = False
