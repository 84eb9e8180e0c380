"""`pylogseg.serve`: serve log directories to Kafka clients."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence

from pylogseg.server.catalog import Catalog
from pylogseg.server.connection import Limits
from pylogseg.server.coordinator import Offsets
from pylogseg.server.server import Server


def serve(
    path: str | os.PathLike[str],
    *more: str | os.PathLike[str],
    listen: str = "127.0.0.1:0",
    advertise: str | None = None,
    topics: str | Sequence[str] = (),
    until_checkpoint: bool = False,
    group_offsets: bool = False,
    max_connections: int = 1000,
    trace: Callable[[str], None] | None = None,
) -> Server:
    """Serve log directories over Kafka's protocol: clients read them as from a broker, and nothing on the disk changes.

    Parameters
    ----------
    path, more : path
        Log directories, or folders of partitions, that no broker is writing to. Several of one broker are one broker.
    listen : str
        Address to listen on, ``host:port``; port 0 takes a free one.
    advertise : str, optional
        Address that clients are told, if it is another one: with mapped ports, in containers. By default the one that
        they connected to.
    topics : str or sequence of str
        Topics, or shell patterns for them; others do not exist for clients. By default all.
    until_checkpoint : bool
        Show only records below the checkpointed high watermark, as the broker did; by default all that are there.
    group_offsets : bool
        Let groups begin where the copy's ``__consumer_offsets`` says they were; by default no group has an offset.
    max_connections : int
        Of clients, at one time.
    trace : callable, optional
        Called with a line of text for each request.

    Returns
    -------
    Server
        A context manager with `bootstrap_servers`; `close` stops it.

    Raises
    ------
    RequestError
        If a topic is not there, an address is none, or one broker has a partition twice.
    StorageError
        If a directory cannot be listed, a running broker has its lock, or the address is taken.

    Examples
    --------
    >>> with pylogseg.serve("examples/data") as server:  # doctest: +SKIP
    ...     consumer = kafka.KafkaConsumer("orders", bootstrap_servers=server.bootstrap_servers)
    """
    names = [topics] if isinstance(topics, str) else list(topics)
    catalog = Catalog.open([path, *more], names, until_checkpoint=until_checkpoint)
    limits = Limits(connections=max_connections)
    load: Callable[[], Offsets] = dict
    if group_offsets:
        # It brings pyarrow along, which takes longer than all else here.
        from pylogseg.server import group_offsets as copied

        copied.check_groups(catalog.disk)
        load = functools.partial(copied.group_offsets, catalog.disk)
    return Server(catalog, listen, advertise=advertise, load_offsets=load, limits=limits, trace=trace)
