"""Connectors of Kafka Connect, from its three topics. Their names are settings, so records identify them."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa

from pylogseg.disk.disk import Disk
from pylogseg.format import bounded_json
from pylogseg.format.messages.connect import KEYS, LOOKED_AT, kind_of_keys
from pylogseg.format.messages.secrets import MASK, is_secret_of_connector
from pylogseg.reading.state import LENIENT
from pylogseg.values.internal.cut_off import CutOff
from pylogseg.values.internal.keyed_log import KeyedLog, newest_replicas
from pylogseg.values.internal.notes import Notes
from pylogseg.values.internal.state_columns import CONNECTORS, state_table

_LOOKED_AT_BYTES = 64 << 10
_Row = dict[str, Any]


class _Record(NamedTuple):
    topic: str
    key: str
    value: Any
    place: str


def connector_table(disk: Disk, cut_off: CutOff, notes: Notes, *, show_secrets: bool) -> pa.Table:
    """Return a row for each connector that has settings; secrets in these are masked unless they are wanted."""
    topics = _topics(disk)
    statuses = {record.key: record for record in _last(disk, topics["status"], cut_off, notes)}
    offsets = defaultdict(list)
    for record in _last(disk, topics["offset"], cut_off, notes):
        name, partition = bounded_json.loads(record.key)[:2]
        offsets[name].append({"partition": json.dumps(partition), "offset": json.dumps(record.value)})
    rows = []
    for topic in topics["config"]:
        records = {record.key: record for record in _last(disk, [topic], cut_off, notes)}
        for key, record in records.items():
            if key.startswith("connector-"):
                name = key.removeprefix("connector-")
                rows.append(_row(name, record, records, statuses, offsets[name], show_secrets))
    rows.sort(key=lambda row: (row["configTopic"], row["connector"]))
    return state_table(rows, CONNECTORS)


def _row(
    name: str,
    record: _Record,
    found: dict[str, _Record],
    statuses: dict[str, _Record],
    offsets: list[_Row],
    show_secrets: bool,
) -> _Row:
    config = {key: None if value is None else str(value) for key, value in _of(record, "properties", {}).items()}
    target = found.get(f"target-state-{name}")
    status = statuses.get(f"status-connector-{name}")
    tasks = []
    for key, task in statuses.items():
        owner, _, number = key.removeprefix("status-task-").rpartition("-")
        if key.startswith("status-task-") and owner == name and number.isdigit():
            tasks.append({"task": number, "state": _of(task, "state"), "workerId": _of(task, "worker_id"),
                          "trace": _of(task, "trace")})  # fmt: skip
    shown = {
        key: MASK if value is not None and not show_secrets and is_secret_of_connector(key, value) else value
        for key, value in sorted(config.items())
    }
    return {
        "connector": name,
        "connectorClass": config.get("connector.class"),
        "targetState": "STARTED" if target is None else _of(target, "state.v2") or _of(target, "state"),
        "state": _of(status, "state"),
        "workerId": _of(status, "worker_id"),
        "version": _of(status, "version"),
        "trace": _of(status, "trace"),
        "tasks": sorted(tasks, key=lambda task: int(task["task"])),
        "taskCount": _of(found.get(f"commit-{name}"), "tasks"),
        "config": list(shown.items()),
        "sourceOffsets": sorted(offsets, key=lambda each: each["partition"]),
        "configTopic": record.topic,
    }


def _of(record: _Record | None, name: str, default: Any = None) -> Any:
    value = None if record is None else record.value
    return value.get(name, default) if isinstance(value, dict) else default


def _topics(disk: Disk) -> dict[str, list[str]]:
    topics: dict[str, list[str]] = {kind: [] for kind in KEYS}
    for topic in sorted(disk.topics):
        kind = None if topic.startswith("__") else kind_of_keys(_first_keys(disk, topic))
        if kind is not None:
            topics[kind].append(topic)
    return topics


def _first_keys(disk: Disk, topic: str) -> list[str | None]:
    """Keys of a few records of the first partition that has any; None is no text."""
    for log in newest_replicas(disk, topic, Notes()):
        state = LENIENT.start(window_bytes=_LOOKED_AT_BYTES, first_window_bytes=4096)
        for columns, _ in log.chunks(log.log_start_offset, log.log_end_offset, state):
            if len(columns):
                return [_text(columns.key(i)) for i in range(min(len(columns), LOOKED_AT))]
    return []


def _text(raw: bytes | None) -> str | None:
    try:
        return None if raw is None else raw.decode()
    except UnicodeDecodeError:
        return None


def _last(disk: Disk, topics: list[str], cut_off: CutOff, notes: Notes) -> Iterator[_Record]:
    """Yield the last record of each key that counts, its value from JSON."""
    for topic in topics:
        for log in newest_replicas(disk, topic, notes):
            for columns, segment in KeyedLog(log, cut_off, notes).last_of_each_key():
                for i, offset in enumerate(columns.offset.tolist()):
                    place = f"{segment.path}: offset {offset}"
                    try:
                        key, value = (columns.key(i) or b"").decode(), bounded_json.loads(columns.value(i) or b"null")
                        if key.startswith("["):
                            bounded_json.loads(key)
                    except ValueError as error:
                        notes.add_damage(f"{place}: no record of Kafka Connect: {error}")
                        continue
                    if value is not None:
                        yield _Record(topic, key, value, place)
