"""Options of commands that read tiered storage."""

from __future__ import annotations

import os
from typing import Any

import click

from pylogseg.disk.tier.keys import KEYS_VARIABLE
from pylogseg.disk.tier.opening import is_tier
from pylogseg.env.urls import CLUSTER_SCHEME, refuse_cluster
from pylogseg.errors import RequestError

#: In a context's meta: the URL of the tier of the disks that are read.
_TIER = "pylogseg.disk.tier"


def _note_tier(ctx: click.Context, _: click.Parameter, url: str | None) -> None:
    if url is not None and not is_tier(url):
        raise RequestError(f"--tier {url}: not the URL of a tier, such as aiven+s3://bucket/prefix")
    ctx.meta[_TIER] = url


def _note_keys(ctx: click.Context, _: click.Parameter, path: str | None) -> None:
    """Put the path into the environment, where every opener of a tier looks for it, while the command runs."""
    if path is None:
        return
    before = os.environ.get(KEYS_VARIABLE)
    os.environ[KEYS_VARIABLE] = path

    def restore() -> None:
        if before is None:
            os.environ.pop(KEYS_VARIABLE, None)
        else:
            os.environ[KEYS_VARIABLE] = before

    ctx.call_on_close(restore)


tier_option = click.option(
    "--tier",
    metavar="URL",
    expose_value=False,
    callback=_note_tier,
    help="The tier of these disks: read its segments, too.",
)
keys_option = click.option(
    "--keys",
    metavar="PATH",
    type=click.Path(exists=True),
    expose_value=False,
    callback=_note_keys,
    help="Private keys of an encrypted tier: a PEM file, or a folder of <key id>.pem.",
)


class Local(click.Path):
    """A path of this machine: the URL of a tier or a cluster is refused, since it would become the name of a folder.

    With `is_source`, it may be missing and is not written to.
    """

    def __init__(self, *, is_source: bool = False, **how: Any) -> None:
        super().__init__(**how)
        self._is_written = not (is_source or self.exists)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Refuse a URL, with a remedy."""
        if is_tier(value):
            self.fail(
                f"{value}: a tier cannot be changed: name a folder of this machine, or restore its partitions into one "
                f"with `pylogseg restore {value} DIR`",
                param,
                ctx,
            )
        refuse_cluster(value, is_written=self._is_written)
        return super().convert(value, param, ctx)


class LocalOrCluster(Local):
    """A path of this machine, or the URL of a running cluster."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Take a URL as it is."""
        return value if str(value).startswith(CLUSTER_SCHEME) else super().convert(value, param, ctx)


#: A log directory, or a folder of several, that exists.
DISK = Local(exists=True, file_okay=False)


def tier_of_command() -> str | None:
    """Return the URL that ``--tier`` gave to the command that runs."""
    context = click.get_current_context(silent=True)
    return None if context is None else context.meta.get(_TIER)
