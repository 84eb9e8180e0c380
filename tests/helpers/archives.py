"""Archives that are written by hand, to be read: a tier by `Uploader`, and points over it."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pylogseg
from helpers.tiers import Uploader
from pylogseg.disk.tier.point import MARK, SUFFIXES, ArchivedFile, ArchivedPartition, ArchivedSegment, Point, SeenDisk
from pylogseg.disk.tier.points import archive_store, mark_text, new_id, write_point
from pylogseg.errors import PylogsegError
from pylogseg.format.files.checkpoint import parse_leader_epochs
from pylogseg.format.files.properties import parse_properties
from pylogseg.reading.seek import end_offset

TIME_MS = 1_780_000_000_000

#: Topic, partition, offset and value of a record.
Row = tuple[str, int, int, bytes | None]


def rows_of(log: object) -> set[Row]:
    """The records of a disk or of a point, as far as they can be read."""
    rows: set[Row] = set()
    try:
        for record in pylogseg.read(log, on_corrupt="skip"):  # type: ignore[call-overload]
            rows.add((record.topic, record.partition, record.offset, record.value))
    except PylogsegError:
        pass
    return rows


def digest(data: bytes) -> ArchivedFile:
    """What a point says of an object."""
    return ArchivedFile(len(data), hashlib.sha256(data).hexdigest())


class Archiver:
    """Writes points of a log directory, the n-th an hour after the one before it; segments that are there stay."""

    def __init__(self, root: Path, home: Path, **how: object) -> None:
        self.root, self.home, self.uploader = root, home, Uploader(root, **how)  # type: ignore[arg-type]
        self._known: dict[tuple[str, int, str], Path] = {}
        self.points: list[Point] = []
        self.settings: dict[str, dict[str, str]] = {}

    @property
    def url(self) -> str:
        """The archive as a tier."""
        return f"aiven+file://{self.root}"

    def point(self) -> Point:
        """Write a point of what is in the log directory now."""
        time_ms = TIME_MS + 3_600_000 * len(self.points)
        disk = pylogseg.open_dir(self.home)
        partitions = [self._partition(part) for part in disk.partitions if part.is_live]
        label = self.home / "meta.properties"
        cluster = parse_properties(label.read_bytes())["cluster.id"] if label.exists() else ""
        disks = (SeenDisk(str(self.home), 1, cluster, "", "stopped"),)
        ordered = sorted(partitions, key=lambda each: (each.topic, each.topic_id, each.partition))
        point = Point(new_id(time_ms), time_ms, "tests", cluster, disks, tuple(ordered), self.settings)
        (self.root / MARK).write_text(mark_text(cluster))
        write_point(archive_store(self.root), point)
        self.points.append(point)
        return point

    def _partition(self, part: pylogseg.Partition) -> ArchivedPartition:
        folder = Path(part.path)
        topic_id = (folder / "partition.metadata").read_text().split("topic_id: ")[1].strip()
        end = end_offset(part.segments)
        segments = [
            self._segment(folder, each.base_offset, each.next_base or end, topic_id)
            for each in part.segments
            if each.size
        ]
        epochs = folder / "leader-epoch-checkpoint"
        found = parse_leader_epochs(epochs.read_bytes()) if epochs.exists() else []
        stable = min([end, *(row.first_txn_offset for row in _open(folder))])
        return ArchivedPartition(
            part.topic, topic_id, part.partition, part.log_start_offset, end, stable, "log end", 0,
            tuple((each.epoch, each.start_offset) for each in found), tuple(segments),
            self._files(folder, part, topic_id),
        )  # fmt: skip

    def _segment(self, folder: Path, base: int, end: int, topic_id: str) -> ArchivedSegment:
        data = (folder / f"{base:020d}.log").read_bytes()
        key = topic_id, int(folder.name.rpartition("-")[2]), hashlib.sha256(data).hexdigest()
        manifest = self._known.get(key)
        if manifest is None:
            manifest = self._known[key] = self.uploader.segment(folder, base, end, topic_id)
        stem = str(manifest).removesuffix(SUFFIXES[2])
        objects = [digest(Path(stem + suffix).read_bytes()) for suffix in SUFFIXES]
        return ArchivedSegment(base, end, len(data), manifest.name[21:43], *objects)

    def _files(self, folder: Path, part: pylogseg.Partition, topic_id: str) -> dict[str, ArchivedFile]:
        found = {}
        for path in [*sorted(folder.glob("*.checkpoint"))[-1:], *([] if part.size else folder.glob("*.snapshot"))]:
            found[path.name] = digest(path.read_bytes())
            target = self.root / "files" / f"{part.topic}-{topic_id}" / str(part.partition)
            target = target / found[path.name].sha256[:16] / path.name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
        return found


def _open(folder: Path) -> list[object]:
    from pylogseg.offline.ending_transactions import transactional_producers

    return [row for row in transactional_producers(str(folder), []) if row.first_txn_offset >= 0]
