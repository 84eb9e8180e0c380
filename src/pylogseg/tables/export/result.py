"""The result of an export: the files that it wrote, and the problems."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from pylogseg.format.outcome import Outcome
from pylogseg.format.words import count_text, size_text
from pylogseg.inspect.verify.findings import Finding
from pylogseg.tables.export.file import Exported
from pylogseg.tables.export.tables import DatedFile


@dataclass
class ExportResult(Outcome):
    """The files of an export, and the unreadable parts of the source."""

    out: str
    files: Sequence[Exported | DatedFile] = ()
    is_damaged: bool = False
    problems: list[str] = field(default_factory=list)  #: Damage that is not reported yet.
    kept: list[str] = field(default_factory=list)  #: Folders or a file that stay, as not all could be read.
    unlisted: list[str] = field(default_factory=list)  #: Errors of logs that were left out.
    empty: int = 0  #: Partitions without a record to export.
    undecoded: int = 0  #: Payloads.
    lacking: Sequence[Finding] = ()

    @property
    def exit_code(self) -> int:
        """For a shell: 2 if a log or a file was left out, 1 if there is damage, a missing record or a bad payload."""
        if self.kept or self.unlisted:
            return 2
        return int(bool(self.is_damaged or self.problems or self.lacking or self.undecoded))

    def parts(self) -> Sequence[Exported | DatedFile]:
        """Return the files."""
        return self.files

    def warnings(self) -> Iterator[str]:
        """Yield damage, payloads that did not decode, files that stay, and logs that were left out."""
        yield from self.problems
        if self.undecoded:
            yield f"{count_text(self.undecoded, 'payload')} could not be decoded"
        for path in self.kept:
            yield (
                f"{path} is still of the earlier export: not all that would replace it could be read, so nothing of "
                "that was written; to get it, export to another place"
            )
        yield from self.unlisted

    @property
    def empty_text(self) -> str:
        """A line about partitions without a file; empty if there is none."""
        return (
            f"{count_text(self.empty, 'partition')} without a record to export: no file is made" if self.empty else ""
        )

    def lines(self) -> Iterator[str]:
        """Yield a line with counts, and one about partitions without a file."""
        files = [file for file in self.files if file.path is not None]
        states = Counter(file.state for file in files if isinstance(file, DatedFile)).items()
        shown = ", ".join(f"{count} {state}" for state, count in states)
        records, size = (sum(getattr(file, name) or 0 for file in files) for name in ("records", "size_bytes"))
        counts = f"{count_text(records, 'record')} in {count_text(len(files), 'file')}, {size_text(size)}"
        yield f"{self.out}: {counts}{f' ({shown})' if shown else ''}"
        if self.empty:
            yield self.empty_text
