"""Which function answers which request, and the versions that are offered."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from pylogseg.server import about, codes, fetching, grouping, offsets, refusals
from pylogseg.server.service import Call
from pylogseg.server.wire import API_VERSIONS, Values, request_of

Handler = Callable[[Call], Values | None]

HANDLERS: dict[int, Handler] = {
    0: refusals.produce,
    1: fetching.fetch,
    2: offsets.list_offsets,
    3: about.metadata,
    8: grouping.commit,
    9: grouping.fetch_offsets,
    10: grouping.find_coordinator,
    11: grouping.join,
    12: grouping.heartbeat,
    13: grouping.leave,
    14: grouping.sync,
    15: grouping.describe_groups,
    16: grouping.list_groups,
    22: refusals.init_producer_id,
    23: offsets.epoch_ends,
    32: about.configs,
    35: about.log_dirs,
    60: about.cluster,
    61: about.producers,
    68: grouping.consumer_heartbeat,
    69: grouping.describe_consumer_groups,
    75: about.topic_partitions,
}


#: The feature that says whether there are groups of the new protocol.
_GROUPS = "group.version"


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
    if key == 22:
        last = 5  # 6 is not stable
    return Offer(key, first, last)


OFFERED = {key: _offer(key) for key in sorted([*HANDLERS, API_VERSIONS])}


def api_versions(version: int, error: int = codes.NONE) -> Values:
    """Answer ApiVersions; with an error about its version, only its own range."""
    offers = OFFERED.values() if error != codes.UNSUPPORTED_VERSION else [OFFERED[API_VERSIONS]]
    # Below version 4 clients throw on a feature that begins with 0 (KAFKA-17492).
    supported = [{"name": _GROUPS, "minVersion": 0, "maxVersion": 1}] if version >= 4 else []
    return {
        "errorCode": error,
        "apiKeys": [{"apiKey": key, "minVersion": first, "maxVersion": last} for key, first, last in offers],
        "supportedFeatures": supported,
        "finalizedFeaturesEpoch": 0,
        "finalizedFeatures": [{"name": _GROUPS, "maxVersionLevel": 1, "minVersionLevel": 1}],
    }


def is_served(key: int, version: int) -> bool:
    """Return whether a request is answered; some versions are offered for the sake of old clients only."""
    of, offer = request_of(key), OFFERED.get(key)
    return of is not None and offer is not None and of.versions.has(version) and offer.first <= version <= offer.last
