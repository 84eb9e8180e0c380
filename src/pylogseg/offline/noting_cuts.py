"""Note deliberate cuts in a partition's folder, so that `verify` does not take them for damage."""

from __future__ import annotations

from collections.abc import Iterable

from pylogseg import _codec
from pylogseg.env.storage import AppendFile
from pylogseg.errors import CorruptionError
from pylogseg.format.files.cuts import Cut, encode_cuts, parse_cuts
from pylogseg.format.names import FileKind
from pylogseg.offline.partition import OfflinePartition
from pylogseg.walker.gaps import Gap


def note_cuts(
    part: OfflinePartition, command: str, file: AppendFile, gaps: Iterable[Gap], end_offset: int | None
) -> None:
    """Note gaps before their bytes are removed from a segment that ends at an offset; None for the last one.

    Before they go: what is noted and still there is damage as before. A gap that leaves no offset open is none.
    """
    new = []
    for gap in gaps:
        following = end_offset if gap.next_offset is None else gap.next_offset
        if following is not None and following > gap.first_offset:
            bytes_gone = file.view(gap.position, gap.end_position - gap.position)
            new.append(_build_cut(part, command, gap, following, int(_codec.crc32c(bytes_gone))))
    _add(part, new)


def note_gaps(part: OfflinePartition, command: str, gaps: Iterable[Gap]) -> None:
    """Note gaps without anything about their bytes."""
    _add(part, [_build_cut(part, command, gap, gap.next_offset, 0) for gap in gaps if gap.next_offset is not None])


def _build_cut(part: OfflinePartition, command: str, gap: Gap, following: int, checksum: int) -> Cut:
    name, size = part.storage.split(gap.path)[1], gap.end_position - gap.position
    now_ms = part.clock.now_ms()
    return Cut(gap.first_offset, following, command, now_ms, name, gap.position, size, checksum, gap.reason)


def _add(part: OfflinePartition, new: list[Cut]) -> None:
    if not new:
        return
    path, known = part.storage.join(part.folder, FileKind.CUTS.value), []
    if part.storage.exists(path):
        try:
            known = parse_cuts(part.storage.read_all(path), path)
        except CorruptionError as error:
            part.result.notes.append(f"{error}; it is written anew, without its earlier entries")
    part.storage.write_synced(path, encode_cuts([*known, *new]))
