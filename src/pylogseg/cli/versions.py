"""`pylogseg --version`, and with `--verbose` what a report of a fault needs to say."""

from __future__ import annotations

import importlib.metadata
import platform
import sys

import click

from pylogseg._version import __version__

#: Every package that changes what pylogseg does or how fast: its dependencies, and those of its extras.
_PACKAGES = (
    "numpy",
    "pyarrow",
    "sortedcontainers",
    "cramjam",
    "deflate",
    "isal",
    "lz4",
    "zstandard",
    "click",
    "rich",
    "fsspec",
    "s3fs",
    "polars",
    "duckdb",
    "pyspark",
    "pandas",
    "cryptography",
    "pycryptodome",
)


def print_version(context: click.Context, _: click.Parameter, is_asked: bool) -> None:
    """The callback of `--version`: it ends the command."""
    if not is_asked or context.resilient_parsing:
        return
    click.echo(f"pylogseg {__version__}")
    if context.params["verbose"]:
        has_lock = getattr(sys, "_is_gil_enabled", lambda: True)()
        click.echo(f"{'python':18}{platform.python_version()} ({platform.python_implementation()}, {_lock(has_lock)})")
        click.echo(f"{'system':18}{platform.platform()}, {platform.machine()}")
        for name in _PACKAGES:
            click.echo(f"{name:18}{_installed(name)}")
    context.exit()


def _lock(has_lock: bool) -> str:
    return "with the interpreter's lock" if has_lock else "free-threaded"


def _installed(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "-"
