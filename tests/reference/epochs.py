"""The leader epochs of a partition as a plain list of pairs, each rule word by word."""

from __future__ import annotations

Pairs = list[tuple[int, int]]


def assign(pairs: Pairs, epoch: int, offset: int) -> Pairs:
    """Return the pairs with an epoch that begins at an offset; the same list if that is not news."""
    if pairs and pairs[-1][0] == epoch and pairs[-1][1] <= offset:
        return pairs
    kept = list(pairs)
    while kept and (kept[-1][0] >= epoch or kept[-1][1] >= offset):
        kept.pop()
    return [*kept, (epoch, offset)]


def end_offset_for(pairs: Pairs, epoch: int, end: int) -> tuple[int, int]:
    """Return the highest known epoch that is not above, and where the next one begins."""
    above = [pair for pair in pairs if pair[0] > epoch]
    below = [pair for pair in pairs if pair[0] <= epoch]
    if epoch == -1:
        return -1, -1
    if pairs and pairs[-1][0] == epoch:
        return epoch, end
    if not above:
        return -1, -1
    return (below[-1][0] if below else epoch), above[0][1]


def epoch_for_offset(pairs: Pairs, offset: int) -> int:
    """Return the epoch that wrote an offset."""
    found = -1
    for epoch, start in pairs:
        if start <= offset:
            found = epoch
    return found


def truncate_from_end(pairs: Pairs, offset: int) -> Pairs:
    """Return the pairs that begin below an offset."""
    return pairs if offset < 0 else [pair for pair in pairs if pair[1] < offset]


def truncate_from_start(pairs: Pairs, offset: int) -> Pairs:
    """Return the pairs from the epoch on that an offset lies in, which now begins there."""
    gone = [pair for pair in pairs if pair[1] <= offset]
    return [(gone[-1][0], offset), *pairs[len(gone) :]] if gone else pairs
