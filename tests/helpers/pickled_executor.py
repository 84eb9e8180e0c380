"""An executor that sends all it works on through pickles, as one of another process does, without one."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from pylogseg.env.executor import INLINE, UNSAID, Workload

T = TypeVar("T")


def sent(what: T) -> T:
    """What arrives at the other end."""
    copy: T = pickle.loads(pickle.dumps(what))
    return copy


class Pickled:
    """Sends functions, items and results."""

    def map(self, function: Any, items: Sequence[Any], load: Workload = UNSAID) -> Iterator[Any]:
        yield from map(sent, INLINE.map(sent(function), [sent(item) for item in items], load))

    def merge(
        self,
        function: Any,
        items: Sequence[Any],
        keys: Sequence[str],
        fold: Any,
        merge: Any,
        load: Workload = UNSAID,
    ) -> Iterator[tuple[str, Any]]:
        """Fold, in two tasks that have every other item."""
        tasks: list[dict[str, dict[int, Any]]] = [{}, {}]
        for number, result in enumerate(self.map(function, items, load)):
            sent(fold)(tasks[number % 2].setdefault(keys[number], {}), number, result)
        for key in dict.fromkeys(keys):
            found = {number: each for task in tasks for number, each in sent(task.get(key, {})).items()}
            yield key, sent(sent(merge)(key, (found[number] for number in sorted(found))))

    def stream(self, function: Callable[..., Any], items: Sequence[Any], load: Workload = UNSAID) -> Iterator[Any]:
        yield from map(sent, INLINE.stream(sent(function), [sent(item) for item in items], load))

    def dumps(self, value: object) -> bytes:
        return pickle.dumps(value)
