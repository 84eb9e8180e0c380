"""Settings of topics, as a cluster describes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pylogseg.errors import StorageError
from pylogseg.format.messages import codes
from pylogseg.live.cluster import Cluster, check_code

_DESCRIBE_CONFIGS, _TOPIC, _OWN = 32, 2, 1
#: Of one request: each of them has some forty settings.
_TOPICS = 200


def topic_settings(cluster: Cluster, topics: Sequence[str]) -> dict[str, dict[str, str] | StorageError]:
    """Return the settings that topics have of their own, by name; the error of a topic that this user may not ask for.

    A setting that all topics of a broker have is none of them.
    """
    settings: dict[str, dict[str, str] | StorageError] = {}
    for first in range(0, len(topics), _TOPICS):
        asked = [
            {"resourceType": _TOPIC, "resourceName": name, "configurationKeys": None}
            for name in topics[first : first + _TOPICS]
        ]
        values = {"resources": asked, "includeSynonyms": False, "includeDocumentation": False}

        def attempt(values: dict[str, Any] = values) -> dict[str, Any]:
            with cluster.connection() as link:
                return link.ask(_DESCRIBE_CONFIGS, values)

        for row in cluster.again(cluster.url, "ask for settings", attempt)["results"]:
            name, code = row["resourceName"], row["errorCode"]
            try:
                if code in (codes.UNKNOWN_TOPIC_OR_PARTITION, codes.INVALID_TOPIC):
                    continue
                check_code(code, f"{cluster.url}/{name}", "ask for settings")
                settings[name] = {
                    config["name"]: config["value"]
                    for config in row["configs"]
                    if config["configSource"] == _OWN and config["value"] is not None
                }
            except StorageError as error:
                settings[name] = error
    return settings
