"""`delete-records`: advance the log start offset of a partition, and delete the segments below it."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pylogseg.disk.target import Target
from pylogseg.errors import RequestError
from pylogseg.format.names import parse_partition_folder, partition_folder_name
from pylogseg.log.log import Log
from pylogseg.offline.ages import UNCOMMITTED
from pylogseg.offline.options import OptionKeywords, Options, takes_executor
from pylogseg.offline.partition import OfflinePartition
from pylogseg.offline.result import Result
from pylogseg.offline.running import run_command

if TYPE_CHECKING:  # typing has it from Python 3.11 on
    from typing_extensions import Unpack

#: Instead of an offset: all that is below the high watermark.
HIGH_WATERMARK = -1
_VERSION = 1


@takes_executor
def delete_records(
    path: str | os.PathLike[str],
    offsets: int | Mapping[str, int],
    *,
    force: bool = False,
    **options: Unpack[OptionKeywords],
) -> Result:
    """Delete the records below an offset, as Kafka's ``DeleteRecords`` and then its retention do.

    The log start offset moves, in the log directory's checkpoint; segments that lie below it go. Records below it that
    share a segment with others stay in the file, and no reader of a log gives them.

    Parameters
    ----------
    path : path
        A log directory, or the folder of one partition.
    offsets : int or mapping of str to int
        The first offset that stays, of all chosen partitions or by their names (``"orders-3"``); -1 for the high
        watermark. Partitions that have no offset here are left alone.
    force : bool
        Take partitions too whose ``cleanup.policy`` has no ``delete``: a broker refuses those.
    **options
        See `pylogseg.offline.options.Options`.

    Returns
    -------
    Result
        ``numbers`` of a result: ``segmentsDeleted``, ``logStartBefore``, ``offsetsGone``.
    """
    shared = Options.of(options)
    if isinstance(offsets, Mapping) and not offsets:
        raise RequestError("no offsets are given: name partitions and their new log start offsets")
    named = offsets if isinstance(offsets, Mapping) else {"the offset": offsets}
    for name, offset in named.items():
        if offset < HIGH_WATERMARK:
            raise RequestError(f"{name}: {offset} is neither an offset nor -1 for the high watermark")
    places = Target.find_all(shared.storage, os.fspath(path))
    missing: list[str] = []
    if isinstance(offsets, Mapping):
        missing = sorted(set(offsets).difference(*(place.names for place in places)))
    if isinstance(offsets, Mapping) and not shared.choice.names:
        shared = dataclasses.replace(shared, topic=sorted(set(offsets) - set(missing)) or sorted(offsets))
    elif places[0].is_whole and shared.choice.is_all:
        raise RequestError("one offset would apply to every partition of the disk: name partitions, or '*' for all")

    def work(part: OfflinePartition) -> None:
        requested = offsets.get(part.name) if isinstance(offsets, Mapping) else offsets
        if requested is None:
            part.result.skip("no offset is given", "offsets go by partition, as in orders-3=100")
        elif not part.config.delete and not force:
            part.result.skip("cleanup.policy has no delete: a broker refuses", "use --force to do it anyway")
        else:
            _delete(part, part.open(), requested)

    result = run_command(path, shared, work, frees=True)
    result.missing = missing
    there = [name for place in places for name in place.names]
    result.notes += [_not_here(name, there) for name in missing]
    return result


def _not_here(asked: str, names: Sequence[str]) -> str:
    folders = sorted((folder.topic, folder.partition) for name in names if (folder := parse_partition_folder(name)))
    numbers = [number for topic, number in folders if topic == asked]
    if not numbers:
        return f"{asked} is not here: nothing was done for it"
    return (
        f"{asked} is a topic, and offsets go by partition: name one, as {asked}-{numbers[0]}; nothing was done for it"
    )


def _delete(part: OfflinePartition, log: Log, requested: int) -> None:
    start = log.log_start_offset
    offset = log.high_watermark if requested == HIGH_WATERMARK else requested
    if part.directory is None and offset > start and offset not in log.segments.base_offsets:
        bases = ", ".join(map(str, log.segments.base_offsets))
        raise RequestError(
            f"{part.folder} lies in no log directory, whose checkpoint would say that the log begins at {offset}: "
            f"segments begin at {bases}"
        )
    if requested == HIGH_WATERMARK and offset < log.log_end_offset:
        ends = f"the log ends at {log.log_end_offset}, and the high watermark is {offset}"
        part.result.notes.append(f"{ends}: {UNCOMMITTED}")
    moved = log.increment_log_start(offset)
    count, gone = log.delete_below_start(), log.log_start_offset - start
    part.result.numbers = {"segmentsDeleted": count, "logStartBefore": start, "offsetsGone": gone}
    part.result.state = "done" if moved else "unchanged"


def parse_offset_file(data: bytes | str, path: str = "<offsets>") -> dict[str, int]:
    """Read the JSON of offsets that ``kafka-delete-records.sh`` takes: names of partitions to offsets.

    ``{"partitions": [{"topic": "orders", "partition": 3, "offset": 1500}], "version": 1}``
    """
    try:
        root = json.loads(data)
        if root.get("version", _VERSION) != _VERSION:
            raise RequestError(f"{path}: version {root['version']} is not {_VERSION}, the only one there is")
        rows = [(_check_type(row["topic"], str), _check_type(row["partition"], int), _check_type(row["offset"], int))
                for row in root["partitions"]]  # fmt: skip
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        if isinstance(error, RequestError):
            raise
        raise RequestError(
            f"{path}: not a list of offsets: {type(error).__name__}: {error}; "
            'expected is {"partitions": [{"topic": "orders", "partition": 0, "offset": 10}], "version": 1}'
        ) from None
    offsets: dict[str, int] = {}
    for topic, partition, offset in rows:
        name = partition_folder_name(topic, partition)
        if name in offsets:
            raise RequestError(f"{path}: partition {name} is listed twice")
        offsets[name] = offset
    return offsets


def _check_type(value: Any, kind: type) -> Any:
    if not isinstance(value, kind) or isinstance(value, bool):
        raise TypeError(f"{value!r} is not of type {kind.__name__}")
    return value
