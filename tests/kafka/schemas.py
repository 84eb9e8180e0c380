#!/usr/bin/env python3
"""Make the table of message schemas, `src/pylogseg/format/messages/schemas.json`, from the jars of a Kafka.

    schemas.py [JARS] [--out FILE]
    schemas.py [JARS] --compare

JARS is a folder of Kafka's jars; without it, that of `kafka.sh classpath`. With a JARS of another version, set
KAFKA_VERSION too: `kafka.sh settings` names the settings that are not secret. A line of the table is one message:
names, types, versions, tags and defaults of its fields, as Kafka's schema files have them. Words that explain them are
left out. A struct that several fields share stands at each of them. Run it again for a newer Kafka, and read the
difference. With --compare nothing is written: exit code 0 if the table reads each version of each message of them.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "src" / "pylogseg" / "format" / "messages" / "schemas.json"
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
    "ElectLeaders", "AlterPartitionReassignments", "ListPartitionReassignments", "DescribeQuorum",
    "ListConfigResources", "ListTransactions", "DescribeTransactions", "AlterReplicaLogDirs", "CreateAcls",
    "DescribeAcls", "DeleteAcls", "DescribeUserScramCredentials", "AlterUserScramCredentials",
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


def missing(jars: Path) -> int:
    """Print what these jars have and the table has not; 1 if there is such a thing."""
    table = json.loads(TABLE.read_text(encoding="utf-8"))
    count = wrong = 0
    for home, _, schema in schemas(jars):
        if schema["type"] in KINDS or schema["name"] in REQUESTS:
            count += 1
            for words in lacking(table["messages"].get(schema["name"]), compact(home, schema)):
                wrong += 1
                print(f"{schema['name']}: {words}")
    for line in _kafka("settings").splitlines():
        kind, name = line.split()
        if name not in table["settings"].get(kind, ()):
            wrong += 1
            print(f"{kind.lower()} setting {name}: not in the table")
    print(f"{count} messages, {wrong} differences from the table of Kafka {table['kafka']}")
    return int(wrong > 0)


def lacking(ours: dict[str, Any] | None, theirs: dict[str, Any]) -> Iterator[str]:
    """What a message of the table lacks: a version, or a field of one."""
    if ours is None:
        yield "not in the table"
        return
    (first, last), (low, high) = (_range(each["versions"]) for each in (ours, theirs))
    if low < first or high > last:
        yield f"versions {theirs['versions']}, the table has {ours['versions']}"
    fields, theirs_too = ours.get("fields", []), {field["name"] for field in theirs.get("fields", ())}
    known = {field["name"]: field for field in fields}
    for number, field in enumerate(theirs.get("fields", ())):
        mine = known.get(field["name"])
        if mine is None and number < len(fields) and fields[number]["name"] not in theirs_too:
            mine = fields[number]  # it has another name now
        if mine is None:
            yield f"field {field['name']}: not in the table"
            continue
        for name in ("type", "tag", "flexible"):
            if mine.get(name) != field.get(name):
                yield f"field {field['name']}: {name} {field.get(name)}, the table has {mine.get(name)}"
        yield from (
            f"{field['name']}.{words}" for words in lacking({**mine, "versions": "0+"}, {**field, "versions": "0"})
        )


def _range(versions: str) -> tuple[float, float]:
    first, dash, last = versions.partition("-")
    return int(first.rstrip("+")), float("inf") if first.endswith("+") else int(last if dash else first)


def _kafka(command: str) -> str:
    script = Path(__file__).with_name("kafka.sh")
    return subprocess.run([script, command], check=True, capture_output=True, encoding="utf-8").stdout


def main() -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jars", nargs="?", type=Path)
    parser.add_argument("--out", type=Path, default=TABLE)
    parser.add_argument("--compare", action="store_true", help="say what the table has not")
    options = parser.parse_args()
    jars = options.jars
    if jars is None:
        jars = Path(_kafka("classpath").strip().split(":")[-1]).parent
    if options.compare:
        sys.exit(missing(jars))
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
