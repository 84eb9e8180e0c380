"""The file system of a path or URL, also of a tier; the modules for tiers are loaded with the first tier."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from pylogseg.env import urls
from pylogseg.env.filesystem import FileSystem
from pylogseg.errors import RequestError

#: How the URL of a tier begins, before the plus sign: the layout of its objects.
LAYOUTS = ("aiven", "localtier")


def is_tier(path: str | os.PathLike[str]) -> bool:
    layout, _, rest = os.fspath(path).partition("+")
    return layout in LAYOUTS and "://" in rest


def check_layout(text: str) -> None:
    """Refuse a path that looks like a misspelt URL of a tier."""
    layout, plus, rest = text.partition("+")
    if layout in LAYOUTS and plus and "://" not in rest and not os.path.exists(text):
        raise RequestError(f"{text}: not the URL of a tier: the store is missing, as in {layout}+file:///path")
    if plus and layout.isalnum() and layout not in LAYOUTS and "://" in rest:
        layouts = " and ".join(f"{name}+" for name in LAYOUTS)
        raise RequestError(f"{text}: no tier has the layout {layout!r}; there are {layouts}")


def any_file_system(
    path: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None, *, memory_map: bool = False
) -> tuple[FileSystem, str]:
    """Return the file system of a path or URL (also of a tier's URL), and the path in it.

    `storage_options` has fsspec's options for URLs; of a tier also ``tier_keys``, a PEM file or a folder of them. With
    `memory_map` files are mapped; RequestError if they are not on this machine.
    """
    if os.fspath(path).startswith(urls.CLUSTER_SCHEME):
        if memory_map:
            urls.refuse_map(os.fspath(path))
        from pylogseg.live.files import open_cluster

        return open_cluster(os.fspath(path), storage_options or {})
    if not is_tier(path):
        check_layout(os.fspath(path))
        return urls.file_system(path, storage_options, memory_map=memory_map)
    if memory_map and not os.fspath(path).partition("+")[2].startswith("file://"):
        urls.refuse_map(os.fspath(path))
    from pylogseg.disk.tier.files import INSIDE, TierFiles, partition_files
    from pylogseg.disk.tier.points import POINT_MARK
    from pylogseg.disk.tier.tier import Tier

    text = os.fspath(path).rstrip("/")
    url, _, inside = text.partition(INSIDE)
    if POINT_MARK in url:
        from pylogseg.disk.tier.at_point import opened_at_point

        files = opened_at_point(url, storage_options, memory_map=memory_map, is_kept=bool(inside))
        if files is not None:
            return files, f"{files.url}{INSIDE}{inside}" if inside else files.url
    if inside:
        return partition_files(url, text, storage_options, memory_map=memory_map), text
    return TierFiles(text, Tier.open(text, storage_options, memory_map=memory_map)), text
