"""Which records of the logs clients may see."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypedDict


class ViewKeywords(TypedDict, total=False):
    """The fields of `View` as keywords of a function."""

    until_checkpoint: bool
    on_corrupt: Literal["raise", "skip"]
    end_open_transactions: bool


class View(NamedTuple):
    """Which records of the logs clients may see."""

    until_checkpoint: bool = False  #: True if the high watermark is the checkpointed one, and not the end.
    on_corrupt: Literal["raise", "skip"] = "raise"  #: If skipped, damage is left out, as if it had been cleaned away.
    end_open_transactions: bool = False  #: True if transactions that are open count as aborted.

    @property
    def skips(self) -> bool:
        return self.on_corrupt == "skip"
