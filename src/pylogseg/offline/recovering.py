"""`recover`: recover logs like the start and the clean shutdown of a broker, with the same losses."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pylogseg.disk.listing import open_dir
from pylogseg.disk.target import Target, chosen_in, sizes_in
from pylogseg.env.filesystem import Entry
from pylogseg.env.storage import LocalStorage, Storage
from pylogseg.errors import CorruptionError, PylogsegError, RequestError, StorageError
from pylogseg.format.columns import to_row
from pylogseg.format.names import FileKind, parse_file_name, parse_partition_folder
from pylogseg.inspect.verify.findings import PERHAPS_COMPACTED, REMEDIES, Finding
from pylogseg.inspect.verify.lacking import lacking
from pylogseg.inspect.verify.startup import check_start
from pylogseg.log.recovery import UnreachedError
from pylogseg.log.recovery_keep import KeepError
from pylogseg.log.recovery_report import REMEDIES as ACTION_REMEDIES
from pylogseg.log.recovery_report import ActionKind
from pylogseg.offline.options import OptionKeywords, Options, takes_executor
from pylogseg.offline.partition import OfflinePartition, keeper_of
from pylogseg.offline.result import Result
from pylogseg.offline.running import remedy_of_disk, run_command
from pylogseg.offline.topic_ids import write_missing_topic_id
from pylogseg.transfer.checkpoints import read_checkpoints
from pylogseg.values.internal.cluster import clusters_of

if TYPE_CHECKING:  # typing has it from Python 3.11 on
    from typing_extensions import Unpack


#: Kinds of findings about offsets that are missing inside a log. A report of actions has what is missing at its end.
_INSIDE = ("orphan-lost", PERHAPS_COMPACTED)


@takes_executor
def recover(
    path: str | os.PathLike[str], *, full: bool = False, keep: str | None = None, **options: Unpack[OptionKeywords]
) -> Result:
    """Recover logs after a crash as a starting broker does, and close them as a clean shutdown does.

    The command removes what a broker would cut off or remove, and the result's reports name it.

    Parameters
    ----------
    path : path
        A log directory, or the folder of one partition.
    full : bool
        Read every segment: the clean shutdown marker and the recovery points are ignored.
    keep : str, optional
        A folder that gets copies of what is cut off or removed. No copies without it.
    **options
        See `pylogseg.offline.options.Options`.

    Returns
    -------
    Result
        ``numbers`` of a result: those of its ``report``, ``damaged`` (places that lost records) and ``kept`` (copies).
        ``refusals`` are findings that keep a broker from starting, independent of its logs.
    """
    shared = Options.of(options)
    keeper = keeper_of(os.fspath(path), keep, shared)

    def work(part: OfflinePartition) -> None:
        result, report = part.result, part.result.report
        try:
            clean, point = (False, 0) if full else (part.start.clean, part.start.recovery_point)
            log = part.open(clean=clean, recovery_point=point, keeper=keeper, as_broker=True)
            report.compare_end(part.folder, log.log_end_offset, part.start.recovery_point, part.start.high_watermark)
        except PylogsegError as error:
            part.stays_trusted = False  # a broker recovers it by itself
            result.remedy = _remedy(error)
            raise
        finally:
            lost = sum(action.is_damage for action in report.actions)
            result.numbers = {**to_row(report), "damaged": lost, "kept": len(report.kept)}
            result.loses_records = any(action.bytes_gone for action in report.actions)
        result.state = "done" if report.actions else "unchanged"
        write_missing_topic_id(part)

    places = Target.find_all(shared.storage, os.fspath(path))
    gone = _find_gone(places, shared)
    result = run_command(path, shared, work, takes=("future", "stray"))
    inside = [finding for finding in result.lacking if finding.kind in _INSIDE]
    result.lacking = [*gone, *inside]
    if shared.into is None and isinstance(shared.storage, LocalStorage):
        planned = {change.path for part_result in result for change in part_result.changes}  # of a dry run
        found = [finding for place in places for finding in _refusals(place)]
        result.refusals = [finding for finding in found if finding.path not in planned]
    return result


def _find_gone(places: list[Target], options: Options) -> list[Finding]:
    """Return partitions that are not there at all; asked before their entries in checkpoints go."""
    if not isinstance(options.storage, LocalStorage) or not all(place.is_whole for place in places):
        return []
    found = lacking(open_dir([place.parent for place in places]), [])
    return [finding for finding in found if finding.offset is not None]  # what moved is not known to the metadata


def _refusals(place: Target) -> list[Finding]:
    if place.log_dir is None or not place.is_whole or place.error is not None:
        return []
    disk = open_dir(place.log_dir)
    return [finding for finding in check_start(disk.log_dirs, clusters_of(disk)[0]) if finding.is_damage]


def unflushed_bytes(path: str, options: Options, full: bool) -> int:
    """Bytes of the segments that a recovery will read, about; for a bar of progress."""
    storage, total = options.storage, 0
    for place, names in chosen_in(Target.find_all(storage, path), options.choice):
        if place.error is not None or (not full and _is_marked(storage, place)):
            continue
        in_dir = place.log_dir is not None and not full
        points = read_checkpoints(storage, place.parent)[FileKind.RECOVERY_POINTS] if in_dir else {}
        total += sum(_sum_unflushed(storage, storage.join(place.parent, name), name, points) for name in names)
    return total


def _is_marked(storage: Storage, place: Target) -> bool:
    return place.log_dir is not None and storage.exists(storage.join(place.log_dir, FileKind.CLEAN_SHUTDOWN.value))


def _sum_unflushed(storage: Storage, path: str, name: str, points: Mapping[tuple[str, int], int]) -> int:
    folder = parse_partition_folder(name)
    point = points.get((folder.topic, folder.partition), 0) if folder else 0
    entries: list[Entry] = sizes_in(storage, path)
    logs = {}
    for entry in entries:
        file = parse_file_name(entry.name)
        if file.kind is FileKind.LOG and file.is_live and file.offset is not None:
            logs[file.offset] = entry.size
    first = max((base for base in logs if base <= point), default=0)
    return sum(size for base, size in logs.items() if base >= first)


def _remedy(error: PylogsegError) -> str:
    if isinstance(error, KeepError):
        return "nothing was cut that has no copy: name another folder by --keep, or do without by --no-keep"
    if isinstance(error, UnreachedError):
        return ACTION_REMEDIES[ActionKind.UNREACHED]
    if isinstance(error, StorageError):
        return remedy_of_disk(error, "recovered partitions stay recovered")
    if isinstance(error, CorruptionError) and error.path.endswith(FileKind.LEADER_EPOCHS.value):
        return REMEDIES["leader-epoch-file"]
    if isinstance(error, CorruptionError) and error.path.endswith(FileKind.PARTITION_METADATA.value):
        return REMEDIES["metadata"]
    if isinstance(error, RequestError):
        return "nothing was written there"
    return "take the partition from another replica: a broker cannot load it either"
