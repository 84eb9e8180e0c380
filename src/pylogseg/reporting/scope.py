"""The parts that a report read and did not read, in sentences, and the verdict that claims no more than that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from pylogseg.disk.disk import Segment
from pylogseg.format.escape import printable
from pylogseg.inspect.verify.disk import VerifySummary
from pylogseg.reporting.facts import ScopeFact
from pylogseg.reporting.options import ReportOptions
from pylogseg.reporting.scanning import SegmentScan

_MOST_NOTES = 100


class ReportScope:
    """Counts the parts of segments that were read, and names the unread ones."""

    def __init__(self, options: ReportOptions) -> None:
        mode = "full" if options.full else "headers"
        self.fact = ScopeFact(mode, options.since, options.until, payloads=options.payloads)
        self.logs = 0  # that are not empty: partitions, and files named by themselves
        self.late: list[str] = []
        self._options, self._ways = options, Counter[str]()
        self._undecided: list[str] = []

    def add(self, segment: Segment, scan: SegmentScan) -> None:
        """Count a segment."""
        fact = self.fact
        fact.segments += 1
        fact.size += scan.row.size
        self._ways[scan.read] += 1
        fact.headers += scan.headers
        self._undecided += scan.report.undecided[: max(0, _MOST_NOTES - len(self._undecided))]
        if scan.sample is not None:
            fact.records_decoded += scan.sample.records + scan.sample.control_records
            fact.bytes_decoded += sum(codec.stored_bytes for codec in scan.sample.codecs.values())
        if scan.is_gone:
            self.add_notes(f"{segment.path}: deleted while the report was made")

    def add_notes(self, *notes: str) -> None:
        """Add notes, each once."""
        self.fact.notes = tuple(dict.fromkeys([*self.fact.notes, *map(printable, notes)]))

    def finish(self, summary: VerifySummary, aggregated: str) -> ScopeFact:
        """Name the checks that were made and the skipped ones."""
        fact, ways = self.fact, self._ways
        fact.segments_with_all_headers, fact.segments_with_some_headers = ways["headers"], ways["some"]
        fact.segments_read_whole, fact.aggregated = ways["all"], aggregated
        fact.checked, fact.notes = tuple(self._name_checks()), fact.notes[:_MOST_NOTES]
        undecided = (printable(text) for text in (*self._undecided[:_MOST_NOTES], *summary.not_checked))
        fact.not_checked = (*self._name_rest(), *self.late[:_MOST_NOTES], *undecided)
        return fact

    def _name_checks(self) -> Iterator[str]:
        fact, ways = self.fact, self._ways
        yield "names and sizes of all files"
        if ways["headers"]:
            yield (
                f"every batch header of {_segments(ways['headers'])} against its neighbours, its offset index and its "
                "time index"
            )
        if ways["some"]:
            yield f"some batch headers of {_segments(ways['some'])}; their counts are estimates"
        if ways["all"]:
            full = self._options.full
            why = "" if full else ", as their headers alone do not tell (legacy formats, damage, torn ends)"
            yield f"every byte of {_segments(ways['all'])}: checksums, records, indexes{why}"
        if not self._options.full and fact.records_decoded:
            yield (
                f"values of {fact.partitions_sampled:,} partition{'' if fact.partitions_sampled == 1 else 's'} were "
                f"sampled, of {self.logs:,}: {fact.records_decoded:,} records in {fact.bytes_decoded:,} bytes, decoded "
                "with their checksums"
            )
        if self._options.is_whole:
            yield "checkpoints, snapshots and leader epochs, also for missing segments and partitions"

    def _name_rest(self) -> Iterator[str]:
        fact, ways = self.fact, self._ways
        if not self._options.full and ways["headers"] + ways["some"]:
            if fact.bytes_decoded < fact.size:
                yield (
                    f"checksums and records of the other batches: {fact.size - fact.bytes_decoded:,} bytes "
                    "(--full reads them)"
                )
            yield "whether transaction indexes agree with the markers in the log (--full)"
        if not self._options.full and fact.partitions_sampled < self.logs:
            yield f"any record of {self.logs - fact.partitions_sampled:,} partitions, the smaller ones (--full)"
        if ways["some"]:
            yield f"unread headers in the middle of {_segments(ways['some'])} (--full)"
        if ways["names"]:
            yield f"anything but the first and the last batches of {_segments(ways['names'])} that are not local"
        if not self._options.is_whole:
            yield "missing offsets, segments and partitions: with bounds of time only batches of that time are read"


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
