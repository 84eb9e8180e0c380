"""Compares two reports of one cluster by the facts in their JSON: changes, the worst first."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from pylogseg.env.file_errors import storage_error
from pylogseg.errors import RequestError
from pylogseg.format.columns import to_json
from pylogseg.format.escape import json_fault, printable
from pylogseg.reporting.facts import VERSION, Since

_Row = Mapping[str, Any]
_Change = dict[str, Any]
_DAY_MS = 86_400_000
#: Changes of a kind that are listed.
MOST_CHANGES = 1000
_PARTITIONS = ("cut", "gone", "recreated", "new", "moved")
_OF_FINDING = ("level", "urgency", "kind", "reason", "path", "topic", "partition")
#: Of a row that is compared, the columns, by what their names become before ``Before`` and ``After``.
_OF_PARTITION = {"start": "logStartOffset", "end": "logEndOffset", "size": "size"}
_OF_GROUP = {"lag": "lag", "lagMs": "lagMs", "ageMs": "ageMs"}
_OF_REPLICAS = {"leader": "leader", "replicas": "replicas", "inSync": "inSync"}
_GROUPS = ("stuck", "behind", "gone", "new", "caught up", "same")
_NEEDED = {"madeMs": int, "verdict": str, "command": str, "partitions": list, "findings": list, "scope": dict}


def earlier_facts(path: str | os.PathLike[str], cluster_ids: Sequence[str], now_ms: int) -> dict[str, Any]:
    """Return the facts in a file of ``report --json``; RequestError if they cannot be compared with this report."""
    name = printable(os.fspath(path))
    try:
        with open(path, "rb") as file:
            facts = json.loads(file.read())
    except OSError as error:
        raise storage_error(os.fspath(path), "read", error) from None
    except (ValueError, RecursionError) as error:
        raise RequestError(
            f"{name} is not the JSON of a report ({json_fault(error)}): `pylogseg report --json` writes one"
        ) from None
    if not isinstance(facts, dict) or not isinstance(facts.get("version"), int):
        raise RequestError(
            f"{name} is not the JSON of a report: it has no version; `pylogseg report --json` writes one"
        )
    if facts["version"] > VERSION:
        raise RequestError(
            f"{name} has version {facts['version']} of a report's JSON, and {VERSION} is known: "
            f"a newer pylogseg wrote it ({printable(str(facts.get('pylogseg')))})"
        )
    wrong = [field for field, kind in _NEEDED.items() if not isinstance(facts.get(field), kind)]
    if wrong:
        raise RequestError(
            f"{name} is not the whole JSON of a report: {', '.join(wrong)} is missing or of another type"
        )
    theirs = facts.get("clusterIds") or []
    if cluster_ids and theirs and not set(cluster_ids) & set(map(str, theirs)):
        there, here = ", ".join(map(printable, map(str, theirs))), ", ".join(cluster_ids)
        raise RequestError(f"{name} is a report of another cluster: {there}, and this one is {here}")
    if not 0 <= facts["madeMs"] <= now_ms:
        raise RequestError(f"{name} was not made before this report ({facts['madeMs']} ms): give the earlier one")
    return facts


def compare_reports(before: _Row, after: _Row, source: str) -> Since:
    """Return the changes between two reports; RequestError if the earlier one is not of this form."""
    try:
        since = _ReportComparison(before, after).since(source)
        json.dumps(to_json(since), ensure_ascii=False, allow_nan=False).encode()  # NaN and half a letter are in no page
        return since
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        what = f"{type(error).__name__}: {error}"
        raise RequestError(f"{printable(source)} is not the JSON of a report as pylogseg writes it: {what}") from error


class _ReportComparison:
    """The two reports, and notes on parts that cannot be compared."""

    def __init__(self, before: _Row, after: _Row) -> None:
        self._before, self._after = before, after
        self._span_ms = after["madeMs"] - before["madeMs"]
        self._left = 0
        self._notes: list[str] = []

    def since(self, source: str) -> Since:
        before, after = self._before, self._after
        self._note_scope()
        partitions, same = self._partitions()
        findings, findings_same = self._findings()
        return Since(
            made_ms=before["madeMs"],
            span_ms=self._span_ms,
            source=printable(source),
            command=before["command"],
            verdict=before["verdict"],
            size_before=int(before["scope"]["size"]),
            size_after=int(after["scope"]["size"]),
            partitions=self._limit(partitions),
            partitions_same=same,
            findings=self._limit(findings),
            findings_same=findings_same,
            groups=self._limit(self._groups()),
            settings=self._limit(self._settings()),
            replicas=self._limit(self._replicas()),
            not_listed=self._left,
            notes=tuple(self._notes),
        )

    def _limit(self, found: Sequence[_Change]) -> tuple[_Change, ...]:
        self._left += max(0, len(found) - MOST_CHANGES)
        return tuple(found[:MOST_CHANGES])

    def _note_scope(self) -> None:
        before, after = self._before, self._after
        if not before.get("clusterIds") or not after.get("clusterIds"):
            self._notes.append("whether both are of one cluster is not known: the id is in meta.properties")
        scopes = [[report["scope"].get(name) for name in ("mode", "sinceMs", "untilMs")] for report in (before, after)]
        if scopes[0] != scopes[1]:
            self._notes.append(
                f"findings: the reports did not look at the same (modes {scopes[0][0]} and {scopes[1][0]}, times from "
                "and to): a new finding may be an old one that was not looked for, and a gone one may still be there"
            )
        for name, what in (("findingsNotListed", "findings"), ("groupOffsetsNotListed", "offsets of groups"),
                           ("replicasNotListed", "replicas")):  # fmt: skip
            left = [report.get(name, 0) for report in (before, after)]
            if any(left):
                self._notes.append(
                    f"{what}: {left[0]:,} of the earlier report and {left[1]:,} of this one are not listed"
                )

    # ---- partitions ----

    def _partitions(self) -> tuple[list[_Change], int]:
        olds, news = _by_name(self._before, self._after)
        others = [set(report.get("namesNotListed", ())) for report in (self._before, self._after)]
        changes, same = [], 0
        for key in [*olds, *(key for key in news if key not in olds)]:
            old, new = olds.get(key), news.get(key)
            name = (old or new or {})["name"]
            if (old is None and name in others[0]) or (new is None and name in others[1]):
                continue  # there, and not looked at in one of the reports
            change = self._partition(old, new)
            same += change is None
            changes += [] if change is None else [change]
        changes.sort(key=lambda change: (_PARTITIONS.index(change["what"]), -_bytes(change), change["name"]))
        return changes, same

    def _partition(self, old: _Row | None, new: _Row | None) -> _Change | None:
        one = new or old or {}
        pairs = _pairs(old, new, _OF_PARTITION)
        start, end, size = ((pairs[f"{name}Before"], pairs[f"{name}After"]) for name in _OF_PARTITION)
        what = "new" if old is None else "gone" if new is None else _name_move(end, _pair(old, new, "topicId"))
        if what == "moved" and all(before == after for before, after in (start, end, size)):
            return None
        rates = [self._per_day(*pair) if what == "moved" else None for pair in (end, size)]
        own = {"name": one["name"], "topic": one.get("topic"), "partition": one.get("partition"), "disk": one["disk"]}
        return {"what": what, **own, **pairs, "recordsPerDay": rates[0], "bytesPerDay": rates[1]}

    def _per_day(self, before: int | None, after: int | None) -> float | None:
        if before is None or after is None or self._span_ms <= 0:
            return None
        return round(float((after - before) * _DAY_MS / self._span_ms), 2)

    # ---- findings ----

    def _findings(self) -> tuple[list[_Change], int]:
        olds, news = (_index_rows(report["findings"], _finding_key) for report in (self._before, self._after))
        changes = [
            {"what": what, **{name: row[name] for name in _OF_FINDING}}
            for what, rows, others in (("new", news, olds), ("gone", olds, news))
            for key, row in rows.items()
            if key not in others
        ]  # fmt: skip
        return changes, len(olds.keys() & news.keys())

    # ---- groups ----

    def _groups(self) -> list[_Change]:
        olds, news = ({row["group"]: row for row in report.get("groups", ())} for report in (self._before, self._after))
        if not olds or not news:
            which = "the earlier" if not olds else "this"
            self._notes += [f"groups are not compared: none is in {which} report"] if olds or news else []
            return []
        read = self._read()
        changes = [_group(name, olds.get(name), news.get(name), read.get(name)) for name in {**news, **olds}]
        changes.sort(key=lambda change: (_GROUPS.index(change["what"]), -(change["ageMsAfter"] or 0), change["group"]))
        return changes

    def _read(self) -> Counter[str]:
        """By how much the offsets of groups moved that are in both reports; groups without one are left out."""
        old, new = (
            {(row["group"], row["topic"], row["partition"]): row["offset"] for row in report.get("groupOffsets", ())}
            for report in (self._before, self._after)
        )
        moved: Counter[str] = Counter()
        for key in old.keys() & new.keys():
            if old[key] is not None and new[key] is not None:
                moved[key[0]] += new[key] - old[key]
        return moved

    # ---- the cluster's metadata ----

    def _has_metadata(self, what: str) -> bool:
        there = [bool(report.get("replicas") or report.get("topicSettings")) for report in (self._before, self._after)]
        if there[0] != there[1]:
            which = "this" if there[0] else "the earlier"
            self._notes.append(f"{what} are not compared: {which} report has no cluster's metadata")
        return all(there)

    def _settings(self) -> list[_Change]:
        if not self._has_metadata("settings"):
            return []
        olds, news = (
            {(row["topic"], row["name"]): row["value"] for row in report.get("topicSettings", ())}
            for report in (self._before, self._after)
        )
        pairs = ((key, olds.get(key), news.get(key)) for key in sorted({**olds, **news}))
        return [
            {"topic": topic, "name": name, "before": old, "after": new}
            for (topic, name), old, new in pairs
            if old != new
        ]

    def _replicas(self) -> list[_Change]:
        if not self._has_metadata("replicas"):
            return []
        olds, news = (
            {(row["topic"], row["partition"]): row for row in report.get("replicas", ())}
            for report in (self._before, self._after)
        )
        diffs = []
        for topic, partition in sorted(olds.keys() & news.keys()):
            old, new = (_with_sorted_brokers(rows[topic, partition]) for rows in (olds, news))
            if old != new:
                diffs.append({"topic": topic, "partition": partition, **_pairs(old, new, _OF_REPLICAS)})
        return sorted(
            diffs, key=lambda row: (row["leaderAfter"] is not None, len(row["inSyncAfter"]) - len(row["inSyncBefore"]))
        )


def _by_name(*reports: _Row) -> list[dict[str, _Row]]:
    """Return live partitions of reports by name, and by disk where a report has several of one name."""
    lists = [[row for row in _all(report) if row.get("state") in ("live", "unreadable")] for report in reports]
    twice = {name for rows in lists for name, count in Counter(row["name"] for row in rows).items() if count > 1}
    return [
        {(f"{row['name']} {row['disk']}" if row["name"] in twice else row["name"]): row for row in rows}
        for rows in lists
    ]


def _all(report: _Row) -> Iterable[_Row]:
    return [*report["partitions"], *report.get("partitionsInBrief", ())]


def _pair(old: _Row | None, new: _Row | None, name: str) -> tuple[Any, Any]:
    return None if old is None else old.get(name), None if new is None else new.get(name)


def _pairs(old: _Row | None, new: _Row | None, names: Mapping[str, str]) -> _Change:
    """Return columns of two rows, each before and after."""
    pairs: _Change = {}
    for name, column in names.items():
        pairs[f"{name}Before"], pairs[f"{name}After"] = _pair(old, new, column)
    return pairs


def _name_move(end: tuple[int | None, int | None], topic_id: tuple[str | None, str | None]) -> str:
    """Return the change of a partition that is in both reports: recreated, cut or moved."""
    if None not in topic_id and topic_id[0] != topic_id[1]:
        return "recreated"
    return "cut" if end[0] is not None and end[1] is not None and end[1] < end[0] else "moved"


def _bytes(change: _Change) -> int:
    """By how many bytes it changed, for the order."""
    before, after = change["sizeBefore"] or 0, change["sizeAfter"] or 0
    return abs(int(after - before))


def _index_rows(rows: Iterable[_Row], key: Callable[[_Row], Any]) -> dict[Any, _Row]:
    return {key(row): row for row in rows}


def _finding_key(row: _Row) -> tuple[Any, ...]:
    """The key by which a finding is the same on a copy in another folder."""
    names = "level", "kind", "topic", "partition", "position", "offset"
    return *(row[name] for name in names), os.path.basename(row["path"])


def _group(name: str, old: _Row | None, new: _Row | None, read: int | None) -> _Change:
    pairs = _pairs(old, new, _OF_GROUP)
    what = "gone" if new is None else "new" if old is None else _standing(pairs["lagBefore"], pairs["lagAfter"], read)
    return {"what": what, "group": name, **pairs, "read": read}


def _standing(before: int | None, after: int | None, read: int | None) -> str:
    if after and read == 0:
        return "stuck"
    if before is None or after is None or before == after:
        return "same"
    return "behind" if after > before else "caught up"


def _with_sorted_brokers(row: _Row) -> _Row:
    return {"leader": row["leader"], "replicas": [*row["replicas"]], "inSync": sorted(row["inSync"])}
