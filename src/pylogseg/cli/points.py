"""Options of commands about points of an archive: the one to read, and the ones to keep."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from pylogseg.cli.common import F, add_all, parse_moment

#: In a context's meta: which point is read.
_WANTED = "pylogseg.archive.point"


def _note_option(name: str) -> Callable[[click.Context, click.Parameter, str | None], None]:
    def note(ctx: click.Context, _: click.Parameter, text: str | None) -> None:
        if text is not None:
            ctx.meta.setdefault(_WANTED, {})[name] = text

    return note


def point_options(function: F) -> F:
    """Add ``--at`` and ``--point``; `at_point` is the callback of the argument that names the archive."""
    hidden: dict[str, Any] = {"is_eager": True, "expose_value": False}
    at = click.option(
        "--at", metavar="TIME", callback=_note_option("at"), help="For an archive: the last point up to TIME.", **hidden
    )
    point = click.option(
        "--point",
        metavar="ID",
        callback=_note_option("point"),
        help="For an archive: the id of a point, or a unique prefix of it (at least the year).",
        **hidden,
    )
    return add_all(function, [at, point])


def keep_options(function: F) -> F:
    """Add the options that say which points a prune keeps: the numbers that `pylogseg.archive.prune` takes."""
    kinds = {
        "last": "Keep the N newest points.",
        "hourly": "Keep the last of each of N hours.",
        "daily": "Keep the last of each of N days.",
    }
    number = click.IntRange(min=0)
    options = [
        click.option(f"--keep-{kind}", type=number, default=0, metavar="N", help=text) for kind, text in kinds.items()
    ]
    return add_all(function, options)


def is_point_asked(ctx: click.Context) -> bool:
    """Check whether one of the options was given."""
    return _WANTED in ctx.meta


def at_point(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
    """Return the URL of the point for an archive, or for each of several; any other argument stays."""
    if not is_point_asked(ctx):
        return value
    if isinstance(value, tuple):
        return tuple(at_point(ctx, param, argument) for argument in value)
    from pylogseg.archive.at_point import point_url  # all that reads tiers: only where there is one

    wanted = ctx.meta[_WANTED]
    at = parse_moment(wanted["at"], rounds_down=True) if "at" in wanted else None
    return point_url(value, at=at, point=wanted.get("point"))
