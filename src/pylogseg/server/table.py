"""Which function answers which request, and the versions that clients are told."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from pylogseg.server import codes
from pylogseg.server.login import SASL
from pylogseg.server.wire import API_VERSIONS, Values, request_of

Handler = Callable[[Any], Values | None]

#: The last versions that are offered, where the schema has more: 6 of InitProducerId is not stable, and from 4 on
#: AddPartitionsToTxn is for brokers. The others are those of a broker of 4.3, as which this server speaks; what 4.4
#: adds asks whether this is the right cluster and node (ApiVersions), names topics by their ids (TxnOffsetCommit), and
#: has words for an error (DeleteGroups).
_LAST = {API_VERSIONS: 4, 22: 5, 24: 3, 28: 5, 42: 2}
#: What a handler returns where the client waits for no answer.
NO_ANSWER: Values = {}


class Offer(NamedTuple):
    """Versions of a key that clients are told."""

    key: int
    first: int
    last: int


def _offer(key: int) -> Offer:
    of = request_of(key)
    assert of is not None
    first, last = of.versions
    if key == 0:
        # Kafka offers the versions that it has dropped as well: older librdkafka asks for them, and without key 0 it
        # never fetches.
        first = 0
    return Offer(key, first, min(last, _LAST.get(key, last)))


class ApiTable:
    """Requests that one kind of server answers: handlers by the key of their request, and the levels of its features.

    ApiVersions is answered here, and the login by the connection.
    """

    def __init__(self, handlers: Mapping[int, Handler], features: Mapping[str, int]) -> None:
        self.handlers, self._features = dict(handlers), dict(features)
        self.offered = {key: _offer(key) for key in sorted([*handlers, *SASL, API_VERSIONS])}

    def api_versions(self, version: int, error: int = codes.NONE) -> Values:
        """Answer ApiVersions; with an error about its version, only its own range."""
        offers = self.offered.values() if error != codes.UNSUPPORTED_VERSION else [self.offered[API_VERSIONS]]
        levels = self._features.items()
        # Below version 4 clients throw on a feature that begins with 0 (KAFKA-17492).
        supported = [{"name": name, "minVersion": 0, "maxVersion": level} for name, level in levels]
        return {
            "errorCode": error,
            "apiKeys": [{"apiKey": key, "minVersion": first, "maxVersion": last} for key, first, last in offers],
            "supportedFeatures": supported if version >= 4 else [],
            "finalizedFeaturesEpoch": 0,
            "finalizedFeatures": [
                {"name": name, "maxVersionLevel": level, "minVersionLevel": level} for name, level in levels
            ],
        }

    def is_served(self, key: int, version: int) -> bool:
        """Return whether a request is answered; some versions are offered for the sake of old clients only."""
        of, offer = request_of(key), self.offered.get(key)
        known = of is not None and offer is not None and of.versions.has(version)
        return known and offer is not None and offer.first <= version <= offer.last
