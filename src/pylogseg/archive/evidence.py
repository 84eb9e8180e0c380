"""The evidence of a drill as files: `evidence.json`, and `evidence.html`, which needs no script and no network."""

from __future__ import annotations

import html
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from pylogseg.archive.drilling import ISOLATIONS, BrokerEvidence, ConsumedPartition, DrillResult
from pylogseg.disk.outside import check_outside
from pylogseg.env.beside import whole
from pylogseg.format.columns import to_row

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Drill of {point}</title>
<style>
body {{ font: 1rem/1.4 sans-serif; margin: 2rem auto; max-width: 75rem; padding: 0 1rem }}
table {{ border-collapse: collapse; margin: 1rem 0 }}
th, td {{ border-bottom: 1px solid #8888; padding: .2rem .6rem; text-align: left; vertical-align: top }}
td.n {{ text-align: right }}
td {{ overflow-wrap: anywhere }}
</style>
</head>
<body>
<h1>Drill: {verdict}</h1>
{facts}
<h2>What was done</h2>
<ol>{steps}</ol>
{problems}
<h2>Partitions</h2>
<p>Records, and a SHA-256 over their offsets, timestamps, keys, values and headers, as they were read from the archive.
Those of each broker were the same unless a difference is named above.</p>
{partitions}
<h2>Brokers</h2>
{brokers}
<h2>Not checked</h2>
<ul>{rest}</ul>
</body>
</html>
"""


def write_evidence(result: DrillResult, folder: str | os.PathLike[str]) -> list[Path]:
    """Write the evidence of a drill as JSON and as a page.

    Parameters
    ----------
    result : DrillResult
        Of `drill`.
    folder : path
        It is made if it is missing.

    Returns
    -------
    list of Path
        Those of ``evidence.json`` and ``evidence.html``.
    """
    check_outside(folder)
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    made = []
    for name, text in (("evidence.json", evidence_json(result)), ("evidence.html", evidence_page(result))):
        with whole(target / name) as file:
            file.write(text.encode("utf-8", "replace"))
        made.append(target / name)
    return made


def evidence_json(result: DrillResult) -> str:
    return json.dumps(to_row(result), indent=1) + "\n"


def evidence_page(result: DrillResult) -> str:
    facts = [
        ("Archive", result.archive),
        ("Point", f"{result.point}, of {result.point_time}"),
        ("SHA-256 of the point", result.point_sha256),
        ("Begun, ended", f"{result.started}, {result.ended}"),
        *((f"Version: {name}", version) for name, version in result.versions.items()),
    ]
    return _PAGE.format(
        point=_text(result.point),
        verdict=_text(result.verdict),
        facts=_table((), facts),
        steps=_items(_steps(result)),
        problems=_section("Not run", result.not_run) + _section("Differences", result.all_problems),
        partitions=_table(
            ("Partition", "Topic id", "Start", "End", "Stable up to", *(f"Records, {each}" for each in ISOLATIONS),
             *(f"SHA-256, {each}" for each in ISOLATIONS)),
            [_cells(each) for each in result.expected],
        ),
        brokers=_table(
            ("Broker", "Version", "Restored in", "Opened in", "Consumed in", "Partitions", "Offsets of groups",
             "Differences"),
            [_broker_cells(each) for each in result.brokers],
        ),
        rest=_items(result.not_checked) or "<li>nothing</li>",
    )  # fmt: skip


def _section(title: str, texts: Sequence[str]) -> str:
    return f"<h2>{title}</h2><ul>{_items(texts)}</ul>" if texts else ""


def _steps(result: DrillResult) -> Iterable[str]:
    yield (
        f"All records of {len(result.expected):,} partitions were read from the archive, with both isolations, and no "
        "broker between."
    )
    for broker in result.brokers:
        if broker.not_run:
            yield f"{broker.broker} {broker.version} was not run: {broker.not_run}"
            continue
        yield (
            f"The point was restored into an empty folder, which {broker.broker} {broker.version} opened. "
            "Settings that delete or compact were off. Each partition was consumed over Kafka's protocol with both "
            "isolations; its topic id, its ends, the number of records and their SHA-256 were compared, and where "
            "groups stood."
        )


def _cells(row: ConsumedPartition) -> list[object]:
    numbers = [row.start_offset, row.end_offset, row.last_stable_offset]
    counts = [row.records.get(each, "") for each in ISOLATIONS]
    return [row.name, row.topic_id, *numbers, *counts, *(row.sha256.get(each, "") for each in ISOLATIONS)]


def _broker_cells(broker: BrokerEvidence) -> list[object]:
    times = [f"{seconds:.1f} s" for seconds in (broker.restore_s, broker.start_s, broker.consume_s)]
    counts = [len(broker.partitions), broker.group_offsets, len(broker.problems)]
    return [broker.broker, broker.version, *times, *counts]


def _table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    head = f"<tr>{''.join(f'<th scope=col>{_text(each)}</th>' for each in headings)}</tr>" if headings else ""
    return f"<table>{head}{''.join(f'<tr>{_row(row)}</tr>' for row in rows)}</table>"


def _row(row: Sequence[object]) -> str:
    return "".join(
        f"<td class=n>{each:,}</td>" if isinstance(each, int) else f"<td>{_text(str(each))}</td>" for each in row
    )


def _items(texts: Iterable[str]) -> str:
    return "".join(f"<li>{_text(each)}</li>" for each in texts)


def _text(text: str) -> str:
    return html.escape(text.encode("utf-8", "replace").decode())
