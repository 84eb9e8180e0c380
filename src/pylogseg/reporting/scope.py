"""What a report read and did not read, in sentences, and the verdict that claims no more than that."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from pylogseg.disk.disk import Segment
from pylogseg.format.escape import printable
from pylogseg.inspect.verify.disk import VerifySummary
from pylogseg.reporting.facts import ScopeFact
from pylogseg.reporting.options import ReportOptions
from pylogseg.reporting.scanning import SegmentScan

_MOST_NOTES = 100


@dataclass
class ReadCounts:
    """Counts of what was read of the segments."""

    partitions: int = 0
    logs: int = 0  #: That are not empty: partitions, and files named by themselves.
    sampled: int = 0  #: Logs of which records were decoded.
    segments: int = 0
    size: int = 0
    ways: Counter[str] = field(default_factory=Counter)
    headers: int = 0
    records: int = 0
    decoded_bytes: int = 0
    undecided: list[str] = field(default_factory=list)
    late: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, segment: Segment, scan: SegmentScan) -> None:
        self.segments += 1
        self.size += scan.row.size
        self.ways[scan.read] += 1
        self.headers += scan.headers
        self.undecided += scan.report.undecided[: max(0, _MOST_NOTES - len(self.undecided))]
        if scan.sample is not None:
            self.records += scan.sample.records + scan.sample.control_records
            self.decoded_bytes += sum(codec.stored_bytes for codec in scan.sample.codecs.values())
        if scan.is_gone:
            self.add_notes(f"{segment.path}: deleted while the report was made")

    def add_notes(self, *notes: str) -> None:
        """Add notes, each once."""
        self.notes = list(dict.fromkeys([*self.notes, *map(printable, notes)]))


def scope_fact(reading: ReadCounts, options: ReportOptions, summary: VerifySummary, aggregated: str) -> ScopeFact:
    """Return what was read and what was not."""
    ways = reading.ways
    checked = ["names and sizes of all files"]
    if ways["headers"]:
        checked.append(
            f"every batch header of {_segments(ways['headers'])} against its neighbours, its offset index and its time "
            "index"
        )
    if ways["some"]:
        checked.append(f"some batch headers of {_segments(ways['some'])}; their counts are estimates")
    if ways["all"]:
        why = "" if options.full else ", as their headers alone do not tell (legacy formats, damage, torn ends)"
        checked.append(f"every byte of {_segments(ways['all'])}: checksums, records, indexes{why}")
    if not options.full and reading.records:
        checked.append(
            f"values of {reading.sampled:,} partition{'' if reading.sampled == 1 else 's'} were sampled, of "
            f"{reading.logs:,}: {reading.records:,} records in {reading.decoded_bytes:,} bytes, decoded with their "
            "checksums"
        )
    if options.is_whole:
        checked.append("checkpoints, snapshots, leader epochs, and what they say about missing segments and partitions")
    left = []
    if not options.full and ways["headers"] + ways["some"]:
        if reading.decoded_bytes < reading.size:
            left.append(
                f"checksums and records of the other batches: {reading.size - reading.decoded_bytes:,} bytes "
                "(--full reads them)"
            )
        left.append("whether transaction indexes agree with the markers in the log (--full)")
    if not options.full and reading.sampled < reading.logs:
        left.append(f"any record of {reading.logs - reading.sampled:,} partitions, the smaller ones (--full)")
    if ways["some"]:
        left.append(f"headers between those that were read of {_segments(ways['some'])} (--full)")
    if ways["names"]:
        left.append(f"anything but the first and the last batches of {_segments(ways['names'])} that are not local")
    if not options.is_whole:
        left.append("missing offsets, segments and partitions: with bounds of time only batches of that time are read")
    left += reading.late[:_MOST_NOTES]
    left += [printable(text) for text in (*reading.undecided[:_MOST_NOTES], *summary.not_checked)]
    return ScopeFact(
        mode="full" if options.full else "headers",
        since_ms=options.since,
        until_ms=options.until,
        partitions=reading.partitions,
        partitions_sampled=reading.sampled,
        segments=reading.segments,
        size=reading.size,
        segments_with_all_headers=ways["headers"],
        segments_with_some_headers=ways["some"],
        segments_read_whole=ways["all"],
        headers=reading.headers,
        records_decoded=reading.records,
        bytes_decoded=reading.decoded_bytes,
        checked=tuple(checked),
        not_checked=tuple(left),
        notes=tuple(reading.notes[:_MOST_NOTES]),
        aggregated=aggregated,
        payloads=options.payloads,
    )


def _segments(count: int) -> str:
    return f"{count:,} segment{'' if count == 1 else 's'}"


def verdict_of(scope: ScopeFact, summary: VerifySummary) -> str:
    """Return the verdict in a sentence, with the words of `verify`."""
    looked = (
        "every byte of every segment was read"
        if scope.segments_read_whole == scope.segments
        else f"{scope.headers:,} batch headers and {scope.records_decoded:,} records were read, the rest was not"
        if scope.bytes_decoded < scope.size
        else f"{scope.headers:,} batch headers and all {scope.records_decoded:,} records were read"
    )
    if not scope.segments and not summary.exit_code:
        return "There is no segment to look at."
    return f"{summary.words[0].upper()}{summary.words[1:]} ({looked})."
