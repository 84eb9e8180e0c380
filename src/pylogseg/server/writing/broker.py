"""`Broker`: a broker in this process, for tests and for trying things out."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence

from pylogseg.catalog.disk import Disk
from pylogseg.errors import RequestError
from pylogseg.server.codes import KafkaError
from pylogseg.server.connection import Limits
from pylogseg.server.security import Guard, Security
from pylogseg.server.server import Server
from pylogseg.server.writing.control import Control, Seen
from pylogseg.server.writing.in_memory import REQUEST_BYTES, memory_writer
from pylogseg.server.writing.topics import WritableCatalog


class Broker(Server):
    """A broker of one node in this process: any Kafka client produces to it and consumes from it.

    Nothing has to be installed or started, and it is ready in milliseconds. Records are in memory, and gone when it is
    closed; or in a directory, which keeps them, with the offsets of groups and transactions. Batches go through the
    engine of this package, so they meet a broker's checks.

    Parameters
    ----------
    path : path, optional
        A log directory that keeps what is written; it is made if it is missing. By default all is in memory.
    topics : mapping of str to int, or sequence of str
        Topics that are there from the beginning, with the number of their partitions.
    partitions : int
        Of a topic that is made without a number, or by being asked for.
    auto_create : bool
        Whether a topic comes into being when a client asks for it.
    listen : str
        Address to listen on, ``host:port``; port 0 takes a free one.
    advertise : str, optional
        Address that clients are told, if it is another one. By default the one that they connected to.
    security : Security
        Certificates for TLS, and users with passwords; by default whoever can connect may read and write.
    max_connections : int
        Of clients, at one time.
    trace : callable, optional
        Called with a line of text for each request.

    Attributes
    ----------
    clock : MovableClock
        Time of all that happens in the broker: `MovableClock.advance` moves it ahead. Sessions of groups, timeouts of
        transactions and timestamps that the broker sets follow it.

    Raises
    ------
    StorageError
        If the address is taken.
        Of a directory: if another process has its lock, or the disk fails.
    RequestError
        If an address or the name of a topic is none.
    CorruptionError
        If a file of the directory that is needed is damaged.

    Examples
    --------
    >>> with pylogseg.Broker() as broker:  # doctest: +SKIP
    ...     producer = kafka.KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        topics: Mapping[str, int] | Sequence[str] = (),
        partitions: int = 1,
        auto_create: bool = True,
        listen: str = "127.0.0.1:0",
        advertise: str | None = None,
        security: Security = Security(),  # noqa: B008  (it cannot be changed)
        max_connections: int = 1000,
        trace: Callable[[str], None] | None = None,
    ) -> None:
        guard = Guard(security)
        self._control = Control()
        before = self._control.before
        catalog: WritableCatalog
        if path is None:
            catalog = WritableCatalog(Disk((), ()), default_partitions=partitions, auto_create=auto_create)
        else:
            # The manager of logs is loaded by whoever keeps some.
            from pylogseg.server.writing.lasting import lasting_writer
            from pylogseg.server.writing.owned import OwnedCatalog

            catalog = owned = OwnedCatalog(path, default_partitions=partitions, auto_create=auto_create)
        try:
            counts = topics if isinstance(topics, Mapping) else dict.fromkeys(topics, partitions)
            for name, count in counts.items():
                _make(catalog, name, count)
            service = memory_writer(catalog, before=before) if path is None else lasting_writer(owned, before=before)
            service.guard = guard
            limits = Limits(connections=max_connections, request_bytes=REQUEST_BYTES)
            super().__init__(service, listen, advertise=advertise, limits=limits, trace=trace)
        except BaseException:
            catalog.close()
            raise
        self.clock = catalog.clock

    @property
    def requests(self) -> list[Seen]:
        """The requests that clients have sent, in the order in which they came."""
        return list(self._control.requests)

    def clear_requests(self) -> None:
        """Forget the requests so far."""
        self._control.requests.clear()

    def fail(self, api: str, error: str | int, times: int = 1) -> None:
        """Answer the next requests of an API with an error, without doing what they ask for.

        Parameters
        ----------
        api : str
            Name of the request, as ``"Produce"``.
        error : str or int
            Kafka's name or number of the error, as ``"NOT_ENOUGH_REPLICAS"``.
        times : int
            For how many requests.

        Raises
        ------
        RequestError
            For another name.
        """
        self._control.fail(api, error, times)

    def disconnect(self, api: str, times: int = 1) -> None:
        """Close the connection on the next requests of an API, instead of an answer; as `fail` otherwise."""
        self._control.fail(api, None, times)

    def heal(self) -> None:
        """Forget the failures that were asked for and have not happened."""
        self._control.heal()

    def pause(self) -> None:
        """Answer nothing until `resume`; clients stay connected."""
        self._control.pause()

    def resume(self) -> None:
        """Answer again, first what came during the pause."""
        self._control.resume()


def _make(catalog: WritableCatalog, name: str, count: int) -> None:
    """Make a topic, unless it is there."""
    if name not in catalog.topics:
        try:
            catalog.make(name, count)
        except KafkaError as error:
            raise RequestError(f"topic {name!r}: {error}") from error
