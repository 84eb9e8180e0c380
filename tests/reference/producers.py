"""The producers of a partition as plain dictionaries, each rule word by word, for single appends of a leader.

State: ``{producer id: {"epoch", "coordinator", "timestamp", "txn", "batches"}}``; batches are tuples of first sequence,
last sequence, first offset, last offset and timestamp, at most five.
"""

from __future__ import annotations

from typing import Any

States = dict[int, dict[str, Any]]

EMPTY = {"epoch": -1, "coordinator": -1, "timestamp": -1, "txn": -1, "batches": ()}
HIGHEST = 2**31 - 1


class Refused(Exception):
    """Why an append is refused, as a kind."""


def append(
    states: States,
    open_txns: dict[int, int],
    pid: int,
    epoch: int,
    sequence: int,
    count: int,
    offset: int,
    timestamp: int,
    transactional: bool,
    client: bool,
) -> tuple[Any, ...] | None:
    """Append a batch of a producer; the remembered batch if it is a repetition, else None."""
    state = states.get(pid, EMPTY)
    last = (sequence + count - 1) % (HIGHEST + 1)
    if client:
        for batch in state["batches"]:
            if state["epoch"] == epoch and batch[:2] == (sequence, last):
                return batch
    in_txn = state["txn"] >= 0 and state["epoch"] == epoch
    if transactional and not in_txn and epoch < state["epoch"]:
        raise Refused("fenced")
    if epoch < state["epoch"]:
        raise Refused("fenced")
    if client and state["epoch"] != -1:
        if epoch != state["epoch"]:
            follows = sequence == 0
        else:
            before = state["batches"][-1][1] if state["batches"] else -1
            follows = sequence == before + 1 or (sequence == 0 and before == HIGHEST)
        if not follows:
            raise Refused("out_of_order_sequence")
    if state["txn"] >= 0 and not transactional:
        raise Refused("transaction_state")
    kept = state["batches"] if epoch == state["epoch"] else ()
    txn = state["txn"]
    if transactional and txn < 0:
        txn = offset
        open_txns[offset] = pid
    batch = (sequence, last, offset, offset + count - 1, timestamp)
    states[pid] = {
        "epoch": epoch,
        "coordinator": state["coordinator"],
        "timestamp": timestamp,
        "txn": txn,
        "batches": (*kept, batch)[-5:],
    }
    return None


def end(
    states: States,
    open_txns: dict[int, int],
    pid: int,
    epoch: int,
    coordinator: int,
    offset: int,
    timestamp: int,
    version: int,
) -> tuple[int, int] | None:
    """Append a marker; the first offset of the transaction that it ends and the last stable offset, else None."""
    state = states.get(pid, EMPTY)
    if epoch < state["epoch"]:
        raise Refused("fenced")
    if version >= 2 and epoch == state["epoch"] and state["txn"] >= 0:
        raise Refused("fenced")
    if coordinator < state["coordinator"]:
        raise Refused("fenced")
    states[pid] = {
        "epoch": epoch,
        "coordinator": coordinator,
        "timestamp": timestamp,
        "txn": -1,
        "batches": state["batches"] if epoch == state["epoch"] else (),
    }
    if state["txn"] < 0:
        return None
    del open_txns[state["txn"]]
    return state["txn"], min((first for first, other in open_txns.items() if other != pid), default=offset + 1)
