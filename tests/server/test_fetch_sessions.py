"""Tests of server/sessions.py. Fetch sessions against a model of Kafka's, whatever clients do with them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from helpers.depth import draws
from helpers.fetch_sessions import IDS, NAMES, ONE_BYTE, UNLIMITED, Part, Sessions
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

import pylogseg

DATA = Path(__file__).resolve().parents[2] / "examples" / "data"
TOPICS = ["txn-a", "codec-gzip", "levels"]

_limits = st.sampled_from([UNLIMITED, ONE_BYTE])
_versions = st.sampled_from([NAMES, IDS])
#: Places with records, at the end, behind it, and partitions that are not there.
_places = st.tuples(st.sampled_from(TOPICS), st.integers(0, 2))
_wanted = st.dictionaries(_places, st.sampled_from(["start", "end", "beyond"]), max_size=5)


class Machine(RuleBasedStateMachine):
    """Clients with several sessions."""

    server: Any = None

    def __init__(self) -> None:
        super().__init__()
        self.sessions = Sessions(self.server.bootstrap_servers, TOPICS)

    def teardown(self) -> None:
        self.sessions.close()

    def offsets(self, wanted: dict[Part, str]) -> dict[Part, int]:
        ranges = self.sessions.ranges
        return {
            place: {"start": ranges[place][0], "end": ranges[place][1], "beyond": ranges[place][1] + 1}[where]
            if place in ranges
            else 0
            for place, where in wanted.items()
        }

    @rule(version=_versions, wanted=_wanted, limit=_limits)
    def without(self, version: int, wanted: dict[Part, str], limit: int) -> None:
        self.sessions.without(version, self.offsets(wanted), limit)

    @rule(version=_versions, wanted=_wanted, limit=_limits, data=st.data())
    def begin(self, version: int, wanted: dict[Part, str], limit: int, data: st.DataObject) -> None:
        instead = data.draw(st.sampled_from([None, *self.sessions.open]))
        self.sessions.begin(version, self.offsets(wanted), limit, instead)

    @precondition(lambda self: self.sessions.open)
    @rule(wanted=_wanted, forgotten=st.lists(_places, max_size=3), limit=_limits, data=st.data())
    def go_on(self, wanted: dict[Part, str], forgotten: list[Part], limit: int, data: st.DataObject) -> None:
        session = data.draw(st.sampled_from(self.sessions.open))
        self.sessions.go_on(session, self.offsets(wanted), forgotten, limit)

    @precondition(lambda self: self.sessions.open)
    @rule(wanted=_wanted, limit=_limits, data=st.data())
    def end(self, wanted: dict[Part, str], limit: int, data: st.DataObject) -> None:
        self.sessions.end(data.draw(st.sampled_from(self.sessions.open)), self.offsets(wanted), limit)

    @precondition(lambda self: self.sessions.open)
    @rule(off_by=st.sampled_from([-1, 1, 100]), data=st.data())
    def mistake(self, off_by: int, data: st.DataObject) -> None:
        session = data.draw(st.sampled_from(self.sessions.open))
        if session.epoch + off_by > 0:  # 0 begins a session
            self.sessions.mistake(session, off_by)

    @precondition(lambda self: self.sessions.open)
    @rule(data=st.data())
    def mix(self, data: st.DataObject) -> None:
        self.sessions.mix(data.draw(st.sampled_from(self.sessions.open)))


@contextmanager
def served() -> Iterator[None]:
    with pylogseg.serve(DATA, topic=TOPICS) as server:
        Machine.server = server
        yield


def test_sessions_are_kafkas() -> None:
    with served():
        from hypothesis.stateful import run_state_machine_as_test

        run_state_machine_as_test(
            Machine,
            settings=settings(
                max_examples=draws(60),
                stateful_step_count=20,
                deadline=None,
                suppress_health_check=[HealthCheck.too_slow],
            ),
        )
