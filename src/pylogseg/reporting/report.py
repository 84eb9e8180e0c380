"""`pylogseg.report`: the facts of a disk as one page, as JSON and as tables."""

from __future__ import annotations

import html
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pylogseg.disk.choice import PartitionChoice
from pylogseg.disk.disk import Disk, Partition
from pylogseg.disk.listing import as_disk
from pylogseg.env.beside import whole
from pylogseg.env.executor import WorkKeywords, choose_executor
from pylogseg.errors import RequestError
from pylogseg.format.columns import to_json
from pylogseg.format.escape import json_line
from pylogseg.format.keywords import split_keywords
from pylogseg.format.records import DECOMPRESSED_LIMIT_BYTES
from pylogseg.inspect.verify.disk import exit_code_of
from pylogseg.reading.selection import Moment, check_times, milliseconds
from pylogseg.reading.state import LimitKeywords, Throttle
from pylogseg.reporting.comparing import compare_reports, earlier_facts
from pylogseg.reporting.facts import Facts
from pylogseg.reporting.gather import gather
from pylogseg.reporting.options import ReportOptions
from pylogseg.reporting.page import page
from pylogseg.reporting.tables import write_csv_tables

if TYPE_CHECKING:
    from typing_extensions import Unpack

_Path = str | os.PathLike[str]


class Report:
    """The facts of a disk; `pylogseg.report` makes it. A notebook shows its page.

    Attributes
    ----------
    facts : Facts
    """

    def __init__(self, facts: Facts) -> None:
        self.facts = facts

    def __repr__(self) -> str:
        """Return a short text with the verdict."""
        return f"<pylogseg.Report of {', '.join(self.facts.paths)}: {self.facts.verdict}>"

    def _repr_html_(self) -> str:
        """Return the page in a frame of its own, for notebooks."""
        text = html.escape(self.html(), quote=True)
        style = "width:100%;height:80vh;border:1px solid #8884"
        rights = 'sandbox="allow-scripts allow-downloads" title="pylogseg report"'
        return f'<iframe {rights} style="{style}" srcdoc="{text}"></iframe>'

    @property
    def has_damage(self) -> bool:
        """True if a finding is damage."""
        return self.facts.damage > 0

    @property
    def is_complete(self) -> bool:
        """False if something was not looked at, or may be damage."""
        return not self.facts.unread and not self.facts.unknown

    @property
    def exit_code(self) -> int:
        """The exit code of ``pylogseg verify`` for these findings: 1 for damage, then 2 for unknown facts, then 0."""
        return exit_code_of(self.facts.damage, self.facts.unread, self.facts.unknown)

    def to_dict(self) -> dict[str, Any]:
        """Return the facts as plain values, as ``pylogseg report --json`` prints them."""
        row: dict[str, Any] = to_json(self.facts)
        return row

    def since(self, earlier: _Path) -> Report:
        """Return the report with the changes since an earlier one of the same cluster, in ``facts.since``.

        Parameters
        ----------
        earlier : path
            What ``pylogseg report --json``, or `write_json`, wrote.

        Raises
        ------
        RequestError
            For a file that is no report, one of another cluster, and what a newer version wrote.
        StorageError
            If it cannot be read.
        """
        before = earlier_facts(earlier, self.facts.cluster_ids, self.facts.made_ms)
        return Report(replace(self.facts, since=compare_reports(before, self.to_dict(), os.fspath(earlier))))

    def html(self) -> str:
        """Return the page."""
        return page(self.to_dict())

    def write(self, file: _Path) -> None:
        """Write the page.

        Parameters
        ----------
        file : path
            Replaced if it exists; it is there as a whole or not at all.
        """
        text = self.html()
        with whole(Path(file)) as out:
            out.write(text.encode())

    def write_json(self, file: _Path) -> None:
        """Write the facts as JSON, in the same way."""
        text = json_line(self.to_dict())
        with whole(Path(file)) as out:
            out.write(text.encode())

    def write_csv(self, folder: _Path) -> list[Path]:
        """Write the tables of the report as CSV.

        Parameters
        ----------
        folder : path
            Made if it is not there; files of the same names are replaced.

        Returns
        -------
        list of Path
            The files.
        """
        return write_csv_tables(self.facts, Path(folder))


class ReportKeywords(WorkKeywords, LimitKeywords, total=False):
    """Keywords of `report` that other functions have, too."""


