"""The file system of a path or URL, of tiers too; what reads tiers is loaded with the first of them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from pylogseg.disk.tier.urls import INSIDE, check_layout, is_tier
from pylogseg.env import urls
from pylogseg.env.filesystem import FileSystem


def file_system(
    path: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None
) -> tuple[FileSystem, str]:
    """Return the file system of a path or URL, which may be that of a tier, and the path in it.

    `storage_options` has fsspec's options for URLs; of a tier also ``tier_keys``, a PEM file or a folder of them.
    """
    if not is_tier(path):
        check_layout(os.fspath(path))
        return urls.file_system(path, storage_options)
    from pylogseg.disk.tier.files import TierFiles, partition_files
    from pylogseg.disk.tier.tier import Tier

    text = os.fspath(path).rstrip("/")
    url, _, inside = text.partition(INSIDE)
    if inside:
        return partition_files(url, text, storage_options), text
    return TierFiles(text, Tier.open(text, storage_options)), text
