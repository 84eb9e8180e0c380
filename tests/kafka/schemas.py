#!/usr/bin/env python3
"""Make the table of message schemas, `src/pylogseg/messages/schemas.json`, from the jars of a Kafka.

    schemas.py [JARS] [--out FILE]

JARS is a folder of Kafka's jars; without it, that of `kafka.sh classpath`. With a JARS of another version, set
KAFKA_VERSION too: `kafka.sh settings` names the settings that are not secret. A line of the table is one message:
names, types, versions, tags and defaults of its fields, as Kafka's schema files have them. Words that explain them are
left out. A struct that several fields share stands at each of them. Run it again for a newer Kafka, and read the
difference.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "src" / "pylogseg" / "messages" / "schemas.json"
#: Kinds of messages that are stored. Requests and responses are taken by name.
KINDS = ("coordinator-key", "coordinator-value", "metadata", "data")
_SERVED = [
    "Produce", "Fetch", "ListOffsets", "Metadata", "OffsetCommit", "OffsetFetch", "FindCoordinator", "JoinGroup",
    "Heartbeat", "LeaveGroup", "SyncGroup", "DescribeGroups", "ListGroups", "SaslHandshake", "ApiVersions",
    "InitProducerId", "OffsetForLeaderEpoch", "DescribeConfigs", "DescribeLogDirs", "SaslAuthenticate",
    "DescribeCluster", "DescribeProducers", "ConsumerGroupHeartbeat", "ConsumerGroupDescribe",
    "DescribeTopicPartitions",
    # Those of a server that is written to.
    "CreateTopics", "DeleteTopics", "DeleteRecords", "CreatePartitions", "AlterConfigs", "IncrementalAlterConfigs",
    "DeleteGroups", "OffsetDelete", "AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn", "TxnOffsetCommit",
]  # fmt: skip
REQUESTS = tuple(f"{name}{kind}" for name in _SERVED for kind in ("Request", "Response"))
_JAR = re.compile(
    r"kafka-(clients|group-coordinator|transaction-coordinator|share-coordinator|metadata|raft|storage)"
    r"-(\d[\w.]*?)\.jar"
)
_COMMENT = re.compile(r'("(?:[^"\\]|\\.)*")|//[^\n]*')
#: Attributes of a field that the table keeps, and their names there.
_KEPT = {
    "name": "name",
    "type": "type",
    "versions": "versions",
    "taggedVersions": "tagged",
    "tag": "tag",
    "nullableVersions": "nullable",
    "flexibleVersions": "flexible",
    "default": "default",
    "entityType": "entity",
    "mapKey": "key",
}


def schemas(jars: Path) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield the subject and the version of each jar that has schemas, and each of these."""
    for jar in sorted(jars.iterdir()):
        match = _JAR.fullmatch(jar.name)
        if match is None:
            continue
        with zipfile.ZipFile(jar) as archive:
            for name in sorted(archive.namelist()):
                if re.fullmatch(r"(?:common/)?(?:message|metadata)/\w+\.json", name):
                    text = archive.read(name).decode()
                    yield match[1], match[2], json.loads(_COMMENT.sub(lambda m: m[1] or "", text))


def compact(home: str, schema: dict[str, Any]) -> dict[str, Any]:
    """Return what the table says of a message; numbers of messages are unique in a home, the jar they come from."""
    shared = {struct["name"]: struct["fields"] for struct in schema.get("commonStructs", ())}
    found = {"home": home, "kind": schema["type"]}
    if "apiKey" in schema:
        found["number"] = schema["apiKey"]
    found["versions"], found["flexible"] = schema["validVersions"], schema.get("flexibleVersions", "none")
    return found | {"fields": [_field(field, shared) for field in schema["fields"]]}


def _field(field: dict[str, Any], shared: dict[str, Any]) -> dict[str, Any]:
    found = {ours: field[theirs] for theirs, ours in _KEPT.items() if theirs in field}
    found["name"] = found["name"][:1].lower() + found["name"][1:]
    inner = field.get("fields") or shared.get(field["type"].removeprefix("[]"))
    return found | ({"fields": [_field(item, shared) for item in inner]} if inner else {})


def _kafka(command: str) -> str:
    script = Path(__file__).with_name("kafka.sh")
    return subprocess.run([script, command], check=True, capture_output=True, encoding="utf-8").stdout


def main() -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jars", nargs="?", type=Path)
    parser.add_argument("--out", type=Path, default=TABLE)
    options = parser.parse_args()
    jars = options.jars
    if jars is None:
        jars = Path(_kafka("classpath").strip().split(":")[-1]).parent
    versions, lines = set(), []
    for home, version, schema in schemas(jars):
        if schema["type"] in KINDS or schema["name"] in REQUESTS:
            versions.add(version)
            fields = json.dumps(compact(home, schema), separators=(",", ":"))
            lines.append(f"{json.dumps(schema['name'])}: {fields}")
    (version,) = versions
    settings: dict[str, list[str]] = {}
    for line in _kafka("settings").splitlines():
        settings.setdefault(line.split()[0], []).append(line.split()[1])
    named = [f'"{kind}": {json.dumps(names, separators=(",", ":"))}' for kind, names in settings.items()]
    text = f'{{"kafka": "{version}",\n"settings": {{\n' + ",\n".join(named) + "\n},\n"
    text += '"messages": {\n' + ",\n".join(sorted(lines)) + "\n}}\n"
    options.out.write_text(text, encoding="utf-8")
    print(f"{options.out}: {len(lines)} messages of Kafka {version}")


if __name__ == "__main__":
    main()
