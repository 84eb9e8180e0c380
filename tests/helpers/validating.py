"""Validation of an append without a log around it."""

from __future__ import annotations

from typing import Any

from pylogseg._native._append import Prepared, Rules, prepare_validated
from pylogseg._native._run import ALL, BODY, Run
from pylogseg.log.append import with_body
from pylogseg.log.append_validation import Terms, leader
from pylogseg.log.producer_state import Origin


def lead(data: Any, rules: Rules, *, careful: bool = False, in_place: bool = False, **more: Any) -> Prepared:
    """Validate an append as a leader does: the fast way first, then the careful way, or only that."""
    if not careful:
        next_offset, now_ms = more["next_offset"], more["now_ms"]
        is_client = more.get("origin", Origin.CLIENT) is Origin.CLIENT
        run = Run(rules)
        run.next_offset = next_offset
        records = run.validate_one(data, more["leader_epoch"], now_ms, is_client, in_place)
        if run.reason == BODY:
            records = with_body(run, data, rules, more["leader_epoch"], now_ms, is_client, in_place)
        assert run.reason != ALL, "it is in no segment"
        if records is not None:
            return prepare_validated(records, next_offset, now_ms if rules.append_time else -1)
    return leader(data, rules, Terms(**more))
