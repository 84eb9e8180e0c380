"""`pylogseg.serve`: serve log directories to Kafka clients."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pylogseg.disk.choice import PartitionChoice
from pylogseg.errors import RequestError
from pylogseg.format.keywords import split_keywords
from pylogseg.format.words import check_word
from pylogseg.server.catalog import Catalog
from pylogseg.server.committed import CommittedByTopic, CommittedOffsets
from pylogseg.server.connection import Limits
from pylogseg.server.group_coordinator import GroupCoordinator
from pylogseg.server.handlers import READ_ONLY
from pylogseg.server.security import Guard, Security
from pylogseg.server.server import Server
from pylogseg.server.service import Service
from pylogseg.server.view import View, ViewKeywords

if TYPE_CHECKING:
    from typing_extensions import Unpack


def serve(
    path: str | os.PathLike[str],
    *more: str | os.PathLike[str],
    listen: str = "127.0.0.1:0",
    advertise: str | None = None,
    topic: str | Sequence[str] | None = None,
    partition: int | Sequence[int] | None = None,
    group_offsets: bool = False,
    commits: str | os.PathLike[str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    security: Security = Security(),  # noqa: B008  (it cannot be changed)
    max_connections: int = 1000,
    tier: str | None = None,
    trace: Callable[[str], None] | None = None,
    **shown: Unpack[ViewKeywords],
) -> Server:
    """Serve log directories over Kafka's protocol: clients read them as from a broker, and nothing on the disk changes.

    Parameters
    ----------
    path, more : path or URL
        Log directories, or folders of partitions, that no broker is writing to. Several of one broker are one broker.
        URLs are those of fsspec, such as ``s3://bucket/prefix``, and of tiers, as for `open_dir`.
    listen : str
        Address to listen on, ``host:port``; port 0 takes a free one.
    advertise : str, optional
        Address in the answers to clients, if it differs: with mapped ports, in containers. By default the one that they
        connected to.
    topic : str or sequence of str, optional
        Topics, partitions (``orders-3``) or shell patterns; others do not exist for clients. By default all.
    partition : int or sequence of int, optional
        Only partitions with these numbers.
    until_checkpoint : bool
        Show only records below the checkpointed high watermark, as the broker did; by default all that are there.
    end_open_transactions : bool
        Count transactions that were open when the copy was made as aborted, so that consumers with ``read_committed``
        go on behind them; by default they end there, as nobody will end these.
    group_offsets : bool
        Let groups begin where the copy's ``__consumer_offsets`` says they were; by default no group has an offset.
    commits : path, optional
        A directory that keeps groups and their commits from one run to the next, over those of `group_offsets`. By
        default they are gone when the server stops. It may not lie in a directory that is served, or have other topics.
    on_corrupt : {"raise", "skip"}
        At damage: ``"raise"`` sends the bytes as they are, as a broker does, and the check of the client raises its own
        error; ``"skip"`` verifies a log when it is first asked for, and leaves bad batches out of it.
    storage_options : mapping, optional
        Options of fsspec for URLs: credentials, an endpoint.
    security : Security
        Certificates for TLS, and users with passwords; by default every client may read.
    max_connections : int
        Of clients, at one time.
    tier : str, optional
        The URL of the tier of these directories: uploaded segments are served too.
    trace : callable, optional
        Called with a line of text for each request.

    Returns
    -------
    Server
        A context manager with `bootstrap_servers`; `close` stops it.

    Raises
    ------
    RequestError
        If a name or a number is not there, an address is none, or one broker has a partition twice.
    StorageError
        If a directory cannot be listed, a running broker has its lock, or the address is taken.

    Examples
    --------
    >>> with pylogseg.serve("examples/data") as server:  # doctest: +SKIP
    ...     consumer = kafka.KafkaConsumer("orders", bootstrap_servers=server.bootstrap_servers)
    """
    choice = PartitionChoice.of(topic, partition)
    (fields,) = split_keywords(shown, ViewKeywords)
    view = View(**fields)
    check_word("on_corrupt", view.on_corrupt, ("raise", "skip"))
    limits = Limits(connections=max_connections)
    guard = Guard(security)
    if guard.acls:
        raise RequestError("ACLs (acls) need a server that clients may write to: pylogseg broker, Broker")
    catalog = Catalog.open([path, *more], choice, view=view, storage_options=storage_options, tier=tier)
    load = _offsets(catalog, group_offsets)
    if commits is None:
        groups = GroupCoordinator(CommittedOffsets(load))
    else:
        # What writes is loaded by whoever writes.
        from pylogseg.server.writing.commits import lasting_groups

        groups = lasting_groups(commits, catalog, load())
    service = Service(catalog, groups, READ_ONLY, guard=guard)
    try:
        return Server(service, listen, advertise=advertise, limits=limits, trace=trace)
    except BaseException:
        service.groups.close()
        raise


def _offsets(catalog: Catalog, group_offsets: bool) -> Callable[[], CommittedByTopic]:
    if not group_offsets:
        return dict
    # It brings pyarrow along, which takes longer than all else here.
    from pylogseg.server import group_offsets as copied

    copied.check_groups(catalog.disk)
    return functools.partial(copied.group_offsets, catalog.disk)
