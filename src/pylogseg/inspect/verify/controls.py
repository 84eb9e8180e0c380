"""Checks of control batches: brokers and consumers take the first record for what ends a transaction."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from pylogseg.errors import CorruptionError
from pylogseg.format.control import ControlKind, decode_control_key
from pylogseg.format.layout import CONTROL_KEY, END_TXN_MARKER
from pylogseg.format.records import SOURCE_MASK, SOURCE_SHIFT, RecordColumns

_KIND = "control"


def controls(columns: RecordColumns, starts: npt.NDArray[np.intp]) -> Iterator[tuple[str, int, str, bool]]:
    """Yield a finding for each control batch whose first record, of those at `starts`, is no control record.

    With a producer it has to be a marker: a broker that recovers the log ends at another one. Without a producer it is
    one of the records of a Raft log.
    """
    rows, of = columns.batches, columns.batch[starts]
    firsts = starts[rows.is_control[of] & (rows.magic[of] == 2)]
    for at in firsts[~_are_markers(columns, firsts)].tolist():
        row = int(columns.batch[at])
        reason = _fault(columns, at, int(rows.producer_id[row]))
        if reason:
            yield _KIND, row, f"a control batch without a control record: {reason}", True


def _are_markers(columns: RecordColumns, at: npt.NDArray[np.intp]) -> npt.NDArray[np.bool_]:
    """Return a mask of plain markers: nearly all control records of a topic."""
    sizes = (columns.key_size[at] == CONTROL_KEY.size) & (columns.value_size[at] == END_TXN_MARKER.size)
    found = np.zeros(len(at), np.bool_)
    places = columns.key_place[at]
    for number, source in enumerate(columns.sources):
        here = np.flatnonzero(sizes & (places >> SOURCE_SHIFT == number))
        if len(here):
            data = np.frombuffer(source, np.uint8)
            keys = data[(places[here] & SOURCE_MASK)[:, None] + np.arange(CONTROL_KEY.size)]
            values = data[(columns.value_place[at[here]] & SOURCE_MASK)[:, None] + np.arange(2)]
            found[here] = (keys[:, :3] == 0).all(axis=1) & (keys[:, 3] < 2) & (values == 0).all(axis=1)
    return found


def _fault(columns: RecordColumns, at: int, producer_id: int) -> str:
    """Return why a record is no control record; empty if it is one."""
    key, value = columns.key(at), columns.value(at)
    if key is None:
        return "it has no key"
    try:
        decoded = decode_control_key(key)
    except CorruptionError as error:
        return error.reason
    if producer_id < 0:
        is_of_kafka = decoded.kind is not ControlKind.UNKNOWN or (decoded.version == 0 and len(key) == CONTROL_KEY.size)
        return "" if is_of_kafka else f"its key of {len(key)} bytes has the type {decoded.type}"
    if not decoded.kind.ends_transaction:
        return f"type {decoded.type} of producer {producer_id} ends no transaction"
    if value is None or len(value) < END_TXN_MARKER.size:
        return f"a marker with a value of {0 if value is None else len(value)} bytes, it needs {END_TXN_MARKER.size}"
    version = int.from_bytes(value[:2], "big", signed=True)
    return f"a marker of version {version}" if version < 0 else ""
