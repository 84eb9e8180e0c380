"""Settings of topics, as a cluster describes them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pylogseg.errors import StorageError
from pylogseg.format.messages import codes
from pylogseg.live.cluster import Cluster, check_code

_DESCRIBE_CONFIGS, _TOPIC = 32, 2
#: The setting is that of the topic itself.
_OWN = 1
#: Of one request: each of them has some forty settings.
_TOPICS = 200


def describe_topics(cluster: Cluster, topics: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield the cluster's answer for each topic: a row with its effective settings, or with an error."""
    for first in range(0, len(topics), _TOPICS):
        asked = [
            {"resourceType": _TOPIC, "resourceName": name, "configurationKeys": None}
            for name in topics[first : first + _TOPICS]
        ]
        values = {"resources": asked, "includeSynonyms": False, "includeDocumentation": False}

        def attempt(values: dict[str, Any] = values) -> dict[str, Any]:
            with cluster.connection() as link:
                return link.ask(_DESCRIBE_CONFIGS, values)

        yield from cluster.again(cluster.url, "ask for settings", attempt)["results"]


def own_settings(row: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings that a topic has of its own; one that all topics of a broker have is none of them."""
    rows = [config for config in row["configs"] if config["configSource"] == _OWN]
    return {config["name"]: config["value"] for config in rows if config["value"] is not None}


def topic_settings(cluster: Cluster, topics: Sequence[str]) -> dict[str, dict[str, str] | StorageError]:
    """Return the own settings of topics by name; the error of a topic that this user may not ask for."""
    settings: dict[str, dict[str, str] | StorageError] = {}
    for row in describe_topics(cluster, topics):
        name, code = row["resourceName"], row["errorCode"]
        if code in (codes.UNKNOWN_TOPIC_OR_PARTITION, codes.INVALID_TOPIC):
            continue
        try:
            check_code(code, f"{cluster.url}/{name}", "ask for settings")
            settings[name] = own_settings(row)
        except StorageError as error:
            settings[name] = error
    return settings
