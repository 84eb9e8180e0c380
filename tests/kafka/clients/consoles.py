"""What kafbat's console and AKHQ ask a cluster, in each version: no jar of theirs is on Maven Central.

By their sources each scrape asks for the cluster, the log directories and the settings of topics, then for groups and
offsets; without log directories and settings a cluster is shown as offline. The answers are compared field by field.
"""

from __future__ import annotations

import itertools
import socket
from typing import Any

from replays import PATIENCE_S, ask, differ, fields_of

from pylogseg.format.messages import wire

#: What differs besides `replays.EXPECTED`: paths, the space that is left, and the settings of a broker's own file.
PLACES = ("log_dir", "total_bytes", "usable_bytes", "read_only", "config_source", "synonyms", "documentation")
_TOPIC = 2
#: Defaults that the broker's own file changes, which is not among the files that are served.
_OF_THE_BROKER = ("retention.ms", "segment.index.bytes")


def questions(topics: dict[str, list[int]]) -> list[tuple[int, int, dict[str, Any]]]:
    """Key, version and fields of each request."""
    names = sorted(topics)
    parts = [{"name": name, "topic": name, "partitions": numbers} for name, numbers in sorted(topics.items())]
    configs = [{"resourceType": _TOPIC, "resourceName": name, "configurationKeys": None} for name in names]
    found: list[tuple[int, int, dict[str, Any]]] = []
    found += [(60, version, {"endpointType": 1}) for version in range(3)]
    found += [(35, version, {"topics": parts}) for version in range(1, 6)]
    found += [(32, version, {"resources": configs, "includeSynonyms": False}) for version in range(1, 5)]
    found += [(3, version, {"topics": [{"name": name} for name in names]}) for version in range(14)]
    found += [(75, 0, {"topics": [{"name": name} for name in names], "responsePartitionLimit": 2000, "cursor": None})]
    found += [(15, version, {"groups": ["nobody"]}) for version in range(7)]
    found += [(69, version, {"groupIds": ["nobody"]}) for version in range(2)]
    return found


def compare(topics: dict[str, list[int]], theirs: str, ours: str) -> tuple[int, list[str]]:
    """Ask two servers; how many answers were compared, and what differs."""
    asked, wrong = questions(topics), []
    with connected(theirs) as there, connected(ours) as here:
        for number, (key, version, values) in enumerate(asked):
            frame = wire.request(key, version, number, "console", values)
            one, other = (tidy(fields_of(key, version, ask(each, frame))) for each in (there, here))
            wrong += [f"{key} v{version} {each}"[:400] for each in itertools.islice(differ(one, other, {}, ""), 3)]
    return len(asked), wrong


def connected(address: str) -> socket.socket:
    """A connection."""
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), PATIENCE_S)


def tidy(value: Any) -> Any:
    """An answer without what stands in PLACES, log directories as one list, settings that Kafka's defaults have not."""
    if isinstance(value, dict):
        found = {name: tidy(each) for name, each in value.items() if name not in PLACES}
        if "results" in found and all("topics" in each for each in found["results"]):  # log directories
            rows = [(topic["name"], each) for one in found["results"] for topic in one["topics"]
                    for each in topic["partitions"]]  # fmt: skip
            found["results"] = sorted(rows, key=str)
        if "configs" in found:
            found["configs"] = sorted(
                (
                    {"name": each["name"], "value": each["value"]}
                    for each in found["configs"]
                    if each["name"] not in _OF_THE_BROKER
                ),
                key=str,
            )
        return found
    return [tidy(each) for each in value] if isinstance(value, list) else value
