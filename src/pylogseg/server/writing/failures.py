"""Answers that are errors, of a whole request or of some rows of it, in the form that each request has for them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pylogseg.format.messages.wire import Values
from pylogseg.server.service import Call
from pylogseg.server.table import Api, Rows


def fail(api: Api, call: Call, code: int, text: str | None = None) -> Values:
    """Return the answer to a request that fails as a whole."""
    failure: Values = {"errorCode": code, "errorMessage": text}
    if rows := api.rows_of(call.version):
        failure[rows[0].answer] = [_row(row, rows, code, text) for row in call.values[rows[0].request] or ()]
    return failure if api.failure is None else failure | api.failure(call, code, text)


def join_topics(failures: Iterable[dict[str, Any]], rows: tuple[Rows, ...]) -> list[dict[str, Any]]:
    """Put rows of one topic together."""
    topics: dict[Any, dict[str, Any]] = {}
    for row in failures:
        name = tuple(row.get(field) for field in rows[0].copied or (rows[0].item,))
        first = topics.setdefault(name, row)
        if first is not row:
            first[rows[1].answer] = [*first[rows[1].answer], *row[rows[1].answer]]
    return list(topics.values())


def _row(asked: Any, rows: tuple[Rows, ...], code: int, text: str | None) -> dict[str, Any]:
    outer = rows[0]
    copied = {outer.item: asked} if outer.item else {name: asked[name] for name in outer.copied}
    if len(rows) == 1:
        return {**copied, outer.error: code, "errorMessage": text}
    inner = rows[1]
    return {**copied, inner.answer: [_row(row, rows[1:], code, text) for row in asked[inner.request]]}