def report(
    path: _Path | Sequence[_Path] | Disk | Partition,
    topic: str | Sequence[str] | None = None,
    partition: int | Sequence[int] | None = None,
    *,
    full: bool = False,
    since: Moment | None = None,
    until: Moment | None = None,
    sample: int = 0,
    registry: _Path | None = None,
    value_as: str | None = None,
    config: Mapping[str, str] | None = None,
    server_properties: _Path | None = None,
    now_ms: int | None = None,
    **how: Unpack[ReportKeywords],
) -> Report:
    """Look at a disk: its topics, partitions and segments, their faults, and the bytes that can be freed.

    Parameters
    ----------
    path : path, URL, list of them, Disk or Partition
        As for `pylogseg.open_dir`.
    topic : str or sequence of str, optional
        Topics, partitions (``orders-3``) or shell patterns; all if left out.
    partition : int or sequence of int, optional
        Only partitions with these numbers.
    full : bool
        Read every byte, and check it as `pylogseg verify` does. By default batch headers and a sample of the records
        are read; the report names the rest.
    since, until : int (ms) or datetime, optional
        Only batches of this time, half-open, by their largest timestamps.
    sample : int
        The number of records of each partition with shown keys and values; 0 shows no payload and no hot keys. They are
        decoded for topics with a schema.
    registry : path or URL, optional
        Where schemas are, as in `Decoding`; by default the topic `_schemas` of the disk. Nothing else is asked.
    value_as : {"schema", "text"}, optional
        ``"schema"`` notes topics without a schema; ``"text"`` decodes nothing.
    jobs : int or None
        Threads, with `full` and for files that are not local: 1 is the caller's own, None one per processor. Headers
        of local files are read by one thread.
    executor : Executor, optional
        In place of threads: `pylogseg.spark.executor.SparkExecutor`. This process reads the small files of partitions,
        and the topics of groups and transactions.
    max_bytes_per_second : float, optional
        Read no faster.
    max_decompressed_bytes : int
        A batch that decompresses to more counts as damaged.
    config : mapping of str to str, optional
        Settings of topics by Kafka's names (``retention.ms``), for the bytes that retention and compaction would free;
        they override the cluster's metadata.
    server_properties : path, optional
        The broker's configuration file, for settings that are not in the cluster's metadata.
    now_ms : int, optional
        The time to assume, milliseconds since 1970; the clock's if left out.
    on_bytes : callable, optional
        Called with the bytes done since its last call, from any thread.

    Returns
    -------
    Report

    Raises
    ------
    RequestError
        For names that select nothing, and a path without Kafka files.
    StorageError
        If a path cannot be listed.

    Examples
    --------
    >>> import pylogseg
    >>> found = pylogseg.report("examples/data", "codec-gzip")
    >>> found.facts.damage, found.facts.topics[0].name
    (0, 'codec-gzip')
    """
    if sample < 0:
        raise RequestError(f"sample must not be negative, not {sample}")
    check_decoding(sample, registry, value_as)
    workers, limits = split_keywords(how, WorkKeywords, LimitKeywords)
    disk = as_disk(path)
    choice = PartitionChoice.of(topic, partition)
    since_ms, until_ms = milliseconds(since), milliseconds(until)
    check_times(since_ms, until_ms)
    paths = [path] if isinstance(path, (str, os.PathLike)) else [] if isinstance(path, (Disk, Partition)) else path
    shown = [os.fspath(path) for path in paths if isinstance(path, (str, os.PathLike))] or _places(disk)
    options = ReportOptions(
        full=full,
        since=since_ms,
        until=until_ms,
        payloads=sample,
        registry=None if registry is None else os.fspath(registry),
        value_as=value_as,
        throttle=Throttle.of(limits.get("max_bytes_per_second")),
        limit_bytes=limits.get("max_decompressed_bytes", DECOMPRESSED_LIMIT_BYTES),
        config=dict(config or {}),
        server_properties=None if server_properties is None else os.fspath(server_properties),
        now_ms=time.time_ns() // 1_000_000 if now_ms is None else now_ms,
        choice=choice,
        paths=shown,
    )
    chosen = disk.select(topic, partition)
    scanned = partitions_to_scan(chosen, choice)
    on_bytes = workers.pop("on_bytes", None)
    return Report(gather(chosen, scanned, options, choose_executor(**workers), on_bytes))


def partitions_to_scan(disk: Disk, choice: PartitionChoice) -> list[Partition]:
    """Return the partitions to scan: live ones; stray or deleted ones only if they are named or alone."""
    is_named = disk.is_named or len(disk.partitions) == 1
    return [p for p in disk.partitions if (is_named or not p.state) and choice.has_number(p.partition)]


def check_decoding(sample: int, registry: _Path | None, value_as: str | None) -> None:
    """Refuse options of decoding that would have no effect: only samples are decoded."""
    if value_as not in (None, "schema", "text"):
        raise RequestError(f"value_as must be 'schema' or 'text', not {value_as!r}")
    for name, value in {"registry": registry, "value-as": value_as}.items():
        if value is not None and not sample:
            raise RequestError(f"--{name} is for the records that --sample N shows")
    if registry is not None and value_as == "text":
        raise RequestError("--registry has no effect with --value-as text, which decodes nothing")


def _places(disk: Disk) -> list[str]:
    """Return the folders of a disk that was opened before."""
    if disk.log_dirs:
        return [log_dir.path for log_dir in disk.log_dirs]
    return [*(p.path for p in disk.partitions), *(segment.path for segment in disk.loose)]
