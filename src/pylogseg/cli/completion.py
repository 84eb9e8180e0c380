"""Shell completion: files, and the topics and partitions of folders that are already on the line."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import click
from click.shell_completion import CompletionItem

from pylogseg.format.names import PartitionFolder, parse_partition_folder


def files(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete paths: the shell lists them itself."""
    return [CompletionItem(incomplete, type="file")]


def names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete topics of the folders on the line, partitions after a complete topic, else paths.

    Only folder names are read, so completion never waits for a disk.
    """
    if "/" in incomplete or os.sep in incomplete:
        return files(ctx, param, incomplete)
    words = [word for value in ctx.params.values() for word in (value if isinstance(value, tuple) else (value,))]
    words += ctx.args  # while the value of an option is completed, arguments are not parsed yet
    folders = [word for word in words if isinstance(word, str) and os.path.isdir(word)]
    folders_here = {of for folder in folders for of in _partitions(folder)}
    candidates = {of.topic for of in folders_here} | {
        f"{of.topic}-{of.partition}" for of in folders_here if incomplete.startswith(of.topic)
    }
    matching = sorted(name for name in candidates if name.startswith(incomplete))
    return [CompletionItem(name) for name in matching] or files(ctx, param, incomplete)


def _partitions(folder: str) -> Iterator[PartitionFolder]:
    """Yield the live partitions of a log directory, or of the log directories in a folder."""
    inside = _folders(folder)
    partitions = [of for name in inside if (of := parse_partition_folder(name)) is not None and not of.state]
    yield from partitions
    for name in () if partitions else inside:
        deeper = map(parse_partition_folder, _folders(os.path.join(folder, name)))
        yield from (of for of in deeper if of is not None and not of.state)


def _folders(folder: str) -> list[str]:
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        return [entry.name for entry in entries if entry.is_dir()]
    return []
