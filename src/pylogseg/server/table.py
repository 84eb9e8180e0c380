"""One record for each kind of request (`Api`), and the table of the requests that one kind of server answers.

The record goes along with each request, so that no other module looks a key up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from pylogseg.format.messages import codes
from pylogseg.format.messages.schema import Versions
from pylogseg.format.messages.wire import API_VERSIONS, Values, request_of
from pylogseg.server.acls import CLUSTER, TOPIC
from pylogseg.server.login import SASL

Handler = Callable[[Any], Values | None]

#: What a handler returns where the client waits for no answer.
NO_ANSWER: Values = {}


class Rows(NamedTuple):
    """How a list of an answer follows from one of its request."""

    answer: str
    request: str
    copied: tuple[str, ...] = ()
    item: str = ""  #: The field for what the request has a list of, where it has no rows.
    error: str = "errorCode"


class Need(NamedTuple):
    """An operation that has to be allowed."""

    operation: int
    kind: int  #: On which type of resource; 0 is that of the settings that a row is about.
    field: str = ""  #: Where its name stands; without it, it is the cluster, or a row is the name.
    rows: str = ""  #: The list of the request whose rows need it, each for itself; without it the whole request does.
    #: The list of the answer with the errors of these rows; without it the request is refused if a row is.
    answer: str = ""
    enough: int = 0  #: An operation on the cluster that does as well.
    when: Callable[[Any, str], bool] | None = None  #: True if a resource needs it, by the `Asking` and its name.


def need_cluster(operation: int) -> tuple[Need, ...]:
    """Return the need of a request that is about the cluster."""
    return (Need(operation, CLUSTER),)


def need_topics(operation: int, answer: str = "topics", field: str = "name", **more: Any) -> Need:
    """Return the need of each row about a topic."""
    return Need(operation, TOPIC, field, more.pop("rows", "topics"), answer, **more)


class Api(NamedTuple):
    """A kind of request: its versions, its handler, the access that it needs, and the form of its errors."""

    key: int
    handler: Handler
    needs: tuple[Need, ...] = ()
    #: Lists of the answer that have their errors in rows, the inner list last; without them there is one error for all.
    rows: tuple[Rows, ...] = ()
    #: The list in older versions, and the first version that has `rows` in its place.
    older_rows: tuple[Rows, int] | None = None
    #: Returns further fields of the answer to a request that fails, from the `Call`, the code and the text.
    failure: Callable[[Any, int, str | None], Values] | None = None
    #: True if an error of the whole request leaves the answer without rows, and comes before those of rows.
    fails_first: bool = False
    is_atomic: bool = False  #: True if all rows are done, or none.
    #: Leaves out of an answer what the client of an `Asking` may not see.
    show: Callable[[Any, Values], Values] | None = None
    #: Answers an `Asking` by other rules than `needs`; None if these hold.
    answer_allowed: Callable[[Any], Values | None] | None = None
    first: int | None = None  #: The first version that clients are told, where the schema has fewer.
    last: int | None = None  #: The last version that clients are told, where the schema has more.

    @property
    def name(self) -> str:
        """Kafka's name, as ``"Produce"``."""
        of = request_of(self.key)
        assert of is not None
        return of.name.removesuffix("Request")

    def rows_of(self, version: int) -> tuple[Rows, ...]:
        """Return the lists of an answer that have their errors in rows, as a version has them."""
        if self.older_rows is not None and version < self.older_rows[1]:
            return self.older_rows[:1]
        return self.rows


def _offer(key: int, first: int | None = None, last: int | None = None) -> Versions:
    of = request_of(key)
    assert of is not None
    return Versions(of.versions.first if first is None else first, of.versions.last if last is None else last)


class ApiTable:
    """Requests that one kind of server answers, by their keys, and the levels of its features.

    The connection answers the login.
    """

    def __init__(self, apis: Iterable[Api], features: Mapping[str, int]) -> None:
        self.apis, self._features = {api.key: api for api in apis}, dict(features)
        offered = {key: _offer(key) for key in SASL}
        offered |= {key: _offer(key, api.first, api.last) for key, api in self.apis.items()}
        #: Versions that clients are told.
        self.offered = dict(sorted(offered.items()))

    def api_versions(self, version: int, error: int = codes.NONE) -> Values:
        """Answer ApiVersions; with an error about its version, only its own range."""
        keys = self.offered if error != codes.UNSUPPORTED_VERSION else [API_VERSIONS]
        levels = self._features.items()
        # Below version 4 clients throw on a feature that begins with 0 (KAFKA-17492).
        supported = [{"name": name, "minVersion": 0, "maxVersion": level} for name, level in levels]
        return {
            "errorCode": error,
            "apiKeys": [
                {"apiKey": key, "minVersion": self.offered[key].first, "maxVersion": self.offered[key].last}
                for key in keys
            ],
            "supportedFeatures": supported if version >= 4 else [],
            "finalizedFeaturesEpoch": 0,
            "finalizedFeatures": [
                {"name": name, "maxVersionLevel": level, "minVersionLevel": level} for name, level in levels
            ],
        }

    def is_served(self, key: int, version: int) -> bool:
        """Return whether a request is answered; some versions are offered for the sake of old clients only."""
        of, offer = request_of(key), self.offered.get(key)
        return of is not None and offer is not None and of.versions.has(version) and offer.has(version)
