"""Gaps that a log had before an offline command changed it. The command may remove their signs."""

from __future__ import annotations

import os
from collections import defaultdict

from pylogseg.disk.listing import open_dir
from pylogseg.disk.target import Target
from pylogseg.env.storage import LocalStorage
from pylogseg.inspect.verify.findings import Finding
from pylogseg.inspect.verify.lacking import Look, lacking, lacking_in
from pylogseg.offline.options import Options
from pylogseg.offline.result import PartitionResult, Result


def known_lacks(place: Target, names: list[str], options: Options) -> list[Finding]:
    """Return the missing records of folders. Call it first: opening a log rewrites the checkpoints that show them."""
    if not isinstance(options.storage, LocalStorage):
        return []
    return lacking_in([(place, names)], jobs=options.jobs, whole=False, how=Look.OUTLINE)


def name_lacks(result: Result, known: list[Finding]) -> None:
    """Add the missing records of the partitions to a result, without records that the command has brought back."""
    by_name = defaultdict[str, list[Finding]](list)
    for finding in known:  # of a partition's folder, or of a file in it
        for name in {os.path.basename(finding.path), os.path.basename(os.path.dirname(finding.path))}:
            by_name[name].append(finding)
    for part in result:
        before = by_name.get(part.name, [])
        left = before if result.dry_run else _select_remaining(part, before)
        if "offsetsMissing" in part.numbers and part.log_end is not None:
            # It counts what is missing below the end, and what was removed there.
            removed = [action.next_offset or 0 for action in part.report.actions if action.is_damage]
            counted = max([part.log_end, *removed])
            part.numbers["offsetsMissing"] += sum(_count_from(finding, counted) for finding in left)
        result.lacking += left


def _select_remaining(part: PartitionResult, before: list[Finding]) -> list[Finding]:
    if not before or "offsetsFromOthers" not in part.numbers:
        return before
    now = lacking(open_dir([part.path]))
    log_start, log_end = part.log_start or 0, part.log_end or 0

    def is_back(first: int, end: int) -> bool:
        is_inside = log_start <= first < end <= log_end
        return is_inside and not any(finding.is_about(first, end) for finding in now)

    return [finding for finding in before if not is_back(*finding.offsets)]


def _count_from(finding: Finding, offset: int) -> int:
    first, end = finding.offsets
    return max(end - max(first, offset), 0)
