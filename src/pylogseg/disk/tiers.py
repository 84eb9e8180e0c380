"""`open_tier`: the log directory that lies in tiered storage."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pylogseg.disk.disk import Disk
from pylogseg.disk.listing import open_dir
from pylogseg.disk.tier.keys import KEYS_OPTION
from pylogseg.disk.tier.opening import LAYOUTS, is_tier
from pylogseg.errors import RequestError

if TYPE_CHECKING:
    from pylogseg.disk.tier.keys import Keys


def open_tier(url: str, keys: Keys = None, *, storage_options: Mapping[str, Any] | None = None) -> Disk:
    """List the uploads of brokers to tiered storage, as a log directory for all readers.

    No broker is asked, and nothing is written. Which uploads form the log of a partition, their leader epochs say:
    copies and the records of other branches are left out.

    Parameters
    ----------
    url : str
        ``aiven+s3://bucket/prefix``, ``aiven+file:///path`` (Aiven's plugin, on any store of fsspec) or
        ``localtier+file:///path`` (Kafka's own `LocalTieredStorage`). The folder of a topic or a partition in it may be
        named too.
    keys : path or mapping, optional
        Private RSA keys of an encrypted tier: a PEM file, a folder of files ``<key id>.pem``, or paths by key id. By
        default what the environment names in ``PYLOGSEG_TIER_KEYS``.
    storage_options : mapping, optional
        Options of fsspec: credentials, an endpoint.

    Returns
    -------
    Disk

    Raises
    ------
    RequestError
        If the URL is none of a tier, or nothing was uploaded there.
    StorageError
        If the store fails.
    """
    if not is_tier(url):
        layouts = ", ".join(f"{name}+file://" for name in LAYOUTS)
        raise RequestError(f"{url}: not the URL of a tier, which begins with its layout ({layouts} or another store)")
    options = dict(storage_options or {})
    if keys is not None:
        options[KEYS_OPTION] = keys
    return open_dir(url, storage_options=options)
